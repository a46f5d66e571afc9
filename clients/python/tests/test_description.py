"""The client beside the description of the API: what has a method, with which parameters, and which fields its answers have."""

from __future__ import annotations

import inspect
import json
import os
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from server import Server

import tidewire
from tidewire import AsyncTidewire, Tidewire, TidewireError, _calls
from tidewire._call import Call, Pages
from tidewire._decode import Model

Description = dict[str, Any]

# Operations that a client does not have, with the reason: one list for all clients of this repository.
LIST = Path(os.environ.get("TIDEWIRE_WITHOUT_METHOD", Path(__file__).resolve().parents[2] / "without-method.json"))
# What programs call in the TypeScript client: its scripts/names.mjs builds it.
NAMES = Path(os.environ.get("TIDEWIRE_TYPESCRIPT_NAMES", Path(__file__).resolve().parents[2] / "names.json"))
# Names that only one client has, and why.
ONLY_HERE = {
    "live": "TypeScript has the messages of a connection as events of `watch`",
    "close": "what runs JavaScript closes connections",
    "tls": "what runs JavaScript checks certificates",
    "problem": "TypeScript has the fields of a refusal in the error",
    "sent": "TypeScript has one class of errors, and `outcomeUnknown` for this one's purpose",
    "sources": "TypeScript has one class of errors, and the text has them",
}
ONLY_THERE = {
    "afterSequence": "here only `feed` takes it",
    **dict.fromkeys(["fetch", "WebSocket", "transport"], "not everything that runs JavaScript has each of them"),
    **dict.fromkeys(["name", "stack", "cause"], "every error of JavaScript has them"),
}
# Times are seconds here, and milliseconds there.
MILLISECONDS = {"timeout": "timeoutMs", "retry_wait_max": "retryWaitMaxMs"}
STREAMS = {"GET /v1/changes": "changes", "GET /v1/users/{user}/live": "live"}
# Parameters that methods have by another name.
# A place has a sequence and a reader.
NAMED_OTHERWISE = {
    ("GET /readyz", "for"): "writes",
    ("GET /v1/changes", "limit"): "page_size",
    ("GET /v1/changes", "after_reader"): "after",
    ("GET /v1/changes", "lastEventId"): "after",
}

# The parameters that the client always sends.
ALWAYS_SENT = {("GET /v1/users/{user}/live", "batch")}


@pytest.fixture(scope="module")
def description(server: Server) -> Description:
    """What the server says of itself."""
    found: Description = httpx.get(f"{server.url}/openapi.json").json()
    return found


def operations_of(description: Description) -> dict[str, Any]:
    """Returns the operations by method and path."""
    return {f"{method.upper()} {path}": each for path, methods in description["paths"].items() for method, each in methods.items()}


def called(operations: dict[str, Any]) -> dict[str, str]:
    """Returns the name of a method for each operation that has one."""
    found = dict(STREAMS)
    for name, make in inspect.getmembers(_calls, inspect.isfunction):
        if name.startswith("_") or make.__module__ != _calls.__name__ or not hasattr(Tidewire, name):
            continue
        needed = [each for each in inspect.signature(make).parameters.values() if each.default is inspect.Parameter.empty]
        call = make(*[[] if each.name in ("posts", "ids", "users") else "x" for each in needed])
        if isinstance(call, Pages):
            continue
        assert isinstance(call, Call)
        asked = f"{call.method} {call.path}"
        matching = [each for each in operations if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), asked)]
        # A path without parameters is meant, if several match.
        found[min(matching, key=lambda each: each.count("{"))] = name
    return found


def test_every_operation_has_a_method_or_a_reason_to_have_none(description: Description) -> None:
    left_out = {operation for operation, entry in json.loads(LIST.read_text()).items() if "python" in entry["clients"] and entry["reason"]}
    operations = operations_of(description)
    assert set(operations) - set(called(operations)) == left_out
    assert all(hasattr(Tidewire, name) for name in STREAMS.values())


def test_every_parameter_of_an_operation_is_one_of_its_method(description: Description) -> None:
    operations = operations_of(description)
    missing = []
    for operation, name in called(operations).items():
        has = set(inspect.signature(getattr(Tidewire, name)).parameters)
        wanted = [each["name"] for each in operations[operation].get("parameters", []) if each["in"] == "query"]
        chosen = [each for each in wanted if (operation, each) not in ALWAYS_SENT]
        missing += [(name, each) for each in chosen if NAMED_OTHERWISE.get((operation, each), each) not in has]
    assert missing == []


def test_answers_have_fields_of_the_description_and_none_for_what_may_be_null(description: Description) -> None:
    wrong = []
    for name, schema in description["components"]["schemas"].items():
        model = getattr(tidewire, name, None)
        if not (isinstance(model, type) and issubclass(model, Model)) or "oneOf" in schema:
            continue
        for field in fields(model):
            if field.name == "raw":
                continue
            described = schema["properties"].get(field.name)
            is_required = field.default is MISSING and field.default_factory is MISSING
            is_missing = described is None or (is_required and field.name not in schema.get("required", []))
            kinds = [] if described is None else [each.get("type") for each in [described, *described.get("anyOf", [])]]
            may_be_null = "null" in kinds or any(isinstance(kind, list) and "null" in kind for kind in kinds)
            if is_missing or (may_be_null and "None" not in str(field.type)):
                wrong.append(f"{name}.{field.name}")
    assert wrong == []


def test_both_clients_have_the_same_methods() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(client, callable)
            if not name.startswith("_")
        }

    assert methods(Tidewire) == methods(AsyncTidewire)
    undocumented = [name for name in methods(Tidewire) if not inspect.getdoc(getattr(Tidewire, name))]
    assert undocumented == []


def there(name: str) -> str:
    """Returns what TypeScript calls this."""
    first, *words = name.split("_")
    return MILLISECONDS.get(name, first + "".join(word.title() for word in words))


def test_the_typescript_client_has_the_same_names() -> None:
    theirs = json.loads(NAMES.read_text())
    mine = {there(name): member for name, member in inspect.getmembers(Tidewire) if not name.startswith("_")}
    assert mine.keys() - ONLY_HERE == theirs["methods"].keys() - ONLY_THERE
    for method, names in theirs["methods"].items():
        parameters = inspect.signature(mine[method]).parameters if callable(mine[method]) else {}
        # Fields of posts and rules are named as in JSON in both.
        by_name = {name for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
        assert [name for name in by_name if not {name, there(name)} & set(names)] == [], method
        known = {*parameters, *map(there, parameters), *ONLY_THERE}
        assert [name for name in names if name not in known] == [], method
    options = {there(name) for name in inspect.signature(Tidewire).parameters}
    assert options - ONLY_HERE.keys() == set(theirs["client"]) - ONLY_THERE.keys()


def test_errors_of_the_typescript_client_have_the_same_fields() -> None:
    kinds = [kind for kind in vars(tidewire).values() if isinstance(kind, type) and issubclass(kind, TidewireError)]
    fields = {*vars(TidewireError("")), *(name for kind in kinds for name, each in vars(kind).items() if isinstance(each, property))}
    fields |= {"sent", "sources"}
    assert {there(name) for name in fields} - ONLY_HERE.keys() == set(json.loads(NAMES.read_text())["error"]) - ONLY_THERE.keys()


def test_what_the_package_exports_is_there() -> None:
    assert [name for name in tidewire.__all__ if not hasattr(tidewire, name)] == []

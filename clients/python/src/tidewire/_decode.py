"""Decodes the JSON that a server sends into objects, by the type hints of their classes."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime, timezone
from functools import cache
from typing import Any, TypeAlias, TypeVar, Union

M = TypeVar("M", bound="Model")
Convert = Callable[[Any], Any]

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z")


@dataclass(frozen=True)
class Model:
    """An object that a server sent. Fields that this version of the package does not know are in `raw` only."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True)
    """The JSON object as it was sent, for example to forward it to a browser."""


def decode(model: type[M], data: Any) -> M:
    """Returns `data` as a `model`; raises `ValueError` or `TypeError` if it does not match."""
    if not isinstance(data, dict):
        raise TypeError(f"{model.__name__} is sent as an object, not as {type(data).__name__}")
    values = {}
    plan: _Plan = _plan(model)  # type: ignore[arg-type]
    for name, convert, is_required in plan:
        if name in data:
            values[name] = convert(data[name])
        elif is_required:
            raise ValueError(f"{model.__name__} without {name}")
    return model(raw=data, **values)


def read_time(text: str) -> datetime:
    """Parses a time of JSON, RFC 3339 in UTC. A time before the year 1, which `datetime` cannot express, is `datetime.min`."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time")
    seconds, fraction = found.groups()
    if seconds.startswith("0000"):
        return datetime.min.replace(tzinfo=timezone.utc)
    time = datetime.fromisoformat(seconds).replace(tzinfo=timezone.utc)
    return time.replace(microsecond=int((fraction or "0").ljust(6, "0")))


def write_time(time: datetime) -> str:
    """Returns a time as in JSON. Raises an error without a time zone, because the time is ambiguous."""
    if not isinstance(time, datetime):
        raise TypeError(f"a datetime with a time zone is needed, not {time!r}")
    if time.tzinfo is None:
        raise ValueError(f"{time!r} has no time zone")
    return time.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


_Plan: TypeAlias = tuple[tuple[str, Convert, bool], ...]


@cache
def _plan(model: type[Model]) -> _Plan:
    hints = typing.get_type_hints(model)
    found_fields: tuple[Field[Any], ...] = fields(model)
    return tuple(
        (found.name, _converter(hints[found.name]), found.default is MISSING and found.default_factory is MISSING)
        for found in found_fields
        if found.name != "raw"
    )


def _converter(hint: Any) -> Convert:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _converter(next(each for each in arguments if each is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is list:
        of_list = _converter(arguments[0])
        return lambda values: [of_list(value) for value in values]
    if origin is dict:
        of_dict = _converter(arguments[1])
        return lambda values: {name: of_dict(value) for name, value in values.items()}
    if hint is datetime:
        return read_time
    if isinstance(hint, type) and issubclass(hint, Model):
        return lambda value: decode(hint, value)
    return lambda value: value

"""One request and how its answer is read, as data: nothing here does input or output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from ._decode import M, decode

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """An answer of the server, complete."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def request_id(self) -> str | None:
        """The id by which the server's log has the request, if it says one."""
        return self.headers.get("x-request-id")

    @property
    def sequence(self) -> int:
        """The sequence of a cluster's log at which a write is done; 0 without one."""
        text = self.headers.get("tidewire-sequence", "")
        return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request."""

    method: str
    path: str
    read: Callable[[Answer], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    after_sequence: int | None = None
    """The sequence of a cluster's log that the server must have applied before it answers."""
    is_repeatable: bool = True
    """Whether doing it twice has the effect of once, so that it may be sent again when the outcome is not known."""
    without_id: Call[T] | None = None
    """The request to send in its place with a user's token, whose posts get their ids from the server."""
    if_failed: T | None = None
    """What is returned at once when there is no good answer. None: the error is raised, after the tries that are allowed."""


@dataclass(frozen=True)
class Pages(Generic[T]):
    """A list that is read page by page."""

    first: Call[Any]
    items: Callable[[Any], list[T]]
    cursor: str
    """The query parameter that takes the `next` of the page before."""
    takes_partial: bool = True
    """Whether a page may lack what could not be read in time."""

    def lacking(self, page: Any) -> Sequence[str]:
        """Returns the sources for which the page is to be read again: what it lacks is on no later one."""
        sources: Sequence[str] = () if self.takes_partial else page.partial
        return sources

    def after(self, page: Any) -> Call[Any] | None:
        """Returns the request for the page below."""
        if page.next is None:
            return None
        return replace(self.first, query={**self.first.query, self.cursor: page.next})


def path(*parts: str) -> str:
    """Returns a path; each part is one segment, whatever characters it has. Raises `ValueError` for what cannot be a segment."""
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"an id or a name is a str, not {type(part).__name__}")
        # URLs are normalized before they are sent: `following/..` is the user, whom a DELETE there would erase.
        if part in ("", ".", ".."):
            raise ValueError(f"{part!r} cannot be part of a path")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def query(**parameters: str | int | bool | None) -> dict[str, str]:
    """Returns the parameters that are given."""
    words = {True: "true", False: "false"}
    return {name: words[value] if isinstance(value, bool) else str(value) for name, value in parameters.items() if value is not None}


def json_bytes(value: Any) -> bytes:
    """Returns a body. What JSON does not have, such as NaN, is refused with `ValueError`."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def given(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def as_model(model: type[M]) -> Callable[[Answer], M]:
    """Reads the answer as a `model`."""
    return lambda answer: decode(model, json.loads(answer.content))


def as_created(answer: Answer) -> bool:
    """Reads whether a `PUT` has changed anything."""
    return bool(json.loads(answer.content)["created"])


def as_nothing(answer: Answer) -> None:
    """Reads an answer that says no more than that it is done."""


def is_of_user(token: str | None) -> bool:
    """Whether a token is a user's, which is a JSON Web Token, and not a server key."""
    return token is not None and re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token, re.ASCII) is not None

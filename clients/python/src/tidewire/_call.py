"""A request and the decoding of its response, as data. Pure: nothing here does input or output."""

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
    """A complete response of the server."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def request_id(self) -> str | None:
        """The id of the request in the server's log, if the response has one."""
        return self.headers.get("x-request-id")

    @property
    def sequence(self) -> int:
        """The sequence of a cluster's log up to which a write is applied; 0 without one."""
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
    """The sequence of a cluster's log that the server must have applied before it responds."""
    is_repeatable: bool = True
    """True if the request is idempotent, so that it may be sent again after an unknown outcome."""
    without_id: Call[T] | None = None
    """The request to send instead with a user's token, whose posts get their ids from the server."""
    if_failed: T | None = None
    """The value to return at once without a good response. None: raises the error, after the allowed tries."""


@dataclass(frozen=True)
class Pages(Generic[T]):
    """A list that is read page by page."""

    first: Call[Any]
    items: Callable[[Any], list[T]]
    cursor: str
    """The query parameter for the `next` of the previous page."""
    takes_partial: bool = True
    """True if a page may lack sources that could not be read in time."""

    def lacking(self, page: Any) -> Sequence[str]:
        """Returns the sources for which the page must be read again: later pages do not have their missing entries."""
        sources: Sequence[str] = () if self.takes_partial else page.partial
        return sources

    def after(self, page: Any) -> Call[Any] | None:
        """Returns the request for the next page."""
        if page.next is None:
            return None
        return replace(self.first, query={**self.first.query, self.cursor: page.next})


def path(*parts: str) -> str:
    """Returns a path; each part is one segment, with any characters. Raises `ValueError` for a part that cannot be a segment."""
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"an id or a name is a str, not {type(part).__name__}")
        # URLs are normalized before they are sent: a DELETE of `following/..` would erase the user.
        if part in ("", ".", ".."):
            raise ValueError(f"{part!r} cannot be part of a path")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def query(**parameters: str | int | bool | None) -> dict[str, str]:
    """Returns the given parameters, without None."""
    words = {True: "true", False: "false"}
    return {name: words[value] if isinstance(value, bool) else str(value) for name, value in parameters.items() if value is not None}


def json_bytes(value: Any) -> bytes:
    """Returns a body. Raises `ValueError` for values that JSON does not have, such as NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def given(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def as_model(model: type[M]) -> Callable[[Answer], M]:
    """Decodes the response as a `model`."""
    return lambda answer: decode(model, json.loads(answer.content))


def as_created(answer: Answer) -> bool:
    """Returns true if a `PUT` has changed anything."""
    return bool(json.loads(answer.content)["created"])


def as_nothing(answer: Answer) -> None:
    """Decodes a response without content."""


def is_of_user(token: str | None) -> bool:
    """Returns true for a user's token, which is a JSON Web Token, and false for a server key."""
    return token is not None and re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token, re.ASCII) is not None

"""The stream of changes: what to ask for, and what its text says. Pure: nothing here does input or output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ._call import Answer, Call, query
from ._exchange import Options, pause_before
from .errors import ConnectionFailed, UnexpectedAnswer
from .messages import Change, ChangeType, ReachedMessage, change_of

# The server sends `reached` every 30 seconds.
SILENCE_MAX = 75.0
EVENTS = {"accept": "text/event-stream", "accept-encoding": "identity"}


class Position:
    """Where a consumer is in the stream, and how it asks for what follows."""

    def __init__(self, after: int | None, types: Iterable[ChangeType] | None) -> None:
        self.after = after
        self._types = None if types is None else ",".join(types)

    def query(self, limit: int | None = None) -> dict[str, str]:
        """Returns the parameters of a request for what follows."""
        return query(after=self.after, limit=limit, types=self._types)

    def passed(self, change: Change) -> None:
        """Takes note that a change was handed out."""
        self.after = change.sequence


class EventReader:
    """Reads server-sent events piece by piece.

    Lines end with line feeds only: the text of JSON may have other characters that end lines elsewhere, such as U+2028.
    """

    def __init__(self) -> None:
        self._rest = b""

    def read(self, chunk: bytes) -> Iterator[Change]:
        """Returns what is complete with this piece, one by one: so a line that cannot be read keeps none before it from the caller."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return (read_line(line[len(b"data:") :]) for line in whole if line.startswith(b"data:"))


def batch(position: Position, limit: int) -> Call[list[bytes]]:
    """Returns the request for the lines of the next changes up to now, at most about `limit`."""
    return Call("GET", "/v1/changes", _read_batch, position.query(limit))


def is_last(newest: Change | None, count: int, limit: int) -> bool:
    """Whether what was accepted up to the request is all there, by the last line of the answer and their count."""
    return isinstance(newest, ReachedMessage) and count <= limit


def no_progress(failures: int, options: Options) -> float:
    """Returns how long to pause after so many answers in a row that brought nothing new; raises after as many as a call is tried."""
    if failures > options.retries:
        raise ConnectionFailed("the changes were cut short before the first one, again and again", sent=True)
    return pause_before(failures - 1, None, options.retry_wait_max)


def _read_batch(answer: Answer) -> list[bytes]:
    # Of an answer that was cut short, the last line may be incomplete.
    *whole, _rest = answer.content.split(b"\n")
    return [line for line in whole if line]


def read_line(line: bytes) -> Change:
    """Returns a complete line as a change. Raises what no other try mends: the same line would come again."""
    try:
        return change_of(json.loads(line))
    except (ValueError, TypeError, LookupError) as cause:
        raise UnexpectedAnswer(f"the stream of changes has a line of another form: {cause}") from cause

"""The stream of changes: the requests, and the decoding of its text. Pure: nothing here does input or output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ._call import Call, as_nothing, query
from ._exchange import Options, pause_before
from .errors import ConnectionFailed, UnexpectedAnswer
from .messages import Change, ChangeType, ReachedMessage, change_of

# The server sends `reached` every 30 seconds.
SILENCE_MAX = 75.0
EVENTS = {"accept": "text/event-stream", "accept-encoding": "identity"}
LINES = {"accept": "application/x-ndjson", "accept-encoding": "identity"}


class Position:
    """The position of a consumer in the stream, and the request for the next changes."""

    def __init__(self, after: int | str | None, types: Iterable[ChangeType] | None, consumer: str | None = None) -> None:
        self.place = None if after is None else str(after)
        self._consumer = consumer
        self._types = None if types is None else ",".join(types)

    @property
    def sequence(self) -> int | None:
        """The sequence of the place, without the reader."""
        return None if self.place is None else int(self.place.partition("-")[0])

    def query(self, limit: int | None = None) -> dict[str, str]:
        """Returns the parameters of a request for the next changes. The server refuses an invalid place."""
        after, hyphen, reader = (self.place or "").partition("-")
        if after and hyphen:
            return query(after=after, after_reader=reader, limit=limit, types=self._types)
        consumer = self._consumer if self.place is None else None
        return query(after=self.place, consumer=consumer, limit=limit, types=self._types)

    def passed(self, change: Change) -> None:
        """Records that a change was returned."""
        self.place = change.place


class LineReader:
    """Reads lines piece by piece. Each line with this prefix is a change; other lines are skipped.

    Lines end with line feeds only: the text of JSON may have other characters that end lines elsewhere, such as U+2028.
    """

    def __init__(self, prefix: bytes = b"") -> None:
        self._prefix = prefix
        self._rest: list[bytes] = []

    def read(self, chunk: bytes) -> Iterator[Change]:
        """Yields the changes that are complete with this piece, so that the caller gets all changes before an invalid line."""
        first, *more = chunk.split(b"\n")
        self._rest.append(first)
        if not more:
            return iter(())
        whole = [b"".join(self._rest), *more[:-1]]
        self._rest = [more[-1]]
        return (read_line(line[len(self._prefix) :]) for line in whole if line and line.startswith(self._prefix))


class EventReader(LineReader):
    """Reads server-sent events piece by piece."""

    def __init__(self) -> None:
        super().__init__(b"data:")


class Part:
    """One response with lines: its changes so far, and whether it is the last one."""

    def __init__(self, position: Position, limit: int) -> None:
        self.call = Call("GET", "/v1/changes", as_nothing, position.query(limit))
        self._begin = position.place
        self._position = position
        self._limit = limit
        self._count = 0
        self._newest: Change | None = None

    def passed(self, change: Change) -> None:
        """Records that a change was returned."""
        self._position.passed(change)
        self._newest = change
        self._count += not isinstance(change, ReachedMessage)

    @property
    def has_progress(self) -> bool:
        """True if the next response starts at a later place."""
        return self._position.place != self._begin

    @property
    def is_last(self) -> bool:
        """True if the response reached the changes of the time of the request. Its last line says so, unless the response is full."""
        is_whole = isinstance(self._newest, ReachedMessage) and not self._newest.more
        return is_whole and self._count < self._limit


def no_progress(failures: int, options: Options) -> float:
    """Returns the pause after so many consecutive responses without progress; raises after as many as a call has tries."""
    if failures > options.retries:
        raise ConnectionFailed("the changes were repeatedly cut short before the first one", sent=True)
    return pause_before(failures - 1, None, options.retry_wait_max)


def read_line(line: bytes) -> Change:
    """Returns a complete line as a change. Raises a permanent error, because a retry would bring the same line."""
    try:
        return change_of(json.loads(line))
    except (ValueError, TypeError, LookupError) as cause:
        raise UnexpectedAnswer(f"the stream of changes has an invalid line: {cause}") from cause

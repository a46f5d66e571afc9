"""The stream of changes: what to ask for, and what its text says. Pure: nothing here does input or output."""

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
    """Where a consumer is in the stream, and how it asks for what follows."""

    def __init__(self, after: int | str | None, types: Iterable[ChangeType] | None, consumer: str | None = None) -> None:
        self.place = None if after is None else str(after)
        self._consumer = consumer
        self._types = None if types is None else ",".join(types)

    @property
    def sequence(self) -> int | None:
        """The sequence of the place, without the reader."""
        return None if self.place is None else int(self.place.partition("-")[0])

    def query(self, limit: int | None = None) -> dict[str, str]:
        """Returns the parameters of a request for what follows. What is no place is refused by the server, which says so."""
        after, hyphen, reader = (self.place or "").partition("-")
        if after and hyphen:
            return query(after=after, after_reader=reader, limit=limit, types=self._types)
        consumer = self._consumer if self.place is None else None
        return query(after=self.place, consumer=consumer, limit=limit, types=self._types)

    def passed(self, change: Change) -> None:
        """Takes note that a change was handed out."""
        self.place = change.place


class LineReader:
    """Reads lines piece by piece, each of which is a change after this prefix; other lines are passed over.

    Lines end with line feeds only: the text of JSON may have other characters that end lines elsewhere, such as U+2028.
    """

    def __init__(self, prefix: bytes = b"") -> None:
        self._prefix = prefix
        self._rest: list[bytes] = []

    def read(self, chunk: bytes) -> Iterator[Change]:
        """Returns what is complete with this piece, one by one: so a line that cannot be read keeps none before it from the caller."""
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
    """One answer with lines: what it has brought, and whether it was the last one."""

    def __init__(self, position: Position, limit: int) -> None:
        self.call = Call("GET", "/v1/changes", as_nothing, position.query(limit))
        self._begin = position.place
        self._position = position
        self._limit = limit
        self._count = 0
        self._newest: Change | None = None

    def passed(self, change: Change) -> None:
        """Takes note that a change was handed out."""
        self._position.passed(change)
        self._newest = change
        self._count += not isinstance(change, ReachedMessage)

    @property
    def has_progress(self) -> bool:
        """Whether the next answer begins further on."""
        return self._position.place != self._begin

    @property
    def is_last(self) -> bool:
        """Whether what was accepted up to the request is all there. The last line of an answer says so, unless it is full."""
        is_whole = isinstance(self._newest, ReachedMessage) and not self._newest.more
        return is_whole and self._count < self._limit


def no_progress(failures: int, options: Options) -> float:
    """Returns how long to pause after so many answers in a row that brought nothing new; raises after as many as a call is tried."""
    if failures > options.retries:
        raise ConnectionFailed("the changes were cut short before the first one, again and again", sent=True)
    return pause_before(failures - 1, None, options.retry_wait_max)


def read_line(line: bytes) -> Change:
    """Returns a complete line as a change. Raises what no other try mends: the same line would come again."""
    try:
        return change_of(json.loads(line))
    except (ValueError, TypeError, LookupError) as cause:
        raise UnexpectedAnswer(f"the stream of changes has a line of another form: {cause}") from cause

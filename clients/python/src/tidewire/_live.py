"""The live feed: where to resume, and its entries from pages and messages. Pure: nothing here does input or output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ._call import path, query
from ._exchange import pause_before
from .errors import ConnectionFailed, PartialPage, RateLimited, TidewireError, Unauthorized, UnexpectedAnswer
from .messages import (
    BeatMessage,
    HelloMessage,
    LiveMessage,
    PostMessage,
    RemoveMessage,
    StaleMessage,
    UnreadMessage,
    UpdateMessage,
    live_message_of,
)
from .models import Item, Page

HELLO_MAX = 15.0
# The server sends a heartbeat every 30 seconds.
SILENCE_MAX = 75.0
TOO_SLOW = 4008
PAGE_MAX = 100
# A partial page is usually complete when it is read again; after these tries it is accepted.
PARTIAL_TRIES = 3
# Bounds are cursors, which compare as text. These are above and below all cursors.
_ABOVE_ALL = "\uffff"
_BELOW_ALL = ""


def pause_before_reading_again(tries: int, lacking: Sequence[str]) -> float:
    """Returns the pause, in seconds, before a page that lacks these sources is read again; raises after enough tries."""
    if tries >= PARTIAL_TRIES:
        raise PartialPage(lacking)
    return pause_before(tries, None, 1.0)


class Numbering:
    """Tracks the last message, and checks that none is missing."""

    def __init__(self, user: str, epoch: str | None, seq: int | None, unread: bool) -> None:
        if (epoch is None) != (seq is None):
            raise ValueError("epoch and seq belong together")
        self._path = path("users", user, "live")
        self._unread = unread
        self.position: tuple[str, int] | None = None if epoch is None or seq is None else (epoch, seq)
        self._epoch: str | None = None
        self._expects_hello = True

    def target(self) -> tuple[str, dict[str, str]]:
        """Returns the path and the parameters of a connection that resumes after the last message."""
        self._expects_hello = True
        epoch, seq = self.position or (None, None)
        return self._path, query(epoch=epoch, seq=seq, unread=self._unread or None, batch=True)

    def take(self, text: str | bytes) -> Iterator[LiveMessage]:
        """Returns the messages of a batch, or a single one, for the user. Raises at a message before which one is missing."""
        try:
            value = json.loads(text)
            batch = [live_message_of(message) for message in (value if isinstance(value, list) else [value])]
        except (ValueError, TypeError, LookupError) as cause:
            # The error is permanent, because each connection would bring the same message.
            raise UnexpectedAnswer(f"invalid live message: {cause}") from cause
        for message in batch:
            taken = self._take(message)
            if taken is not None:
                yield taken

    def _take(self, message: LiveMessage) -> LiveMessage | None:
        if self._expects_hello:
            if not isinstance(message, HelloMessage):
                raise ConnectionFailed(f"the first live message is {message.type}", sent=True)
            self._expects_hello = False
            # Without a hello of the requested epoch, nothing was recovered.
            if message.recovered and self.position != (message.epoch, message.seq):
                message = replace(message, recovered=False)
            self.position = (message.epoch, message.seq)
            return message
        return self._numbered(message)

    def _numbered(self, message: LiveMessage) -> LiveMessage | None:
        if self.position is None:
            raise ConnectionFailed("a live message after a missing one", sent=True)
        epoch, seq = self.position
        is_extra = isinstance(message, (BeatMessage, UnreadMessage))
        if message.seq != (seq if is_extra else seq + 1):
            self.position = None
            raise ConnectionFailed(f"live message {message.seq} came after {seq}", sent=True)
        self.position = (epoch, message.seq)
        return None if isinstance(message, BeatMessage) else message


def closed(code: int | None, reason: str) -> TidewireError:
    """Returns the error for the end of a connection."""
    said = f"the live connection was closed with {code}" + (f": {reason}" if reason else "")
    if code == 4001:
        # The reason begins with the code of the refusal. The rest is for people.
        return Unauthorized(said, status=401, code=reason.split(":")[0] or "unauthenticated")
    if code == 4029:
        # Other connections of the user may end, so this one is retried, like a request with 429.
        return RateLimited(said, status=429, code="too_many_connections")
    return ConnectionFailed(said, sent=True)


@dataclass
class Read:
    """A page to read, and the messages that have arrived since the read began."""

    before: str | None
    limit: int
    bound: str
    after_sequence: int | None
    messages: list[LiveMessage] = field(default_factory=list)


class Timeline:
    """The entries of a feed, and how far down they are complete.

    A page shows the feed at some moment during the read, and messages may overtake it. So the messages that arrive since the read began
    are stored, and applied again on top of the page: each may be applied twice.
    """

    def __init__(self, limit: int = 20, keep: int = 500) -> None:
        self._limit = self._wanted = max(1, min(limit, PAGE_MAX))
        self._keep = max(keep, self._limit)
        self._entries: dict[str, Item] = {}
        # The entries are complete from the newest down to this cursor, and there are none below.
        self._bound = _ABOVE_ALL
        # The first page must be read, and replaces all entries.
        self._is_outdated = True
        self._read: Read | None = None
        # The sequence of a cluster's log that pages must have at least: a node behind it may lack entries that no message reports.
        self._after_sequence: int | None = None

    @property
    def items(self) -> list[Item]:
        """The entries, newest first."""
        return sorted(self._entries.values(), key=lambda item: item.cursor, reverse=True)

    @property
    def has_more(self) -> bool:
        """True if there may be older entries."""
        return self._bound != _BELOW_ALL

    @property
    def is_current(self) -> bool:
        """True if the entries are those of the feed, except for messages in transit."""
        return not self._is_outdated and self._bound != _ABOVE_ALL

    def want_more(self) -> None:
        """Requests older entries."""
        self._wanted = len(self._entries) + self._limit
        self._keep = max(self._keep, self._wanted + self._limit)

    def apply(self, message: LiveMessage) -> bool:
        """Applies a message. Returns true if the entries may have changed."""
        if isinstance(message, HelloMessage):
            self._after_sequence = message.after_sequence
            if not message.recovered:
                # A page that is being read may be older than the missed messages.
                self._read = None
                self._is_outdated = True
                # A client at the end of the feed stays there: new entries must not push old ones out.
                size = len(self._entries)
                wanted = min(size, PAGE_MAX) if self.has_more else min(size + PAGE_MAX, self._keep)
                self._wanted = max(self._limit, wanted)
            return False
        if self._read is not None:
            self._read.messages.append(message)
        return self._change(message)

    def start_read(self) -> Read | None:
        """Returns the page to read now, if any. The same read may be started again after it failed."""
        missing = self._wanted - (0 if self._is_outdated else len(self._entries))
        if missing <= 0 or not (self._is_outdated or self.has_more):
            return None
        bound = _ABOVE_ALL if self._is_outdated else self._bound
        limit = min(PAGE_MAX, max(self._limit, missing))
        messages = self._read.messages if self._read is not None else []
        self._read = Read(None if bound == _ABOVE_ALL else bound, limit, bound, self._after_sequence, messages)
        return self._read

    def finish_read(self, read: Read, page: Page) -> bool:
        """Applies the page of a read. Returns true if it was used."""
        if self._read is not read:
            return False
        self._read = None
        # There is a gap above the page now: it is read again from further up.
        if not self._is_outdated and self._bound != read.bound:
            return False
        if self._is_outdated:
            self._entries.clear()
        self._is_outdated = False
        self._bound = page.next if page.next is not None else _BELOW_ALL
        for item in page.items:
            self._put(item)
        for message in read.messages:
            self._change(message)
        if len(self._entries) >= self._wanted or not self.has_more:
            self._wanted = self._limit
        return True

    def _change(self, message: LiveMessage) -> bool:
        if isinstance(message, PostMessage):
            self._put(message.item)
        elif isinstance(message, RemoveMessage):
            return self._entries.pop(message.post, None) is not None
        elif isinstance(message, UpdateMessage):
            item = self._entries.get(message.post.id)
            if item is None:
                return False
            raw = {**item.raw, "post": message.post.raw}
            self._entries[message.post.id] = replace(item, post=message.post, raw=raw)
        elif isinstance(message, StaleMessage):
            self._wanted = max(self._wanted, len(self._entries))
            self._raise(_ABOVE_ALL if message.below is None else message.below)
        else:
            return False
        return True

    def _put(self, item: Item) -> None:
        self._entries.pop(item.post.id, None)
        if item.cursor < self._bound:
            return
        self._entries[item.post.id] = item
        if len(self._entries) > self._keep:
            self._raise(self.items[self._keep - 1].cursor)

    def _raise(self, bound: str) -> None:
        if bound <= self._bound:
            return
        self._bound = bound
        self._entries = {id: item for id, item in self._entries.items() if item.cursor >= bound}

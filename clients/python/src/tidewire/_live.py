"""The live feed: where to resume, and what the feed is by pages and messages. Pure: nothing here does input or output."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
# The server sends a beat every 30 seconds.
SILENCE_MAX = 75.0
TOO_SLOW = 4008
PAGE_MAX = 100
# What a page lacks for want of time is usually there when it is read again; in the end it is taken as it is.
PARTIAL_TRIES = 3
# Bounds are cursors, which compare as text; these are above and below all of them.
_ABOVE_ALL = "\uffff"
_BELOW_ALL = ""


def pause_before_reading_again(tries: int, lacking: Sequence[str]) -> float:
    """Returns how long to pause, in seconds, before a page is read again that lacks posts of these sources; raises after enough tries."""
    if tries >= PARTIAL_TRIES:
        raise PartialPage(lacking)
    return pause_before(tries, None, 1.0)


class Numbering:
    """Which message was the last one, and that none is missing."""

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
        return self._path, query(epoch=epoch, seq=seq, unread=self._unread or None)

    def take(self, text: str | bytes) -> LiveMessage | None:
        """Returns a message for the user; None: there is nothing in it. Raises if one before it is missing."""
        try:
            message = live_message_of(json.loads(text))
        except (ValueError, TypeError, LookupError) as cause:
            # It is final: the same message would come again with each connection.
            raise UnexpectedAnswer(f"a live message of another form: {cause}") from cause
        if self._expects_hello:
            if not isinstance(message, HelloMessage):
                raise ConnectionFailed(f"the first live message is {message.type}", sent=True)
            self._expects_hello = False
            # Without a hello of the epoch that was asked for, nothing was recovered.
            if message.recovered and self.position != (message.epoch, message.seq):
                message = replace(message, recovered=False)
            self.position = (message.epoch, message.seq)
            return message
        return self._numbered(message)

    def _numbered(self, message: LiveMessage) -> LiveMessage | None:
        if self.position is None:
            raise ConnectionFailed("a live message after one was missing", sent=True)
        epoch, seq = self.position
        is_extra = isinstance(message, (BeatMessage, UnreadMessage))
        if message.seq != (seq if is_extra else seq + 1):
            self.position = None
            raise ConnectionFailed(f"live message {message.seq} came after {seq}", sent=True)
        self.position = (epoch, message.seq)
        return None if isinstance(message, BeatMessage) else message


def closed(code: int | None, reason: str) -> TidewireError:
    """Returns what the end of a connection means."""
    said = f"the live connection was closed with {code}" + (f": {reason}" if reason else "")
    if code == 4001:
        # The reason begins with the code of the refusal of a request. What follows it is for people.
        return Unauthorized(said, status=401, code=reason.split(":")[0] or "unauthenticated")
    if code == 4029:
        # The user's other connections may end: this one is tried again, as a request with 429 is.
        return RateLimited(said, status=429, code="too_many_connections")
    return ConnectionFailed(said, sent=True)


@dataclass
class Read:
    """A page to read, and the messages that arrived since this began."""

    before: str | None
    limit: int
    bound: str
    after_sequence: int | None
    messages: list[LiveMessage] = field(default_factory=list)


class Timeline:
    """The entries of a feed, and how far down they are complete.

    A page shows the feed at some moment while it was being read, and messages may overtake it. So those that arrive since the read began
    are kept, and applied once more on top of the page: each may be applied twice.
    """

    def __init__(self, limit: int = 20, keep: int = 500) -> None:
        self._limit = self._wanted = max(1, min(limit, PAGE_MAX))
        self._keep = max(keep, self._limit)
        self._entries: dict[str, Item] = {}
        # The entries are complete from the newest down to this cursor, and none is kept below.
        self._bound = _ABOVE_ALL
        # The first page has to be read, and takes the place of everything.
        self._is_outdated = True
        self._read: Read | None = None
        # The sequence of a cluster's log that pages must have at least: a node that is behind it may lack what no message tells.
        self._after_sequence: int | None = None

    @property
    def items(self) -> list[Item]:
        """The entries, newest first."""
        return sorted(self._entries.values(), key=lambda item: item.cursor, reverse=True)

    @property
    def has_more(self) -> bool:
        """Whether there may be older entries."""
        return self._bound != _BELOW_ALL

    @property
    def is_current(self) -> bool:
        """Whether the entries are those of the feed, but for messages on their way."""
        return not self._is_outdated and self._bound != _ABOVE_ALL

    def want_more(self) -> None:
        """Asks for older entries."""
        self._wanted = len(self._entries) + self._limit
        self._keep = max(self._keep, self._wanted + self._limit)

    def apply(self, message: LiveMessage) -> bool:
        """Takes a message; returns whether the entries may be others now."""
        if isinstance(message, HelloMessage):
            self._after_sequence = message.after_sequence
            if not message.recovered:
                # A page that is being read may be older than what was missed.
                self._read = None
                self._is_outdated = True
                # Who was at the end of the feed stays there: what is new now must not push old entries out.
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
        """Takes the page of a read; returns whether it counts."""
        if self._read is not read:
            return False
        self._read = None
        # Above the page is a gap by now: it is read again from further up.
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

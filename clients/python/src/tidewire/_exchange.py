"""Decides after a response or a failure whether to retry, when and where. Pure: nothing here does input or output."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from ._call import Answer, Call, is_of_user
from .errors import ConnectionFailed, Gone, TidewireError, UnexpectedAnswer, refusal

T = TypeVar("T")
TokenPostIds: TypeAlias = Literal["server", "user"]

_BACKOFF_BASE = 0.25
_JITTER = 0.25
# The node cannot answer now, but others can.
_OF_THIS_NODE = {
    *("recovering", "joining", "leaving", "shutting_down", "journal_failed", "out_of_files"),
    *("log_unavailable", "sequencer_unavailable", "owner_unavailable", "not_applied_yet"),
}


@dataclass(frozen=True)
class Options:
    """The limits of retries, and who chooses the ids of posts published with a user's token."""

    retries: int = 4
    retry_wait_max: float = 30.0
    token_post_ids: TokenPostIds = "server"


class Servers:
    """The URLs of the servers, and the current one. The client uses one until it does not respond."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("server: at least one URL is needed")
        for url in urls:
            if not url.startswith(("http://", "https://")):
                example = re.sub("^:", "localhost:", url) if re.fullmatch(r"[\w.-]*:\d+", url) else "localhost:8080"
                raise ValueError(f"server: {url!r} does not begin with http:// or https://: write it as http://{example}")
        # A repeated one would come after itself.
        self.urls = list(dict.fromkeys(url.rstrip("/") for url in urls))
        self.current = self.urls[0]

    def leave(self, url: str) -> None:
        """Uses the next server, unless another request has left this one already."""
        if url == self.current:
            self.current = self.urls[(self.urls.index(url) + 1) % len(self.urls)]


class Memory:
    """The state that the requests of a client share."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.servers = Servers(urls)
        self.sequence = 0


class Lacks:
    """The servers that do not have the next event. Each retains its own part of the journal: the event is gone only if all lack it."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._found: dict[str, Gone] = {}

    def has_other(self, url: str, error: Gone) -> bool:
        """Records the refusal of one server. Returns true if there is another one to try, which is then the current one."""
        self._found[url] = error
        others = [each for each in self._servers.urls if each not in self._found]
        if others:
            self._servers.current = others[0]
        return bool(others)

    @property
    def least(self) -> Gone:
        """The refusal of the server that has the most events; it becomes the current one."""
        url, error = min(self._found.items(), key=lambda each: each[1].oldest)
        self._servers.current = url
        return error


@dataclass(frozen=True)
class Done(Generic[T]):
    """The decoded response."""

    value: T


@dataclass(frozen=True)
class Again:
    """Send the request again after a pause, in seconds."""

    pause: float = 0.0
    renews_token: bool = False


def is_elsewhere_better(error: TidewireError) -> bool:
    """Returns true if another server may answer: this one was not reached, directly or through its proxy, or says so."""
    is_of_proxy = error.code is None and error.status in (502, 503, 504)
    return isinstance(error, ConnectionFailed) or is_of_proxy or error.code in _OF_THIS_NODE


def pause_before(failures: int, retry_after: float | None, longest: float) -> float:
    """Returns the pause after so many failures: with full jitter, or the time that the server requests and a little more."""
    if retry_after is not None:
        return retry_after * (1 + _JITTER * random.random())
    return random.random() * min(longest, _BACKOFF_BASE * 2.0 ** min(failures, 16))


class Exchange(Generic[T]):
    """One call, over all its tries."""

    def __init__(self, call: Call[T], options: Options, memory: Memory, *, can_renew: bool) -> None:
        self.call = call
        self.url = memory.servers.current
        self._options = options
        self._memory = memory
        self._can_renew = can_renew
        self._failures = 0
        self._is_first_try = True
        self._unasked = len(memory.servers.urls) - 1
        self._lacks = Lacks(memory.servers)

    def call_with(self, token: str | None) -> Call[T]:
        """Returns the request to send with this token. The first try decides: a post sent with an id is sent again with the same id."""
        if self._is_first_try and self.call.without_id is not None and self._options.token_post_ids == "server" and is_of_user(token):
            self.call = self.call.without_id
        self._is_first_try = False
        return self.call

    def answered(self, answer: Answer) -> Done[T] | Again:
        """Handles a response. Raises its error if a retry does not help."""
        self._memory.sequence = max(self._memory.sequence, answer.sequence)
        if 200 <= answer.status < 300:
            try:
                return Done(self.call.read(answer))
            except (ValueError, TypeError, LookupError) as cause:
                if self.call.if_failed is not None:
                    return Done(self.call.if_failed)
                wrong = f"{self.call.method} {self.call.path}: invalid response: {cause}"
                raise UnexpectedAnswer(wrong, status=answer.status, request_id=answer.request_id) from cause
        error = refusal(answer.status, answer.headers, answer.content)
        if error.status == 401 and self._can_renew:
            self._can_renew = False
            return Again(renews_token=True)
        if isinstance(error, Gone):
            if not self._lacks.has_other(self.url, error):
                raise self._lacks.least
            self.url = self._memory.servers.current
            return Again()
        return self._failed(error)

    def failed(self, error: ConnectionFailed) -> Done[T] | Again:
        """Handles a missing response. Raises its error if the call may not be sent again."""
        return self._failed(error)

    def _failed(self, error: TidewireError) -> Done[T] | Again:
        is_for_another = is_elsewhere_better(error)
        if is_for_another:
            self._memory.servers.leave(self.url)
            self.url = self._memory.servers.current
        if self.call.if_failed is not None:
            return Done(self.call.if_failed)
        is_unsafe = error.outcome_unknown and not self.call.is_repeatable
        if is_unsafe or not error.is_temporary or (self._failures >= self._options.retries):
            raise error
        if is_for_another and self._unasked > 0:
            self._unasked -= 1
            return Again()
        if (error.retry_after or 0) > self._options.retry_wait_max:
            raise error
        pause = pause_before(self._failures, error.retry_after, self._options.retry_wait_max)
        self._failures += 1
        return Again(pause)


class Reconnection:
    """Decides when a lost stream reconnects. It retries the first connection as often as a call, later ones without a limit."""

    _SETTLED = 5.0

    def __init__(self, options: Options, memory: Memory, *, can_renew: bool) -> None:
        self._options = options
        self._servers = memory.servers
        self._can_renew = can_renew
        self._failures = 0
        self._greeted_at: float | None = None
        self._was_greeted = False
        self._is_token_new = False
        self._unasked = len(self._servers.urls) - 1
        self._lacks = Lacks(self._servers)
        self.url = self._servers.current

    def connecting(self) -> str:
        """Returns the URL of the server to connect to."""
        self.url = self._servers.current
        self._greeted_at = None
        return self.url

    def greeted(self, now: float) -> None:
        """Records that the connection has received a message. Only the first one of each connection counts."""
        if self._greeted_at is not None:
            return
        self._greeted_at = now
        self._was_greeted = True
        self._is_token_new = False
        self._unasked = len(self._servers.urls) - 1
        self._lacks = Lacks(self._servers)

    def lost(self, error: TidewireError, now: float, *, at_once: bool = False) -> Again:
        """Handles the end of a connection. Raises its error if reconnecting does not help."""
        if error.status == 401 and self._can_renew and not self._is_token_new:
            self._is_token_new = True
            return Again(renews_token=True)
        if isinstance(error, Gone):
            if not self._lacks.has_other(self.url, error):
                raise self._lacks.least
            return Again()
        if not error.is_temporary:
            raise error
        was_greeted = self._greeted_at is not None
        # Slows down connections that are repeatedly greeted and dropped.
        if self._greeted_at is not None and now - self._greeted_at > self._SETTLED:
            self._failures = 0
        self._greeted_at = None
        if is_elsewhere_better(error):
            self._servers.leave(self.url)
            if self._unasked > 0:
                self._unasked -= 1
                return Again()
        if not self._was_greeted and self._failures >= self._options.retries:
            raise error
        if at_once and was_greeted:
            return Again()
        longest = self._options.retry_wait_max
        # A stream cannot ask its user whether to wait for a day.
        named = None if error.retry_after is None else min(error.retry_after, longest)
        pause = pause_before(self._failures, named, longest)
        self._failures += 1
        return Again(pause)

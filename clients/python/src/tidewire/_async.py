"""The client for programs with asyncio."""

from __future__ import annotations

import inspect
import logging
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from . import _calls as calls
from ._async_changes import AsyncChangeStream
from ._async_io import AsyncStream, Lock, connect, received, resolved, sleep
from ._call import Call, Pages
from ._changes import Position
from ._exchange import Again, Done, Exchange, Memory, Options, Reconnection, TokenPostIds, pause_before
from ._http import (
    CONNECT_MAX,
    MESSAGE_MAX,
    SOCKET_ERRORS,
    USER_AGENT,
    answer_of,
    checked_token,
    headers_of,
    lost_socket,
    no_answer,
    not_decoded,
    request_of,
    returned,
    socket_url,
    tls_for,
    tls_of,
    urls_of,
)
from ._live import HELLO_MAX, PARTIAL_TRIES, SILENCE_MAX, TOO_SLOW, Numbering, Read, Timeline, pause_before_reading_again
from ._streams import OpenStreams
from .errors import TidewireError
from .messages import ChangeType, HelloMessage, LiveMessage, MarkerMessage, UnreadMessage
from .models import Item, Page

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("tidewire")


def _with_self(make: Callable[..., Any], answers: object) -> inspect.Signature:
    """Returns the signature of a method, for `help`."""
    signature = inspect.signature(make)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[self, *signature.parameters.values()], return_annotation=answers)


def _method(make: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncTidewire, P], Coroutine[Any, Any, T]]:
    @wraps(make)
    async def method(self: AsyncTidewire, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(make(*args, **kwargs))

    method.__signature__ = _with_self(make, returned(make, "Call"))  # type: ignore[attr-defined]
    return method


def _iterator(make: Callable[P, Pages[T]]) -> Callable[Concatenate[AsyncTidewire, P], AsyncIterator[T]]:
    @wraps(make)
    def method(self: AsyncTidewire, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._pages(make(*args, **kwargs))

    method.__signature__ = _with_self(make, returned(make, "Pages", "AsyncIterator"))  # type: ignore[attr-defined]
    return method


class AsyncTidewire:
    """A client of one server, or of the nodes of a cluster.

        async with AsyncTidewire("http://127.0.0.1:8080", token=KEY) as tidewire:
            await tidewire.publish("bob", {"text": "hello"})

    The tasks of one event loop may share it. It retries requests if that is safe: temporary refusals (429, 503) after the `Retry-After`
    of the server, and requests without a response if they are idempotent.

    `server`: its URL, or those of several nodes; the client uses one until it does not respond, then the next.
    `token`: a server key or a user's token, or a function that returns one, which may be async; the function is called again when the
    server no longer accepts the last one. `timeout`: seconds for each read and each write, not for a whole call. `retries`: the number of
    tries after the first one. `retry_wait_max`: the longest pause, in seconds; if the server requests a longer one, the refusal is raised
    at once. `token_post_ids`: who chooses the ids of posts published with a user's token, as the server's `--token-post-ids`; "user" lets
    the client send such a post again if its outcome is unknown. `tls`: the context that checks certificates.
    """

    def __init__(
        self,
        server: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        token: str | Callable[[], str | Awaitable[str]] | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        retry_wait_max: float = 30.0,
        token_post_ids: TokenPostIds = "server",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        urls = urls_of(server)
        self._memory = Memory(urls)
        self._streams = OpenStreams()
        self._options = Options(retries, retry_wait_max, token_post_ids)
        self._ask = token if callable(token) else None
        self._token = checked_token(token) if isinstance(token, str) else None
        self._renewal = Lock()
        self._tls = tls_of(urls, tls)
        timeouts = httpx.Timeout(timeout, connect=min(timeout, CONNECT_MAX))
        verify = True if self._tls is None else self._tls
        self._http = httpx.AsyncClient(timeout=timeouts, verify=verify, headers={"user-agent": USER_AGENT})

    async def __aenter__(self) -> AsyncTidewire:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Iterating over a stream of this client ends with it."""
        for stream in self._streams.all():
            await stream.close()
        await self._http.aclose()

    @property
    def sequence(self) -> int:
        """In a cluster: the sequence up to which all completed writes of this client are applied. Pass it to `feed` as `after_sequence`."""
        return self._memory.sequence

    publish = _method(calls.publish)
    repost = _method(calls.repost)
    publish_many = _method(calls.publish_many)
    get_post = _method(calls.get_post)
    get_posts = _method(calls.get_posts)
    list_posts = _method(calls.list_posts)
    edit_post = _method(calls.edit_post)
    delete_post = _method(calls.delete_post)

    follow = _method(calls.follow)
    unfollow = _method(calls.unfollow)
    follow_many = _method(calls.follow_many)
    get_user = _method(calls.get_user)
    erase_user = _method(calls.erase_user)
    following = _method(calls.following)
    followers = _method(calls.followers)

    feed = _method(calls.feed)
    posts_of = _method(calls.posts_of)
    replies = _method(calls.replies)
    reposts = _method(calls.reposts)
    list_feed = _method(calls.list_feed)
    feeds = _method(calls.feeds)
    explain = _method(calls.explain)
    verify_feed = _method(calls.verify_feed)
    rebuild_feed = _method(calls.rebuild_feed)

    lists = _method(calls.lists)
    delete_list = _method(calls.delete_list)
    add_member = _method(calls.add_member)
    remove_member = _method(calls.remove_member)
    members = _method(calls.members)

    mute = _method(calls.mute)
    unmute = _method(calls.unmute)
    mutes = _method(calls.mutes)
    block = _method(calls.block)
    unblock = _method(calls.unblock)
    blocks = _method(calls.blocks)
    rules = _method(calls.rules)
    change_rules = _method(calls.change_rules)
    marker = _method(calls.marker)
    set_marker = _method(calls.set_marker)

    revoke_tokens = _method(calls.revoke_tokens)
    user_data = _method(calls.user_data)
    stats = _method(calls.stats)
    stats_history = _method(calls.stats_history)
    find_sources = _method(calls.find_sources)
    list_users = _method(calls.list_users)
    iter_users = _iterator(calls.iter_users)
    change_consumers = _method(calls.change_consumers)
    set_change_consumer = _method(calls.set_change_consumer)
    remove_change_consumer = _method(calls.remove_change_consumer)
    fanout = _method(calls.fanout)
    operations = _method(calls.operations)
    metrics = _method(calls.metrics)
    cluster = _method(calls.cluster)
    take_snapshot = _method(calls.take_snapshot)
    is_ready = _method(calls.is_ready)

    iter_following = _iterator(calls.iter_following)
    iter_followers = _iterator(calls.iter_followers)
    iter_feed = _iterator(calls.iter_feed)
    iter_posts_of = _iterator(calls.iter_posts_of)
    iter_replies = _iterator(calls.iter_replies)
    iter_reposts = _iterator(calls.iter_reposts)
    iter_list_feed = _iterator(calls.iter_list_feed)
    iter_lists = _iterator(calls.iter_lists)
    iter_members = _iterator(calls.iter_members)
    iter_mutes = _iterator(calls.iter_mutes)
    iter_blocks = _iterator(calls.iter_blocks)

    def changes(
        self,
        *,
        after: int | str | None = None,
        consumer: str | None = None,
        types: Iterable[ChangeType] | None = None,
        follow: bool = True,
        page_size: int = 1000,
    ) -> AsyncChangeStream:
        """Iterates over the accepted changes, in order, after `after`, a `place` or a sequence; without it, from now on.

        With the name of a `consumer` instead of `after`, it starts after the position that `set_change_consumer` has set.

        It stays connected, and reconnects after each loss of the connection, until it is refused: `Gone` means that events are missing.
        With `follow=False` it ends at the present. `types` selects the types of changes. Store the `place` of each after it is
        processed; `ReachedMessage` has one too, so that a consumer of rare types keeps up.
        """
        return self._streams.add(AsyncChangeStream(self, Position(after, types, consumer), follow, page_size))

    def live(self, user: str, *, epoch: str | None = None, seq: int | None = None, unread: bool = False) -> AsyncLiveStream:
        """Iterates over the messages about a reader's feed, and resumes after each loss of the connection.

        After each `HelloMessage` that is not `recovered`, read the feed again, with its `after_sequence`, as `watch` does. `epoch` and
        `seq` resume after an earlier stream's `position`. With `unread`, messages report the number of unread entries when it changes.
        """
        return self._streams.add(AsyncLiveStream(self, Numbering(user, epoch, seq, unread)))

    def watch(self, user: str, *, limit: int = 20, keep: int = 500, unread: bool = False) -> AsyncFeed:
        """Returns a reader's live feed: iterate over it to get the current list of entries after each change.

        It reads `limit` entries at first and at a time. It removes the oldest entries if new ones exceed `keep`.
        """
        return self._streams.add(AsyncFeed(self, user, Timeline(limit, keep), unread))

    def _reconnection(self) -> Reconnection:
        return Reconnection(self._options, self._memory, can_renew=self._ask is not None)

    def _exchange(self, call: Call[T]) -> Exchange[T]:
        return Exchange(call, self._options, self._memory, can_renew=self._ask is not None)

    async def _run(self, call: Call[T]) -> T:
        exchange = self._exchange(call)
        while True:
            token = await self._current_token()
            try:
                response = await self._http.send(request_of(self._http, exchange.call_with(token), exchange.url, token))
            except httpx.DecodingError as cause:
                raise not_decoded(exchange.url, cause) from cause
            except httpx.TransportError as cause:
                step = exchange.failed(no_answer(exchange.url, cause))
            else:
                step = exchange.answered(answer_of(response))
            if isinstance(step, Done):
                return step.value
            await sleep(self._renewing(step, token))

    def _renewing(self, step: Again, used: str | None) -> float:
        """Drops a refused token. Returns the pause before the next try."""
        if step.renews_token and used == self._token:
            self._token = None
        return step.pause

    async def _current_token(self) -> str | None:
        token = self._token
        if token is not None or self._ask is None:
            return token
        async with self._renewal:
            # Another user of this client may have got one meanwhile.
            token = self._token
            if token is None:
                self._token = token = checked_token(await resolved(self._ask()))
            return token

    async def _pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        call: Call[Any] | None = pages.first
        while call is not None:
            page, tries = await self._run(call), 0
            while lacking := pages.lacking(page):
                await sleep(pause_before_reading_again(tries, lacking))
                page, tries = await self._run(call), tries + 1
            for item in pages.items(page):
                yield item
            call = pages.after(page)


class AsyncLiveStream(AsyncStream[LiveMessage]):
    """The messages about a reader's feed."""

    def __init__(self, client: AsyncTidewire, numbering: Numbering) -> None:
        super().__init__()
        self._client = client
        self._numbering = numbering
        self._again: Reconnection | None = None

    async def __aenter__(self) -> AsyncLiveStream:
        return self

    @property
    def position(self) -> tuple[str, int] | None:
        """The `epoch` and `seq` with which another stream resumes after the last returned message."""
        return self._numbering.position

    async def _begin(self) -> AsyncGenerator[LiveMessage, None]:
        client = self._client
        # After a cancelled step, the same loss continues.
        self._again = again = self._again or client._reconnection()
        while not self._is_closing:
            url, token, code = again.connecting(), await client._current_token(), None
            try:
                async with connect(
                    socket_url(url, *self._numbering.target()),
                    ssl=tls_for(url, client._tls),
                    additional_headers=headers_of(token),
                    user_agent_header=None,
                    open_timeout=CONNECT_MAX,
                    close_timeout=1.0,
                    max_size=MESSAGE_MAX,
                ) as socket:
                    self._opened(socket)
                    longest = HELLO_MAX
                    while True:
                        for message in self._numbering.take(await received(socket, longest)):
                            longest = SILENCE_MAX
                            again.greeted(time.monotonic())
                            yield message
            except TidewireError as cause:
                error = cause
            except SOCKET_ERRORS as cause:
                error, code = lost_socket(url, cause)
            if self._is_closing:
                return
            try:
                step = again.lost(error, time.monotonic(), at_once=code == TOO_SLOW)
            except TidewireError:
                self._again = None
                raise
            _log.info("reconnecting the live feed in %.1f s: %s", step.pause, error)
            await self._pause(client._renewing(step, token))


class AsyncFeed(AsyncStream[list[Item]]):
    """A reader's live feed. Each step returns its entries, newest first, after they have changed."""

    def __init__(self, client: AsyncTidewire, user: str, timeline: Timeline, unread: bool) -> None:
        super().__init__()
        self._client = client
        self._user = user
        self._timeline = timeline
        self._stream = client.live(user, unread=unread)
        self._is_changed = self._is_unfinished = False
        self.marker: str | None = None
        """The read marker."""
        self.unread: UnreadMessage | None = None
        """The number of unread entries, with `unread=True`. A change of it returns the feed again."""

    async def __aenter__(self) -> AsyncFeed:
        return self

    @property
    def items(self) -> list[Item]:
        """The entries, newest first."""
        return self._timeline.items

    @property
    def has_more(self) -> bool:
        """True if there may be older entries."""
        return self._timeline.has_more

    async def load_more(self) -> list[Item]:
        """Reads older entries, and returns all."""
        self._timeline.want_more()
        await self._read_pages()
        return self.items

    async def close(self) -> None:
        """Closes the connection. The entries stay."""
        await super().close()
        await self._stream.close()

    async def _begin(self) -> AsyncGenerator[list[Item], None]:
        while True:
            if not self._is_unfinished:
                message = await anext(self._stream, None)
                if message is None:
                    return
                # If reading pages fails or is cancelled, the next step starts with it.
                self._is_unfinished = True
                self._take(message)
            await self._read_pages(in_step=True)
            self._is_unfinished = False
            if self._is_changed and self._timeline.is_current:
                self._is_changed = False
                yield self.items

    def _take(self, message: LiveMessage) -> None:
        self._is_changed = self._timeline.apply(message) or self._is_changed
        if isinstance(message, (HelloMessage, MarkerMessage)):
            self.marker = message.marker if isinstance(message, HelloMessage) else message.cursor
            self._is_changed = self._is_changed or isinstance(message, MarkerMessage)
        elif isinstance(message, UnreadMessage):
            self.unread = message
            self._is_changed = True

    async def _read_pages(self, *, in_step: bool = False) -> None:
        failures, pause = 0, self._pause if in_step else sleep
        # Older entries may still be read when the stream is closed.
        while not (in_step and self._is_closing) and (read := self._timeline.start_read()) is not None:
            page = await self._page(read)
            if page is None or (page.partial and failures < PARTIAL_TRIES):
                await pause(pause_before(failures, None, self._client._options.retry_wait_max))
                failures += 1
                continue
            failures = 0
            self._is_changed = self._timeline.finish_read(read, page) or self._is_changed

    async def _page(self, read: Read) -> Page | None:
        try:
            return await self._client.feed(self._user, limit=read.limit, before=read.before, after_sequence=read.after_sequence)
        except TidewireError as error:
            if not error.is_temporary:
                raise
            _log.info("reading the page of %s again: %s", self._user, error)
            return None

"""The stream of changes."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import httpx

from ._async_io import AsyncStream
from ._changes import EventReader, LineReader, Part, Position, no_progress
from ._exchange import Again, Reconnection
from ._http import answer_of, ended, lines_request, no_answer, not_decoded, stream_request
from .errors import TidewireError, refusal
from .messages import Change

if TYPE_CHECKING:
    from ._async import AsyncTidewire

_log = logging.getLogger("tidewire")


class AsyncChangeStream(AsyncStream[Change]):
    """The accepted changes, in order."""

    def __init__(self, client: AsyncTidewire, position: Position, follow: bool, page_size: int) -> None:
        super().__init__()
        self._client = client
        self._page_size = None if follow else page_size
        self._again: Reconnection | None = None
        self._position = position

    async def __aenter__(self) -> AsyncChangeStream:
        return self

    @property
    def place(self) -> str | None:
        """The place of the last returned change: the `after` with which another stream continues."""
        return self._position.place

    @property
    def position(self) -> int | None:
        """The sequence of this place. Another stream that continues after it repeats the readers before it within a post."""
        return self._position.sequence

    def _begin(self) -> AsyncGenerator[Change, None]:
        return self._follow() if self._page_size is None else self._up_to_now(self._page_size)

    async def _up_to_now(self, page_size: int) -> AsyncGenerator[Change, None]:
        failures = 0
        while True:
            part = Part(self._position, page_size)
            async for change in self._part(part):
                yield change
            if part.is_last or self._is_closing:
                return
            failures = 0 if part.has_progress else failures + 1
            if failures > 0:
                await self._pause(no_progress(failures, self._client._options))

    async def _part(self, part: Part) -> AsyncGenerator[Change, None]:
        """One response, which may be cut short. Until it begins, it is retried like a call."""
        client = self._client
        exchange = client._exchange(part.call)
        while not self._is_closing:
            token, reader, is_open = await client._current_token(), LineReader(), False
            request = lines_request(client._http, exchange.call, exchange.url, token)
            try:
                async with aclosing(await client._http.send(request, stream=True)) as response:
                    self._opened(response)
                    is_open = response.status_code == 200
                    if is_open:
                        async for chunk in response.aiter_raw():
                            for change in reader.read(chunk):
                                part.passed(change)
                                yield change
                        return
                    await response.aread()
                step = exchange.answered(answer_of(response))
            except httpx.DecodingError as cause:
                raise not_decoded(exchange.url, cause) from cause
            except httpx.TransportError as cause:
                if self._is_closing:
                    return
                if is_open:
                    _log.info("a response with changes was cut short: %s", cause)
                    return
                step = exchange.failed(no_answer(exchange.url, cause))
            if not isinstance(step, Again):
                return
            await self._pause(client._renewing(step, token))

    async def _follow(self) -> AsyncGenerator[Change, None]:
        client = self._client
        # After a cancelled step, the same loss continues.
        self._again = again = self._again or client._reconnection()
        while not self._is_closing:
            url, token, reader = again.connecting(), await client._current_token(), EventReader()
            request = stream_request(client._http, url, self._position.query(), token)
            try:
                async with aclosing(await client._http.send(request, stream=True)) as response:
                    self._opened(response)
                    if response.status_code != 200:
                        raise refusal(response.status_code, response.headers, await response.aread())
                    async for chunk in response.aiter_raw():
                        for change in reader.read(chunk):
                            again.greeted(time.monotonic())
                            self._position.passed(change)
                            yield change
                error: TidewireError = ended(url)
            except httpx.TransportError as cause:
                error = no_answer(url, cause)
            except TidewireError as cause:
                error = cause
            if self._is_closing:
                return
            try:
                step = again.lost(error, time.monotonic())
            except TidewireError:
                self._again = None
                raise
            _log.info("reconnecting the stream of changes in %.1f s: %s", step.pause, error)
            await self._pause(client._renewing(step, token))

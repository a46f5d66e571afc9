"""The parts of the client that differ with asyncio: `_sync_io` has the same names."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import Lock, sleep
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["AsyncStream", "Lock", "connect", "received", "resolved", "sleep"]

T = TypeVar("T")


async def resolved(token: str | Awaitable[str]) -> str:
    """Returns the token that a user's function has returned, which may be async."""
    return token if isinstance(token, str) else await token


async def received(connection: ClientConnection, longest: float) -> str | bytes:
    """Returns the next message. Raises `asyncio.TimeoutError` after `longest` seconds without one."""
    return await asyncio.wait_for(connection.recv(), longest)


class AsyncStream(ABC, Generic[T]):
    """Like `Stream`, for asyncio. A cancelled step, such as by `asyncio.wait_for`, loses the connection; the next one resumes."""

    def __init__(self) -> None:
        self._steps: AsyncGenerator[T, None] | None = None
        self._is_over = False
        self._is_closing = False
        self._task: asyncio.Task[Any] | None = None
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @abstractmethod
    def _begin(self) -> AsyncGenerator[T, None]:
        """Returns a generator that continues after the last returned value."""

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if self._task is not None:
            raise RuntimeError("another task iterates over this stream")
        if self._is_over or self._is_closing:
            raise StopAsyncIteration
        if self._steps is None:
            self._steps = self._begin()
        self._task = asyncio.current_task()
        self._is_idle.clear()
        try:
            return await anext(self._steps)
        except StopAsyncIteration:
            self._is_over = True
            raise
        except BaseException as error:
            self._steps = None
            if self._is_closing and self._is_by_close(error):
                raise StopAsyncIteration from None
            raise
        finally:
            self._task = None
            self._is_idle.set()

    def _is_by_close(self, error: BaseException) -> bool:
        if not isinstance(error, asyncio.CancelledError):
            return isinstance(error, Exception)
        # From Python 3.11 on, a task counts its cancellations: one by anybody except `close` must not be swallowed.
        uncancel = getattr(self._task, "uncancel", None)
        return uncancel is None or uncancel() == 0

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection, which also ends the iteration of another task, even if that is waiting."""
        was_closing, self._is_closing = self._is_closing, True
        if self._task is not None:
            if self._task is asyncio.current_task():
                return
            if not was_closing:
                self._task.cancel()
            await self._is_idle.wait()
        if self._steps is not None:
            await self._steps.aclose()

    def _opened(self, connection: httpx.Response | ClientConnection) -> None:
        """Does nothing: `close` cancels the task that waits for the connection."""

    async def _pause(self, seconds: float) -> None:
        await sleep(seconds)

"""Iterators that hold a connection: steps, failed and cancelled steps, and closing from another thread or task."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Stream(ABC, Generic[T]):
    """An iterator over generators that hold a connection. Its position is outside of them, so a new one continues after a failure."""

    def __init__(self) -> None:
        self._steps: Generator[T, None, None] | None = None
        self._is_over = False
        # One thread at a time makes a step; any thread may close.
        self._stepping = threading.Lock()
        self._closing = threading.Event()
        self._wake: Callable[[], object] | None = None

    @abstractmethod
    def _begin(self) -> Generator[T, None, None]:
        """Returns a generator that continues after the last returned value."""

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            with self._stepping:
                return self._step()
        finally:
            if self._closing.is_set():
                self._release()

    def _step(self) -> T:
        if self._is_over or self._closing.is_set():
            raise StopIteration
        if self._steps is None:
            self._steps = self._begin()
        try:
            return next(self._steps)
        except StopIteration:
            self._is_over = True
            raise
        except Exception:
            self._steps = None
            # A failure after closing is caused by closing.
            if self._closing.is_set():
                raise StopIteration from None
            raise
        except BaseException:
            self._steps = None
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, which also ends the iteration of another thread, even if that is waiting."""
        self._closing.set()
        wake = self._wake
        if wake is not None:
            wake()
        self._release()

    def _release(self) -> None:
        # A thread in a step does this after the step.
        if self._stepping.acquire(blocking=False):
            try:
                if self._steps is not None:
                    self._steps.close()
            finally:
                self._stepping.release()

    def _opened(self, wake: Callable[[], object]) -> None:
        """Stores the function that wakes this thread if it waits for the connection."""
        self._wake = wake
        # The stream may have been closed meanwhile.
        if self._closing.is_set():
            wake()

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._closing.wait(seconds)


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


S = TypeVar("S")


class OpenStreams:
    """The streams of a client, which it closes at its end."""

    def __init__(self) -> None:
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, stream: S) -> S:
        """Records a stream, and returns it."""
        with self._lock:
            self._streams.add(stream)
        return stream

    def all(self) -> list[Any]:
        """Returns the streams that are still in use."""
        with self._lock:
            return list(self._streams)


def shut_down(extensions: Any) -> Callable[[], None]:
    """Returns a function that wakes a thread waiting for a response of httpx: closing the socket would leave it waiting."""
    stream = extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None

    def wake() -> None:
        if isinstance(connection, socket.socket):
            # Not the method of an SSL socket, which removes the encryption from the reader.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    return wake

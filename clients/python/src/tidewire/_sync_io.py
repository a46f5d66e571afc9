"""The parts of the client that differ without asyncio: `_async_io` has the same names."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from threading import Lock
from time import sleep
from types import TracebackType
from typing import Generic, TypeVar

import httpx
from websockets.sync.client import ClientConnection, connect

__all__ = ["Lock", "Stream", "connect", "received", "resolved", "sleep"]

T = TypeVar("T")


def resolved(token: str) -> str:
    """Returns the token that a user's function has returned."""
    return token


def received(connection: ClientConnection, longest: float) -> str | bytes:
    """Returns the next message. Raises `TimeoutError` after `longest` seconds without one."""
    return connection.recv(timeout=longest)


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

    @property
    def _is_closing(self) -> bool:
        return self._closing.is_set()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            with self._stepping:
                return self._step()
        finally:
            if self._is_closing:
                self._release()

    def _step(self) -> T:
        if self._is_over or self._is_closing:
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
            if self._is_closing:
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

    def _opened(self, connection: httpx.Response | ClientConnection) -> None:
        """Stores the function that wakes this thread if it waits for the connection."""
        self._wake = wake = connection.close if isinstance(connection, ClientConnection) else _shut_down(connection)
        # The stream may have been closed meanwhile.
        if self._is_closing:
            wake()

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._closing.wait(seconds)


def _shut_down(response: httpx.Response) -> Callable[[], None]:
    """Returns a function that wakes a thread waiting for a response of httpx: closing the socket would leave it waiting."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None

    def wake() -> None:
        if isinstance(connection, socket.socket):
            # Not the method of an SSL socket, which removes the encryption from the reader.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    return wake

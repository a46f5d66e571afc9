"""The open streams of a client."""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeVar

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

"""What the tests share: a server, and both clients behind one interface."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any, cast

import pytest
from server import Server

from tidewire import AsyncTidewire, Tidewire

Connect = Callable[..., Tidewire]


class Blocking:
    """What has `async` methods, with methods that block: so one test is for both clients."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def _blocked(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._blocked(self._loop.run_until_complete(value))
        return Blocking(value, self._loop) if hasattr(value, "__anext__") or hasattr(value, "__aenter__") else value

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        @wraps(found)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self._blocked(found(*args, **kwargs))

        return method

    def __enter__(self) -> Blocking:
        self._loop.run_until_complete(self._inner.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run_until_complete(self._inner.__aexit__(*error))

    def __iter__(self) -> Blocking:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.run_until_complete(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server without keys, for tests that have users of their own."""
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop of the clients with asyncio."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Iterator[Connect]:
    """Makes clients of either kind, which are closed with the test."""
    with ExitStack() as stack:

        def make(*args: Any, **kwargs: Any) -> Tidewire:
            if request.param == "sync":
                return stack.enter_context(Tidewire(*args, **kwargs))
            return cast(Tidewire, stack.enter_context(Blocking(AsyncTidewire(*args, **kwargs), loop)))

        yield make


@pytest.fixture
def client(connect: Connect, server: Server) -> Tidewire:
    """A client of the shared server."""
    return connect(server.url)


_numbers = itertools.count()


@pytest.fixture
def name() -> Callable[[str], str]:
    """Makes names that no other test has."""
    number = next(_numbers)
    return lambda word: f"{word}.{number}"

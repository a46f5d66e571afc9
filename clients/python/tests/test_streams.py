"""Streams whose steps are cancelled or fail, and that are closed by another thread or task than the one that reads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from conftest import Connect
from scripted import Said, Scripted, problem
from server import LONGEST, Server, wait_for

import tidewire as t

Name = Callable[[str], str]
KINDS = ["changes", "live", "watch"]


def opened(client: Any, kind: str, user: str) -> Any:
    """Returns a stream of a kind."""
    return client.changes(types=["published"]) if kind == "changes" else getattr(client, kind)(user)


def bodies(kind: str, value: Any, author: str) -> list[object]:
    """Returns what was posted, by one value of a stream, oldest first."""
    if kind == "watch":
        return [item.post.body for item in value][::-1]
    if isinstance(value, t.PostMessage):
        return [value.item.post.body]
    return [value.post.body] if isinstance(value, t.PublishedChange) and value.post.author == author else []


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_cancelled_leaves_nothing_out(server: Server, name: Name, kind: str) -> None:
    ann, bob = name("ann"), name("bob")

    async def run() -> list[object]:
        found: list[object] = []
        cancelled = 0
        async with t.AsyncTidewire(server.url) as client:
            await client.follow(ann, bob, wait="delivered")
            async with opened(client, kind, ann) as stream:
                await anext(stream)
                for number in range(6):
                    # A step that is begun and cancelled while the connection is there, or is being made.
                    step = asyncio.ensure_future(anext(stream))
                    await asyncio.sleep(0.03 * number)
                    is_cancelled = step.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        taken = bodies(kind, await step, bob)
                        found = taken if kind == "watch" else found + taken
                    cancelled += is_cancelled
                    await client.publish(bob, number, wait="delivered")
                async for value in stream:
                    taken = bodies(kind, value, bob)
                    found = taken if kind == "watch" else found + taken
                    if found[-1:] == [5]:
                        break
        assert cancelled > 0
        return found

    assert asyncio.run(run()) == list(range(6))


@pytest.mark.parametrize("by_client", [False, True], ids=["stream", "client"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_that_waits_ends_when_another_one_closes(server: Server, name: Name, kind: str, by_client: bool) -> None:
    ended: list[object] = []
    with t.Tidewire(server.url) as client:
        stream = opened(client, kind, name("ann"))
        next(stream)

        def read() -> None:
            try:
                ended.append(list(stream))
            except BaseException as error:
                ended.append(error)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        reading.join(0.3)
        assert ended == [] and reading.is_alive()
        (client if by_client else stream).close()
        # Far less than the silence after which a connection counts as lost.
        reading.join(20)
        assert not reading.is_alive() and all(isinstance(each, list) for each in ended), ended
        assert list(stream) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_that_pauses_before_it_connects_again_ends_when_another_one_closes(connect: Connect, kind: str) -> None:
    with Scripted(problem(503, "overloaded", "30")) as scripted:
        client = t.Tidewire(scripted.url)
        stream = opened(client, kind, "ann")
        reading = threading.Thread(target=lambda: list(stream), daemon=True)
        reading.start()
        wait_for(lambda: len(scripted.asked) == 1, "the first request")
        client.close()
        reading.join(20)
        assert not reading.is_alive()


@pytest.mark.parametrize("by_client", [False, True], ids=["stream", "client"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_waits_ends_when_another_one_closes(server: Server, name: Name, kind: str, by_client: bool) -> None:
    async def run() -> None:
        async with t.AsyncTidewire(server.url) as client:
            stream = opened(client, kind, name("ann"))
            await anext(stream)

            async def read(values: AsyncIterator[object]) -> str:
                async for _ in values:
                    pass
                # It is not cancelled: it can wait for something else.
                await asyncio.sleep(0.01)
                return "ended"

            reading = asyncio.create_task(read(stream))
            await asyncio.sleep(0.3)
            assert not reading.done()
            await (client if by_client else stream).close()
            assert await asyncio.wait_for(reading, LONGEST) == "ended"

    asyncio.run(run())


def test_who_cancels_a_task_is_not_held_up_by_one_who_closes(server: Server, name: Name) -> None:
    async def run() -> None:
        async with t.AsyncTidewire(server.url) as client:
            stream = client.live(name("ann"))
            await anext(stream)
            reading = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.1)
            reading.cancel()
            await stream.close()
            with pytest.raises(asyncio.CancelledError):
                await reading

    if hasattr(asyncio.Task, "uncancel"):
        asyncio.run(run())


def test_a_stream_that_was_refused_can_be_asked_again(connect: Connect) -> None:
    good = Said(200, raw='data: {"type":"reached","sequence":9}\n\n')
    with Scripted(problem(403, "forbidden"), good) as server, connect(server.url).changes(after=5) as stream:
        with pytest.raises(t.Forbidden):
            next(stream)
        assert next(stream).sequence == 9

#!/usr/bin/env python3
"""A service that publishes, reads, and sends push notifications to sleeping readers.

    tidewire serve --active-window 5s &         # a reader without requests for 5 seconds sleeps; in production use 10m
    python push_service.py                      # TIDEWIRE_SERVER and TIDEWIRE_KEY name another server and its key

Each line of the standard input is a post of bob, whom ann follows. With an empty line, ann reads her feed. Posts that she misses while she
sleeps are pushed: this program prints them; a real service passes them to its provider of push notifications.

The place in the stream of changes is stored after each push. So after a crash some are sent again, and none is lost: a provider that
gets the same key twice replaces the first push with the second.
"""

import asyncio
import contextlib
import os
import sys
import threading
from pathlib import Path

from tidewire import AsyncTidewire, Gone, MissedMessage, Post

PLACE = Path(os.environ.get("PUSH_PLACE", "push.place"))


async def push(reader: str, key: str, text: str) -> None:
    """A stand-in for the provider of push notifications."""
    print(f"push to {reader} ({key}): {text}", flush=True)


async def push_what_is_missed(tidewire: AsyncTidewire) -> None:
    """Follows the stream without end. The client reconnects by itself."""
    while True:
        # At the first start, the stream starts with posts published from now on.
        after = PLACE.read_text() if PLACE.exists() else None
        try:
            async for change in tidewire.changes(after=after, types=["missed"]):
                if isinstance(change, MissedMessage):
                    # Deleted posts are not returned, and need no push.
                    for post in (await tidewire.get_posts([change.post.id])).posts:
                        await push(change.reader, f"{change.reader}/{post.id}", f"{post.author}: {text_of(post)}")
                store(change.place)
        except Gone as gone:
            print(f"posts up to {gone.oldest} are no longer known: continuing after them", file=sys.stderr)
            store(str(gone.oldest))


def text_of(post: Post) -> str:
    """Returns the text of a post. The server accepts any JSON as a body, and other programs may publish other content."""
    return str(post.body["text"]) if isinstance(post.body, dict) and "text" in post.body else "(not a text)"


def store(place: str) -> None:
    """Replaces the file as a whole, so that a crash leaves the old place or the new one."""
    new = PLACE.with_name(PLACE.name + ".new")
    new.write_text(place)
    new.replace(PLACE)


async def next_line() -> str:
    """Returns the next line of the standard input, "" at its end. Its daemon thread does not keep a failed program running."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def take(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = sys.stdin.readline()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(take, text)

    threading.Thread(target=read, daemon=True).start()
    return await line


async def publish_and_read(tidewire: AsyncTidewire) -> None:
    """Publishes each line; with an empty one, ann reads."""
    while line := await next_line():
        if text := line.strip():
            post = await tidewire.publish("bob", {"text": text}, wait="delivered")
            print(f"bob has published {post.id}", flush=True)
        else:
            page = await tidewire.feed("ann", limit=5)
            for item in page.items:
                print(f"ann reads {item.post.author}: {text_of(item.post)}", flush=True)


async def main() -> None:
    url = os.environ.get("TIDEWIRE_SERVER", "http://127.0.0.1:8080")
    async with AsyncTidewire(url, token=os.environ.get("TIDEWIRE_KEY")) as tidewire:
        await tidewire.follow("ann", "bob")
        await tidewire.change_rules("ann", notify=True)
        tasks = [asyncio.create_task(push_what_is_missed(tidewire)), asyncio.create_task(publish_and_read(tidewire))]
        # The first task ends only with a permanent error, such as a refused key; the second one with the input.
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for task in done:
            task.result()


if __name__ == "__main__":
    asyncio.run(main())

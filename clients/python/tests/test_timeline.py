"""The list of entries by pages and messages, against a naive model, in every order that the network may make of them."""

from __future__ import annotations

from random import Random

import httpx
import pytest

from tidewire._calls import feed
from tidewire._decode import read_time
from tidewire._http import request_of
from tidewire._live import PAGE_MAX, Timeline
from tidewire.messages import HelloMessage, LiveMessage, PostMessage, RemoveMessage, StaleMessage, UpdateMessage
from tidewire.models import Item, Page, Post

TIME = read_time("2026-11-20T10:00:00Z")


def item(cursor: int, id: int, body: int = 0) -> Item:
    return Item(Post(str(id), "bob", TIME, body), f"{cursor:06}", [], [])


class World:
    """A feed, and the messages about it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.feed: dict[str, Item] = {}
        self.sent: list[LiveMessage] = []
        self.made = 0

    def change(self) -> None:
        choice = self.random.random()
        if choice < 0.6 or not self.feed:
            self.made += 1
            new = item(self.random.randrange(1_000_000), self.made)
            self.feed[new.post.id] = new
            self.sent.append(PostMessage(0, new))
            return
        id = self.random.choice(sorted(self.feed))
        if choice < 0.75:
            del self.feed[id]
            self.sent.append(RemoveMessage(0, id))
        elif choice < 0.85:
            old = self.feed[id]
            self.feed[id] = Item(Post(id, "bob", TIME, self.random.random()), old.cursor, [], [])
            self.sent.append(UpdateMessage(0, self.feed[id].post))
        elif choice < 0.95:
            # A new reason puts the entry in another place.
            self.feed[id] = item(self.random.randrange(1_000_000), int(id))
            self.sent.append(PostMessage(0, self.feed[id]))
        else:
            below = self.feed[id].cursor
            for id in [id for id, each in self.feed.items() if each.cursor < below and self.random.random() < 0.5]:
                del self.feed[id]
            self.sent.append(StaleMessage(0, self.random.choice([below, None])))

    def page(self, before: str | None, limit: int) -> Page:
        found = [each for each in self.sorted() if before is None or each.cursor < before]
        return Page(found[:limit], found[limit - 1].cursor if len(found) > limit else None, None, [])

    def sorted(self) -> list[Item]:
        return sorted(self.feed.values(), key=lambda each: each.cursor, reverse=True)


def test_pages_of_a_cluster_are_no_older_than_what_the_connection_began_with() -> None:
    timeline = Timeline()
    for sequence in [None, 41, 43]:
        timeline.apply(HelloMessage(0, "e", False, None, sequence))
        read = timeline.start_read()
        assert read is not None and read.after_sequence == sequence
    with httpx.Client() as http:
        request = request_of(http, feed("ann", after_sequence=43), "http://feeds", None)
        assert request.headers["tidewire-after"] == "43" and request.url == "http://feeds/v1/users/ann/feed"
        assert "tidewire-after" not in request_of(http, feed("ann"), "http://feeds", None).headers


@pytest.mark.parametrize("seed", range(300))
def test_the_entries_are_those_of_the_feed_whatever_overtakes_what(seed: int) -> None:
    random = Random(seed)
    world = World(random)
    timeline = Timeline(limit=random.randrange(1, 8), keep=random.randrange(5, 30))
    for _ in range(random.randrange(60)):
        world.change()
    world.sent.clear()
    timeline.apply(HelloMessage(0, "e", False))
    for _ in range(150):
        choice = random.random()
        if choice < 0.5:
            world.change()
        elif choice < 0.6:
            timeline.want_more()
        elif choice < 0.65:
            # The connection was lost with what was on its way.
            world.sent.clear()
            timeline.apply(HelloMessage(0, "e", False))
        elif choice < 0.85 and world.sent:
            timeline.apply(world.sent.pop(0))
        elif (read := timeline.start_read()) is not None:
            for _ in range(random.randrange(3)):
                world.change()
            page = world.page(read.before, read.limit)
            # Messages come before the page, after it, and may be about what the page has already.
            for _ in range(random.randrange(4)):
                world.change()
                if world.sent and random.random() < 0.7:
                    timeline.apply(world.sent.pop(0))
            if random.random() < 0.8:
                timeline.finish_read(read, page)
    while True:
        while world.sent:
            timeline.apply(world.sent.pop(0))
        last = timeline.start_read()
        if last is None:
            break
        assert last.limit <= PAGE_MAX
        timeline.finish_read(last, world.page(last.before, last.limit))
    shown = timeline.items
    assert timeline.is_current
    assert shown == world.sorted()[: len(shown)]
    assert timeline.has_more or len(shown) == len(world.feed)

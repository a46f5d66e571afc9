"""Live feeds, across lost connections and servers that are killed."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import pytest
from conftest import Connect
from scripted import node
from server import KEY, Proxy, Server, token

from tidewire import (
    ConnectionFailed,
    Feed,
    HelloMessage,
    LiveStream,
    MarkerMessage,
    PostMessage,
    RateLimited,
    RemoveMessage,
    StaleMessage,
    Tidewire,
    TidewireError,
    Unauthorized,
    UnexpectedAnswer,
    UnreadMessage,
    UpdateMessage,
)
from tidewire._live import Numbering, closed

Name = Callable[[str], str]


@contextmanager
def publishing(url: str, author: str, numbers: range) -> Iterator[threading.Thread]:
    """Publishes numbered posts one after the other, whatever happens to the server."""
    failed: list[BaseException] = []

    def publish() -> None:
        try:
            with Tidewire(url, retries=100) as client:
                for number in numbers:
                    client.publish(author, number)
                time.sleep(0.01)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    yield thread
    thread.join()
    assert failed == []


def test_messages_say_what_happens_to_the_feed(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    with client.live(ann) as stream:
        hello = next(stream)
        assert isinstance(hello, HelloMessage) and not hello.recovered and hello.marker is None
        post = client.publish(bob, 1)
        entered = next(stream)
        assert isinstance(entered, PostMessage) and entered.item.post == post and entered.item.via == [bob]
        client.edit_post(post.id, body=2)
        update = next(stream)
        assert isinstance(update, UpdateMessage) and update.post.body == 2
        client.set_marker(ann, entered.item.cursor)
        marker = next(stream)
        assert isinstance(marker, MarkerMessage) and marker.cursor == entered.item.cursor
        client.delete_post(post.id)
        removed = next(stream)
        assert isinstance(removed, RemoveMessage) and removed.post == post.id
        assert stream.position == (hello.epoch, hello.seq + 4)


def test_a_feed_of_a_cluster_is_read_with_the_sequence_that_its_connection_began_at(connect: Connect) -> None:
    with node(after_sequence=7) as (url, asked), connect(url).watch("ann") as feed:
        while not next(feed):
            pass
        assert asked == ["7"]


def test_a_stream_ends_when_it_is_closed(client: Tidewire, name: Name) -> None:
    stream = client.live(name("ann"))
    next(stream)
    stream.close()
    assert list(stream) == []


def test_a_connection_that_is_cut_is_resumed_with_exactly_what_is_missing(connect: Connect, server: Server, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    proxy = Proxy(server.port)
    direct, client = connect(server.url), connect(proxy.url, retry_wait_max=0.2)
    direct.follow(ann, bob)
    with client.live(ann) as stream:
        next(stream)
        numbers: list[object] = []
        hellos = []
        for number in range(50):
            direct.publish(bob, number)
            if number % 10 == 5:
                proxy.cut()
        while len(numbers) < 50:
            message = next(stream)
            if isinstance(message, HelloMessage):
                hellos.append(message)
                proxy.cut() if len(hellos) < 3 else None
            elif isinstance(message, PostMessage):
                numbers.append(message.item.post.body)
        assert numbers == list(range(50)), "a gap or a double"
        assert hellos and all(hello.recovered for hello in hellos)
    proxy.close()


def test_a_stream_is_resumed_by_another_one(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    with client.live(ann) as stream:
        next(stream)
        position = stream.position
    assert position is not None
    client.publish_many([], wait="delivered")
    first, second = (client.publish(bob, n, wait="delivered") for n in range(2))
    with client.live(ann, epoch=position[0], seq=position[1]) as stream:
        hello, *posts = islice(stream, 3)
        assert isinstance(hello, HelloMessage) and hello.recovered
        assert [each.item.post for each in posts if isinstance(each, PostMessage)] == [first, second]


def test_who_does_not_know_where_the_server_is_is_told_at_last(connect: Connect, name: Name) -> None:
    with pytest.raises(TidewireError):
        next(connect("http://127.0.0.1:9", retries=1).live("ann"))


def test_a_message_that_cannot_be_read_is_final() -> None:
    for text in ("<html>", "[1]", '{"type":"post","seq":1}'):
        with pytest.raises(UnexpectedAnswer) as raised:
            list(Numbering("ann", None, None, False).take(text))
        assert not raised.value.is_temporary


def test_the_messages_of_a_batch_before_a_missing_one_are_returned() -> None:
    hello = {"type": "hello", "seq": 1, "epoch": "e", "recovered": False, "marker": None}
    removed = [{"type": "remove", "seq": seq, "post": "7"} for seq in (2, 4)]
    numbering = Numbering("ann", None, None, False)
    taken = numbering.take(json.dumps([hello, *removed]))
    assert [next(taken).seq, next(taken).seq] == [1, 2]
    assert numbering.position == ("e", 2)
    with pytest.raises(ConnectionFailed):
        next(taken)


def test_how_a_connection_was_closed_says_whether_another_one_may_help() -> None:
    for code, kind, is_temporary in [
        (None, ConnectionFailed, True),
        (1001, ConnectionFailed, True),
        (4001, Unauthorized, False),
        (4008, ConnectionFailed, True),
        (4029, RateLimited, True),
    ]:
        error = closed(code, "")
        assert (type(error), error.is_temporary) == (kind, is_temporary), code
    for reason, expected in [("", "unauthenticated"), ("token_expired", "token_expired"), ("unauthenticated: late", "unauthenticated")]:
        assert closed(4001, reason).code == expected


def test_certificates_for_other_servers_do_not_hinder_one_without_encryption(connect: Connect, server: Server, name: Name) -> None:
    client = connect(server.url, tls=ssl.create_default_context(), retries=0)
    with client.live(name("ann")) as stream:
        assert isinstance(next(stream), HelloMessage)


def test_unread_entries_are_counted(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    client.publish(bob, 1, wait="delivered")
    with client.live(ann, unread=True) as stream:
        counts = (each.unread for each in stream if isinstance(each, UnreadMessage))
        assert next(counts) == 1
        client.publish(bob, 2, wait="delivered")
        assert next(counts) == 2


@pytest.mark.parametrize("kind", ["stream", "feed"])
def test_a_live_connection_goes_on_with_a_new_token(connect: Connect, name: Name, kind: str) -> None:
    with Server(access=True) as server:
        asked: list[str] = []

        def ask() -> str:
            asked.append(token("ann", 1 if len(asked) < 2 else 3600))
            return asked[-1]

        operator, client = connect(server.url, token=KEY), connect(server.url, token=ask)
        operator.follow("ann", "bob")
        seen: list[object] = []
        stream: LiveStream | Feed = client.live("ann") if kind == "stream" else client.watch("ann")
        with stream, publishing_slowly(operator, seen) as published:
            for each in stream:
                if isinstance(each, list):
                    seen[:] = [item.post.body for item in each][::-1]
                elif isinstance(each, PostMessage):
                    seen.append(each.item.post.body)
                if len(asked) >= 3 and len(seen) >= 3:
                    break
                published()
        assert seen == list(range(len(seen)))


@contextmanager
def publishing_slowly(operator: Tidewire, seen: list[object]) -> Iterator[Callable[[], None]]:
    numbers = iter(range(1000))

    def publish() -> None:
        operator.publish("bob", next(numbers), wait="delivered")
        threading.Event().wait(0.3)

    yield publish


def test_a_token_that_is_never_good_ends_the_stream(connect: Connect) -> None:
    with Server(access=True) as server:
        asked: list[str] = []

        def ask() -> str:
            asked.append(token("ann", -100))
            return asked[-1]

        with pytest.raises(Unauthorized):
            next(connect(server.url, token=ask).live("ann"))
        assert len(asked) == 2
        with pytest.raises(Unauthorized):
            next(connect(server.url, token="wrong").live("ann"))


def test_a_feed_has_every_post_once_though_the_server_is_killed_and_started_again(connect: Connect) -> None:
    last = 120
    with Server() as server:
        client = connect(server.url, retries=100, retry_wait_max=0.5)
        client.follow("ann", "bob")
        kills = [20, 60]
        with client.watch("ann", limit=100, keep=1000) as feed, publishing(server.url, "bob", range(last)):
            for items in feed:
                numbers = [item.post.body for item in items]
                assert len({item.post.id for item in items}) == len(items), "a post is there twice"
                assert numbers == list(range(numbers[0], numbers[-1] - 1, -1)) if numbers else True, "a post is missing"
                assert numbers[-1:] in ([0], []) or len(numbers) >= 100
                if kills and numbers and numbers[0] >= kills[0]:
                    kills.pop(0)
                    server.kill()
                    server.run()
                if numbers[:1] == [last - 1]:
                    break
        assert kills == []
        while feed.has_more:
            feed.load_more()
        assert [item.post.body for item in feed.items] == list(range(last))[::-1]
        assert feed.items == list(client.iter_feed("ann"))


def test_a_feed_follows_edits_deletes_mutes_and_the_marker(client: Tidewire, name: Name) -> None:
    ann, bob, cas = name("ann"), name("bob"), name("cas")
    for source in (bob, cas):
        client.follow(ann, source)
    posts = [client.publish(bob, n, wait="delivered") for n in range(5)]
    with client.watch(ann, limit=3, unread=True) as feed:
        until(feed, lambda: [item.post.body for item in feed.items] == [4, 3, 2] and feed.has_more)
        assert [item.post.body for item in feed.load_more()] == [4, 3, 2, 1, 0] and not feed.has_more
        client.edit_post(posts[3].id, body="edited")
        until(feed, lambda: [item.post.body for item in feed.items] == [4, "edited", 2, 1, 0])
        assert feed.items[1].raw["post"]["body"] == "edited"
        client.delete_post(posts[2].id)
        until(feed, lambda: [item.post.body for item in feed.items] == [4, "edited", 1, 0])
        client.publish(cas, "late", wait="delivered")
        until(feed, lambda: len(feed.items) == 5)
        client.mute(ann, bob)
        until(feed, lambda: [item.post.body for item in feed.items] == ["late"])
        client.unmute(ann, bob)
        until(feed, lambda: len(feed.items) == 5)
        client.set_marker(ann, feed.items[0].cursor)
        until(feed, lambda: feed.marker == feed.items[0].cursor and feed.unread is not None and feed.unread.unread == 0)


def test_a_feed_is_read_again_where_it_is_stale(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.publish_many([], wait="delivered")
    for number in range(200):
        client.publish(bob, number)
    with client.watch(ann, limit=100) as feed, client.live(ann) as stream:
        next(stream)
        assert next(feed) == []
        client.follow(ann, bob, wait="delivered")
        assert any(isinstance(each, StaleMessage) for each in stream)
        until(feed, lambda: len(feed.items) >= 100)
        while feed.has_more:
            feed.load_more()
        assert [item.post.body for item in feed.items] == list(range(200))[::-1]


def until(feed: Feed, condition: Callable[[], bool]) -> None:
    """Iterates until the feed is as expected."""
    for _ in feed:
        if condition():
            return

"""The stream of changes, across lost connections, and with the server and the consumer killed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path

import httpx
import pytest
from conftest import Connect
from scripted import Said, Scripted, problem
from server import Proxy, Server, wait_for

import tidewire as t
from tidewire import Tidewire, UnknownChange
from tidewire._changes import EventReader
from tidewire.messages import change_of

Name = Callable[[str], str]


def test_every_kind_of_change_is_typed(connect: Connect) -> None:
    with Server() as server:
        client = connect(server.url)
        post = client.publish("bob", {"text": "\u2028\x85\r"})
        client.edit_post(post.id, body=None)
        client.edit_post(post.id, hidden=True)
        client.follow("ann", "bob", hidden=True)
        client.unfollow("ann", "bob", keep=True)
        for put, remove in ((client.mute, client.unmute), (client.block, client.unblock)):
            put("ann", "bob")
            remove("ann", "bob")
        client.change_rules("ann", notify=True)
        cursor = client.posts_of("bob").newest
        client.add_member("ann", "near", "bob")
        client.add_member("ann", "near", "cas")
        client.remove_member("ann", "near", "bob")
        client.delete_list("ann", "near")
        client.follow("ann", "cas")
        client.publish("cas", 1, wait="delivered")
        cursor = client.feed("ann").newest
        assert cursor is not None
        client.set_marker("ann", cursor)
        client.revoke_tokens("ann")
        client.delete_post(post.id)

        up_to_now = list(client.changes(after=0, follow=False, page_size=3))
        assert [type(each).__name__ for each in up_to_now if not isinstance(each, t.ReachedMessage)] == [
            "PublishedChange",
            "EditedChange",
            "EditedChange",
            "FollowedChange",
            "UnfollowedChange",
            "MutedChange",
            "UnmutedChange",
            "BlockedChange",
            "UnblockedChange",
            "RulesChange",
            "MemberAddedChange",
            "MemberAddedChange",
            "MemberRemovedChange",
            "ListDeletedChange",
            "FollowedChange",
            "PublishedChange",
            "MarkedChange",
            "TokensRevokedChange",
            "DeletedChange",
        ]
        published, edited, hidden, followed, unfollowed = (
            up_to_now[0],
            *[each for each in up_to_now if isinstance(each, (t.EditedChange, t.FollowedChange, t.UnfollowedChange))][:4],
        )
        assert isinstance(published, t.PublishedChange) and published.post == post
        assert isinstance(edited, t.EditedChange) and edited.has_body and edited.body is None and edited.hidden is None
        assert isinstance(hidden, t.EditedChange) and hidden.hidden and not hidden.has_body
        assert isinstance(followed, t.FollowedChange) and [(each.source, each.hidden) for each in followed.follows] == [("bob", True)]
        assert isinstance(unfollowed, t.UnfollowedChange) and unfollowed.keep

        events = [each for each in up_to_now if not isinstance(each, t.ReachedMessage)]
        with client.changes(after=0) as stream:
            assert [each for each in islice(stream, 20) if not isinstance(each, t.ReachedMessage)] == events
            assert stream.position == events[-1].sequence


def test_a_type_of_a_newer_server_is_handed_out_as_unknown() -> None:
    change = change_of({"type": "invented", "sequence": 7, "user": "ann"})
    assert isinstance(change, UnknownChange) and change.sequence == 7 and change.raw["user"] == "ann"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    line = '{"type":"deleted","sequence":3,"id":"\u2028\x85"}'
    text = f'id: 3\nevent: deleted\ndata: {line}\n\ndata: {{"type":"reached","sequence":4}}\n\n'.encode()
    reader = EventReader()
    found = [each for start in range(0, len(text), size) for each in reader.read(text[start : start + size])]
    assert found == [t.DeletedChange(3, "\u2028\x85"), t.ReachedMessage(4)]


def test_without_a_place_the_stream_begins_now(client: Tidewire, name: Name) -> None:
    bob = name("bob")
    client.publish(bob, "before")
    with client.changes(types=["published"]) as stream:
        first = next(stream)
        assert isinstance(first, t.ReachedMessage)
        post = client.publish(bob, "after")
        change = next(stream)
        assert isinstance(change, t.PublishedChange) and change.post == post


def test_a_stream_that_is_cut_goes_on_after_the_last_change(connect: Connect, server: Server, name: Name) -> None:
    proxy = Proxy(server.port)
    direct, client = connect(server.url), connect(proxy.url, retry_wait_max=0.2)
    bob, numbers = name("bob"), []
    with client.changes(types=["published"]) as stream:
        next(stream)
        for number in range(30):
            direct.publish(bob, number)
            if number % 10 == 5:
                proxy.cut()
        for change in stream:
            if isinstance(change, t.PublishedChange) and change.post.author == bob:
                numbers.append(change.post.body)
            if numbers[-1:] == [29]:
                break
    assert numbers == list(range(30))
    proxy.close()


@pytest.mark.parametrize("follow", [True, False])
def test_who_is_interrupted_between_the_readers_of_a_post_goes_on_behind_the_last_one(connect: Connect, follow: bool) -> None:
    with Server() as server:
        client = connect(server.url)
        readers = sorted(f"late-{number}" for number in range(12))
        for reader in reversed(readers):
            client.follow(reader, "bob")
            client.change_rules(reader, notify=True)
        [begin] = client.changes(follow=False)
        post = client.publish("bob", 1)
        place = begin.place
        seen: list[str] = []
        while len(seen) < len(readers):
            with client.changes(after=place, types=["missed"], follow=follow) as stream:
                some = islice((each for each in stream if isinstance(each, t.MissedMessage)), 5)
                for missed in islice(some, len(readers) - len(seen)):
                    assert missed.place == f"{begin.sequence}-{missed.reader}" and missed.post.id == post.id
                    seen.append(missed.reader)
                assert stream.place is not None and stream.position == begin.sequence
                place = stream.place
        assert seen == readers
        # Behind the last one comes what was accepted after the post.
        assert [each.place for each in client.changes(after=place, types=["missed"], follow=False)][-1] == str(begin.sequence + 1)


@pytest.mark.parametrize("follow", [True, False])
def test_a_stream_that_is_lost_within_a_post_goes_on_behind_the_last_reader(connect: Connect, follow: bool) -> None:
    post = '{"id":"7","author":"bob","published_at":"2026-11-20T10:00:00Z"}'

    def said(reader: str, *, kind: str = "missed", more: str = "") -> Said:
        line = f'{{"sequence":40,"type":"{kind}","reader":"{reader}","reason":"asleep","via":[],"post":{post}{more}}}'
        return Said(200, raw=f"data: {line}\n\n" if follow else f"{line}\n")

    last = Said(200, raw='data: {"sequence":41,"type":"reached"}\n\n' if follow else '{"sequence":41,"type":"reached"}\n')
    with Scripted(said("-a-n"), said("bob", kind="reached", more=',"more":true'), said("cas"), last) as server:
        places = [each.place for each in islice(connect(server.url).changes(after=40, types=["missed"], follow=follow), 4)]
        assert places == ["40--a-n", "40-bob", "40-cas", "41"]
        limit = "" if follow else "&limit=1000"
        asked = [path.removeprefix("/v1/changes?after=40") for _, path, _, _ in server.asked]
        named = [f"&after_reader={reader}{limit}&types=missed" for reader in ("-a-n", "bob", "cas")]
        assert asked == [f"{limit}&types=missed", *named]


def test_what_is_no_place_is_refused_by_name(client: Tidewire) -> None:
    for after, field in (("x", "after"), ("1-", "after_reader"), ("1-a b", "after_reader"), ("-ann", "after")):
        with pytest.raises(t.BadRequest) as raised:
            next(client.changes(after=after, types=["missed"]))
        assert raised.value.field == field, after
    with pytest.raises(t.BadRequest) as raised:
        next(client.changes(after="1-ann", types=["deleted"]))
    assert raised.value.field == "after_reader"


class Slow:
    """A server that sends the second line of an answer once it is told to."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection:
            connection.recv(65536)
            lines = [f'{{"type":"reached","sequence":{number}{more}}}\n' for number, more in ((1, ',"more":true'), (2, ""))]
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {sum(map(len, lines))}\r\n\r\n"
            connection.sendall((head + lines[0]).encode())
            assert self.may_go_on.wait(60)
            # Nobody may be there any more.
            with contextlib.suppress(OSError):
                connection.sendall(lines[1].encode())


def test_lines_are_handed_out_as_they_come(connect: Connect) -> None:
    server = Slow()
    with connect(server.url).changes(after=0, follow=False) as stream:
        first = next(stream)
        assert isinstance(first, t.ReachedMessage) and first.more
        server.may_go_on.set()
        assert [each.sequence for each in stream] == [2]


def test_another_thread_ends_the_wait_for_a_line() -> None:
    server = Slow()
    with Tidewire(server.url) as client:
        stream = client.changes(after=0, follow=False)
        next(stream)
        closer = threading.Timer(0.2, stream.close)
        closer.start()
        assert list(stream) == []
        closer.join()
    server.may_go_on.set()


def test_an_answer_that_is_cut_short_is_asked_for_again(connect: Connect) -> None:
    text = '{"type":"erased","sequence":1,"user":"ann"}\n{"type":"era'
    rest = '{"type":"erased","sequence":2,"user":"bob"}\n{"type":"reached","sequence":2}\n'
    with Scripted(Said(200, raw=text), Said(200, raw=rest)) as server:
        changes = list(connect(server.url).changes(after=0, follow=False))
        assert [each.sequence for each in changes] == [1, 2, 2]
        assert [path for _, path, _, _ in server.asked] == ["/v1/changes?after=0&limit=1000", "/v1/changes?after=1&limit=1000"]


def test_a_time_before_the_year_1_stops_no_consumer(client: Tidewire, name: Name) -> None:
    bob = name("bob")
    with client.changes(types=["published"]) as stream:
        next(stream)
        # Not by `publish`, which takes a datetime.
        old = {"author": bob, "body": "old", "published_at": "0000-12-31T23:59:59.5Z"}
        httpx.post(f"{client._memory.servers.current}/v1/posts", json=old).raise_for_status()
        client.publish(bob, "new")
        posts = (each.post for each in stream if isinstance(each, t.PublishedChange) and each.post.author == bob)
        first, second = islice(posts, 2)
    assert (first.body, second.body) == ("old", "new")
    assert first.published_at == datetime.min.replace(tzinfo=timezone.utc)
    assert first.raw["published_at"].startswith("0000-12-31T23:59:59.5")


@pytest.mark.parametrize("follow", [True, False])
def test_a_line_that_cannot_be_read_ends_the_stream_after_all_before_it(connect: Connect, follow: bool) -> None:
    lines = ['{"type":"erased","sequence":1,"user":"ann"}', '{"type":"erased","sequence":2}', '{"type":"reached","sequence":3}']
    text = "".join(f"data: {line}\n\n" if follow else f"{line}\n" for line in lines)
    with Scripted(Said(200, raw=text)) as server, connect(server.url).changes(after=0, follow=follow) as stream:
        assert next(stream).sequence == 1
        with pytest.raises(t.UnexpectedAnswer) as raised:
            next(stream)
        assert not raised.value.is_temporary and stream.position == 1 and len(server.asked) == 1


@pytest.mark.parametrize("text", ["", '{"type":"era'])
def test_answers_without_progress_are_failures(connect: Connect, text: str) -> None:
    with Scripted(Said(200, raw=text)) as server:
        with pytest.raises(t.ConnectionFailed):
            list(connect(server.url, retries=2, retry_wait_max=0.1).changes(after=0, follow=False))
        assert len(server.asked) == 3


def test_what_is_gone_is_said_with_the_place_to_go_on(connect: Connect) -> None:
    with Server() as server:
        client = connect(server.url)
        client.publish("zoe", 1)
        # The journal forgets what names an erased user.
        wait_for(lambda: client.erase_user("zoe"), "the erasure of zoe")
        with pytest.raises(t.Gone) as raised:
            next(client.changes(after=0))
        assert raised.value.oldest > 0
        assert isinstance(list(client.changes(after=raised.value.oldest, follow=False))[-1], t.ReachedMessage)


def test_gone_in_the_middle_ends_the_stream(connect: Connect) -> None:
    event = 'data: {"type":"reached","sequence":5}\n\n'
    with Scripted(Said(200, raw=event), problem(503, "log_unavailable", "1"), problem(410, "gone", oldest=9)) as server:
        with connect(server.url, retries=0).changes(after=5) as stream:
            next(stream)
            with pytest.raises(t.Gone) as raised:
                next(stream)
        assert raised.value.oldest == 9
        assert len(server.asked) == 3, "once it was connected, it comes back after any failure"


@pytest.mark.parametrize("follow", [True, False])
def test_what_one_node_lacks_is_asked_of_the_others_and_is_gone_if_all_lack_it(connect: Connect, follow: bool) -> None:
    line = '{"type":"reached","sequence":6}\n'
    has = Said(200, raw=f"data: {line}\n" if follow else line)
    lacks = [problem(410, "gone", oldest=oldest) for oldest in (9, 8, 10)]
    with Scripted(lacks[0]) as first, Scripted(lacks[1]) as second, Scripted(has) as third:
        assert next(connect([first.url, second.url, third.url]).changes(after=5, follow=follow)).sequence == 6
        assert [len(each.asked) for each in (first, second, third)] == [1, 1, 1]
    with Scripted(lacks[0]) as first, Scripted(lacks[1]) as second, Scripted(lacks[2]) as third:
        with pytest.raises(t.Gone) as raised:
            next(connect([first.url, second.url, third.url]).changes(after=5, follow=follow))
        assert raised.value.oldest == 8, "not the node that has most"
        assert [len(each.asked) for each in (first, second, third)] == [1, 1, 1]


def test_who_sleeps_is_named_with_what_is_missed(connect: Connect) -> None:
    with Server("--active-window", "1s") as server:
        client = connect(server.url)
        client.follow("ann", "bob")
        client.change_rules("ann", notify=True)
        with client.changes(types=["missed"]) as stream:
            next(stream)
            wait_for(lambda: not client.get_user("ann").active, "the sleep of ann")
            time.sleep(1.1)
            post = client.publish("bob", "are you there?")
            missed = next(each for each in stream if isinstance(each, t.MissedMessage))
        assert (missed.reader, missed.post.id, missed.via, missed.reason) == ("ann", post.id, ["bob"], "asleep")


def test_a_consumer_gets_every_change_in_order_though_it_and_the_server_are_killed(tmp_path: Path) -> None:
    words = [sys.executable, str(Path(__file__).with_name("consumer.py"))]
    published: list[str] = []
    with Server() as server, Tidewire(server.url, retries=100) as client:
        for round in range(6):
            consumer = subprocess.Popen([*words, server.url, str(tmp_path)])
            for number in range(100):
                published.append(client.publish("bob", number).id)
                if number == 50 and round % 3 == 1:
                    server.kill()
                    server.run()
            wait_for(lambda before=round: len(seen(tmp_path)) > 60 * before, "some changes")  # type: ignore[misc]
            consumer.kill()
            consumer.wait()
        consumer = subprocess.Popen([*words, server.url, str(tmp_path)])
        try:
            wait_for(lambda: set(seen(tmp_path)) >= set(published), "every change")
        finally:
            consumer.kill()
            consumer.wait()
    found = seen(tmp_path)
    assert list(dict.fromkeys(found)) == published, "a change is missing, or out of order"
    assert len(found) < len(published) + 20, "each kill brings a change or two twice, not all of them"


def seen(folder: Path) -> list[str]:
    """Returns the ids of the posts that the consumer has stored, without a line that was cut."""
    file = folder / "seen"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [line.split()[1] for line in lines]

"""Calls of operators, by both clients, against the real server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from conftest import Connect
from server import KEY, Server, wait_for

from tidewire import NotFound, PublishedChange, Tidewire

Name = Callable[[str], str]


def test_operators_calls(client: Tidewire, name: Name) -> None:
    ann = name("ann")
    client.publish(ann, 1, wait="delivered")
    client.feed(ann)
    assert client.is_ready() and client.is_ready(writes=True)
    stats = client.stats(inboxes="count")
    assert stats.writes_refused is None and stats.raw["writes_refused"] is None
    assert stats.posts > 0 and stats.queues["commands"].limit > 0 and stats.raw["inboxes"]["count"] > 0
    assert client.verify_feed(ann).good
    assert client.rebuild_feed(ann).good
    assert client.take_snapshot().bytes > 0
    time = datetime.now(timezone.utc)
    assert client.revoke_tokens(ann, not_before=time).not_before <= time
    assert client.revoke_tokens(ann).user == ann
    data = client.user_data(ann)
    assert data.user == ann and data.rules.show_own and [post.body for post in data.posts] == [1]
    while not client.erase_user(ann):
        pass
    assert client.posts_of(ann).items == []


def test_figures_of_the_last_hour_are_columns_and_only_newer_samples_are_sent_again(client: Tidewire) -> None:
    wait_for(lambda: len(client.stats_history().at_seconds) > 0, "a sample")
    whole = client.stats_history()
    count = len(whole.at_seconds)
    assert whole.reset and 0 < count <= whole.samples_max and whole.interval_seconds > 0
    assert {len(whole.posts_per_second), len(whole.page_p99_us), len(whole.active), len(whole.memory_bytes.resident)} == {count}
    assert {len(queue.depth) for queue in whole.queues.values()} == {count}
    assert whole.queues["commands"].limit > 0 and whole.node is None
    newer = client.stats_history(since=whole.next)
    assert not newer.reset and all(at > whole.at_seconds[-1] for at in newer.at_seconds)


def test_sources_are_found_by_the_beginning_of_their_ids(client: Tidewire, name: Name) -> None:
    bob = name("found")
    client.follow(name("follower"), bob)
    client.publish(bob, 1, tags=[f"found-{bob}"])
    found = client.find_sources(bob, kind="user")
    assert found.complete and found.examined > 0 and found.node is None
    # Other tests have users whose ids begin like this one.
    first = found.items[0]
    assert (first.id, first.kind, first.followers, first.posts, first.active) == (bob, "user", 1, 1, False)
    assert client.find_sources(f"tag:found-{bob}").items[0].kind == "tag"
    assert len(client.find_sources(limit=1).items) == 1


def test_all_users_are_listed_by_id_and_a_prefix_chooses_some(client: Tidewire, name: Name) -> None:
    beginning = name("listed")
    users = [f"{beginning}-{nth}" for nth in range(7)]
    for user in users[::-1]:
        client.follow(user, name("bob"))
    page = client.list_users(beginning, limit=3)
    assert [user.id for user in page.items] == users[:3] and page.items[0].following == 1
    assert [user.id for user in client.list_users(beginning, cursor=page.next).items] == users[3:]
    assert [user.id for user in client.iter_users(beginning, page_size=2)] == users
    assert client.list_users(f"{beginning}-x").next is None


def test_the_fan_out_of_a_post_says_who_got_it_and_who_reposted_it(client: Tidewire, name: Name) -> None:
    ann, bob, cas = name("ann"), name("bob"), name("cas")
    for reader in (ann, cas):
        client.follow(reader, bob)
    client.feed(ann)
    began = datetime.now(timezone.utc) - timedelta(minutes=1)
    post = client.publish(bob, 1, wait="delivered")
    repost = client.repost(cas, post.id)
    wait_for(lambda: client.fanout(post.id).state == "delivered", "the end of the fan-out")
    fanout = client.fanout(post.id)
    assert (fanout.post, fanout.author, fanout.followers) == (post.id, bob, 2)
    assert (fanout.awake, fanout.asleep, fanout.pushed, fanout.pulled, fanout.already_there) == (1, 1, 1, 0, 0)
    assert fanout.accepted_at > began and (fanout.finished_after_us or 0) >= (fanout.first_delivery_after_us or 0) > 0
    assert [(each.id, each.followers, each.route) for each in fanout.sources] == [(bob, 2, "push")]
    assert [(each.user, each.post, each.hidden) for each in fanout.reposts.items] == [(cas, repost.id, False)]
    with pytest.raises(NotFound):
        client.fanout("77")


def test_slow_requests_and_the_use_of_keys_are_there_for_operators(connect: Connect) -> None:
    with Server("--slow-log", "1us", access=True) as server:
        client = connect(server.url, token=KEY)
        client.feed("ann")

        def slow() -> list[str]:
            return [each.operation for each in client.operations().slow_requests.items]

        # A request counts as slow once its answer was sent.
        wait_for(lambda: "read_feed" in slow(), "a slow request")
        found = client.operations()
        [key] = [each for each in found.keys or [] if each.kind == "server"]
        assert key.name == "backend" and key.requests > 0 and key.last_used is not None
        [read] = [each for each in found.slow_requests.items if each.operation == "read_feed"]
        assert (read.method, read.route, read.status) == ("GET", "/v1/users/{user}/feed", 200)
        assert found.slow_requests.count >= len(found.slow_requests.items) and read.request_id
        assert "tidewire_" in client.metrics()


def test_a_registered_consumer_begins_after_its_position_wherever_that_was_set(client: Tidewire, name: Name) -> None:
    consumer, bob = name("search"), name("bob")
    begun = client.set_change_consumer(consumer)
    assert (begun.name, begun.behind) == (consumer, 0)
    posts = [client.publish(bob, nth).id for nth in range(2)]

    def read(page_size: int = 1000) -> list[PublishedChange]:
        found = client.changes(consumer=consumer, types=["published"], follow=False, page_size=page_size)
        return [change for change in found if isinstance(change, PublishedChange) and change.post.author == bob]

    found = read()
    assert [change.post.id for change in found] == posts
    moved = client.set_change_consumer(consumer, found[0].sequence)
    assert moved.behind >= 1 and moved in client.change_consumers()
    # Answers of one each: the second goes on after the first.
    assert [change.post.id for change in read(1)] == posts[1:]
    client.remove_change_consumer(consumer)
    assert consumer not in [other.name for other in client.change_consumers()]
    with pytest.raises(NotFound):
        read()

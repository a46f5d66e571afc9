"""Calls of programs, by both clients, against the real server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import tidewire
from tidewire import FeedOfUser, NewFollow, NewPost, NotFound, PostCounts, PublishedChange, PublishedPost, RefusedPost, Tidewire, Unfollow

Name = Callable[[str], str]


def test_a_post_is_published_read_edited_hidden_and_deleted(client: Tidewire, name: Name) -> None:
    bob = name("bob")
    time = datetime.now(timezone.utc) - timedelta(hours=1)
    post = client.publish(bob, {"text": "hello"}, tags=["rust"], topic="42", kind="ad", published_at=time, wait="delivered")
    assert (post.author, post.body, post.kind, post.topic) == (bob, {"text": "hello"}, "ad", "42")
    assert (post.published_at, list(post.tags), post.hidden, post.edited_at) == (time, ["rust"], False, None)
    assert client.get_post(post.id) == post

    edited = client.edit_post(post.id, body=None)
    assert edited.body is None and edited.edited_at is not None
    assert client.edit_post(post.id, hidden=True).hidden
    found = client.get_posts(["1", post.id])
    assert ([each.id for each in found.posts], found.missing) == ([post.id], ["1"])

    client.delete_post(post.id)
    client.delete_post(post.id)
    assert client.get_posts([post.id]).missing == [post.id]


def test_all_posts_are_listed_by_id_from_page_to_page(client: Tidewire, name: Name) -> None:
    bob = name("bob")
    shown, hidden, deleted = (client.publish(bob, n) for n in range(3))
    client.edit_post(hidden.id, hidden=True)
    client.delete_post(deleted.id)
    found, sequences, after = {}, [], None
    while True:
        page = client.list_posts(after=after, limit=2)
        assert page.complete and list(page.unreadable) == []
        found.update({post.id: post for post in page.posts})
        sequences.append(page.sequence)
        if page.next is None:
            break
        after = page.next
    ids = [int(id) for id in found]
    assert ids == sorted(ids)
    # The client chooses ids in no order.
    mine = {post.id: post.hidden for post in found.values() if post.author == bob}
    assert mine == {shown.id: False, hidden.id: True}
    # What is accepted since then is in the changes after the smallest sequence.
    later = client.publish(bob, "later")
    published = [
        change.post.id
        for change in client.changes(after=min(sequences), types=["published"], follow=False)
        if isinstance(change, PublishedChange)
    ]
    assert later.id in published


def test_the_same_post_twice_is_published_once(client: Tidewire, name: Name) -> None:
    bob, id = name("bob"), tidewire.new_post_id()
    assert client.publish(bob, 1, id=id) == client.publish(bob, 1, id=id)
    assert [item.post.id for item in client.posts_of(bob).items] == [id]


def test_a_post_is_named_by_the_id_that_another_system_gave_to_it(client: Tidewire, name: Name) -> None:
    bob, external_id = name("bob"), str(uuid.uuid4())
    named = f"ext:{external_id}"
    post = client.publish(bob, 1, external_id=external_id)
    assert (post.external_id, client.get_post(named)) == (external_id, post)
    reply = client.publish(bob, 2, reply_to=named)
    assert reply.reply_to == post.id
    again, other = client.publish_many([NewPost(bob, 1, external_id=external_id), {"author": bob, "body": 3, "external_id": name("post")}])
    assert isinstance(again, PublishedPost) and isinstance(other, PublishedPost)
    assert (again.created, again.post.external_id, other.post.external_id) == (False, external_id, name("post"))
    assert client.posts_of(bob, fields="ids").items[-1].post.external_id == external_id
    repost = client.repost(bob, named, external_id=name("repost"))
    assert (repost.repost_of, repost.external_id) == (post.id, name("repost"))
    assert client.get_posts([named, "ext:none"]).missing == ["ext:none"]
    assert [item.post.id for item in client.replies(named).items] == [reply.id]
    client.delete_post(named)
    with pytest.raises(NotFound):
        client.get_post(named)


def test_replies_come_in_pages_without_those_that_a_reader_mutes(client: Tidewire, name: Name) -> None:
    parent = client.publish(name("bob"), 1).id
    replies = [client.publish(name(author), 2, reply_to=parent).id for author in ("cas", "dan", "eve")]
    newest = replies[::-1]
    client.mute(name("bob"), name("dan"))
    assert [item.post.id for item in client.replies(parent, limit=2).items] == newest[:2]
    assert [item.post.id for item in client.iter_replies(parent, page_size=1)] == newest
    assert [item.post.id for item in client.iter_replies(parent, reader=name("bob"), page_size=1)] == [newest[0], newest[2]]
    client.follow(name("fay"), f"replies:{parent}")
    assert [item.post.id for item in client.feed(name("fay")).items] == newest


def test_reposts_come_in_pages_and_posts_have_counts(client: Tidewire, name: Name) -> None:
    post = client.publish(name("bob"), 1).id
    reply = client.publish(name("cas"), 2, reply_to=post).id
    reposts = [client.repost(name(author), post).id for author in ("cas", "dan", "eve")]
    newest = reposts[::-1]
    client.mute(name("bob"), name("dan"))
    page = client.reposts(post, limit=2)
    assert [(item.user, item.post) for item in page.items] == [(name("eve"), newest[0]), (name("dan"), newest[1])]
    assert page.next == page.items[-1].cursor
    assert [item.post for item in client.iter_reposts(post, page_size=1)] == newest
    assert [item.post for item in client.iter_reposts(post, reader=name("bob"), page_size=1)] == [newest[0], newest[2]]
    counts = PostCounts(1, 3)
    assert client.get_post(post, fields="counts").counts == counts
    assert [each.counts for each in client.get_posts([post, reply], fields="ids,counts").posts] == [counts, PostCounts(0, 0)]
    assert client.posts_of(name("bob"), fields="counts").items[0].post.counts == counts
    assert client.get_post(post).counts is None


def test_posts_of_a_batch_are_answered_each_by_itself(client: Tidewire, name: Name) -> None:
    bob = name("bob")
    as_dict = {"author": bob, "body": 1, "tags": None}
    posts: list[NewPost | Mapping[str, Any]] = [NewPost(bob, 0), as_dict, NewPost(bob, 2), NewPost("tag:rust", "not a user")]
    *good, bad = client.publish_many(posts, wait="delivered")
    published = [each.post.id for each in good if isinstance(each, PublishedPost) and each.created]
    assert [post.body for post in client.get_posts(published).posts] == [0, 1, 2]
    assert isinstance(bad, RefusedPost)
    assert (bad.error.status, bad.error.code) == (422, "not_a_user")


def test_reposts_are_entries_of_the_original(client: Tidewire, name: Name) -> None:
    ann, bob, cas = name("ann"), name("bob"), name("cas")
    client.follow(ann, cas)
    post = client.publish(bob, "original")
    repost = client.repost(cas, post.id, wait="delivered")
    [item] = client.feed(ann).items
    assert (item.post, repost.repost_of) == (post, post.id)
    assert [(each.user, each.post) for each in item.reposts] == [(cas, repost.id)]
    client.delete_post(repost.id)
    assert client.feed(ann).items == []


def test_follows_one_by_one_and_many_at_once(client: Tidewire, name: Name) -> None:
    ann, bob, cas = name("ann"), name("bob"), name("cas")
    assert client.follow(ann, bob, wait="delivered")
    assert not client.follow(ann, bob)
    done = client.follow_many([NewFollow(ann, cas, backfill=5), NewFollow(cas, ann, hidden=True)], unfollows=[Unfollow(ann, bob)])
    assert (done.created, done.existing, done.removed) == (2, 0, 1)
    assert [each.id for each in client.following(ann).items] == [cas]
    assert [each.id for each in client.following(cas, hidden=True).items] == [ann]
    assert [each.id for each in client.followers(cas, limit=1).items] == [ann]
    same = client.follow_many(({"follower": ann, "source": cas} for _ in range(2)), unfollows=[{"follower": cas, "source": ann}])
    assert (same.created, same.existing, same.removed) == (0, 2, 1)
    client.follow(cas, ann, hidden=True)
    user = client.get_user(cas)
    assert (user.id, user.followers, user.following) == (cas, 1, 0)
    client.unfollow(ann, cas, keep=True)
    assert client.following(ann).items == []


def test_iterators_read_all_pages(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    sources = [f"{bob}.{n}" for n in range(7)]
    client.follow_many(NewFollow(ann, source) for source in [*sources, bob])
    client.unfollow(ann, bob)
    assert {each.id for each in client.iter_following(ann, page_size=3)} == set(sources)
    assert [each.id for each in client.iter_followers(sources[0], page_size=1)] == [ann]
    client.publish_many([NewPost(source, source) for source in sources], wait="delivered")
    assert [item.post.body for item in client.iter_feed(ann, page_size=2)] == sources[::-1]
    assert [item.post.author for item in client.iter_feed(ann, page_size=2, fields="ids")] == sources[::-1]
    assert [item.post.body for item in client.iter_posts_of(sources[3], page_size=1)] == [sources[3]]


def test_pages_continue_below_and_poll_above(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    first, second, third = (client.publish(bob, n, wait="delivered") for n in range(3))
    page = client.feed(ann, limit=2)
    assert [item.post for item in page.items] == [third, second]
    assert [item.via for item in page.items] == [[bob], [bob]]
    below = client.feed(ann, before=page.next)
    assert ([item.post for item in below.items], below.next) == ([first], None)
    fourth = client.publish(bob, 4, wait="delivered")
    above = client.feed(ann, after=page.newest)
    assert ([item.post for item in above.items], above.gap) == ([fourth], False)


def test_many_feeds_in_one_request(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    post = client.publish(bob, 1, wait="delivered")
    answers = client.feeds([ann, bob, name("nobody")], limit=5)
    assert all(isinstance(each, FeedOfUser) for each in answers)
    pages = [each for each in answers if isinstance(each, FeedOfUser)]
    assert [page.user for page in pages] == [ann, bob, name("nobody")]
    assert [[item.post for item in page.items] for page in pages] == [[post], [post], []]


def test_lists_have_feeds_of_their_own(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    assert client.add_member(ann, "near", bob)
    assert not client.add_member(ann, "near", bob)
    post = client.publish(bob, 1, wait="delivered")
    assert [item.post for item in client.list_feed(ann, "near").items] == [post]
    assert [item.post for item in client.iter_list_feed(ann, "near")] == [post]
    assert [(each.name, each.members) for each in client.lists(ann).items] == [("near", 1)]
    assert [each.name for each in client.iter_lists(ann)] == ["near"]
    assert [each.id for each in client.members(ann, "near").items] == [bob]
    assert [each.id for each in client.iter_members(ann, "near")] == [bob]
    client.remove_member(ann, "near", bob)
    client.delete_list(ann, "near")
    assert client.lists(ann).items == []


def test_mutes_and_blocks_hide_posts_and_the_explanation_says_so(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    post = client.publish(bob, 1, wait="delivered")
    shown = client.explain(ann, post.id)
    assert shown.shown and shown.route == "push" and [(each.kind, each.source) for each in shown.reasons] == [("follow", bob)]
    assert client.mute(ann, bob)
    assert [each.id for each in client.mutes(ann).items] == [each.id for each in client.iter_mutes(ann)] == [bob]
    muted = client.explain(ann, post.id)
    assert not muted.shown and [(each.kind, each.source) for each in muted.blockers] == [("muted", bob)]
    client.unmute(ann, bob)
    assert client.block(ann, bob)
    assert [each.id for each in client.blocks(ann).items] == [each.id for each in client.iter_blocks(ann)] == [bob]
    client.unblock(ann, bob)
    assert client.following(ann).items == []


def test_rules_are_changed_one_by_one(client: Tidewire, name: Name) -> None:
    ann = name("ann")
    rules = client.rules(ann)
    assert (rules.show_own, rules.replies, rules.reposts, rules.per_source_max, rules.notify) == (True, "followed", True, None, False)
    assert client.change_rules(ann, per_source_max=2, notify=True, replies="all").per_source_max == 2
    changed = client.change_rules(ann, per_source_max=None)
    assert (changed.per_source_max, changed.notify, changed.replies) == (None, True, "all")


def test_the_marker_counts_what_is_unread(client: Tidewire, name: Name) -> None:
    ann, bob = name("ann"), name("bob")
    client.follow(ann, bob)
    client.publish(bob, 1, wait="delivered")
    newest = client.feed(ann).newest
    assert newest is not None
    assert client.set_marker(ann, newest).unread == 0
    client.publish(bob, 2, wait="delivered")
    marker = client.marker(ann)
    assert (marker.unread, marker.capped, marker.complete) == (1, False, True)
    assert marker.cursor is not None and newest.startswith(marker.cursor)


def test_answers_keep_what_the_server_sent(client: Tidewire, name: Name) -> None:
    bob = name("bob")
    post = client.publish(bob, {"text": "\u2028 \x85 ü"}, tags=["rust"])
    page = client.posts_of(bob)
    assert page.raw["items"][0]["post"] == page.items[0].post.raw
    assert page.items[0].post.body == post.body == {"text": "\u2028 \x85 ü"}
    assert page.items[0].post.raw["id"] == post.id

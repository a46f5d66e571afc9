"""Every request of the API: its parameters, and how its response is decoded. `Tidewire` and `AsyncTidewire` have these as methods."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from . import diagnostics as d
from . import models as m
from ._call import Answer, Call, Pages, as_created, as_model, as_nothing, given, json_bytes, path, query
from ._decode import decode, write_time
from ._shapes import Row, rows, texts
from .errors import refusal_of
from .messages import Unfollow

Wait: TypeAlias = Literal["delivered"]
Fields: TypeAlias = Literal["ids", "counts", "ids,counts"]


def new_post_id() -> str:
    """Returns a random id for a post. Among a billion ids, the chance of a collision is 3 %; the second post gets a `Conflict`."""
    return str(secrets.randbelow(2**64 - 1) + 1)


# Posts


def publish(
    author: str,
    body: m.Json,
    *,
    id: str | None = None,
    external_id: str | None = None,
    published_at: datetime | None = None,
    tags: Sequence[str] = (),
    topic: str | None = None,
    repost_of: str | None = None,
    reply_to: str | None = None,
    kind: m.Kind = "post",
    wait: Wait | None = None,
) -> Call[m.Post]:
    """Publishes a post, and returns it.

    Without an `id` of yours the client generates one, so that it can send the post again without a response: it is published once. To
    publish safely across a restart of your own program, give an `id` that you have stored, or as `external_id` the id of the post in your
    database: `ext:` and that id names it from then on. With a user's token the server chooses the id; then a post whose outcome is
    unknown is reported and not sent again, unless the client has `token_post_ids="user"`.

    `wait="delivered"` returns after the post is in the inbox of every active follower.
    """
    post = m.NewPost(author, body, id, published_at, tags, topic, repost_of, reply_to, kind, external_id)
    return _publish(post, wait)


def repost(
    user: str,
    post: str,
    *,
    body: m.Json = None,
    id: str | None = None,
    external_id: str | None = None,
    published_at: datetime | None = None,
    wait: Wait | None = None,
) -> Call[m.Post]:
    """Publishes `user`'s repost of a post, and returns the repost. To withdraw it, delete it."""
    return _publish(m.NewPost(user, body, id, published_at, repost_of=post, external_id=external_id), wait)


def _publish(post: m.NewPost, wait: Wait | None) -> Call[m.Post]:
    fields = _fields(post)
    call = Call("POST", path("posts"), as_model(m.Post), query(wait=wait), json_bytes(fields))
    if fields.keys() & {"id", "external_id"}:
        return call
    return replace(call, body=json_bytes(_identified(fields)), without_id=replace(call, is_repeatable=False))


def _fields(post: m.NewPost) -> dict[str, Any]:
    time = post.published_at
    optional = given(
        id=post.id,
        external_id=post.external_id,
        published_at=None if time is None else write_time(time),
        tags=texts("tags", post.tags) or None,
        topic=post.topic,
        repost_of=post.repost_of,
        reply_to=post.reply_to,
        kind=None if post.kind == "post" else post.kind,
    )
    return {"author": post.author, "body": post.body, **optional}


def _identified(fields: dict[str, Any]) -> dict[str, Any]:
    return fields if fields.keys() & {"id", "external_id"} else {**fields, "id": new_post_id()}


def publish_many(posts: Iterable[m.NewPost | Row], *, wait: Wait | None = None) -> Call[list[m.PublishedPost | m.RefusedPost]]:
    """Publishes up to 1,000 posts in one request, in their order, and returns a result for each, in the same order.

    Each is a `NewPost`, or a dict with its fields. A post without `id` and `external_id` gets an id, so that the request can be sent
    again. Needs a server key.
    """
    fields = [_identified(_fields(post)) for post in rows("posts", posts, m.NewPost)]

    def read(answer: Answer) -> list[m.PublishedPost | m.RefusedPost]:
        return [
            m.RefusedPost(refusal_of(each["problem"], answer.request_id)) if "problem" in each else decode(m.PublishedPost, each)
            for each in json.loads(answer.content)["posts"]
        ]

    return Call("POST", path("posts", "batch"), read, query(wait=wait), json_bytes({"posts": fields}))


def get_post(id: str, *, fields: Fields | None = None) -> Call[m.Post]:
    """Returns a post by its id, or `ext:` and its external id. With `fields="counts"` it has `counts`.

    Raises `NotFound` if it is unknown or deleted.
    """
    return Call("GET", path("posts", id), as_model(m.Post), query(fields=fields))


def get_posts(ids: Iterable[str], *, fields: Fields | None = None) -> Call[m.PostList]:
    """Returns up to 100 posts, in the order of `ids`, and the ids of unknown and deleted posts."""
    return Call("GET", path("posts"), as_model(m.PostList), {"ids": ",".join(texts("ids", ids)), **query(fields=fields)})


def list_posts(*, after: str | None = None, limit: int | None = None) -> Call[m.PostsPage]:
    """Returns a page of all posts by ascending id, including hidden posts and reposts: 100, at most 1,000. Continue with `after=page.next`.

    To build an index of all posts, read all pages, then `changes(after=...)` from the smallest `sequence` of them. Needs a server key.
    """
    return Call("GET", path("posts", "all"), as_model(m.PostsPage), query(after=after, limit=limit))


class _Unset:
    """Marks an omitted argument, because None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()


def edit_post(id: str, *, body: m.Json | _Unset = UNSET, hidden: bool | None = None, wait: Wait | None = None) -> Call[m.Post]:
    """Replaces the body of a post, hides it from all feeds or unhides it, and returns it."""
    changes = given(hidden=hidden)
    if not isinstance(body, _Unset):
        changes["body"] = body
    return Call("PATCH", path("posts", id), as_model(m.Post), query(wait=wait), json_bytes(changes))


def delete_post(id: str, *, wait: Wait | None = None) -> Call[None]:
    """Deletes a post, or undoes a repost. Does nothing if it is deleted already."""
    return Call("DELETE", path("posts", id), as_nothing, query(wait=wait))


# Following


def follow(user: str, source: str, *, hidden: bool = False, backfill: int | None = None, wait: Wait | None = None) -> Call[bool]:
    """Makes `user` follow a user, `tag:NAME`, `topic:NAME` or `replies:POST`. Returns true if the follow is new.

    A `hidden` follow is in no list and no count. `backfill` limits the number of earlier posts that it brings.
    """
    options = given(hidden=hidden or None, backfill=backfill)
    body = json_bytes(options) if options else None
    return Call("PUT", path("users", user, "following", source), as_created, query(wait=wait), body)


def unfollow(user: str, source: str, *, keep: bool = False, wait: Wait | None = None) -> Call[None]:
    """Ends a follow. With `keep`, posts that it brought stay in the feed."""
    parameters = query(keep=keep or None, wait=wait)
    return Call("DELETE", path("users", user, "following", source), as_nothing, parameters)


def follow_many(
    follows: Iterable[m.NewFollow | Row] = (),
    *,
    unfollows: Iterable[Unfollow | Row] = (),
    wait: Wait | None = None,
) -> Call[m.Followed]:
    """Adds up to 10,000 edges, then removes `unfollows`. The request is atomic.

    Each is a `NewFollow`, or an `Unfollow`, or a dict with its fields.
    """
    edges = rows("follows", follows, m.NewFollow)
    added = [given(follower=each.follower, source=each.source, hidden=each.hidden or None, backfill=each.backfill) for each in edges]
    removed = [{"follower": each.follower, "source": each.source} for each in rows("unfollows", unfollows, Unfollow)]
    body = {"follows": added, **({"unfollows": removed} if removed else {})}
    return Call("POST", path("follows"), as_model(m.Followed), query(wait=wait), json_bytes(body))


def get_user(user: str) -> Call[m.User]:
    """Returns the counts of a source; raises `NotFound` if it is unknown."""
    return Call("GET", path("users", user), as_model(m.User))


def erase_user(user: str) -> Call[bool]:
    """Erases a user permanently. Returns true if the erasure is complete; until then, repeat the call."""
    return Call("DELETE", path("users", user), lambda answer: answer.status == 204)


def following(user: str, *, limit: int | None = None, cursor: str | None = None, hidden: bool | None = None) -> Call[m.SourceList]:
    """Returns the sources that a user follows, newest first. `hidden` returns the hidden follows, for operators."""
    parameters = query(limit=limit, cursor=cursor, hidden=hidden)
    return Call("GET", path("users", user, "following"), as_model(m.SourceList), parameters)


def followers(user: str, *, limit: int | None = None, cursor: str | None = None) -> Call[m.SourceList]:
    """Returns the followers of a source, newest first."""
    return _sources(path("users", user, "followers"), limit, cursor)


def iter_following(user: str, *, page_size: int = 100, hidden: bool | None = None) -> Pages[m.Source]:
    """Iterates over all sources that a user follows, newest first."""
    return Pages(following(user, limit=page_size, hidden=hidden), lambda page: list(page.items), "cursor")


def iter_followers(user: str, *, page_size: int = 100) -> Pages[m.Source]:
    """Iterates over all followers of a source, newest first."""
    return Pages(followers(user, limit=page_size), lambda page: list(page.items), "cursor")


def _sources(path: str, limit: int | None, cursor: str | None) -> Call[m.SourceList]:
    return Call("GET", path, as_model(m.SourceList), query(limit=limit, cursor=cursor))


# Feeds


def feed(
    user: str,
    *,
    limit: int | None = None,
    before: str | None = None,
    after: str | None = None,
    fields: Fields | None = None,
    after_sequence: int | None = None,
) -> Call[m.Page]:
    """Returns a page of a reader's feed, newest first.

    `before` is the `next` of the previous page. `after` is the `newest` of an earlier page: returns the entries that arrived since then,
    including late ones; if the page has `gap`, read the feed again.
    In a cluster, the response waits until the log is applied up to `after_sequence`.
    """
    return replace(_page(path("users", user, "feed"), limit, before, after, fields), after_sequence=after_sequence)


def posts_of(
    source: str,
    *,
    limit: int | None = None,
    before: str | None = None,
    after: str | None = None,
    fields: Fields | None = None,
) -> Call[m.Page]:
    """Returns a page of the posts of a source, newest first."""
    return _page(path("users", source, "posts"), limit, before, after, fields)


def replies(
    post: str,
    *,
    reader: str | None = None,
    limit: int | None = None,
    before: str | None = None,
    after: str | None = None,
    fields: Fields | None = None,
) -> Call[m.Page]:
    """Returns a page of the replies to a post, newest first; for a `reader`, without those hidden by mutes and blocks."""
    return _page(path("posts", post, "replies"), limit, before, after, fields, reader=reader)


def reposts(post: str, *, reader: str | None = None, limit: int | None = None, before: str | None = None) -> Call[m.RepostPage]:
    """Returns a page of the reposts of a post, newest first; for a `reader`, without those hidden by mutes and blocks."""
    return Call("GET", path("posts", post, "reposts"), as_model(m.RepostPage), query(reader=reader, limit=limit, before=before))


def list_feed(
    user: str,
    name: str,
    *,
    limit: int | None = None,
    before: str | None = None,
    after: str | None = None,
    fields: Fields | None = None,
) -> Call[m.Page]:
    """Returns a page of the feed of a reader's list."""
    return _page(path("users", user, "lists", name, "feed"), limit, before, after, fields)


def iter_feed(user: str, *, page_size: int = 50, fields: Fields | None = None, take_partial: bool = False) -> Pages[m.Item]:
    """Iterates over a reader's feed, from the newest entry down to the oldest.

    Reads a page with sources that could not be read in time again, at most 3 times, and then raises `PartialPage`, unless `take_partial`.
    """
    return Pages(feed(user, limit=page_size, fields=fields), lambda page: list(page.items), "before", take_partial)


def iter_posts_of(source: str, *, page_size: int = 50, fields: Fields | None = None, take_partial: bool = False) -> Pages[m.Item]:
    """Iterates over the posts of a source, newest first."""
    return Pages(posts_of(source, limit=page_size, fields=fields), lambda page: list(page.items), "before", take_partial)


def iter_replies(
    post: str, *, reader: str | None = None, page_size: int = 50, fields: Fields | None = None, take_partial: bool = False
) -> Pages[m.Item]:
    """Iterates over the replies to a post, newest first."""
    first = replies(post, reader=reader, limit=page_size, fields=fields)
    return Pages(first, lambda page: list(page.items), "before", take_partial)


def iter_reposts(post: str, *, reader: str | None = None, page_size: int = 100) -> Pages[m.ListedRepost]:
    """Iterates over the reposts of a post, newest first."""
    return Pages(reposts(post, reader=reader, limit=page_size), lambda page: list(page.items), "before")


def iter_list_feed(user: str, name: str, *, page_size: int = 50, fields: Fields | None = None, take_partial: bool = False) -> Pages[m.Item]:
    """Iterates over the feed of a reader's list, newest first."""
    return Pages(list_feed(user, name, limit=page_size, fields=fields), lambda page: list(page.items), "before", take_partial)


def _page(
    path: str, limit: int | None, before: str | None, after: str | None, fields: Fields | None, reader: str | None = None
) -> Call[m.Page]:
    parameters = query(limit=limit, before=before, after=after, fields=fields, reader=reader)
    return Call("GET", path, as_model(m.Page), parameters)


def feeds(users: Iterable[str], *, limit: int | None = None, fields: Fields | None = None) -> Call[list[m.FeedOfUser | m.RefusedFeed]]:
    """Returns the newest page or the refusal of each of up to 100 readers in one request, in their order."""

    def read(answer: Answer) -> list[m.FeedOfUser | m.RefusedFeed]:
        return [
            m.RefusedFeed(each["user"], refusal_of(each["problem"], answer.request_id)) if "problem" in each else decode(m.FeedOfUser, each)
            for each in json.loads(answer.content)["feeds"]
        ]

    body = {"users": texts("users", users), **given(limit=limit, fields=fields)}
    return Call("POST", path("feeds"), read, body=json_bytes(body))


def explain(user: str, post: str) -> Call[m.Explanation]:
    """Returns why a post is, or is not, in a reader's feed."""
    return Call("GET", path("users", user, "feed", "explain", post), as_model(m.Explanation))


def verify_feed(user: str) -> Call[m.Verdict]:
    """Compares a reader's inbox with a newly built one."""
    return Call("POST", path("users", user, "feed", "verify"), as_model(m.Verdict))


def rebuild_feed(user: str) -> Call[m.Verdict]:
    """Replaces a reader's inbox with a newly built one."""
    return Call("POST", path("users", user, "feed", "rebuild"), as_model(m.Verdict))


# Lists of a reader


def lists(user: str, *, limit: int | None = None, cursor: str | None = None) -> Call[m.ListOfLists]:
    """Returns a reader's lists."""
    return Call("GET", path("users", user, "lists"), as_model(m.ListOfLists), query(limit=limit, cursor=cursor))


def iter_lists(user: str, *, page_size: int = 100) -> Pages[m.NamedList]:
    """Iterates over all lists of a reader."""
    return Pages(lists(user, limit=page_size), lambda page: list(page.items), "cursor")


def delete_list(user: str, name: str, *, wait: Wait | None = None) -> Call[None]:
    """Deletes a list. Does nothing if it does not exist."""
    return Call("DELETE", path("users", user, "lists", name), as_nothing, query(wait=wait))


def add_member(user: str, name: str, source: str, *, wait: Wait | None = None) -> Call[bool]:
    """Adds a source to a list, which the first member creates. Returns true if the source is new there."""
    return Call("PUT", path("users", user, "lists", name, "members", source), as_created, query(wait=wait))


def remove_member(user: str, name: str, source: str, *, wait: Wait | None = None) -> Call[None]:
    """Removes a source from a list."""
    return Call("DELETE", path("users", user, "lists", name, "members", source), as_nothing, query(wait=wait))


def members(user: str, name: str, *, limit: int | None = None, cursor: str | None = None) -> Call[m.SourceList]:
    """Returns the members of a list, newest first."""
    return _sources(path("users", user, "lists", name, "members"), limit, cursor)


def iter_members(user: str, name: str, *, page_size: int = 100) -> Pages[m.Source]:
    """Iterates over all members of a list, newest first."""
    return Pages(members(user, name, limit=page_size), lambda page: list(page.items), "cursor")


# Mutes, blocks, rules, markers


def mute(user: str, source: str, *, wait: Wait | None = None) -> Call[bool]:
    """Hides all posts of a source from `user`. Returns true if the mute is new."""
    return Call("PUT", path("users", user, "mutes", source), as_created, query(wait=wait))


def unmute(user: str, source: str, *, wait: Wait | None = None) -> Call[None]:
    """Removes a mute."""
    return Call("DELETE", path("users", user, "mutes", source), as_nothing, query(wait=wait))


def mutes(user: str, *, limit: int | None = None, cursor: str | None = None) -> Call[m.SourceList]:
    """Returns the sources that a user has muted, newest first."""
    return _sources(path("users", user, "mutes"), limit, cursor)


def iter_mutes(user: str, *, page_size: int = 100) -> Pages[m.Source]:
    """Iterates over all sources that a user has muted, newest first."""
    return Pages(mutes(user, limit=page_size), lambda page: list(page.items), "cursor")


def block(user: str, source: str, *, wait: Wait | None = None) -> Call[bool]:
    """Blocks a user, removes the edges between the two, and forbids new ones. Returns true if the block is new."""
    return Call("PUT", path("users", user, "blocks", source), as_created, query(wait=wait))


def unblock(user: str, source: str, *, wait: Wait | None = None) -> Call[None]:
    """Removes a block. The edges do not come back."""
    return Call("DELETE", path("users", user, "blocks", source), as_nothing, query(wait=wait))


def blocks(user: str, *, limit: int | None = None, cursor: str | None = None) -> Call[m.SourceList]:
    """Returns the users that a user has blocked, newest first."""
    return _sources(path("users", user, "blocks"), limit, cursor)


def iter_blocks(user: str, *, page_size: int = 100) -> Pages[m.Source]:
    """Iterates over all users that a user has blocked, newest first."""
    return Pages(blocks(user, limit=page_size), lambda page: list(page.items), "cursor")


def rules(user: str) -> Call[m.Rules]:
    """Returns the rules of a reader's feed."""
    return Call("GET", path("users", user, "rules"), as_model(m.Rules))


def change_rules(
    user: str,
    *,
    show_own: bool | None = None,
    replies: m.Replies | None = None,
    reposts: bool | None = None,
    per_source_max: int | _Unset | None = UNSET,
    notify: bool | None = None,
    wait: Wait | None = None,
) -> Call[m.Rules]:
    """Changes the given rules, and returns all rules.

    `per_source_max=None` allows any number of entries of one author on a page. With `notify`, the stream of changes reports the posts that
    the reader misses while asleep.
    """
    patch = given(show_own=show_own, replies=replies, reposts=reposts, notify=notify)
    if not isinstance(per_source_max, _Unset):
        patch["per_source_max"] = per_source_max
    return Call("PATCH", path("users", user, "rules"), as_model(m.Rules), query(wait=wait), json_bytes(patch))


def marker(user: str) -> Call[m.Marker]:
    """Returns the read marker of a reader, and the number of unread entries."""
    return Call("GET", path("users", user, "marker"), as_model(m.Marker))


def set_marker(user: str, cursor: str, *, wait: Wait | None = None) -> Call[m.Marker]:
    """Moves the read marker to a page's `newest` or to an item's `cursor`."""
    body = json_bytes({"cursor": cursor})
    return Call("PUT", path("users", user, "marker"), as_model(m.Marker), query(wait=wait), body)


# Operation


def revoke_tokens(user: str, *, not_before: datetime | None = None) -> Call[m.Revoked]:
    """Refuses the user's tokens issued before now, or before `not_before`, and ends the live connections that use them."""
    body = json_bytes({} if not_before is None else {"not_before": write_time(not_before)})
    # A retry would also refuse tokens that were issued meanwhile.
    is_repeatable = not_before is not None
    return Call("POST", path("users", user, "revoke"), as_model(m.Revoked), body=body, is_repeatable=is_repeatable)


def user_data(user: str) -> Call[m.UserData]:
    """Returns all stored data of a user, in memory; raises `NotFound` if the user is unknown. Needs a server key."""
    return Call("GET", path("users", user, "data"), as_model(m.UserData))


def stats(*, inboxes: Literal["count"] | None = None, node: str | None = None) -> Call[d.Stats]:
    """Returns statistics of the server, or of a node of its cluster.

    `inboxes="count"` also counts all inboxes, which takes a walk over them.
    """
    return Call("GET", path("stats"), as_model(d.Stats), query(inboxes=inboxes, node=node))


def stats_history(*, span: d.Span | None = None, since: str | None = None, node: str | None = None) -> Call[d.History]:
    """Returns samples of statistics: every 5 s of the last hour, or every two minutes of the last day.

    With `since`, the `next` of the previous response, returns only newer samples. If these have `reset`, discard the earlier ones. Needs a
    server key, like the other requests of operators.
    """
    return Call("GET", path("stats", "history"), as_model(d.History), query(span=span, since=since, node=node))


def find_sources(prefix: str = "", *, kind: d.SourceKind | None = None, limit: int | None = None) -> Call[d.FoundSources]:
    """Finds sources by the beginning of their ids: an exact match first, then awake ones, then those with most followers.

    20, at most 50. Without a `prefix`, some awake readers. The server examines all ids, for at most 100 ms: see `complete`.
    """
    return Call("GET", path("sources"), as_model(d.FoundSources), query(prefix=prefix or None, kind=kind, limit=limit))


def list_users(prefix: str = "", *, limit: int | None = None, cursor: str | None = None) -> Call[d.UserList]:
    """Returns a page of all users by ascending id, or of those whose ids begin with `prefix`: 100, at most 1,000. Needs a server key."""
    return Call("GET", path("users"), as_model(d.UserList), query(prefix=prefix or None, limit=limit, cursor=cursor))


def iter_users(prefix: str = "", *, page_size: int = 100) -> Pages[d.FoundSource]:
    """Iterates over all users by ascending id. A user who appears meanwhile may be missing."""
    return Pages(list_users(prefix, limit=page_size), lambda page: list(page.items), "cursor")


def change_consumers() -> Call[list[d.ChangeConsumer]]:
    """Returns the registered consumers of changes, each with the last event that it has processed. Needs a server key."""
    return Call("GET", path("changes", "consumers"), lambda answer: as_model(d.ChangeConsumers)(answer).items)


def set_change_consumer(name: str, sequence: int | None = None) -> Call[d.ChangeConsumer]:
    """Registers a consumer that has processed all changes up to `sequence`, by default up to the current end, or moves it there.

    The server then retains later changes, up to its `--changes-retention-bytes`.
    """
    body = json_bytes(given(sequence=sequence))
    return Call("PUT", path("changes", "consumers", name), as_model(d.ChangeConsumer), body=body)


def remove_change_consumer(name: str) -> Call[None]:
    """Removes a consumer. The server no longer retains changes for it."""
    return Call("DELETE", path("changes", "consumers", name), as_nothing)


def fanout(post: str) -> Call[d.PostFanout]:
    """Returns the fan-out and the reposts of a post; raises `NotFound` if it is unknown."""
    return Call("GET", path("posts", post, "fanout"), as_model(d.PostFanout))


def operations(*, node: str | None = None) -> Call[d.Operations]:
    """Returns the last requests that were slow (`--slow-log` of the server) or refused, and the use of each key."""
    return Call("GET", path("operations"), as_model(d.Operations), query(node=node))


def metrics() -> Call[str]:
    """Returns the metrics in the format of Prometheus. Needs a server key, or a key for metrics."""
    return Call("GET", "/metrics", lambda answer: answer.content.decode())


def cluster(*, digest: bool | None = None, delivered: int | None = None) -> Call[m.Cluster]:
    """Returns the nodes of a cluster; raises `NotFound` without a cluster."""
    return Call("GET", path("cluster"), as_model(m.Cluster), query(digest=digest, delivered=delivered))


def take_snapshot() -> Call[m.Snapshot]:
    """Takes a snapshot now."""
    return Call("POST", path("snapshots"), as_model(m.Snapshot), is_repeatable=False)


def is_ready(*, writes: bool = False) -> Call[bool]:
    """Returns true if the server answers reads, and with `writes` also accepts writes, which it refuses while the disk is full.

    Sends one request: False also means that no server responds.
    """
    parameters = query(**{"for": "writes"}) if writes else query()
    return Call("GET", "/readyz", lambda answer: bool(json.loads(answer.content)["ready"]), parameters, if_failed=False)

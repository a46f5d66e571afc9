"""The responses of a server. Names are those of `/openapi.json`; times are `datetime`s in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ._decode import Model
from .errors import TidewireError

Json: TypeAlias = Any
"""Any value that `json.dumps` accepts."""
Kind: TypeAlias = Literal["post", "user", "ad"]
Replies: TypeAlias = Literal["followed", "all", "none"]


@dataclass(frozen=True)
class PostCounts(Model):
    """The numbers of replies and reposts of a post, without hidden ones."""

    replies: int
    reposts: int


@dataclass(frozen=True)
class Post(Model):
    """A post.

    In a page read with `fields="ids"`, in the response to a batch, and in a missed message, it has only `id`, `external_id`,
    `author` and `published_at`. With `fields="counts"` it also has `counts`.
    """

    id: str
    author: str
    published_at: datetime
    body: Json = None
    kind: Kind = "post"
    tags: Sequence[str] = ()
    topic: str | None = None
    repost_of: str | None = None
    reply_to: str | None = None
    hidden: bool = False
    edited_at: datetime | None = None
    counts: PostCounts | None = None
    external_id: str | None = None


@dataclass(frozen=True)
class NewPost:
    """A post to publish in a batch. Without `id` and `external_id`, the client generates an id, so that sending it again is safe.

    `repost_of` and `reply_to` are ids of posts, or `ext:` and their external ids.
    """

    author: str
    body: Json
    id: str | None = None
    published_at: datetime | None = None
    tags: Sequence[str] = ()
    topic: str | None = None
    repost_of: str | None = None
    reply_to: str | None = None
    kind: Kind = "post"
    external_id: str | None = None


@dataclass(frozen=True)
class PublishedPost(Model):
    """A published post of a batch; `created` is false if it existed already."""

    created: bool
    post: Post


@dataclass(frozen=True)
class RefusedPost:
    """A refused post of a batch."""

    error: TidewireError


@dataclass(frozen=True)
class PostList(Model):
    """Posts by ids; `missing` lists unknown and deleted ones."""

    posts: list[Post]
    missing: list[str]


@dataclass(frozen=True)
class PostsPage(Model):
    """Posts by ascending id. Continue with `after=page.next` until that is None."""

    posts: list[Post]
    next: str | None
    sequence: int
    """The page has all posts that were accepted up to here and are not deleted."""
    complete: bool
    """False if only an archive across a network may have some posts: these are not listed."""
    unreadable: Sequence[str] = ()
    """Posts that are damaged."""


@dataclass(frozen=True)
class Repost(Model):
    """A repost of an entry's post: its author, time and id."""

    user: str
    at: datetime
    post: str


@dataclass(frozen=True)
class ListedRepost(Repost):
    """One of the reposts of a post."""

    cursor: str


@dataclass(frozen=True)
class RepostPage(Model):
    """Some reposts of a post, newest first. Continue with `before=page.next` until that is None."""

    items: list[ListedRepost]
    next: str | None


@dataclass(frozen=True)
class Item(Model):
    """An entry of a feed. `via` are the followed sources that brought it."""

    post: Post
    cursor: str
    reposts: list[Repost]
    via: list[str]


@dataclass(frozen=True)
class Page(Model):
    """Entries of a feed, newest first.

    Continue with `before=page.next` until that is None; poll with `after=page.newest`.
    """

    items: list[Item]
    next: str | None
    newest: str | None
    partial: list[str]
    """Sources that could not be read in time. Their entries appear when the page is read again later."""
    gap: bool = False
    """The server no longer knows the entries since `after`: read the feed again from this page."""
    partial_more: int = 0
    passed_over: int = 0
    unreadable: Sequence[str] = ()


@dataclass(frozen=True)
class FeedOfUser(Page):
    """The page of one of many readers."""

    user: str = ""


@dataclass(frozen=True)
class RefusedFeed:
    """The refusal of the page of one of many readers."""

    user: str
    error: TidewireError


@dataclass(frozen=True)
class RouteCost(Model):
    """The cost of the posts of a source by push and by pull, in microseconds of processor time per hour."""

    push_us_per_hour: float
    pull_us_per_hour: float
    decided_by: str


@dataclass(frozen=True)
class User(Model):
    """A source: a user, a tag, a topic or the replies to a post. `active`: the reader is awake."""

    id: str
    followers: int
    following: int
    posts: int
    celebrity: bool
    active: bool
    last_seen: datetime | None
    cost: RouteCost


@dataclass(frozen=True)
class Source(Model):
    """A source of a list (follows, followers, mutes, blocks or members), and the time since when it is listed."""

    id: str
    since: datetime


@dataclass(frozen=True)
class SourceList(Model):
    """A page of sources; continue with `cursor=page.next` until that is None."""

    items: list[Source]
    next: str | None


@dataclass(frozen=True)
class NamedList(Model):
    """A list of a reader, and its number of members."""

    name: str
    members: int


@dataclass(frozen=True)
class ListOfLists(Model):
    """A page of lists; continue with `cursor=page.next` until that is None."""

    items: list[NamedList]
    next: str | None


@dataclass(frozen=True)
class NewFollow:
    """An edge to add: `follower` follows `source`. `backfill` limits the number of earlier posts that it brings."""

    follower: str
    source: str
    hidden: bool = False
    backfill: int | None = None


@dataclass(frozen=True)
class Followed(Model):
    """The numbers of new, existing and removed edges of a request."""

    created: int
    existing: int
    removed: int = 0


@dataclass(frozen=True)
class Rules(Model):
    """The rules of a reader's feed."""

    show_own: bool
    replies: Replies
    reposts: bool
    per_source_max: int | None
    notify: bool


@dataclass(frozen=True)
class Marker(Model):
    """A read marker. If `complete` is false, counting stopped early: there may be more unread entries, even if `unread` is 0."""

    cursor: str | None
    unread: int
    capped: bool
    complete: bool


@dataclass(frozen=True)
class Reason(Model):
    """A reason for a post in a feed; `kind` determines which fields are set."""

    kind: str
    source: str | None = None
    user: str | None = None
    at: datetime | None = None
    post: str | None = None


@dataclass(frozen=True)
class Blocker(Model):
    """A reason why a post is not shown; `kind` determines which fields are set."""

    kind: str
    source: str | None = None
    post: str | None = None


@dataclass(frozen=True)
class Explanation(Model):
    """Why a post is, or is not, in a feed."""

    shown: bool
    reasons: list[Reason]
    blockers: list[Blocker]
    route: Literal["push", "pull"] | None
    cost: RouteCost | None


@dataclass(frozen=True)
class Verdict(Model):
    """The comparison of an inbox with a newly built one."""

    good: bool
    entries: int
    rebuilt: int
    missing: list[str]
    extra: list[str]
    stale: int
    under_way: int
    floor: str | None


@dataclass(frozen=True)
class Revoked(Model):
    """Tokens of this user issued before this time are refused."""

    user: str
    not_before: datetime


@dataclass(frozen=True)
class KeptPosts(Model):
    """Posts of a source that stay in a feed after an unfollow, by their times of publication; `published_from` is None without a bound."""

    source: str
    since: datetime
    hidden: bool
    published_from: datetime | None
    published_until: datetime


@dataclass(frozen=True)
class ListWithMembers(Model):
    """A list of a reader with all its members, the newest first."""

    name: str
    members: list[Source]


@dataclass(frozen=True)
class UserData(Model):
    """All stored data of a user. `posts` includes hidden ones; `unreadable` lists those that the archive cannot read."""

    user: str
    last_seen: datetime | None
    tokens_not_before: datetime | None
    rules: Rules
    marker: str | None
    kept: list[KeptPosts]
    following: list[Source]
    hidden_following: list[Source]
    followers: list[Source]
    mutes: list[Source]
    blocks: list[Source]
    lists: list[ListWithMembers]
    posts: list[Post]
    unreadable: list[str]


@dataclass(frozen=True)
class Snapshot(Model):
    """A snapshot file of the server."""

    file: str
    sequence: int
    bytes: int
    taken_at: datetime


@dataclass(frozen=True)
class Node(Model):
    """A node of a cluster, and the partitions of users that it owns."""

    name: str
    address: str
    partitions: list[int]
    heard_ms: int | None = None
    """Milliseconds since its last heartbeat; None before the first one."""


@dataclass(frozen=True)
class GoneNode(Model):
    """A node that left the cluster in the last hour."""

    name: str
    address: str
    gone_ms: int
    """Milliseconds since the responding node noticed that it left."""


@dataclass(frozen=True)
class World(Model):
    """The digest of a node's state after an event."""

    sequence: int
    digest: str


@dataclass(frozen=True)
class Cluster(Model):
    """The nodes of a cluster, as the responding node sees them."""

    node: str
    nodes: list[Node]
    partitions: int
    sequencer: str | None
    epoch: int
    applied: int
    gone: list[GoneNode]
    """The last one first."""
    world: World | None = None
    session_ms: int | None = None
    """Milliseconds after which a silent node counts as dead."""
    beat_ms: int | None = None
    """Milliseconds between two heartbeats of a node."""

"""What a server answers. Names are those of `/openapi.json`; times are `datetime`s in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ._decode import Model
from .errors import TidewireError

Json: TypeAlias = Any
"""Whatever `json.dumps` takes."""
Kind: TypeAlias = Literal["post", "user", "ad"]
Replies: TypeAlias = Literal["followed", "all", "none"]


@dataclass(frozen=True)
class PostCounts(Model):
    """How many replies and reposts a post has; hidden ones are not counted."""

    replies: int
    reposts: int


@dataclass(frozen=True)
class Post(Model):
    """A post.

    In a page that was read with `fields="ids"`, in the answer to a batch, and of what a reader missed, it has only `id`, `external_id`,
    `author` and `published_at`. With `fields="counts"` it has `counts` too.
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
    """A post to publish in a batch. Without an `id` and an `external_id` it gets an id before it is sent, so that sending it again is safe.

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
    """A post of a batch that was published; not `created` if it was there already."""

    created: bool
    post: Post


@dataclass(frozen=True)
class RefusedPost:
    """A post of a batch that was refused."""

    error: TidewireError


@dataclass(frozen=True)
class PostList(Model):
    """Posts by ids; `missing` are unknown or deleted."""

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
    """False if there may be posts that only an archive across a network has: they are not listed."""
    unreadable: Sequence[str] = ()
    """Posts that are damaged."""


@dataclass(frozen=True)
class Repost(Model):
    """Who reposted an entry's post, and by which post."""

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
    """Sources that could not be read in time: what is missing of them is there when the page is read again later."""
    gap: bool = False
    """What came in since `after` is not known any more: read the feed again from this page."""
    partial_more: int = 0
    passed_over: int = 0
    unreadable: Sequence[str] = ()


@dataclass(frozen=True)
class FeedOfUser(Page):
    """The page of one of many readers."""

    user: str = ""


@dataclass(frozen=True)
class RefusedFeed:
    """One of many readers, whose page was refused."""

    user: str
    error: TidewireError


@dataclass(frozen=True)
class RouteCost(Model):
    """What the posts of a source cost by push and by pull, in microseconds of processor time an hour."""

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
    """Who is followed, follows, is muted, blocked or a member, and since when."""

    id: str
    since: datetime


@dataclass(frozen=True)
class SourceList(Model):
    """A page of sources; continue with `cursor=page.next` until that is None."""

    items: list[Source]
    next: str | None


@dataclass(frozen=True)
class NamedList(Model):
    """A list of a reader, and how many members it has."""

    name: str
    members: int


@dataclass(frozen=True)
class ListOfLists(Model):
    """A page of lists; continue with `cursor=page.next` until that is None."""

    items: list[NamedList]
    next: str | None


@dataclass(frozen=True)
class NewFollow:
    """An edge to add: `follower` follows `source`. `backfill` limits how many earlier posts come with it."""

    follower: str
    source: str
    hidden: bool = False
    backfill: int | None = None


@dataclass(frozen=True)
class Followed(Model):
    """How many edges of a request were new, were there already, and were removed."""

    created: int
    existing: int
    removed: int = 0


@dataclass(frozen=True)
class Rules(Model):
    """What a reader's feed shows."""

    show_own: bool
    replies: Replies
    reposts: bool
    per_source_max: int | None
    notify: bool


@dataclass(frozen=True)
class Marker(Model):
    """A read marker. With `complete` false counting stopped early: there may be more, even if `unread` is 0."""

    cursor: str | None
    unread: int
    capped: bool
    complete: bool


@dataclass(frozen=True)
class Reason(Model):
    """What brings a post into a feed; `kind` says which fields are set."""

    kind: str
    source: str | None = None
    user: str | None = None
    at: datetime | None = None
    post: str | None = None


@dataclass(frozen=True)
class Blocker(Model):
    """Why a post is not shown; `kind` says which fields are set."""

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
    """An inbox beside one that was newly built."""

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
    """All that is stored about a user. `posts` has hidden ones too; `unreadable` those that the archive cannot read."""

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
    """Milliseconds since its last beat; None if none was heard yet."""


@dataclass(frozen=True)
class GoneNode(Model):
    """A node that was a member of the cluster in the last hour and is none now."""

    name: str
    address: str
    gone_ms: int
    """Milliseconds since it was seen to go."""


@dataclass(frozen=True)
class World(Model):
    """The digest of a node's state after an event."""

    sequence: int
    digest: str


@dataclass(frozen=True)
class Cluster(Model):
    """The nodes of a cluster, as one of them sees it."""

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
    """Milliseconds between two beats of a node."""

"""The messages of streams: the changes of a server, and the live messages of a reader's feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

from ._decode import Model, decode
from .models import Item, Json, Post, Rules


@dataclass(frozen=True)
class Change(Model):
    """A change that the server accepted. Store its `place` after you have processed it: it is the next `after`."""

    sequence: int
    type: ClassVar[str] = "?"

    @property
    def place(self) -> str:
        """The place where the stream continues: its `sequence`, and between two readers who missed a post also the reader."""
        return str(self.sequence)


@dataclass(frozen=True)
class PublishedChange(Change):
    """A post was published. It has the content of that time."""

    post: Post
    earlier_reposts: list[str] = field(default_factory=list)
    """The posts that named this repost before it existed, and now repeat its original."""
    type: ClassVar[str] = "published"


@dataclass(frozen=True)
class EditedChange(Change):
    """A post was edited, hidden or unhidden. `body` and `hidden` have the new values; `has_body` is also true for a null body."""

    id: str
    at: datetime
    body: Json = None
    hidden: bool | None = None
    type: ClassVar[str] = "edited"

    @property
    def has_body(self) -> bool:
        """True if the body changed."""
        return "body" in self.raw


@dataclass(frozen=True)
class DeletedChange(Change):
    """A post was deleted."""

    id: str
    repost_of: str | None = None
    type: ClassVar[str] = "deleted"


@dataclass(frozen=True)
class Follow(Model):
    """A new edge."""

    follower: str
    source: str
    since: datetime
    hidden: bool = False


@dataclass(frozen=True)
class FollowedChange(Change):
    """Edges were added, all of one request."""

    follows: list[Follow]
    type: ClassVar[str] = "followed"


@dataclass(frozen=True)
class UnfollowedChange(Change):
    """An edge was removed; with `keep` its posts stay in the feed."""

    follower: str
    source: str
    keep: bool = False
    type: ClassVar[str] = "unfollowed"


@dataclass(frozen=True)
class Unfollow(Model):
    """A removed edge."""

    follower: str
    source: str


@dataclass(frozen=True)
class FollowsChange(Change):
    """One request added the edges `follows`, and then removed the edges `unfollows`."""

    follows: list[Follow]
    unfollows: list[Unfollow]
    type: ClassVar[str] = "follows_changed"


@dataclass(frozen=True)
class _OfSource(Change):
    user: str
    source: str


@dataclass(frozen=True)
class MutedChange(_OfSource):
    """A source was muted."""

    type: ClassVar[str] = "muted"


@dataclass(frozen=True)
class UnmutedChange(_OfSource):
    """A mute was removed."""

    type: ClassVar[str] = "unmuted"


@dataclass(frozen=True)
class BlockedChange(_OfSource):
    """A user was blocked, which removes the edges between the two."""

    type: ClassVar[str] = "blocked"


@dataclass(frozen=True)
class UnblockedChange(_OfSource):
    """A block was removed."""

    type: ClassVar[str] = "unblocked"


@dataclass(frozen=True)
class RulesChange(Change):
    """A reader's rules changed; `rules` are all of them."""

    user: str
    rules: Rules
    type: ClassVar[str] = "rules_changed"


@dataclass(frozen=True)
class MarkedChange(Change):
    """A read marker was moved."""

    user: str
    cursor: str
    type: ClassVar[str] = "marked"


@dataclass(frozen=True)
class _OfMember(Change):
    user: str
    list: str
    source: str


@dataclass(frozen=True)
class MemberAddedChange(_OfMember):
    """A list has a new member."""

    type: ClassVar[str] = "member_added"


@dataclass(frozen=True)
class MemberRemovedChange(_OfMember):
    """A list lost a member."""

    type: ClassVar[str] = "member_removed"


@dataclass(frozen=True)
class ListDeletedChange(Change):
    """A list was deleted."""

    user: str
    list: str
    type: ClassVar[str] = "list_deleted"


@dataclass(frozen=True)
class TokensRevokedChange(Change):
    """Tokens of a user issued before this time are refused."""

    user: str
    not_before: datetime
    type: ClassVar[str] = "tokens_revoked"


@dataclass(frozen=True)
class ErasedChange(Change):
    """A user is erased: delete all data of the user, including posts."""

    user: str
    type: ClassVar[str] = "erased"


@dataclass(frozen=True)
class MissedMessage(Change):
    """A sleeping reader who opted in has not seen this post. It may come twice: push under a key of reader and post.

    The post has only its ids, `author` and `published_at`; read it with `get_post` if the push shows it.
    """

    reader: str
    post: Post
    via: list[str]
    reason: str
    type: ClassVar[str] = "missed"

    @property
    def place(self) -> str:
        """The place between this reader and the next one of the post."""
        return f"{self.sequence}-{self.reader}"


@dataclass(frozen=True)
class ReachedMessage(Change):
    """Not an event: everything up to its `place` was sent, or omitted because of `types`.

    With a `reader`, this place is between two readers who missed the following post. With `more`, the response continues.
    """

    reader: str | None = None
    more: bool = False
    type: ClassVar[str] = "reached"

    @property
    def place(self) -> str:
        """A sequence, or a sequence and the reader up to whom the next post was processed."""
        return str(self.sequence) if self.reader is None else f"{self.sequence}-{self.reader}"


@dataclass(frozen=True)
class UnknownChange(Change):
    """A type that this version of the package does not know; `raw` has it."""


ChangeType: TypeAlias = Literal[
    "published",
    "edited",
    "deleted",
    "followed",
    "unfollowed",
    "follows_changed",
    "muted",
    "unmuted",
    "blocked",
    "unblocked",
    "rules_changed",
    "marked",
    "member_added",
    "member_removed",
    "list_deleted",
    "tokens_revoked",
    "erased",
    "missed",
]


@dataclass(frozen=True)
class LiveMessage(Model):
    """A message about a reader's feed."""

    seq: int
    type: ClassVar[str] = "?"


@dataclass(frozen=True)
class HelloMessage(LiveMessage):
    """A connection begins. Unless it is `recovered`, messages may be missing: read the feed again."""

    epoch: str
    recovered: bool
    marker: str | None = None
    after_sequence: int | None = None
    """In a cluster: read pages with this, `feed(user, after_sequence=…)`, because another node may not have applied it yet."""
    type: ClassVar[str] = "hello"


@dataclass(frozen=True)
class PostMessage(LiveMessage):
    """The feed has this entry, in place of any other of the same post."""

    item: Item
    type: ClassVar[str] = "post"


@dataclass(frozen=True)
class RemoveMessage(LiveMessage):
    """The feed has no entry of the post with this id."""

    post: str
    type: ClassVar[str] = "remove"


@dataclass(frozen=True)
class UpdateMessage(LiveMessage):
    """The post of an entry after an edit; its place is the same."""

    post: Post
    type: ClassVar[str] = "update"


@dataclass(frozen=True)
class StaleMessage(LiveMessage):
    """Read the feed again below this cursor; with None, all of it."""

    below: str | None
    type: ClassVar[str] = "stale"


@dataclass(frozen=True)
class MarkerMessage(LiveMessage):
    """The read marker has moved to this cursor, on any device."""

    cursor: str
    type: ClassVar[str] = "marker"


@dataclass(frozen=True)
class UnreadMessage(LiveMessage):
    """The number of unread entries; only with `unread=True`."""

    unread: int
    capped: bool
    complete: bool
    type: ClassVar[str] = "unread"


@dataclass(frozen=True)
class BeatMessage(LiveMessage):
    """A heartbeat. Streams consume it, and do not yield it."""

    type: ClassVar[str] = "beat"


@dataclass(frozen=True)
class UnknownMessage(LiveMessage):
    """A type that this version of the package does not know; `raw` has it."""


_CHANGES: tuple[type[Change], ...] = (
    PublishedChange,
    EditedChange,
    DeletedChange,
    FollowedChange,
    UnfollowedChange,
    FollowsChange,
    MutedChange,
    UnmutedChange,
    BlockedChange,
    UnblockedChange,
    RulesChange,
    MarkedChange,
    MemberAddedChange,
    MemberRemovedChange,
    ListDeletedChange,
    TokensRevokedChange,
    ErasedChange,
    MissedMessage,
    ReachedMessage,
)
_LIVE: tuple[type[LiveMessage], ...] = (
    HelloMessage,
    PostMessage,
    RemoveMessage,
    UpdateMessage,
    StaleMessage,
    MarkerMessage,
    UnreadMessage,
    BeatMessage,
)
_CHANGE_BY_TYPE = {each.type: each for each in _CHANGES}
_LIVE_BY_TYPE = {each.type: each for each in _LIVE}


def change_of(data: Mapping[str, Any]) -> Change:
    """Returns a line of the stream of changes as an object."""
    return decode(_CHANGE_BY_TYPE.get(data["type"], UnknownChange), data)


def live_message_of(data: Mapping[str, Any]) -> LiveMessage:
    """Returns a live message as an object."""
    return decode(_LIVE_BY_TYPE.get(data["type"], UnknownMessage), data)

"""What a server answers to operators about itself: figures, history, found sources, the fan-out of a post, requests and keys.

Names are those of `/openapi.json`. In a cluster each answer is about one node, by its name in `node`; without a cluster that is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ._decode import Model
from .models import Snapshot

SourceKind: TypeAlias = Literal["user", "tag", "topic", "replies"]
Span: TypeAlias = Literal["hour", "day"]


@dataclass(frozen=True)
class Queue(Model):
    """How full a queue is."""

    depth: int
    limit: int


@dataclass(frozen=True)
class Admission(Model):
    """Requests of one class: how many are under way, may be, and were refused."""

    under_way: int
    limit: int
    refused: int


@dataclass(frozen=True)
class FanoutLatency(Model):
    """How long posts took to the last inbox, of authors with so many `followers`."""

    count: int
    p50_us: int
    p99_us: int
    max_us: int
    followers: str = ""


@dataclass(frozen=True)
class BackupRun(Model):
    """A run of backups that has ended."""

    started_at: datetime
    took_ms: int
    sent_bytes: int
    error: str | None
    """Why it failed; None if it is complete."""


@dataclass(frozen=True)
class Backups(Model):
    """The backups that a server makes."""

    interval_seconds: int
    age_seconds: int
    """The age of the last complete run, or of the start of backups if there was none."""
    count: int
    stored_bytes: int
    sent_bytes: int
    """Since the start."""
    restorable_from: datetime | None
    """From this time on every event can be restored, up to the next."""
    restorable_to: datetime | None
    failures: int
    failing: bool
    """Whether the last run failed."""
    runs: list[BackupRun] = field(default_factory=list)
    """The last runs since the start of the server, newest first."""


@dataclass(frozen=True)
class Stats(Model):
    """Figures of a server; `raw` has all of them."""

    users: int
    active: int
    edges: int
    posts: int
    published: int
    deliveries: int
    pages: int
    partial_pages: int
    wakes: int
    sleeps: int
    shed: int
    uptime_seconds: int
    queues: dict[str, Queue]
    admission: dict[str, Admission]
    fanout_latency: list[FanoutLatency]
    live: dict[str, int]
    memory: dict[str, int | None]
    journal: dict[str, int] | None
    snapshots: list[Snapshot]
    recovery: Mapping[str, Any] | None
    writes_refused: str | None = None
    """The code with which all writes are refused, such as `disk_full`."""
    disk_free_bytes: int | None = None
    """Bytes that the disk of the data directory has left."""
    stored_bytes: dict[str, int] | None = None
    """Bytes of the files in the data directory: `journal`, `changes` (kept for consumers), `snapshots`, `archive` and `other`."""
    backups: Backups | None = None
    """None without backups."""
    version: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class RequestHistory(Model):
    """Requests for each second, when they were answered: reads and writes of what users have, connections that stay open, and others."""

    reads: list[float]
    writes: list[float]
    live: list[float]
    other: list[float]


@dataclass(frozen=True)
class QueueHistory(Model):
    """How full a queue was at the end of each sample."""

    depth: list[int]
    limit: int


@dataclass(frozen=True)
class MemoryHistory(Model):
    """Bytes at the end of each sample. `resident` is None where the system does not say."""

    inboxes: list[int]
    posts: list[int]
    reposts: list[int]
    resident: list[int | None]
    sources: list[int]


@dataclass(frozen=True)
class History(Model):
    """Figures in columns of equal length, the oldest sample first.

    Rates and percentiles are those of the time of the sample; a percentile of nothing is None. Counts are those at its end.
    """

    at_seconds: list[float]
    """When each sample ended, in seconds since 1970."""
    interval_seconds: float
    """The time from one sample to the next."""
    samples_max: int
    """How many samples the server keeps."""
    next: str
    """The `since` by which the next answer has only newer samples."""
    reset: bool
    """Whether these are all samples there are: what earlier answers had does not count any more."""
    posts_per_second: list[float]
    pages_per_second: list[float]
    deliveries_per_second: list[float]
    wakes_per_second: list[float]
    live_messages_per_second: list[float]
    requests_per_second: RequestHistory
    refusals_per_second: dict[str, list[float]]
    """By the code of the refusal. A code of which there were none is not there."""
    page_p50_us: list[float | None]
    page_p99_us: list[float | None]
    """From the request of a home feed to the page that is built."""
    publish_p50_us: list[float | None]
    publish_p99_us: list[float | None]
    """From the head of the request to publish a post to the head of the response."""
    fanout_p50_us: list[float | None]
    fanout_p99_us: list[float | None]
    """From the acceptance of a post until all inboxes have it."""
    active: list[int]
    connections: list[int]
    live_connections: list[int]
    queues: dict[str, QueueHistory]
    memory_bytes: MemoryHistory
    node: str | None


@dataclass(frozen=True)
class FoundSource(Model):
    """A source. `active`: the reader is awake. `celebrity`: its posts are pulled, not pushed."""

    id: str
    kind: SourceKind
    active: bool
    celebrity: bool
    followers: int
    following: int
    posts: int
    last_seen: datetime | None


@dataclass(frozen=True)
class FoundSources(Model):
    """What a search has found. Unless it is `complete`, there was no time to examine more ids than `examined`."""

    items: list[FoundSource]
    complete: bool
    examined: int
    node: str | None


@dataclass(frozen=True)
class UserList(Model):
    """A page of users; continue with `cursor=page.next` until that is None."""

    items: list[FoundSource]
    next: str | None


@dataclass(frozen=True)
class ChangeConsumer(Model):
    """A registered consumer of changes: the last event that it has processed, and the number of records after that."""

    name: str
    sequence: int
    behind: int


@dataclass(frozen=True)
class ChangeConsumers(Model):
    """All registered consumers of changes, by name."""

    items: list[ChangeConsumer]


@dataclass(frozen=True)
class FanoutSource(Model):
    """A source of a post, with its followers when the post was accepted; `push`: the post is put into their inboxes."""

    id: str
    followers: int
    route: Literal["push", "pull"]
    decided_by: Literal["setting", "followers", "cost"]


@dataclass(frozen=True)
class Reposter(Model):
    """Who reposted a post, by which post."""

    user: str
    post: str
    at: datetime
    hidden: bool


@dataclass(frozen=True)
class Reposters(Model):
    """The newest 50 reposts, and how many there are. Unless it is `complete`, `count` has only those that were examined."""

    items: list[Reposter]
    count: int
    complete: bool


@dataclass(frozen=True)
class PostFanout(Model):
    """How a post reached its readers. Figures are None once the post is `gone` from the last 1,024, and times where nothing happened.

    The four counts of inboxes are None, too, until the post is `delivered` or `pulled`.
    """

    post: str
    author: str
    accepted_at: datetime
    state: Literal["queued", "delivering", "delivered", "pulled", "gone"]
    sources: list[FanoutSource]
    followers: int | None
    pulled: int | None
    """Followers of sources that do not push."""
    awake: int | None
    """Followers of sources that push who had an inbox."""
    asleep: int | None
    """The others of them, whose inboxes are filled when they read. In a cluster they may be awake on another node."""
    pushed: int | None
    """Inboxes that got the post."""
    already_there: int | None
    """How often an inbox had the post from another of its sources, or was full of newer ones."""
    started_after_us: int | None
    """Microseconds after the post was queued for delivery, as the next two."""
    first_delivery_after_us: int | None
    finished_after_us: int | None
    reposts: Reposters
    node: str | None


@dataclass(frozen=True)
class SlowRequest(Model):
    """A request that took long, in milliseconds. `status` and `request_id` are None if the client was gone before the answer."""

    at: datetime
    took_ms: int
    operation: str
    method: str
    route: str
    status: int | None
    request_id: str | None


@dataclass(frozen=True)
class SlowRequests(Model):
    """The last 100 requests that took at least `threshold_ms`, newest first, and how many there were since the start."""

    threshold_ms: int
    count: int
    items: list[SlowRequest]


@dataclass(frozen=True)
class RefusedRequest(Model):
    """A request that was refused. `operation`, `method` and `route` are None if there is no such operation."""

    at: datetime
    operation: str | None
    method: str | None
    route: str | None
    code: str
    status: int
    request_id: str


@dataclass(frozen=True)
class RefusedRequests(Model):
    """The last 100 requests that were refused, newest first, and how many there were since the start."""

    count: int
    items: list[RefusedRequest]


@dataclass(frozen=True)
class KeyUse(Model):
    """How often a server key, or the tokens that a key signed, were used since the start. The key itself is in no answer."""

    kind: Literal["server", "token"]
    name: str | None
    scope: str | None
    requests: int
    last_used: datetime | None


@dataclass(frozen=True)
class Operations(Model):
    """Slow and refused requests, and the use of keys; `keys` is None without access control."""

    slow_requests: SlowRequests
    refused_requests: RefusedRequests
    keys: list[KeyUse] | None
    node: str | None

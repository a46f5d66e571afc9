"""The responses of a server to operators: statistics, history, found sources, the fan-out of a post, requests and keys.

Names are those of `/openapi.json`. In a cluster each response is about one node, named by `node`; without a cluster that is None.
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
    """The depth and the limit of a queue."""

    depth: int
    limit: int


@dataclass(frozen=True)
class Admission(Model):
    """Requests of one class: the numbers in progress, allowed, and refused."""

    under_way: int
    limit: int
    refused: int


@dataclass(frozen=True)
class FanoutLatency(Model):
    """The time of posts to the last inbox, by the number of `followers` of the author."""

    count: int
    p50_us: int
    p99_us: int
    max_us: int
    followers: str = ""


@dataclass(frozen=True)
class BackupRun(Model):
    """A finished run of backups."""

    started_at: datetime
    took_ms: int
    sent_bytes: int
    error: str | None
    """The reason of a failure; None if the run is complete."""


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
    """Every event from this time until `restorable_to` can be restored."""
    restorable_to: datetime | None
    failures: int
    failing: bool
    """True if the last run failed."""
    runs: list[BackupRun] = field(default_factory=list)
    """The last runs since the start of the server, newest first."""


@dataclass(frozen=True)
class Stats(Model):
    """Statistics of a server; `raw` has all of them."""

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
    """Free bytes on the disk of the data directory."""
    stored_bytes: dict[str, int] | None = None
    """Bytes of the files in the data directory: `journal`, `changes` (retained for consumers), `snapshots`, `archive` and `other`."""
    backups: Backups | None = None
    """None without backups."""
    version: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class RequestHistory(Model):
    """Answered requests per second: reads and writes of the data of users, connections that stay open, and others."""

    reads: list[float]
    writes: list[float]
    live: list[float]
    other: list[float]


@dataclass(frozen=True)
class QueueHistory(Model):
    """The depth of a queue at the end of each sample."""

    depth: list[int]
    limit: int


@dataclass(frozen=True)
class MemoryHistory(Model):
    """Bytes at the end of each sample. `resident` is None if the system does not report it."""

    inboxes: list[int]
    posts: list[int]
    reposts: list[int]
    resident: list[int | None]
    sources: list[int]


@dataclass(frozen=True)
class History(Model):
    """Statistics in columns of equal length, the oldest sample first.

    Rates and percentiles cover the time of the sample; a percentile without values is None. Counts are those at its end.
    """

    at_seconds: list[float]
    """The end of each sample, in seconds since 1970."""
    interval_seconds: float
    """The time from one sample to the next."""
    samples_max: int
    """The number of samples that the server retains."""
    next: str
    """The `since` for a response with only newer samples."""
    reset: bool
    """True if these are all samples: discard the samples of earlier responses."""
    posts_per_second: list[float]
    pages_per_second: list[float]
    deliveries_per_second: list[float]
    wakes_per_second: list[float]
    live_messages_per_second: list[float]
    requests_per_second: RequestHistory
    refusals_per_second: dict[str, list[float]]
    """By the code of the refusal, without codes that did not occur."""
    page_p50_us: list[float | None]
    page_p99_us: list[float | None]
    """From the request of a home feed to the built page."""
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
    """The result of a search. Unless it is `complete`, there was only time to examine `examined` ids."""

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
    """A source of a post, with its followers when the post was accepted; `push`: the post is written into their inboxes."""

    id: str
    followers: int
    route: Literal["push", "pull"]
    decided_by: Literal["setting", "followers", "cost"]


@dataclass(frozen=True)
class Reposter(Model):
    """A repost of a post: its author, id and time."""

    user: str
    post: str
    at: datetime
    hidden: bool


@dataclass(frozen=True)
class Reposters(Model):
    """The newest 50 reposts, and their number. Unless it is `complete`, `count` covers only the examined ones."""

    items: list[Reposter]
    count: int
    complete: bool


@dataclass(frozen=True)
class PostFanout(Model):
    """The fan-out of a post. Figures are None after the post is `gone` from the last 1,024; times are None for steps that did not happen.

    The four counts of inboxes are also None until the post is `delivered` or `pulled`.
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
    """Followers with an inbox of sources that push."""
    asleep: int | None
    """The other followers of these sources, whose inboxes are filled when they read. In a cluster they may be awake on another node."""
    pushed: int | None
    """Inboxes that got the post."""
    already_there: int | None
    """Deliveries to inboxes that had the post from another of its sources, or were full of newer posts."""
    started_after_us: int | None
    """Microseconds after the post was queued for delivery, like the next two."""
    first_delivery_after_us: int | None
    finished_after_us: int | None
    reposts: Reposters
    node: str | None


@dataclass(frozen=True)
class SlowRequest(Model):
    """A slow request. `status` and `request_id` are None if the client disconnected before the response."""

    at: datetime
    took_ms: int
    operation: str
    method: str
    route: str
    status: int | None
    request_id: str | None


@dataclass(frozen=True)
class SlowRequests(Model):
    """The last 100 requests that took at least `threshold_ms`, newest first, and their number since the start."""

    threshold_ms: int
    count: int
    items: list[SlowRequest]


@dataclass(frozen=True)
class RefusedRequest(Model):
    """A refused request. `operation`, `method` and `route` are None if the operation does not exist."""

    at: datetime
    operation: str | None
    method: str | None
    route: str | None
    code: str
    status: int
    request_id: str


@dataclass(frozen=True)
class RefusedRequests(Model):
    """The last 100 refused requests, newest first, and their number since the start."""

    count: int
    items: list[RefusedRequest]


@dataclass(frozen=True)
class KeyUse(Model):
    """The use of a server key, or of the tokens that a key signed, since the start. Responses never contain the key itself."""

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

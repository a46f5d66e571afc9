// Built from /openapi.json by scripts/types.mjs: not to be edited.

/** Any JSON value. */
export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** The codes of refusals: stable, programs branch on them. Later servers may have others. */
export type ProblemCode =
  | 'archive_failed'
  | 'archive_unavailable'
  | 'being_erased'
  | 'blocked'
  | 'body_timeout'
  | 'body_too_large'
  | 'disk_full'
  | 'duplicate_field'
  | 'following_limit'
  | 'forbidden'
  | 'foreign_page'
  | 'gone'
  | 'in_cluster'
  | 'internal'
  | 'invalid_body'
  | 'invalid_field'
  | 'invalid_header'
  | 'invalid_hop'
  | 'invalid_json'
  | 'invalid_parameter'
  | 'invalid_path'
  | 'invalid_token'
  | 'invalid_upgrade'
  | 'joining'
  | 'journal_failed'
  | 'leaving'
  | 'log_unavailable'
  | 'misfit'
  | 'missing_field'
  | 'missing_parameter'
  | 'no_cluster'
  | 'no_data_directory'
  | 'node_unavailable'
  | 'not_a_node'
  | 'not_a_user'
  | 'not_applied_yet'
  | 'out_of_files'
  | 'outcome_unknown'
  | 'overloaded'
  | 'owner_unavailable'
  | 'post_deleted'
  | 'post_id_taken'
  | 'published_in_future'
  | 'quarantined'
  | 'rate_limited'
  | 'read_only'
  | 'reader_crashed'
  | 'recovering'
  | 'self_block'
  | 'self_follow'
  | 'self_mute'
  | 'sequence_in_future'
  | 'sequencer_unavailable'
  | 'shutting_down'
  | 'snapshot_failed'
  | 'store_full'
  | 'token_expired'
  | 'token_issued_in_future'
  | 'token_lifetime_too_long'
  | 'token_not_yet_valid'
  | 'token_revoked'
  | 'too_many'
  | 'too_many_connections'
  | 'too_many_denials'
  | 'too_many_sources'
  | 'unauthenticated'
  | 'unknown_consumer'
  | 'unknown_field'
  | 'unknown_host'
  | 'unknown_list'
  | 'unknown_node'
  | 'unknown_parameter'
  | 'unknown_post'
  | 'unknown_source'
  | 'unportable_body'
  | 'unsupported_media_type'
  | 'upgrade_required';

/** A heartbeat: nothing happened. */
export interface BeatMessage {
  seq: number;
  type: 'beat';
}

export interface BlockedChange {
  sequence: number;
  source: SourceId;
  type: 'blocked';
  user: SourceId;
}

export type Change<Body = unknown> =
  | PublishedChange<Body>
  | EditedChange<Body>
  | DeletedChange
  | FollowedChange
  | UnfollowedChange
  | FollowsChange
  | MutedChange
  | UnmutedChange
  | BlockedChange
  | UnblockedChange
  | RulesChange
  | MarkedChange
  | MemberAddedChange
  | MemberRemovedChange
  | ListDeletedChange
  | TokensRevokedChange
  | ErasedChange
  | MissedMessage
  | ReachedMessage;

export interface ChangeConsumer {
  behind: number;
  name: ConsumerName;
  sequence: number;
}

export interface ChangeConsumerPosition {
  sequence?: number;
}

export interface ChangeConsumers {
  items: ChangeConsumer[];
}

export interface Cluster {
  applied: number;
  beat_ms: number;
  epoch: number;
  gone: {
    address: string;
    gone_ms: number;
    name: string;
  }[];
  node: string;
  nodes: {
    address: string;
    heard_ms: number | null;
    name: string;
    partitions: number[];
  }[];
  partitions: number;
  sequencer: string | null;
  session_ms: number;
  world?: {
    digest: string;
    sequence: number;
  };
}

/** The name of a consumer of changes. */
export type ConsumerName = string;

/** The numbers of replies and reposts of a post, without hidden ones. */
export interface Counts {
  replies: number;
  reposts: number;
}

/** Opaque: send it back unchanged. It stays valid across restarts, and after its entry is deleted. */
export type Cursor = string;

export interface DeletedChange {
  id: PostId;
  repost_of?: PostId;
  sequence: number;
  type: 'deleted';
}

export interface EditedChange<Body = unknown> {
  at: Time;
  /** The new body, if it changed. */
  body?: Body;
  /** The new value, if it changed. */
  hidden?: boolean;
  id: PostId;
  sequence: number;
  type: 'edited';
}

export interface ErasedChange {
  sequence: number;
  type: 'erased';
  user: SourceId;
}

export interface Erasure {
  erased: 'under_way';
}

export interface Explanation {
  blockers: (
    | {
        kind: 'unknown';
        post: PostId;
      }
    | {
        kind: 'deleted';
        post: PostId;
      }
    | {
        kind: 'hidden';
        post: PostId;
      }
    | {
        kind: 'muted';
        source: SourceId;
      }
    | {
        kind: 'blocked';
        source: SourceId;
      }
    | {
        kind: 'blocked_by';
        source: SourceId;
      }
    | {
        kind: 'own_posts_off';
      }
    | {
        kind: 'reposts_off';
      }
    | {
        kind: 'reply';
        source?: SourceId;
      }
  )[];
  cost: RouteCost | null;
  reasons: (
    | {
        kind: 'own';
      }
    | {
        kind: 'follow';
        source: SourceId;
      }
    | {
        kind: 'kept';
        source: SourceId;
      }
    | {
        kind: 'virtual';
      }
    | {
        at: Time;
        kind: 'repost';
        post: PostId;
        source: SourceId;
        user: SourceId;
      }
  )[];
  route: 'push' | 'pull' | null;
  shown: boolean;
}

/** The id of a post in another system, such as a UUID, a ULID or a URN. The id of the post is the first 8 bytes of its SHA-256, big-endian, modulo 7 × 10^18. */
export type ExternalId = string;

export interface FeedOfUser<Body = unknown> {
  /** The server no longer knows the entries since then: this is the newest page. Read the feed again. */
  gap?: boolean;
  items: Item<Body>[];
  /** For `after`: stands for everything that has entered the feed. Null if the feed is empty. */
  newest: Cursor | null;
  /** The cursor of the next page; null on the last page. */
  next: Cursor | null;
  /** Sources that could not be read in time. Their entries are missing here, and appear on a later read. The user of the feed stands for unknown sources. */
  partial: SourceId[];
  /** The number of further sources that `partial` does not name. */
  partial_more?: number;
  /** Entries that the rule `per_source_max` left out. */
  passed_over?: number;
  /** Posts that are damaged on disk. */
  unreadable?: PostId[];
  user: SourceId;
}

export interface FeedsAnswer<Body = unknown> {
  feeds: (FeedOfUser<Body> | RefusedFeed)[];
}

export interface FeedsRequest {
  fields?: 'ids' | 'counts' | 'ids,counts' | 'counts,ids' | null;
  limit?: number;
  users: SourceId[];
}

export interface FollowOptions {
  /** Number of earlier posts that the follow brings. Default: all. */
  backfill?: number;
  /** A hidden follow: in no list and no count. */
  hidden?: boolean;
}

export interface Followed {
  created: number;
  existing: number;
  /** Present if the request has `unfollows`. */
  removed?: number;
}

export interface FollowedChange {
  follows: {
    follower: SourceId;
    /** A hidden follow: in no list and no count. */
    hidden?: boolean;
    since: Time;
    source: SourceId;
  }[];
  sequence: number;
  type: 'followed';
}

export interface FollowsChange {
  follows: {
    follower: SourceId;
    /** A hidden follow: in no list and no count. */
    hidden?: boolean;
    since: Time;
    source: SourceId;
  }[];
  sequence: number;
  type: 'follows_changed';
  unfollows: {
    follower: SourceId;
    source: SourceId;
  }[];
}

export interface FollowsRequest {
  follows?: {
    /** Number of earlier posts that the follow brings. Default: all. */
    backfill?: number;
    follower: SourceId;
    /** A hidden follow: in no list and no count. */
    hidden?: boolean;
    source: SourceId;
  }[];
  unfollows?: {
    follower: SourceId;
    source: SourceId;
  }[];
}

export interface FoundSource {
  active: boolean;
  celebrity: boolean;
  followers: number;
  following: number;
  id: SourceId;
  kind: 'user' | 'tag' | 'topic' | 'replies';
  last_seen: Time | null;
  posts: number;
}

export interface FoundSources {
  complete: boolean;
  examined: number;
  items: FoundSource[];
  node: string | null;
}

/** The first message. If `recovered`, exactly the missed messages follow; otherwise read the feed again. */
export interface HelloMessage {
  /** Only from a node of a cluster: from now on, read pages with `Tidewire-After` and this number. */
  after_sequence?: number;
  epoch: string;
  marker: Cursor | null;
  recovered: boolean;
  seq: number;
  type: 'hello';
}

export interface History {
  active: number[];
  at_seconds: number[];
  connections: number[];
  deliveries_per_second: number[];
  fanout_p50_us: (number | null)[];
  fanout_p99_us: (number | null)[];
  interval_seconds: number;
  live_connections: number[];
  live_messages_per_second: number[];
  memory_bytes: {
    inboxes: number[];
    posts: number[];
    reposts: number[];
    resident: (number | null)[];
    sources: number[];
  };
  next: string;
  node: string | null;
  page_p50_us: (number | null)[];
  page_p99_us: (number | null)[];
  pages_per_second: number[];
  posts_per_second: number[];
  publish_p50_us: (number | null)[];
  publish_p99_us: (number | null)[];
  queues: Record<
    string,
    {
      depth: number[];
      limit: number;
    }
  >;
  refusals_per_second: Record<string, number[]>;
  requests_per_second: {
    live: number[];
    other: number[];
    reads: number[];
    writes: number[];
  };
  reset: boolean;
  samples_max: number;
  wakes_per_second: number[];
}

export interface Item<Body = unknown> {
  cursor: Cursor;
  post: Post<Body>;
  /** The reposts of the post, newest first. */
  reposts: {
    at: Time;
    post: PostId;
    user: SourceId;
  }[];
  /** The followed sources that brought the entry. */
  via: SourceId[];
}

export type Kind = 'post' | 'user' | 'ad';

export interface ListDeletedChange {
  list: ListName;
  sequence: number;
  type: 'list_deleted';
  user: SourceId;
}

/** The name of a list. */
export type ListName = string;

export interface ListOfLists {
  items: {
    members: number;
    name: ListName;
  }[];
  /** The cursor of the next page; null on the last page. */
  next: Cursor | null;
}

export type LiveMessage<Body = unknown> =
  | HelloMessage
  | PostMessage<Body>
  | RemoveMessage
  | UpdateMessage<Body>
  | StaleMessage
  | MarkerMessage
  | UnreadMessage
  | BeatMessage;

export interface Liveness {
  alive: true;
}

export interface Mark {
  cursor: Cursor;
}

export interface MarkedChange {
  cursor: Cursor;
  sequence: number;
  type: 'marked';
  user: SourceId;
}

export interface Marker {
  /** There may be more unread entries than counted. */
  capped: boolean;
  /** False if counting ended early: more entries may be unread. */
  complete: boolean;
  cursor: Cursor | null;
  /** Entries of others above the marker, or that arrived after it was set, at any place. */
  unread: number;
}

/** The reader has read up to here. */
export interface MarkerMessage {
  cursor: Cursor;
  seq: number;
  type: 'marker';
}

export interface MemberAddedChange {
  list: ListName;
  sequence: number;
  source: SourceId;
  type: 'member_added';
  user: SourceId;
}

export interface MemberRemovedChange {
  list: ListName;
  sequence: number;
  source: SourceId;
  type: 'member_removed';
  user: SourceId;
}

export interface MissedMessage {
  post: {
    author: SourceId;
    external_id?: ExternalId;
    id: PostId;
    published_at: Time;
  };
  reader: SourceId;
  reason: 'asleep';
  sequence: number;
  type: 'missed';
  via: SourceId[];
}

export interface MutedChange {
  sequence: number;
  source: SourceId;
  type: 'muted';
  user: SourceId;
}

export interface NewPost<Body = unknown> {
  author: SourceId;
  /** Any JSON, at most 65536 bytes and 64 levels. */
  body: Body;
  external_id?: ExternalId | null;
  id?: PostId | null;
  kind?: Kind | null;
  published_at?: Time | null;
  reply_to?: PostName | null;
  repost_of?: PostName | null;
  tags?: TagName[] | null;
  topic?: TopicName | null;
}

export interface Operations {
  keys:
    | {
        kind: 'server' | 'token';
        last_used: Time | null;
        name: string | null;
        requests: number;
        scope: string | null;
      }[]
    | null;
  node: string | null;
  refused_requests: {
    count: number;
    items: {
      at: Time;
      code: string;
      method: string | null;
      operation: string | null;
      request_id: string;
      route: string | null;
      status: number;
    }[];
  };
  slow_requests: {
    count: number;
    items: {
      at: Time;
      method: string;
      operation: string;
      request_id: string | null;
      route: string;
      status: number | null;
      took_ms: number;
    }[];
    threshold_ms: number;
  };
}

export interface Page<Body = unknown> {
  /** The server no longer knows the entries since then: this is the newest page. Read the feed again. */
  gap?: boolean;
  items: Item<Body>[];
  /** For `after`: stands for everything that has entered the feed. Null if the feed is empty. */
  newest: Cursor | null;
  /** The cursor of the next page; null on the last page. */
  next: Cursor | null;
  /** Sources that could not be read in time. Their entries are missing here, and appear on a later read. The user of the feed stands for unknown sources. */
  partial: SourceId[];
  /** The number of further sources that `partial` does not name. */
  partial_more?: number;
  /** Entries that the rule `per_source_max` left out. */
  passed_over?: number;
  /** Posts that are damaged on disk. */
  unreadable?: PostId[];
}

/** With `fields=ids`, only its ids, `author` and `published_at`; otherwise also `kind`, `body` and `hidden`. With `fields=counts`, also `counts`. */
export interface Post<Body = unknown> {
  author: SourceId;
  /** Any JSON, at most 65536 bytes and 64 levels. */
  body: Body;
  counts?: Counts;
  edited_at?: Time;
  external_id?: ExternalId;
  /** In no feed until it is unhidden. */
  hidden?: boolean;
  id: PostId;
  kind?: Kind;
  published_at: Time;
  reply_to?: PostId;
  repost_of?: PostId;
  tags?: TagName[];
  topic?: TopicName;
}

export interface PostChange<Body = unknown> {
  /** Any JSON, at most 65536 bytes and 64 levels. */
  body?: Body;
  hidden?: boolean;
}

export interface PostFanout {
  accepted_at: Time;
  already_there: number | null;
  asleep: number | null;
  author: SourceId;
  awake: number | null;
  finished_after_us: number | null;
  first_delivery_after_us: number | null;
  followers: number | null;
  node: string | null;
  post: PostId;
  pulled: number | null;
  pushed: number | null;
  reposts: {
    complete: boolean;
    count: number;
    items: {
      at: Time;
      hidden: boolean;
      post: PostId;
      user: SourceId;
    }[];
  };
  sources: {
    decided_by: 'setting' | 'followers' | 'cost';
    followers: number;
    id: SourceId;
    route: 'push' | 'pull';
  }[];
  started_after_us: number | null;
  state: 'queued' | 'delivering' | 'delivered' | 'pulled' | 'gone';
}

/** An unsigned 64-bit integer in decimal digits, without leading zeros. */
export type PostId = string;

export interface PostList<Body = unknown> {
  missing: PostName[];
  posts: Post<Body>[];
}

/** The entry is in the feed. */
export interface PostMessage<Body = unknown> {
  item: Item<Body>;
  seq: number;
  type: 'post';
}

/** The id of a post, or `ext:` and its external id. */
export type PostName = string;

export interface PostsAnswer<Body = unknown> {
  posts: (PublishedPost<Body> | RefusedPost)[];
}

export interface PostsPage<Body = unknown> {
  complete: boolean;
  next: PostId | null;
  posts: Post<Body>[];
  sequence: number;
  unreadable: PostId[];
}

export interface PostsRequest<Body = unknown> {
  posts: NewPost<Body>[];
}

export interface Problem {
  /** A stable code on which programs branch. */
  code: string;
  /** What failed and why, for people; may change. */
  detail: string;
  /** Of follows: each edge that cannot be added, by its index in the request. */
  errors?: {
    code: string;
    detail: string;
    index: number;
  }[];
  /** The invalid field, path part or query parameter. */
  field?: string;
  /** With `sequence_in_future`: the largest possible sequence. */
  newest?: number;
  /** With `gone`: the smallest possible sequence. */
  oldest?: number;
  /** In place of the header `Retry-After`, only in `feeds` and `posts`. */
  retry_after?: number;
  status: number;
  /** The status as text. */
  title: string;
  type: 'about:blank';
}

export interface PublishedChange<Body = unknown> {
  earlier_reposts?: PostId[];
  post: Post<Body | null>;
  sequence: number;
  type: 'published';
}

export interface PublishedPost<Body = unknown> {
  created: boolean;
  post: Post<Body>;
}

export interface Put {
  created: boolean;
}

export interface ReachedMessage {
  /** Only in lines: true if more messages follow. */
  more?: boolean;
  reader?: SourceId;
  sequence: number;
  type: 'reached';
}

export interface Readiness {
  ready: true;
  refused?: 'disk_full' | 'out_of_files' | 'journal_failed' | 'sequencer_unavailable';
  writes: boolean;
}

export interface RefusedFeed {
  problem: Problem;
  user: SourceId;
}

export interface RefusedPost {
  problem: Problem;
}

/** The feed has no entry of this post. */
export interface RemoveMessage {
  post: PostId;
  seq: number;
  type: 'remove';
}

export interface RepostPage {
  items: {
    at: Time;
    cursor: Cursor;
    post: PostId;
    user: SourceId;
  }[];
  /** The cursor of the next page; null on the last page. */
  next: Cursor | null;
}

export interface Revoke {
  not_before?: Time | null;
}

export interface Revoked {
  not_before: Time;
  user: SourceId;
}

/** The processor time that the posts of a source take by push and by pull, in microseconds per hour, estimated from the rates since the start of the server. */
export interface RouteCost {
  /** The reason for its route. */
  decided_by: 'setting' | 'followers' | 'cost';
  /** Pulling its posts for the pages of its followers. */
  pull_us_per_hour: number;
  /** Pushing its posts to the followers that have inboxes. */
  push_us_per_hour: number;
}

export interface Rules {
  /** The stream of changes reports posts that the reader misses while asleep. */
  notify: boolean;
  /** Maximum number of entries of one author on a page. */
  per_source_max: number | null;
  replies: 'followed' | 'all' | 'none';
  reposts: boolean;
  show_own: boolean;
}

export interface RulesChange {
  rules: Rules;
  sequence: number;
  type: 'rules_changed';
  user: SourceId;
}

export interface RulesPatch {
  /** The stream of changes reports posts that the reader misses while asleep. */
  notify?: boolean;
  /** Maximum number of entries of one author on a page. */
  per_source_max?: number | null;
  replies?: 'followed' | 'all' | 'none';
  reposts?: boolean;
  show_own?: boolean;
}

export interface Snapshot {
  bytes: number;
  file: string;
  sequence: number;
  taken_at: Time;
}

/** A user, `tag:NAME`, `topic:NAME`, or `replies:POST` for the replies to a post: `POST` is its id, or `ext:` and its external id. */
export type SourceId = string;

export interface SourceList {
  items: {
    id: SourceId;
    since: Time;
  }[];
  /** The cursor of the next page; null on the last page. */
  next: Cursor | null;
}

/** Read the feed below this cursor again; with null, all of it. */
export interface StaleMessage {
  below: Cursor | null;
  seq: number;
  type: 'stale';
}

export interface Stats {
  active: number;
  admission: Record<
    string,
    {
      limit: number;
      refused: number;
      under_way: number;
    }
  >;
  archive_read_failures: number;
  backups: {
    age_seconds: number;
    count: number;
    failing?: boolean;
    failures: number;
    interval_seconds: number;
    restorable_from?: Time | null;
    restorable_to?: Time | null;
    runs?: {
      error: string | null;
      sent_bytes: number;
      started_at: Time;
      took_ms: number;
    }[];
    sent_bytes: number;
    stored_bytes: number;
  } | null;
  clock: {
    jumps_ahead: number;
    jumps_back: number;
    last_jump_seconds: number;
    lead_seconds: number;
    now: Time;
  };
  commit: string;
  deliveries: number;
  deliveries_below_floor: number;
  disk_free_bytes: number | null;
  duplicate_deliveries: number;
  edges: number;
  erasures: {
    oldest_seconds: number | null;
    under_way: number;
  };
  fanout_latency: {
    count: number;
    followers?: string;
    max_us: number;
    p50_us: number;
    p99_us: number;
  }[];
  inboxes?: {
    bytes: number;
    count: number;
    entries: number;
  };
  journal: {
    commits: number;
    sequence: number;
    written_bytes: number;
  } | null;
  live: {
    connections: number;
    cut_off: number;
    messages: number;
    readers: number;
  };
  memory: {
    inboxes_bytes: number;
    posts_bytes: number;
    reposts_bytes: number;
    resident_bytes: number | null;
    sources_bytes: number;
  };
  pages: number;
  partial_pages: number;
  posts: number;
  published: number;
  queues: Record<
    string,
    {
      depth: number;
      limit: number;
    }
  >;
  recovery: {
    cut: {
      after_byte: number;
      bytes: number;
      segment: string;
      whole_events: number;
    } | null;
    events: number;
    lost: {
      from: number;
      reason: string;
      segment: string;
      through: number | null;
    }[];
    skipped: string[];
    snapshot: number | null;
  } | null;
  shed: number;
  sleeps: number;
  snapshots: {
    age_seconds: number;
    bytes: number;
    file: string;
    sequence: number;
    taken_at: Time;
  }[];
  stored_bytes: {
    archive: number;
    changes: number;
    journal: number;
    other: number;
    snapshots: number;
  } | null;
  uptime_seconds: number;
  user_crashes: number;
  users: number;
  version: string;
  wakes: number;
  writes_refused: 'disk_full' | 'out_of_files' | 'journal_failed' | 'sequencer_unavailable' | null;
}

/** The name of a tag, in any script. Responses have its form `NFKC_Casefold`. */
export type TagName = string;

/** RFC 3339 with any offset, and at most nine decimal digits of a second; digits after the sixth are dropped. Responses have UTC, six digits and `Z`, so times sort as text. */
export type Time = string;

export interface TokensRevokedChange {
  not_before: Time;
  sequence: number;
  type: 'tokens_revoked';
  user: SourceId;
}

/** The name of a topic, in any script. Responses have its form `NFC`. */
export type TopicName = string;

export interface UnblockedChange {
  sequence: number;
  source: SourceId;
  type: 'unblocked';
  user: SourceId;
}

export interface UnfollowedChange {
  follower: SourceId;
  /** The posts of the source stay in the feed. */
  keep?: boolean;
  sequence: number;
  source: SourceId;
  type: 'unfollowed';
}

export interface UnmutedChange {
  sequence: number;
  source: SourceId;
  type: 'unmuted';
  user: SourceId;
}

/** With `unread=true`: the number of unread entries, as of the marker. Its `seq` is that of the previous message. */
export interface UnreadMessage {
  capped: boolean;
  complete: boolean;
  seq: number;
  type: 'unread';
  unread: number;
}

/** The post after an edit. */
export interface UpdateMessage<Body = unknown> {
  post: Post<Body>;
  seq: number;
  type: 'update';
}

export interface User {
  /** Its reader is awake. */
  active: boolean;
  /** Its posts are pulled, not pushed. */
  celebrity: boolean;
  cost: RouteCost;
  followers: number;
  following: number;
  id: SourceId;
  last_seen: Time | null;
  posts: number;
}

export interface UserData<Body = unknown> {
  blocks: {
    id: SourceId;
    since: Time;
  }[];
  followers: {
    id: SourceId;
    since: Time;
  }[];
  following: {
    id: SourceId;
    since: Time;
  }[];
  hidden_following: {
    id: SourceId;
    since: Time;
  }[];
  kept: {
    hidden: boolean;
    published_from: Time | null;
    published_until: Time;
    since: Time;
    source: SourceId;
  }[];
  last_seen: Time | null;
  lists: {
    members: {
      id: SourceId;
      since: Time;
    }[];
    name: ListName;
  }[];
  marker: Cursor | null;
  mutes: {
    id: SourceId;
    since: Time;
  }[];
  posts: Post<Body>[];
  rules: Rules;
  tokens_not_before: Time | null;
  unreadable: PostId[];
  user: SourceId;
}

export interface UserList {
  items: FoundSource[];
  next: Cursor | null;
}

export interface Verdict {
  entries: number;
  extra: PostId[];
  floor: Cursor | null;
  good: boolean;
  missing: PostId[];
  rebuilt: number;
  stale: number;
  under_way: number;
}

import type { TokenSource } from './live/feed.js';
import type { ChangeType } from './changes.js';

/** How a server is reached. Each request has the limits of time and tries that are given here, or its own. */
export interface ClientOptions {
  /**
   * URL of the server; in a browser by default the page's origin. Of several, the nodes of a cluster, one is used as
   * long as it answers, and then the next.
   */
  server?: string | readonly string[];
  /** A key or token. A function is asked at first, and once again when the server refuses the last one (401). */
  token?: TokenSource;
  /** For each try to get an answer: 30,000. The token's function has the same time. */
  timeoutMs?: number;
  /** How often what failed is tried again, if that is safe: 4 times. */
  retries?: number;
  /** The longest wait between two tries: 30,000. A longer `Retry-After` fails at once; `changes` waits only so long. */
  retryWaitMaxMs?: number;
  /**
   * Who chooses the ids of posts that a user's token publishes, as `--token-post-ids` of the server: `server` by default.
   * With `user` the client does, and so can send such a post again when nobody has answered.
   */
  tokenPostIds?: 'server' | 'user';
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Of every request. */
export interface RequestOptions {
  /** Ends the request, and its tries. What it asked for may have been done. */
  signal?: AbortSignal;
  timeoutMs?: number;
  retries?: number;
}

/** Of reads of users, feeds and posts. */
export interface ReadOptions extends RequestOptions {
  /**
   * In a cluster: answer only after this sequence is applied, such as `client.sequence` after a write. Not in pages of
   * another origin than the server.
   */
  afterSequence?: number;
}

export interface WriteOptions extends RequestOptions {
  /** `delivered`: answer only after the post has reached the inboxes of all active readers. */
  wait?: 'delivered';
}

/** The fields of posts that have no body. */
export type IdFields = 'ids' | 'ids,counts';
/** The fields of posts: `counts` are the numbers of replies and reposts. */
export type Fields = IdFields | 'counts';

/** Of posts that are read by their ids. */
export interface PostOptions extends ReadOptions {
  /** `ids`: posts have no more than their ids, `author` and `published_at`. `counts`: they have `counts` in addition. */
  fields?: Fields;
}

/** Which part of a feed. */
export interface PageOptions extends ReadOptions {
  /** At most so many entries: 20, at most 100. */
  limit?: number;
  /** Entries older than this: the `next` of the page before. */
  before?: string;
  /** What has come into the feed since this `newest`: to poll. Not together with `before`. */
  after?: string;
  /** `ids`: posts have no more than their ids, `author` and `published_at`. `counts`: they have `counts` in addition. */
  fields?: Fields;
}

/** Which part of a list. */
export interface ListOptions extends ReadOptions {
  limit?: number;
  /** The `next` of the part before. */
  cursor?: string;
}

/** Of iterations over all entries. */
export interface WalkOptions extends ReadOptions {
  /** How many are read at a time: 100. */
  pageSize?: number;
}

/** Of a page of replies. */
export interface RepliesOptions extends PageOptions {
  /** For whom the page is. By a token it is the token's user. */
  reader?: string;
}

/** Which of the reposts of a post. */
export interface RepostsOptions extends ReadOptions {
  /** At most so many: 20, at most 100. */
  limit?: number;
  /** Older ones than this: the `next` of the page before. */
  before?: string;
  /** For whom the list is. By a token it is the token's user. */
  reader?: string;
}

/** Of iterations over reposts. */
export interface RepostsWalkOptions extends WalkOptions {
  /** For whom the list is. By a token it is the token's user. */
  reader?: string;
}

/** Of iterations over the entries of feeds. */
export interface FeedWalkOptions extends WalkOptions {
  /** `ids`: posts have no more than their ids, `author` and `published_at`. `counts`: they have `counts` in addition. */
  fields?: Fields;
  /**
   * Whether pages may lack what could not be read in time. By default such a page is read again, at most 3 times, and then
   * the iteration fails with `partial`.
   */
  takePartial?: boolean;
}

/** Of iterations over replies. */
export interface RepliesWalkOptions extends FeedWalkOptions {
  /** For whom the pages are. By a token it is the token's user. */
  reader?: string;
}

/** What of the stream of changes. */
export interface ChangesOptions<T extends ChangeType = ChangeType> extends RequestOptions {
  /** The last `place` or `sequence` that was processed; 0: all that the server has. By default, what is accepted from now on. */
  after?: string | number;
  /** Without `after`: begins after the position of this registered consumer. Set it by `setChangeConsumer`. */
  consumer?: string;
  /** Only these. */
  types?: readonly T[];
  /** False: ends once it has reached the present. By default it stays connected. */
  follow?: boolean;
  /** With `follow: false`, how many are read at a time: 1,000. */
  pageSize?: number;
}

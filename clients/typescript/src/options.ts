import type { TokenSource } from './live/feed.js';
import type { ChangeType } from './changes.js';

/** How to reach a server. Requests use these limits of time and tries by default. */
export interface ClientOptions {
  /**
   * URL of the server; in a browser by default the page's origin. Several URLs are the nodes of a cluster: the client uses
   * one until it does not respond, then the next.
   */
  server?: string | readonly string[];
  /** A key or token. A function is called at first, and once again when the server refuses the last token (401). */
  token?: TokenSource;
  /** The time limit of each try [default: 30,000]. The token's function has the same limit. */
  timeoutMs?: number;
  /** The number of retries of a failed request, if they are safe [default: 4]. */
  retries?: number;
  /** The longest wait between two tries [default: 30,000]. A longer `Retry-After` fails at once; `changes` waits this long. */
  retryWaitMaxMs?: number;
  /**
   * Who chooses the ids of posts published with a user's token, as `--token-post-ids` of the server: `server` by default.
   * With `user` the client does, and so can send such a post again without a response.
   */
  tokenPostIds?: 'server' | 'user';
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

/** The options of every request. */
export interface RequestOptions {
  /** Aborts the request and its retries. It may have been executed. */
  signal?: AbortSignal;
  timeoutMs?: number;
  retries?: number;
}

/** The options of reads of users, feeds and posts. */
export interface ReadOptions extends RequestOptions {
  /**
   * In a cluster: respond only after this sequence is applied, such as `client.sequence` after a write. Not in pages of
   * another origin than the server.
   */
  afterSequence?: number;
}

export interface WriteOptions extends RequestOptions {
  /** `delivered`: respond only after the post is in the inboxes of all active followers. */
  wait?: 'delivered';
}

/** The selections of fields without a body. */
export type IdFields = 'ids' | 'ids,counts';
/** The selections of fields of posts: `counts` are the numbers of replies and reposts. */
export type Fields = IdFields | 'counts';

/** The options of reading posts by their ids. */
export interface PostOptions extends ReadOptions {
  /** `ids`: posts have only their ids, `author` and `published_at`. `counts`: they also have `counts`. */
  fields?: Fields;
}

/** The part of a feed to read. */
export interface PageOptions extends ReadOptions {
  /** Maximum number of entries, up to 100 [default: 20]. */
  limit?: number;
  /** Entries older than this: the `next` of the previous page. */
  before?: string;
  /** Entries that entered the feed since this `newest`, for polling. Not together with `before`. */
  after?: string;
  /** `ids`: posts have only their ids, `author` and `published_at`. `counts`: they also have `counts`. */
  fields?: Fields;
}

/** The part of a list to read. */
export interface ListOptions extends ReadOptions {
  limit?: number;
  /** The `next` of the previous part. */
  cursor?: string;
}

/** The options of iterations over all entries. */
export interface WalkOptions extends ReadOptions {
  /** The number of entries per page [default: 100]. */
  pageSize?: number;
}

/** The options of a page of replies. */
export interface RepliesOptions extends PageOptions {
  /** The reader for whom the page is built. With a token: its user. */
  reader?: string;
}

/** The part of the reposts of a post to read. */
export interface RepostsOptions extends ReadOptions {
  /** Maximum number of reposts, up to 100 [default: 20]. */
  limit?: number;
  /** Reposts older than this: the `next` of the previous page. */
  before?: string;
  /** The reader for whom the list is built. With a token: its user. */
  reader?: string;
}

/** The options of iterations over reposts. */
export interface RepostsWalkOptions extends WalkOptions {
  /** The reader for whom the list is built. With a token: its user. */
  reader?: string;
}

/** The options of iterations over the entries of feeds. */
export interface FeedWalkOptions extends WalkOptions {
  /** `ids`: posts have only their ids, `author` and `published_at`. `counts`: they also have `counts`. */
  fields?: Fields;
  /**
   * Accept pages with sources that could not be read in time. By default such a page is read again, at most 3 times, and then
   * the iteration fails with `partial`.
   */
  takePartial?: boolean;
}

/** The options of iterations over replies. */
export interface RepliesWalkOptions extends FeedWalkOptions {
  /** The reader for whom the pages are built. With a token: its user. */
  reader?: string;
}

/** The part of the stream of changes to read. */
export interface ChangesOptions<T extends ChangeType = ChangeType> extends RequestOptions {
  /** The last processed `place` or `sequence`; 0: all changes of the server. By default, changes from now on. */
  after?: string | number;
  /** Without `after`: starts after the position of this registered consumer, which `setChangeConsumer` sets. */
  consumer?: string;
  /** Only changes of these types. */
  types?: readonly T[];
  /** False: ends at the present. By default it stays connected. */
  follow?: boolean;
  /** With `follow: false`, the number of changes per request [default: 1,000]. */
  pageSize?: number;
}

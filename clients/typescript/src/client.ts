import { readChanges, type ChangeOf, type ChangeType } from './changes.js';
import { TidewireError } from './error.js';
import { Http, path, type Request } from './http.js';
import { newPostId } from './ids.js';
import { Feed, type FeedOptions } from './live/feed.js';
import type {
  ChangesOptions,
  ClientOptions,
  ListOptions,
  PageOptions,
  ReadOptions,
  FeedWalkOptions,
  RequestOptions,
  WalkOptions,
  WriteOptions,
} from './options.js';
import type * as T from './types.js';
import { walkFeed, walkList, type Walk } from './walks.js';

/** A post of a batch: published, or why not. Of the post, the answer has no more than this; `postsById` reads the rest. */
export type BatchResult =
  { post: Pick<T.Post, 'id' | 'author' | 'published_at'>; created: boolean; error?: never } | { error: TidewireError };
/** One of many feeds: its page, or why not. */
export type FeedResult<Body> = (T.FeedOfUser<Body> & { error?: never }) | { user: string; error: TidewireError };

/**
 * A client of a Tidewire server, or of the nodes of a cluster.
 *
 *     const tidewire = new Tidewire<{ text: string }>({ server: 'http://localhost:8080' });
 *     await tidewire.follow('ann', 'bob');
 *     await tidewire.publish({ author: 'bob', body: { text: 'hello' } });
 *     for await (const { post } of tidewire.feed('ann')) console.log(post.author, post.body.text);
 *
 * All calls fail with a `TidewireError` when they are refused or not answered, and with the reason of their signal when that
 * ends them. `Body` is the type of the bodies of posts, which nobody checks.
 */
export class Tidewire<Body = unknown> {
  readonly #options: ClientOptions;
  readonly #http: Http;
  #mayChooseIds = true;

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    this.#http = new Http(options);
  }

  /** In a cluster: all that this client was told is done is applied up to here. See `afterSequence`. */
  get sequence(): number {
    return this.#http.sequence;
  }

  // Posts

  /**
   * Publishes a post. It gets an id here unless it has one, so that it is published once even if it is sent again. Refused
   * with `post_id_taken` if a post with other content has this id. Where a user's token may choose no ids, it is sent without
   * one, and not again if nobody answers.
   */
  async publish(post: T.NewPost<Body>, options: WriteOptions = {}): Promise<T.Post<Body>> {
    const send = (body: T.NewPost<Body>, isRepeatable: boolean): Promise<T.Post<Body>> =>
      this.#send('POST', '/v1/posts', options, { body, isRepeatable });
    if (post.id != null) return send(post, true);
    if (!this.#mayChooseIds) return send(post, false);
    try {
      return await send({ ...post, id: newPostId() }, true);
    } catch (error) {
      if (!(error instanceof TidewireError) || error.code !== 'forbidden') throw error;
      const published = await send(post, false);
      // Only now is it known that the id was the reason.
      this.#mayChooseIds = false;
      return published;
    }
  }

  /** Publishes up to 1,000 posts in their order, and answers each by itself, in the same order. */
  async publishMany(posts: readonly T.NewPost<Body>[], options: WriteOptions = {}): Promise<BatchResult[]> {
    const body = { posts: posts.map((post) => ({ ...post, id: post.id ?? newPostId() })) };
    const answer = await this.#send<T.PostsAnswer<Body>>('POST', '/v1/posts/batch', options, { body });
    return answer.posts.map((each) => ('problem' in each ? { error: new TidewireError(each.problem) } : each));
  }

  /** Publishes a repost. `body` is a comment on it, if there is one. */
  async repost(
    user: string,
    post: string,
    more: Partial<T.NewPost<Body>> = {},
    options: WriteOptions = {},
  ): Promise<T.Post<Body | null>> {
    return this.publish({ body: null as Body, ...more, author: user, repost_of: post }, options);
  }

  /** A post, hidden ones and reposts too, whose body may be null. Refused with `unknown_post`, or `post_deleted`. */
  async post(id: string, options: ReadOptions = {}): Promise<T.Post<Body | null>> {
    return this.#send('GET', path`/v1/posts/${id}`, options);
  }

  /** Up to 100 posts, in the order of the ids; `missing` has the ids of those that are unknown or deleted. */
  async postsById(ids: readonly string[], options: ReadOptions = {}): Promise<T.PostList<Body | null>> {
    return this.#send('GET', '/v1/posts', options, { query: { ids: ids.join() } });
  }

  /**
   * A page of all posts, by ascending id, hidden ones and reposts too. `next` is the `after` of the next page. To build an
   * index of all posts, read all pages, then the changes after the smallest `sequence` of them. Needs a server key.
   */
  async allPostsPage(
    options: RequestOptions & {
      /** Posts with larger ids only. */ after?: string | null;
      /** 100, at most 1,000. */ limit?: number;
    } = {},
  ): Promise<T.PostsPage<Body | null>> {
    const { after, limit, ...rest } = options;
    return this.#send('GET', '/v1/posts/all', rest, { query: { after: after ?? undefined, limit } });
  }

  /** Replaces the body of a post, hides it or shows it again. */
  async editPost(id: string, change: T.PostChange<Body>, options: WriteOptions = {}): Promise<T.Post<Body>> {
    return this.#send('PATCH', path`/v1/posts/${id}`, options, { body: change });
  }

  /** Deletes a post, if it is there. */
  async deletePost(id: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/posts/${id}`, options);
  }

  // Following

  /** Lets a user follow another one, a `tag:NAME` or a `topic:NAME`. `created` is false if it was so already. */
  async follow(user: string, source: string, options: WriteOptions & T.FollowOptions = {}): Promise<T.Put> {
    const { hidden, backfill, ...rest } = options;
    const body = { hidden, backfill };
    return this.#send('PUT', path`/v1/users/${user}/following/${source}`, rest, { body });
  }

  /** Ends following. `keep`: what is in the feed stays there. */
  async unfollow(user: string, source: string, options: WriteOptions & { keep?: boolean } = {}): Promise<void> {
    const { keep, ...rest } = options;
    return this.#send('DELETE', path`/v1/users/${user}/following/${source}`, rest, { query: { keep } });
  }

  /** Makes up to 10,000 edges and removes others, all of it or nothing. Refused with `errors`, one for each bad edge. */
  async changeFollows(changes: T.FollowsRequest, options: WriteOptions = {}): Promise<T.Followed> {
    return this.#send('POST', '/v1/follows', options, { body: changes });
  }

  /** Whom a user follows, newest first; with `hidden` the virtual follows in their place, for server keys. */
  following(user: string, options: WalkOptions & { hidden?: boolean } = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.followingPage(user, part), options);
  }

  async followingPage(user: string, options: ListOptions & { hidden?: boolean } = {}): Promise<T.SourceList> {
    const { hidden, ...rest } = options;
    return this.#list(path`/v1/users/${user}/following`, rest, { hidden });
  }

  /** Who follows a source, newest first. */
  followers(source: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.followersPage(source, part), options);
  }

  async followersPage(source: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${source}/followers`, options);
  }

  // Feeds

  /** The entries of a reader's home feed, newest first, down to the oldest. */
  feed(user: string, options: FeedWalkOptions = {}): Walk<T.Item<Body>> {
    return walkFeed((part) => this.feedPage(user, part), options);
  }

  /** A page of a reader's home feed. */
  feedPage(user: string, options: PageOptions & { fields: 'ids' }): Promise<T.Page<undefined>>;
  feedPage(user: string, options?: PageOptions): Promise<T.Page<Body>>;
  async feedPage(user: string, options: PageOptions = {}): Promise<T.Page<any>> {
    return this.#page(path`/v1/users/${user}/feed`, options);
  }

  /** The newest pages of up to 100 readers, each answered by itself, in the order of `users`. */
  feeds(
    users: readonly string[],
    options: ReadOptions & Pick<PageOptions, 'limit'> & { fields: 'ids' },
  ): Promise<FeedResult<undefined>[]>;
  feeds(
    users: readonly string[],
    options?: ReadOptions & Pick<PageOptions, 'limit' | 'fields'>,
  ): Promise<FeedResult<Body>[]>;
  async feeds(
    users: readonly string[],
    options: ReadOptions & Pick<PageOptions, 'limit' | 'fields'> = {},
  ): Promise<FeedResult<any>[]> {
    const { limit, fields, ...rest } = options;
    const body = { users, limit, fields };
    const answer = await this.#send<T.FeedsAnswer<Body>>('POST', '/v1/feeds', rest, { body });
    return answer.feeds.map((each) =>
      'problem' in each ? { user: each.user, error: new TidewireError(each.problem) } : each,
    );
  }

  /** What a user, tag or topic has published, newest first. */
  postsOf(source: string, options: FeedWalkOptions = {}): Walk<T.Item<Body>> {
    return walkFeed((part) => this.postsPage(source, part), options);
  }

  /** A page of what a user, tag or topic has published. */
  postsPage(source: string, options: PageOptions & { fields: 'ids' }): Promise<T.Page<undefined>>;
  postsPage(source: string, options?: PageOptions): Promise<T.Page<Body>>;
  async postsPage(source: string, options: PageOptions = {}): Promise<T.Page<any>> {
    return this.#page(path`/v1/users/${source}/posts`, options);
  }

  /** Why a post is, or is not, in a reader's feed. */
  async explain(user: string, post: string, options: ReadOptions = {}): Promise<T.Explanation> {
    return this.#send('GET', path`/v1/users/${user}/feed/explain/${post}`, options);
  }

  /** A reader's home feed that is kept up to date. Add listeners, then `start()` it. */
  live(user: string, options: Omit<FeedOptions, 'user' | 'server' | 'token'> = {}): Feed<Body> {
    const { fetch } = this.#options;
    return new Feed<Body>({ fetch, ...options, user, server: this.#http.servers, token: this.#options.token });
  }

  // A reader's mutes, blocks, rules and marker

  /** Hides all posts of a user, tag or topic from a reader. */
  async mute(user: string, source: string, options: WriteOptions = {}): Promise<T.Put> {
    return this.#send('PUT', path`/v1/users/${user}/mutes/${source}`, options);
  }

  async unmute(user: string, source: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/mutes/${source}`, options);
  }

  mutes(user: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.mutesPage(user, part), options);
  }

  async mutesPage(user: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${user}/mutes`, options);
  }

  /** Mutes, ends following both ways, and forbids it from now on. */
  async block(user: string, source: string, options: WriteOptions = {}): Promise<T.Put> {
    return this.#send('PUT', path`/v1/users/${user}/blocks/${source}`, options);
  }

  async unblock(user: string, source: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/blocks/${source}`, options);
  }

  blocks(user: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.blocksPage(user, part), options);
  }

  async blocksPage(user: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${user}/blocks`, options);
  }

  async rules(user: string, options: ReadOptions = {}): Promise<T.Rules> {
    return this.#send('GET', path`/v1/users/${user}/rules`, options);
  }

  /** Changes the given rules. Returns all of them. */
  async changeRules(user: string, change: T.RulesPatch, options: WriteOptions = {}): Promise<T.Rules> {
    return this.#send('PATCH', path`/v1/users/${user}/rules`, options, { body: change });
  }

  /** How far a reader has read, and how many entries are unread. */
  async marker(user: string, options: ReadOptions = {}): Promise<T.Marker> {
    return this.#send('GET', path`/v1/users/${user}/marker`, options);
  }

  /** Marks all as read up to a page's `newest` or an entry's `cursor`. */
  async setMarker(user: string, cursor: string, options: WriteOptions = {}): Promise<T.Marker> {
    return this.#send('PUT', path`/v1/users/${user}/marker`, options, { body: { cursor } });
  }

  // A reader's lists

  /** The lists of a reader. */
  lists(user: string, options: WalkOptions = {}): Walk<T.ListOfLists['items'][number]> {
    return walkList((part) => this.listsPage(user, part), options);
  }

  async listsPage(user: string, options: ListOptions = {}): Promise<T.ListOfLists> {
    return this.#list(path`/v1/users/${user}/lists`, options);
  }

  /** Adds a source to a list, which is there from its first member on. */
  async addToList(user: string, list: string, source: string, options: WriteOptions = {}): Promise<T.Put> {
    return this.#send('PUT', path`/v1/users/${user}/lists/${list}/members/${source}`, options);
  }

  async removeFromList(user: string, list: string, source: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/lists/${list}/members/${source}`, options);
  }

  async deleteList(user: string, list: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/lists/${list}`, options);
  }

  listMembers(user: string, list: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.listMembersPage(user, list, part), options);
  }

  async listMembersPage(user: string, list: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${user}/lists/${list}/members`, options);
  }

  /** The entries of a list's feed, newest first. */
  listFeed(user: string, list: string, options: FeedWalkOptions = {}): Walk<T.Item<Body>> {
    return walkFeed((part) => this.listFeedPage(user, list, part), options);
  }

  /** A page of a list's feed. */
  listFeedPage(user: string, list: string, options: PageOptions & { fields: 'ids' }): Promise<T.Page<undefined>>;
  listFeedPage(user: string, list: string, options?: PageOptions): Promise<T.Page<Body>>;
  async listFeedPage(user: string, list: string, options: PageOptions = {}): Promise<T.Page<any>> {
    return this.#page(path`/v1/users/${user}/lists/${list}/feed`, options);
  }

  // Changes

  /**
   * All that the server accepts, in order, at least once, from any place on. It stays connected, goes on after a lost
   * connection or a restart where it was, and ends with `break` or by its signal:
   *
   *     for await (const change of tidewire.changes({ after: await stored(), types: ['published', 'deleted'] })) {
   *       if (change.type !== 'reached') await handle(change);
   *       await store(change.place);
   *     }
   *
   * A place may be stored once what came up to it is processed. Fails with `gone` if the server does not have what comes
   * next any more, and with any other refusal that will not pass by itself. Needs a server key.
   */
  changes<Type extends ChangeType = ChangeType>(options: ChangesOptions<Type> = {}): Walk<ChangeOf<Body, Type>> {
    return readChanges<Body, Type>(this.#http, options);
  }

  // Users and the server

  /** Counts of a user, tag or topic. */
  async user(id: string, options: ReadOptions = {}): Promise<T.User> {
    return this.#send('GET', path`/v1/users/${id}`, options);
  }

  /** Erases a user for good. False: it is under way; ask again until it is done. */
  async eraseUser(id: string, options: RequestOptions = {}): Promise<boolean> {
    return (await this.#send<T.Erasure | undefined>('DELETE', path`/v1/users/${id}`, options)) === undefined;
  }

  /** Refuses a user's tokens that were issued before now, or before `not_before`, and ends connections with them. */
  async revokeTokens(user: string, revoke: T.Revoke = {}, options: RequestOptions = {}): Promise<T.Revoked> {
    const isRepeatable = revoke.not_before != null;
    return this.#send('POST', path`/v1/users/${user}/revoke`, options, { body: revoke, isRepeatable });
  }

  /** Compares a reader's inbox with one that is newly built. */
  async verifyFeed(user: string, options: RequestOptions = {}): Promise<T.Verdict> {
    return this.#send('POST', path`/v1/users/${user}/feed/verify`, options);
  }

  /** Replaces a reader's inbox by one that is newly built. */
  async rebuildFeed(user: string, options: RequestOptions = {}): Promise<T.Verdict> {
    return this.#send('POST', path`/v1/users/${user}/feed/rebuild`, options);
  }

  /** Figures of the server. `inboxes`: those of inboxes too, which takes a walk over all of them. */
  async stats(options: RequestOptions & { inboxes?: boolean } = {}): Promise<T.Stats> {
    const { inboxes, ...rest } = options;
    return this.#send('GET', '/v1/stats', rest, { query: { inboxes: inboxes ? 'count' : undefined } });
  }

  /**
   * The figures of the last hour, a sample for every 5 s, in columns of equal length. With `since`, the `next` of the answer
   * before, only newer samples; if they are a `reset`, forget the earlier ones.
   */
  async statsHistory(options: RequestOptions & { since?: string } = {}): Promise<T.History> {
    const { since, ...rest } = options;
    return this.#send('GET', '/v1/stats/history', rest, { query: { since } });
  }

  /**
   * Users, tags and topics by the beginning of their ids: the one that is equal, then awake ones, then those with most
   * followers. All ids are examined, for at most 100 ms; `complete` says whether that was enough.
   */
  async findSources(
    options: RequestOptions & {
      /** Without it, some readers who are awake. */ prefix?: string;
      kind?: 'user' | 'tag' | 'topic';
      /** 20, at most 50. */ limit?: number;
    } = {},
  ): Promise<T.FoundSources> {
    const { prefix, kind, limit, ...rest } = options;
    return this.#send('GET', '/v1/sources', rest, { query: { prefix, kind, limit } });
  }

  /** How a post reached its readers, times in microseconds, and who reposted it. Null is what is not known, or not yet. */
  async fanout(post: string, options: RequestOptions = {}): Promise<T.PostFanout> {
    return this.#send('GET', path`/v1/posts/${post}/fanout`, options);
  }

  /** The last slow requests (`--slow-log` of the server), and how often each key was used. */
  async operations(options: RequestOptions = {}): Promise<T.Operations> {
    return this.#send('GET', '/v1/operations', options);
  }

  /** The nodes of the cluster. Refused with `no_cluster` by a server that is in none. */
  async cluster(
    options: RequestOptions & {
      digest?: boolean;
      /** Waits until posts up to here are delivered. */ delivered?: number;
    } = {},
  ): Promise<T.Cluster> {
    const { digest, delivered, ...rest } = options;
    return this.#send('GET', '/v1/cluster', rest, { query: { digest, delivered } });
  }

  /** Takes a snapshot now. */
  async takeSnapshot(options: RequestOptions = {}): Promise<T.Snapshot> {
    return this.#send('POST', '/v1/snapshots', options, { isRepeatable: false });
  }

  /** Whether the server is ready for reads. */
  async isReady(
    options: RequestOptions & {
      /** Whether it also accepts writes, which a server with a full disk does not. */ writes?: boolean;
    } = {},
  ): Promise<boolean> {
    const { writes, ...rest } = options;
    try {
      await this.#send('GET', '/readyz', { retries: 0, ...rest }, { query: { for: writes ? 'writes' : undefined } });
      return true;
    } catch (error) {
      if (error instanceof TidewireError) return false;
      throw error;
    }
  }

  /** The metrics of the server, as Prometheus reads them. */
  async metrics(options: RequestOptions = {}): Promise<string> {
    const request: Request = { method: 'GET', path: '/metrics', isRepeatable: true, options };
    return (await this.#http.send(request, (response) => response.text())).value;
  }

  async #page<B>(path: string, { limit, before, after, fields, ...options }: PageOptions): Promise<T.Page<B>> {
    return this.#send('GET', path, options, { query: { limit, before, after, fields } });
  }

  async #list<L>(path: string, { limit, cursor, ...options }: ListOptions, more: Request['query'] = {}): Promise<L> {
    return this.#send('GET', path, options, { query: { limit, cursor, ...more } });
  }

  async #send<Answer>(
    method: Request['method'],
    path: string,
    options: ReadOptions & WriteOptions,
    { query, ...more }: Partial<Request> = {},
  ): Promise<Answer> {
    const { afterSequence, delivered } = options;
    const { value } = await this.#http.json<Answer>({
      method,
      path,
      query: { ...query, wait: delivered ? 'delivered' : undefined },
      headers: afterSequence === undefined ? {} : { 'Tidewire-After': String(afterSequence) },
      isRepeatable: true,
      options,
      ...more,
    });
    return value;
  }
}

import { readChanges, type ChangeOf, type ChangeType } from './changes.js';
import { TidewireError } from './error.js';
import { Http, path, type Answer, type Request } from './http.js';
import { newPostId } from './ids.js';
import { Feed, type FeedOptions } from './live/feed.js';
import type {
  ChangesOptions,
  ClientOptions,
  IdFields,
  ListOptions,
  PageOptions,
  PostOptions,
  ReadOptions,
  FeedWalkOptions,
  RepliesOptions,
  RepliesWalkOptions,
  RepostsOptions,
  RepostsWalkOptions,
  RequestOptions,
  WalkOptions,
  WriteOptions,
} from './options.js';
import { row, rows, texts, type Shape } from './shapes.js';
import type * as T from './types.js';
import { walkFeed, walkList, type Walk } from './walks.js';

/** A published post of a batch, or the reason why it was refused. The post has only these fields; `getPosts` reads the rest. */
export type BatchResult =
  | { post: Pick<T.Post, 'id' | 'external_id' | 'author' | 'published_at'>; created: boolean; error?: never }
  | { error: TidewireError };
/** One of many feeds: its page, or the reason why it was refused. */
export type FeedResult<Body> = (T.FeedOfUser<Body> & { error?: never }) | { user: string; error: TidewireError };
/** An edge to add: `follower` follows `source`. */
export type NewFollow = NonNullable<T.FollowsRequest['follows']>[number];
/** An edge to remove. */
export type Unfollow = NonNullable<T.FollowsRequest['unfollows']>[number];

const POST_FIELDS = 'id, external_id, published_at, tags, topic, repost_of, reply_to, kind';
const POST: Shape<T.NewPost> = { needed: ['author', 'body'], words: `{ author, body } and optionally ${POST_FIELDS}` };
const EDGE = { needed: ['follower', 'source'] } as const;
const FOLLOW: Shape<NewFollow> = { ...EDGE, words: '{ follower, source } and optionally hidden, backfill' };
const UNFOLLOW: Shape<Unfollow> = { ...EDGE, words: '{ follower, source }' };

function hasId(post: T.NewPost): boolean {
  return post.id != null || post.external_id != null;
}

function identified<Body>(post: T.NewPost<Body>): T.NewPost<Body> {
  return hasId(post) ? post : { ...post, id: newPostId() };
}

/**
 * A client of a Tidewire server, or of the nodes of a cluster.
 *
 *     const tidewire = new Tidewire<{ text: string }>({ server: 'http://localhost:8080' });
 *     await tidewire.follow('ann', 'bob');
 *     await tidewire.publish({ author: 'bob', body: { text: 'hello' } });
 *     for await (const { post } of tidewire.iterFeed('ann')) console.log(post.author, post.body.text);
 *
 * All calls fail with a `TidewireError` when they are refused or get no response, and with the reason of their signal when that
 * ends them. `Body` is the type of the bodies of posts, which is not checked.
 */
export class Tidewire<Body = unknown> {
  readonly #options: ClientOptions;
  readonly #http: Http;

  constructor(options: ClientOptions = {}) {
    // In the Python client, the first argument is the URL itself.
    row('options', options, { needed: [], words: '{ server, token }' });
    this.#options = options;
    this.#http = new Http(options);
  }

  /** In a cluster: the sequence up to which all completed writes of this client are applied. See `afterSequence`. */
  get sequence(): number {
    return this.#http.sequence;
  }

  // Posts

  /**
   * Publishes a post. The client generates an id unless it has one or an external id, so that it is published once even if it is sent
   * twice. Refused with `post_id_taken` if a post with other content has this id. With a user's token the server chooses the
   * id, and a post without a response is not sent again, unless the client has `tokenPostIds: 'user'`.
   */
  async publish(post: T.NewPost<Body>, options: WriteOptions = {}): Promise<T.Post<Body>> {
    const isRepeatable = hasId(row('post', post, POST)) || !(await this.#http.doesServerChooseIds(options.signal));
    const body = isRepeatable ? identified(post) : post;
    return this.#send('POST', '/v1/posts', options, { body, isRepeatable });
  }

  /** Publishes up to 1,000 posts in their order, and returns a result for each, in the same order. Needs a server key. */
  async publishMany(posts: Iterable<T.NewPost<Body>>, options: WriteOptions = {}): Promise<BatchResult[]> {
    const all = rows('posts', posts, POST).map(identified);
    const more = { body: { posts: all } };
    const { value, requestId } = await this.#ask<T.PostsAnswer<Body>>('POST', '/v1/posts/batch', options, more);
    return value.posts.map((each) =>
      'problem' in each ? { error: new TidewireError(each.problem, { requestId }) } : each,
    );
  }

  /** Publishes a repost. `body` is an optional comment. */
  async repost(
    user: string,
    post: string,
    more: Partial<Pick<T.NewPost<Body>, 'body' | 'id' | 'external_id' | 'published_at'>> = {},
    options: WriteOptions = {},
  ): Promise<T.Post<Body | null>> {
    return this.publish({ body: null as Body, ...more, author: user, repost_of: post }, options);
  }

  /**
   * A post by its id, or `ext:` and its external id; also hidden posts and reposts, whose body may be null. Refused with
   * `unknown_post`, or `post_deleted`.
   */
  getPost(id: string, options: PostOptions & { fields: IdFields }): Promise<T.Post<undefined>>;
  getPost(id: string, options?: PostOptions): Promise<T.Post<Body | null>>;
  async getPost(id: string, { fields, ...options }: PostOptions = {}): Promise<T.Post<any>> {
    return this.#send('GET', path`/v1/posts/${id}`, options, { query: { fields } });
  }

  /** Up to 100 posts, in the order of the ids; `missing` lists the ids of unknown and deleted ones. */
  getPosts(ids: Iterable<string>, options: PostOptions & { fields: IdFields }): Promise<T.PostList<undefined>>;
  getPosts(ids: Iterable<string>, options?: PostOptions): Promise<T.PostList<Body | null>>;
  async getPosts(ids: Iterable<string>, { fields, ...options }: PostOptions = {}): Promise<T.PostList<any>> {
    return this.#send('GET', '/v1/posts', options, { query: { ids: texts('ids', ids).join(), fields } });
  }

  /**
   * A page of all posts, by ascending id, including hidden ones and reposts. `next` is the `after` of the next page. To build an
   * index of all posts, read all pages, then the changes after the smallest `sequence` of them. Needs a server key.
   */
  async listPosts(
    options: RequestOptions & {
      /** Only posts with larger ids. */ after?: string | null;
      /** Up to 1,000 [default: 100]. */ limit?: number;
    } = {},
  ): Promise<T.PostsPage<Body | null>> {
    const { after, limit, ...rest } = options;
    return this.#send('GET', '/v1/posts/all', rest, { query: { after: after ?? undefined, limit } });
  }

  /** Replaces the body of a post, hides it or unhides it. */
  async editPost(id: string, change: T.PostChange<Body>, options: WriteOptions = {}): Promise<T.Post<Body>> {
    return this.#send('PATCH', path`/v1/posts/${id}`, options, { body: change });
  }

  /** Deletes a post, if it exists. */
  async deletePost(id: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/posts/${id}`, options);
  }

  // Following

  /** Makes a user follow another one, a `tag:NAME`, a `topic:NAME` or the replies to a post, `replies:POST`. `created` is false if the follow existed. */
  async follow(user: string, source: string, options: WriteOptions & T.FollowOptions = {}): Promise<T.Put> {
    const { hidden, backfill, ...rest } = options;
    const body = { hidden, backfill };
    return this.#send('PUT', path`/v1/users/${user}/following/${source}`, rest, { body });
  }

  /** Ends a follow. `keep`: posts that it brought stay in the feed. */
  async unfollow(user: string, source: string, options: WriteOptions & { keep?: boolean } = {}): Promise<void> {
    const { keep, ...rest } = options;
    return this.#send('DELETE', path`/v1/users/${user}/following/${source}`, rest, { query: { keep } });
  }

  /** Adds up to 10,000 edges, then removes `unfollows`, atomically. Refused with `errors`, one for each invalid edge. */
  async followMany(
    follows: Iterable<NewFollow> = [],
    options: WriteOptions & { unfollows?: Iterable<Unfollow> } = {},
  ): Promise<T.Followed> {
    const { unfollows, ...rest } = options;
    const removed = unfollows && rows('unfollows', unfollows, UNFOLLOW);
    const body = { follows: rows('follows', follows, FOLLOW), unfollows: removed };
    return this.#send('POST', '/v1/follows', rest, { body });
  }

  /** The sources that a user follows, newest first; with `hidden` the hidden follows instead, for server keys. */
  iterFollowing(user: string, options: WalkOptions & { hidden?: boolean } = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.following(user, part), options);
  }

  async following(user: string, options: ListOptions & { hidden?: boolean } = {}): Promise<T.SourceList> {
    const { hidden, ...rest } = options;
    return this.#list(path`/v1/users/${user}/following`, rest, { hidden });
  }

  /** The followers of a source, newest first. */
  iterFollowers(source: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.followers(source, part), options);
  }

  async followers(source: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${source}/followers`, options);
  }

  // Feeds

  /** The entries of a reader's home feed, newest first, down to the oldest. */
  iterFeed(user: string, options: FeedWalkOptions & { fields: IdFields }): Walk<T.Item<undefined>>;
  iterFeed(user: string, options?: FeedWalkOptions): Walk<T.Item<Body>>;
  iterFeed(user: string, options: FeedWalkOptions = {}): Walk<T.Item<any>> {
    return walkFeed((part) => this.feed(user, part), options);
  }

  /** A page of a reader's home feed. */
  feed(user: string, options: PageOptions & { fields: IdFields }): Promise<T.Page<undefined>>;
  feed(user: string, options?: PageOptions): Promise<T.Page<Body>>;
  async feed(user: string, options: PageOptions = {}): Promise<T.Page<any>> {
    return this.#page(path`/v1/users/${user}/feed`, options);
  }

  /** The newest page or the refusal of each of up to 100 readers, in the order of `users`. */
  feeds(
    users: Iterable<string>,
    options: ReadOptions & Pick<PageOptions, 'limit'> & { fields: IdFields },
  ): Promise<FeedResult<undefined>[]>;
  feeds(
    users: Iterable<string>,
    options?: ReadOptions & Pick<PageOptions, 'limit' | 'fields'>,
  ): Promise<FeedResult<Body>[]>;
  async feeds(
    users: Iterable<string>,
    options: ReadOptions & Pick<PageOptions, 'limit' | 'fields'> = {},
  ): Promise<FeedResult<any>[]> {
    const { limit, fields, ...rest } = options;
    const body = { users: texts('users', users), limit, fields };
    const { value, requestId } = await this.#ask<T.FeedsAnswer<Body>>('POST', '/v1/feeds', rest, { body });
    return value.feeds.map((each) =>
      'problem' in each ? { user: each.user, error: new TidewireError(each.problem, { requestId }) } : each,
    );
  }

  /** The posts of a source, newest first. */
  iterPostsOf(source: string, options: FeedWalkOptions & { fields: IdFields }): Walk<T.Item<undefined>>;
  iterPostsOf(source: string, options?: FeedWalkOptions): Walk<T.Item<Body>>;
  iterPostsOf(source: string, options: FeedWalkOptions = {}): Walk<T.Item<any>> {
    return walkFeed((part) => this.postsOf(source, part), options);
  }

  /** A page of the posts of a source. */
  postsOf(source: string, options: PageOptions & { fields: IdFields }): Promise<T.Page<undefined>>;
  postsOf(source: string, options?: PageOptions): Promise<T.Page<Body>>;
  async postsOf(source: string, options: PageOptions = {}): Promise<T.Page<any>> {
    return this.#page(path`/v1/users/${source}/posts`, options);
  }

  /** The replies to a post, newest first. */
  iterReplies(post: string, options: RepliesWalkOptions & { fields: IdFields }): Walk<T.Item<undefined>>;
  iterReplies(post: string, options?: RepliesWalkOptions): Walk<T.Item<Body>>;
  iterReplies(post: string, options: RepliesWalkOptions = {}): Walk<T.Item<any>> {
    const { reader, ...rest } = options;
    return walkFeed((part) => this.replies(post, { ...part, reader }), rest);
  }

  /** A page of the replies to a post; for a reader, without those hidden by mutes and blocks. */
  replies(post: string, options: RepliesOptions & { fields: IdFields }): Promise<T.Page<undefined>>;
  replies(post: string, options?: RepliesOptions): Promise<T.Page<Body>>;
  async replies(post: string, options: RepliesOptions = {}): Promise<T.Page<any>> {
    const { reader, ...rest } = options;
    return this.#page(path`/v1/posts/${post}/replies`, rest, { reader });
  }

  /** The reposts of a post, newest first. */
  iterReposts(post: string, { reader, ...options }: RepostsWalkOptions = {}): Walk<T.RepostPage['items'][number]> {
    return walkList(({ cursor, ...part }) => this.reposts(post, { ...part, before: cursor, reader }), options);
  }

  /** A page of the reposts of a post; for a reader, without those hidden by mutes and blocks. */
  async reposts(post: string, { limit, before, reader, ...options }: RepostsOptions = {}): Promise<T.RepostPage> {
    return this.#send('GET', path`/v1/posts/${post}/reposts`, options, { query: { limit, before, reader } });
  }

  /** Why a post is, or is not, in a reader's feed. */
  async explain(user: string, post: string, options: ReadOptions = {}): Promise<T.Explanation> {
    return this.#send('GET', path`/v1/users/${user}/feed/explain/${post}`, options);
  }

  /** A reader's live home feed. Add listeners, then `start()` it. */
  watch(user: string, options: Omit<FeedOptions, 'user' | 'server' | 'token'> = {}): Feed<Body> {
    const { fetch } = this.#options;
    return new Feed<Body>({ fetch, ...options, user, server: this.#http.servers, token: this.#options.token });
  }

  // A reader's mutes, blocks, rules and marker

  /** Hides all posts of a source from a reader. */
  async mute(user: string, source: string, options: WriteOptions = {}): Promise<T.Put> {
    return this.#send('PUT', path`/v1/users/${user}/mutes/${source}`, options);
  }

  async unmute(user: string, source: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/mutes/${source}`, options);
  }

  iterMutes(user: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.mutes(user, part), options);
  }

  async mutes(user: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${user}/mutes`, options);
  }

  /** Mutes, removes the follows in both directions, and forbids new ones. */
  async block(user: string, source: string, options: WriteOptions = {}): Promise<T.Put> {
    return this.#send('PUT', path`/v1/users/${user}/blocks/${source}`, options);
  }

  async unblock(user: string, source: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/blocks/${source}`, options);
  }

  iterBlocks(user: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.blocks(user, part), options);
  }

  async blocks(user: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${user}/blocks`, options);
  }

  async rules(user: string, options: ReadOptions = {}): Promise<T.Rules> {
    return this.#send('GET', path`/v1/users/${user}/rules`, options);
  }

  /** Changes the given rules. Returns all of them. */
  async changeRules(user: string, change: T.RulesPatch, options: WriteOptions = {}): Promise<T.Rules> {
    return this.#send('PATCH', path`/v1/users/${user}/rules`, options, { body: change });
  }

  /** The read marker of a reader, and the number of unread entries. */
  async marker(user: string, options: ReadOptions = {}): Promise<T.Marker> {
    return this.#send('GET', path`/v1/users/${user}/marker`, options);
  }

  /** Marks all as read up to a page's `newest` or an entry's `cursor`. */
  async setMarker(user: string, cursor: string, options: WriteOptions = {}): Promise<T.Marker> {
    return this.#send('PUT', path`/v1/users/${user}/marker`, options, { body: { cursor } });
  }

  // A reader's lists

  /** The lists of a reader. */
  iterLists(user: string, options: WalkOptions = {}): Walk<T.ListOfLists['items'][number]> {
    return walkList((part) => this.lists(user, part), options);
  }

  async lists(user: string, options: ListOptions = {}): Promise<T.ListOfLists> {
    return this.#list(path`/v1/users/${user}/lists`, options);
  }

  /** Adds a source to a list, which the first member creates. */
  async addMember(user: string, list: string, source: string, options: WriteOptions = {}): Promise<T.Put> {
    return this.#send('PUT', path`/v1/users/${user}/lists/${list}/members/${source}`, options);
  }

  async removeMember(user: string, list: string, source: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/lists/${list}/members/${source}`, options);
  }

  async deleteList(user: string, list: string, options: WriteOptions = {}): Promise<void> {
    return this.#send('DELETE', path`/v1/users/${user}/lists/${list}`, options);
  }

  iterMembers(user: string, list: string, options: WalkOptions = {}): Walk<T.SourceList['items'][number]> {
    return walkList((part) => this.members(user, list, part), options);
  }

  async members(user: string, list: string, options: ListOptions = {}): Promise<T.SourceList> {
    return this.#list(path`/v1/users/${user}/lists/${list}/members`, options);
  }

  /** The entries of a list's feed, newest first. */
  iterListFeed(user: string, list: string, options: FeedWalkOptions & { fields: IdFields }): Walk<T.Item<undefined>>;
  iterListFeed(user: string, list: string, options?: FeedWalkOptions): Walk<T.Item<Body>>;
  iterListFeed(user: string, list: string, options: FeedWalkOptions = {}): Walk<T.Item<any>> {
    return walkFeed((part) => this.listFeed(user, list, part), options);
  }

  /** A page of a list's feed. */
  listFeed(user: string, list: string, options: PageOptions & { fields: IdFields }): Promise<T.Page<undefined>>;
  listFeed(user: string, list: string, options?: PageOptions): Promise<T.Page<Body>>;
  async listFeed(user: string, list: string, options: PageOptions = {}): Promise<T.Page<any>> {
    return this.#page(path`/v1/users/${user}/lists/${list}/feed`, options);
  }

  // Changes

  /**
   * All changes that the server accepts, in order, at least once, from any place on. It stays connected, resumes after a lost
   * connection or a restart, and ends with `break` or by its signal:
   *
   *     for await (const change of tidewire.changes({ after: await stored(), types: ['published', 'deleted'] })) {
   *       if (change.type !== 'reached') await handle(change);
   *       await store(change.place);
   *     }
   *
   * Store a place after you have processed everything up to it. Fails with `gone` if the server no longer has the next
   * event, and with any other permanent refusal. Needs a server key.
   */
  changes<Type extends ChangeType = ChangeType>(options: ChangesOptions<Type> = {}): Walk<ChangeOf<Body, Type>> {
    return readChanges<Body, Type>(this.#http, options);
  }

  /** The registered consumers of changes, each with the last event that it has processed. */
  async changeConsumers(options: RequestOptions = {}): Promise<T.ChangeConsumer[]> {
    return (await this.#send<T.ChangeConsumers>('GET', '/v1/changes/consumers', options)).items;
  }

  /**
   * Registers a consumer that has processed all changes up to `sequence`, by default up to the current end, or moves it there. The
   * server then retains later changes, up to its `--changes-retention-bytes`.
   */
  async setChangeConsumer(
    name: string,
    position: T.ChangeConsumerPosition = {},
    options: RequestOptions = {},
  ): Promise<T.ChangeConsumer> {
    return this.#send('PUT', path`/v1/changes/consumers/${name}`, options, { body: position });
  }

  /** Removes a consumer. The server no longer retains changes for it. */
  async removeChangeConsumer(name: string, options: RequestOptions = {}): Promise<void> {
    await this.#send('DELETE', path`/v1/changes/consumers/${name}`, options);
  }

  // Users and the server

  /** Counts of a source. */
  async getUser(id: string, options: ReadOptions = {}): Promise<T.User> {
    return this.#send('GET', path`/v1/users/${id}`, options);
  }

  /** Erases a user permanently. False: it is in progress; repeat the call until it is complete. */
  async eraseUser(id: string, options: RequestOptions = {}): Promise<boolean> {
    return (await this.#send<T.Erasure | undefined>('DELETE', path`/v1/users/${id}`, options)) === undefined;
  }

  /** Refuses a user's tokens that were issued before now, or before `not_before`, and ends connections with them. */
  async revokeTokens(user: string, revoke: T.Revoke = {}, options: RequestOptions = {}): Promise<T.Revoked> {
    const isRepeatable = revoke.not_before != null;
    return this.#send('POST', path`/v1/users/${user}/revoke`, options, { body: revoke, isRepeatable });
  }

  /** All stored data of a user, in memory. Needs a server key. Set a longer `timeoutMs` for a user with many posts or followers. */
  async userData(user: string, options: RequestOptions = {}): Promise<T.UserData> {
    return this.#send('GET', path`/v1/users/${user}/data`, options);
  }

  /** Compares a reader's inbox with a newly built one. */
  async verifyFeed(user: string, options: RequestOptions = {}): Promise<T.Verdict> {
    return this.#send('POST', path`/v1/users/${user}/feed/verify`, options);
  }

  /** Replaces a reader's inbox with a newly built one. */
  async rebuildFeed(user: string, options: RequestOptions = {}): Promise<T.Verdict> {
    return this.#send('POST', path`/v1/users/${user}/feed/rebuild`, options);
  }

  /** Statistics of the server, or of a node of its cluster. `inboxes: 'count'` also counts inboxes, which takes a walk over them. */
  async stats(options: RequestOptions & { inboxes?: 'count'; node?: string } = {}): Promise<T.Stats> {
    const { inboxes, node, ...rest } = options;
    return this.#send('GET', '/v1/stats', rest, { query: { inboxes, node } });
  }

  /**
   * Samples of statistics, every 5 s of the last hour, or every two minutes of the last day, in columns of
   * equal length. With `since`, the `next` of the previous response, only newer samples; if these have `reset`, discard the
   * earlier ones.
   */
  async statsHistory(
    options: RequestOptions & { span?: 'hour' | 'day'; since?: string; node?: string } = {},
  ): Promise<T.History> {
    const { span, since, node, ...rest } = options;
    return this.#send('GET', '/v1/stats/history', rest, { query: { span, since, node } });
  }

  /**
   * Sources by the beginning of their ids: an exact match first, then awake ones, then those with most
   * followers. The server examines all ids, for at most 100 ms; `complete` is false if that was not enough.
   */
  async findSources(
    options: RequestOptions & {
      /** Without it, some awake readers. */ prefix?: string;
      kind?: 'user' | 'tag' | 'topic';
      /** Up to 50 [default: 20]. */ limit?: number;
    } = {},
  ): Promise<T.FoundSources> {
    const { prefix, kind, limit, ...rest } = options;
    return this.#send('GET', '/v1/sources', rest, { query: { prefix, kind, limit } });
  }

  /** All users by ascending id, or those whose ids begin with `prefix`. A user who appears meanwhile may be missing. */
  iterUsers(options: WalkOptions & { prefix?: string } = {}): Walk<T.FoundSource> {
    return walkList((part) => this.listUsers(part), options);
  }

  /** A page of all users by ascending id: 100, at most 1,000. Needs a server key. */
  async listUsers(options: ListOptions & { prefix?: string } = {}): Promise<T.UserList> {
    const { prefix, ...rest } = options;
    return this.#list('/v1/users', rest, { prefix });
  }

  /** The fan-out of a post, with times in microseconds, and its reposts. Unknown values are null. */
  async fanout(post: string, options: RequestOptions = {}): Promise<T.PostFanout> {
    return this.#send('GET', path`/v1/posts/${post}/fanout`, options);
  }

  /** The last slow (`--slow-log` of the server) and refused requests, and the use of each key. */
  async operations(options: RequestOptions & { node?: string } = {}): Promise<T.Operations> {
    const { node, ...rest } = options;
    return this.#send('GET', '/v1/operations', rest, { query: { node } });
  }

  /** The nodes of the cluster. A server without a cluster refuses it with `no_cluster`. */
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

  /** True if the server is ready for reads. */
  async isReady(
    options: RequestOptions & {
      /** Also requires that it accepts writes, which it refuses while the disk is full. */ writes?: boolean;
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

  /** The metrics of the server, in the format of Prometheus. */
  async metrics(options: RequestOptions = {}): Promise<string> {
    const request: Request = { method: 'GET', path: '/metrics', isRepeatable: true, options };
    return (await this.#http.send(request, (response) => response.text())).value;
  }

  async #page<B>(
    path: string,
    { limit, before, after, fields, ...options }: PageOptions,
    more: Request['query'] = {},
  ): Promise<T.Page<B>> {
    return this.#send('GET', path, options, { query: { limit, before, after, fields, ...more } });
  }

  async #list<L>(path: string, { limit, cursor, ...options }: ListOptions, more: Request['query'] = {}): Promise<L> {
    return this.#send('GET', path, options, { query: { limit, cursor, ...more } });
  }

  async #send<Value>(
    method: Request['method'],
    path: string,
    options: ReadOptions & WriteOptions,
    more?: Partial<Request>,
  ): Promise<Value> {
    return (await this.#ask<Value>(method, path, options, more)).value;
  }

  #ask<Value>(
    method: Request['method'],
    path: string,
    options: ReadOptions & WriteOptions,
    { query, ...more }: Partial<Request> = {},
  ): Promise<Answer<Value>> {
    const { afterSequence, wait } = options;
    return this.#http.json<Value>({
      method,
      path,
      query: { ...query, wait },
      headers: afterSequence === undefined ? {} : { 'Tidewire-After': String(afterSequence) },
      isRepeatable: true,
      options,
      ...more,
    });
  }
}

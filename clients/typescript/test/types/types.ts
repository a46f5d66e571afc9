// What must compile, and what must not, as in a program for Node without the types of browsers.

import { Feed, Tidewire, TidewireError, newPostId, type Change, type Item, type Post, type Unfollow } from 'tidewire';
import { WebSocket } from 'ws';

interface Body {
  text: string;
}

const tidewire = new Tidewire<Body>({ server: ['http://a.example', 'http://b.example'], token: async () => 'token' });

export async function posts(): Promise<string> {
  const post: Post<Body> = await tidewire.publish({ author: 'bob', body: { text: 'one' }, id: newPostId() });
  const repost = await tidewire.repost('ann', post.id);
  // @ts-expect-error: there may be no comment
  console.log(repost.body.text);
  const { posts, next } = await tidewire.listPosts({ limit: 10 });
  await tidewire.listPosts({ after: next });
  console.log(posts[0]?.body?.text);
  // @ts-expect-error: a body of another type
  await tidewire.publish({ author: 'bob', body: { words: 'one' } });
  // @ts-expect-error: no author
  await tidewire.publish({ body: { text: 'one' } });
  // @ts-expect-error: no such field
  await tidewire.publish({ author: 'bob', body: { text: 'one' }, title: 'one' });
  // @ts-expect-error: ids are texts, since numbers of JavaScript have too few digits
  await tidewire.deletePost(7);
  // @ts-expect-error: no such kind
  await tidewire.publish({ author: 'bob', body: { text: 'one' }, kind: 'story' });
  // @ts-expect-error: not to be changed
  tidewire.sequence = 5;
  return post.body.text;
}

export async function feeds(): Promise<void> {
  for await (const { post, cursor, via } of tidewire.iterFeed('ann')) console.log(post.body.text, cursor, via.join());
  const page = await tidewire.feed('ann', { limit: 5, signal: AbortSignal.timeout(100) });
  console.log(page.items[0]?.post.body.text, page.next?.length);
  // @ts-expect-error: null where nothing is older
  console.log(page.next.length);
  const bare = await tidewire.feed('ann', { fields: 'ids' });
  // @ts-expect-error: without a body
  console.log(bare.items[0]?.post.body.text);
  for await (const { post } of tidewire.iterFeed('ann', { fields: 'ids' })) {
    // @ts-expect-error: without a body
    console.log(post.body.text);
  }
  // @ts-expect-error: no such parameter
  await tidewire.feed('ann', { offset: 3 });
  for (const one of await tidewire.feeds(['ann', 'cas'])) {
    if (one.error) console.log(one.user, one.error.retryAfter);
    else console.log(one.items.length);
    // @ts-expect-error: there may be an error in their place
    console.log(one.items.length);
  }
  for (const one of await tidewire.feeds(['ann'], { fields: 'ids' })) {
    // @ts-expect-error: without a body
    if (!one.error) console.log(one.items[0]?.post.body.text);
  }
  await tidewire.followMany([{ follower: 'ann', source: 'bob' }], { unfollows: new Set<Unfollow>() });
  // @ts-expect-error: no follower
  await tidewire.followMany([{ user: 'ann', source: 'bob' }]);
  for (const result of await tidewire.publishMany([])) {
    console.log(result.error ? result.error.code : result.post.id);
    // @ts-expect-error: the answer to a batch has no body
    if (!result.error) console.log(result.post.body);
  }
}

export async function changes(): Promise<void> {
  for await (const change of tidewire.changes({ after: 0, types: ['published', 'deleted'] })) {
    if (change.type === 'published') console.log(change.post.body?.text);
    // @ts-expect-error: a repost without a comment has none
    if (change.type === 'published') console.log(change.post.body.text);
    if (change.type === 'deleted') console.log(change.id);
    const place: string = change.place;
    tidewire.changes({ after: place });
    // @ts-expect-error: was not asked for
    if (change.type === 'erased') console.log(change);
  }
  for await (const change of tidewire.changes()) all(change);
  // @ts-expect-error: no such type
  tidewire.changes({ types: ['posted'] });
}

function all(change: Change<Body>): string {
  if (change.type !== 'missed') return change.type;
  // @ts-expect-error: without a body
  console.log(change.post.body);
  return [change.post.id, change.post.author, change.post.published_at].join();
}

export async function operators(): Promise<void> {
  const { next, page_p99_us } = await tidewire.statsHistory();
  await tidewire.statsHistory({ since: next });
  // @ts-expect-error: null where there were no pages
  console.log(page_p99_us[0].toFixed(0));
  const { items } = await tidewire.findSources({ prefix: 'an', kind: 'user' });
  console.log(items[0]?.followers);
  // @ts-expect-error: no such kind
  await tidewire.findSources({ kind: 'list' });
  const { state, pushed } = await tidewire.fanout(newPostId());
  if (state === 'delivered') console.log(pushed);
  const { keys } = await tidewire.operations();
  // @ts-expect-error: null without access control
  console.log(keys.length);
}

export function live(): readonly Item<Body>[] {
  const feed: Feed<Body> = tidewire.watch('ann', { unread: true, transport: 'sse' });
  feed.addEventListener('unread', ({ detail }) => console.log(detail.unread + 1, detail.capped));
  feed.addEventListener('marker', ({ detail }) => console.log(detail.length));
  feed.addEventListener('change', () => console.log(feed.items[0]?.post.body.text));
  const told = ({ detail }: CustomEvent<string>) => console.log(detail.length);
  feed.addEventListener('marker', told);
  feed.removeEventListener('marker', told);
  // @ts-expect-error: no number
  feed.addEventListener('marker', ({ detail }) => console.log(detail + 1 === 5));
  // @ts-expect-error: no such state
  if (feed.state === 'open') feed.stop();
  tidewire.watch('ann', { WebSocket });
  // @ts-expect-error: no class of WebSockets
  tidewire.watch('ann', { WebSocket: Map });
  // @ts-expect-error: a feed of nobody
  new Feed({});
  return feed.items;
}

export function refusals(error: unknown): number {
  if (!(error instanceof TidewireError)) return 0;
  if (error.code === 'following_limit' || error.field === 'author') return error.status;
  return error.isTemporary ? (error.retryAfter ?? error.requestId?.length ?? 0) : 0;
}

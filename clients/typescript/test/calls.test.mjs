// Every call against the real server.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';

import { Tidewire, newPostId } from 'tidewire';
import { WebSocket } from 'ws';

import { Server, until } from './server.mjs';

// Operations that a client does not have, with the reason: one list for all clients of this repository.
const LIST = process.env.TIDEWIRE_WITHOUT_METHOD ?? new URL('../../without-method.json', import.meta.url);

let server, tidewire;
const called = new Set();
const requested = new Set();

before(async () => {
  server = await Server.start();
  tidewire = watched(new Tidewire({ server: `${server.origin}/`, fetch: noted }));
});

/** Sends a request, and notes what it asked for. */
function noted(url, init) {
  requested.add(`${init.method ?? 'GET'} ${new URL(url).pathname}`);
  return fetch(url, init);
}

class NotedSocket extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols);
    requested.add(`GET ${new URL(url).pathname}`);
  }
}

after(() => server?.stop());

/** The client, and which of its methods are called. */
function watched(client) {
  return new Proxy(client, {
    get(_, name) {
      called.add(name);
      const value = client[name];
      return typeof value === 'function' ? value.bind(client) : value;
    },
  });
}

async function all(walk) {
  const found = [];
  for await (const one of walk) found.push(one);
  return found;
}

const texts = (items) => items.map(({ post }) => post.body.text).join(' ');
const ids = (items) => items.map(({ id }) => id).join(' ');
const say = (author, text, more) => tidewire.publish({ author, body: { text }, ...more }, { wait: 'delivered' });

test('posts are published, read, edited, hidden and deleted', async () => {
  const post = await say('bob', 'one', { tags: ['rust'], topic: 'engines' });
  assert.match(post.id, /^\d+$/);
  assert.deepEqual([post.author, post.tags, post.topic, post.body], ['bob', ['rust'], 'engines', { text: 'one' }]);
  assert.deepEqual(await tidewire.getPost(post.id), post);
  const edited = await tidewire.editPost(post.id, { body: { text: 'two' } });
  assert.deepEqual([edited.body.text, typeof edited.edited_at], ['two', 'string']);
  assert.equal((await tidewire.editPost(post.id, { hidden: true })).hidden, true);
  assert.equal(await tidewire.deletePost(post.id), undefined);
  await tidewire.deletePost(post.id);
  await assert.rejects(tidewire.getPost(post.id), { name: 'TidewireError', status: 404 });
});

test('a post with the same id is published once', async () => {
  const id = newPostId();
  const first = await say('ida', 'one', { id });
  assert.deepEqual(await say('ida', 'one', { id }), first);
  assert.equal((await all(tidewire.iterPostsOf('ida'))).length, 1);
});

test('a post is named by the id that another system gave to it', async () => {
  const external_id = crypto.randomUUID();
  const name = `ext:${external_id}`;
  const post = await say('uma', 'one', { external_id });
  assert.equal(post.external_id, external_id);
  assert.deepEqual(await say('uma', 'one', { external_id }), post);
  const reply = await say('uma', 'two', { reply_to: name, external_id: null });
  assert.equal(reply.reply_to, post.id);
  const [again, { post: other }] = await tidewire.publishMany([
    { author: 'uma', body: { text: 'one' }, external_id },
    { author: 'uma', body: { text: 'three' }, external_id: crypto.randomUUID() },
  ]);
  assert.deepEqual([again.created, again.post.external_id], [false, external_id]);
  assert.deepEqual((await tidewire.getPosts([name, 'ext:none'])).missing, ['ext:none']);
  assert.deepEqual((await tidewire.replies(name)).items[0].post.id, reply.id);
  assert.equal((await tidewire.feed('uma', { fields: 'ids' })).items[0].post.external_id, other.external_id);
  await tidewire.deletePost(name);
  await assert.rejects(tidewire.getPost(name), { code: 'unknown_post' });
});

test('a repost brings the original, and is withdrawn by its deletion', async () => {
  const post = await say('cas', 'original');
  await tidewire.follow('ann-r', 'bob-r');
  const repost = await tidewire.repost('bob-r', post.id, {}, { wait: 'delivered' });
  const [item] = await all(tidewire.iterFeed('ann-r'));
  assert.deepEqual([item.post.id, item.reposts[0].user, item.reposts[0].post], [post.id, 'bob-r', repost.id]);
  await tidewire.deletePost(repost.id);
  assert.deepEqual(await all(tidewire.iterFeed('ann-r')), []);
});

test('each post of a batch is answered by itself', async () => {
  const id = newPostId();
  const answers = await tidewire.publishMany([
    { author: 'bat', body: { text: 'one' }, id },
    { author: 'bat', body: { text: 'one' }, id },
    { author: 'bat', body: { text: 'other' }, id },
    { author: 'bat', body: { text: 'two' } },
  ]);
  assert.deepEqual(
    answers.map(({ created, error }) => error?.code ?? created),
    [true, false, 'post_id_taken', true],
  );
  // As its type says.
  assert.deepEqual(Object.keys(answers[0].post).sort(), ['author', 'id', 'published_at']);
  const read = await tidewire.getPosts([answers[3].post.id, id, '1']);
  assert.deepEqual([read.posts.map(({ body }) => body.text), read.missing], [['two', 'one'], ['1']]);
});

test('all posts are listed by id, from page to page, hidden ones and reposts too', async () => {
  const hidden = await say('lil', 'hidden');
  await tidewire.editPost(hidden.id, { hidden: true });
  const repost = await tidewire.repost('lol', hidden.id);
  const found = [];
  const sequences = [];
  for (let after; after !== null;) {
    const page = await tidewire.listPosts({ after, limit: 2 });
    assert.ok(page.posts.length <= 2 && page.complete);
    found.push(...page.posts);
    sequences.push(page.sequence);
    after = page.next;
  }
  const order = found.map(({ id }) => BigInt(id));
  assert.ok(order.every((id, nth) => nth === 0 || id > order[nth - 1]));
  const of = (id) => found.find((post) => post.id === id);
  assert.deepEqual([of(hidden.id).hidden, of(repost.id).body], [true, null]);
  // What is accepted later is in the changes after the smallest sequence.
  const later = await say('lil', 'later');
  const published = [];
  const changes = tidewire.changes({ after: Math.min(...sequences), types: ['published'], follow: false });
  for await (const change of changes) if (change.type === 'published') published.push(change.post.id);
  assert.ok(published.includes(later.id));
});

test('edges are made and removed, one by one and many at once', async () => {
  assert.deepEqual(await tidewire.follow('ann', 'bob'), { created: true });
  assert.deepEqual(await tidewire.follow('ann', 'bob'), { created: false });
  await tidewire.follow('ann', 'tag:hidden', { hidden: true, backfill: 3 });
  assert.equal(ids(await all(tidewire.iterFollowing('ann'))), 'bob');
  assert.equal(ids(await all(tidewire.iterFollowing('ann', { hidden: true }))), 'tag:hidden');
  const many = Array.from({ length: 205 }, (_, nth) => ({ follower: `f${nth}`, source: 'hub' }));
  const made = await tidewire.followMany(many, { unfollows: [{ follower: 'ann', source: 'bob' }] });
  assert.deepEqual(made, { created: 205, existing: 0, removed: 1 });
  assert.equal((await all(tidewire.iterFollowers('hub'))).length, 205);
  assert.equal((await tidewire.followers('hub', { limit: 3 })).items.length, 3);
  assert.equal((await tidewire.following('f1')).items[0].id, 'hub');
  await tidewire.unfollow('f1', 'hub', { keep: true });
  assert.equal((await tidewire.getUser('hub')).followers, 204);
});

test('a feed is walked down page by page, and polled', async () => {
  await tidewire.followMany(new Set([{ follower: 'fay', source: 'gus' }]));
  const posts = Array.from({ length: 25 }, (_, nth) => ({ author: 'gus', body: { text: `${nth}` } }));
  await tidewire.publishMany(posts, { wait: 'delivered' });
  const expected = posts.map(({ body }) => body.text).reverse();
  for (const pageSize of [1, 7, 100]) {
    assert.equal(texts(await all(tidewire.iterFeed('fay', { pageSize }))), expected.join(' '));
  }
  assert.equal(texts(await all(tidewire.iterPostsOf('gus', { pageSize: 10 }))), expected.join(' '));
  const page = await tidewire.feed('fay', { limit: 2 });
  assert.equal(texts(page.items), '24 23');
  assert.equal(texts((await tidewire.feed('fay', { limit: 1, before: page.next })).items), '22');
  assert.deepEqual((await tidewire.feed('fay', { after: page.newest })).items, []);
  await say('gus', 'new');
  assert.equal(texts((await tidewire.feed('fay', { after: page.newest })).items), 'new');
  const [bare] = (await tidewire.postsOf('gus', { limit: 1, fields: 'ids' })).items;
  assert.deepEqual(Object.keys(bare.post).sort(), ['author', 'id', 'published_at']);
  const feeds = await tidewire.feeds(['fay', 'nobody'], { limit: 1 });
  assert.deepEqual(
    feeds.map(({ user, items }) => [user, texts(items)]),
    [
      ['fay', 'new'],
      ['nobody', ''],
    ],
  );
});

test('the replies to a post come in pages, without those that a reader mutes', async () => {
  const { id } = await say('hal', 'what?');
  for (const author of ['ian', 'jan', 'kim']) await tidewire.publish({ author, body: { text: author }, reply_to: id });
  await tidewire.mute('hal', 'jan');
  assert.equal(texts((await tidewire.replies(id, { limit: 2 })).items), 'kim jan');
  assert.equal(texts(await all(tidewire.iterReplies(id, { pageSize: 1 }))), 'kim jan ian');
  assert.equal(texts(await all(tidewire.iterReplies(id, { pageSize: 1, reader: 'hal' }))), 'kim ian');
  await tidewire.follow('leo', `replies:${id}`);
  assert.equal(texts((await tidewire.feed('leo')).items), 'kim jan ian');
  await assert.rejects(tidewire.replies('1'), { code: 'unknown_post' });
});

test('the reposts of a post come in pages, and posts have counts', async () => {
  const { id } = await say('hal', 'again');
  await tidewire.publish({ author: 'ian', body: {}, reply_to: id });
  for (const author of ['nia', 'oto', 'pia']) await tidewire.repost(author, id);
  await tidewire.mute('hal', 'oto');
  const users = (items) => items.map(({ user }) => user).join(' ');
  const page = await tidewire.reposts(id, { limit: 2 });
  assert.equal(users(page.items), 'pia oto');
  assert.equal(page.next, page.items[1].cursor);
  assert.equal(users(await all(tidewire.iterReposts(id, { pageSize: 1 }))), 'pia oto nia');
  assert.equal(users(await all(tidewire.iterReposts(id, { pageSize: 1, reader: 'hal' }))), 'pia nia');
  const counts = { replies: 1, reposts: 3 };
  assert.deepEqual((await tidewire.getPost(id, { fields: 'counts' })).counts, counts);
  const { posts } = await tidewire.getPosts([id], { fields: 'ids,counts' });
  assert.deepEqual([posts[0].body, posts[0].counts], [undefined, counts]);
  assert.deepEqual((await tidewire.postsOf('hal', { fields: 'counts', limit: 1 })).items[0].post.counts, counts);
  await assert.rejects(tidewire.reposts('1'), { code: 'unknown_post' });
});

test('it is explained why a post is shown', async () => {
  await tidewire.follow('eve', 'dan');
  const post = await say('dan', 'seen');
  const { shown, reasons } = await tidewire.explain('eve', post.id);
  assert.deepEqual([shown, reasons], [true, [{ kind: 'follow', source: 'dan' }]]);
});

test('mutes and blocks are made, listed and removed', async () => {
  assert.deepEqual(await tidewire.mute('mia', 'tag:noise'), { created: true });
  assert.equal(ids(await all(tidewire.iterMutes('mia'))), 'tag:noise');
  assert.equal(ids((await tidewire.mutes('mia')).items), 'tag:noise');
  await tidewire.unmute('mia', 'tag:noise');
  assert.deepEqual(await all(tidewire.iterMutes('mia')), []);
  await tidewire.block('mia', 'rod');
  assert.equal(ids(await all(tidewire.iterBlocks('mia'))), 'rod');
  assert.equal(ids((await tidewire.blocks('mia')).items), 'rod');
  await assert.rejects(tidewire.follow('rod', 'mia'), { code: 'blocked', status: 403 });
  await tidewire.unblock('mia', 'rod');
  await tidewire.follow('rod', 'mia');
});

test('rules are changed one by one', async () => {
  assert.equal((await tidewire.rules('rue')).show_own, true);
  const rules = await tidewire.changeRules('rue', { show_own: false, per_source_max: 3 });
  assert.deepEqual(await tidewire.rules('rue'), rules);
  assert.deepEqual([rules.show_own, rules.per_source_max, rules.reposts], [false, 3, true]);
});

test('the marker counts what is unread', async () => {
  await tidewire.follow('max', 'ned');
  await say('ned', 'one');
  assert.equal((await tidewire.marker('max')).unread, 1);
  const { newest } = await tidewire.feed('max');
  const marker = await tidewire.setMarker('max', newest);
  assert.deepEqual([marker.unread, marker.capped, marker.complete], [0, false, true]);
});

test('lists have members and a feed', async () => {
  await say('oda', 'listed');
  assert.deepEqual(await tidewire.addMember('lea', 'close', 'oda'), { created: true });
  await tidewire.addMember('lea', 'close', 'una');
  assert.equal(ids(await all(tidewire.iterMembers('lea', 'close', { pageSize: 1 }))).split(' ').length, 2);
  assert.equal((await tidewire.members('lea', 'close')).items.length, 2);
  assert.deepEqual(await all(tidewire.iterLists('lea')), [{ name: 'close', members: 2 }]);
  assert.equal((await tidewire.lists('lea')).items.length, 1);
  assert.equal(texts(await all(tidewire.iterListFeed('lea', 'close'))), 'listed');
  assert.equal(texts((await tidewire.listFeed('lea', 'close', { limit: 1 })).items), 'listed');
  await tidewire.removeMember('lea', 'close', 'una');
  await tidewire.deleteList('lea', 'close');
  assert.deepEqual(await all(tidewire.iterLists('lea')), []);
});

test('changes up to now, and a live feed', async () => {
  const changes = await all(tidewire.changes({ after: 0, follow: false, types: ['published'] }));
  assert.ok(changes.length > 10);
  assert.deepEqual([...new Set(changes.map(({ type }) => type))].sort(), ['published', 'reached']);
  for (const options of [{ transport: 'sse' }, { WebSocket: NotedSocket }]) {
    const feed = tidewire.watch('ann', options);
    feed.start();
    await until('the feed is live', () => feed.state === 'live');
    feed.stop();
  }
  assert.equal(typeof tidewire.sequence, 'number');
});

test('operators read and act', async () => {
  assert.equal(await tidewire.isReady(), true);
  assert.equal(await tidewire.isReady({ writes: true }), true);
  assert.equal((await tidewire.stats()).writes_refused, null);
  assert.ok((await tidewire.stats()).published > 0);
  assert.ok('inboxes' in (await tidewire.stats({ inboxes: 'count' })));
  assert.match(await tidewire.metrics(), /tidewire_/);
  await assert.rejects(tidewire.cluster(), { code: 'no_cluster', status: 404 });
  assert.ok((await tidewire.takeSnapshot()).sequence > 0);
  await tidewire.follow('vic', 'wim');
  await tidewire.feed('vic');
  assert.equal((await tidewire.verifyFeed('vic')).good, true);
  assert.equal((await tidewire.rebuildFeed('vic')).good, true);
  const not_before = '2026-01-01T00:00:00Z';
  assert.equal((await tidewire.revokeTokens('vic', { not_before })).user, 'vic');
  const data = await tidewire.userData('vic');
  assert.deepEqual(
    [data.tokens_not_before, data.following[0].id, data.posts],
    ['2026-01-01T00:00:00.000000Z', 'wim', []],
  );
  await until('vic is erased', () => tidewire.eraseUser('vic'));
  await assert.rejects(tidewire.getUser('vic'), { code: 'unknown_source' });
  await assert.rejects(tidewire.userData('vic'), { code: 'unknown_source' });
});

test('operators see the last hour, find sources, and follow a post to its readers', async () => {
  const whole = await until('a sample', async () => {
    const history = await tidewire.statsHistory();
    return history.at_seconds.length > 0 && history;
  });
  const { length } = whole.at_seconds;
  assert.deepEqual([whole.reset, whole.active.length, whole.queues.commands.depth.length], [true, length, length]);
  const newer = await tidewire.statsHistory({ since: whole.next });
  assert.ok(!newer.reset && newer.at_seconds.every((at) => at > whole.at_seconds.at(-1)));

  await tidewire.followMany(['ola', 'pam'].map((follower) => ({ follower, source: 'finder' })));
  await tidewire.feed('ola');
  const post = await say('finder', 'found');
  const repost = await tidewire.repost('pam', post.id);
  const { items, complete } = await tidewire.findSources({ prefix: 'FIND', kind: 'user', limit: 5 });
  assert.deepEqual([items.map(({ id, followers }) => [id, followers]), complete], [[['finder', 2]], true]);
  // The list may be a second old.
  const users = await until('the list of users', async () => {
    const page = await tidewire.listUsers({ prefix: 'find', limit: 1 });
    return page.items.length > 0 && page;
  });
  assert.deepEqual([ids(users.items), users.next], ['finder', null]);
  assert.deepEqual(ids(await all(tidewire.iterUsers({ prefix: 'finder', pageSize: 1 }))), 'finder');
  const fanout = await until('the end of the fan-out', async () => {
    const found = await tidewire.fanout(post.id);
    return found.state === 'delivered' && found;
  });
  assert.deepEqual([fanout.followers, fanout.awake, fanout.asleep, fanout.pushed], [2, 1, 1, 1]);
  assert.deepEqual([fanout.sources[0].route, fanout.reposts.items[0].post], ['push', repost.id]);
  const { keys, slow_requests } = await tidewire.operations();
  assert.deepEqual([keys, slow_requests.threshold_ms], [null, 1000]);
});

test('a registered consumer begins after its position, wherever that was set', async () => {
  const begun = await tidewire.setChangeConsumer('search');
  assert.equal(begun.behind, 0);
  const posts = [];
  for (const body of [1, 2]) posts.push((await tidewire.publish({ author: 'gil', body })).id);
  const read = async (options) => {
    const found = [];
    for await (const change of tidewire.changes({ types: ['published'], follow: false, ...options }))
      found.push(change);
    return found.filter(({ type }) => type === 'published');
  };
  const found = await read({ consumer: 'search' });
  assert.deepEqual(
    found.map(({ post }) => post.id),
    posts,
  );
  const moved = await tidewire.setChangeConsumer('search', { sequence: found[0].sequence });
  assert.ok(moved.behind >= 1);
  assert.deepEqual(await tidewire.changeConsumers(), [moved]);
  // Answers of one each: the second goes on after the first.
  assert.deepEqual(
    (await read({ consumer: 'search', pageSize: 1 })).map(({ post }) => post.id),
    posts.slice(1),
  );
  await tidewire.removeChangeConsumer('search');
  assert.deepEqual(await tidewire.changeConsumers(), []);
  await assert.rejects(read({ consumer: 'search' }), { code: 'unknown_consumer' });
});

test('every operation of the description is called by a method, or has a reason not to be', async () => {
  const { paths } = await (await fetch(`${server.origin}/openapi.json`)).json();
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const parameters = (operation) => operation.split('{').length;
  const operationOf = (request) =>
    described
      .filter((operation) => new RegExp(`^${operation.replace(/\{\w+\}/g, '[^/]+')}$`).test(request))
      // A path without parameters is meant, if several match.
      .sort((a, b) => parameters(a) - parameters(b))[0];
  const found = new Set([...requested].map(operationOf));
  const list = Object.entries(JSON.parse(await readFile(LIST, 'utf8')));
  const leftOut = list.filter(([, { clients, reason }]) => clients.includes('typescript') && reason);
  assert.deepEqual(
    described.filter((operation) => !found.has(operation)).sort(),
    leftOut.map(([operation]) => operation).sort(),
  );
});

test('nothing of the client was left out here', () => {
  const methods = Object.getOwnPropertyNames(Tidewire.prototype).filter((name) => name !== 'constructor');
  assert.deepEqual(
    methods.filter((name) => !called.has(name)),
    [],
  );
});

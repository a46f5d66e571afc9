// How the client stays connected: back-off, resuming, giving up.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Feed } from '../../src/console/assets/tidewire.js';

const SERVER = 'http://feeds.test:8080';
const item = (id, cursor) => ({ post: { id }, cursor });
const ids = (feed) => feed.items.map(({ post }) => post.id).join(' ');

let sockets, sources, requests, headers, answers, delays;

class FakeSocket {
  constructor(url) {
    this.url = url;
    sockets.push(this);
  }

  say(message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  end(code, reason) {
    this.onclose?.({ code, reason });
  }

  close() {
    this.isClosed = true;
  }
}

class FakeEventSource extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    sources.push(this);
  }

  say(message) {
    this.dispatchEvent(Object.assign(new Event(message.type), { data: JSON.stringify(message) }));
  }

  close() {
    this.isClosed = true;
  }
}

const page = (...items) => Response.json({ items, next: null, newest: null, partial: [] });

beforeEach(() => {
  [sockets, sources, requests, headers, answers, delays] = [[], [], [], [], [], []];
  Object.assign(globalThis, { WebSocket: FakeSocket, EventSource: FakeEventSource });
  mock.method(globalThis, 'fetch', async (url, options) => {
    requests.push(url.slice(SERVER.length));
    headers.push(options.headers);
    return (answers.shift() ?? (() => page()))();
  });
  // No test waits: delays are noted, and only those for giving up on the other side are left as they are.
  const { setTimeout } = globalThis;
  mock.method(globalThis, 'setTimeout', (run, ms) => {
    if (ms < 15_000) delays.push(ms);
    return setTimeout(run, ms < 15_000 ? 0 : ms).unref();
  });
  mock.method(Math, 'random', () => 1);
});

afterEach(() => mock.restoreAll());

/** Lets everything happen that is due: until nothing more was asked for in a while. */
async function settle() {
  for (let quiet = 0, asked = requests.length; quiet < 3; quiet++) {
    await sleep(20);
    if (requests.length !== asked) [quiet, asked] = [-1, requests.length];
  }
}

/** A feed that is live at number 0, and its socket. */
async function live(...items) {
  const feed = new Feed({ user: 'ann', server: SERVER });
  answers.push(() => page(...items));
  feed.start();
  sockets[0].say({ type: 'hello', epoch: 'e', seq: 0, recovered: false });
  await settle();
  assert.equal(feed.state, 'live');
  return { feed, socket: sockets[0] };
}

test('it connects, waits to be greeted, and then reads', async () => {
  const feed = new Feed({ user: 'tag:a b', server: SERVER, limit: 5 });
  const states = [];
  feed.addEventListener('state', () => states.push(feed.state));
  feed.start();
  await settle();
  assert.equal(sockets[0].url, 'ws://feeds.test:8080/v1/users/tag%3Aa%20b/live?batch=true');
  assert.deepEqual(requests, []);
  sockets[0].say({ type: 'hello', epoch: 'e', seq: 0, recovered: false });
  await settle();
  assert.deepEqual(requests, ['/v1/users/tag%3Aa%20b/feed?limit=5']);
  feed.stop();
  assert.deepEqual(states, ['connecting', 'live', 'stopped']);
  assert.ok(sockets[0].isClosed);
});

test('messages that overtake the first page come on top of it', async () => {
  const feed = new Feed({ user: 'ann', server: SERVER });
  let answer;
  answers.push(() => new Promise((resolve) => (answer = resolve)));
  feed.start();
  sockets[0].say({ type: 'hello', epoch: 'e', seq: 4, recovered: false });
  await settle();
  sockets[0].say({ type: 'post', seq: 5, item: item('3', 'c') });
  sockets[0].say({ type: 'remove', seq: 6, post: '1' });
  answer(page(item('2', 'b'), item('1', 'a')));
  await settle();
  assert.equal(ids(feed), '3 2');
  feed.stop();
});

test('after a drop it resumes where it was', async () => {
  const { feed, socket } = await live(item('1', 'a'));
  socket.say({ type: 'post', seq: 1, item: item('2', 'b') });
  socket.end(1006);
  assert.equal(feed.state, 'reconnecting');
  await settle();
  assert.equal(sockets[1].url, 'ws://feeds.test:8080/v1/users/ann/live?epoch=e&seq=1&batch=true');
  sockets[1].say({ type: 'hello', epoch: 'e', seq: 1, recovered: true });
  assert.equal(feed.state, 'live');
  sockets[1].say({ type: 'post', seq: 2, item: item('3', 'c') });
  assert.equal(ids(feed), '3 2 1');
  assert.equal(requests.length, 1, 'nothing was read again');
  feed.stop();
});

test('a page of a cluster is no older than what the connection began with', async () => {
  const { feed, socket } = await live(item('1', '5'));
  assert.deepEqual(headers, [{}], 'a single server has no log');
  for (const sequence of [41, 43]) {
    socket.say({ type: 'hello', epoch: `e${sequence}`, seq: 0, recovered: false, after_sequence: sequence });
    await settle();
    assert.deepEqual(headers.at(-1), { 'Tidewire-After': String(sequence) });
  }
  socket.say({ type: 'stale', seq: 1, below: null });
  await settle();
  assert.deepEqual([headers.length, headers.at(-1)], [4, { 'Tidewire-After': '43' }], 'nor is one that is read later');
  feed.stop();
});

test('after a restart of the server it reads again', async () => {
  const { feed, socket } = await live(item('1', 'a'));
  socket.end(1012);
  await settle();
  answers.push(() => page(item('9', 'i')));
  sockets[1].say({ type: 'hello', epoch: 'f', seq: 0, recovered: false });
  await settle();
  assert.equal(ids(feed), '9');
  assert.equal(feed.state, 'live');
  feed.stop();
});

test('a missing number makes it read again', async () => {
  const { feed, socket } = await live();
  socket.say({ type: 'remove', seq: 2, post: '1' });
  assert.ok(socket.isClosed);
  await settle();
  assert.equal(sockets[1].url, 'ws://feeds.test:8080/v1/users/ann/live?batch=true');
  feed.stop();
});

test('it comes back ever more slowly, up to half a minute, and at once if it was too slow', async () => {
  const { feed, socket } = await live();
  delays.length = 0;
  socket.end(4008);
  assert.deepEqual(delays, [0]);
  for (let nth = 1; nth <= 6; nth++) {
    await settle();
    sockets[nth].end(1006);
  }
  assert.deepEqual(delays.slice(1), [500, 1000, 2000, 4000, 8000]);
  feed.stop();
});

test('it says why no connection came about, while it tries again, and no more when one is there', async () => {
  const feed = new Feed({ user: 'ann', server: SERVER });
  const told = [];
  feed.addEventListener('state', () => told.push([feed.state, feed.error?.message]));
  globalThis.location = { origin: 'https://pages.test', protocol: 'https:' };
  try {
    feed.start();
    sockets[0].end(1006);
  } finally {
    delete globalThis.location;
  }
  const [[, before], [state, message]] = told;
  assert.deepEqual([before, state], [undefined, 'reconnecting']);
  for (const cause of [/cannot be reached/, /https:\/\/pages\.test.*--cors-origins/, /https cannot use/, /proxy/]) assert.match(message, cause);
  await settle();
  sockets[1].say({ type: 'hello', epoch: 'e', seq: 0, recovered: false });
  await settle();
  assert.deepEqual([feed.state, feed.error], ['live', null]);
  feed.stop();
});

test('what server it is to use is checked when it is made', () => {
  for (const server of [undefined, [], 'feeds.test', 'ftp://feeds.test', ['http://feeds.test', ''], 'http://']) {
    assert.throws(() => new Feed({ user: 'ann', server }), /^TypeError: server: /, String(server));
  }
});

test('it gives up when it is told to', async () => {
  const { feed, socket } = await live(item('1', 'a'));
  socket.end(4001);
  assert.equal(feed.state, 'stopped');
  assert.match(feed.error.message, /authentication/);
  assert.equal(ids(feed), '1');
  await settle();
  assert.equal(sockets.length, 1, 'it stays away');
});

test('a reader with too many connections is tried again later and later, as one of them may end', async () => {
  const feed = new Feed({ user: 'ann', server: ['http://one', 'http://two'] });
  feed.start();
  for (let tries = 1; tries <= 4; tries++) {
    assert.equal(sockets.length, tries);
    assert.match(sockets.at(-1).url, /one/, 'the limit is the same on every server');
    sockets.at(-1).end(4029);
    assert.equal(feed.state, 'reconnecting');
    assert.match(feed.error.message, /too many connections/);
    await settle();
  }
  sockets.at(-1).say({ type: 'hello', epoch: 'e', seq: 0, recovered: false });
  await settle();
  assert.deepEqual([feed.state, feed.error], ['live', null]);
  feed.stop();
});

test('a page is asked for again when the server is busy, no sooner than it says', async () => {
  answers.push(() => new Response('{}', { status: 503, headers: { 'Retry-After': '7' } }));
  const { feed } = await live(item('1', 'a'));
  assert.deepEqual([requests.length, delays[0], ids(feed)], [2, 7000, '1']);
  feed.stop();
});

test('a page that lacks something is asked for again, and in the end taken as it is', async () => {
  const lacking = () => Response.json({ items: [item('1', 'a')], next: null, newest: null, partial: ['bob'] });
  answers.push(lacking, lacking, lacking);
  answers.push(lacking);
  const feed = new Feed({ user: 'ann', server: SERVER });
  feed.start();
  sockets[0].say({ type: 'hello', epoch: 'e', seq: 0, recovered: false });
  await settle();
  assert.deepEqual([requests.length, ids(feed)], [4, '1']);
  feed.stop();
});

test('what is wrong with a request is said, and not tried again', async () => {
  answers.push(() => Response.json({ detail: 'user: too long' }, { status: 400 }));
  const feed = new Feed({ user: 'x'.repeat(200), server: SERVER });
  feed.start();
  sockets[0].end(1006);
  await settle();
  assert.deepEqual([feed.state, feed.error.message], ['stopped', 'user: too long']);
});

test('what can be read is shown even while nothing is live', async () => {
  const feed = new Feed({ user: 'ann', server: SERVER });
  answers.push(() => page(item('1', 'a')));
  feed.start();
  sockets[0].end(1006);
  await settle();
  assert.deepEqual([feed.state, ids(feed)], ['reconnecting', '1']);
  feed.stop();
});

test('older entries are read from where the last page ended', async () => {
  const feed = new Feed({ user: 'ann', server: SERVER, limit: 1 });
  answers.push(() => Response.json({ items: [item('2', 'b')], next: 'b', partial: [] }));
  answers.push(() => page(item('1', 'a')));
  feed.start();
  sockets[0].say({ type: 'hello', epoch: 'e', seq: 0, recovered: false });
  await settle();
  assert.ok(feed.hasMore);
  await feed.loadMore();
  assert.deepEqual([requests[1], ids(feed), feed.hasMore], ['/v1/users/ann/feed?limit=1&before=b', '2 1', false]);
  feed.stop();
});

test('how far the reader has read is reported', async () => {
  const { feed, socket } = await live();
  const told = [];
  feed.addEventListener('marker', ({ detail }) => told.push(detail));
  socket.say({ type: 'marker', seq: 1, cursor: 'c' });
  assert.deepEqual(told, ['c']);
  feed.stop();
});

test('a batch is applied in order, up to a missing number', async () => {
  const { feed, socket } = await live(item('1', 'a'));
  const post = (seq, id, cursor) => ({ type: 'post', seq, item: item(id, cursor) });
  socket.say([post(1, '2', 'b'), { type: 'remove', seq: 2, post: '1' }, post(3, '3', 'c')]);
  assert.equal(ids(feed), '3 2');
  socket.say([post(4, '4', 'd'), post(6, '6', 'f'), post(5, '5', 'e')]);
  assert.deepEqual([ids(feed), socket.isClosed, feed.state], ['4 3 2', true, 'reconnecting']);
  feed.stop();
});

test('server-sent events do as well', async () => {
  const feed = new Feed({ user: 'ann', server: SERVER, transport: 'sse' });
  feed.start();
  assert.equal(sources[0].url, `${SERVER}/v1/users/ann/events?batch=true`);
  sources[0].say({ type: 'hello', epoch: 'e', seq: 3, recovered: false });
  await settle();
  sources[0].say({ type: 'post', seq: 4, item: item('1', 'a') });
  assert.equal(ids(feed), '1');
  sources[0].onerror();
  assert.ok(sources[0].isClosed);
  await settle();
  assert.equal(sources[1].url, `${SERVER}/v1/users/ann/events?epoch=e&seq=4&batch=true`);
  feed.stop();
});

test('it can be stopped and started, in any state', async () => {
  const { feed } = await live(item('1', 'a'));
  feed.stop();
  feed.stop();
  await feed.loadMore();
  feed.start();
  assert.equal(feed.state, 'connecting');
  assert.equal(sockets[1].url, 'ws://feeds.test:8080/v1/users/ann/live?epoch=e&seq=0&batch=true');
  sockets[1].say({ type: 'hello', epoch: 'e', seq: 0, recovered: true });
  assert.deepEqual([feed.state, ids(feed)], ['live', '1']);
  feed.stop();
});

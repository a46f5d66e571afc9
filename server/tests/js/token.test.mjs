// Tokens: how the client sends them, and gets new ones.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Feed } from '../../src/console/assets/tidewire.js';

const SERVER = 'http://feeds.test:8080';
const HELLO = { type: 'hello', epoch: 'e', seq: 0, recovered: false };

let sockets, requests, answers;

class FakeSocket {
  constructor(url, protocols) {
    Object.assign(this, { url, protocols });
    sockets.push(this);
  }

  greet() {
    this.onmessage?.({ data: JSON.stringify(HELLO) });
  }

  end(code, reason) {
    this.onclose?.({ code, reason });
  }

  close() {}
}

const page = () => Response.json({ items: [], next: null, newest: null, partial: [] });
const refused = () => Response.json({ detail: 'the token has expired' }, { status: 401 });

beforeEach(() => {
  [sockets, requests, answers] = [[], [], []];
  globalThis.WebSocket = FakeSocket;
  mock.method(globalThis, 'fetch', async (url, { headers = {} } = {}) => {
    requests.push([url.slice(SERVER.length).split('?')[0], headers.Authorization]);
    return (answers.shift() ?? page)();
  });
  const { setTimeout } = globalThis;
  mock.method(globalThis, 'setTimeout', (run, ms) => setTimeout(run, ms < 15_000 ? 0 : ms).unref());
});

afterEach(() => mock.restoreAll());

const settle = () => sleep(60);

/** A function that hands out one token after the other. */
function tokens() {
  let count = 0;
  return mock.fn(async () => `t${++count}`);
}

const start = (options) => {
  const feed = new Feed({ user: 'ann', server: SERVER, ...options });
  feed.start();
  return feed;
};

test('a token goes by header, and by protocol on a WebSocket', async () => {
  const feed = start({ token: 'abc' });
  assert.deepEqual(sockets[0].protocols, ['tidewire', 'bearer.abc']);
  sockets[0].greet();
  await settle();
  assert.deepEqual([requests, feed.state], [[['/v1/users/ann/feed', 'Bearer abc']], 'live']);
  feed.stop();
});

test('without a token nothing is said of one', async () => {
  const feed = start({});
  assert.equal(sockets[0].protocols, undefined);
  sockets[0].greet();
  await settle();
  assert.equal(requests[0][1], undefined);
  feed.stop();
});

test('a function is asked once, and again when the token has expired', async () => {
  const token = tokens();
  const feed = start({ token });
  await settle();
  sockets[0].greet();
  await settle();
  assert.deepEqual([token.mock.callCount(), requests[0][1], feed.state], [1, 'Bearer t1', 'live']);
  sockets[0].end(4001);
  await settle();
  assert.deepEqual([token.mock.callCount(), sockets[1].protocols[1]], [2, 'bearer.t2']);
  sockets[1].greet();
  await settle();
  assert.deepEqual([feed.state, feed.error, sockets.length], ['live', null, 2]);
  feed.stop();
});

test('a new token that is not taken either is the end', async () => {
  const token = tokens();
  const feed = start({ token });
  await settle();
  sockets[0].end(4001);
  await settle();
  assert.deepEqual([feed.state, feed.error.message], ['stopped', 'the server requires authentication']);
  assert.deepEqual([token.mock.callCount(), sockets.length], [1, 1]);
});

test('a fixed token that has expired is the end, and the server says that it has', async () => {
  for (const [reason, code, message] of [
    ['token_expired', 'token_expired', 'the server requires authentication: token_expired'],
    ['unauthenticated: no', 'unauthenticated', 'the server requires authentication: unauthenticated: no'],
    [undefined, 'unauthenticated', 'the server requires authentication'],
  ]) {
    const feed = start({ token: 'abc' });
    sockets[0].greet();
    await settle();
    sockets[0].end(4001, reason);
    assert.deepEqual([feed.state, sockets.length], ['stopped', 1]);
    assert.deepEqual([feed.error.message, feed.error.cause], [message, { code }]);
    sockets.length = 0;
  }
});

test('a page that is refused is read again with a new token', async () => {
  const token = tokens();
  const feed = start({ token });
  await settle();
  sockets[0].greet();
  await settle();
  answers.push(refused);
  sockets[0].onmessage({ data: JSON.stringify({ ...HELLO, epoch: 'f' }) });
  await settle();
  assert.deepEqual(requests.map(([, header]) => header), ['Bearer t1', 'Bearer t1', 'Bearer t2']);
  assert.equal(feed.error, null);
  feed.stop();
});

test('a function that fails is asked again', async () => {
  let count = 0;
  const feed = start({
    token: async () => {
      if (++count < 3) throw new Error('no');
      return 'abc';
    },
  });
  await settle();
  assert.ok(count >= 3);
  assert.equal(sockets[0].protocols[1], 'bearer.abc');
  feed.stop();
});

test('a function that never answers is asked again', async () => {
  // Only what bounds the wait ends it: the test decides when.
  const waits = [];
  mock.restoreAll();
  const { setTimeout } = globalThis;
  mock.method(globalThis, 'setTimeout', (run, ms) => {
    if (ms >= 15_000) waits.push(run);
    return setTimeout(ms < 15_000 ? run : () => {}, 0).unref();
  });
  mock.method(globalThis, 'fetch', async () => page());
  let count = 0;
  const feed = start({ token: () => (++count < 3 ? new Promise(() => {}) : 'abc') });
  for (let turn = 0; turn < 6 && sockets.length === 0; turn++) {
    await settle();
    waits.splice(0).forEach((run) => run());
  }
  await settle();
  assert.equal(count, 3);
  assert.equal(sockets.at(-1)?.protocols[1], 'bearer.abc');
  feed.stop();
});

test('server-sent events with a token are read by header', async () => {
  const said = new TextEncoder().encode(`event: hello\nid: e:0\ndata: ${JSON.stringify(HELLO)}\n\n`);
  let stream;
  const body = new ReadableStream({ start: (controller) => (stream = controller) });
  answers.push(() => new Response(body), page);
  const states = [];
  const feed = new Feed({ user: 'ann', server: SERVER, token: 'abc', transport: 'sse' });
  feed.addEventListener('state', () => states.push(feed.state));
  feed.start();
  // In pieces, as the network has it.
  stream.enqueue(said.slice(0, 20));
  await settle();
  stream.enqueue(said.slice(20));
  await settle();
  assert.deepEqual(requests[0], ['/v1/users/ann/events', 'Bearer abc']);
  assert.deepEqual(states, ['connecting', 'live']);
  stream.close();
  await settle();
  assert.equal(states[2], 'reconnecting');
  feed.stop();
});

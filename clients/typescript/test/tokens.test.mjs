// Keys and tokens against a real server that asks for them.

import assert from 'node:assert/strict';
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';

import { Tidewire } from 'tidewire';
import { WebSocket } from 'ws';

import { Server, until } from './server.mjs';

const KEY = 'tidewire_a-key-of-the-server';
const SECRET = randomBytes(32);
const ACCESS = `
[[server-key]]
name = "tests"
sha256 = "${createHash('sha256').update(KEY).digest('hex')}"

[[token-key]]
name = "tokens"
algorithm = "HS256"
secret = "${SECRET.toString('base64')}"
`;

let server;

before(async () => (server = await Server.start({ access: ACCESS })));

after(() => server?.stop());

function token(user, seconds) {
  const part = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
  const text = `${part({ alg: 'HS256' })}.${part({ sub: user, exp: Date.now() / 1000 + seconds })}`;
  return `${text}.${createHmac('sha256', SECRET).update(text).digest('base64url')}`;
}

const client = (token, more) => new Tidewire({ server: server.origin, token, ...more });

test('who has no token, a bad one or not the right, is refused', async () => {
  const cases = [
    [undefined, 401, 'unauthenticated'],
    ['nonsense', 401, 'invalid_token'],
    [token('ann', -60), 401, 'token_expired'],
    [token('bob', 60), 403, 'forbidden'],
  ];
  for (const [token, status, code] of cases) {
    await assert.rejects(client(token).feed('ann'), { status, code });
  }
  await client(KEY).feed('ann');
  await client(token('ann', 60)).feed('ann');
});

test('a function is asked once by all calls, and once again after its token has expired', async () => {
  let asked = 0;
  const tidewire = client(async () => token('ann', asked++ === 0 ? -60 : 60));
  await Promise.all([tidewire.feed('ann'), tidewire.rules('ann'), tidewire.marker('ann')]);
  assert.equal(asked, 2);
  await tidewire.follow('ann', 'bob');
  assert.equal(asked, 2);
});

test('a new token that is refused as well is the end, and so is a function that fails', async () => {
  let asked = 0;
  const old = client(() => token('ann', (asked++, -60)));
  await assert.rejects(old.feed('ann'), { code: 'token_expired' });
  assert.equal(asked, 2);
  const failure = new Error('no token to be had');
  await assert.rejects(client(() => Promise.reject(failure)).feed('ann'), failure);
  await assert.rejects(client(() => new Promise(() => {}), { timeoutMs: 20 }).feed('ann'), { code: 'timeout' });
});

for (const transport of ['websocket', 'sse']) {
  test(`a live feed over ${transport} goes on with a new token when the last one has expired`, async () => {
    let asked = 0;
    const feed = client(() => token('sol', (asked++, 2))).watch('sol', { transport, WebSocket });
    feed.start();
    await until('the third token is used', () => asked >= 3 && feed.state === 'live');
    await client(KEY).publish({ author: 'sol', body: transport });
    await until('the post has come', () => feed.items[0]?.post.body === transport);
    assert.equal(feed.error, null);
    feed.stop();
  });
}

test('a feed whose function brings something else once, asks again', async () => {
  for (const transport of ['websocket', 'sse']) {
    let asked = 0;
    const feed = client(async () => (asked++ === 0 ? '{"error":"sign in"}' : token('ann', 60))).watch('ann', {
      transport,
      WebSocket,
    });
    feed.start();
    await until(`live over ${transport}`, () => feed.state === 'live');
    feed.stop();
  }
});

test('a user who may choose no ids publishes without, and once, and is not refused at first', async () => {
  const statuses = [];
  const noted = (...of) => fetch(...of).then((answer) => (statuses.push(answer.status), answer));
  const tidewire = client(async () => token('ann', 60), { fetch: noted });
  for (const text of ['first', 'second']) {
    const { id } = await tidewire.publish({ author: 'ann', body: { text } });
    assert.deepEqual((await tidewire.getPost(id)).body, { text });
  }
  assert.deepEqual(statuses, [201, 200, 201, 200]);
  await assert.rejects(tidewire.publish({ author: 'ann', id: '7', body: 1 }), { code: 'forbidden' });
  await assert.rejects(tidewire.publish({ author: 'bob', body: 1 }), { code: 'forbidden' });
});

test('a post has an id of the client where it may, and only then is it sent again when nobody answers', async () => {
  const cases = [
    [KEY, undefined, 2],
    [undefined, undefined, 2],
    [token('ann', 60), undefined, 1],
    [token('ann', 60), 'user', 2],
  ];
  for (const [given, tokenPostIds, tries] of cases) {
    const sent = [];
    const lost = async (_, { body }) => {
      sent.push(JSON.parse(body).id);
      throw new TypeError('fetch failed');
    };
    const tidewire = client(given, { tokenPostIds, fetch: lost, retries: 1, retryWaitMaxMs: 1 });
    const unknown = { code: 'no_answer', outcomeUnknown: true, isTemporary: true };
    await assert.rejects(tidewire.publish({ author: 'ann', body: 1 }), unknown);
    assert.deepEqual([sent.length, new Set(sent).size, sent[0] !== undefined], [tries, 1, tries === 2]);
  }
});

test('changes are for keys of servers', async () => {
  await assert.rejects(client(token('ann', 60)).changes({ after: 0 }).next(), { status: 403 });
  let asked = 0;
  const keys = () => (asked++ === 0 ? 'tidewire_an-old-key' : KEY);
  for await (const _ of client(keys).changes({ after: 0 })) break;
  assert.equal(asked, 2);
});

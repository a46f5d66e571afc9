// ioredis as it is released, against a server. Arguments: PORT [KEY].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { Redis, ReplyError } from 'ioredis';

const { version } = createRequire(import.meta.url)('ioredis/package.json');
const [port, key] = process.argv.slice(2);
// Milliseconds until a missing reply or message is an error.
const DEADLINE = 30_000;

function connected(options) {
  const client = new Redis({ host: '127.0.0.1', port, password: key, commandTimeout: DEADLINE, ...options });
  // Without a listener it prints errors, which commands report as well.
  return client.on('error', () => {});
}

/** Returns a function that accepts errors of the server with this code. */
const hasCode = (code) => (error) => error instanceof ReplyError && error.message.startsWith(`${code} `);

/** Subscribes to a channel, and returns `hello` with a function that returns the next message. */
async function subscribed(client, channel) {
  const messages = [];
  client.on('message', (of, message) => {
    assert.equal(of, channel);
    messages.push(JSON.parse(message));
    client.emit('received');
  });
  const received = async () => {
    if (messages.length === 0) await once(client, 'received', { signal: AbortSignal.timeout(DEADLINE) });
    return messages.shift();
  };
  assert.equal(await client.subscribe(channel), 1);
  return [await received(), received];
}

async function check(options) {
  const client = connected(options);
  const command = async (...words) => JSON.parse(await client.call(...words));
  const post = (text) => command('FEED.POST', 'bob', JSON.stringify({ text }), 'WAIT');
  const posts = async (count) => (await command('FEED.GET', 'ann', 'COUNT', count)).items.map((item) => item.post);

  await command('FEED.FOLLOW', 'ann', 'bob');
  const newest = await post('hi');
  assert.deepEqual(await posts(1), [newest]);
  // By default a map of RESP3 is an array, as in RESP2.
  const values = await client.call('FEED.GET', 'ann', 'AS', 'ARRAY');
  assert.equal(Array.isArray(values), options.replyMapping === undefined);

  const pipeline = client.pipeline();
  for (let nth = 0; nth < 100; nth++) pipeline.call('FEED.POST', 'bob', nth, 'WAIT');
  const published = (await pipeline.exec()).map(([error, reply]) => JSON.parse(error ?? reply));
  assert.deepEqual(published.map((post) => post.body), [...Array(100).keys()]);
  assert.deepEqual(await posts(100), published.toReversed());
  await assert.rejects(posts(101), hasCode('INVALID_PARAMETER'));
  // This client has no pool: commands share a connection.
  const pages = await Promise.all(Array.from({ length: 200 }, () => posts(1)));
  assert.deepEqual(pages, Array(200).fill(published.slice(-1)));

  let subscriber = connected(options);
  const [hello, received] = await subscribed(subscriber, 'feed:ann');
  const first = await post('first');
  const message = await received();
  assert.deepEqual(message.item.post, first);
  subscriber.disconnect();
  const missed = [await post('second'), await post('third')];
  subscriber = connected(options);
  const [resumed, next] = await subscribed(subscriber, `feed:ann ${hello.epoch}:${message.seq}`);
  assert.deepEqual([hello.type, hello.recovered, resumed.recovered], ['hello', false, true]);
  // Nothing else comes before a later post.
  missed.push(await post('fourth'));
  for (const post of missed) assert.deepEqual((await next()).item.post, post);
  await Promise.all([subscriber.quit(), client.quit()]);
}

for (const [name, options] of Object.entries({
  'default protocol': {},
  RESP2: { protocol: 2 },
  RESP3: { protocol: 3, replyMapping: 'resp3' },
})) {
  await check(options);
  if (key) {
    const stranger = connected({ ...options, password: 'wrong', retryStrategy: null });
    await assert.rejects(stranger.ping(), hasCode('WRONGPASS'));
  }
  console.log(`ioredis ${version}, ${name}: ok`);
}

// A live feed of the real server, which is killed and comes back in the middle of it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Feed, Tidewire } from 'tidewire';
import { WebSocket } from 'ws';

import { Server, freePort, until } from './server.mjs';

let server, tidewire;

before(async () => {
  server = await Server.start();
  tidewire = new Tidewire({ server: server.origin, retries: 20 });
});

after(() => server?.stop());

const numbers = (feed) => feed.items.map(({ post }) => post.body);

/** Posts numbers, until told to end. Returns the last one that the server has acknowledged. */
function publishing(author) {
  let isOver = false;
  let last = -1;
  const done = (async () => {
    for (let nth = 0; !isOver; nth++) {
      await tidewire.publish({ author, body: nth });
      last = nth;
    }
  })();
  return {
    last: () => last,
    async end() {
      isOver = true;
      await done;
      return last;
    },
  };
}

for (const transport of ['websocket', 'sse']) {
  test(`over ${transport}, a kill and restart of the server leaves no gap and no double`, async () => {
    const [reader, author] = [`ann-${transport}`, `bob-${transport}`];
    await tidewire.follow(reader, author);
    const feed = tidewire.watch(reader, { transport, WebSocket, limit: 100, keep: 100_000 });
    const doubles = [];
    const disorder = [];
    feed.addEventListener('change', () => {
      const shown = numbers(feed);
      if (new Set(shown).size !== shown.length) doubles.push(shown);
      if (feed.state === 'live' && shown.some((nth, place) => place && nth > shown[place - 1])) disorder.push(shown);
    });
    feed.start();
    await until('it is live', () => feed.state === 'live');
    const posts = publishing(author);
    for (let round = 0; round < 3; round++) {
      const before = posts.last();
      await until('it goes on', () => posts.last() >= before + 30 && feed.items[0]?.post.body > before);
      await server.kill();
      await sleep(50);
      await server.run();
    }
    const last = await posts.end();
    await until('the last post has come', () => feed.state === 'live' && feed.items[0]?.post.body === last);
    while (feed.hasMore) await feed.loadMore();
    assert.deepEqual(
      numbers(feed),
      Array.from({ length: last + 1 }, (_, nth) => last - nth),
    );
    assert.deepEqual([doubles, disorder, feed.error], [[], [], null]);
    feed.stop();
  });
}

test('without a WebSocket it takes server-sent events by itself', async () => {
  assert.equal(globalThis.EventSource, undefined);
  const given = globalThis.WebSocket;
  globalThis.WebSocket = undefined;
  const feed = new Feed({ user: 'sam', server: server.origin });
  globalThis.WebSocket = given;
  feed.start();
  await until('it is live', () => feed.state === 'live');
  await tidewire.publish({ author: 'sam', body: 'own' });
  await until('the post has come', () => numbers(feed)[0] === 'own');
  feed.stop();
});

for (const transport of ['websocket', 'sse']) {
  test(`over ${transport}, the number of unread entries is told when it is wanted`, async () => {
    const reader = `una-${transport}`;
    await tidewire.follow(reader, 'vera');
    const feed = tidewire.watch(reader, { transport, WebSocket, unread: true });
    const told = [];
    const marks = [];
    feed.addEventListener('unread', ({ detail }) => told.push(detail));
    feed.addEventListener('marker', ({ detail }) => marks.push(detail));
    assert.equal(feed.unread, null);
    feed.start();
    const seen = await until('a number is told', () => feed.unread);
    for (let nth = 1; nth <= 3; nth++) await tidewire.publish({ author: 'vera', body: nth }, { wait: 'delivered' });
    await until('all are counted', () => feed.unread.unread === seen.unread + 3);
    await tidewire.setMarker(reader, feed.items[0].cursor);
    await until('all are read', () => feed.unread.unread === 0);
    await until('the marker is told', () => marks.length > 0);
    assert.deepEqual(told.at(-1), { unread: 0, capped: false, complete: true });
    assert.equal(feed.state, 'live', 'messages without a number of their own do not break it');
    feed.stop();
  });
}

test('it does not say how many are unread unless it is asked', async () => {
  const feed = tidewire.watch('quy', { WebSocket });
  feed.start();
  await until('it is live', () => feed.state === 'live');
  await sleep(1_500);
  assert.equal(feed.unread, null);
  feed.stop();
});

test('of several servers it takes one that answers, and another one when that ends', async () => {
  const nobody = `http://127.0.0.1:${await freePort()}`;
  // It is no cluster: what matters is who is asked.
  const other = await Server.start();
  await new Tidewire({ server: other.origin }).publish({ author: 'kit', body: 'of the other' });
  try {
    const feed = new Feed({ user: 'kit', server: [nobody, server.origin, other.origin], WebSocket });
    feed.start();
    await until('it is live', () => feed.state === 'live');
    assert.deepEqual(numbers(feed), []);
    await server.kill();
    await until('the other one answers', () => numbers(feed)[0] === 'of the other' && feed.state === 'live');
    feed.stop();
  } finally {
    await other.stop();
    await server.run();
  }
});

test('a live feed uses the path of the server and the fetch that the client uses', async () => {
  const asked = [];
  const base = `${server.origin}/behind/a/proxy`;
  const given = (url, init) => {
    asked.push(url);
    return fetch(url.replace(base, server.origin), init);
  };
  const feed = new Tidewire({ server: `${base}/`, fetch: given }).watch('pat', { transport: 'sse' });
  feed.start();
  await until('it is live', () => feed.state === 'live');
  feed.stop();
  assert.deepEqual([...new Set(asked.map((url) => new URL(url).pathname))].sort(), [
    '/behind/a/proxy/v1/users/pat/events',
    '/behind/a/proxy/v1/users/pat/feed',
  ]);
});

test('what is wrong with a request stops it, and says why', async () => {
  const feed = tidewire.watch('no user', { WebSocket });
  feed.start();
  await until('it is stopped', () => feed.state === 'stopped');
  assert.equal(feed.error.cause.status, 400);
});

test('a feed that is stopped while it connects closes its sockets', async () => {
  const sockets = new Set();
  const silent = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    socket.resume();
  });
  await once(silent.listen(0, '127.0.0.1'), 'listening');
  const feed = new Feed({ user: 'ann', server: `http://127.0.0.1:${silent.address().port}`, WebSocket });
  feed.start();
  await until('it connects', () => sockets.size > 0);
  feed.stop();
  await until('nothing is open', () => sockets.size === 0);
  silent.close();
});

test('a program ends after its feed is stopped, however long the server told it to wait', async () => {
  let asked = 0;
  const busy = createServer((_, response) => {
    asked++;
    response.writeHead(503, { 'Retry-After': '1000' }).end();
  });
  await once(busy.listen(0, '127.0.0.1'), 'listening');
  const program = `
    import { Feed } from 'tidewire';
    const feed = new Feed({ user: 'ann', server: 'http://127.0.0.1:${busy.address().port}', transport: 'sse' });
    feed.start();
    process.stdin.once('data', () => (feed.stop(), process.stdin.destroy()));`;
  const folder = new URL('.', import.meta.url);
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: folder,
    stdio: ['pipe', 'inherit', 'inherit'],
  });
  try {
    await until('it has asked', () => asked >= 2);
    // It waits now.
    await sleep(500);
    child.stdin.write('stop');
    await until('it has ended', () => child.exitCode === 0);
  } finally {
    child.kill('SIGKILL');
    busy.close();
    busy.closeAllConnections();
  }
});

// The package as it is, without a build, in a page of another origin. Needs Chromium, as /usr/bin/chromium or named by
// TIDEWIRE_CHROMIUM.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { text } from 'node:stream/consumers';

import { Server } from './server.mjs';

const CHROMIUM = process.env.TIDEWIRE_CHROMIUM ?? '/usr/bin/chromium';
const PACKAGE = import.meta.resolve('tidewire/package.json');
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'];

/** What a page does with the package. */
async function inPage(server) {
  const { Tidewire, TidewireError } = await import('/dist/index.js');
  const tidewire = new Tidewire({ server });
  await tidewire.follow('ann', 'bob');
  const feed = tidewire.watch('ann', { unread: true });
  const shown = new Promise((resolve) => feed.addEventListener('change', () => feed.items.length && resolve()));
  const counted = new Promise((resolve) => feed.addEventListener('unread', ({ detail }) => detail.unread && resolve()));
  feed.start();
  await tidewire.publish({ author: 'bob', body: { text: 'hello' } }, { wait: 'delivered' });
  const found = { walked: [], changes: [], streamed: [] };
  for await (const { post } of tidewire.iterFeed('ann')) found.walked.push(post.body.text);
  for await (const { type } of tidewire.changes({ after: 0, follow: false })) found.changes.push(type);
  for await (const { type } of tidewire.changes({ after: 0, types: ['published'] })) {
    found.streamed.push(type);
    if (type === 'published') break;
  }
  const refused = await tidewire.follow('ann', 'ann').catch((error) => error);
  found.refused = [refused instanceof TidewireError, refused.code];
  await Promise.all([shown, counted]);
  found.live = [feed.state, feed.items[0].post.body.text, feed.unread.unread];
  feed.stop();
  return found;
}

test('a page publishes, reads, follows changes and a live feed', async () => {
  assert(existsSync(CHROMIUM), `${CHROMIUM} is missing: install chromium, or name it by TIDEWIRE_CHROMIUM`);
  let told;
  const result = new Promise((resolve) => (told = resolve));
  const pages = createServer(async (request, response) => {
    if (request.method === 'POST') told(JSON.parse(await text(request)));
    const isCode = request.url.endsWith('.js');
    response.setHeader('Content-Type', isCode ? 'text/javascript' : 'text/html');
    response.end(isCode ? await readFile(new URL(`.${request.url}`, PACKAGE)) : page);
  }).listen(0, '127.0.0.1');
  await once(pages, 'listening');
  const origin = `http://127.0.0.1:${pages.address().port}`;
  const server = await Server.start({ words: ['--cors-origins', origin] });
  const page = `<script type="module">
    const found = await (${inPage})('${server.origin}').catch((error) => ({ error: String(error.stack) }));
    await fetch('/', { method: 'POST', body: JSON.stringify(found) });
  </script>`;
  const profile = await mkdtemp(path.join(tmpdir(), 'tidewire-chromium-'));
  const browser = spawn(CHROMIUM, [...FLAGS, `--user-data-dir=${profile}`, `${origin}/`], { stdio: 'ignore' });
  const ended = once(browser, 'exit');
  try {
    const { changes, streamed, ...found } = await Promise.race([result, ended]);
    assert.deepEqual(found, {
      walked: ['hello'],
      refused: [true, 'self_follow'],
      live: ['live', 'hello', 1],
    });
    assert.deepEqual([...new Set(changes)].sort(), ['followed', 'published', 'reached']);
    assert.equal(streamed.at(-1), 'published');
  } finally {
    browser.kill('SIGKILL');
    await ended;
    await server.stop();
    pages.closeAllConnections();
    pages.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
});

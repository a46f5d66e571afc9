// The page of the examples, by the commands that it has at its beginning, and the page of the README.

import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Browser } from './browser.js';
import { PROGRAM, Programs, REPOSITORY, freePort } from './server.js';

const programs = new Programs();
let browser, server, pages, directory;

before(async () => {
  // The commands as they are printed, with ports that are free, and a program that is built.
  const text = await readFile(path.join(REPOSITORY, 'examples/feed.html'), 'utf8');
  const [, demo, serving] = /-- (demo .*) &\n +python3 (.*) &/.exec(text);
  const [port, own] = [await freePort(), await freePort()];
  [server, pages] = [`http://127.0.0.1:${port}`, `http://localhost:${own}`];
  // Copies of the page, which name that server, and none.
  directory = await mkdtemp(path.join(tmpdir(), 'tidewire-examples-'));
  const at = 'http://127.0.0.1:8080';
  assert.equal(text.split(at).length, 2);
  await writeFile(path.join(directory, 'feed.html'), text.replace(at, server));
  await writeFile(path.join(directory, 'alone.html'), text.replace(at, 'http://127.0.0.1:9'));
  // The page of the README, with the origin of that server in both places.
  const part = (await readFile(path.join(REPOSITORY, 'README.md'), 'utf8')).split('\n## ').find((text) => text.startsWith('In a browser'));
  const [, readme] = /```html\n(.*?)```/s.exec(part);
  assert.equal(readme.split(at).length, 3);
  const [origin] = /--cors-origins \S+/.exec(demo);
  assert.ok(part.includes(origin), `the README has ${origin}, too`);
  await writeFile(path.join(directory, 'readme.html'), readme.replaceAll(at, server));
  const words = (line) => line.replaceAll('8000', own).replace('--directory examples', `--directory ${directory}`).split(' ');
  await programs.start(PROGRAM, [...words(demo), '--listen', `127.0.0.1:${port}`], `${server}/readyz`);
  await programs.start('python3', words(serving), `http://127.0.0.1:${own}/feed.html`);
  browser = await Browser.open(pages);
});

after(async () => {
  await browser?.close();
  await programs.stop();
  if (directory) await rm(directory, { recursive: true });
});

test('the page of the examples shows a feed of the demo, which goes on', async () => {
  const { page } = browser;
  await page.goto(`${pages}/feed.html?server=http://127.0.0.1:9`);
  await page.locator('#state', { hasText: 'live' }).waitFor();
  assert.equal(await page.locator('#user').textContent(), 'hugo.ash');
  const newest = () => page.locator('#feed li').first().textContent();
  const before = await newest();
  while ((await newest()) === before) await sleep(100);
  const count = await page.locator('#feed li').count();
  await page.getByRole('button', { name: 'Older' }).click();
  while ((await page.locator('#feed li').count()) <= count) await sleep(100);
  await mkdir(path.join(REPOSITORY, 'target/screenshots'), { recursive: true });
  await page.screenshot({ path: path.join(REPOSITORY, 'target/screenshots/example.png') });
  assert.deepEqual(browser.complaints, []);
});

test('without a server, or one that does not allow its origin, the page says what is wrong', async () => {
  const { page } = browser;
  await page.goto(`${pages}/alone.html`);
  await page.locator('#state', { hasText: '--cors-origins http://localhost' }).waitFor();
});

test('the page of the README shows a live feed from another web server than Tidewire', async () => {
  const { page } = browser;
  const ask = async (method, place, body) => {
    const headers = { 'Content-Type': 'application/json' };
    const answer = await fetch(`${server}/v1/${place}`, { method, headers, body: body && JSON.stringify(body) });
    assert.ok(answer.ok, await answer.text());
  };
  await ask('PUT', 'users/ann/following/bob');
  await page.goto(`${pages}/readme.html`);
  for (const text of ['first', 'second']) {
    await ask('POST', 'posts', { author: 'bob', body: { text } });
    await page.locator('pre', { hasText: `bob: ${text}` }).waitFor();
  }
});

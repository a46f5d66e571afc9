// The app of the tutorial, set up by the commands that the tutorial prints, in two browsers.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { Browser } from './browser.js';
import { ENVIRONMENT, PROGRAM, Programs, REPOSITORY, freePort } from './server.js';

const APP = path.join(REPOSITORY, 'examples/tutorial');
const STEP_MAX_MS = 20_000;
const SHORT_TOKEN_SECONDS = 2;

const programs = new Programs();
let blocks, directory, tidewire, app, shortApp, ann, bob;

/** The code of the tutorial that is marked by this after the language. */
const marked = (name) => blocks.filter((block) => block.name === name).map(({ code }) => code);

/** Runs a block of commands as it is printed, except for the ports. Returns what it prints. */
async function run(name) {
  const [code] = marked(name);
  const text = code.replaceAll('http://127.0.0.1:8080', tidewire).replaceAll('http://localhost:3000', app);
  const env = { ...ENVIRONMENT, PATH: `${path.dirname(PROGRAM)}:${ENVIRONMENT.PATH}`, TIDEWIRE_SERVER: tidewire };
  const cwd = name === 'keys' ? directory : path.join(directory, 'feed-app');
  return (await promisify(execFile)('sh', ['-e', '-c', text], { cwd, env })).stdout;
}

before(async () => {
  const text = await readFile(path.join(REPOSITORY, 'docs/tutorial.md'), 'utf8');
  blocks = [...text.matchAll(/^```\w+ (\S+)\n(.*?)^```$/gms)].map(([, name, code]) => ({ name, code }));
  directory = await mkdtemp(path.join(tmpdir(), 'tidewire-tutorial-'));
  const [port, appPort, shortPort] = [await freePort(), await freePort(), await freePort()];
  tidewire = `http://127.0.0.1:${port}`;
  [app, shortApp] = [`http://localhost:${appPort}`, `http://localhost:${shortPort}`];
  await run('keys');
  const cwd = path.join(directory, 'feed-app');
  const [, ...words] = marked('serve')[0].trim().replace('http://localhost:3000', `${app},${shortApp}`).split(' ');
  await programs.start(PROGRAM, [...words, '--listen', `127.0.0.1:${port}`], `${tidewire}/readyz`, { cwd });
  const serve = (PORT, more = {}) => {
    const env = { ...ENVIRONMENT, PORT, TIDEWIRE: tidewire, ...more };
    return programs.start('node', [path.join(APP, 'server.mjs')], `http://127.0.0.1:${PORT}`, { cwd, env });
  };
  await serve(appPort);
  await serve(shortPort, { TOKEN_SECONDS: SHORT_TOKEN_SECONDS });
  ann = await Browser.open(app);
  bob = await Browser.open(app);
});

after(async () => {
  await ann?.close();
  await bob?.close();
  await programs.stop();
  if (directory) await rm(directory, { recursive: true });
});

afterEach(() => {
  const known = [tidewire, tidewire.replace('http', 'ws'), shortApp];
  for (const { complaints, strangers } of [ann, bob]) {
    assert.deepEqual(complaints, [], 'no errors, no warnings');
    assert.deepEqual(strangers.filter((url) => !known.includes(new URL(url).origin)), [], 'nobody else was asked');
  }
});

async function signIn({ page }, name, place = app) {
  await page.goto(place);
  await page.getByLabel('Your name').fill(name);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await isLive(page);
}

const isLive = (page) => page.locator('#state', { hasText: /^live$/ }).waitFor();
const entry = ({ page }, text) => page.locator('#feed li', { hasText: text });
const isGone = (locator) => locator.waitFor({ state: 'detached' });

async function publish({ page }, text) {
  await page.getByLabel('Text').fill(text);
  await page.getByRole('button', { name: 'Publish' }).click();
}

async function follow({ page }, name) {
  await page.getByLabel('Name').fill(name);
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await page.locator('#following li', { hasText: name }).waitFor();
}

const unfollow = ({ page }, name) =>
  page.locator('#following li', { hasText: name }).getByRole('button', { name: 'Unfollow' }).click();

test('the code in the tutorial is the code of the app, all of it', async () => {
  for (const name of await readdir(APP)) {
    // An empty line separates what is appended.
    assert.equal(marked(name).join('\n'), await readFile(path.join(APP, name), 'utf8'), name);
  }
});

test('a token of the app gives access to the data of its user only', async () => {
  const [own, of_bob] = (await run('token')).split('}{');
  assert.match(own, /^\{"items":\[\]/);
  assert.match(of_bob, /"code":"forbidden"/);
  const { status } = await fetch(`${app}/token`, { method: 'POST' });
  assert.equal(status, 401, 'without a session');
});

test('a name that is no id is refused', async () => {
  for (const name of ['', '..', 'tag:rust', 'a b']) {
    const answer = await fetch(`${app}/sign-in`, { method: 'POST', body: new URLSearchParams({ name }), redirect: 'manual' });
    assert.equal(answer.status, 400, name);
  }
});

test('a post from the terminal appears in the page, which shows older ones on demand', async () => {
  await signIn(ann, 'ann');
  await run('follow');
  await entry(ann, 'Hello from the terminal').waitFor();
  await run('many');
  await entry(ann, 'Post 30').waitFor();
  await ann.page.reload();
  await isLive(ann.page);
  assert.equal(await ann.page.locator('#feed li').count(), 20);
  await ann.page.getByRole('button', { name: 'Load more' }).click();
  await entry(ann, 'Hello from the terminal').waitFor();
  assert.equal(await ann.page.getByRole('button', { name: 'Load more' }).isVisible(), false);
});

test('a post of one user appears live at the other, and what it contains is text', async () => {
  await signIn(bob, 'bob');
  await follow(ann, 'bob');
  const loaded = await ann.page.evaluate(() => performance.timeOrigin);
  await publish(bob, 'Hello from bob');
  await entry(ann, 'bob Hello from bob').waitFor();
  await publish(bob, '<img src="x" onerror="document.title = 1"> <b>bold</b>');
  await entry(ann, '<b>bold</b>').waitFor();
  assert.equal(await ann.page.locator('#feed img, #feed li b b').count(), 0);
  assert.equal(await ann.page.evaluate(() => performance.timeOrigin), loaded, 'without a reload');
  assert.deepEqual(await ann.look('tutorial'), []);
});

test('a reply and a repost appear at the other user as what they are', async () => {
  await follow(bob, 'ann');
  const post = entry(ann, /^bob Hello from bob/);
  await post.getByRole('button', { name: 'Reply' }).click();
  await publish(ann, 'Hello from ann');
  await entry(bob, 'ann Hello from ann (in reply to bob: Hello from bob)').waitFor();
  // Its own page may have the answer later than the other one has the post.
  await ann.page.locator('#reply').waitFor({ state: 'hidden' });
  await post.getByRole('button', { name: 'Repost' }).click();
  await entry(bob, 'bob Hello from bob (reposted by ann)').waitFor();
});

test('posts of somebody unfollowed disappear, except reposted ones, and return with the follow', async () => {
  await unfollow(ann, 'bob');
  await isGone(entry(ann, '<b>bold</b>'));
  await entry(ann, 'reposted by ann').waitFor();
  await follow(ann, 'bob');
  await entry(ann, '<b>bold</b>').waitFor();
});

test('what goes wrong is shown', async () => {
  await ann.page.getByLabel('Name').fill('ann');
  await ann.page.getByRole('button', { name: 'Follow', exact: true }).click();
  await ann.page.getByRole('alert').filter({ hasText: /./ }).waitFor();
  await ann.forgive(/status of 422/, 1);
});

test('a token that expires is renewed, and no post is lost meanwhile', async () => {
  let asked = 0;
  const count = (request) => (asked += request.url() === `${shortApp}/token` ? 1 : 0);
  ann.page.on('request', count);
  await signIn(ann, 'ann', shortApp);
  const first = asked;
  for (let nth = 1; nth <= 3; nth++) {
    await publish(bob, `Renewed ${nth}`);
    const began = Date.now();
    while (asked < first + nth) {
      assert.ok(Date.now() - began < STEP_MAX_MS, `asked ${asked} times`);
      await sleep(50);
    }
  }
  await isLive(ann.page);
  for (let nth = 1; nth <= 3; nth++) await entry(ann, `Renewed ${nth}`).waitFor();
  ann.page.off('request', count);
  // What the page asks itself is repeated with a new token: it is not live, so nothing else renews the last one.
  await ann.page.route(`${shortApp}/feed.js`, async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: (await answer.text()).replace('feed.start();', '') });
  });
  await ann.page.reload();
  await ann.page.locator('#following li', { hasText: 'bob' }).waitFor();
  await sleep(SHORT_TOKEN_SECONDS * 1000);
  await follow(ann, 'cas');
  await ann.forgive(/status of 401/, 1);
});

test('signing out ends the tokens of the user, and all windows', async () => {
  await signIn(ann, 'ann');
  const other = await ann.context.newPage();
  await other.goto(app);
  await isLive(other);
  const token = await ann.page.evaluate(async () => (await fetch('/token', { method: 'POST' })).text());
  await ann.page.getByRole('button', { name: 'Sign out' }).click();
  await ann.page.getByLabel('Your name').waitFor();
  await other.getByLabel('Your name').waitFor();
  const answer = await fetch(`${tidewire}/v1/users/ann/feed`, { headers: { Authorization: `Bearer ${token}` } });
  assert.equal((await answer.json()).code, 'token_revoked');
  await isLive(bob.page);
});

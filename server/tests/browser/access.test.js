// Keys and tokens, in a real browser against a real server that asks for them.

import assert from 'node:assert/strict';
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { after, afterEach, before, beforeEach, test } from 'node:test';

import { Browser } from './browser.js';
import { Server } from './server.js';

const STEP_MAX_MS = 20_000;
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
const PAGES = ['overview', 'readers', 'readers?user=ann', 'posts', 'live', 'changes', 'storage', 'cluster', 'keys'];

let server, browser, page;

before(async () => {
  server = await Server.start({ access: ACCESS, key: KEY });
  browser = await Browser.open(server.origin);
  page = browser.page;
  await server.follow('ann', 'bob');
  await server.publish('bob', 'for those who may');
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

beforeEach(async () => {
  await page.goto(`${server.origin}/healthz`);
  await page.evaluate(() => sessionStorage.clear());
});

afterEach(() => {
  // The browser notes each refusal in its own console, whatever a page does.
  assert.deepEqual(browser.complaints.filter((text) => !/status of (401|403)|WebSocket connection to/.test(text)), []);
  browser.complaints.length = 0;
});

function token(user, seconds) {
  const part = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
  const text = `${part({ alg: 'HS256' })}.${part({ sub: user, exp: Date.now() / 1000 + seconds })}`;
  return `${text}.${createHmac('sha256', SECRET).update(text).digest('base64url')}`;
}

const visit = (place) => page.goto('about:blank').then(() => page.goto(`${server.origin}/console/${place}`));
const keep = (credential) => page.evaluate((text) => sessionStorage.setItem('tidewire-credential', text), credential);
const use = async (key) => {
  await page.getByLabel('Key or token').fill(key);
  await page.getByRole('button', { name: 'Use this key' }).click();
};
const state = (text) => page.locator('#server', { hasText: text }).waitFor({ timeout: STEP_MAX_MS });
const isRunning = () => state(/^Running/);
const panel = () => page.locator('#sign-in');
const isFeedShown = async () => {
  await page.locator('#feed-state:visible, #read-feed:visible').waitFor({ timeout: STEP_MAX_MS });
  if (await page.locator('#read-feed').isVisible()) await page.locator('#read-feed').click();
  await page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
  await page.locator('#posts .text', { hasText: 'for those who may' }).waitFor({ timeout: STEP_MAX_MS });
};

test('the console asks for a key, calls a wrong one that without asking again, and goes on with the right one', async () => {
  let asked = 0;
  const note = (request) => (asked += request.url().endsWith('/v1/stats') ? 1 : 0);
  page.on('request', note);
  await visit('overview');
  await state(/^This server requires a key$/);
  await panel().getByText('This server requires a key.').waitFor();
  assert.equal(await page.locator('#page').isVisible(), false);
  assert.equal(await page.getByRole('button', { name: 'Forget the key' }).isVisible(), false);
  assert.deepEqual(await browser.look('key-form'), []);
  await use('tidewire_a-wrong-key');
  await state(/^This key is invalid$/);
  await panel().locator('.error', { hasText: 'This key is invalid.' }).waitFor();
  assert.equal(await page.getByLabel('Key or token').getAttribute('aria-invalid'), 'true');
  assert.deepEqual(await browser.look('key-wrong'), []);
  assert.doesNotMatch(await page.locator('body').innerText(), /not ready|starting/);
  const before = asked;
  await page.waitForTimeout(6_500);
  assert.equal(asked, before, 'it would be denied again');
  page.off('request', note);
  await use(KEY);
  await isRunning();
  await page.locator('#verdict', { hasText: 'Backup' }).waitFor();
  assert.equal(await panel().isVisible(), false);
});

test('the key is kept for the tab until it is forgotten', async () => {
  await keep(KEY);
  await visit('readers?user=ann');
  await isFeedShown();
  await page.reload();
  await isFeedShown();
  const button = page.getByRole('button', { name: 'Key…' });
  await button.click();
  await panel().getByText('Requests are sent with a key.').waitFor();
  assert.equal(await page.getByLabel('Key or token').inputValue(), '', 'the key itself is not shown');
  await button.click();
  assert.equal(await panel().isVisible(), false, 'the same button closes it');
  await button.click();
  await page.getByRole('button', { name: 'Forget the key' }).click();
  await panel().getByText('This server requires a key.').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('tidewire-credential')), null);
});

test('a wrong key is called that on every page, and by a feed', async () => {
  await keep('tidewire_a-wrong-key');
  for (const place of PAGES) {
    await visit(place);
    await state(/^This key is invalid$/);
    await panel().getByText('This key is invalid.').waitFor();
    assert.equal(await page.locator('#page').isVisible(), false, place);
    assert.doesNotMatch(await page.locator('body').innerText(), /not ready|starting/);
  }
});

test('keys in use are listed, and no secret is shown', async () => {
  await keep(KEY);
  await visit('keys');
  await page.locator('#keys tr', { hasText: 'tests' }).waitFor({ timeout: STEP_MAX_MS });
  const text = await page.locator('#keys').innerText();
  assert.match(text, /tests\s+everything\s+[1-9]\d*\s+(just now|\d+ s ago)/);
  assert.match(text, /tokens\s+signing tokens/);
  assert.doesNotMatch(text, new RegExp(KEY));
  assert.deepEqual(await browser.look('keys-in-use'), []);
});

test('a token of a user shows the feed of that user, and no other page pretends to know figures', async () => {
  await keep(token('ann', 600));
  await visit('readers?user=ann');
  await isFeedShown();
  await state(/^This key has no access to the figures$/);
  assert.equal(await panel().isVisible(), false);
  for (const part of ['follows', 'followers', 'rules', 'mutes', 'lists', 'marker']) {
    await visit(`readers?user=ann&part=${part}`);
    await page.locator('#about dd').first().waitFor();
    await page.waitForLoadState('networkidle');
    const errors = page.locator(`[data-part=${part}] .error:visible`);
    // Who follows a user may be for keys of the server alone, and then that is said.
    if (part !== 'followers') assert.deepEqual(await errors.allInnerTexts(), [], part);
  }
  for (const place of ['overview', 'posts', 'live', 'changes', 'storage', 'cluster', 'keys']) {
    await visit(place);
    await page.getByText('This key has no access to the figures of the server. Use a server key.').waitFor();
    assert.doesNotMatch(await page.locator('#page').innerText(), /Checking|Connecting|Loading|Refused/, place);
    assert.equal(await page.locator('#page').evaluate((box) => box.querySelectorAll('.chart canvas').length), 0);
  }
  assert.deepEqual(await browser.look('keys-denied'), []);
});

test('a token opens a post by its number from the search', async () => {
  const { id } = await server.publish('ann', 'by its number');
  await keep(token('ann', 600));
  await visit('readers?user=ann');
  await page.locator('#searched').fill(id);
  await page.locator('#searched').press('Enter');
  await page.waitForURL(`${server.origin}/console/posts?post=${id}`, { timeout: STEP_MAX_MS });
});

test('the feed of another user is refused to a token, in words', async () => {
  await keep(token('bob', 600));
  await visit('readers?user=ann');
  await page.locator('#feed-note.error', { hasText: /^The feed stopped: / }).waitFor({ timeout: STEP_MAX_MS });
  await page.locator('#about-note.error', { hasText: /^Refused: / }).waitFor();
});

test('a client is watched with a token of its user', async () => {
  await keep(token('ann', 600));
  await visit('live');
  await page.getByRole('textbox', { name: 'Reader' }).fill('ann');
  await page.keyboard.press('Enter');
  await page.locator('#messages').getByText('hello').waitFor();
  await page.getByRole('textbox', { name: 'Reader' }).fill('bob');
  await page.keyboard.press('Enter');
  await page.locator('#watch-note.error', { hasText: /^Refused: / }).waitFor();
});

test('an expired token is called that', async () => {
  await keep(token('ann', -60));
  await visit('readers?user=ann');
  await state(/^This token has expired$/);
  await panel().locator('.error', { hasText: 'This token has expired.' }).waitFor();
  await use(token('ann', 600));
  await isFeedShown();
});

test('a token that expires while the page is open is asked for anew', async () => {
  await keep(token('ann', 3));
  await visit('readers?user=ann');
  await isFeedShown();
  await panel().locator('.error', { hasText: 'This token has expired.' }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await page.locator('#feed-note').textContent(), 'The feed stopped: the token has expired.');
});

for (const transport of ['websocket', 'sse']) {
  test(`a feed over ${transport} goes on with a new token when the last one has expired`, async () => {
    await visit('keys');
    let asked = 0;
    await page.exposeFunction(`token_${transport}`, () => {
      asked++;
      return token('sol', 2);
    });
    await page.evaluate(async (transport) => {
      const { Feed } = await import('/tidewire.js');
      window.feed = new Feed({ user: 'sol', transport, token: window[`token_${transport}`] });
      window.feed.start();
    }, transport);
    await page.waitForFunction(() => window.feed.state === 'live');
    for (const began = Date.now(); asked < 3; ) {
      assert.ok(Date.now() - began < STEP_MAX_MS, `asked ${asked} times`);
      await page.waitForTimeout(50);
    }
    await page.waitForFunction(() => window.feed.state === 'live');
    await server.publish('sol', `by ${transport}`);
    await page.waitForFunction((text) => window.feed.items[0]?.post.body.text === text, `by ${transport}`);
    assert.equal(await page.evaluate(() => window.feed.error), null);
    await page.evaluate(() => window.feed.stop());
  });
}

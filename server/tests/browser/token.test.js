// Keys and tokens, in a real browser against a real server that asks for them.

import assert from 'node:assert/strict';
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';

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

let server, browser, page;

before(async () => {
  server = await Server.start({ access: ACCESS, key: KEY });
  browser = await Browser.open(server.origin);
  page = browser.page;
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

function token(user, seconds) {
  const part = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
  const text = `${part({ alg: 'HS256' })}.${part({ sub: user, exp: Date.now() / 1000 + seconds })}`;
  return `${text}.${createHmac('sha256', SECRET).update(text).digest('base64url')}`;
}

test('the console with a key that is not known says so, does not ask again, and goes on with the right one', async () => {
  let asked = 0;
  page.on('request', (request) => (asked += request.url().endsWith('/v1/stats') ? 1 : 0));
  const use = async (key) => {
    await page.getByLabel('Key or token').fill(key);
    await page.getByRole('button', { name: 'Use', exact: true }).click();
  };
  await page.goto(`${server.origin}/console`);
  const state = page.locator('#server');
  await page.locator('#server', { hasText: 'asks for a key' }).waitFor({ timeout: STEP_MAX_MS });
  assert.deepEqual(await browser.look('key-form'), []);
  await use('tidewire_a-wrong-key');
  await page.locator('#server', { hasText: 'Wrong key' }).waitFor({ timeout: STEP_MAX_MS });
  assert.deepEqual(await browser.look('key-wrong'), []);
  assert.doesNotMatch(await state.textContent(), /ready/);
  const before = asked;
  await page.waitForTimeout(6_500);
  assert.equal(asked, before, 'it would be denied again');
  await use(KEY);
  await page.locator('#server', { hasText: 'Running' }).waitFor({ timeout: STEP_MAX_MS });
  await page.evaluate(() => sessionStorage.clear());
  browser.complaints = browser.complaints.filter((text) => !/status of 401/.test(text));
});

test('the console shows a feed once it is given a key', async () => {
  await server.follow('ann', 'bob');
  await server.publish('bob', 'for those who may');
  await page.goto(`${server.origin}/console?user=ann`);
  await page.locator('#identify').waitFor();
  await page.getByLabel('Key or token').fill(KEY);
  await page.getByRole('button', { name: 'Use', exact: true }).click();
  await page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
  await page.locator('#posts .text', { hasText: 'for those who may' }).waitFor({ timeout: STEP_MAX_MS });
  await page.reload();
  await page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
});

test('a wrong key is called that on every tab, and keys in use are listed with the right one', async () => {
  await page.evaluate(() => sessionStorage.setItem('tidewire-credential', 'tidewire_a-wrong-key'));
  for (const tab of ['overview', 'reader', 'post', 'operations']) {
    await page.goto('about:blank');
    await page.goto(`${server.origin}/console?user=ann#${tab}`);
    await page.locator('#server', { hasText: /^Wrong key$/ }).waitFor({ timeout: STEP_MAX_MS });
    assert.doesNotMatch(await page.locator('body').innerText(), /not ready|starting/);
  }
  await page.getByLabel('Key or token').fill(KEY);
  await page.getByRole('button', { name: 'Use', exact: true }).click();
  await page.locator('#keys tr', { hasText: 'tests' }).waitFor({ timeout: STEP_MAX_MS });
  assert.match(await page.locator('#keys').innerText(), /tokens\s+signing tokens/);
  assert.doesNotMatch(await page.locator('#keys').innerText(), new RegExp(KEY));
  assert.deepEqual(await browser.look('keys'), []);
});

for (const transport of ['websocket', 'sse']) {
  test(`a feed over ${transport} goes on with a new token when the last one has expired`, async () => {
    await page.goto(`${server.origin}/console`);
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

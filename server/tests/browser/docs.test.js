// The page of the interface, in a real browser against the real server.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { Browser } from './browser.js';
import { REPOSITORY, Server } from './server.js';

const SCREENSHOTS = path.join(REPOSITORY, 'target/screenshots');

let server, browser, page, operations;

before(async () => {
  server = await Server.start();
  browser = await Browser.open(server.origin);
  page = browser.page;
  const { paths } = await (await fetch(`${server.origin}/openapi.json`)).json();
  operations = Object.values(paths).flatMap((methods) => Object.values(methods));
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

afterEach(() => {
  assert.deepEqual(browser.complaints, [], 'no errors, no warnings, no violations of the policy');
  assert.deepEqual(browser.strangers, [], 'nobody else was asked');
});

const open = async (place = '') => {
  await page.goto('about:blank');
  await page.goto(`${server.origin}/docs${place}`);
  await page.locator('.operation').first().waitFor();
};
const ids = () => page.locator('.operation:visible').evaluateAll((cards) => cards.map((card) => card.id));

test('every operation is there, and opens with all its answers', async () => {
  await open();
  assert.deepEqual((await ids()).sort(), operations.map((told) => told.operationId).sort());
  for (const told of operations) {
    const card = page.locator(`#${told.operationId}`);
    await card.locator('summary').first().click();
    await card.locator('.answers').waitFor();
    assert.equal(await card.locator('.answers > li').count(), Object.keys(told.responses).length, told.operationId);
    const hasTry = (await card.locator('.try').count()) === 1;
    assert.ok(!hasTry || (await card.locator('.method').textContent()) === 'GET', told.operationId);
  }
  const broken = await page.evaluate(() =>
    [...document.querySelectorAll('a[href^="#"]')].filter((link) => !document.querySelector(link.hash)).map(String),
  );
  assert.deepEqual(broken, []);
});

test('what is named in the address is open, and links to schemas open them', async () => {
  await open('#publish');
  const card = page.locator('#publish');
  assert.equal(await card.getAttribute('open'), '');
  await card.getByRole('link', { name: 'NewPost' }).click();
  await page.locator('#schema-NewPost[open] .fields-of').first().waitFor();
});

test('words find operations', async () => {
  await open();
  await page.getByLabel('Find').fill('too_many_connections');
  assert.deepEqual(await ids(), ['stream_events', 'watch']);
  await page.getByLabel('Find').fill('xylophone');
  assert.deepEqual(await ids(), []);
  await page.getByLabel('Find').fill('');
  assert.equal((await ids()).length, operations.length);
});

test('what only reads can be tried, with a key', async () => {
  await server.follow('ann', 'bob');
  await open('#list_following');
  await page.getByLabel('Key or token').fill('secret');
  const form = page.locator('#list_following .try');
  await form.getByLabel('user').fill('ann');
  await form.getByLabel('limit').fill('1');
  const asked = page.waitForRequest((request) => request.url().endsWith('/v1/users/ann/following?limit=1'));
  await form.getByRole('button', { name: 'Try it' }).click();
  assert.equal((await asked).headers().authorization, 'Bearer secret');
  await form.locator('pre', { hasText: '"id": "bob"' }).waitFor();
  assert.match(await form.locator('.note').textContent(), /^200 /);
});

test('it is seen in light, in dark, and on a phone', async () => {
  await mkdir(SCREENSHOTS, { recursive: true });
  await open('#read_feed');
  for (const [name, size] of Object.entries({ desktop: { width: 1280, height: 900 }, phone: { width: 360, height: 740 } })) {
    await page.setViewportSize(size);
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: path.join(SCREENSHOTS, `docs-${name}-${colorScheme}.png`) });
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= size.width, `${wide} pixels fit into ${size.width}`);
  }
});

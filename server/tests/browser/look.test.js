// Every tab and page in light and dark, wide and at 360 pixels: pictures for people to look at, and no finding of axe.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Browser, SIZES } from './browser.js';
import { Server } from './server.js';

const FOLLOWERS = 40;
const STEP_MAX_MS = 30_000;

let server, browser, page, post;

before(async () => {
  server = await Server.start();
  browser = await Browser.open(server.origin);
  page = browser.page;
  await fill();
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** A small network that has been in use for some seconds. */
async function fill() {
  const readers = [...Array(FOLLOWERS).keys()].map((nth) => `reader-${nth}`);
  await server.ask('POST', '/v1/follows', { follows: readers.map((follower) => ({ follower, source: 'bob' })) });
  await server.follow('zoe', 'bob', 'cas', 'dan', 'tag:tea');
  for (const reader of [...readers.slice(0, FOLLOWERS / 2), 'zoe', 'cas']) await server.ask('GET', `/v1/users/${reader}/feed`);
  await server.publish('cas', 'First flush Darjeeling has arrived. Come by before noon, it never lasts.', { tags: ['tea'] });
  post = await server.publish('bob', 'The harbour at five in the morning:\nno wind, no boats, and the tide just turning.', { tags: ['tea'] });
  await server.ask('POST', '/v1/posts', { author: 'cas', body: {}, repost_of: post.id });
  await server.ask('POST', '/v1/posts', { author: 'dan', body: { kind: 'weather', celsius: 7.5, wind: [3, 'NW'] } });
  await server.ask('PUT', '/v1/users/zoe/mutes/una');
  await server.ask('PUT', '/v1/users/zoe/lists/near/members/bob');
  for (const began = Date.now(); Date.now() - began < 6_000; await sleep(30 + ((Date.now() / 1000) % 3) * 40)) {
    await server.publish('yul', 'again');
    await server.ask('GET', '/v1/users/zoe/feed');
  }
}

const isFine = async (name, fullPage, sizes) => {
  assert.deepEqual(await browser.look(name, fullPage, sizes), []);
  assert.deepEqual(browser.complaints, []);
};

test('the overview', async () => {
  await page.goto(`${server.origin}/console`);
  await page.locator('.chart', { hasText: 'Feed pages' }).getByRole('img', { name: /now [0-9]/ }).waitFor({ timeout: STEP_MAX_MS });
  await page.locator('#server', { hasText: 'Running' }).waitFor();
  await page.locator('#queue-all > summary').click();
  await isFine('overview');
  for (const table of await page.locator('.figures > summary').all()) await table.click();
  await page.locator('.figures tbody tr').first().waitFor();
  await isFine('overview-tables');
});

test('a reader', async () => {
  await page.goto(`${server.origin}/console?user=zoe`);
  await page.locator('#feed-state', { hasText: /^Live$/ }).waitFor();
  const entry = page.locator('#posts > li', { hasText: 'harbour' });
  await entry.getByRole('button', { name: 'Why?' }).click();
  await entry.locator('.verdict').waitFor();
  await entry.getByRole('button', { name: 'Mark read' }).click();
  await page.getByText('Read up to here').waitFor();
  for (const part of ['mutes', 'blocks', 'lists', 'rules', 'marker']) await page.locator(`[data-part=${part}] > summary`).click();
  await page.locator('[data-part=marker] dd').first().waitFor();
  await page.locator('#verify').evaluate((button) => (button.closest('details').open = true));
  await page.locator('#verify').click();
  await page.locator('#verdict dd').first().waitFor();
  await page.locator('[data-part=blocks] input').waitFor();
  await page.locator('[data-part=lists]').getByText('near (1)').click();
  await page.getByRole('button', { name: 'Delete the list…' }).waitFor();
  for (const block of ['publish-box', 'publish-more']) await page.locator(`#${block}`).evaluate((details) => (details.open = true));
  await isFine('reader');
  await page.locator('#rebuild').click();
  await page.getByRole('dialog').waitFor();
  // A picture of more than the window would not show the dialog where it is.
  await isFine('dialog', false);
  await page.getByRole('button', { name: 'Cancel' }).click();
});

test('no reader, and the picker', async () => {
  await page.goto(`${server.origin}/console#reader`);
  await page.locator('#suggested-list button').first().waitFor();
  await page.getByRole('combobox').click();
  await page.keyboard.type('re');
  await page.getByRole('option').nth(1).waitFor();
  await page.keyboard.press('ArrowDown');
  await isFine('picker');
});

test('a picker without suggestions', async () => {
  await page.getByRole('combobox').fill('nobody-begins-so');
  await page.locator('#choose-note', { hasText: 'No reader begins so.' }).waitFor();
  await isFine('picker-none');
});

test('a post', async () => {
  await page.goto(`${server.origin}/console?post=${post.id}#post`);
  await page.locator('#post-state', { hasText: 'Delivered' }).waitFor();
  await isFine('post');
  await page.goto(`${server.origin}/console?user=zoe#post`);
  await isFine('post-none');
});

test('operations', async () => {
  await server.ask('POST', '/v1/snapshots');
  await page.goto(`${server.origin}/console#operations`);
  await page.locator('#snapshots li').first().waitFor();
  await page.getByText('The server has no keys').waitFor();
  await isFine('operations');
});

test('the page of the interface', async () => {
  await page.goto(`${server.origin}/docs#read_feed`);
  const card = page.locator('#read_feed');
  await card.getByLabel('user').fill('zoe');
  await card.getByLabel('limit').fill('2');
  await card.getByRole('button', { name: 'TypeScript' }).click();
  await card.getByRole('button', { name: 'Try it' }).click();
  await card.getByLabel('Answer').waitFor();
  await card.evaluate((element) => element.scrollIntoView());
  await isFine('docs', false);
  // All that an operation may have.
  for (const id of ['publish', 'watch', 'read_changes', 'erase_user']) await page.locator(`#${id}`).evaluate((element) => (element.open = true));
  await isFine('docs-operations');
});

test('search and the menu in the page of the interface', async () => {
  await page.goto(`${server.origin}/docs`);
  await page.locator('.operation').first().waitFor();
  await page.getByLabel('Find').fill('mute');
  await isFine('docs-search', false);
  await page.getByLabel('Find').fill('xylophone');
  await isFine('docs-none', false);
  await page.getByLabel('Find').fill('');
  await page.setViewportSize(SIZES.phone);
  await page.getByRole('button', { name: 'Menu' }).click();
  await isFine('docs-menu', false, { phone: SIZES.phone });
});

// Every page with something in it, in light and dark, wide and at 360 pixels: pictures for people to look at, and no finding of axe.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { SIZES } from './browser.js';
import { browser, page, server } from './open_console.js';
import { STATS, STEP_MAX_MS, entry, isRunning, openFeed, openPart, rewrite, visit } from './steps.js';

const FOLLOWERS = 40;
let post;

/** A small network that has been in use for some seconds. */
async function fill() {
  const readers = [...Array(FOLLOWERS).keys()].map((nth) => `reader-${nth}`);
  await server.ask('POST', '/v1/follows', { follows: readers.map((follower) => ({ follower, source: 'bob' })) });
  await server.follow('zoe', 'bob', 'cas', 'dan', 'tag:tea', 'a-reader-with-a-name-that-is-as-long-as-names-may-well-be-in-practice');
  await server.follow('bob', 'zoe');
  for (const reader of [...readers.slice(0, FOLLOWERS / 2), 'zoe', 'cas']) await server.ask('GET', `/v1/users/${reader}/feed`);
  await server.publish('cas', 'First flush Darjeeling has arrived. Come by before noon, it never lasts.', { tags: ['tea'] });
  post = await server.publish('bob', 'The harbour at five in the morning:\nno wind, no boats, and the tide just turning.', { tags: ['tea'] });
  await server.ask('POST', '/v1/posts', { author: 'cas', body: {}, repost_of: post.id });
  await server.ask('POST', '/v1/posts', { author: 'dan', body: { kind: 'weather', celsius: 7.5, wind: [3, 'NW'] } });
  await server.ask('PUT', '/v1/users/zoe/mutes/una');
  await server.ask('PUT', '/v1/users/zoe/blocks/vic');
  await server.ask('PUT', '/v1/users/zoe/lists/near/members/bob');
  await fetch(`${server.origin}/v1/users/zoe/following/zoe`, { method: 'PUT' });
  for (const began = Date.now(); Date.now() - began < 6_000; await sleep(30 + ((Date.now() / 1000) % 3) * 40)) {
    await server.publish('yul', 'again');
    await server.ask('GET', '/v1/users/zoe/feed');
  }
}

let filled = null;
beforeEach(() => (filled ??= fill()));

const isFine = async (name, fullPage, sizes) => assert.deepEqual(await browser.look(name, fullPage, sizes), []);
const isDrawn = () => page.locator('.chart').last().getByRole('img', { name: /now [0-9]/ }).waitFor({ timeout: STEP_MAX_MS });

test('the overview', async () => {
  await rewrite('**/v1/stats/history?*', (history) => ({ ...history, queues: { ...history.queues, fanout: { limit: 100, depth: history.at_seconds.map(() => 62) } } }));
  await visit('overview');
  await isDrawn();
  await isRunning();
  await page.locator('#trouble tbody tr').first().waitFor();
  await page.locator('#health dd').first().waitFor();
  await isFine('overview');
  for (const table of await page.locator('.figures > summary').all()) await table.click();
  await page.locator('.figures tbody tr').first().waitFor();
  await isFine('overview-tables');
});

test('the overview of a server in trouble, in compact rows', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, writes_refused: 'disk_full', disk_free_bytes: 1000, clock: { ...stats.clock, lead_seconds: 90 } }));
  await visit('overview');
  await page.locator('#verdict', { hasText: 'the disk is full' }).waitFor();
  await page.getByRole('button', { name: 'Compact' }).click();
  await isDrawn();
  await isFine('overview-trouble');
  await page.getByRole('button', { name: 'Compact' }).click();
});

test('no reader, and the search', async () => {
  await visit('readers');
  await page.locator('#suggested a').nth(3).waitFor();
  await isFine('readers');
  await page.keyboard.press('/');
  await page.keyboard.type('re');
  await page.getByRole('option').nth(1).waitFor();
  await page.keyboard.press('ArrowDown');
  await isFine('search', false);
  await page.getByRole('combobox', { name: 'Search' }).fill('nobody-begins-so');
  await page.locator('#search-note', { hasText: 'No name begins with' }).waitFor();
  await isFine('search-none', false);
});

test('a reader who sleeps, one whom nobody knows, and a tag', async () => {
  await visit('readers?user=reader-39');
  await page.getByRole('button', { name: 'Read this feed' }).waitFor();
  await isFine('reader-asleep');
  await visit('readers?user=nobody-at-all');
  await page.getByRole('button', { name: 'Read this feed' }).waitFor();
  await isFine('reader-unknown');
  await browser.forgive(/status of 404/, 1);
  await visit('readers?user=tag:tea');
  await page.locator('#posts > li').first().waitFor();
  await isFine('tag');
});

test('the feed of a reader', async () => {
  await openFeed('zoe');
  await entry('harbour').getByRole('button', { name: 'Why?' }).click();
  await entry('harbour').locator('.verdict').waitFor();
  await entry('harbour').getByRole('button', { name: 'Mark read' }).click();
  await page.getByText('Read up to here').waitFor();
  await entry('Darjeeling').getByRole('button', { name: 'JSON' }).click();
  await entry('weather').getByRole('button', { name: 'Hide' }).click();
  await page.getByRole('button', { name: 'Unhide post' }).waitFor();
  await page.getByLabel('Why is a post missing?').fill('123456789');
  await page.keyboard.press('Enter');
  await page.locator('#explanation .verdict').waitFor();
  await entry('harbour').getByRole('button', { name: 'Why?' }).focus();
  await server.publish('bob', 'this one waits');
  await page.getByRole('button', { name: '1 new post' }).waitFor();
  await isFine('reader-feed');
  await page.getByRole('button', { name: 'Unhide post' }).click();
  await page.getByRole('button', { name: 'Publish…' }).click();
  await page.getByRole('textbox', { name: 'Tags' }).fill('#tea, New Things');
  await isFine('publish', false);
});

test('all other parts of a reader', async () => {
  for (const [part, filled] of [['follows', '#following a'], ['followers', '#followers a'], ['rules', '[data-part=rules] select'], ['mutes', '[data-part=mutes] .card:last-child .rows'], ['marker', '[data-part=marker] dd']]) {
    await openPart('zoe', part);
    await page.locator(filled).first().waitFor();
    await page.locator('#about dd').first().waitFor();
    await isFine(`reader-${part}`);
  }
  await openPart('zoe', 'lists');
  await page.getByText('near (1)').click();
  await page.getByRole('button', { name: 'Delete the list…' }).waitFor();
  await isFine('reader-lists');
  await openPart('zoe', 'administration');
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.locator('#verified dd').first().waitFor();
  await isFine('reader-administration');
  await page.getByRole('button', { name: 'Erase…' }).click();
  await page.getByLabel('Type zoe to confirm').fill('zo');
  // A picture of more than the window would not show the dialog where it is.
  await isFine('dialog', false);
});

test('posts, and one of them', async () => {
  await visit('posts');
  await page.locator('#newest li').first().waitFor();
  await isFine('posts');
  await visit(`posts?post=${post.id}`);
  await page.locator('#post-state', { hasText: 'Delivered' }).waitFor();
  await page.locator('#post').getByRole('button', { name: 'Hide' }).click();
  await page.getByText('This post is hidden.').waitFor();
  await page.getByRole('button', { name: 'Edit…' }).click();
  await isFine('post');
  await page.locator('#post').getByRole('button', { name: 'Unhide' }).click();
  await page.getByText('Unhidden.').waitFor();
});

test('live clients and changes', async () => {
  await visit('live');
  await isDrawn();
  await page.getByRole('textbox', { name: 'Reader' }).fill('zoe');
  await page.keyboard.press('Enter');
  await page.locator('#messages li').first().waitFor();
  await server.publish('bob', 'to all who watch');
  await page.locator('#messages li').nth(1).locator('summary').click();
  await isFine('live');
  await visit('changes');
  await page.locator('#changes-state', { hasText: /^Live$/ }).waitFor();
  await isFine('changes-none');
  await server.publish('bob', 'a change');
  await server.follow('zoe', 'eve');
  await page.locator('#changes li').nth(1).locator('summary').click();
  await page.locator('#changes pre:visible').waitFor();
  await isFine('changes');
});

test('storage, and keys and limits', async () => {
  await server.ask('POST', '/v1/snapshots');
  const runs = [
    { started_at: '2026-01-01T00:02:00Z', took_ms: 2000, sent_bytes: 0, error: 'cannot use the store file:///a/place/that/does/not/answer: No such file or directory' },
    { started_at: '2026-01-01T00:01:00Z', took_ms: 3000, sent_bytes: 3e6, error: null },
  ];
  const backups = { runs, age_seconds: 90, interval_seconds: 60, count: 3, failing: true, failures: 1, restorable_from: '2026-01-01T00:00:00Z', sent_bytes: 3e6, stored_bytes: 5e6 };
  await visit('storage');
  await page.locator('#snapshots li').first().waitFor();
  await isDrawn();
  await isFine('storage');
  await rewrite(STATS, (stats) => ({ ...stats, backups }));
  await visit('storage');
  await page.locator('#backups dd').first().waitFor();
  await isDrawn();
  await isFine('storage-backups');
  await visit('keys');
  await page.getByText('The server has no keys').waitFor();
  await page.locator('#queues tr').first().waitFor();
  await isFine('keys');
});

test('a server alone, and a cluster', async () => {
  await visit('cluster');
  await page.getByText('not part of a cluster').waitFor();
  await isFine('cluster-alone');
  const node = (name, more) => ({ name, address: `${name}.tidewire.internal:8080`, partitions: [0, 1], heard_ms: 100, ...more });
  const nodes = [node('amsterdam', { heard_ms: null }), node('berlin', { heard_ms: 4000 }), node('copenhagen')];
  const gone = [{ name: 'dublin', address: 'dublin.tidewire.internal:8080', gone_ms: 120_000 }];
  for (const path of ['operations', 'stats/history']) {
    await page.route(`**/v1/${path}?*node=*`, async (route) => {
      const url = new URL(route.request().url());
      url.searchParams.delete('node');
      await route.fulfill({ response: await route.fetch({ url: String(url) }) });
    });
  }
  await page.route('**/v1/cluster', (route) => route.fulfill({ json: { node: 'amsterdam', epoch: 3, sequencer: 'amsterdam', applied: 1234, partitions: 6, beat_ms: 250, nodes, gone } }));
  await page.route(STATS, async (route) => {
    const response = await route.fetch({ url: `${server.origin}/v1/stats` });
    await route.fulfill({ response, headers: { ...response.headers(), 'tidewire-node': 'amsterdam' } });
  });
  await visit('cluster');
  await page.locator('#nodes tbody tr').nth(3).waitFor();
  await page.locator('#nodes tbody tr', { hasText: /^amsterdam.*\s\d.*MiB/ }).waitFor();
  await isFine('cluster');
  await visit('overview');
  await page.getByLabel('Node').waitFor();
  await isDrawn();
  await isFine('overview-of-a-node');
});

test('the page of the interface', async () => {
  await page.goto(`${server.origin}/docs#read_feed`);
  const card = page.locator('#read_feed');
  await card.getByLabel('user').fill('zoe');
  await card.getByLabel('limit').fill('2');
  await card.getByRole('button', { name: 'TypeScript' }).click();
  await card.getByRole('button', { name: 'Try it' }).click();
  await card.getByLabel('Response').waitFor();
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

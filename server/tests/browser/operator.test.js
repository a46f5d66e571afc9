// What an operator finds and changes in the console: readers, their preferences, posts, snapshots; in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, page, server } from './open_console.js';

const STEP_MAX_MS = 60_000;

test('the picker finds readers by their first letters, by the keyboard alone', async () => {
  await server.follow('marta', 'bob');
  await server.follow('martin', 'bob');
  await page.goto(`${server.origin}/console#reader`);
  await page.locator('#suggested').getByRole('button', { name: 'marta' }).waitFor();
  const input = page.getByRole('combobox', { name: 'Reader' });
  await input.focus();
  await page.keyboard.type('mart');
  const options = page.getByRole('option');
  await options.nth(1).waitFor();
  assert.equal(await input.getAttribute('aria-expanded'), 'true');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const active = await input.getAttribute('aria-activedescendant');
  const name = await page.locator(`#${active} .name`).innerText();
  assert.ok(name.startsWith('mart'), name);
  await page.keyboard.press('Escape');
  assert.equal(await options.count(), 0);
  await page.keyboard.press('ArrowDown');
  await options.nth(1).waitFor();
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: /^Feed of mart/ }).waitFor();
});

test('a post is followed to its readers, and to who reposted it', async () => {
  for (const reader of ['ann', 'cas', 'dan']) await server.follow(reader, 'rob');
  await server.ask('GET', '/v1/users/ann/feed');
  await server.ask('GET', '/v1/users/cas/feed');
  const { id } = await server.publish('rob', 'to all of you');
  await page.goto(`${server.origin}/console?user=ann`);
  await page.locator('#posts > li', { hasText: 'to all of you' }).getByRole('button', { name: 'Fan-out' }).click();
  assert.equal(page.url(), `${server.origin}/console?user=ann&post=${id}#post`);
  const view = page.locator('#post-view');
  await page.locator('#post-state', { hasText: 'Delivered' }).waitFor();
  const words = await view.getByRole('img').getAttribute('aria-label');
  assert.match(words, /^Of 3 followers: 2 pushed, .*; 1 asleep/);
  await view.getByText('Nobody has reposted it.').waitFor();
  await server.ask('POST', '/v1/posts', { author: 'cas', body: {}, repost_of: id });
  await view.locator('.rows', { hasText: 'cas' }).waitFor({ timeout: STEP_MAX_MS });
  await view.getByRole('link', { name: 'cas' }).click();
  await page.getByRole('heading', { name: 'Feed of cas' }).waitFor();
  await page.goto(`${server.origin}/console?post=7#post`);
  await page.getByText('No post 7 is known.').waitFor();
  // Of the post and of its fan-out.
  await browser.forgive(/status of 404/, 2);
});

test('an operator takes a snapshot, and sees that the server has no keys', async () => {
  await page.goto(`${server.origin}/console#operations`);
  await page.getByRole('button', { name: 'Take a snapshot now' }).click();
  await page.getByText(/^Taken: snapshot-/).waitFor();
  await page.locator('#snapshots li').first().waitFor();
  await page.getByText('The server has no keys').waitFor();
  await page.locator('#slow', { hasText: /./ }).waitFor();
  await page.locator('#recovery', { hasText: /./ }).waitFor();
});

test('what a reader has chosen is shown and changed beside the feed', async () => {
  await server.follow('eve', 'bob', 'cas');
  await server.publish('bob', 'first');
  await server.publish('cas', 'second');
  await page.goto(`${server.origin}/console?user=eve`);
  const open = (part) => page.locator(`[data-part=${part}] > summary`).click();
  const part = (name) => page.locator(`[data-part=${name}]`);
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);
  const texts = () => page.locator('#posts .text').allTextContents();
  await page.locator('#posts > li').nth(1).waitFor();
  await open('mutes');
  await part('mutes').getByLabel('Mute a source').fill('cas');
  await part('mutes').getByRole('button', { name: 'Mute', exact: true }).click();
  await page.locator('#posts > li', { hasText: 'second' }).waitFor({ state: 'detached' });
  await part('mutes').getByRole('button', { name: 'Unmute cas' }).waitFor();
  assert.equal(await focused(), 'Mute', 'the focus stays at what was pressed');
  await part('mutes').getByRole('button', { name: 'Unmute cas' }).click();
  await part('mutes').getByText('None.').waitFor();
  assert.equal(await focused(), 'Mute a source', 'the focus of what is gone goes to the form');
  await page.locator('#posts > li', { hasText: 'second' }).waitFor();
  await open('blocks');
  await part('blocks').getByText('None.').waitFor();
  await open('lists');
  await part('lists').getByLabel('Name of the list').fill('near');
  await part('lists').getByLabel('Its first member').fill('bob');
  await part('lists').getByRole('button', { name: 'Make' }).click();
  await part('lists').getByText('near (1)').click();
  await part('lists').getByRole('button', { name: 'Remove bob' }).waitFor();
  await part('lists').getByLabel('Name of the list').fill('far');
  await part('lists').getByLabel('Its first member').fill('cas');
  await page.keyboard.press('Enter');
  await part('lists').getByText('far (1)').waitFor();
  assert.equal(await focused(), 'Its first member');
  await part('lists').getByRole('button', { name: 'Remove bob' }).waitFor();
  await open('rules');
  await part('rules').getByLabel('show reposts').uncheck();
  await part('rules').getByText('Saved.').waitFor();
  assert.equal((await server.ask('GET', '/v1/users/eve/rules')).reposts, false);
  await open('marker');
  await page.locator('#posts > li', { hasText: 'first' }).getByRole('button', { name: 'Mark read' }).click();
  await page.locator('#posts > li', { hasText: 'first' }).getByText('Read up to here').waitFor();
  await part('marker').getByText('Unread').waitFor();
  await part('marker').locator('dd', { hasText: /^1$/ }).waitFor();
  assert.deepEqual(await texts(), ['second', 'first']);
});

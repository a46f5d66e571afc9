// One post in the console: what it is, how it was delivered, and what an operator does to it; in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, page, server } from './open_console.js';
import { STATS, STEP_MAX_MS, entry, focused, openFeed, rewrite, until, visit } from './steps.js';

const open = async (id) => {
  await visit(`posts?post=${id}`);
  await page.locator('#post-view').waitFor({ timeout: STEP_MAX_MS });
};
const dialog = () => page.getByRole('dialog');
const body = () => page.locator('#post .text').allTextContents();

test('a server without a post says so where the newest ones would be', async () => {
  await visit('posts');
  await page.locator('#newest-note', { hasText: /^The last changes contain no post\./ }).waitFor({ timeout: STEP_MAX_MS });
  await rewrite(STATS, (stats) => ({ ...stats, journal: null }));
  await visit('posts');
  await page.locator('#newest-note', { hasText: 'has no journal' }).waitFor({ timeout: STEP_MAX_MS });
});

test('without a post the newest ones are offered, with what fan-out takes', async () => {
  await server.follow('ann', 'bob');
  const first = await server.publish('bob', 'the older one');
  const { id } = await server.publish('bob', 'the newer one');
  await visit('posts');
  const newest = page.locator('#newest li');
  await newest.nth(1).waitFor();
  assert.match(await newest.nth(0).innerText(), new RegExp(`^post ${id} by bob\\s+(just now|\\d+ s ago)\\s+the newer one$`));
  assert.match(await newest.nth(1).innerText(), new RegExp(`^post ${first.id} by bob`));
  const third = await server.publish('bob', 'the newest one');
  await newest.first().getByText('the newest one').waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await newest.first().getByRole('link', { name: 'bob' }).getAttribute('href'), '/console/readers?user=bob');
  assert.equal(await newest.first().getByRole('link', { name: third.id }).count(), 1);
  await until(async () => /1–9\s+[1-9]/.test(await page.locator('#latency').innerText()), 'fan-out has been measured');
  await newest.getByRole('link', { name: id }).click();
  await page.getByRole('heading', { name: `Post ${id}` }).waitFor();
  assert.equal(await page.title(), `Post ${id} · Tidewire console`);
});

test('a post is followed to its readers, and to who reposted it', async () => {
  for (const reader of ['ann', 'cas', 'dan']) await server.follow(reader, 'rob');
  await server.ask('GET', '/v1/users/ann/feed');
  await server.ask('GET', '/v1/users/cas/feed');
  const { id } = await server.publish('rob', 'to all of you');
  await openFeed('ann');
  await entry('to all of you').getByRole('link', { name: `post ${id}` }).click();
  assert.equal(page.url(), `${server.origin}/console/posts?post=${id}`);
  const view = page.locator('#post-view');
  await page.locator('#post-state', { hasText: 'Delivered' }).waitFor();
  const words = await view.getByRole('img').getAttribute('aria-label');
  assert.match(words, /^Of 3 followers: 2 pushed, .*; 1 asleep/);
  assert.match(await view.getByRole('list', { name: 'Times' }).innerText(), /Accepted\s+\d\d:\d\d:\d\d\s+Fan-out started\s+\+ .*\s+First inbox\s+\+ .*\s+Last inbox\s+\+ /);
  assert.match(await page.locator('#sources').innerText(), /rob\s+3\s+pushed/);
  await view.getByText('Nobody has reposted it.').waitFor();
  await server.ask('POST', '/v1/posts', { author: 'cas', body: {}, repost_of: id });
  await view.locator('.rows', { hasText: 'cas' }).waitFor({ timeout: STEP_MAX_MS });
  await view.getByRole('heading', { name: 'Reposts: 1' }).waitFor();
  await page.locator('#reposts').getByRole('link', { name: 'cas' }).click();
  await page.getByRole('heading', { name: 'Feed of cas' }).waitFor();
});

test('a post has its replies, the newest first, and leads to all of them', async () => {
  const { id } = await server.publish('rob', 'what do you think?');
  await open(id);
  const replies = page.locator('#replies');
  await replies.getByText('Nobody has replied.').waitFor();
  const first = await server.publish('cas', 'this', { reply_to: id });
  await replies.getByText('this').waitFor({ timeout: STEP_MAX_MS });
  assert.match(await replies.locator('li').innerText(), new RegExp(`^post ${first.id} by cas\\s+.*\\s+this$`));
  assert.equal(await replies.getByRole('link', { name: 'All replies' }).count(), 0);
  for (let nth = 1; nth <= 12; nth += 1) await server.publish('dan', `that ${nth}`, { reply_to: id });
  await replies.getByText('that 12', { exact: true }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await replies.locator('li').count(), 12);
  await replies.getByRole('link', { name: 'All replies' }).click();
  await page.getByRole('heading', { name: `Posts of replies:${id}` }).waitFor();
  await page.locator('#posts > *').nth(12).waitFor();
  assert.equal(await page.locator('#posts > *').count(), 13);
});

test('a post that is not known is said to be that', async () => {
  await visit('posts?post=7');
  await page.getByText('Post 7 is unknown. It may have been deleted.').waitFor();
  assert.equal(await page.locator('#post-view').isVisible(), false);
  // Of the post and of its fan-out.
  await browser.forgive(/status of 404/, 2);
});

test('the body of a post is edited as JSON, all fields of it', async () => {
  const { id } = await server.publish('eve', 'as it was');
  await open(id);
  await page.getByRole('button', { name: 'Edit…' }).click();
  const text = page.getByLabel('Body as JSON');
  assert.deepEqual(JSON.parse(await text.inputValue()), { text: 'as it was' });
  assert.equal(await text.evaluate((area) => area === document.activeElement), true);
  await text.fill('{"text":');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('#post .note.error', { hasText: 'This is not JSON' }).waitFor();
  await text.fill('{"text":"as it is","celsius":7.5}');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  await until(async () => (await body())[0] === 'as it is', 'the new text');
  assert.deepEqual(JSON.parse((await body())[1]), { celsius: 7.5 });
  await page.locator('#post').getByText('edited').waitFor();
  assert.deepEqual((await server.ask('GET', `/v1/posts/${id}`)).body, { text: 'as it is', celsius: 7.5 });
  assert.equal(await focused(), 'Edit…');
});

test('what is typed into a post stays when something else of it changes', async () => {
  const { id } = await server.publish('fay', 'typed over');
  await open(id);
  await page.getByRole('button', { name: 'Edit…' }).click();
  await page.getByLabel('Body as JSON').fill('{"text":"half wri');
  await server.ask('POST', '/v1/posts', { author: 'gil', body: {}, repost_of: id });
  await page.getByRole('heading', { name: 'Reposts: 1' }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await page.getByLabel('Body as JSON').inputValue(), '{"text":"half wri');
  await page.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await page.getByLabel('Body as JSON').count(), 0);
});

test('a post is hidden and shown again, and the focus stays at the button', async () => {
  await server.follow('hal', 'ida');
  const { id } = await server.publish('ida', 'now and then');
  await open(id);
  await page.getByRole('button', { name: 'Hide', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByText('This post is hidden.').waitFor();
  await page.getByText('Hidden.', { exact: true }).waitFor();
  assert.deepEqual(await server.texts('hal'), []);
  assert.equal(await focused(), 'Unhide');
  await page.keyboard.press('Enter');
  await page.getByText('This post is hidden.').waitFor({ state: 'detached' });
  await page.getByText('Unhidden.').waitFor();
  assert.deepEqual(await server.texts('hal'), ['now and then']);
});

test('a post is deleted once that is confirmed', async () => {
  const { id } = await server.publish('jon', 'not for long');
  await open(id);
  await page.getByRole('button', { name: 'Delete…' }).click();
  await dialog().getByRole('button', { name: 'Cancel' }).click();
  assert.deepEqual(await body(), ['not for long']);
  await page.getByRole('button', { name: 'Delete…' }).click();
  await dialog().getByRole('button', { name: 'Delete' }).click();
  await page.locator('#post-note', { hasText: /^Deleted\. Newest posts$/ }).waitFor();
  assert.equal(await page.locator('#post-note.error').count(), 0);
  assert.equal(await page.locator('#post-view').isVisible(), false);
  assert.equal(await focused(), 'Newest posts');
  await page.keyboard.press('Enter');
  await page.waitForURL(`${server.origin}/console/posts`);
});

test('followers of several sources of a post are named', async () => {
  await server.follow('ned', 'oli', 'tag:sea');
  await server.follow('pat', 'oli');
  const { id } = await server.publish('oli', 'of the sea', { tags: ['sea'] });
  await open(id);
  await page.locator('#fanout .lead', { hasText: '3 followers: 2 of oli, 1 of tag:sea' }).waitFor();
  assert.equal(await page.locator('#fanout').getByRole('link', { name: 'tag:sea' }).getAttribute('href'), '/console/readers?user=tag%3Asea');
  await page.locator('#sources').getByText('Sources with more followers than --celebrity-followers are pulled').waitFor();
});

test('steps that did not take place are not drawn', async () => {
  await rewrite('**/v1/posts/*/fanout', (fanout) => ({ ...fanout, state: 'pulled', pulled: fanout.followers, pushed: null, started_after_us: null, first_delivery_after_us: null, finished_after_us: null }));
  const { id } = await server.publish('rob', 'to be pulled');
  await open(id);
  await page.locator('#post-state', { hasText: 'Nothing to push' }).waitFor();
  assert.match(await page.getByRole('list', { name: 'Times' }).innerText(), /^Accepted\s+\d\d:\d\d:\d\d$/);
});

test('a post and its fan-out are copied as JSON', async () => {
  await browser.context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const { id } = await server.publish('kay', 'to be copied');
  await open(id);
  const copy = page.locator('#raw-head').getByRole('button');
  await copy.click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  assert.deepEqual(copied.post, await server.ask('GET', `/v1/posts/${id}`));
  assert.deepEqual(copied, JSON.parse(await page.locator('#raw').textContent()));
  assert.equal(copied.fanout.post ?? copied.fanout.id ?? id, id);
  await page.getByRole('button', { name: 'Copy', exact: true }).waitFor();
});

test('the text of a post is only text, and other posts that it names are linked', async () => {
  const text = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
  const first = await server.publish('lou', text);
  const { id } = await server.publish('max', text, { reply_to: first.id });
  await open(id);
  assert.deepEqual(await body(), [text]);
  assert.equal(await page.title(), `Post ${id} · Tidewire console`);
  await page.locator('#post').getByRole('link', { name: `post ${first.id}` }).click();
  await page.getByRole('heading', { name: `Post ${first.id}` }).waitFor();
});

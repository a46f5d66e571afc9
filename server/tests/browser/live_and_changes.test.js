// Live clients and changes in the console, as they come, in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, page, server } from './open_console.js';
import { STATS, STEP_MAX_MS, isRunning, rewrite, until, visit } from './steps.js';

const messages = () => page.locator('#messages > li');
const changes = () => page.locator('#changes > li:visible');
const kinds = (rows) => rows.locator('.chip').allTextContents();
const watch = async (user) => {
  await page.getByRole('textbox', { name: 'Reader' }).fill(user);
  await page.getByRole('button', { name: 'Watch' }).click();
  await page.getByText(`Watching the feed of ${user}.`).waitFor();
};
const openChanges = async () => {
  await visit('changes');
  await page.locator('#changes-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
};

test('the figures of live clients are those of now', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, active: 7, users: 12, live: { connections: 3, readers: 2, messages: 12_345, cut_off: 1 } }));
  await visit('live');
  const shown = page.locator('#figures');
  await until(async () => /Connections\s+3\s+Readers watched\s+2/.test(await shown.innerText()), 'figures');
  assert.match(await shown.innerText(), /Messages since the start\s+12\.3K\s+Slow clients disconnected\s+1\s+Awake readers\s+7 of 12 users and sources/);
  for (const title of ['Live', 'Awake readers']) await page.locator('.chart', { has: page.getByRole('heading', { name: title }) }).getByRole('img', { name: /now/ }).waitFor({ timeout: STEP_MAX_MS });
});

test('what a client is sent is shown as it comes, the newest first', async () => {
  await server.follow('ann', 'bob');
  await visit('live');
  await watch('ann');
  await messages().first().waitFor();
  assert.deepEqual(await kinds(messages()), ['hello']);
  const { id } = await server.publish('bob', 'to a client');
  await page.getByText(`post ${id} by bob, via bob`).waitFor();
  await server.ask('PATCH', `/v1/posts/${id}`, { body: { text: 'anew' } });
  await messages().nth(2).waitFor();
  await server.ask('DELETE', `/v1/posts/${id}`);
  await messages().nth(3).waitFor();
  assert.deepEqual(await kinds(messages()), ['remove', 'update', 'post', 'hello']);
  assert.match(await messages().nth(0).innerText(), new RegExp(`post ${id}`));
  assert.match(await messages().nth(1).innerText(), new RegExp(`post ${id} by bob`));
  await messages().nth(2).locator('summary').click();
  await messages().nth(2).getByRole('group', { name: 'post as JSON' }).getByText('"text": "to a client"').waitFor();
  await server.publish('bob', 'once more');
  await messages().nth(4).waitFor();
  assert.equal(await messages().nth(3).locator('pre').isVisible(), true, 'what is open stays open');
});

test('watching is stopped, and another reader begins with an empty list', async () => {
  await server.follow('cas', 'dan');
  await visit('live');
  await watch('cas');
  await messages().first().waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Stop' }).isVisible(), false);
  await until(async () => (await server.ask('GET', '/v1/stats')).live.connections === 0, 'the connection is closed');
  await watch('eve');
  await messages().first().waitFor();
  assert.deepEqual(await kinds(messages()), ['hello']);
});

test('a client of a name that cannot be is refused in words', async () => {
  await visit('live');
  await page.getByRole('textbox', { name: 'Reader' }).fill('not an id');
  await page.getByRole('button', { name: 'Watch' }).click();
  await page.locator('#watch-note.error', { hasText: /^Refused: / }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Stop' }).isVisible(), false);
  await browser.forgive(/status of 4\d\d/, 1);
});

test('a change appears without a reload', async () => {
  await openChanges();
  await page.getByText('Nothing has changed since you opened this page.').waitFor();
  const { id } = await server.publish('fay', 'a change');
  await page.getByText(`post ${id} by fay`).waitFor();
  assert.equal(await page.getByText('Nothing has changed').isVisible(), false);
  await server.follow('gil', 'fay');
  await server.ask('POST', '/v1/follows', { follows: [{ follower: 'gil', source: 'hal' }, { follower: 'gil', source: 'ida' }] });
  await server.unfollow('gil', 'hal');
  await server.ask('PUT', '/v1/users/gil/mutes/jon');
  await server.ask('PUT', '/v1/users/gil/lists/near/members/fay');
  await server.ask('PATCH', '/v1/users/gil/rules', { reposts: false });
  await server.ask('DELETE', `/v1/posts/${id}`);
  await changes().nth(7).waitFor();
  const texts = (await changes().allInnerTexts()).map((text) => text.replace(/^\d\d:\d\d:\d\d\s+/, '').replace(/\s+/, ' '));
  assert.deepEqual(texts, [
    `deleted post ${id}`,
    'rules_changed gil',
    'member_added gil list near → fay',
    'muted gil → jon',
    'unfollowed gil → hal',
    'followed 2 follows',
    'followed gil → fay',
    `published post ${id} by fay`,
  ]);
  await changes().nth(7).locator('summary').click();
  await changes().nth(7).getByRole('group', { name: 'published as JSON' }).getByText('"text": "a change"').waitFor();
});

test('changes are filtered by what they are of', async () => {
  await openChanges();
  const types = page.getByLabel('Types');
  const names = await types.locator('option').allTextContents();
  const shown = {
    all: ['tokens_revoked', 'muted', 'followed', 'published'],
    posts: ['published'],
    follows: ['followed'],
    'mutes, blocks, lists, rules, markers': ['muted'],
    'erasures and revocations': ['tokens_revoked'],
  };
  assert.deepEqual(names, Object.keys(shown));
  let nth = 0;
  for (const name of [...names.slice(1), 'all']) {
    await types.selectOption(name);
    // Those that were kept before are there, too.
    await until(async () => (await changes().count()) === nth * shown[name].length, `the kept changes of ${name}`);
    // Twice, so that between two of a kind there is all that is left out.
    for (const end = nth + 2; nth < end; nth++) {
      await server.publish('kay', 'a post');
      await server.follow('lou', `source-${nth}`);
      await server.ask('PUT', `/v1/users/lou/mutes/muted-${nth}`);
      await server.ask('POST', '/v1/users/lou/revoke');
    }
    await changes().nth(nth * shown[name].length - 1).waitFor();
    assert.deepEqual([...new Set(await kinds(changes()))], shown[name]);
  }
});

test('the filter applies to the changes that are kept, also during a pause, and an empty list says why', async () => {
  await openChanges();
  await server.follow('una', 'vic');
  await server.publish('vic', 'a post');
  await changes().nth(1).waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByLabel('Types').selectOption('follows');
  assert.deepEqual(await kinds(changes()), ['followed']);
  await page.getByLabel('Types').selectOption('erasures and revocations');
  await page.getByText('No recent change is of this kind.').waitFor();
  assert.equal(await changes().count(), 0);
  await page.getByLabel('Types').selectOption('all');
  assert.deepEqual(await kinds(changes()), ['published', 'followed']);
});

test('a pause is said in place of what is live', async () => {
  await openChanges();
  await page.getByRole('button', { name: 'Pause' }).click();
  assert.equal(await page.locator('#changes-state').innerText(), 'Paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  assert.equal(await page.locator('#changes-state').innerText(), 'Live');
  await visit('live');
  const state = page.locator('#watch-state');
  assert.equal(await state.isVisible(), false);
  await watch('ann');
  assert.equal(await state.innerText(), 'Live');
  await page.getByRole('button', { name: 'Pause' }).click();
  assert.equal(await state.innerText(), 'Paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  assert.equal(await state.innerText(), 'Live');
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.equal(await state.isVisible(), false);
});

test('posts, users and tags in changes and messages are links', async () => {
  await openChanges();
  await server.follow('wim', 'tag:tea');
  const { id } = await server.publish('xen', 'a post', { tags: ['tea'] });
  await changes().nth(1).waitFor();
  const links = (row) => row.getByRole('link').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
  assert.deepEqual(await links(changes().nth(0)), [`/console/posts?post=${id}`, '/console/readers?user=xen']);
  assert.deepEqual(await links(changes().nth(1)), ['/console/readers?user=wim', '/console/readers?user=tag%3Atea']);
  await visit('live');
  await watch('wim');
  const next = await server.publish('xen', 'another', { tags: ['tea'] });
  await messages().nth(1).waitFor();
  assert.deepEqual(await links(messages().nth(0)), [`/console/posts?post=${next.id}`, '/console/readers?user=xen', '/console/readers?user=tag%3Atea']);
});

test('a pause stops the list of changes, and none is missing when it goes on', async () => {
  await openChanges();
  await server.publish('max', 'before');
  await changes().first().waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  const posts = [];
  for (let nth = 0; nth < 3; nth++) posts.unshift((await server.publish('max', `meanwhile ${nth}`)).id);
  // By another way they have come already.
  await page.evaluate(() => fetch('/v1/changes?after=0').then((answer) => answer.text()));
  assert.equal(await changes().count(), 1);
  await page.getByRole('button', { name: 'Resume' }).click();
  await changes().nth(3).waitFor();
  const texts = await changes().allInnerTexts();
  posts.forEach((id, nth) => assert.match(texts[nth], new RegExp(id)));
});

test('changes go on where they were after the server was gone', async () => {
  await openChanges();
  await server.publish('nan', 'before');
  await changes().first().waitFor();
  await server.kill();
  await page.locator('#changes-state', { hasText: 'Reconnecting…' }).waitFor();
  await server.run();
  await server.publish('nan', 'after');
  await page.locator('#changes-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
  await changes().nth(1).waitFor();
  assert.equal(await changes().count(), 2);
  await isRunning();
  browser.complaints = browser.complaints.filter((text) => !/net::ERR_/.test(text));
});

test('a server with another journal is said to have one, and its changes follow those of the journal before', async () => {
  await openChanges();
  for (let nth = 0; nth < 3; nth++) await server.publish('olga', `before ${nth}`);
  await changes().nth(2).waitFor();
  await server.kill();
  await page.locator('#changes-state', { hasText: 'Reconnecting…' }).waitFor();
  await server.forget();
  await server.run();
  await page.locator('#changes-note', { hasText: 'The server has another journal now.' }).waitFor({ timeout: STEP_MAX_MS });
  await page.locator('#changes-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
  const { id } = await server.publish('olga', 'after');
  await changes().nth(4).waitFor();
  const rows = await changes().allInnerTexts();
  assert.match(rows[0], new RegExp(id));
  assert.match(rows[1], /rows below come from the old one/);
  await page.getByLabel('Types').selectOption('follows');
  await page.getByText('No recent change is of this kind.').waitFor();
  await isRunning();
  browser.complaints = browser.complaints.filter((text) => !/net::ERR_|status of 400/.test(text));
});

test('a server without a journal says that it has no changes to show', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, journal: null }));
  await visit('changes');
  await page.locator('#changes-note.error', { hasText: 'start it with a data directory' }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await page.locator('#changes-state').isVisible(), false);
  assert.equal(await page.getByText('Nothing has changed').isVisible(), false);
});

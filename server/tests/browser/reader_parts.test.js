// What else the console shows of a reader, and changes: follows, followers, rules, mutes, blocks, lists, marker, administration.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, page, server } from './open_console.js';
import { entry, focused, held, openFeed, openPart, shows, visit } from './steps.js';

const PARTS = { feed: 'Feed', follows: 'Follows', followers: 'Followers', rules: 'Rules', mutes: 'Mutes & blocks', lists: 'Lists', marker: 'Marker', administration: 'Administration' };
const part = (name) => page.locator(`[data-part=${name}]`);
const dialog = () => page.getByRole('dialog');

test('each part of a reader has an address, which a reload keeps', async () => {
  await server.follow('ann', 'bob');
  await visit('readers?user=ann');
  for (const [name, title] of Object.entries(PARTS)) {
    await page.locator('#parts').getByRole('link', { name: title, exact: true }).click();
    const query = name === 'feed' ? '' : `&part=${name}`;
    await page.waitForURL(`${server.origin}/console/readers?user=ann${query}`);
    await page.reload();
    await part(name).waitFor();
    assert.deepEqual(await page.locator('#parts [aria-current=page]').allInnerTexts(), [title]);
    assert.equal(await page.locator('[data-part]:visible').count(), 1);
    assert.equal(await page.title(), 'ann · Tidewire console');
  }
});

test('sources are followed and unfollowed, and a refusal is said next to what caused it', async () => {
  await server.follow('vic', 'wes', 'xia');
  await server.publish('wes', 'of wes');
  await server.publish('xia', 'of xia');
  await openPart('vic', 'follows');
  await page.getByRole('button', { name: 'Unfollow wes' }).click();
  await page.getByText('vic no longer follows wes.').waitFor();
  await page.getByRole('button', { name: 'Unfollow wes' }).waitFor({ state: 'detached' });
  const source = page.locator('#source');
  await source.fill('vic');
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await page.locator('#follow-note.error', { hasText: 'vic' }).waitFor();
  await source.fill('tag:tea');
  await page.keyboard.press('Enter');
  await page.getByText('vic now follows tag:tea.').waitFor();
  await page.getByRole('button', { name: 'Unfollow tag:tea' }).waitFor();
  await page.getByLabel('on unfollow, keep its posts in the feed').check();
  await source.fill('xia');
  await page.getByRole('button', { name: 'Unfollow', exact: true }).click();
  await page.getByText('vic no longer follows xia.').waitFor();
  assert.deepEqual(await server.texts('vic'), ['of xia']);
  await browser.forgive(/status of 4\d\d/, 1);
});

test('the list of sources is that of the last choice, and each is in it once', async () => {
  const sources = [...Array(45).keys()].map((nth) => `source-${nth}`);
  await server.follow('ina', ...sources);
  await server.ask('POST', '/v1/follows', { follows: [{ follower: 'ina', source: 'secret', hidden: true }] });
  await openPart('ina', 'follows');
  const rows = page.locator('#following > li');
  await rows.nth(19).waitFor();
  const hidden = await held('**/v1/users/ina/following?*', (request) => request.url().includes('hidden=true'));
  await page.getByLabel('list hidden follows').check();
  await hidden.isAsked;
  await page.getByLabel('list hidden follows').uncheck();
  await hidden.answered();
  assert.equal(await rows.count(), 20);
  assert.doesNotMatch(await page.locator('#following').innerText(), /secret/);
  const more = await held('**/v1/users/ina/following?*');
  await page.getByRole('button', { name: 'More sources' }).dblclick();
  await more.isAsked;
  await more.answered();
  await rows.nth(39).waitFor();
  assert.equal(await rows.count(), 40);
  await page.getByRole('button', { name: 'More sources' }).click();
  await rows.nth(44).waitFor();
  assert.equal(new Set(await rows.allInnerTexts()).size, 45);
  assert.equal(await page.getByRole('button', { name: 'More sources' }).isVisible(), false);
  await page.getByLabel('list hidden follows').check();
  await page.locator('#following > li:only-child', { hasText: 'secret' }).waitFor();
});

test('followers are listed page by page, and lead to their feeds', async () => {
  for (let nth = 0; nth < 25; nth++) await server.follow(`fan-${nth}`, 'star');
  await openPart('star', 'followers');
  const rows = page.locator('#followers > li');
  await rows.nth(19).waitFor();
  assert.equal(await rows.count(), 20);
  await page.getByRole('button', { name: 'More followers' }).click();
  await rows.nth(24).waitFor();
  assert.equal(new Set(await rows.locator('a').allInnerTexts()).size, 25);
  assert.equal(await page.getByRole('button', { name: 'More followers' }).isVisible(), false);
  await rows.getByRole('link', { name: 'fan-7' }).click();
  await page.getByRole('heading', { name: 'Feed of fan-7' }).waitFor();
  await openPart('fan-7', 'followers');
  await page.getByText('None.').waitFor();
});

test('mutes and blocks are made and undone, and the focus stays in their form', async () => {
  await server.follow('eve', 'bob', 'cas');
  await server.publish('bob', 'first');
  await server.publish('cas', 'second');
  await openPart('eve', 'mutes');
  const [mutes, blocks] = [part('mutes').locator('.card').first(), part('mutes').locator('.card').last()];
  await mutes.getByLabel('Mute a source').fill('cas');
  await mutes.getByRole('button', { name: 'Mute', exact: true }).click();
  await mutes.getByRole('button', { name: 'Unmute cas' }).waitFor();
  assert.equal(await focused(), 'Mute', 'the focus stays at what was pressed');
  assert.deepEqual(await server.texts('eve'), ['first']);
  await mutes.getByRole('button', { name: 'Unmute cas' }).click();
  await mutes.getByText('None.').waitFor();
  assert.equal(await focused(), 'Mute a source', 'the focus of what is gone goes to the form');
  assert.deepEqual(await server.texts('eve'), ['second', 'first']);
  await blocks.getByLabel('Block a source').fill('bob');
  await page.keyboard.press('Enter');
  await blocks.getByRole('button', { name: 'Unblock bob' }).waitFor();
  assert.deepEqual(await server.texts('eve'), ['second']);
  await blocks.getByRole('button', { name: 'Unblock bob' }).click();
  await blocks.getByText('None.').waitFor();
});

test('lists are made, filled and deleted', async () => {
  await server.follow('lin', 'bob');
  await openPart('lin', 'lists');
  const lists = part('lists');
  await lists.getByLabel('Name of the list').fill('near');
  await lists.getByLabel('First member').fill('bob');
  await lists.getByRole('button', { name: 'Create' }).click();
  await lists.getByText('near (1)').click();
  await lists.getByRole('button', { name: 'Remove bob' }).waitFor();
  await lists.getByLabel('Name of the list').fill('far');
  await lists.getByLabel('First member').fill('cas');
  await page.keyboard.press('Enter');
  await lists.getByText('far (1)').waitFor();
  assert.equal(await focused(), 'First member');
  await lists.getByRole('button', { name: 'Remove bob' }).waitFor();
  await lists.getByLabel('Add a source').fill('dan');
  await page.keyboard.press('Enter');
  await lists.getByRole('button', { name: 'Remove dan' }).waitFor();
  await lists.getByRole('button', { name: 'Delete the list…' }).click();
  await dialog().getByRole('button', { name: 'Delete' }).click();
  await lists.getByText(/^near/).waitFor({ state: 'detached' });
  const { items } = await server.ask('GET', '/v1/users/lin/lists');
  assert.deepEqual(items.map(({ name }) => name), ['far']);
});

test('rules show what the server has, and the last choice is saved', async () => {
  await server.follow('rod', 'bob');
  await openPart('rod', 'rules');
  const [reposts, replies] = [page.getByLabel('show reposts'), page.getByRole('combobox', { name: /^Replies/ })];
  await page.route('**/v1/users/rod/rules', (route) =>
    route.request().method() === 'PATCH' ? route.fulfill({ status: 507, json: { code: 'disk_full', detail: 'no room' } }) : route.continue(),
  );
  await reposts.click();
  await replies.selectOption('none');
  await page.locator('[data-part=rules] .note.error', { hasText: 'no room' }).waitFor();
  await page.waitForFunction(() => !document.querySelector('[data-part=rules] [aria-busy]'));
  assert.equal(await reposts.isChecked(), true);
  assert.equal(await replies.inputValue(), 'followed');
  await page.unroute('**/v1/users/rod/rules');
  await browser.forgive(/status of 507/, 2);

  const first = await held('**/v1/users/rod/rules', (request) => request.method() === 'PATCH');
  await replies.selectOption('none');
  await first.isAsked;
  await replies.selectOption('all');
  await first.answered();
  await page.waitForFunction(() => !document.querySelector('[data-part=rules] [aria-busy]'));
  await page.getByText('Saved.').waitFor();
  assert.equal((await server.ask('GET', '/v1/users/rod/rules')).replies, 'all');
  await page.getByLabel('Maximum entries per author').fill('3');
  await page.keyboard.press('Tab');
  await page.getByText('Saved.').waitFor();
  await page.reload();
  await page.waitForFunction(() => document.querySelector('[data-part=rules] input[type=number]')?.value === '3');
  assert.equal(await replies.inputValue(), 'all');
});

test('the marker says what is unread, and all is marked as read', async () => {
  await server.follow('max', 'nan');
  await server.publish('nan', 'first');
  const { id } = await server.publish('nan', 'second');
  await openPart('max', 'marker');
  const unread = (text) => part('marker').locator('dd').first().getByText(text, { exact: true });
  await unread('2').waitFor();
  await part('marker').getByText('nothing yet').waitFor();
  await part('marker').getByRole('button', { name: 'Mark all as read' }).click();
  await unread('0').waitFor();
  assert.equal(await focused(), 'Mark all as read');
  const place = part('marker').locator('dd').nth(1);
  assert.match(await place.innerText(), new RegExp(`^post ${id} published (just now|\\d+ s ago)$`));
  assert.equal(await place.getByRole('link').getAttribute('href'), `/console/posts?post=${id}`);
  await openFeed('max');
  await entry('second').getByText('Read up to here').waitFor();
});

test('an inbox is verified and built anew', async () => {
  await server.follow('ola', 'pet');
  for (const text of ['first', 'second']) await server.publish('pet', text);
  await openFeed('ola');
  await shows(['second', 'first']);
  await openPart('ola', 'administration');
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('The inbox was correct.', { exact: true }).waitFor();
  assert.match(await page.locator('#verified').textContent(), /^Entries2/);
  await page.getByRole('button', { name: 'Rebuild…' }).click();
  await dialog().getByRole('button', { name: 'Rebuild' }).click();
  await page.getByText('The inbox was correct. It was rebuilt.').waitFor();
});

test('tokens are revoked, and a user is erased, only once the name is typed', async () => {
  await server.follow('gus', 'hal');
  await server.publish('gus', 'soon gone');
  await openPart('gus', 'administration');
  const typed = dialog().getByLabel('Type gus to confirm');
  for (const [name, yes, said] of [['Revoke tokens…', 'Revoke', /^Revoked: the server refuses tokens issued before \S+\.$/], ['Erase…', 'Erase', /^The erasure has begun\.$/]]) {
    await page.getByRole('button', { name }).click();
    const button = dialog().getByRole('button', { name: yes });
    assert.equal(await typed.inputValue(), '');
    assert.equal(await button.isDisabled(), true);
    await typed.fill('hal');
    assert.equal(await button.isDisabled(), true, 'another name is not enough');
    await page.keyboard.press('Enter');
    assert.equal(await dialog().isVisible(), true);
    await typed.fill('gus');
    assert.equal(await button.isDisabled(), false);
    await page.keyboard.press('Escape');
    assert.doesNotMatch(await page.locator('#user-note').textContent(), said);
    await page.getByRole('button', { name }).click();
    await typed.fill('gus');
    await button.click();
    await page.locator('#user-note', { hasText: said }).waitFor();
  }
  // A dialog of another kind asks for no name.
  await page.getByRole('button', { name: 'Rebuild…' }).click();
  assert.equal(await dialog().getByRole('textbox').count(), 0);
  assert.equal(await dialog().getByRole('button', { name: 'Rebuild' }).isDisabled(), false);
  await dialog().getByRole('button', { name: 'Cancel' }).click();
  assert.deepEqual(await server.texts('hal'), []);
});

test('the sources of a reader are links, with how long each is there', async () => {
  await server.follow('ike', 'joy', 'tag:tea');
  await server.ask('PUT', '/v1/users/ike/mutes/ken');
  await server.ask('PUT', '/v1/users/ike/blocks/len');
  await server.ask('PUT', '/v1/users/ike/lists/near/members/joy');
  const row = async (place, name) => {
    const link = place.getByRole('link', { name, exact: true });
    assert.equal(await link.getAttribute('href'), `/console/readers?user=${encodeURIComponent(name)}`);
    assert.match(await link.locator('xpath=..').innerText(), /^\S+ for \d+ (s|min)$/);
  };
  await openPart('ike', 'follows');
  await row(part('follows'), 'joy');
  await row(part('follows'), 'tag:tea');
  await openPart('ike', 'mutes');
  await row(part('mutes'), 'ken');
  await row(part('mutes'), 'len');
  const gap = (box) => box.evaluate((list) => list.getBoundingClientRect().top - list.parentElement.querySelector('form').getBoundingClientRect().bottom);
  assert.ok((await gap(part('mutes').locator('.rows').first())) >= 8, 'rows do not touch the form');
  await openPart('ike', 'lists');
  await part('lists').getByText('near (1)').click();
  await row(part('lists').locator('details'), 'joy');
  assert.ok((await gap(part('lists').locator('details .rows'))) >= 8);
});

// What all pages of the console have: addresses, the rail, the search, Pause, the dialog to publish; in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { browser, page, server } from './open_console.js';
import { STEP_MAX_MS, entry, focused, isLive, isRunning, openFeed, openPart, requests, shows, until, visit } from './steps.js';

const PAGES = {
  overview: 'Overview',
  readers: 'Readers',
  posts: 'Posts',
  live: 'Live',
  changes: 'Changes',
  storage: 'Storage & backups',
  cluster: 'Cluster',
  keys: 'Keys & limits',
};
const current = () => page.locator('.rail [aria-current=page]');
const searched = () => page.getByRole('combobox', { name: 'Search for a reader or a post' });

test('each page has an address, a title and a place in the rail, which a reload keeps', async () => {
  await visit('overview');
  for (const [name, title] of Object.entries(PAGES)) {
    await page.locator('.rail').getByRole('link', { name: title, exact: true }).click();
    await page.waitForURL(`${server.origin}/console/${name}`);
    await isRunning();
    await page.reload();
    await isRunning();
    assert.equal(page.url(), `${server.origin}/console/${name}`);
    assert.equal(await page.title(), `${title} · Tidewire console`);
    assert.deepEqual(await current().allInnerTexts(), [title]);
    assert.equal(await page.locator('#page h2').first().textContent(), title);
    assert.match(await page.locator('#about-server').innerText(), /^Tidewire \d+\.\d+\.\d+ · [0-9a-f]+ · 127\.0\.0\.1:\d+$/);
  }
  await page.goBack();
  assert.deepEqual(await current().allInnerTexts(), ['Cluster']);
  await page.locator('.rail').getByRole('link', { name: 'API' }).click();
  await page.waitForURL(`${server.origin}/docs`);
});

test('the address without a page leads to the overview', async () => {
  await page.goto(`${server.origin}/console`);
  await page.locator('#verdict').waitFor();
});

test('a slash leads to the search, and its suggestions to a reader, by the keyboard alone', async () => {
  await server.follow('marta', 'bob');
  await server.follow('martin', 'bob');
  await visit('keys');
  await isRunning();
  await page.keyboard.press('/');
  assert.equal(await searched().evaluate((input) => input === document.activeElement), true);
  assert.equal(await searched().inputValue(), '');
  await page.keyboard.type('mart');
  const options = page.getByRole('option');
  await options.nth(1).waitFor();
  assert.equal(await searched().getAttribute('aria-expanded'), 'true');
  assert.equal(await page.locator('#search-note').textContent(), '2 names found. Names that begin with “mart”');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const active = await searched().getAttribute('aria-activedescendant');
  assert.match(await page.locator(`#${active} .name`).innerText(), /^mart/);
  await page.keyboard.press('Escape');
  assert.equal(await options.count(), 0);
  await page.keyboard.press('ArrowDown');
  await options.nth(1).waitFor();
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: /^Feed of mart/ }).waitFor();
  assert.match(page.url(), /\/console\/readers\?user=mart(a|in)$/);
});

test('a slash that is typed stays text', async () => {
  await visit('live');
  const reader = page.getByRole('textbox', { name: 'Reader' });
  await reader.focus();
  await page.keyboard.type('either/or');
  assert.equal(await reader.inputValue(), 'either/or');
  await page.getByRole('button', { name: 'Publish…' }).click();
  await page.keyboard.type('either/or');
  assert.equal(await page.getByLabel('Text').inputValue(), 'either/or');
});

test('a reader that is typed in full is opened, and a number leads to the post', async () => {
  await server.follow('wes', 'xia');
  const { id } = await server.publish('xia', 'by its number');
  await visit('overview');
  await searched().fill('wes');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Feed of wes' }).waitFor();
  assert.equal(await page.title(), 'wes · Tidewire console');
  await searched().fill(id);
  await page.locator('#search-note', { hasText: `No name begins with “${id}”. Enter shows post ${id}.` }).waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: `Post ${id}` }).waitFor();
  assert.equal(page.url(), `${server.origin}/console/posts?post=${id}`);
  await page.locator('#post .text', { hasText: 'by its number' }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'Feed of wes' }).waitFor();
});

test('Enter opens the name that is typed, else the first that begins so, and never one that nobody has', async () => {
  await server.follow('hugo.ash', 'bob');
  await visit('overview');
  await searched().fill('hugo');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Feed of hugo.ash' }).waitFor();
  await server.follow('hugo', 'bob');
  await searched().fill('hugo');
  await page.getByRole('option').nth(1).waitFor();
  assert.equal(await page.locator('#suggestions').evaluate((list) => getComputedStyle(list, '::before').content), '"Names that begin with “hugo”"');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Feed of hugo', exact: true }).waitFor();
  const { asked, end } = requests();
  const url = page.url();
  await searched().fill('hugox');
  await page.keyboard.press('Enter');
  await page.locator('#search-note', { hasText: '“hugox” is unknown.' }).waitFor();
  assert.equal(page.url(), url);
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Open its page anyway');
  end();
  assert.deepEqual(asked.filter((request) => /^(POST|PUT|PATCH)/.test(request) || request.includes('/hugox')), []);
  assert.deepEqual((await server.ask('GET', '/v1/sources?prefix=hugox')).items, []);
  await page.keyboard.press('Tab');
  assert.equal(await page.locator('#search-note').textContent(), '', 'it goes with the focus');
});

test('the search says whether there is no reader or no answer', async () => {
  await visit('overview');
  const note = page.locator('#search-note');
  await searched().fill('nobody-begins-so');
  await note.filter({ hasText: 'No name begins with “nobody-begins-so”. The search matches only the beginning of names.' }).waitFor();
  assert.equal(await note.evaluate(({ clientHeight }) => clientHeight > 10), true, 'it is seen');
  await page.route('**/v1/sources?*', (route) => route.fulfill({ status: 503, json: { code: 'overloaded', detail: 'too much to do' } }));
  await searched().fill('nobody');
  await page.locator('#search-note.error', { hasText: 'Refused: too much to do.' }).waitFor();
  await page.keyboard.press('Escape');
  await searched().blur();
  assert.equal(await note.textContent(), '');
  await browser.forgive(/status of 503/, 1);
});

test('a pause stops questions and the feed, and what came meanwhile is there when it goes on', async () => {
  await server.follow('pam', 'quin');
  await server.publish('quin', 'before');
  await openFeed('pam');
  await shows(['before']);
  await page.getByRole('button', { name: 'Pause' }).click();
  const goOn = page.getByRole('button', { name: 'Resume' });
  assert.equal(await goOn.getAttribute('aria-pressed'), 'true');
  const { asked, end } = requests();
  await server.publish('quin', 'meanwhile');
  // Longer than the state of the server is asked for.
  await sleep(6_000);
  assert.deepEqual(asked, []);
  assert.deepEqual(await page.locator('#posts .text').allTextContents(), ['before']);
  await goOn.click();
  await shows(['meanwhile', 'before']);
  await until(() => asked.includes('GET /v1/stats'), 'the state of the server is asked for again');
  end();
});

test('compact rows are a choice that a reload keeps', async () => {
  await visit('readers');
  const compact = page.getByRole('button', { name: 'Compact' });
  const isCompact = () => page.evaluate(() => document.body.classList.contains('compact'));
  assert.deepEqual([await isCompact(), await compact.getAttribute('aria-pressed')], [false, 'false']);
  await compact.click();
  await page.reload();
  assert.deepEqual([await isCompact(), await compact.getAttribute('aria-pressed')], [true, 'true']);
  await compact.click();
  await page.reload();
  assert.equal(await isCompact(), false);
});

test('a page that nobody sees asks for nothing', async () => {
  await visit('overview');
  await isRunning();
  // As the browser does when the page goes into the background.
  const hide = (isHidden) =>
    page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
  await hide(true);
  await page.waitForLoadState('networkidle');
  const { asked, end } = requests();
  await sleep(7_000);
  assert.deepEqual(asked, []);
  await hide(false);
  await until(() => asked.includes('GET /v1/stats'), 'a page that is seen again asks at once');
  end();
});

test('a page outlives its server: nothing is missing, and nothing there twice', async () => {
  await server.follow('nat', 'oda');
  for (let nth = 0; nth < 5; nth++) await server.publish('oda', `before ${nth}`);
  await openFeed('nat');
  await shows(await server.texts('nat'));
  await server.kill();
  await page.locator('#server', { hasText: /^The server does not answer, since \d\d:\d\d:\d\d$/ }).waitFor();
  await page.locator('#feed-state', { hasText: 'reconnecting' }).waitFor();
  await server.run();
  for (let nth = 0; nth < 5; nth++) await server.publish('oda', `after ${nth}`);
  const expected = await server.texts('nat');
  assert.equal(expected.length, 10);
  await shows(expected);
  await isLive();
  await isRunning();
  await server.publish('oda', 'live again');
  await shows(['live again', ...expected]);
  // That the server was gone is all there is to complain of.
  browser.complaints = browser.complaints.filter((text) => !/net::ERR_|WebSocket connection to/.test(text));
});

test('a post is published and deleted from the keyboard', async () => {
  await server.follow('pia', 'pia2');
  // Of a reader who is awake the feed is read at once, without a button.
  await server.texts('pia');
  await openFeed('pia');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Skip to the content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'content');
  for (let tabs = 0; (await focused()) !== 'Publish…' && tabs < 40; tabs++) await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Enter');
  const name = () => page.evaluate(() => document.activeElement.name);
  assert.equal(await name(), 'text');
  await page.keyboard.type('by the button');
  await page.keyboard.press('Tab');
  assert.deepEqual([await name(), await page.getByLabel('Author').inputValue()], ['author', 'pia'], 'the reader of the page is the author');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('pia2');
  for (let tabs = 0; (await focused()) !== 'Publish' && tabs < 6; tabs++) await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'solid', 'the focus is seen');
  await page.keyboard.press('Enter');
  await shows(['by the button']);
  // The post may be shown before the server has answered that it is published.
  await page.waitForFunction(() => document.activeElement.name === 'text', null, { timeout: STEP_MAX_MS });
  await page.keyboard.type('by two keys');
  await page.keyboard.press('Control+Enter');
  await shows(['by two keys', 'by the button']);
  await page.locator('#publish-note', { hasText: /^Published as post \d+\.$/ }).waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await focused(), 'Publish…', 'the focus goes back to where the dialog came from');
  await entry('by two keys').getByRole('button', { name: 'Delete' }).focus();
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'Cancel');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await shows(['by the button']);
  assert.equal(await page.evaluate(() => document.activeElement.closest('li')?.innerText.includes('by the button')), true);
});

test('a reply and a repost name the post that they are of, and a refusal is said in the dialog', async () => {
  await server.follow('rae', 'sid');
  const { id } = await server.publish('sid', 'the first');
  await openFeed('rae');
  const form = page.locator('#publish');
  await entry('the first').getByRole('button', { name: 'Reply' }).click();
  assert.deepEqual([await form.getByLabel('Author').inputValue(), await form.getByLabel('Reply to post').inputValue()], ['rae', id]);
  await form.getByRole('button', { name: 'Publish' }).click();
  await form.getByText('Write something first.').waitFor();
  await form.getByLabel('Text').fill('an answer');
  await form.getByLabel('Tags').fill('#tea, rust New Things');
  await form.getByText('Sent as 4 tags: tea, rust, New, Things').waitFor();
  await form.getByLabel('Tags').fill('#tea, rust');
  await form.getByText('Sent as 2 tags: tea, rust').waitFor();
  await form.getByRole('button', { name: 'Publish' }).click();
  await form.getByText(/^Published as post/).waitFor();
  assert.match(await form.getByRole('link', { name: /^post \d+$/ }).getAttribute('href'), /^\/console\/posts\?post=\d+$/);
  await form.getByLabel('Author').fill('not an id');
  await form.getByLabel('Text').fill('x');
  await form.getByRole('button', { name: 'Publish' }).click();
  await page.locator('#publish-note.error', { hasText: /author/i }).waitFor();
  await form.getByRole('button', { name: 'Close' }).click();
  await shows(['an answer', 'the first']);
  assert.deepEqual(await entry('an answer').locator('.chip').allTextContents(), ['#tea', '#rust']);
  await entry('an answer').getByText(`replies to post ${id}`).waitFor();
  await entry('the first').getByRole('button', { name: 'Repost' }).click();
  await form.getByLabel('Author').fill('sid');
  await form.getByRole('button', { name: 'Publish' }).click();
  await entry('the first').getByText('sid reposted').waitFor();
  await browser.forgive(/status of 400/, 1);
});

test('the search finds a reader whose id is a number, and a colon in a name makes no tag of a user', async () => {
  await server.follow('7352851374', 'did:plc:abc');
  await visit('overview');
  const search = page.getByRole('combobox');
  await search.fill('7352851374');
  await page.getByRole('option', { name: '7352851374' }).waitFor();
  await search.press('Enter');
  await page.waitForURL((url) => url.pathname === '/console/readers' && url.searchParams.get('user') === '7352851374');
  await openPart('7352851374', 'follows');
  await page.getByRole('link', { name: 'did:plc:abc' }).click();
  await page.waitForURL((url) => url.searchParams.get('user') === 'did:plc:abc');
});

test('a server without keys says so where one is typed, and the panel closes', async () => {
  await visit('live');
  await isRunning();
  const panel = page.locator('#sign-in');
  await page.getByRole('button', { name: 'Key…' }).click();
  await panel.getByText('This server needs no key').waitFor();
  await page.getByLabel('Key or token').fill('nonsense');
  await page.getByRole('button', { name: 'Use this key' }).click();
  await panel.getByText('This server needs no key').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('tidewire-credential')), null);
  await panel.getByRole('button', { name: 'Close' }).click();
  assert.equal(await panel.isVisible(), false);
  assert.equal(await focused(), 'Key…');
});

test('a page stays while the server does not answer', async () => {
  await visit('live');
  await isRunning();
  await page.route('**/v1/stats', (route) => route.abort());
  await page.locator('#server', { hasText: /^The server does not answer/ }).waitFor({ timeout: STEP_MAX_MS });
  await page.locator('.rail').getByRole('link', { name: 'Changes' }).click();
  await page.locator('#server', { hasText: 'The server does not answer; this page stays until it does' }).waitFor();
  assert.equal(page.url(), `${server.origin}/console/live`);
  await page.unrouteAll();
  await isRunning();
  await page.locator('.rail').getByRole('link', { name: 'Changes' }).click();
  await page.waitForURL(`${server.origin}/console/changes`);
  browser.complaints = browser.complaints.filter((text) => !/net::ERR_/.test(text));
});

test('what is wider than the screen has a shadow at its edge', async () => {
  await page.setViewportSize({ width: 390, height: 800 });
  await visit('keys');
  await page.locator('#admission .scroll').waitFor({ timeout: STEP_MAX_MS });
  for (const box of ['.rail', '#admission .scroll']) {
    const [inside, outside, image] = await page.locator(box).evaluate((node) => [node.scrollWidth, node.clientWidth, getComputedStyle(node).backgroundImage]);
    assert.ok(inside > outside && image.includes('gradient'), `${box}: ${inside} ${outside} ${image}`);
  }
  await page.setViewportSize({ width: 1440, height: 900 });
});

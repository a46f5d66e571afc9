// The console, in a real browser against the real server.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { browser, page, server } from './open_console.js';
import { REPOSITORY } from './server.js';

const STEP_MAX_MS = 20_000;

const open = async (user) => {
  await page.goto(`${server.origin}/console?user=${user}`);
  await isLive();
};
const isLive = () => page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
const openPublish = () => page.locator('#publish-box > summary').click();
const openPart = (name) => page.locator(`[data-part=${name}] > summary`).click();
const post = (text) => page.locator('#posts > li', { hasText: text });
const shown = () => page.locator('#posts .text').allTextContents();

/** Waits until the page shows just these texts, newest first. */
async function shows(expected) {
  const wait = { timeout: STEP_MAX_MS };
  const same = (texts) => {
    const now = [...document.querySelectorAll('#posts .text')].map((text) => text.textContent);
    return JSON.stringify(now) === JSON.stringify(texts);
  };
  await page.waitForFunction(same, expected, wait).catch(async () => assert.deepEqual(await shown(), expected));
}

test('what is published from the page and from outside arrives without a reload', async () => {
  await server.follow('ann', 'bob', 'cas');
  await server.publish('bob', 'was there before');
  await open('ann');
  await shows(['was there before']);
  await openPublish();
  const form = page.locator('#publish');
  await form.getByLabel('Author').fill('bob');
  await form.getByLabel('Text').fill('from the page');
  await form.getByLabel('Tags').fill('tea, rust');
  await form.getByRole('button', { name: 'Publish' }).click();
  await shows(['from the page', 'was there before']);
  await server.publish('cas', 'from outside');
  await shows(['from outside', 'from the page', 'was there before']);
  assert.deepEqual(await post('from the page').locator('.chip').allTextContents(), ['#tea', '#rust']);
  await page.locator('#publish-note', { hasText: /^Published as post \d+\.$/ }).waitFor();
});

test('what is deleted goes, and what is edited reads anew', async () => {
  await server.follow('dan', 'eve');
  const first = await server.publish('eve', 'one');
  await server.publish('eve', 'two');
  await open('dan');
  await shows(['two', 'one']);
  await server.ask('PATCH', `/v1/posts/${first.id}`, { body: { text: 'uno' } });
  await shows(['two', 'uno']);
  await post('two').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await shows(['two', 'uno']);
  await post('two').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await shows(['uno']);
  await server.ask('DELETE', `/v1/posts/${first.id}`);
  await shows([]);
});

test('what is hidden goes, and comes back', async () => {
  await server.follow('fay', 'gil');
  await server.publish('gil', 'look');
  await open('fay');
  await post('look').getByRole('button', { name: 'Hide' }).click();
  await shows([]);
  await page.getByRole('button', { name: 'Unhide post' }).click();
  await shows(['look']);
});

test('an unfollow takes its posts along, and a follow brings them', async () => {
  await server.follow('hal', 'ida', 'jon');
  for (let nth = 0; nth < 3; nth++) {
    await server.publish('ida', `ida ${nth}`);
    await server.publish('jon', `jon ${nth}`);
  }
  await open('hal');
  await shows(['jon 2', 'ida 2', 'jon 1', 'ida 1', 'jon 0', 'ida 0']);
  await page.getByRole('button', { name: 'Unfollow ida' }).click();
  await shows(['jon 2', 'jon 1', 'jon 0']);
  await page.locator('#source').fill('ida');
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await shows(['jon 2', 'ida 2', 'jon 1', 'ida 1', 'jon 0', 'ida 0']);
  await server.unfollow('hal', 'jon');
  await shows(['ida 2', 'ida 1', 'ida 0']);
});

test('a long feed is read further down, and changes there, too', async () => {
  await server.follow('kim', 'lou', 'max');
  const texts = [];
  for (let nth = 0; nth < 90; nth++) {
    texts.unshift(`${nth} of ${nth % 2 ? 'max' : 'lou'}`);
    await server.publish(nth % 2 ? 'max' : 'lou', texts[0]);
  }
  await open('kim');
  await shows(texts.slice(0, 20));
  for (let shownBefore = 20; shownBefore < 90; shownBefore += 20) {
    await page.getByRole('button', { name: 'Load more' }).click();
    await shows(texts.slice(0, shownBefore + 20));
  }
  await page.getByRole('button', { name: 'Load more' }).waitFor({ state: 'hidden' });
  await server.unfollow('kim', 'max');
  await shows(texts.filter((text) => text.endsWith('lou')));
  await server.follow('kim', 'max');
  await page.waitForFunction(() => document.querySelector('#posts .text').textContent.endsWith('max'));
  // How much of it is read again by itself depends on what came first.
  const click = () => document.querySelector('#more:not([hidden])')?.click();
  const isAll = () => document.querySelectorAll('#posts > li').length === 90;
  for (const began = Date.now(); !(await page.evaluate(isAll)) && Date.now() - began < STEP_MAX_MS; await sleep(50)) {
    await page.evaluate(click);
  }
  await shows(texts);
});

test('a page outlives its server: nothing is missing, and nothing there twice', async () => {
  await server.follow('nat', 'oda');
  for (let nth = 0; nth < 5; nth++) await server.publish('oda', `before ${nth}`);
  await open('nat');
  await shows(await server.texts('nat'));
  await server.kill();
  await page.locator('#server', { hasText: 'does not answer' }).waitFor();
  await page.locator('#feed-state', { hasText: 'reconnecting' }).waitFor();
  await server.run();
  for (let nth = 0; nth < 5; nth++) await server.publish('oda', `after ${nth}`);
  const expected = await server.texts('nat');
  assert.equal(expected.length, 10);
  await shows(expected);
  await isLive();
  await page.locator('#server', { hasText: 'Running' }).waitFor();
  await server.publish('oda', 'live again');
  await shows(['live again', ...expected]);
  // That the server was gone is all there is to complain of.
  const isOfNetwork = (text) => /net::ERR_|WebSocket connection to/.test(text);
  browser.complaints = browser.complaints.filter((text) => !isOfNetwork(text));
});

test('all of it works from the keyboard', async () => {
  await server.follow('pia', 'pia2');
  await open('pia');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  await shows([]);
  await isLive();
  const focused = () => page.evaluate(() => document.activeElement.name ?? document.activeElement.id);
  const isSummary = () => page.evaluate(() => document.activeElement.parentElement.id === 'publish-box');
  for (let tabs = 0; !(await isSummary()) && tabs < 10; tabs++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  for (let tabs = 0; (await focused()) !== 'text' && tabs < 3; tabs++) await page.keyboard.press('Tab');
  await page.keyboard.type('by the button');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('pia2');
  for (let tabs = 0; tabs < 3; tabs++) await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Publish');
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, 'solid', 'the focus is seen');
  await page.keyboard.press('Enter');
  await shows(['by the button']);
  // The post may be shown before the server has answered that it is published.
  await page.waitForFunction(() => document.activeElement.name === 'text', null, { timeout: STEP_MAX_MS });
  await page.keyboard.type('by two keys');
  await page.keyboard.press('Control+Enter');
  await shows(['by two keys', 'by the button']);
  await post('by two keys').getByRole('button', { name: 'Delete' }).focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await shows(['by the button']);
  assert.equal(await page.evaluate(() => document.activeElement.closest('li')?.innerText.includes('by the button')), true);
});

test('the focus stays where it went while a post was published', async () => {
  await server.follow('pat', 'pat2');
  await open('pat');
  let release;
  const isReleased = new Promise((resolve) => (release = resolve));
  await page.route('**/v1/posts', async (route) => {
    const response = await route.fetch();
    await isReleased;
    await route.fulfill({ response });
  });
  try {
    await openPublish();
    await page.locator('#publish').getByLabel('Author').fill('pat2');
    await page.locator('#publish').getByLabel('Text').fill('answered late');
    await page.keyboard.press('Control+Enter');
    await shows(['answered late']);
    await post('answered late').getByRole('button', { name: 'Reply' }).focus();
    release();
    await page.locator('#publish-note', { hasText: 'Published as post' }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Reply');
  } finally {
    release();
    await page.unroute('**/v1/posts');
  }
});

test('a post is text, whatever is in it', async () => {
  await server.follow('quy', 'rex');
  const text = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
  await server.publish('rex', text);
  await server.ask('POST', '/v1/posts?wait=delivered', { author: 'rex', body: [text, { n: 1 }] });
  await open('quy');
  await shows([JSON.stringify([text, { n: 1 }], null, 2), text]);
  assert.equal(await page.title(), 'quy · Tidewire console');
});

test('a feed is looked into', async () => {
  await server.follow('sam', 'tom', 'una');
  await server.publish('tom', 'why');
  await server.ask('PUT', '/v1/users/sam/mutes/una');
  const muted = await server.publish('una', 'silence');
  await open('sam');
  await shows(['why']);
  const inspector = page.locator('#inspector');
  await openPart('inbox');
  await inspector.getByRole('button', { name: 'Verify' }).click();
  await inspector.getByText('The inbox was right.').waitFor();
  assert.match(await page.locator('#verdict').textContent(), /^Entries2/);
  await inspector.getByRole('button', { name: 'Rebuild' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Rebuild' }).click();
  await inspector.getByText('It is built anew.').waitFor();
  await inspector.getByLabel('Number of the post').fill(muted.id);
  await inspector.getByRole('button', { name: 'Explain' }).click();
  await inspector.getByText('sam has muted una.').waitFor();
});

test('why a post is in the feed is said below it, and the place is kept', async () => {
  await server.follow('tim', 'uwe');
  for (let nth = 0; nth < 15; nth++) await server.publish('uwe', `line ${nth}`);
  await open('tim');
  const low = post('line 2');
  await low.scrollIntoViewIfNeeded();
  const button = low.getByRole('button', { name: 'Why?' });
  const before = await button.boundingBox();
  await button.click();
  await low.getByText('tim follows uwe.').waitFor();
  assert.equal(await button.getAttribute('aria-expanded'), 'true');
  assert.equal((await button.boundingBox()).y, before.y, 'nothing above it has moved');
  assert.equal(await low.getByText('tim follows uwe.').isVisible(), true);
  await post('line 7').getByRole('button', { name: 'Why?' }).click();
  await post('line 7').getByText('tim follows uwe.').waitFor();
  await server.publish('uwe', 'line 15');
  await post('line 15').waitFor();
  assert.equal(await page.locator('#posts .why:visible').count(), 2, 'both stay open while the feed goes on');
  await button.click();
  assert.equal(await page.locator('#posts .why:visible').count(), 1);
});

test('a refusal is said next to what caused it', async () => {
  await server.follow('vic', 'wes');
  await open('vic');
  await page.locator('#source').fill('vic');
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await page.locator('#follow-note.error').waitFor();
  assert.match(await page.locator('#follow-note').textContent(), /vic/);
  await openPublish();
  await page.locator('#publish').getByLabel('Text').fill('x');
  await page.locator('#publish').getByLabel('Author').fill('not an id');
  await page.locator('#publish').getByRole('button', { name: 'Publish' }).click();
  assert.match(await page.locator('#publish-note.error').textContent(), /author/i);
  // The browser notes each refusal in its own console, whatever a page does.
  browser.complaints = browser.complaints.filter((text) => !/status of 4\d\d/.test(text));
});

test('the reader is in the address, and back leads back', async () => {
  await server.follow('wes', 'xia');
  await open('wes');
  await page.locator('#user').fill('xia');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Feed of xia' }).waitFor();
  assert.match(page.url(), /\?user=xia#reader$/);
  await page.goBack();
  await page.getByRole('heading', { name: 'Feed of wes' }).waitFor();
});

test('the page in the README shows a feed', async () => {
  const readme = await readFile(path.join(REPOSITORY, 'README.md'), 'utf8');
  const [, body] = readme.match(/```html\n(.*?)```/s);
  await server.follow('ann', 'abe');
  // Any page of the origin; what it says is replaced.
  await page.goto(`${server.origin}/healthz`);
  await page.setContent(body);
  await page.waitForFunction(() => document.title === 'live');
  await server.publish('abe', 'hello');
  await page.locator('#feed > li:first-child', { hasText: /^abe: hello$/ }).waitFor();
});

test('server-sent events bring the same', async () => {
  await server.follow('sol', 'ted');
  await server.publish('ted', 'there already');
  await page.goto(`${server.origin}/console`);
  await page.evaluate(async () => {
    const { Feed } = await import('/tidewire.js');
    window.feed = new Feed({ user: 'sol', transport: 'sse' });
    window.feed.start();
  });
  const shows = (texts) =>
    page.waitForFunction((expected) => window.feed.items.map(({ post }) => post.body.text).join() === expected, texts);
  await page.waitForFunction(() => window.feed.state === 'live');
  await shows('there already');
  const { id } = await server.publish('ted', 'new');
  await shows('new,there already');
  await server.ask('DELETE', `/v1/posts/${id}`);
  await shows('there already');
  await page.evaluate(() => window.feed.stop());
});

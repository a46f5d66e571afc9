// The console, in a real browser against the real server.

import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Browser } from './browser.js';
import { REPOSITORY, Server } from './server.js';

const SCREENSHOTS = path.join(REPOSITORY, 'target/screenshots');
const STEP_MAX_MS = 20_000;

let server, browser, page;

before(async () => {
  server = await Server.start();
  browser = await Browser.open(server.origin);
  page = browser.page;
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

beforeEach(() => (browser.complaints.length = 0));

afterEach(() => {
  assert.deepEqual(browser.complaints, [], 'no errors, no warnings, no violations of the policy');
  assert.deepEqual(browser.strangers, [], 'nobody else was asked');
});

const open = async (user) => {
  await page.goto(`${server.origin}/console?user=${user}`);
  await isLive();
};
const isLive = () => page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
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
  const form = page.locator('#publish');
  await form.getByLabel('Author').fill('bob');
  await form.getByLabel('Text').fill('from the page');
  await form.getByLabel('Tags').fill('tea, rust');
  await form.getByRole('button', { name: 'Publish' }).click();
  await shows(['from the page', 'was there before']);
  await server.publish('cas', 'from outside');
  await shows(['from outside', 'from the page', 'was there before']);
  assert.deepEqual(await post('from the page').locator('.chip').allTextContents(), ['#tea', '#rust']);
  assert.match(await page.locator('#publish-note').textContent(), /^Published as post \d+\.$/);
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
  for (let tabs = 0; (await focused()) !== 'text' && tabs < 10; tabs++) await page.keyboard.press('Tab');
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
  assert.equal(await focused(), 'text', 'ready for the next one');
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
  const told = await server.publish('tom', 'why');
  await server.ask('PUT', '/v1/users/sam/mutes/una');
  const muted = await server.publish('una', 'silence');
  await open('sam');
  await shows(['why']);
  const inspect = page.locator('#inspect');
  await inspect.getByRole('button', { name: 'Verify' }).click();
  await inspect.getByText('The inbox was right.').waitFor();
  assert.match(await page.locator('#verdict').textContent(), /^Entries2/);
  await inspect.getByRole('button', { name: 'Rebuild' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Rebuild' }).click();
  await inspect.getByText('It is built anew.').waitFor();
  await post('why').getByRole('button', { name: 'Why?' }).click();
  await inspect.getByText(`Post ${told.id} is in the feed.`).waitFor();
  await inspect.getByText('sam follows tom.').waitFor();
  await inspect.getByLabel('Number of the post').fill(muted.id);
  await inspect.getByRole('button', { name: 'Explain' }).click();
  await inspect.getByText('sam has muted una.').waitFor();
});

test('a refusal is said next to what caused it', async () => {
  await server.follow('vic', 'wes');
  await open('vic');
  await page.locator('#source').fill('vic');
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await page.locator('#follow-note.error').waitFor();
  assert.match(await page.locator('#follow-note').textContent(), /vic/);
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
  assert.match(page.url(), /\?user=xia$/);
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

test('figures are counted, and drawn', async () => {
  await page.goto(`${server.origin}/console`);
  const card = page.locator('#cards .card', { hasText: 'Posts published' });
  const drawn = async () => /^M.+L/.test((await card.locator('.line').getAttribute('d')) ?? '');
  for (let nth = 0; nth < 40 && !(await drawn()); nth++) {
    await server.publish('yul', `${nth}`);
    await sleep(100);
  }
  assert.ok(await drawn());
  assert.match(await card.getByRole('img').getAttribute('aria-label'), /^Posts published in the last minute: least \d/);
  assert.match(await page.locator('#queues').textContent(), /of 16,384/);
});

test('it is seen in light, in dark, and on a phone', async () => {
  await mkdir(SCREENSHOTS, { recursive: true });
  await server.follow('zoe', 'bob', 'cas', 'tag:tea');
  await server.publish('cas', 'First flush Darjeeling has arrived. Come by before noon, it never lasts.', { tags: ['tea'] });
  const origin = await server.publish('bob', 'The harbour at five in the morning:\nno wind, no boats, and the tide just turning.');
  await server.ask('POST', '/v1/posts', { author: 'cas', body: {}, repost_of: origin.id });
  await server.ask('POST', '/v1/posts', { author: 'bob', body: { kind: 'weather', celsius: 7.5, wind: [3, 'NW'] } });
  await open('zoe');
  const button = page.getByRole('button', { name: 'Why?' }).first();
  await button.click();
  await page.locator('#verify').click();
  await page.locator('#explanation .verdict').waitFor();
  await page.evaluate(() => scrollTo(0, 0));
  for (let nth = 0; nth < 40; nth++) {
    await server.publish('yul', `${nth}`);
    await sleep(20 + (nth % 7) * 30);
  }
  const sizes = { desktop: { width: 1280, height: 900 }, phone: { width: 360, height: 740 } };
  for (const [name, size] of Object.entries(sizes)) {
    await page.setViewportSize(size);
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: path.join(SCREENSHOTS, `${name}-${colorScheme}.png`), fullPage: true });
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= size.width, `${wide} pixels fit into ${size.width}`);
  }
});

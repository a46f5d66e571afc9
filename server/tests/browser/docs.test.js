// The page of the interface, in a real browser against the real server.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Browser } from './browser.js';
import { REPOSITORY, Server } from './server.js';

const DESKTOP = { width: 1280, height: 900 };
const STEP_MAX_MS = 15_000;
// The narrowest, in which the header needs two lines.
const PHONE = { width: 320, height: 740 };

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
    const errors = card.getByRole('group', { name: 'Errors' }).getByRole('rowheader');
    const shown = [...(await card.locator('.answers > li > p:first-child > b').allTextContents()), ...(await errors.allTextContents())];
    assert.deepEqual(shown, Object.keys(told.responses), told.operationId);
    assert.equal(await card.locator('.try').count(), 1, told.operationId);
    const parts = await card.locator('h3').allTextContents();
    assert.deepEqual(parts.slice(0, 3), ['Try it', 'As code', 'Details'], 'what is read first can be used at once');
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

/** Words in tables that are in more than one line, and wide tables that do not scroll. */
const brokenTables = () =>
  page.evaluate(() => {
    const broken = [];
    const range = document.createRange();
    for (const cell of document.querySelectorAll('th, td')) {
      const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const text = texts.currentNode;
        // Names in the first column have hyphens, and are whole as well.
        for (const { 0: word, index } of text.data.matchAll(cell.matches(':first-child') ? /[^\s]+/g : /\w+/g)) {
          range.setStart(text, index);
          range.setEnd(text, index + word.length);
          if (new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1) broken.push(word);
        }
      }
    }
    const wide = [...document.querySelectorAll('table')].filter((table) => table.offsetWidth > table.parentElement.clientWidth);
    const stuck = wide.filter((table) => getComputedStyle(table.parentElement).overflowX !== 'auto');
    return [...broken, ...stuck.map((table) => `${table.textContent.slice(0, 40)} does not scroll`)];
  });

test('no table breaks a word, at any width, and wide ones scroll inside themselves', async () => {
  await open();
  await page.evaluate(() => document.querySelectorAll('.operation').forEach((card) => (card.open = true)));
  await page.locator('.operation table').nth(operations.length).waitFor();
  // The smallest is that of a phone with large text, on which no table fits.
  for (const width of [240, 320, 360, 480, 768, 834, 1024, 1440]) {
    await page.setViewportSize({ width, height: 800 });
    assert.deepEqual(await brokenTables(), [], `${width} pixels`);
    const needed = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(needed <= Math.max(width, 320), `the page fits into ${width} pixels`);
  }
  await page.setViewportSize(DESKTOP);
});

test('search hides what it does not find, and says how much it has found', async () => {
  await open();
  const find = page.getByLabel('Find');
  const visible = (selector) => page.locator(`${selector}:visible`).allTextContents();
  await find.fill('mute');
  assert.deepEqual(await ids(), ['list_mutes', 'mute', 'unmute'], 'by name, path and summary');
  assert.deepEqual(await visible('#operations h2'), ['Personal']);
  assert.deepEqual(await visible('#index h2'), ['Personal', 'Reference']);
  assert.deepEqual(await visible('.schema > summary'), ['MutedChange', 'UnmutedChange']);
  assert.equal(await page.locator('#found').textContent(), `3 of ${operations.length} operations, 2 of ${await page.locator('.schema').count()} schemas`);
  await find.fill('too_many_connections');
  assert.deepEqual(await ids(), ['stream_events', 'watch'], 'by the code of an error');
  await find.fill('patch rules');
  assert.deepEqual(await ids(), ['change_rules'], 'by method and path');
  await find.fill('xylophone');
  assert.deepEqual([...(await ids()), ...(await visible('#index h2')), ...(await visible('main h2'))], []);
  assert.equal(await page.locator('#found').textContent(), 'Nothing found for “xylophone”.');
  await find.press('Escape');
  assert.equal(await find.inputValue(), '');
  assert.equal((await ids()).length, operations.length);
});

test('a slash goes to the search, but not out of a field', async () => {
  await open('#read_feed');
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'find');
  const user = page.locator('#read_feed').getByLabel('user');
  await user.fill('');
  await user.press('/');
  assert.equal(await user.inputValue(), '/');
});

test('a link to what the search hides shows it', async () => {
  await open();
  await page.getByLabel('Find').fill('mute');
  await page.evaluate(() => (location.hash = '#read_feed'));
  await page.locator('#read_feed[open] .try').waitFor();
  assert.equal(await page.getByLabel('Find').inputValue(), '');
});

test('the index marks what is being read, and keeps it in sight', async () => {
  await open('#read_feed');
  const current = page.locator('#index [aria-current]');
  assert.deepEqual(await current.allTextContents(), ['Read a home feed']);
  for (const id of ['delete_post', 'read_history']) {
    await page.locator(`#${id}`).evaluate((card) => scrollBy(0, card.getBoundingClientRect().top - 20));
    const { summary } = operations.find(({ operationId }) => operationId === id);
    await page.locator('#index [aria-current]', { hasText: summary }).waitFor();
    assert.equal(await current.count(), 1);
    const [link, nav] = [await current.boundingBox(), await page.locator('#navigation').boundingBox()];
    assert.ok(link.y >= nav.y && link.y + link.height <= nav.y + nav.height, `${id} is in sight`);
  }
});

test('on a phone a menu has the index: it closes by a choice and by Escape, and the focus goes along', async () => {
  await page.setViewportSize(PHONE);
  await open('#read_feed');
  const menu = page.getByRole('button', { name: 'Menu' });
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
  const below = (id) => page.evaluate((name) => document.getElementById(name).getBoundingClientRect().top - document.querySelector('header').getBoundingClientRect().bottom, id);
  assert.ok((await below('read_feed')) >= 0, 'a deep link lands below the header');
  assert.equal(await page.locator('#index').isVisible(), false);
  const place = await page.evaluate(() => scrollY);
  await menu.focus();
  await menu.press('Enter');
  assert.equal(await menu.getAttribute('aria-expanded'), 'true');
  assert.equal(await focused(), 'Read a home feed', 'the focus is on what is being read');
  assert.equal(await page.locator('#content').evaluate((main) => main.inert), true, 'nothing below the menu gets the focus');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('#index').isVisible(), false);
  assert.equal(await focused(), 'menu');
  assert.equal(await page.evaluate(() => scrollY), place, 'the page is where it was');
  await menu.click();
  assert.ok((await below('find')) >= 0, 'the search is below the header');
  await page.getByLabel('Find').fill('publish');
  await page.getByLabel('Find').press('Escape');
  assert.equal(await page.locator('#index').isVisible(), true, 'the first Escape clears the search only');
  await page.locator('#index').getByRole('link', { name: 'Publish a post' }).click();
  await page.locator('#publish[open] .try').waitFor();
  assert.equal(await page.locator('#index').isVisible(), false);
  assert.equal(await page.evaluate(() => document.activeElement.parentElement.id), 'publish');
  const top = await below('publish');
  assert.ok(top >= 0 && top < 40, `${top} pixels below the header`);
  await page.setViewportSize(DESKTOP);
  assert.equal(await page.locator('#content').evaluate((main) => main.inert), false);
});

test('one click gives an answer: reads are filled with what the server has, changes are not', async () => {
  await server.follow('ann', 'bob');
  const { id } = await server.publish('bob', 'for the examples');
  await open('#explain');
  const explain = page.locator('#explain .try');
  for (const began = Date.now(); (await explain.getByLabel('post').inputValue()) !== id; await sleep(20)) {
    assert.ok(Date.now() - began < STEP_MAX_MS, 'a post of this server is filled in');
  }
  await explain.getByRole('button', { name: 'Try it' }).click();
  await explain.locator('pre', { hasText: '"shown": true' }).waitFor();
  await open('#delete_post');
  assert.equal(await page.locator('#delete_post').getByLabel('id').inputValue(), '7352851374080000000');
  await page.evaluate(() => (location.hash = '#publish'));
  await page.locator('#publish .try').getByRole('button', { name: 'Send POST' }).click();
  await page.locator('#publish .note', { hasText: /^201 / }).waitFor();
  const own = JSON.parse(await page.locator('#publish').getByLabel('Response').textContent()).id;
  assert.equal(await page.locator('#delete_post').getByLabel('id').inputValue(), own, 'what was published here may be deleted here');
});

test('examples that arrive late do not change a field that has the focus', async () => {
  await server.follow('ann', 'bob');
  const { id } = await server.publish('bob', 'for a late example');
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await page.route('**/v1/sources?**', (route) => released.then(() => route.continue()));
  try {
    await open('#explain');
    await page.evaluate(() => (location.hash = '#read_post'));
    const other = page.locator('#read_post .try').getByRole('textbox', { name: 'id *', exact: true });
    await other.waitFor();
    const post = page.locator('#explain .try').getByLabel('post');
    const example = await post.inputValue();
    await post.focus();
    release();
    for (const began = Date.now(); (await other.inputValue()) !== id; await sleep(20)) {
      assert.ok(Date.now() - began < STEP_MAX_MS, 'the other field is filled in');
    }
    assert.equal(await post.inputValue(), example);
  } finally {
    release();
    await page.unroute('**/v1/sources?**');
  }
});

test('live feeds show what comes in the first seconds', async () => {
  for (const [id, first] of [['watch', '"type":"hello"'], ['stream_events', 'event: hello']]) {
    await open(`#${id}`);
    const form = page.locator(`#${id} .try`);
    await form.getByLabel('user').fill('ann');
    await form.getByRole('button', { name: 'Try it' }).click();
    await form.getByLabel('Response').filter({ hasText: first }).waitFor();
    const text = `live by ${id}`;
    await server.publish('bob', text);
    await form.getByLabel('Response').filter({ hasText: text }).waitFor();
    await form.getByRole('status').filter({ hasText: 'the first 5 s' }).waitFor();
  }
});

test('an error is shown with its problem document', async () => {
  await open('#read_post');
  const form = page.locator('#read_post .try');
  await form.getByRole('textbox', { name: 'id *', exact: true }).fill('1');
  await form.getByRole('button', { name: 'Try it' }).click();
  await form.locator('.note.error', { hasText: /^404 .*: no post has id 1$/ }).waitFor();
  assert.equal(await form.locator('.bar code').textContent(), 'application/problem+json');
  assert.equal(JSON.parse(await form.getByLabel('Response').textContent()).code, 'unknown_post');
  await browser.forgive(/status of 404/, 1);
});

test('calls and answers can be copied', async () => {
  await browser.context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open('#check_alive');
  const card = page.locator('#check_alive');
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await card.locator('.snippets').getByRole('button', { name: 'Copy' }).click();
  await card.locator('.snippets').getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await copied(), await card.locator('.snippets code').textContent());
  await card.getByRole('button', { name: 'Try it' }).click();
  await card.locator('.try').getByRole('button', { name: 'Copy' }).click();
  await card.locator('.try').getByRole('button', { name: 'Copied' }).waitFor();
  assert.deepEqual(JSON.parse(await copied()), { alive: true });
});

test('the language of the code is chosen once, for all operations and for later visits', async () => {
  await open('#read_stats');
  await page.evaluate(() => (location.hash = '#check_alive'));
  await page.locator('#check_alive').getByRole('button', { name: 'Python' }).click();
  const code = page.locator('#read_stats .snippets');
  await code.locator('code', { hasText: 'from tidewire import' }).waitFor();
  await open('#read_stats');
  assert.equal(await code.getByRole('button', { name: 'Python' }).getAttribute('aria-pressed'), 'true');
  await code.getByRole('button', { name: 'curl' }).click();
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
  assert.match(await form.getByRole('status').textContent(), /^200 /);
});

test('a parameter that is no number is sent as it is', async () => {
  await open('#list_following');
  const form = page.locator('#list_following .try');
  await form.getByLabel('user').fill('ann');
  for (const text of ['007', 'many', '-1']) {
    await form.getByLabel('limit').fill(text);
    const asked = page.waitForRequest((request) => request.url().includes('/v1/users/ann/following?'));
    await form.getByRole('button', { name: 'Try it' }).click();
    assert.ok((await asked).url().endsWith(`?limit=${text}`), text);
    await form.getByRole('status').filter({ hasText: /^[0-9]/ }).waitFor();
  }
  const snippet = page.locator('#list_following .snippets code');
  assert.match(await snippet.textContent(), /limit=-1/);
  await browser.forgive(/status of 400/, 2);
});

test('what changes something is sent with its body, and asks before it deletes', async () => {
  await open('#follow');
  const form = page.locator('#follow .try');
  await form.getByLabel('user').fill('ann');
  await form.getByLabel('source').fill('cas');
  await form.getByLabel('Body, JSON').fill('{"backfill": 3}');
  const asked = page.waitForRequest((request) => request.method() === 'PUT');
  await form.getByRole('button', { name: 'Send PUT' }).click();
  assert.equal((await asked).postData(), '{"backfill": 3}');
  await form.locator('.note', { hasText: /^201 / }).waitFor();
  await open('#unfollow');
  const gone = page.locator('#unfollow .try');
  await gone.getByLabel('user').fill('ann');
  await gone.getByLabel('source').fill('cas');
  await gone.getByRole('button', { name: 'Send DELETE' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  assert.equal((await server.ask('GET', '/v1/users/ann/following')).items.some(({ id }) => id === 'cas'), true);
  await gone.getByRole('button', { name: 'Send DELETE' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Send' }).click();
  await gone.locator('.note', { hasText: /^204 / }).waitFor();
});

test('every call is there as code that its language takes, by methods that the clients have', async () => {
  const clients = path.join(REPOSITORY, 'clients');
  const typescript = await readFile(path.join(clients, 'typescript/src/client.ts'), 'utf8');
  const python = await readFile(path.join(clients, 'python/src/tidewire/_sync.py'), 'utf8');
  const isMethod = {
    TypeScript: (name) => new RegExp(`^  (async )?${name}[(<]`, 'm').test(typescript),
    Python: (name) => new RegExp(`^    (${name} = _method|def ${name}\\()`, 'm').test(python),
  };
  const { paths } = await (await fetch(`${server.origin}/openapi.json`)).json();
  const list = Object.entries(JSON.parse(await readFile(path.join(clients, 'without-method.json'), 'utf8')));
  const without = Object.fromEntries(
    list.map(([operation, entry]) => {
      const [method, place] = operation.split(' ');
      return [paths[place][method.toLowerCase()].operationId, entry.clients];
    }),
  );
  await open();
  const code = {};
  for (const { operationId } of operations) {
    const card = page.locator(`#${operationId}`);
    await card.locator('summary').first().click();
    for (const language of ['curl', 'TypeScript', 'Python']) {
      await card.getByRole('button', { name: language }).click();
      const text = await card.locator('.snippets pre').innerText();
      (code[language] ??= []).push(text);
      const [, method] = text.match(/tidewire\.(\w+)\(/) ?? [];
      if (method) assert.ok(isMethod[language](method), `${operationId}: ${language} has no ${method}`);
      else if (language !== 'curl') assert.ok(without[operationId]?.includes(language.toLowerCase()), `${operationId}: no method of ${language}`);
    }
  }
  const check = (command, args, input) => {
    const { status, stderr } = spawnSync(command, args, { input, encoding: 'utf8' });
    assert.equal(status, 0, `${input}: ${stderr}`);
  };
  // Each in a scope of its own: all are checked by one program.
  check('node', ['--input-type=module', '--check'], code.TypeScript.map((text) => `{\n${text.replace(/^import .*$/m, '')}\n}`).join('\n'));
  check('python3', ['-c', 'import sys; [compile(text, "snippet", "exec") for text in sys.stdin.read().split("\\0")]'], code.Python.join('\0'));
  code.curl.forEach((text) => check('sh', ['-n'], text));
});

test('the call for a terminal asks what the form asks, and names no key', async () => {
  await server.follow('ann', 'bob');
  await open('#list_following');
  await page.getByLabel('Key or token').fill('secret');
  const card = page.locator('#list_following');
  await card.getByLabel('user').fill("ann");
  await card.getByLabel('limit').fill('1');
  await card.getByRole('button', { name: 'curl' }).click();
  const text = await card.locator('.snippets pre').innerText();
  assert.ok(text.includes('$TIDEWIRE_KEY') && !text.includes('secret'), text);
  const { stdout } = spawnSync('sh', ['-c', text.replace('curl', 'curl -s')], { encoding: 'utf8' });
  assert.equal(JSON.parse(stdout).items[0].id, 'bob');
});

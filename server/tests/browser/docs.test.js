// The page of the interface, in a real browser against the real server.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, afterEach, before, test } from 'node:test';

import { Browser } from './browser.js';
import { REPOSITORY, Server } from './server.js';

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
    assert.equal(await card.locator('.answers > li').count(), Object.keys(told.responses).length, told.operationId);
    assert.equal(await card.locator('.try').count(), 1, told.operationId);
    const parts = await card.locator('h3').allTextContents();
    assert.match(parts[0], /^(Try it|Use )/, 'what is read first can be used at once');
    assert.equal(parts[1], 'As code');
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

test('words find operations', async () => {
  await open();
  await page.getByLabel('Find').fill('too_many_connections');
  assert.deepEqual(await ids(), ['stream_events', 'watch']);
  await page.getByLabel('Find').fill('xylophone');
  assert.deepEqual(await ids(), []);
  await page.getByLabel('Find').fill('');
  assert.equal((await ids()).length, operations.length);
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

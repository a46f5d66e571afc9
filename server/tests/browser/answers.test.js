// Answers that come late, in another order than the questions, or not at all: what the console shows is what the server has.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { browser, page, server } from './open_console.js';

const STEP_MAX_MS = 30_000;

const open = async (user) => {
  await page.goto(`${server.origin}/console?user=${user}`);
  await page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });
};
const openPart = (name) => page.locator(`[data-part=${name}] > summary`).click();
const goTo = async (user) => {
  await page.locator('#user').fill(user);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: `Feed of ${user}` }).waitFor();
};

/** Holds back the answers to what matches, until the returned function is called. */
async function held(pattern, isHeld = () => true) {
  let asked, release;
  const isAsked = new Promise((resolve) => (asked = resolve));
  const isReleased = new Promise((resolve) => (release = resolve));
  await page.route(pattern, async (route) => {
    if (!isHeld(route.request())) return route.continue();
    asked();
    await isReleased;
    await route.continue();
  });
  const answered = async () => {
    const answer = page.waitForResponse(pattern);
    release();
    await (await answer).finished();
    await page.unroute(pattern);
    // The page gets it in a task of its own.
    await sleep(200);
  };
  return { isAsked, answered };
}

test('what was asked about one reader is not shown of the next one', async () => {
  await server.follow('ann', 'bob');
  await server.follow('eva', 'bob');
  const { id } = await server.publish('bob', 'for both');
  await open('ann');
  await openPart('inbox');
  const verdict = await held('**/v1/users/ann/feed/verify');
  const reasons = await held('**/v1/users/ann/feed/explain/*');
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.locator('#explained').fill(id);
  await page.getByRole('button', { name: 'Explain' }).click();
  await Promise.all([verdict.isAsked, reasons.isAsked]);
  await goTo('eva');
  await verdict.answered();
  await reasons.answered();
  for (const part of ['verdict', 'verify-note', 'explanation', 'explain-note']) assert.equal(await page.locator(`#${part}`).textContent(), '', part);
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('The inbox was right.').waitFor();
  assert.ok((await page.locator('#verdict dd').count()) > 0);
});

test('an inbox can be verified while that of another reader is', async () => {
  await server.follow('ann', 'bob');
  await server.follow('eva', 'bob');
  await open('ann');
  await openPart('inbox');
  const verdict = await held('**/v1/users/ann/feed/verify');
  await page.getByRole('button', { name: 'Verify' }).click();
  await verdict.isAsked;
  await goTo('eva');
  await page.getByRole('button', { name: 'Verify' }).click();
  await page.getByText('The inbox was right.').waitFor();
  await verdict.answered();
  assert.equal(await page.locator('#verify-note').textContent(), 'The inbox was right.');
});

test('the list of sources is that of the last choice, and each is in it once', async () => {
  const sources = [...Array(25).keys()].map((nth) => `source-${nth}`);
  await server.follow('ina', ...sources);
  await server.ask('POST', '/v1/follows', { follows: [{ follower: 'ina', source: 'secret', hidden: true }] });
  await open('ina');
  const rows = page.locator('#following > li');
  await rows.nth(9).waitFor();
  const hidden = await held('**/v1/users/ina/following?*', (request) => request.url().includes('hidden=true'));
  await page.getByLabel('list hidden follows').check();
  await hidden.isAsked;
  await page.getByLabel('list hidden follows').uncheck();
  await hidden.answered();
  assert.equal(await rows.count(), 10);
  assert.doesNotMatch(await page.locator('#following').innerText(), /secret/);
  const more = await held('**/v1/users/ina/following?*');
  await page.getByRole('button', { name: 'More sources' }).dblclick();
  await more.isAsked;
  await more.answered();
  await rows.nth(19).waitFor();
  assert.equal(await rows.count(), 20);
});

test('rules show what the server has, and the last choice is saved', async () => {
  await server.follow('rod', 'bob');
  await open('rod');
  await openPart('rules');
  const [reposts, replies] = [page.getByLabel('show reposts'), page.getByLabel('Replies')];
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
});

test('the picker says whether there is no reader or no answer', async () => {
  await page.goto(`${server.origin}/console#reader`);
  const input = page.getByRole('combobox', { name: 'Reader' });
  await input.fill('nobody-begins-so');
  await page.locator('#choose-note', { hasText: 'No reader begins so.' }).waitFor();
  assert.equal(await page.locator('#choose-note').evaluate((note) => note.clientHeight > 10), true, 'it is seen');
  await page.route('**/v1/sources?*', (route) => route.fulfill({ status: 503, json: { code: 'overloaded', detail: 'too much to do' } }));
  await input.fill('nobody');
  await page.locator('#choose-note.error', { hasText: 'Refused: too much to do.' }).waitFor();
  await page.keyboard.press('Escape');
  await input.blur();
  assert.equal(await page.locator('#choose-note').textContent(), '');
  await page.unroute('**/v1/sources?*');
  await browser.forgive(/status of 503/, 1);
});

test('how long ago something was grows while nothing else changes', async () => {
  const request = { method: 'GET', route: '/v1/stats', status: 200, took_ms: 900, request_id: null };
  // In three seconds, a minute ago.
  const answer = { keys: null, slow_requests: { threshold_ms: 500, count: 1, items: [{ ...request, at: new Date(Date.now() - 57_000).toISOString() }] } };
  await page.route('**/v1/operations', (route) => route.fulfill({ json: answer }));
  await page.goto(`${server.origin}/console#operations`);
  const time = page.locator('#slow time');
  await time.waitFor();
  const before = await time.innerText();
  await page.waitForFunction((text) => document.querySelector('#slow time').innerText !== text, before, { timeout: STEP_MAX_MS });
  await page.unroute('**/v1/operations');
});

test('an open table of a chart goes on without losing the place of who reads it', async () => {
  await page.goto(`${server.origin}/console`);
  const chart = page.locator('.chart', { hasText: 'Deliveries' });
  await chart.getByText('Table').click();
  await chart.locator('tbody tr').nth(1).waitFor({ timeout: STEP_MAX_MS });
  await chart.locator('.scroll').focus();
  const newest = () => chart.locator('tbody th').first().innerText();
  const before = await newest();
  await chart.locator('tbody').evaluate((body) => (window.rows = [...body.rows].slice(1)));
  for (const began = Date.now(); (await newest()) === before; await sleep(100)) assert.ok(Date.now() - began < STEP_MAX_MS, 'a new sample comes');
  assert.ok(await page.evaluate(() => window.rows.some((row) => row.isConnected)), 'rows stay');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Deliveries, last hour, table');
});

test('a full disk is said above the charts, and refusals are counted over the hour that is shown', async () => {
  await page.route('**/v1/stats/history*', async (route) => {
    const response = await route.fetch();
    const history = await response.json();
    const rows = history.at_seconds.length;
    // In each sample of five seconds two of a full disk and three of load.
    await route.fulfill({ response, json: { ...history, refusals_per_second: { disk_full: Array(rows).fill(0.4), overloaded: Array(rows).fill(0.6) } } });
  });
  await page.goto(`${server.origin}/console`);
  await page.locator('#history-note.error', { hasText: 'The disk of the server is full' }).waitFor({ timeout: STEP_MAX_MS });
  const tile = page.locator('.tile', { hasText: 'Refused' });
  assert.equal(await tile.locator('.value').textContent(), '1');
  const rows = await page.evaluate(async () => (await (await fetch('/v1/stats/history')).json()).at_seconds.length);
  const counted = Number.parseInt(await tile.locator('.hint').textContent(), 10);
  assert.ok(counted % 5 === 0 && counted > 0 && counted <= rows * 5, `${counted} of ${rows} samples`);
  await page.unroute('**/v1/stats/history*');
});

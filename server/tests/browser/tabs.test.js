// The tabs of the console: where each leads, and what Overview shows, in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { browser, page, server } from './open_console.js';

const STEP_MAX_MS = 30_000;

const tab = (name) => page.getByRole('tab', { name });
const panel = (name) => page.getByRole('tabpanel', { name });
const selected = () => page.locator('[role=tab][aria-selected=true]').innerText();

test('each tab has an address, which reload, links and the back button lead to', async () => {
  await server.follow('ann', 'bob');
  await page.goto(`${server.origin}/console`);
  assert.equal(await selected(), 'Overview');
  await tab('Reader').click();
  await page.locator('#user').fill('ann');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Feed of ann' }).waitFor();
  await tab('Operations').click();
  assert.equal(page.url(), `${server.origin}/console?user=ann#operations`);
  await page.reload();
  assert.equal(await selected(), 'Operations');
  assert.equal(await panel('Operations').isVisible(), true);
  assert.equal(await page.getByRole('tabpanel').count(), 1);
  await page.goBack();
  assert.equal(await selected(), 'Reader');
  await page.getByRole('heading', { name: 'Feed of ann' }).waitFor();
  await page.goto(`${server.origin}/console?user=ann`);
  assert.equal(await selected(), 'Reader', 'an address without a tab shows what it names');
  assert.equal(await page.title(), 'ann · Tidewire console');
});

test('the arrow keys lead from tab to tab', async () => {
  await page.goto(`${server.origin}/console`);
  await tab('Overview').focus();
  for (const [key, name] of [['ArrowRight', 'Reader'], ['ArrowLeft', 'Overview'], ['ArrowLeft', 'Operations'], ['ArrowRight', 'Overview'], ['End', 'Operations'], ['Home', 'Overview']]) {
    await page.keyboard.press(key);
    assert.equal(await selected(), name, key);
    assert.equal(await page.evaluate(() => document.activeElement.innerText), name, 'the focus goes along');
  }
  await page.keyboard.press('Tab');
  assert.notEqual(await page.evaluate(() => document.activeElement.getAttribute('role')), 'tab', 'Tab leaves the list');
});

test('the overview draws what the server has counted, and goes on with what is new alone', async () => {
  await server.follow('zed', 'yul');
  // Posts are pushed to readers that are awake.
  await server.ask('GET', '/v1/users/zed/feed');
  const asked = [];
  const note = (request) => request.url().includes('/stats/history') && asked.push(new URL(request.url()).search);
  page.on('request', note);
  await page.goto(`${server.origin}/console`);
  const chart = page.locator('.chart', { hasText: 'Deliveries' });
  const words = () => chart.getByRole('img').getAttribute('aria-label');
  for (const began = Date.now(); asked.length < 3 || !/most [1-9]/.test(await words()); ) {
    assert.ok(Date.now() - began < STEP_MAX_MS, await words());
    await server.publish('yul', 'again');
    await sleep(200);
  }
  page.off('request', note);
  assert.equal(asked[0], '');
  assert.ok(asked.slice(1).length > 0 && asked.slice(1).every((query) => query.startsWith('?since=')), asked.join(' '));
  const isDrawn = await chart.locator('canvas').evaluate((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value !== 0);
  });
  assert.ok(isDrawn);
  await chart.getByText('Table').click();
  await chart.locator('tbody tr').first().waitFor();
  await page.locator('#queue-all > summary').click();
  assert.match(await page.locator('#queues').textContent(), /deliveries\d+ of 4,194,304/);
  assert.match(await page.locator('#latency').textContent(), /1/);
});

test('a page that nobody sees asks for nothing', async () => {
  await page.goto(`${server.origin}/console`);
  await page.locator('#server', { hasText: 'Running' }).waitFor();
  // As the browser does when the page goes into the background.
  const hide = (isHidden) =>
    page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
  await hide(true);
  await sleep(500);
  let asked = 0;
  const note = () => asked++;
  page.on('request', note);
  await sleep(7_000);
  assert.equal(asked, 0);
  await hide(false);
  await page.waitForRequest((request) => request.url().endsWith('/v1/stats'));
  page.off('request', note);
});

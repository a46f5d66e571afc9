// The overview of the console: health, charts of a chosen time, what was refused and what was slow; in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, page, server } from './open_console.js';
import { STATS, STEP_MAX_MS, isRunning, requests, rewrite, until, visit } from './steps.js';

const BACKUPS = { age_seconds: 40, interval_seconds: 60, count: 3, failing: false, failures: 0, restorable_from: '2026-01-01T00:00:00Z', sent_bytes: 1000, stored_bytes: 2000 };
const chart = (title) => page.locator('.chart', { has: page.getByRole('heading', { name: title, exact: true }) });
const verdict = (text) => page.locator('#verdict', { hasText: text }).waitFor({ timeout: STEP_MAX_MS });
const health = (name) => page.locator('#health div', { hasText: name }).locator('dd').innerText();

test('the health line says ok where all is well', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, backups: BACKUPS }));
  await visit('overview');
  await verdict(/^ok$/);
  assert.equal(await page.locator('#verdict').getAttribute('data-how'), 'good');
  for (const [name, text] of [['Writes', 'accepted'], ['Reads', 'answered'], ['Backup', '40 s old'], ['Clock', 'steady']]) assert.equal(await health(name), text);
  assert.match(await health('Disk'), /^[\d.]+ \w+ free$/);
  assert.match(await health('Journal'), /^[\d,]+ events?$/);
});

test('without backups the health line warns', async () => {
  await visit('overview');
  await verdict(/^Backup: not configured$/);
  assert.equal(await page.locator('#verdict').getAttribute('data-how'), 'warn');
  await page.locator('#verdict').getByRole('link', { name: 'not configured' }).click();
  await page.waitForURL(`${server.origin}/console/storage#backups`);
});

for (const [what, change, text, how] of [
  ['a full disk', { writes_refused: 'disk_full', disk_free_bytes: 100 }, /^Writes: refused: the disk is full; Disk: 100 B free$/, 'bad'],
  ['a failed journal', { writes_refused: 'journal_failed' }, /^Writes: refused until a restart: the journal has failed; Journal: failed$/, 'bad'],
  ['failing backups', { backups: { ...BACKUPS, failing: true, age_seconds: 7200 } }, /^Backup: failing; the last one is 2 h old$/, 'bad'],
  ['backups that have never worked', { backups: { ...BACKUPS, failing: true, count: 0 } }, /^Backup: failing; no backup yet$/, 'bad'],
  ['backups that are late', { backups: { ...BACKUPS, age_seconds: 7200 } }, /^Backup: 2 h old$/, 'warn'],
  ['little room on the disk', { disk_free_bytes: 1000 }, /^Disk: 1000 B free$/, 'warn'],
  ['a clock that was set back', { clock: { jumps_ahead: 0, jumps_back: 1, lead_seconds: 90 } }, /^Clock: set back; times are 1 min ahead$/, 'warn'],
  ['a clock that has jumped', { clock: { jumps_ahead: 2, jumps_back: 1, lead_seconds: 0 } }, /^ok$/, 'good'],
]) {
  test(`the health line names ${what}`, async () => {
    await rewrite(STATS, (stats) => ({ ...stats, backups: BACKUPS, ...change }));
    await visit('overview');
    await verdict(text);
    assert.equal(await page.locator('#verdict').getAttribute('data-how'), how);
  });
}

test('the health line names a server that answers no reads', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, backups: BACKUPS }));
  await page.route('**/readyz', (route) => route.fulfill({ status: 503, json: { code: 'recovering', detail: 'it reads the journal' } }));
  await visit('overview');
  await verdict(/^Reads: not answered: recovering$/);
  await browser.forgive(/status of 503/, 1);
});

test('the charts draw what the server has counted, and go on with what is new alone', async () => {
  await server.follow('zed', 'yul');
  // Posts are pushed to readers that are awake.
  await server.ask('GET', '/v1/users/zed/feed');
  const { asked, end } = requests();
  const histories = () => asked.filter((request) => request.includes('/stats/history'));
  await visit('overview');
  const words = () => chart('Deliveries').getByRole('img').getAttribute('aria-label');
  await until(async () => {
    await server.publish('yul', 'again');
    return histories().length >= 3 && /maximum [1-9]/.test(await words());
  }, 'deliveries are drawn');
  end();
  assert.equal(histories()[0], 'GET /v1/stats/history?span=hour');
  assert.ok(histories().slice(1).every((request) => /\?span=hour&since=\w+/.test(request)), histories().join(' '));
  const isDrawn = await chart('Deliveries').locator('canvas').evaluate((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value !== 0);
  });
  assert.ok(isDrawn);
  assert.match(await chart('Latency').getByRole('img').getAttribute('aria-label'), /publish p99: now .*; publish p50: /);
  assert.match(await chart('Requests').getByRole('img').getAttribute('aria-label'), /reads: now .*; writes: now .*; live: now .*; other: now /);
});

test('fifteen minutes, an hour or a day are shown, and a reload keeps the choice', async () => {
  const rows = 17_280;
  const full = (seconds) => (history) => {
    const every = history.interval_seconds;
    const count = Math.min(rows, seconds / every);
    const now = Math.floor(Date.now() / 1000);
    const column = (value) => (Array.isArray(value) ? Array.from({ length: count }, (_, at) => at) : typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value).map(([name, part]) => [name, column(part)])) : value);
    return { ...column(history), at_seconds: Array.from({ length: count }, (_, at) => now - (count - 1 - at) * every), samples_max: rows };
  };
  await rewrite('**/v1/stats/history?*', (history, request) => (request.url().includes('since') ? history : full(request.url().includes('day') ? 86_400 : 3600)(history)));
  await page.evaluate(() => sessionStorage.clear());
  const { asked, end } = requests();
  await visit('overview');
  const chosen = () => page.locator('input[name=span]:checked').getAttribute('value');
  const hours = async () => {
    await chart('Deliveries').getByText('Table').click();
    const times = await chart('Deliveries').locator('tbody th').allInnerTexts();
    await chart('Deliveries').getByText('Table').click();
    const [last, first] = [times[0], times.at(-1)].map((text) => text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0));
    // Past midnight.
    return ((last - first + 86_400) % 86_400) / 3600;
  };
  const isDrawn = () => chart('Deliveries').getByRole('img', { name: /now [\d.]+/ }).waitFor();
  await isDrawn();
  assert.equal(await chosen(), '1 hour');
  assert.ok((await hours()) > 0.8 && (await hours()) <= 1);
  await page.getByText('15 minutes').click();
  await until(async () => (await hours()) <= 0.25, 'a quarter of an hour');
  assert.equal(asked.filter((request) => /history\?span=\w+$/.test(request)).length, 1, 'the hour has it: it is not asked for again');
  await page.getByText('24 hours').click();
  await until(async () => (await hours()) > 20, 'a day');
  assert.ok(asked.includes('GET /v1/stats/history?span=day'));
  await page.reload();
  await isDrawn();
  assert.equal(await chosen(), '24 hours');
  assert.ok((await hours()) > 20);
  end();
  await page.evaluate(() => sessionStorage.clear());
});

test('an open table of a chart goes on without losing the place of who reads it', async () => {
  await visit('overview');
  const table = chart('Deliveries');
  await table.getByText('Table').click();
  await table.locator('tbody tr').nth(1).waitFor({ timeout: STEP_MAX_MS });
  await table.locator('.scroll').focus();
  const newest = () => table.locator('tbody th').first().innerText();
  const before = await newest();
  await table.locator('tbody').evaluate((body) => (window.rows = [...body.rows].slice(1)));
  await until(async () => (await newest()) !== before, 'a new sample comes');
  assert.ok(await page.evaluate(() => window.rows.some((row) => row.isConnected)), 'rows stay');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Deliveries, table');
});

test('a queue is named where more than one in a hundred places is taken', async () => {
  const depths = { fanout_deliveries: 0.5, commands: 0.02, archive: 0.01, wake_up: 0 };
  await rewrite('**/v1/stats/history?*', (history) => ({
    ...history,
    queues: Object.fromEntries(Object.entries(history.queues).map(([name, queue]) => [name, { ...queue, depth: queue.depth.map(() => queue.limit * (depths[name] ?? 0)) }])),
  }));
  await visit('overview');
  await page.locator('#queues', { hasText: /^Queues: deliveries 50 % full, writes 2 % full\.$/ }).waitFor({ timeout: STEP_MAX_MS });
  await page.unrouteAll();
  await visit('overview');
  await chart('Deliveries').getByRole('img', { name: /now/ }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await page.locator('#queues').isVisible(), false);
});

test('what was refused is listed with its request id, which can be copied', async () => {
  await browser.context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const answer = await fetch(`${server.origin}/v1/users/ann/following/ann`, { method: 'PUT', headers: { 'X-Request-Id': 'of-this-test' } });
  assert.equal(answer.status, 422);
  const { code } = await answer.json();
  await visit('overview');
  const row = page.locator('#trouble tbody tr', { hasText: code }).first();
  await row.waitFor();
  assert.match(await row.innerText(), /just now|\d+ s ago/);
  assert.match(await row.innerText(), /422/);
  await row.getByRole('button', { name: 'Copy of-this-test' }).click();
  await row.getByText('Copied').waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'of-this-test');
  assert.match(await page.locator('#trouble-hint').innerText(), /^[1-9]\d* requests? refused or failed, \d+ slow \(1\.0 s or longer\) since the start\.$/);
});

test('slow requests are listed among what was refused, the newest first, and their times grow', async () => {
  const at = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();
  const slow = { at: at(57), operation: 'read_feed', status: 200, took_ms: 2500, request_id: 'id-of-the-slow-one' };
  const left = { at: at(300), operation: 'publish', status: null, took_ms: 9000, request_id: null };
  const refused = { at: at(120), operation: null, code: 'not_found', status: 404, request_id: 'id-of-the-refused-one' };
  await rewrite('**/v1/operations', (json) => ({ ...json, slow_requests: { threshold_ms: 500, count: 2, items: [slow, left] }, refused_requests: { count: 1, items: [refused] } }));
  await visit('overview');
  const rows = page.locator('#trouble tbody tr');
  await rows.nth(2).waitFor();
  const texts = await rows.allInnerTexts();
  assert.match(texts[0], /slow: 2\.5 s\s+read_feed\s+200\s+id-of-the-slow-one/);
  assert.match(texts[1], /not_found\s+unknown operation\s+404\s+id-of-the-refused-one/);
  assert.match(texts[2], /slow: 9\.0 s\s+publish\s+disconnected/);
  assert.equal(await rows.nth(1).locator('.chip.bad').count(), 0, 'a wrong request is no trouble of the server');
  await until(async () => (await rows.first().locator('time').innerText()) === '1 min ago', 'the time grows while nothing else changes');
});

test('the verdict of a server that is gone is not the last one that it had', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, backups: BACKUPS }));
  await visit('overview');
  await verdict(/^ok$/);
  await page.unrouteAll();
  await page.route(STATS, (route) => route.abort());
  await verdict(/^The server does not answer$/);
  await page.locator('#server', { hasText: /^The server does not answer, since/ }).waitFor();
  for (const name of ['Writes', 'Reads', 'Clock']) assert.equal(await health(name), '–');
  await page.unrouteAll();
  await verdict(/^Backup: not configured$/);
  await isRunning();
  browser.complaints = browser.complaints.filter((text) => !/net::ERR_/.test(text));
});

test('overload and failures are marked among the refusals', async () => {
  const refused = (status, code) => ({ at: new Date().toISOString(), operation: 'publish', code, status, request_id: code });
  const items = [refused(503, 'overloaded'), refused(404, 'unknown_post'), refused(429, 'rate_limited')];
  await rewrite('**/v1/operations', (json) => ({ ...json, slow_requests: { threshold_ms: 500, count: 0, items: [] }, refused_requests: { count: 3, items } }));
  await visit('overview');
  await page.locator('#trouble tbody tr').nth(2).waitFor();
  assert.deepEqual((await page.locator('#trouble .chip.bad').allInnerTexts()).sort(), ['overloaded', 'rate_limited']);
});

test('the scale is the chosen time up to now, whatever is known of it', async () => {
  const { joined, newestRows } = await visit('overview').then(() =>
    page.evaluate(async () => {
      const history = await import('/console/history.js');
      const hour = { interval_seconds: 5, now_seconds: 502, at_seconds: [5, 10, 120, 240, 480, 500], active: [1, 2, 3, 4, 5, 6] };
      const day = { interval_seconds: 120, at_seconds: [120, 240, 360], active: [30, 40, 45] };
      return { joined: history.joined(day, hour), newestRows: history.newestRows(hour, 100) };
    }),
  );
  assert.deepEqual([joined.at_seconds, joined.active], [[5, 10, 120, 240, 360, 480, 500], [1, 2, 30, 40, 45, 5, 6]]);
  assert.deepEqual(newestRows.at_seconds, [480, 500]);
  // Of a server that has just started there is little at the end.
  const inked = (from, to) =>
    chart('Requests').locator('canvas').evaluate((canvas, [from, to]) => {
      // Between the lines of the grid.
      const [left, right, bottom] = [Math.round(canvas.width * from), Math.round(canvas.width * to), Math.round(canvas.height * 0.8)];
      const { data } = canvas.getContext('2d').getImageData(left, 0, right - left, bottom);
      const rows = Array.from({ length: bottom }, (_, y) => data.slice(y * (right - left) * 4, (y + 1) * (right - left) * 4));
      // A row of the grid is one colour.
      return rows.some((row) => row.some((value, at) => value !== row[at % 4]));
    }, [from, to]);
  await chart('Requests').getByRole('img', { name: /now/ }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await inked(0.2, 0.5), false);
  // With the same samples from seven minutes ago there is something in the middle.
  await rewrite('**/v1/stats/history?*', (history) => ({ ...history, now_seconds: history.now_seconds + 420 }));
  await visit('overview');
  await chart('Requests').getByRole('img', { name: /now/ }).waitFor({ timeout: STEP_MAX_MS });
  assert.equal(await inked(0.2, 0.9), true);
  await chart('Requests').getByText('Table').click();
  await chart('Requests').getByText(/^The newest figures, then the last ones of every \d+ (s|min)\.$/).waitFor();
});

test('an open table leaves no hole in the card beside it', async () => {
  await visit('overview');
  const heights = () => page.locator('.chart').evaluateAll((all) => all.slice(0, 2).map((one) => one.offsetHeight));
  const [before] = await heights();
  await chart('Latency').getByText('Table').click();
  await chart('Latency').locator('tbody tr').first().waitFor({ timeout: STEP_MAX_MS });
  const [requests, times] = await heights();
  assert.ok(requests <= before && times > before, `${before} ${requests} ${times}`);
});

// What is on disk, the cluster, keys and limits in the console. What a single server without backups does not have is put into its answers.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { browser, page, server } from './open_console.js';
import { STATS, STEP_MAX_MS, isRunning, rewrite, until, visit } from './steps.js';

const MIB = 2 ** 20;
const section = (title) => page.locator('section.card', { has: page.getByRole('heading', { name: title, exact: true }) });
const facts = async (list) => {
  const [names, values] = [await list.locator('dt').allTextContents(), await list.locator('dd').allTextContents()];
  return Object.fromEntries(names.map((name, nth) => [name, values[nth]]));
};

test('the page of storage says what is on disk and in memory', async () => {
  await server.publish('ann', 'on disk');
  await visit('storage');
  await page.locator('#disk dd').first().waitFor();
  const disk = await facts(page.locator('#disk'));
  assert.match(disk['Free on disk'], /^[\d.]+ \w+$/);
  assert.match(disk['Journal, last event'], /^[1-9]/);
  await until(async () => /^[1-9][\d.]* \w+$/.test((await facts(page.locator('#disk')))['Journal on disk']), 'the journal is measured each second');
  assert.match(disk['Archive on disk'], /^[1-9][\d.]* MiB$/);
  assert.match(disk['Posts in memory'], /^1, [\d.]+ \w+$/);
  assert.equal(disk['Erasures in progress'], '0');
  await section('Last start').getByText('The server started with an empty directory.').waitFor();
  await page.locator('.chart', { hasText: 'Memory' }).getByRole('img', { name: /now/ }).waitFor({ timeout: STEP_MAX_MS });
});

test('the parts of the memory are listed with their shares', async () => {
  const memory = { posts_bytes: 40 * MIB, sources_bytes: 20 * MIB, inboxes_bytes: 10 * MIB, reposts_bytes: MIB / 2, resident_bytes: 100 * MIB };
  await rewrite(STATS, (stats) => ({ ...stats, memory }));
  await visit('storage');
  await page.locator('#memory tbody tr').first().waitFor();
  const rows = (await page.locator('#memory tbody tr').allInnerTexts()).map((text) => text.split('\t').map((cell) => cell.trim()));
  assert.deepEqual(rows, [
    ['Posts', '40.0 MiB', '40 %'],
    ['Users and follows', '20.0 MiB', '20 %'],
    ['Inboxes', '10.0 MiB', '10 %'],
    ['Reposts', '512 KiB', '0.50 %'],
    ['Other', '29.5 MiB', '30 %'],
    ['Resident memory', '100 MiB', '100 %'],
  ]);
  await section('Memory now').getByText('“Other” is the program itself').waitFor();
});

test('a snapshot is taken now, and listed with what came after it', async () => {
  await visit('storage');
  await section('Snapshots').getByText('None yet.').waitFor();
  await page.getByRole('button', { name: 'Take a snapshot now' }).click();
  await page.getByText(/^Taken: snapshot-\S+, [\d.]+ \w+\.$/).waitFor();
  const row = page.locator('#snapshots li');
  await row.first().waitFor();
  assert.match(await row.innerText(), /just now · [\d.]+ \w+ · up to event [\d,]+\s+0 events since/);
  await server.publish('ann', 'after it');
  await until(async () => /[1-9]\d* events? since/.test(await row.innerText()), 'events since');
});

test('a restart is told of, and a refused snapshot is', async () => {
  await server.kill();
  await server.run();
  await visit('storage');
  await page.locator('#recovery', { hasText: 'All acknowledged writes were recovered.' }).waitFor();
  assert.match(await page.locator('#recovery').innerText(), /Snapshot\s+event [\d,]+/);
  await page.route('**/v1/snapshots', (route) => route.fulfill({ status: 507, json: { code: 'disk_full', detail: 'no room' } }));
  await page.getByRole('button', { name: 'Take a snapshot now' }).click();
  await page.locator('#snapshot-note.error', { hasText: 'Refused: no room.' }).waitFor();
  await browser.forgive(/status of 507/, 1);
});

test('what the last start has lost is named', async () => {
  const recovery = { snapshot: 7, events: 3, cut: { segment: 'journal-1', bytes: 2048 }, lost: [{ segment: 'journal-2', from: 10, through: null, reason: 'checksum' }], skipped: [] };
  await rewrite(STATS, (stats) => ({ ...stats, recovery }));
  await visit('storage');
  await page.locator('#recovery .error', { hasText: 'Some events are missing' }).waitFor();
  const text = await page.locator('#recovery').innerText();
  assert.match(text, /2\.0 KiB of journal-1 were cut off/);
  assert.match(text, /journal-2: events 10 to its end: checksum/);
});

test('a server without backups says how to make them', async () => {
  await visit('storage');
  await section('Backups').getByText('No backups are configured: set --backup-to.').waitFor();
  await section('Backups').getByText('docs/backup.md').waitFor();
});

test('backups are shown with the time that can be restored, and a failing one', async () => {
  const backups = { age_seconds: 90, interval_seconds: 60, count: 3, failing: false, failures: 0, restorable_from: '2026-01-01T00:00:00Z', sent_bytes: 3 * MIB, stored_bytes: 5 * MIB, runs: [] };
  await rewrite(STATS, (stats) => ({ ...stats, backups }));
  await visit('storage');
  await page.locator('#backups dd').first().waitFor();
  const shown = await facts(page.locator('#backups'));
  const from = await page.evaluate(() => new Date('2026-01-01T00:00:00Z').toLocaleString());
  assert.ok(shown['Restorable range'].startsWith(`${from} to `), shown['Restorable range']);
  assert.deepEqual([shown['Last run'], shown.Interval, shown.Backups], ['1 min ago', '1 min', '3, 5.0 MiB']);
  assert.equal(await page.locator('#backups .error').count(), 0);
  const runs = [
    { started_at: new Date().toISOString(), took_ms: 2000, sent_bytes: 0, error: 'cannot use the <b>store</b>' },
    { started_at: '2026-01-01T00:00:00Z', took_ms: 61_000, sent_bytes: 3 * MIB, error: null },
  ];
  Object.assign(backups, { failing: true, failures: 2, restorable_from: null, count: 0, runs });
  await page.locator('#backups .error', { hasText: 'The last run failed' }).waitFor();
  assert.deepEqual(await facts(page.locator('#backups')).then((all) => [all['Restorable range'], all['Last run'], all['Failed runs since the start']]), ['nothing yet', 'not yet', '2']);
  const shownRuns = await page.locator('#backups li').allInnerTexts();
  assert.match(shownRuns[0], /^(just now|\d+ s ago) · failed: cannot use the <b>store<\/b>\s+2\.0 s$/);
  assert.match(shownRuns[1], / · 3\.0 MiB\s+61 s$/);
});

test('a server without data on disk says so everywhere', async () => {
  await rewrite(STATS, (stats) => ({ ...stats, journal: null, backups: null, snapshots: [], recovery: null, disk_free_bytes: null, stored_bytes: null }));
  await visit('storage');
  await section('Last start').getByText('stores no data on disk').waitFor();
  for (const title of ['Backups', 'Snapshots']) await section(title).getByText('This server stores no data on disk.').waitFor();
  assert.equal((await facts(page.locator('#disk')))['Free on disk'], 'no data on disk');
});

test('a server that is alone says so, and asks for no nodes', async () => {
  await visit('cluster');
  await page.getByText('This server is not part of a cluster').waitFor();
  await page.locator('#alone').getByText('Several nodes share readers and live connections').waitFor();
  assert.equal(await page.locator('#alone').getByRole('link').getAttribute('href'), '/docs#read_cluster');
  assert.equal(await page.locator('#cluster').isVisible(), false);
});

/** Makes the server a node called `a` of a cluster: `b` is silent, `c` does not answer, and `d` has gone. */
async function inCluster() {
  const { journal } = await server.ask('GET', '/v1/stats');
  const node = (name, more) => ({ name, address: `${name}.internal:8080`, partitions: [0, 1], heard_ms: 100, ...more });
  const cluster = {
    node: 'a', epoch: 3, sequencer: 'a', applied: journal.sequence, partitions: 6, beat_ms: 250,
    nodes: [node('a', { heard_ms: null }), node('b', { heard_ms: 4000 }), node('c')],
    gone: [{ name: 'd', address: 'd.internal:8080', gone_ms: 120_000 }],
  };
  let reads = 0;
  await page.route('**/v1/cluster', (route) => route.fulfill({ json: cluster }));
  await page.route('**/v1/operations?node=*', async (route) => route.fulfill({ response: await route.fetch({ url: `${server.origin}/v1/operations` }) }));
  await page.route(STATS, async (route) => {
    const isB = route.request().url().endsWith('node=b');
    if (isB) reads++;
    const response = await route.fetch({ url: `${server.origin}/v1/stats` });
    const stats = await response.json();
    const more = isB ? { journal: { ...stats.journal, sequence: journal.sequence - 5 }, pages: 1000 * reads, live: { ...stats.live, connections: 7 }, active: 40 } : {};
    const json = { ...stats, live: { ...stats.live, connections: 2 }, active: 2, memory: { ...stats.memory, resident_bytes: 100 * MIB }, journal, ...more };
    await route.fulfill({ response, json, headers: { ...response.headers(), 'tidewire-node': 'a' } });
  });
  await page.route('**/v1/stats?node=c', (route) => route.fulfill({ status: 503, json: { code: 'owner_unavailable', detail: 'c does not answer' } }));
  return cluster;
}
const rows = async () => (await page.locator('#nodes tbody tr').allInnerTexts()).map((text) => text.split('\t').map((cell) => cell.trim()));

test('the nodes of a cluster are shown with their figures, and those that are silent, do not answer or have gone', async () => {
  await inCluster();
  await visit('cluster');
  await page.locator('#nodes tbody tr').nth(3).waitFor();
  await until(async () => /^\d/.test((await rows())[1][5]), 'rates are known from the second time on');
  const [a, b, c, d] = await rows();
  assert.deepEqual(a.slice(0, 5), ['a', 'sequencer, answered this', '–', '0', '2 of 6']);
  assert.deepEqual(a.slice(7), ['2', '2', '100 MiB', 'a.internal:8080']);
  assert.deepEqual(b.slice(0, 4), ['b', 'silent for 4.0 s', '4.0 s ago', '5']);
  assert.ok(b[5] !== '0', b[5]);
  assert.deepEqual(c, ['c', 'owns readers', '0.1 s ago', '–', '2 of 6', '–', '–', '–', '–', '–', 'c.internal:8080']);
  assert.deepEqual(d.slice(0, 2), ['d', 'gone for 2 min']);
  const sums = await facts(page.locator('#sums'));
  assert.deepEqual([sums.Nodes, sums['Live connections'], sums['Awake readers'], sums.Memory], ['2 of 3 answer', '9', '42', '200 MiB']);
  assert.match(sums['Pages/s'], /^[\d.]+K?$/);
  const about = await facts(page.locator('#cluster-facts'));
  assert.deepEqual([about.Sequencer, about['Sequencers so far']], ['a', '3']);
  assert.ok(about['Last record that a has applied']);
  assert.match(await page.locator('#about-server').innerText(), / · node a$/);
  assert.equal(await page.getByText('not part of a cluster').isVisible(), false);
  browser.complaints = browser.complaints.filter((text) => !/status of 503/.test(text));
});

test('a cluster that no node takes writes of, and a sequencer that is silent, are said', async () => {
  const cluster = await inCluster();
  cluster.sequencer = null;
  await visit('cluster');
  await page.locator('#cluster-facts', { hasText: 'none: writes are refused until a node takes over' }).waitFor();
  cluster.sequencer = 'b';
  await page.locator('#cluster-facts', { hasText: 'b, silent for 4.0 s' }).waitFor();
  assert.match((await rows())[1][1], /^sequencer, silent for/);
  browser.complaints = browser.complaints.filter((text) => !/status of 503/.test(text));
});

test('a refusal of the cluster is not mistaken for the state of the server', async () => {
  await inCluster();
  await page.route('**/v1/cluster', (route) => route.fulfill({ status: 503, json: { code: 'overloaded', detail: 'too much to do' } }));
  await visit('cluster');
  await page.locator('#cluster-note.error', { hasText: 'Refused: too much to do.' }).waitFor();
  await isRunning();
  await visit('overview');
  await page.locator('#verdict', { hasText: 'Backup' }).waitFor();
  await isRunning();
  await page.locator('#history-note').waitFor({ state: 'attached' });
  browser.complaints = browser.complaints.filter((text) => !/status of 503/.test(text));
});

test('the figures of another node are chosen on the overview', async () => {
  await inCluster();
  const asked = [];
  await page.route('**/v1/stats/history?*', async (route) => {
    const url = new URL(route.request().url());
    asked.push(url.searchParams.get('node'));
    url.searchParams.delete('node');
    const response = await route.fetch({ url: String(url) });
    const history = await response.json();
    const isB = asked.at(-1) === 'b';
    await route.fulfill({ response, json: { ...history, live_connections: history.live_connections.map(() => (isB ? 77 : 2)) } });
  });
  await visit('overview');
  const live = page.locator('.chart', { hasText: 'Connections, and messages' }).getByRole('img');
  await until(async () => /connections: now 2,/.test(await live.getAttribute('aria-label')), 'the figures of this node');
  assert.equal(asked[0], null);
  await page.getByLabel('Node').selectOption('b');
  await until(async () => /connections: now 77,/.test(await live.getAttribute('aria-label')), 'the figures of b');
  await page.getByLabel('Node').selectOption('a');
  await until(async () => /connections: now 2,/.test(await live.getAttribute('aria-label')), 'the figures of this node again');
});

test('limits and queues are shown with how near they are', async () => {
  await rewrite(STATS, (stats) => ({
    ...stats,
    admission: { ...stats.admission, reads: { limit: 100, under_way: 90, refused: 12 }, write_bytes: { limit: 4 * MIB, under_way: MIB, refused: 0 } },
    queues: { ...stats.queues, fanout: { depth: 16_384, limit: 32_768 } },
  }));
  await visit('keys');
  const row = (title, name) => section(title).getByRole('row', { name: new RegExp(`^${name} `) });
  await row('Concurrent work', 'reads').waitFor();
  assert.match(await row('Concurrent work', 'reads').innerText(), /reads\s+90\s+100\s+12/);
  assert.equal(await row('Concurrent work', 'reads').locator('.fill.full').count(), 1);
  assert.match(await row('Concurrent work', 'write bytes').innerText(), /1\.0 MiB\s+4\.0 MiB\s+0\s+request bodies in memory/);
  const told = await section('Concurrent work').locator('tbody td:last-child').allInnerTexts();
  assert.ok(told.length >= 16 && told.every(Boolean), 'each kind of work is told');
  assert.match(await row('Queues', 'posts in fan-out').innerText(), /16,384\s+32,768/);
  const share = await row('Queues', 'posts in fan-out').locator('.gauge').evaluate((gauge) => gauge.firstChild.clientWidth / gauge.clientWidth);
  assert.ok(Math.abs(share - 0.5) < 0.05, String(share));
});

test('a server without keys warns of it', async () => {
  await visit('keys');
  await section('Keys').getByText('The server has no keys: every client has full access.').waitFor();
  await section('Keys').getByText('tidewire key NAME --access FILE').waitFor();
});

// The console of a node of a cluster.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Browser } from './browser.js';

// The address of a node called `a`, in a cluster of `a` and `b`.
const NODE = process.env.TIDEWIRE_NODE;

test('the console of a node shows all nodes, and which one is the sequencer', { skip: NODE ? false : 'no cluster' }, async () => {
  const browser = await Browser.open(NODE);
  const { page } = browser;
  await page.goto(`${NODE}/console/cluster`);
  const nodes = page.locator('#nodes tbody tr');
  await nodes.nth(1).waitFor();
  const rows = await nodes.allInnerTexts();
  assert.deepEqual(rows.map((row) => row.split('\t')[0].trim()), ['a', 'b']);
  assert.equal(rows.filter((row) => row.includes('sequencer')).length, 1, rows.join('\n'));
  assert.match(rows[0], /answered this/);
  for (const row of rows) assert.match(row, /\d [KMG]iB/, 'both nodes answer for their figures');
  assert.match(await page.locator('#sums').innerText(), /Nodes\s+2\s/);
  assert.match(await page.locator('#cluster-facts').innerText(), /Last record that a has applied/i);
  assert.match(await page.locator('#about-server').innerText(), / · node a$/);
  assert.deepEqual(await browser.look('cluster-of-two'), []);
  await page.goto(`${NODE}/console/overview`);
  await page.getByLabel('Node').selectOption('b');
  await page.locator('.chart').first().getByRole('img', { name: /now [0-9]/ }).waitFor();
  assert.deepEqual([browser.complaints, browser.strangers], [[], []]);
  await browser.close();
});

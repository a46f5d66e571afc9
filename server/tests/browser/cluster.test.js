// The console of a node of a cluster.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';

import { Browser } from './browser.js';
import { REPOSITORY } from './server.js';

const SCREENSHOTS = path.join(REPOSITORY, 'target/screenshots');

// The address of a node called `a`, in a cluster of `a` and `b`.
const NODE = process.env.TIDEWIRE_NODE;

test('the console of a node shows all nodes, and who takes the writes', { skip: NODE ? false : 'no cluster' }, async () => {
  const browser = await Browser.open(NODE);
  const { page } = browser;
  await page.goto(`${NODE}/console`);
  const nodes = page.locator('#nodes tr');
  await nodes.nth(1).waitFor();
  const rows = await nodes.allInnerTexts();
  assert.deepEqual(rows.map((row) => row.split('\t')[0]), ['a', 'b']);
  assert.equal(rows.filter((row) => row.includes('takes the writes')).length, 1, rows.join('\n'));
  assert.match(rows[0], /answered this/);
  assert.match(await page.locator('#cluster-facts').innerText(), /Last record that a has applied/i);
  await mkdir(SCREENSHOTS, { recursive: true });
  for (const [name, width, colorScheme] of [['cluster-wide', 1280, 'light'], ['cluster-narrow', 360, 'dark']]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(overflow, 0, `nothing is wider than ${width} pixels`);
    await page.locator('#cluster').screenshot({ path: path.join(SCREENSHOTS, `${name}.png`) });
  }
  assert.deepEqual([browser.complaints, browser.strangers], [[], []]);
  await browser.close();
});

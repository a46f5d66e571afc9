// A server and a browser for all tests of the file that imports this. No test may make the browser complain or ask anybody else.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach } from 'node:test';

import { Browser } from './browser.js';
import { Server } from './server.js';

export let server, browser, page;

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

afterEach(async () => {
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  assert.deepEqual(browser.complaints, [], 'no errors, no warnings, no violations of the policy');
  assert.deepEqual(browser.strangers, [], 'nobody else was asked');
});

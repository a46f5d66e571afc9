// What tests of the console do again and again.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';

import { page, server } from './open_console.js';

export const STEP_MAX_MS = 30_000;

/** Opens a page of the console anew. */
export async function visit(place) {
  // A pointer that an earlier test has left over the list holds new posts back.
  await page.mouse.move(0, 0);
  // Also where only the query differs.
  await page.goto('about:blank');
  await page.goto(`${server.origin}/console/${place}`);
}

/** Waits until the server is known to run. */
export const isRunning = () => page.locator('#server', { hasText: /^Running/ }).waitFor({ timeout: STEP_MAX_MS });

/** Opens the feed of a reader, whom that may wake, and waits until it is live. */
export async function openFeed(user) {
  await visit(`readers?user=${user}`);
  await readFeed();
}

/** Reads the feed that the page is of, and waits until it is live. */
export async function readFeed() {
  await page.locator('#feed-state:visible, #read-feed:visible').waitFor({ timeout: STEP_MAX_MS });
  if (await page.locator('#read-feed').isVisible()) await page.locator('#read-feed').click();
  await page.mouse.move(0, 0);
  await isLive();
}

export const isLive = () => page.locator('#feed-state', { hasText: /^Live$/ }).waitFor({ timeout: STEP_MAX_MS });

/** Opens another part of a reader. */
export const openPart = (user, part) => visit(`readers?user=${user}&part=${part}`);

/** The entry of the feed with this text. */
export const entry = (text) => page.locator('#posts > li', { hasText: text });

/** Waits until the feed shows just these texts, newest first. */
export async function shows(expected) {
  const same = (texts) => {
    const now = [...document.querySelectorAll('#posts .text')].map((text) => text.textContent);
    return JSON.stringify(now) === JSON.stringify(texts);
  };
  await page.waitForFunction(same, expected, { timeout: STEP_MAX_MS }).catch(async () => assert.deepEqual(await page.locator('#posts .text').allTextContents(), expected));
}

/** Waits until something holds. */
export async function until(holds, what) {
  for (const began = Date.now(); !(await holds()); await sleep(50)) assert.ok(Date.now() - began < STEP_MAX_MS, what);
}

/** The name of what has the focus. */
export const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim());

/** Changes the answers to what matches. @param {(json: any, request: import('playwright-core').Request) => any} change */
export const rewrite = (pattern, change) =>
  page.route(pattern, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: change(await response.json(), route.request()) });
  });

/** The statistics, and nothing below that path. */
export const STATS = /\/v1\/stats(\?node=\w+)?$/;

/** Holds back the answers to what matches, until the returned function is called. */
export async function held(pattern, isHeld = () => true) {
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
    // The page gets it in a task of its own, and may draw it in the next frame.
    await page.evaluate(() => new Promise((resolve) => setTimeout(() => requestAnimationFrame(resolve))));
  };
  return { isAsked, answered };
}

/** The requests of the page from now on, as method and path; call `end` to stop counting. */
export function requests() {
  const asked = [];
  const note = (request) => asked.push(`${request.method()} ${request.url().replace(server.origin, '')}`);
  page.on('request', note);
  return { asked, end: () => page.off('request', note) };
}

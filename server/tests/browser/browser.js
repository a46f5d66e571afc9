// The system's Chromium, watched: what it complains of, and whom it asks.

import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { chromium } from 'playwright-core';

import { REPOSITORY } from './server.js';

const SCREENSHOTS = path.join(REPOSITORY, 'target/screenshots');
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
export const SIZES = { desktop: { width: 1440, height: 900 }, phone: { width: 360, height: 740 } };

const PROGRAM = process.env.TIDEWIRE_CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const WAIT_MAX_MS = 15_000;
const FORGIVE_MAX_MS = 60_000;

/** A browser with a profile of its own, and one page. */
export class Browser {
  /** What it complained of in the page's console, since it was last cleared. */
  complaints = [];
  /** The origins it asked that are not the page's. */
  strangers = [];

  /** @param {string} origin of the server under test */
  static async open(origin, options = {}) {
    const browser = new Browser();
    browser.profile = await mkdtemp(path.join(tmpdir(), 'tidewire-chromium-'));
    const context = await chromium.launchPersistentContext(browser.profile, {
      executablePath: PROGRAM,
      args: FLAGS,
      headless: true,
      viewport: SIZES.desktop,
      ...options,
    });
    context.setDefaultTimeout(WAIT_MAX_MS);
    browser.context = context;
    browser.page = context.pages()[0] ?? (await context.newPage());
    browser.#watch(origin);
    return browser;
  }

  #watch(origin) {
    const { page } = this;
    page.on('console', (message) => {
      // The browser asks for an icon by itself where a page names none.
      const isOfIcon = message.location().url.endsWith('/favicon.ico');
      if (['error', 'warning'].includes(message.type()) && !isOfIcon) this.complaints.push(message.text());
    });
    page.on('pageerror', (error) => this.complaints.push(String(error)));
    const asked = (url) => {
      const isOwn = [origin, origin.replace('http', 'ws')].includes(new URL(url).origin) || url.startsWith('data:');
      if (!isOwn && !url.startsWith('about:')) this.strangers.push(url);
    };
    page.on('request', (request) => asked(request.url()));
    page.on('websocket', (socket) => asked(socket.url()));
  }

  /** Waits for so many complaints of this kind, which a test has caused, and forgets them. */
  async forgive(pattern, times) {
    const isCaused = (text) => pattern.test(text);
    for (const began = Date.now(); this.complaints.filter(isCaused).length < times && Date.now() - began < FORGIVE_MAX_MS; ) await sleep(20);
    this.complaints = this.complaints.filter((text) => !isCaused(text));
  }

  /** What axe finds wrong for people who do not see, or do not use a mouse: each rule with the elements that break it. */
  async findings() {
    const { page } = this;
    // By the debugger, as the page's own policy allows no script of others.
    await page.evaluate(await readFile(AXE, 'utf8'));
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(' | ')}`);
  }

  /** Takes pictures of the page in both themes and at these widths; returns what axe found, and what is wider than the page, in any of them. */
  async look(name, fullPage = true, sizes = SIZES) {
    const { page } = this;
    const wrong = [];
    await mkdir(SCREENSHOTS, { recursive: true });
    for (const [size, viewport] of Object.entries(sizes)) {
      await page.setViewportSize(viewport);
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        // Charts are drawn for the new width and theme in the next frames.
        await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
        await page.screenshot({ path: path.join(SCREENSHOTS, `${name}-${size}-${colorScheme}.png`), fullPage });
        wrong.push(...(await this.findings()).map((finding) => `${size}, ${colorScheme}: ${finding}`));
      }
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      if (wide > viewport.width) wrong.push(`${wide} pixels do not fit into ${viewport.width}`);
    }
    await page.setViewportSize(SIZES.desktop);
    return wrong;
  }

  async close() {
    await this.context.close();
    await rm(this.profile, { recursive: true, force: true });
  }
}

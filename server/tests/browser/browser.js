// The system's Chromium, watched: what it complains of, and whom it asks.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

import { chromium } from 'playwright-core';

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
      viewport: { width: 1280, height: 900 },
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

  async close() {
    await this.context.close();
    await rm(this.profile, { recursive: true, force: true });
  }
}

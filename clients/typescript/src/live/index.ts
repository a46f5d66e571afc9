/**
 * Tidewire's live client: one reader's home feed, kept up to date.
 *
 *     import { Feed } from '/tidewire.js';
 *     const feed = new Feed({ user: 'ann' });
 *     feed.addEventListener('change', () => show(feed.items));
 *     feed.start();
 *
 * `Timeline` is what the feed is, by what pages and messages said; it does no input or output. `Feed` reads pages, stays
 * connected, and hands both over to a `Timeline`.
 *
 * Built from clients/typescript/src/live: to be changed there.
 */

export * from './timeline.js';
export * from './feed.js';
export * from './servers.js';
export * from './connection.js';
export * from './wait.js';

/**
 * Tidewire's live client: one reader's live home feed.
 *
 *     import { Feed } from '/tidewire.js';
 *     const feed = new Feed({ user: 'ann' });
 *     feed.addEventListener('change', () => show(feed.items));
 *     feed.start();
 *
 * `Timeline` holds the entries of the feed, from pages and messages; it does no input or output. `Feed` reads pages, stays
 * connected, and passes pages and messages to a `Timeline`.
 *
 * Built from clients/typescript/src/live: change it there.
 */

export * from './timeline.js';
export * from './feed.js';
export * from './servers.js';
export * from './connection.js';
export * from './wait.js';

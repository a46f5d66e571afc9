/**
 * Client of Tidewire, a feed engine.
 *
 * `Tidewire` has a method for each request of the server. `Feed` is a reader's live home feed; `Timeline`
 * is its state. `/tidewire.js` of a server has these two, for pages without build tools.
 */
export { Tidewire, type BatchResult, type FeedResult, type NewFollow, type Unfollow } from './client.js';
export type { ChangeOf, ChangeType } from './changes.js';
export { TidewireError, type ErrorCode } from './error.js';
export { newPostId } from './ids.js';
export { Feed, type FeedEvents, type FeedOptions, type FeedState, type TokenSource, type Unread } from './live/feed.js';
export type { SocketClass, SocketLike } from './live/connection.js';
export { Timeline, type Hello, type Numbered, type Read, type Session } from './live/timeline.js';
export type * from './options.js';
export type * from './types.js';

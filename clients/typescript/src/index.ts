export { Feed } from './live/feed.js';

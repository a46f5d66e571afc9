import type { Item, LiveMessage, Page, UnreadMessage } from '../types.js';
import {
  TOO_MANY,
  UNAUTHENTICATED,
  openEvents,
  openSocket,
  requestOf,
  streamEvents,
  withToken,
  type SocketClass,
} from './connection.js';
import { checkedServers, notConnected } from './servers.js';
import { Timeline, type Read } from './timeline.js';
import { backOff, inTime } from './wait.js';

const PARTIAL_TRIES = 3;
const HELLO_MAX_MS = 15_000;
const PAGE_WAIT_MAX_MS = 15_000;
const TOKEN_WAIT_MAX_MS = 15_000;
// Timers of more than 24 days would fire at once.
const RETRY_AFTER_MAX_MS = 300_000;
const SETTLED_MS = 5_000;
// A heartbeat comes every 30 seconds.
const SILENCE_MAX_MS = 75_000;
const TOO_SLOW = 4008;
// Characters of an error page or of JSON, with which a WebSocket fails at once.
const NO_TOKEN = /[{}<>"\s]/;
const ASKS_FOR_TOKEN = 'the server requires authentication';
const TOO_MANY_CONNECTIONS = 'this reader has too many connections';

/** A token that authenticates the reader, or a function that returns one, called again after it has expired. */
export type TokenSource = string | (() => string | Promise<string>);

/** Live: `items` is the current feed. */
export type FeedState = 'connecting' | 'live' | 'reconnecting' | 'stopped';

/** The number of unread entries of a feed, as in `GET …/marker`. */
export type Unread = Pick<UnreadMessage, 'unread' | 'capped' | 'complete'>;

/** The options of a feed. */
export interface FeedOptions {
  /** The reader of the feed. */
  user: string;
  /**
   * URL of the server, by default the page's own. Several URLs are the nodes of a cluster: the feed uses one until it
   * does not respond, then the next.
   */
  server?: string | readonly string[];
  /** Entries to read at first and at a time, at most 100 [default: 20]. */
  limit?: number;
  /** The number of entries above which new ones remove the oldest [default: 500]. */
  keep?: number;
  /** `websocket` if available, otherwise `sse`: server-sent events. */
  transport?: 'websocket' | 'sse';
  /** A function is called at first, and again when the server refuses the last token, or it did not return for 15 s. */
  token?: TokenSource;
  /** Report the number of unread entries. */
  unread?: boolean;
  /** The class of WebSockets, if there is no global one: of the package `ws`, in Node 20. */
  WebSocket?: SocketClass;
  /** Replaces the global `fetch`, for pages and server-sent events. */
  fetch?: typeof fetch;
}

/** The events of a feed. */
export interface FeedEvents {
  change: Event;
  state: Event;
  marker: CustomEvent<string>;
  unread: CustomEvent<Unread>;
}

export interface Feed<Body = unknown> {
  addEventListener<T extends keyof FeedEvents>(
    type: T,
    listener: (event: FeedEvents[T]) => void,
    options?: Parameters<EventTarget['addEventListener']>[2],
  ): void;
  addEventListener(...of: Parameters<EventTarget['addEventListener']>): void;
  removeEventListener<T extends keyof FeedEvents>(
    type: T,
    listener: (event: FeedEvents[T]) => void,
    options?: Parameters<EventTarget['removeEventListener']>[2],
  ): void;
  removeEventListener(...of: Parameters<EventTarget['removeEventListener']>): void;
}

/** The result of a try to read a page: without a page and an error, a retry may succeed. */
interface PageRead<Body> {
  page?: Page<Body>;
  error?: Error;
  retryAfter?: number;
}

/**
 * A reader's home feed. Events: `change` of the items; `state`; `marker`, whose `detail` is the cursor of the read
 * marker; `unread`, with the number of unread entries, if requested.
 */
export class Feed<Body = unknown> extends EventTarget {
  /**
   * The reason why it stopped by itself, or, while `reconnecting`, why the last attempt to connect failed. Null again when a
   * connection is established. The refusal of the server is its `cause`, with a `code`. @type {Error|null}
   */
  error: Error | null = null;
  /** The number of unread entries, as in `GET …/marker`; null: unknown. @type {object|null} */
  unread: Unread | null = null;

  #user: string;
  /** The server in use comes first. */
  #servers: string[];
  #wantsUnread: boolean;
  #transport: 'websocket' | 'sse';
  #WebSocket: SocketClass;
  #fetch: typeof fetch | undefined;
  #askToken: (() => string | Promise<string>) | null = null;
  #token: string | null = null;
  /** True if the server has not accepted the token yet. */
  #isTokenNew = false;
  #asked: Promise<unknown> | null = null;
  #connecting: object | null = null;
  #timeline: Timeline<Body>;
  #state: FeedState = 'stopped';
  /** The time of the hello, by `performance.now()`; null before it, or without a connection. */
  #greetedAt: number | null = null;
  #failures = 0;
  #hangUp = () => {};
  #timer: ReturnType<typeof setTimeout> | undefined;
  #reading: { done?: Promise<void> } | null = null;
  #cancelPage = () => {};
  #wake = () => {};

  /**
   * @param {object} options
   * @param {string} options.user the reader of the feed
   * @param {string|string[]} [options.server] origin of the server, by default the page's own; several are the nodes of
   *   a cluster: the feed uses one until it does not respond, then the next
   * @param {number} [options.limit] entries to read at first and at a time, at most 100
   * @param {number} [options.keep] the number of entries above which new ones remove the oldest
   * @param {'websocket'|'sse'} [options.transport]
   * @param {string|(() => string|Promise<string>)} [options.token] authenticates the reader; a function is
   *   called at first, and again when the server no longer accepts the last token, or it did not return for 15 s
   * @param {boolean} [options.unread] report the number of unread entries
   * @param {Function} [options.WebSocket] the class of WebSockets, if there is no global one
   * @param {Function} [options.fetch] replaces the global one, for pages and server-sent events
   */
  constructor({
    user,
    server = globalThis.location?.origin,
    limit = 20,
    keep = 500,
    WebSocket = globalThis.WebSocket,
    transport = WebSocket ? 'websocket' : 'sse',
    token,
    unread = false,
    fetch,
  }: FeedOptions) {
    super();
    // Without types, `undefined` would be a user of this name.
    if (typeof user !== 'string' || user === '') throw new TypeError('user: the id of the reader is needed');
    [this.#user, this.#servers, this.#wantsUnread] = [user, checkedServers(server), unread];
    [this.#transport, this.#WebSocket, this.#fetch] = [transport, WebSocket, fetch];
    if (typeof token === 'function') this.#askToken = token;
    else if (token) this.#token = token;
    this.#timeline = new Timeline<Body>(limit, keep);
  }

  /** The entries, newest first, as in pages. */
  get items(): readonly Item<Body>[] {
    return this.#timeline.items;
  }

  /** True if there may be older entries. */
  get hasMore(): boolean {
    return this.#timeline.hasMore;
  }

  /** @returns {'connecting'|'live'|'reconnecting'|'stopped'} Live: `items` is the current feed. */
  get state(): FeedState {
    return this.#state;
  }

  /** Connects, and stays connected. Resumes where it was stopped, if the server still has that place. */
  start(): void {
    if (this.#state !== 'stopped') return;
    this.error = null;
    this.#failures = 0;
    this.#set('connecting');
    this.#connect();
  }

  /** Disconnects. The items stay. */
  stop(): void {
    this.#disconnect();
    this.#reading = null;
    this.#cancelPage();
    this.#wake();
    this.#set('stopped');
  }

  /** Reads older entries, and retries until it succeeds. @returns {Promise<void>} when they are in `items` */
  loadMore(): Promise<void> {
    this.#timeline.wantMore();
    return this.#read();
  }

  #connect(): void {
    const server = this.#servers[0]!;
    const giveUp = () => {
      this.error = new Error(`${notConnected(server)}. Retrying`);
      this.#leave(server);
      this.#reconnect();
    };
    this.#timer = setTimeout(giveUp, HELLO_MAX_MS);
    const asked = this.#missingToken();
    if (!asked) return this.#open();
    const connecting = (this.#connecting = {});
    const ifStill = (what: () => void) => () => this.#connecting === connecting && what();
    // Without a token, it retries, as with a server that does not respond.
    const reconnect = (cause: unknown) => {
      if (this.#connecting !== connecting) return;
      this.error = new Error('could not get a token; retrying', { cause });
      this.#reconnect();
    };
    asked.then(
      ifStill(() => this.#open()),
      reconnect,
    );
  }

  #open(): void {
    const isStream = this.#token || this.#fetch || !globalThis.EventSource;
    const events = isStream ? streamEvents(this.#fetch ?? fetch) : openEvents;
    const [path, open] = this.#transport === 'sse' ? ['events', events] : ['live', openSocket(this.#WebSocket)];
    const [server, token] = [this.#servers[0]!, this.#token];
    const wanted = { batch: true, ...(this.#wantsUnread ? { unread: true } : {}) };
    const url = this.#url(path, { ...this.#timeline.session, ...wanted });
    const ended = (code: number | null, reason?: string) => this.#ended(code, server, token, reason);
    this.#hangUp = open(url, (message) => this.#receive(message), ended, token);
  }

  /** Calls the function for a token, if there is no token and a function. */
  #missingToken(): Promise<unknown> | null {
    if (this.#token || !this.#askToken) return null;
    return (this.#asked ??= inTime(TOKEN_WAIT_MAX_MS, Promise.resolve().then(this.#askToken))
      .then((token) => {
        if (token && (typeof token !== 'string' || NO_TOKEN.test(token)))
          throw new TypeError('the function returned an invalid token');
        [this.#token, this.#isTokenNew] = [token, true];
      })
      .finally(() => (this.#asked = null)));
  }

  /** Drops a token that the server refuses. False: there is no function, or another token would not help. */
  #dropToken(used: string | null): boolean {
    if (!this.#askToken) return false;
    if (used !== this.#token) return true;
    if (this.#isTokenNew) return false;
    this.#token = null;
    return true;
  }

  /** Uses the next server from now on, if this one is still in use. */
  #leave(server: string): void {
    if (this.#servers[0] === server) this.#servers.push(this.#servers.shift()!);
  }

  #disconnect(): void {
    this.#connecting = null;
    clearTimeout(this.#timer);
    this.#hangUp();
    this.#hangUp = () => {};
    this.#greetedAt = null;
  }

  #receive(message: LiveMessage<Body>): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#reconnect(), SILENCE_MAX_MS);
    if (message.type === 'hello') {
      this.#isTokenNew = false;
      this.error = null;
      this.#greetedAt = performance.now();
      if (!this.#timeline.hello(message)) this.#cancelPage();
      this.#wake();
      if (message.marker) this.#dispatch('marker', message.marker);
    } else if (message.type === 'unread') {
      const { unread, capped, complete } = message;
      this.unread = { unread, capped, complete };
      this.#dispatch('unread', this.unread);
    } else if (!this.#timeline.apply(message)) {
      return this.#reconnect();
    } else if (message.type === 'marker') {
      this.#dispatch('marker', message.cursor);
    } else if (message.type !== 'beat') {
      this.dispatchEvent(new Event('change'));
    }
    this.#settle();
    this.#read();
  }

  #dispatch(type: string, detail: unknown): void {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #ended(code: number | null, server: string, token: string | null, reason?: string): void {
    if (code === UNAUTHENTICATED) {
      if (this.#dropToken(token)) return this.#reconnect(this.#greetedAt !== null);
      const said = reason ? `${ASKS_FOR_TOKEN}: ${reason}` : ASKS_FOR_TOKEN;
      // The text after the code is for people.
      return this.#fail(new Error(said, { cause: { code: reason?.split(':')[0] || 'unauthenticated' } }));
    }
    if (code === TOO_MANY) {
      // One of the others may end, or belong to a page that was left. The limit is the same on every server.
      this.error = new Error(`${TOO_MANY_CONNECTIONS}; retrying`);
    } else if (this.#greetedAt === null) {
      this.error = new Error(reason || `${notConnected(server)}. Retrying`);
      this.#leave(server);
    }
    this.#reconnect(code === TOO_SLOW && this.#greetedAt !== null);
  }

  #reconnect(atOnce = false): void {
    // Slows down connections that are repeatedly greeted and dropped.
    if (this.#greetedAt !== null && performance.now() - this.#greetedAt > SETTLED_MS) this.#failures = 0;
    this.#disconnect();
    this.#set('reconnecting');
    this.#timer = setTimeout(() => this.#connect(), atOnce ? 0 : backOff(this.#failures++));
    // Pages are read even while nothing is live; their refusals also report what is wrong with the request.
    this.#read();
  }

  #fail(error: Error): void {
    this.error = error;
    this.stop();
  }

  #set(state: FeedState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.dispatchEvent(new Event('state'));
  }

  #settle(): void {
    if (this.#greetedAt !== null && this.#timeline.isCurrent) this.#set('live');
  }

  #read(): Promise<void> {
    if (this.#state === 'stopped') return Promise.resolve();
    const reading = (this.#reading ??= {});
    return (reading.done ??= this.#readPages(reading));
  }

  async #readPages(reading: object): Promise<void> {
    const isOver = () => this.#reading !== reading;
    for (let failures = 0, read; (read = this.#timeline.startRead());) {
      const { page, error, retryAfter = 0 } = await this.#page(read);
      if (isOver()) return;
      if (error) return this.#fail(error);
      // A partial page is usually complete when it is read again; after these tries it is accepted.
      if (!page || (page.partial?.length && failures < PARTIAL_TRIES)) {
        await this.#pause(Math.max(backOff(failures++), Math.min(retryAfter * 1000, RETRY_AFTER_MAX_MS)));
        if (isOver()) return;
        continue;
      }
      failures = 0;
      this.#timeline.finishRead(read, page);
      this.dispatchEvent(new Event('change'));
      this.#settle();
      if (isOver()) return;
    }
    this.#reading = null;
  }

  /** A page; or nothing, if a retry may succeed; or a permanent error. */
  async #page({ before, limit, afterSequence }: Read<Body>): Promise<PageRead<Body>> {
    const canceller = new AbortController();
    this.#cancelPage = () => canceller.abort();
    const timer = setTimeout(this.#cancelPage, PAGE_WAIT_MAX_MS);
    try {
      const asked = this.#missingToken();
      if (asked) await asked;
      const token = this.#token;
      const url = this.#url('feed', before === null ? { limit } : { limit, before });
      // Browsers refuse to call their `fetch` as a method.
      const send = this.#fetch ?? fetch;
      const headers: Record<string, string> =
        afterSequence === undefined ? {} : { 'Tidewire-After': String(afterSequence) };
      const answer = await send(url, { signal: canceller.signal, ...withToken(token, headers) });
      if (answer.ok) {
        this.#isTokenNew = false;
        return { page: await answer.json() };
      }
      if (answer.status === 401 && this.#dropToken(token)) return {};
      if (answer.status >= 500 || [408, 429].includes(answer.status)) {
        return { retryAfter: Number(answer.headers.get('Retry-After')) || 0 };
      }
      const problem = await answer.json().catch(() => ({}));
      const said = problem.detail ?? `the server answered ${answer.status}`;
      return { error: new Error(said + requestOf(answer), { cause: problem }) };
    } catch {
      return {};
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits. Ends early when the server is reachable again, or the feed is stopped. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #url(path: string, parameters: object): string {
    const server = this.#servers[0]!.replace(/\/+$/, '');
    const url = new URL(`${server}/v1/users/${encodeURIComponent(this.#user)}/${path}`);
    url.search = new URLSearchParams(Object.entries(parameters)).toString();
    return url.href;
  }
}

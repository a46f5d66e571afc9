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

// Bounds are cursors, which compare as text. These are above and below all cursors.
const ABOVE_ALL = '\uffff';
const BELOW_ALL = '';

const PAGE_MAX = 100;

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

const MESSAGE_TYPES = ['hello', 'post', 'remove', 'update', 'stale', 'marker', 'unread', 'beat'];
const UNAUTHENTICATED = 4001;
const TOO_MANY = 4029;
const BACKOFF_BASE_MS = 500;
const BACKOFF_MAX_MS = 30_000;

/**
 * The entries of a feed, and how far down they are complete.
 *
 * A page shows the feed at some moment during the read, and messages may overtake it. So the messages that arrive since
 * the read began are stored, and applied again on top of the page: each may be applied twice.
 */
export class Timeline {
  /** The last applied message, `{epoch, seq}`, after which to resume. Null: cannot resume. */
  session = null;

  #limit;
  #keep;
  #wanted;
  #entries = new Map();
  #sorted = null;
  /** The entries are complete from the newest down to this cursor, and there are none below. */
  #bound = ABOVE_ALL;
  /** The first page must be read, and replaces all entries. */
  #outdated = true;
  #read = null;
  /** The sequence of a cluster's log that pages must have at least: a node behind it may lack entries without messages. */
  #afterSequence;

  /**
   * @param {number} limit entries to show, and to read at a time
   * @param {number} keep the number of entries above which new ones remove the oldest
   */
  constructor(limit = 20, keep = 500) {
    this.#limit = this.#wanted = Math.min(limit, PAGE_MAX);
    this.#keep = Math.max(keep, this.#limit);
  }

  /** The entries, newest first, as in pages. Do not change them. */
  get items() {
    const newestFirst = (a, b) => (a.cursor < b.cursor ? 1 : -1);
    return (this.#sorted ??= Object.freeze([...this.#entries.values()].sort(newestFirst)));
  }

  /** True if there may be older entries. */
  get hasMore() {
    return this.#bound !== BELOW_ALL;
  }

  /** True if the entries are those of the feed, except for messages in transit. */
  get isCurrent() {
    return !this.#outdated && this.#bound !== ABOVE_ALL;
  }

  /** Requests older entries. */
  wantMore() {
    this.#wanted = this.#entries.size + this.#limit;
    this.#keep = Math.max(this.#keep, this.#wanted + this.#limit);
  }

  /** Applies the first message of a connection. False: the missed messages do not follow, so the feed must be read again. */
  hello({ epoch, seq, recovered, after_sequence }) {
    this.#afterSequence = after_sequence;
    const resumed = recovered && this.session?.epoch === epoch && this.session.seq === seq;
    this.session = { epoch, seq };
    if (resumed) return true;
    // A page that is being read may be older than the missed messages.
    this.#read = null;
    this.#outdated = true;
    // A client at the end of the feed stays there: new entries must not push old ones out.
    const size = this.#entries.size;
    const wanted = this.hasMore ? Math.min(size, PAGE_MAX) : Math.min(size + PAGE_MAX, this.#keep);
    this.#wanted = Math.max(this.#limit, wanted);
    return false;
  }

  /** Applies any other message. False: an earlier one is missing, so the session cannot resume. */
  apply(message) {
    if (message.type === 'beat' && message.seq === this.session?.seq) return true;
    if (!this.session || message.type === 'beat' || message.seq !== this.session.seq + 1) {
      this.session = null;
      return false;
    }
    this.session.seq = message.seq;
    this.#read?.messages.push(message);
    this.#change(message);
    return true;
  }

  /** The page to read now, `{before, limit}`; null: none. The same read may start again after a failure. */
  startRead() {
    const missing = this.#wanted - (this.#outdated ? 0 : this.#entries.size);
    if (missing <= 0 || (!this.#outdated && !this.hasMore)) return null;
    const bound = this.#outdated ? ABOVE_ALL : this.#bound;
    const limit = Math.min(PAGE_MAX, Math.max(this.#limit, missing));
    const messages = this.#read?.messages ?? [];
    this.#read = {
      before: bound === ABOVE_ALL ? null : bound,
      limit,
      bound,
      afterSequence: this.#afterSequence,
      messages,
    };
    return this.#read;
  }

  /** Applies the page of a read. */
  finishRead(read, page) {
    if (this.#read !== read) return;
    this.#read = null;
    // There is a gap above the page now: it is read again from further up.
    if (!this.#outdated && this.#bound !== read.bound) return;
    if (this.#outdated) this.#entries.clear();
    this.#outdated = false;
    this.#sorted = null;
    this.#bound = page.next ?? BELOW_ALL;
    page.items.forEach((item) => this.#put(item));
    read.messages.forEach((message) => this.#change(message));
    if (this.#entries.size >= this.#wanted || !this.hasMore) this.#wanted = this.#limit;
  }

  #change(message) {
    this.#sorted = null;
    if (message.type === 'post') this.#put(message.item);
    if (message.type === 'remove') this.#entries.delete(message.post);
    if (message.type === 'update') this.#update(message.post);
    if (message.type === 'stale') {
      this.#wanted = Math.max(this.#wanted, this.#entries.size);
      this.#raise(message.below ?? ABOVE_ALL);
    }
  }

  #update(post) {
    const item = this.#entries.get(post.id);
    if (item) this.#entries.set(post.id, { ...item, post });
  }

  #put(item) {
    this.#entries.delete(item.post.id);
    if (item.cursor < this.#bound) return;
    this.#entries.set(item.post.id, item);
    if (this.#entries.size > this.#keep) {
      this.#sorted = null;
      this.#raise(this.items[this.#keep - 1].cursor);
    }
  }

  #raise(bound) {
    if (bound <= this.#bound) return;
    this.#bound = bound;
    this.#sorted = null;
    for (const [id, item] of this.#entries) {
      if (item.cursor < bound) this.#entries.delete(id);
    }
  }
}

/**
 * A reader's home feed. Events: `change` of the items; `state`; `marker`, whose `detail` is the cursor of the read
 * marker; `unread`, with the number of unread entries, if requested.
 */
export class Feed extends EventTarget {
  /**
   * The reason why it stopped by itself, or, while `reconnecting`, why the last attempt to connect failed. Null again when a
   * connection is established. The refusal of the server is its `cause`, with a `code`. @type {Error|null}
   */
  error = null;
  /** The number of unread entries, as in `GET …/marker`; null: unknown. @type {object|null} */
  unread = null;

  #user;
  /** The server in use comes first. */
  #servers;
  #wantsUnread;
  #transport;
  #WebSocket;
  #fetch;
  #askToken = null;
  #token = null;
  /** True if the server has not accepted the token yet. */
  #isTokenNew = false;
  #asked = null;
  #connecting = null;
  #timeline;
  #state = 'stopped';
  /** The time of the hello, by `performance.now()`; null before it, or without a connection. */
  #greetedAt = null;
  #failures = 0;
  #hangUp = () => {};
  #timer;
  #reading = null;
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
  }) {
    super();
    // Without types, `undefined` would be a user of this name.
    if (typeof user !== 'string' || user === '') throw new TypeError('user: the id of the reader is needed');
    [this.#user, this.#servers, this.#wantsUnread] = [user, checkedServers(server), unread];
    [this.#transport, this.#WebSocket, this.#fetch] = [transport, WebSocket, fetch];
    if (typeof token === 'function') this.#askToken = token;
    else if (token) this.#token = token;
    this.#timeline = new Timeline(limit, keep);
  }

  /** The entries, newest first, as in pages. */
  get items() {
    return this.#timeline.items;
  }

  /** True if there may be older entries. */
  get hasMore() {
    return this.#timeline.hasMore;
  }

  /** @returns {'connecting'|'live'|'reconnecting'|'stopped'} Live: `items` is the current feed. */
  get state() {
    return this.#state;
  }

  /** Connects, and stays connected. Resumes where it was stopped, if the server still has that place. */
  start() {
    if (this.#state !== 'stopped') return;
    this.error = null;
    this.#failures = 0;
    this.#set('connecting');
    this.#connect();
  }

  /** Disconnects. The items stay. */
  stop() {
    this.#disconnect();
    this.#reading = null;
    this.#cancelPage();
    this.#wake();
    this.#set('stopped');
  }

  /** Reads older entries, and retries until it succeeds. @returns {Promise<void>} when they are in `items` */
  loadMore() {
    this.#timeline.wantMore();
    return this.#read();
  }

  #connect() {
    const server = this.#servers[0];
    const giveUp = () => {
      this.error = new Error(`${notConnected(server)}. Retrying`);
      this.#leave(server);
      this.#reconnect();
    };
    this.#timer = setTimeout(giveUp, HELLO_MAX_MS);
    const asked = this.#missingToken();
    if (!asked) return this.#open();
    const connecting = (this.#connecting = {});
    const ifStill = (what) => () => this.#connecting === connecting && what();
    // Without a token, it retries, as with a server that does not respond.
    const reconnect = (cause) => {
      if (this.#connecting !== connecting) return;
      this.error = new Error('could not get a token; retrying', { cause });
      this.#reconnect();
    };
    asked.then(
      ifStill(() => this.#open()),
      reconnect,
    );
  }

  #open() {
    const isStream = this.#token || this.#fetch || !globalThis.EventSource;
    const events = isStream ? streamEvents(this.#fetch ?? fetch) : openEvents;
    const [path, open] = this.#transport === 'sse' ? ['events', events] : ['live', openSocket(this.#WebSocket)];
    const [server, token] = [this.#servers[0], this.#token];
    const wanted = { batch: true, ...(this.#wantsUnread ? { unread: true } : {}) };
    const url = this.#url(path, { ...this.#timeline.session, ...wanted });
    const ended = (code, reason) => this.#ended(code, server, token, reason);
    this.#hangUp = open(url, (message) => this.#receive(message), ended, token);
  }

  /** Calls the function for a token, if there is no token and a function. */
  #missingToken() {
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
  #dropToken(used) {
    if (!this.#askToken) return false;
    if (used !== this.#token) return true;
    if (this.#isTokenNew) return false;
    this.#token = null;
    return true;
  }

  /** Uses the next server from now on, if this one is still in use. */
  #leave(server) {
    if (this.#servers[0] === server) this.#servers.push(this.#servers.shift());
  }

  #disconnect() {
    this.#connecting = null;
    clearTimeout(this.#timer);
    this.#hangUp();
    this.#hangUp = () => {};
    this.#greetedAt = null;
  }

  #receive(message) {
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

  #dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #ended(code, server, token, reason) {
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

  #reconnect(atOnce = false) {
    // Slows down connections that are repeatedly greeted and dropped.
    if (this.#greetedAt !== null && performance.now() - this.#greetedAt > SETTLED_MS) this.#failures = 0;
    this.#disconnect();
    this.#set('reconnecting');
    this.#timer = setTimeout(() => this.#connect(), atOnce ? 0 : backOff(this.#failures++));
    // Pages are read even while nothing is live; their refusals also report what is wrong with the request.
    this.#read();
  }

  #fail(error) {
    this.error = error;
    this.stop();
  }

  #set(state) {
    if (this.#state === state) return;
    this.#state = state;
    this.dispatchEvent(new Event('state'));
  }

  #settle() {
    if (this.#greetedAt !== null && this.#timeline.isCurrent) this.#set('live');
  }

  #read() {
    if (this.#state === 'stopped') return Promise.resolve();
    const reading = (this.#reading ??= {});
    return (reading.done ??= this.#readPages(reading));
  }

  async #readPages(reading) {
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
  async #page({ before, limit, afterSequence }) {
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
      const headers = afterSequence === undefined ? {} : { 'Tidewire-After': String(afterSequence) };
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
  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #url(path, parameters) {
    const server = this.#servers[0].replace(/\/+$/, '');
    const url = new URL(`${server}/v1/users/${encodeURIComponent(this.#user)}/${path}`);
    url.search = new URLSearchParams(Object.entries(parameters)).toString();
    return url.href;
  }
}

/** The protocol of a URL, empty if it is invalid. Not with `URL.canParse`, which older browsers lack. */
function protocolOf(url) {
  try {
    return new URL(url).protocol;
  } catch {
    return '';
  }
}

/** The URLs of the servers. Throws without a URL, or if one has another protocol. */
function checkedServers(server) {
  const servers = [server ?? []].flat();
  if (servers.length === 0) throw new TypeError('server: the URL of the server is needed outside of a browser page');
  for (const one of servers) {
    if (!/^https?:$/.test(protocolOf(one))) {
      const said = `server: ${JSON.stringify(one)} does not begin with http:// or https://`;
      const example = /^[\w.-]*:\d+$/.test(one) ? one.replace(/^:/, 'localhost:') : 'localhost:8080';
      throw new TypeError(`${said}: write it as http://${example}`);
    }
  }
  return servers;
}

/** All likely causes of a failed connection: browsers do not report the actual one to pages. */
function notConnected(server) {
  const { origin, protocol } = globalThis.location ?? {};
  const causes = ['it is not running or cannot be reached'];
  if (origin && origin !== new URL(server).origin) {
    causes.push(`it refuses pages of ${origin}, because its --cors-origins does not list them`);
    if (protocol === 'https:' && server.startsWith('http:')) causes.push('a page with https cannot use one with http');
  }
  causes.push('it or a proxy in front of it refused the connection');
  return `no connection to ${server}: ${causes.join('; or ')}`;
}

// Each opens a connection, reports its messages and its end, and returns how to close it without a report.

function openSocket(WebSocket) {
  return (url, onMessage, onEnd, token) => {
    const address = url.replace(/^http/, 'ws');
    const socket = token ? new WebSocket(address, ['tidewire', `bearer.${token}`]) : new WebSocket(address);
    // The server sends a message or an array of them. The handler of one may close the connection.
    socket.onmessage = ({ data }) =>
      [JSON.parse(data)].flat().forEach((message) => socket.onmessage && onMessage(message));
    socket.onclose = ({ code, reason }) => onEnd(code, reason);
    // The close event also reports the failure. The package `ws` throws without a listener.
    socket.onerror = () => {};
    return () => {
      socket.onmessage = socket.onclose = null;
      // Browsers log an error for a socket that is closed before it is open. Elsewhere it would keep the program running.
      if (socket.readyState === 0 && globalThis.document) socket.onopen = () => socket.close();
      else socket.close();
    };
  };
}

const openEvents = (url, onMessage, onEnd) => {
  const source = new EventSource(url);
  MESSAGE_TYPES.forEach((type) => source.addEventListener(type, ({ data }) => onMessage(JSON.parse(data))));
  source.onerror = () => {
    // The browser would reconnect by itself, but all clients at the same time, and not after a refusal.
    source.close();
    onEnd(null);
  };
  return () => source.close();
};

/** Server-sent events by `fetch`: with a token, which `EventSource` cannot send, or without `EventSource`. */
function streamEvents(send) {
  return (url, onMessage, onEnd, token) => {
    const canceller = new AbortController();
    const report = (code, reason) => {
      if (!canceller.signal.aborted) onEnd(code, reason);
    };
    const read = async () => {
      const answer = await send(url, { signal: canceller.signal, ...withToken(token) });
      if (!answer.ok) {
        const { code, detail } = await answer.json().catch(() => ({}));
        const why = `${detail ? `: ${detail}` : ''}${requestOf(answer)}`;
        // As with a WebSocket, the text after the code is for people.
        if (answer.status === 401) return report(UNAUTHENTICATED, code && `${code}${why}`);
        const said = `the server answered ${answer.status}${why}`;
        return report(code === 'too_many_connections' ? TOO_MANY : null, said);
      }
      for await (const data of eventData(answer.body)) {
        if (!canceller.signal.aborted) onMessage(JSON.parse(data));
      }
      report(null);
    };
    read().catch(() => report(null));
    return () => canceller.abort();
  };
}

/** The data of each server-sent event. */
async function* eventData(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (let text = '', read; !(read = await reader.read()).done;) {
    const events = (text + decoder.decode(read.value, { stream: true })).split('\n\n');
    text = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: '));
      yield data.map((line) => line.slice(6)).join('\n');
    }
  }
}

/** The id of a refused request in the server's log, if the response has one. */
function requestOf({ headers }) {
  const id = headers.get('X-Request-Id');
  return id ? ` (request ${id})` : '';
}

const withToken = (token, more = {}) => ({
  headers: token ? { Authorization: `Bearer ${token}`, ...more } : more,
});

/** The value of a promise, unless it takes too long. */
function inTime(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no response in ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Exponential, with full jitter, so that clients disconnected together do not reconnect together. */
function backOff(attempt) {
  return Math.random() * Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
}

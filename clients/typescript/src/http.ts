import { checkedServers, notConnected } from './live/servers.js';
import { backOff } from './live/wait.js';
import { TidewireError } from './error.js';
import type { ClientOptions, RequestOptions } from './options.js';
import type { Problem } from './types.js';

const TIMEOUT_MS = 30_000;
const RETRIES = 4;
const RETRY_WAIT_MAX_MS = 30_000;
/** Longer timers would fire at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;
/** The random share added to a wait of the server, so that clients refused together do not retry together. */
const JITTER = 0.25;
/** The form of a JSON Web Token, which users have. A server key has another form. */
const USER_TOKEN = /^[\w-]+\.[\w-]+\.[\w-]+$/;
/** The node responds, but another one is the better choice. Each retains its own part of the stream of changes. */
const ASK_ANOTHER = [
  ...['recovering', 'joining', 'leaving', 'shutting_down', 'gone'],
  ...['log_unavailable', 'sequencer_unavailable', 'owner_unavailable', 'not_applied_yet'],
];
/** The statuses of a proxy whose server does not respond. */
const PROXY_STATUS = [502, 503, 504];
/** The statuses of a proxy that did not forward the request. */
const NOT_PASSED_ON = [408, 429];

/** A request. */
export interface Request {
  method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE';
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string>;
  body?: unknown;
  /** True if it is idempotent, so that it may be sent again after an unknown outcome. */
  isRepeatable: boolean;
  options: RequestOptions;
}

/** A response with status 2xx, and the value that its reader returned. */
export interface Answer<T> {
  requestId: string | null;
  value: T;
}

/** Decodes a good response. */
type Reader<T> = (response: Response, canceller: AbortController) => Promise<T>;

/** The path of these parts, each of them encoded. */
export function path(strings: TemplateStringsArray, ...parts: string[]): string {
  parts.forEach((part) => {
    // Without types, `undefined` would be a user of this name, and a number a rounded id.
    if (typeof part !== 'string')
      throw new TypeError(`an id or a name is a string, not ${part === null ? part : typeof part}`);
    // URLs are resolved, so these would name another path.
    if (['', '.', '..'].includes(part)) throw new TypeError(`${JSON.stringify(part)} cannot be part of a path`);
  });
  return String.raw({ raw: strings }, ...parts.map((part) => encodeURIComponent(part)));
}

/** Sends requests with a valid token to a server that responds, and retries if that is safe. */
export class Http {
  /** The highest `Tidewire-Sequence` of all responses. */
  sequence = 0;

  readonly #options: ClientOptions;
  /** The server in use comes first. */
  readonly #servers: string[];
  #token: string | null = null;
  #asked: Promise<string> | null = null;

  constructor(options: ClientOptions) {
    this.#options = options;
    const servers = checkedServers(options.server ?? globalThis.location?.origin);
    this.#servers = [...new Set(servers.map((server) => server.replace(/\/+$/, '')))];
  }

  /** All servers; the server in use comes first. */
  get servers(): string[] {
    return [...this.#servers];
  }

  /** The number of retries of a request with these options. */
  retries(options: RequestOptions): number {
    return options.retries ?? this.#options.retries ?? RETRIES;
  }

  /** The longest wait between two tries. */
  get retryWaitMaxMs(): number {
    return this.#options.retryWaitMaxMs ?? RETRY_WAIT_MAX_MS;
  }

  /** True if the server chooses the ids of posts that are published with the token of this client. */
  async doesServerChooseIds(signal?: AbortSignal): Promise<boolean> {
    if (this.#options.tokenPostIds === 'user') return false;
    return USER_TOKEN.test((await this.#goodToken(signal))?.trim() ?? '');
  }

  /** Sends a request. Its response is JSON, or empty. */
  async json<T>(request: Request): Promise<Answer<T>> {
    return this.send(request, async (response) => {
      const text = await response.text();
      return (text === '' ? undefined : JSON.parse(text)) as T;
    });
  }

  /**
   * Sends a request. `read` decodes a good response within the time of the try. If its value continues to read the response,
   * the canceller ends it.
   */
  async send<T>(request: Request, read: Reader<T>): Promise<Answer<T>> {
    const { signal } = request.options;
    const retries = this.retries(request.options);
    let isRenewed = false;
    /** The servers that permanently lack the requested changes. */
    const gone = new Set<string>();
    let other: TidewireError | undefined;
    for (let tries = 0, unanswered = 0; ;) {
      signal?.throwIfAborted();
      const server = this.#servers.find((one) => !gone.has(one)) ?? this.#servers[0]!;
      const token = await this.#goodToken(signal);
      try {
        return await this.#try(server, token, request, read);
      } catch (error) {
        if (!(error instanceof TidewireError)) throw error;
        if (error.status === 401 && !isRenewed && this.#dropToken(token)) {
          isRenewed = true;
          continue;
        }
        const isRefused = ASK_ANOTHER.includes(error.code);
        const isForAnother = isRefused || error.status === 0 || isOfProxy(error);
        if (isForAnother) this.#leave(server);
        if (error.code === 'gone') gone.add(server);
        else other = error;
        // Another server may respond at once.
        if (isForAnother && (isRefused || mayRepeat(error, request)) && ++unanswered < this.#servers.length) continue;
        // The changes are not gone while one server may have them.
        const failure = gone.size < this.#servers.length ? (other ?? error) : error;
        if (!mayRepeat(failure, request) || tries >= retries) throw failure;
        await this.#waitBefore(tries++, failure, signal);
      }
    }
  }

  async #try<T>(server: string, token: string | null, request: Request, read: Reader<T>): Promise<Answer<T>> {
    const { signal, timeoutMs = this.#options.timeoutMs ?? TIMEOUT_MS } = request.options;
    // A request that cannot be sent is a mistake of the caller, and is not retried.
    const [target, sent] = [url(server, request), init(request, token)];
    const canceller = new AbortController();
    const cancel = () => canceller.abort(signal!.reason);
    signal?.addEventListener('abort', cancel, { once: true });
    let isLate = false;
    let requestId: string | null = null;
    const timer = setTimeout(() => canceller.abort((isLate = true)), timeoutMs);
    try {
      const send = this.#options.fetch ?? fetch;
      const response = await send(target, { ...sent, signal: canceller.signal });
      this.sequence = Math.max(this.sequence, Number(response.headers.get('Tidewire-Sequence')) || 0);
      requestId = response.headers.get('X-Request-Id');
      if (!response.ok) throw await refusal(response);
      return { requestId, value: await read(response, canceller) };
    } catch (error) {
      if (error instanceof TidewireError) throw error;
      if (signal?.aborted) throw signal.reason;
      if (error instanceof SyntaxError) throw unexpected(200, 'OK, but not JSON', { cause: error, requestId });
      throw isLate ? late(timeoutMs, error) : unanswered(server, error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Waits for the time that the server requests, or with backoff. Fails with the error if the requested time is too long. */
  async #waitBefore(nth: number, error: TidewireError, signal?: AbortSignal): Promise<void> {
    const named = (error.retryAfter ?? 0) * 1000;
    if (named > this.retryWaitMaxMs) throw error;
    const own = Math.min(backOff(nth), this.retryWaitMaxMs);
    await pause(named > 0 ? named * (1 + Math.random() * JITTER) : own, signal);
  }

  /** The token to use now. All requests that need a new one wait for the same. */
  async #goodToken(signal?: AbortSignal): Promise<string | null> {
    const { token, timeoutMs = TIMEOUT_MS } = this.#options;
    if (typeof token !== 'function') return token || null;
    if (this.#token !== null) return this.#token;
    if (!this.#asked) {
      // It has its own time limit, so that later requests do not wait for a call that never returns.
      const asked = within(timeoutMs, Promise.resolve().then(token)).then((fresh) => (this.#token = fresh));
      this.#asked = asked.finally(() => (this.#asked = null));
      // A signal may have ended the requests that wait for it.
      this.#asked.catch(() => {});
    }
    return within(timeoutMs, this.#asked, signal);
  }

  /** Drops a token that the server has refused. False: there is no function that returns another one. */
  #dropToken(used: string | null): boolean {
    if (typeof this.#options.token !== 'function') return false;
    if (this.#token === used) this.#token = null;
    return true;
  }

  /** Uses the next server from now on, if this one is still in use. */
  #leave(server: string): void {
    if (this.#servers[0] === server) this.#servers.push(this.#servers.shift()!);
  }
}

/** Waits; a signal ends it with its reason. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const done = () => {
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(done, Math.min(ms, TIMER_MAX_MS));
    if (signal?.aborted) end();
    else signal?.addEventListener('abort', end, { once: true });
  });
}

/** The value of a promise, unless it takes too long or the signal aborts. */
async function within<T>(ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  const done = new AbortController();
  const end = () => done.abort(signal!.reason);
  signal?.addEventListener('abort', end, { once: true });
  // The loser of the race is ignored.
  const tooLate = pause(ms, done.signal).then(() => Promise.reject(late(ms)));
  try {
    return await Promise.race([promise, tooLate]);
  } finally {
    signal?.removeEventListener('abort', end);
    tooLate.catch(() => {});
    done.abort();
  }
}

/** True if the same request may be sent again after this error. */
export function mayRepeat(error: TidewireError, { isRepeatable }: Pick<Request, 'isRepeatable'>): boolean {
  if (error.status === 0) return isRepeatable || !error.outcomeUnknown;
  if (error.code === 'unexpected_answer') {
    return isRepeatable && (isOfProxy(error) || NOT_PASSED_ON.includes(error.status));
  }
  // Without the header, waiting does not help. With it, nothing was done, except with this one code.
  const isTemporary = error.retryAfter !== undefined && [408, 429, 503].includes(error.status);
  return isTemporary && (isRepeatable || error.code !== 'outcome_unknown');
}

function isOfProxy({ code, status }: TidewireError): boolean {
  return code === 'unexpected_answer' && PROXY_STATUS.includes(status);
}

function url(server: string, { path, query = {} }: Request): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `${server}${path}${search && '?'}${search}`;
}

function init({ method, headers, body }: Request, token: string | null): RequestInit {
  // The error must not contain the token.
  if (token && !/^[\x20-\x7e]+$/.test(token.trim())) throw new TypeError('the token has invalid characters');
  return {
    method,
    headers: {
      ...headers,
      ...(token ? { Authorization: `Bearer ${token.trim()}` } : {}),
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  };
}

async function refusal(response: Response): Promise<TidewireError> {
  const { status, headers } = response;
  const seconds = Number(headers.get('Retry-After') ?? NaN);
  const retryAfter = Number.isNaN(seconds) ? undefined : seconds;
  const problem = (await response.json().catch(() => null)) as Problem | null;
  const of = { requestId: headers.get('X-Request-Id') };
  if (typeof problem?.code === 'string') return new TidewireError({ ...problem, status, retry_after: retryAfter }, of);
  return unexpected(status, response.statusText, of, retryAfter);
}

function unexpected(
  status: number,
  words: string,
  of: { cause?: unknown; requestId: string | null },
  retryAfter?: number,
): TidewireError {
  const detail = `the response is ${status} ${words}`;
  return new TidewireError({ code: 'unexpected_answer', detail, status, retry_after: retryAfter }, of);
}

function late(ms: number, cause?: unknown): TidewireError {
  return new TidewireError({ code: 'timeout', detail: `no answer in ${ms} ms`, status: 0 }, { cause });
}

function unanswered(server: string, cause: unknown): TidewireError {
  // If the server refuses a page of another origin, browsers report only that the request failed.
  // Node has the reason, such as "connect ECONNREFUSED 127.0.0.1:8080", in the cause of the cause.
  const { message, code } = ((cause as Error | undefined)?.cause ?? {}) as { message?: string; code?: string };
  const reason = message || code;
  const detail = globalThis.location ? notConnected(server) : `no answer from ${server}${reason ? `: ${reason}` : ''}`;
  return new TidewireError({ code: 'no_answer', detail, status: 0 }, { cause });
}

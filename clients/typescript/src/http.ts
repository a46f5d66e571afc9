import { checkedServers, notConnected } from './live/servers.js';
import { backOff } from './live/wait.js';
import { TidewireError } from './error.js';
import type { ClientOptions, RequestOptions } from './options.js';
import type { Problem } from './types.js';

const TIMEOUT_MS = 30_000;
const RETRIES = 4;
const RETRY_WAIT_MAX_MS = 30_000;
/** Timers that are to wait for longer end at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;
/** Of a wait that the server has named, added by chance: who was refused together does not come back together. */
const JITTER = 0.25;
/** The form of a JSON Web Token: what users have. A server key is none. */
const USER_TOKEN = /^[\w-]+\.[\w-]+\.[\w-]+$/;
/** The node answers, but another one is the better choice. Each has its own beginning of the stream of changes. */
const ASK_ANOTHER = [
  ...['recovering', 'joining', 'leaving', 'shutting_down', 'gone'],
  ...['log_unavailable', 'sequencer_unavailable', 'owner_unavailable', 'not_applied_yet'],
];
/** Of a proxy, whose server does not answer. */
const PROXY_STATUS = [502, 503, 504];
/** Of a proxy that did not pass it on. */
const NOT_PASSED_ON = [408, 429];

/** What is asked for. */
export interface Request {
  method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE';
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  headers?: Record<string, string>;
  body?: unknown;
  /** Whether it may be sent again when it may have been done already. */
  isRepeatable: boolean;
  options: RequestOptions;
}

/** An answer whose status is 2xx, with what its reader made of it. */
export interface Answer<T> {
  requestId: string | null;
  value: T;
}

/** Makes something of a good answer. */
type Reader<T> = (response: Response, canceller: AbortController) => Promise<T>;

/** The path of these parts, each of them encoded. */
export function path(strings: TemplateStringsArray, ...parts: string[]): string {
  parts.forEach((part) => {
    // Without types, `undefined` would be a user of this name, and a number an id that was rounded.
    if (typeof part !== 'string')
      throw new TypeError(`an id or a name is a string, not ${part === null ? part : typeof part}`);
    // URLs are resolved: these would ask for something else.
    if (['', '.', '..'].includes(part)) throw new TypeError(`${JSON.stringify(part)} cannot be part of a path`);
  });
  return String.raw({ raw: strings }, ...parts.map((part) => encodeURIComponent(part)));
}

/** Sends requests, again where that is safe, to whichever server answers, with a token that is good. */
export class Http {
  /** The highest `Tidewire-Sequence` of all answers. */
  sequence = 0;

  readonly #options: ClientOptions;
  /** The one in use comes first. */
  readonly #servers: string[];
  #token: string | null = null;
  #asked: Promise<string> | null = null;

  constructor(options: ClientOptions) {
    this.#options = options;
    const servers = checkedServers(options.server ?? globalThis.location?.origin);
    this.#servers = [...new Set(servers.map((server) => server.replace(/\/+$/, '')))];
  }

  /** All servers; the one in use comes first. */
  get servers(): string[] {
    return [...this.#servers];
  }

  /** How often a request with these options is tried again. */
  retries(options: RequestOptions): number {
    return options.retries ?? this.#options.retries ?? RETRIES;
  }

  /** The longest wait between two tries. */
  get retryWaitMaxMs(): number {
    return this.#options.retryWaitMaxMs ?? RETRY_WAIT_MAX_MS;
  }

  /** Whether the server chooses the ids of posts that are published with the token of this client. */
  async doesServerChooseIds(signal?: AbortSignal): Promise<boolean> {
    if (this.#options.tokenPostIds === 'user') return false;
    return USER_TOKEN.test((await this.#goodToken(signal))?.trim() ?? '');
  }

  /** Sends a request. Its answer is JSON, or nothing. */
  async json<T>(request: Request): Promise<Answer<T>> {
    return this.send(request, async (response) => {
      const text = await response.text();
      return (text === '' ? undefined : JSON.parse(text)) as T;
    });
  }

  /**
   * Sends a request. `read` takes a good answer within the time of the try. What it returns may go on with the answer: then
   * the canceller ends that.
   */
  async send<T>(request: Request, read: Reader<T>): Promise<Answer<T>> {
    const { signal } = request.options;
    const retries = this.retries(request.options);
    let isRenewed = false;
    /** The servers that do not have what is asked for any more, and never will again. */
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
        // Another server may answer at once.
        if (isForAnother && (isRefused || mayRepeat(error, request)) && ++unanswered < this.#servers.length) continue;
        // As long as one of them may have it, it is not gone.
        const failure = gone.size < this.#servers.length ? (other ?? error) : error;
        if (!mayRepeat(failure, request) || tries >= retries) throw failure;
        await this.#waitBefore(tries++, failure, signal);
      }
    }
  }

  async #try<T>(server: string, token: string | null, request: Request, read: Reader<T>): Promise<Answer<T>> {
    const { signal, timeoutMs = this.#options.timeoutMs ?? TIMEOUT_MS } = request.options;
    // What cannot be sent at all is a mistake of the caller, and not tried again.
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
      if (error instanceof SyntaxError) throw unexpected(200, 'OK, but no JSON', { cause: error, requestId });
      throw isLate ? late(timeoutMs, error) : unanswered(server, error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Waits as long as the server says, or ever longer. Fails with the error if the server says too long. */
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
      // It has its own time: one that never answers is not waited for by later requests.
      const asked = within(timeoutMs, Promise.resolve().then(token)).then((fresh) => (this.#token = fresh));
      this.#asked = asked.finally(() => (this.#asked = null));
      // Whoever waits for it may have been ended by a signal.
      this.#asked.catch(() => {});
    }
    return within(timeoutMs, this.#asked, signal);
  }

  /** Forgets a token that the server has refused. False: there is nobody to ask for another one. */
  #dropToken(used: string | null): boolean {
    if (typeof this.#options.token !== 'function') return false;
    if (this.#token === used) this.#token = null;
    return true;
  }

  /** Uses the next server from now on, if it is still this one that is used. */
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

/** What is promised, unless it takes too long or is not wanted any more. */
async function within<T>(ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  const done = new AbortController();
  const end = () => done.abort(signal!.reason);
  signal?.addEventListener('abort', end, { once: true });
  // Nobody looks at what loses the race.
  const tooLate = pause(ms, done.signal).then(() => Promise.reject(late(ms)));
  try {
    return await Promise.race([promise, tooLate]);
  } finally {
    signal?.removeEventListener('abort', end);
    tooLate.catch(() => {});
    done.abort();
  }
}

/** Whether the same request may be sent again after this. */
export function mayRepeat(error: TidewireError, { isRepeatable }: Pick<Request, 'isRepeatable'>): boolean {
  if (error.status === 0) return isRepeatable || !error.outcomeUnknown;
  if (error.code === 'unexpected_answer') {
    return isRepeatable && (isOfProxy(error) || NOT_PASSED_ON.includes(error.status));
  }
  // Without the header, waiting does not help. With it, nothing was done, apart from this one code.
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
  // No error names it.
  if (token && !/^[\x20-\x7e]+$/.test(token.trim())) throw new TypeError('the token has what no header can have');
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
  const detail = `the answer is ${status} ${words}`;
  return new TidewireError({ code: 'unexpected_answer', detail, status, retry_after: retryAfter }, of);
}

function late(ms: number, cause?: unknown): TidewireError {
  return new TidewireError({ code: 'timeout', detail: `no answer in ${ms} ms`, status: 0 }, { cause });
}

function unanswered(server: string, cause: unknown): TidewireError {
  // Of a page of another origin that the server refuses, browsers say no more than that the request failed.
  // Node has the reason, such as "connect ECONNREFUSED 127.0.0.1:8080", in the cause of the cause.
  const { message, code } = ((cause as Error | undefined)?.cause ?? {}) as { message?: string; code?: string };
  const reason = message || code;
  const detail = globalThis.location ? notConnected(server) : `no answer from ${server}${reason ? `: ${reason}` : ''}`;
  return new TidewireError({ code: 'no_answer', detail, status: 0 }, { cause });
}

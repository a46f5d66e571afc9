import { TidewireError } from './error.js';
import { mayRepeat, pause, type Http, type Request } from './http.js';
import { eventData } from './live/connection.js';
import { backOff } from './live/wait.js';
import type { ChangesOptions } from './options.js';
import type { Change } from './types.js';

/** The types of changes. */
export type ChangeType = Exclude<Change['type'], 'reached'>;

/** The changes of these types, and `reached`, whose `sequence` is a position that can be stored as well. */
export type ChangeOf<Body, T extends ChangeType> = Extract<Change<Body>, { type: T | 'reached' }>;

// The position comes every 30 seconds.
const SILENCE_MAX_MS = 75_000;
const EVENTS_AT_A_TIME = 1_000;

/**
 * All that is accepted, in order, over as many connections as it takes: each goes on where the last one broke off.
 * Fails with what will not pass: refusals such as `gone`, and at the start with what keeps the server from answering.
 */
export async function* readChanges<Body, T extends ChangeType>(
  http: Http,
  { after, types, follow = true, ...options }: ChangesOptions<T>,
): AsyncGenerator<ChangeOf<Body, T>, void, undefined> {
  const { signal } = options;
  let position = after;
  for (let isFirst = true, failures = 0; ; isFirst = false) {
    const request: Request = {
      method: 'GET',
      path: '/v1/changes',
      query: { after: position, types: types?.join(), limit: follow ? undefined : EVENTS_AT_A_TIME },
      headers: { Accept: follow ? 'text/event-stream' : 'application/x-ndjson' },
      isRepeatable: true,
      // Later ones are tried again here, for ever.
      options: isFirst ? options : { ...options, retries: 0 },
    };
    let [events, isComplete, waitMs] = [0, false, 0];
    try {
      for await (const text of messages(http, request, follow ? eventData : lines)) {
        const change = JSON.parse(text) as ChangeOf<Body, T>;
        // Who asks for the next one has processed this one.
        position = change.sequence;
        isFirst = false;
        failures = 0;
        isComplete = change.type === 'reached';
        if (!isComplete) events++;
        yield change;
      }
    } catch (error) {
      // What came before it may not be all.
      isComplete = false;
      signal?.throwIfAborted();
      if (isFirst || (error instanceof TidewireError && !mayRepeat(error, request))) throw error;
      waitMs = ((error as TidewireError).retryAfter ?? 0) * 1000;
    }
    if (!follow && isComplete && events < EVENTS_AT_A_TIME) return;
    if (follow || !isComplete) await pause(Math.max(waitMs, backOff(failures++)), signal);
  }
}

/** The messages of one connection. It is ended when nothing comes for too long, by the signal, and when nobody reads on. */
async function* messages(
  http: Http,
  request: Request,
  split: (body: ReadableStream<Uint8Array>) => AsyncGenerator<string, void>,
): AsyncGenerator<string, void> {
  const { signal } = request.options;
  const open = async (response: Response, canceller: AbortController) => ({ body: response.body!, canceller });
  const { body, canceller } = (await http.send(request, open)).value;
  const end = () => canceller.abort();
  signal?.addEventListener('abort', end, { once: true });
  let timer = setTimeout(end, SILENCE_MAX_MS);
  try {
    for await (const message of split(body)) {
      // The server waits for whoever takes this.
      clearTimeout(timer);
      yield message;
      signal?.throwIfAborted();
      timer = setTimeout(end, SILENCE_MAX_MS);
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', end);
    end();
  }
}

/** The whole lines of a text. */
async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (let text = '', read; !(read = await reader.read()).done;) {
    const whole = (text + decoder.decode(read.value, { stream: true })).split('\n');
    text = whole.pop()!;
    yield* whole;
  }
}

import { TidewireError } from './error.js';
import { mayRepeat, pause, type Http, type Request } from './http.js';
import { eventData } from './live/connection.js';
import { backOff } from './live/wait.js';
import type { ChangesOptions } from './options.js';
import type { Change } from './types.js';

/** The types of changes. */
export type ChangeType = Exclude<Change['type'], 'reached'>;

/**
 * The changes of these types, and `reached`, which is only a place. Each has its `place`: store it after everything up to it
 * is processed, and pass it as `after`.
 */
export type ChangeOf<Body, T extends ChangeType> = Extract<Change<Body>, { type: T | 'reached' }> & { place: string };

// The place comes every 30 seconds.
const SILENCE_MAX_MS = 75_000;
const PAGE_SIZE = 1_000;

/**
 * All accepted changes, in order, over any number of connections: each resumes where the last one ended.
 * Fails with permanent errors: refusals such as `gone`, and at the start with the failure to connect.
 */
export async function* readChanges<Body, T extends ChangeType>(
  http: Http,
  { after, consumer, types, follow = true, pageSize = PAGE_SIZE, ...options }: ChangesOptions<T>,
): AsyncGenerator<ChangeOf<Body, T>, void, undefined> {
  const { signal } = options;
  let place = after;
  for (let hasBegun = false, failures = 0; ;) {
    const request: Request = {
      method: 'GET',
      path: '/v1/changes',
      query: {
        consumer: place == null ? consumer : undefined,
        ...parameters(place),
        types: types?.join(),
        limit: follow ? undefined : pageSize,
      },
      headers: { Accept: follow ? 'text/event-stream' : 'application/x-ndjson' },
      isRepeatable: true,
      // Later connections are retried here, without a limit.
      options: hasBegun ? { ...options, retries: 0 } : options,
    };
    let [events, isComplete, isOpen, waitMs] = [0, false, false, 0];
    let cause: unknown;
    try {
      const open = async (response: Response, canceller: AbortController) => ({ body: response.body!, canceller });
      const { body, canceller } = (await http.send(request, open)).value;
      isOpen = true;
      for await (const text of messages(body, canceller, signal, follow ? eventData : lines)) {
        const change = parsed<ChangeOf<Body, T>>(text);
        // A caller who requests the next change has processed this one.
        place = change.place;
        hasBegun = true;
        failures = 0;
        isComplete = isLast(change);
        if (change.type !== 'reached') events++;
        yield change;
      }
    } catch (error) {
      // The changes so far may be incomplete.
      isComplete = false;
      signal?.throwIfAborted();
      // Reconnects an open stream, even if it was cut before the first message.
      if (!hasBegun && !isOpen) throw error;
      if (error instanceof TidewireError && !mayRepeat(error, request)) throw error;
      waitMs = Math.min(((error as TidewireError).retryAfter ?? 0) * 1000, http.retryWaitMaxMs);
      cause = error;
    }
    if (!follow && isComplete && events < pageSize) return;
    // Tries are limited without `follow`, where the caller waits for an end, and before the first change.
    const isLimited = !follow || !hasBegun;
    if (isLimited && !isComplete && failures >= http.retries(options)) throw cause ?? cutShort();
    if (follow || !isComplete) await pause(Math.max(waitMs, backOff(failures++)), signal);
  }
}

/** The parameters of a place: a sequence, or a sequence and the reader up to whom the next post was processed. */
function parameters(place: string | number | undefined): { after?: string; after_reader?: string } {
  const [, after, reader] = /^([^-]*)-(.*)$/s.exec(String(place)) ?? [];
  // The server refuses an invalid place.
  return after ? { after, after_reader: reader } : { after: place === undefined ? undefined : String(place) };
}

/** A message as a change. An invalid one is permanent, because each connection would bring it again. */
function parsed<C extends Change & { place: string }>(text: string): C {
  let change: C | undefined;
  try {
    change = JSON.parse(text);
  } catch {
    // Reported below.
  }
  if (typeof change?.sequence === 'number') return { ...change, place: placeOf(change) };
  const detail = `the stream of changes has an invalid message: ${text.slice(0, 100)}`;
  throw new TidewireError({ code: 'unexpected_answer', detail, status: 200 });
}

/** True if nothing follows in a response as lines. */
function isLast(change: Change): boolean {
  return change.type === 'reached' && !change.more;
}

/** The place where the stream continues after a message, in the form of the `id` of a server-sent event. */
function placeOf(change: Change): string {
  const isWithinPost = (change.type === 'missed' || change.type === 'reached') && change.reader;
  return isWithinPost ? `${change.sequence}-${change.reader}` : String(change.sequence);
}

function cutShort(cause?: unknown): TidewireError {
  const detail = 'the stream of changes was cut short';
  return new TidewireError({ code: 'no_answer', detail, status: 0 }, { cause });
}

/** The messages of one connection. It ends after too long a silence, by the signal, and when the caller stops reading. */
async function* messages(
  body: ReadableStream<Uint8Array>,
  canceller: AbortController,
  signal: AbortSignal | undefined,
  split: (body: ReadableStream<Uint8Array>) => AsyncGenerator<string, void>,
): AsyncGenerator<string, void> {
  const end = () => canceller.abort();
  signal?.addEventListener('abort', end, { once: true });
  if (signal?.aborted) end();
  let timer = setTimeout(end, SILENCE_MAX_MS);
  try {
    for await (const message of split(body)) {
      // The server waits while the caller processes this.
      clearTimeout(timer);
      yield message;
      signal?.throwIfAborted();
      timer = setTimeout(end, SILENCE_MAX_MS);
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw cutShort(error);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', end);
    end();
  }
}

/** The complete lines of a text. */
async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (let text = '', read; !(read = await reader.read()).done;) {
    const whole = (text + decoder.decode(read.value, { stream: true })).split('\n');
    text = whole.pop()!;
    yield* whole;
  }
}

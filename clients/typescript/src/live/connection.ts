import type { LiveMessage } from '../types.js';

const MESSAGE_TYPES = ['hello', 'post', 'remove', 'update', 'stale', 'marker', 'unread', 'beat'];
export const UNAUTHENTICATED = 4001;
export const TOO_MANY = 4029;

/** Takes each message of a connection. */
type OnMessage = (message: LiveMessage<any>) => void;
/** Takes the end of a connection, with the code of a WebSocket's; null: without one. And what the server said of it. */
type OnEnd = (code: number | null, reason?: string) => void;
/** Opens a connection, reports its messages and its end, and returns how to close it without a report. */
export type Open = (url: string, onMessage: OnMessage, onEnd: OnEnd, token: string | null) => () => void;

/** What a WebSocket must be able to do: that of browsers, of Node 22, and of the package `ws` are. */
export interface SocketLike {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  readonly readyState: number;
  close(): void;
}
/** The class of such. */
export type SocketClass = new (url: string, protocols?: string[]) => SocketLike;

// Each opens a connection, reports its messages and its end, and returns how to close it without a report.

export function openSocket(WebSocket: SocketClass): Open {
  return (url, onMessage, onEnd, token) => {
    const address = url.replace(/^http/, 'ws');
    const socket = token ? new WebSocket(address, ['tidewire', `bearer.${token}`]) : new WebSocket(address);
    socket.onmessage = ({ data }) => onMessage(JSON.parse(data));
    socket.onclose = ({ code, reason }) => onEnd(code, reason);
    // What went wrong is said by its end, too. The package `ws` throws where nobody listens.
    socket.onerror = () => {};
    return () => {
      socket.onmessage = socket.onclose = null;
      // Browsers complain of a socket that is closed before it is open. Elsewhere it would keep the program from its end.
      if (socket.readyState === 0 && globalThis.document) socket.onopen = () => socket.close();
      else socket.close();
    };
  };
}

export const openEvents: Open = (url, onMessage, onEnd) => {
  const source = new EventSource(url);
  MESSAGE_TYPES.forEach((type) => source.addEventListener(type, ({ data }) => onMessage(JSON.parse(data))));
  source.onerror = () => {
    // The browser would come back by itself, but all at the same time, and not after a refusal.
    source.close();
    onEnd(null);
  };
  return () => source.close();
};

/** Server-sent events by `fetch`: with a token, which `EventSource` cannot send, and where there is no `EventSource`. */
export function streamEvents(send: typeof fetch): Open {
  return (url, onMessage, onEnd, token) => {
    const canceller = new AbortController();
    const report: OnEnd = (code, reason) => {
      if (!canceller.signal.aborted) onEnd(code, reason);
    };
    const read = async () => {
      const answer = await send(url, { signal: canceller.signal, ...withToken(token) });
      if (!answer.ok) {
        const { code, detail } = await answer.json().catch(() => ({}));
        const why = `${detail ? `: ${detail}` : ''}${requestOf(answer)}`;
        // As of a WebSocket, what follows the code is for people.
        if (answer.status === 401) return report(UNAUTHENTICATED, code && `${code}${why}`);
        const said = `the server answered ${answer.status}${why}`;
        return report(code === 'too_many_connections' ? TOO_MANY : null, said);
      }
      for await (const data of eventData(answer.body!)) {
        if (!canceller.signal.aborted) onMessage(JSON.parse(data));
      }
      report(null);
    };
    read().catch(() => report(null));
    return () => canceller.abort();
  };
}

/** The data of each server-sent event. */
export async function* eventData(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (let text = '', read; !(read = await reader.read()).done;) {
    const events = (text + decoder.decode(read.value, { stream: true })).split('\n\n');
    text = events.pop()!;
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: '));
      yield data.map((line) => line.slice(6)).join('\n');
    }
  }
}

/** By which request the server's log has a refusal, if it says so. */
export function requestOf({ headers }: Response): string {
  const id = headers.get('X-Request-Id');
  return id ? ` (request ${id})` : '';
}

export const withToken = (token: string | null, more: Record<string, string> = {}) => ({
  headers: token ? { Authorization: `Bearer ${token}`, ...more } : more,
});

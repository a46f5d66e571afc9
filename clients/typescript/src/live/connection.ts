import type { LiveMessage } from '../types.js';

const MESSAGE_TYPES = ['hello', 'post', 'remove', 'update', 'stale', 'marker', 'unread', 'beat'];
export const UNAUTHENTICATED = 4001;
export const TOO_MANY = 4029;

/** Handles each message of a connection. */
type OnMessage = (message: LiveMessage<any>) => void;
/** Handles the end of a connection, with the close code of a WebSocket (otherwise null) and the reason from the server. */
type OnEnd = (code: number | null, reason?: string) => void;
/** Opens a connection, reports its messages and its end, and returns how to close it without a report. */
export type Open = (url: string, onMessage: OnMessage, onEnd: OnEnd, token: string | null) => () => void;

/** The required interface of a WebSocket: those of browsers, of Node 22, and of the package `ws` have it. */
export interface SocketLike {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  readonly readyState: number;
  close(): void;
}
/** The class of such WebSockets. */
export type SocketClass = new (url: string, protocols?: string[]) => SocketLike;

// Each opens a connection, reports its messages and its end, and returns how to close it without a report.

export function openSocket(WebSocket: SocketClass): Open {
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

export const openEvents: Open = (url, onMessage, onEnd) => {
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
        // As with a WebSocket, the text after the code is for people.
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

/** The id of a refused request in the server's log, if the response has one. */
export function requestOf({ headers }: Response): string {
  const id = headers.get('X-Request-Id');
  return id ? ` (request ${id})` : '';
}

export const withToken = (token: string | null, more: Record<string, string> = {}) => ({
  headers: token ? { Authorization: `Bearer ${token}`, ...more } : more,
});

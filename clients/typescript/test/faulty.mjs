// A way to the real server on which things go wrong, one request after the other, as a test says.

import { once } from 'node:events';
import { createServer } from 'node:http';

export class Faulty {
  /** What to do with the next requests; those after them are passed on. */
  plan = [];
  /** The method, path and headers of each request. */
  requests = [];
  #server;

  static async before(target) {
    const faulty = new Faulty();
    faulty.#server = createServer((request, response) => faulty.#take(target, request, response));
    faulty.#server.listen(0, '127.0.0.1');
    await once(faulty.#server, 'listening');
    return faulty;
  }

  get origin() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #take(target, request, response) {
    const { method, url, headers } = request;
    this.requests.push({ method, url, headers });
    const body = await collect(request);
    const fault = this.plan.shift() ?? 'pass';
    if (fault === 'hang') return;
    if (fault === 'drop') return request.socket.destroy();
    if (typeof fault === 'object') {
      response.writeHead(fault.status, fault.headers ?? {});
      if (!fault.cut) return response.end(fault.body ?? '');
      return response.write(fault.body, () => setTimeout(() => request.socket.destroy(), 200));
    }
    const passed = { ...headers, host: undefined, connection: undefined, 'content-length': undefined };
    const sent = Object.fromEntries(Object.entries(passed).filter(([, value]) => value !== undefined));
    const answer = await fetch(target + url, {
      method,
      headers: sent,
      body: body.length ? Buffer.concat(body) : undefined,
    });
    const text = await answer.text();
    // It is done, and nobody is told.
    if (fault === 'lose') return request.socket.destroy();
    response.writeHead(answer.status, { 'Content-Type': answer.headers.get('Content-Type') ?? 'text/plain' });
    response.end(text);
  }
}

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

/** A refusal as the server words it. */
export function refused(status, code, retryAfter) {
  const headers = { 'Content-Type': 'application/problem+json' };
  if (retryAfter !== undefined) headers['Retry-After'] = String(retryAfter);
  return {
    status,
    headers,
    body: JSON.stringify({ type: 'about:blank', title: '', status, code, detail: `a test: ${code}` }),
  };
}

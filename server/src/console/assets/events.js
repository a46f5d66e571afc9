// A stream of server-sent events, with the key of this tab, which `EventSource` could not send.

import { Refusal, credential, refusalOf } from './api.js';
import { DENIED } from './poll.js';

const RETRY_MS = 2000;

/**
 * An event of a stream.
 * @typedef {{event: string, id: string, data: string}} StreamEvent
 */

/** A stream that goes on after a broken connection where it was. */
export class Events {
  #path;
  #handlers;
  #abort = new AbortController();
  #lastId = '';

  /**
   * @param {string} path
   * @param {{event: (event: StreamEvent) => void, state: (state: 'open'|'broken'|'refused', why?: string) => void}} handlers
   */
  constructor(path, handlers) {
    [this.#path, this.#handlers] = [path, handlers];
    this.#run();
  }

  /** Ends it for good. */
  close() {
    this.#abort.abort();
  }

  async #run() {
    while (!this.#abort.signal.aborted) {
      try {
        await this.#read();
        this.#handlers.state('broken');
      } catch (error) {
        if (this.#abort.signal.aborted) return;
        const isRefused = error instanceof Refusal && (DENIED.includes(error.status) || [400, 404, 409].includes(error.status));
        this.#handlers.state(isRefused ? 'refused' : 'broken', error.message);
        if (isRefused) return;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  async #read() {
    const headers = { Accept: 'text/event-stream' };
    if (credential()) headers.Authorization = `Bearer ${credential()}`;
    if (this.#lastId) headers['Last-Event-ID'] = this.#lastId;
    const answer = await fetch(this.#path, { headers, signal: this.#abort.signal });
    if (!answer.ok) throw await refusalOf(answer);
    this.#handlers.state('open');
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      blocks.forEach((block) => this.#take(block));
    }
  }

  #take(block) {
    const found = { event: 'message', id: '', data: [] };
    for (const line of block.split('\n')) {
      const [, field, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
      if (field === 'data') found.data.push(value);
      else if (field) found[field] = value;
    }
    if (found.id) this.#lastId = found.id;
    if (found.data.length) this.#handlers.event({ ...found, data: found.data.join('\n') });
  }
}

// A stream of server-sent events, with the key of this tab, which `EventSource` could not send.

import { Refusal, credential, refusalOf } from './api.js';
import { DENIED } from './poll.js';

const RETRY_MS = 2000;

/**
 * An event of a stream.
 * @typedef {{event: string, id: string, data: string}} StreamEvent
 */

/** Statuses after which a retry would be refused too, besides those of keys and tokens. */
const FINAL = [400, 404, 409];

/** Codes of refusals of the position in the journal: the server accepts another position. */
const LOST = ['gone', 'sequence_in_future'];

/** A stream of events. It resumes after a broken connection, and disconnects while the page is hidden. */
export class Events {
  #path;
  #handlers;
  #abort = null;
  #isClosed = false;
  #lastId = '';
  #seen = () => this.#start();

  /**
   * @param {string} path
   * @param {object} handlers
   * @param {(event: StreamEvent) => void} handlers.event
   * @param {(state: 'open'|'broken'|'refused', why?: string) => void} handlers.state
   * @param {(why: 'gone'|'sequence_in_future') => void} [handlers.lost] the journal no longer has its position: it continues with the next events
   */
  constructor(path, handlers) {
    [this.#path, this.#handlers] = [path, handlers];
    document.addEventListener('visibilitychange', this.#seen);
    this.#start();
  }

  /** Closes the stream permanently. */
  close() {
    this.#isClosed = true;
    document.removeEventListener('visibilitychange', this.#seen);
    this.#abort?.abort();
  }

  #start() {
    this.#abort?.abort();
    this.#abort = document.hidden || this.#isClosed ? null : new AbortController();
    if (this.#abort) this.#run(this.#abort.signal);
  }

  async #run(signal) {
    while (!signal.aborted) {
      try {
        await this.#read(signal);
        if (!signal.aborted) this.#handlers.state('broken');
      } catch (error) {
        if (signal.aborted) return;
        const { status, code } = error;
        // The journal no longer has this position, or is another journal.
        const isLost = this.#lastId !== '' && LOST.includes(code);
        if (isLost) {
          this.#lastId = '';
          this.#handlers.lost?.(code);
        }
        const isRefused = error instanceof Refusal && !isLost && (DENIED.includes(status) || FINAL.includes(status));
        this.#handlers.state(isRefused ? 'refused' : 'broken', error.message);
        if (isRefused) return this.close();
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  async #read(signal) {
    const headers = { Accept: 'text/event-stream' };
    if (credential()) headers.Authorization = `Bearer ${credential()}`;
    if (this.#lastId) headers['Last-Event-ID'] = this.#lastId;
    const answer = await fetch(this.#path, { headers, signal });
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

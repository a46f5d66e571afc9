// The figures of the last hour or day, as the server keeps them: asked for once, then only what is new.

import { ask } from './api.js';

/** The spans that can be shown, in seconds, and which figures of the server they are of. */
export const SPANS = {
  '15 minutes': { seconds: 900, span: 'hour' },
  '1 hour': { seconds: 3600, span: 'hour' },
  '24 hours': { seconds: 86_400, span: 'day' },
};

/** The columns of an hour or a day. */
export class History {
  #query;
  #next = null;
  #columns = null;

  /** @param {string} span `hour` or `day` @param {string} [node] a node of a cluster */
  constructor(span, node) {
    this.#query = new URLSearchParams({ span, ...(node && { node }) });
  }

  /** How often there is something new, in milliseconds. */
  get everyMs() {
    return (this.#columns?.interval_seconds ?? 5) * 1000;
  }

  /** Asks for what is new. @returns {Promise<object>} all columns, as the server names them */
  async read() {
    if (this.#next !== null) this.#query.set('since', this.#next);
    const { json } = await ask('GET', `/v1/stats/history?${this.#query}`);
    this.#columns = json.reset || !this.#columns ? json : appended(this.#columns, json, json.samples_max);
    this.#next = json.next;
    return this.#columns;
  }
}

/** Columns with what came after them, and at most so many rows. */
export function appended(old, added, rowsMax) {
  const before = old.at_seconds.length;
  const after = added.at_seconds.length;
  if (after === 0) return { ...old, next: added.next };
  const join = (a, b) => {
    if (Array.isArray(a ?? b)) {
      // A code of refusals that did not occur in one of the parts is 0 there.
      return [...(a ?? Array(before).fill(0)), ...(b ?? Array(after).fill(0))].slice(-rowsMax);
    }
    if (typeof (b ?? a) !== 'object' || (b ?? a) === null) return b ?? a;
    const names = new Set([...Object.keys(a ?? {}), ...Object.keys(b ?? {})]);
    return Object.fromEntries([...names].map((name) => [name, join(a?.[name], b?.[name])]));
  };
  return join(old, added);
}

/** The newest rows of columns: those of so many seconds. */
export function newestRows(columns, seconds) {
  const times = columns.at_seconds;
  const from = (times.at(-1) ?? 0) - seconds;
  const first = times.findIndex((at) => at > from);
  const cut = (value) => {
    if (Array.isArray(value)) return value.slice(Math.max(0, first));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, cut(part)]));
  };
  return cut(columns);
}

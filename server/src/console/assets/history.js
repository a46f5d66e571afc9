// The last hour, as the server keeps it: asked for once, then only what is new.

import { ask } from './api.js';

/** The columns of the last hour. */
export class History {
  #next = null;
  #columns = null;
  /** How often all was forgotten. */
  #generation = 0;

  /** How often there is something new, in milliseconds. */
  get everyMs() {
    return (this.#columns?.interval_seconds ?? 5) * 1000;
  }

  /** Asks for what is new. @returns {Promise<object|null>} the columns of the hour, as the server names them; null if all was forgotten meanwhile */
  async read() {
    const generation = this.#generation;
    const query = this.#next === null ? '' : `?since=${encodeURIComponent(this.#next)}`;
    const { json } = await ask('GET', `/v1/stats/history${query}`);
    // Only the rows after those that were forgotten: they are not the whole hour.
    if (generation !== this.#generation) return null;
    this.#columns = json.reset || !this.#columns ? json : appended(this.#columns, json, json.samples_max);
    this.#next = json.next;
    return this.#columns;
  }

  /** Forgets all, as after a change of the key. */
  clear() {
    this.#next = this.#columns = null;
    this.#generation++;
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

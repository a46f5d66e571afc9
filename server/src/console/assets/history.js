// The samples of the last hour or day: loaded once, then only newer ones.

import { ask } from './api.js';

/** The periods that can be shown, in seconds, and the span of the server that has them. */
export const SPANS = {
  '15 minutes': { seconds: 900, span: 'hour' },
  '1 hour': { seconds: 3600, span: 'hour' },
  '24 hours': { seconds: 86_400, span: 'day' },
};

/** The history of a span of the server. For a day, samples of the last hour add what the two-minute samples do not have yet. */
export const historyOf = (span, node) => (span === 'day' ? new DayHistory(node) : new History(span, node));

/** The columns of an hour or a day. */
class History {
  #query;
  #next = null;
  #columns = null;
  /** True if the last response replaced all earlier samples. */
  wasReset = false;

  /** @param {string} span `hour` or `day` @param {string} [node] a node of a cluster */
  constructor(span, node) {
    this.#query = new URLSearchParams({ span, ...(node && { node }) });
  }

  /** The interval of new samples, in milliseconds. */
  get everyMs() {
    return (this.#columns?.interval_seconds ?? 5) * 1000;
  }

  /** Requests newer samples. @returns {Promise<object>} all columns, as the server names them, and the time of the server as `now_seconds` */
  async read() {
    if (this.#next !== null) this.#query.set('since', this.#next);
    const { json, headers } = await ask('GET', `/v1/stats/history?${this.#query}`);
    this.wasReset = json.reset || !this.#columns;
    this.#columns = this.wasReset ? json : appended(this.#columns, json, json.samples_max);
    this.#next = json.next;
    // The clock of this computer may differ.
    const now = Date.parse(headers.get('Date')) || Date.now();
    return { ...this.#columns, now_seconds: now / 1000 };
  }
}

/** The columns of a day, from the first sample to the newest one. */
class DayHistory {
  #day;
  #hour;
  #columns = null;
  #readAt = -Infinity;

  /** @param {string} [node] a node of a cluster */
  constructor(node) {
    [this.#day, this.#hour] = [new History('day', node), new History('hour', node)];
  }

  get everyMs() {
    return this.#hour.everyMs;
  }

  async read() {
    const hour = await this.#hour.read();
    if (this.#hour.wasReset || performance.now() - this.#readAt >= this.#day.everyMs) {
      this.#columns = await this.#day.read();
      this.#readAt = performance.now();
    }
    return joined(this.#columns, hour);
  }
}

/** The samples of a day, with those of the hour that are before and after them. */
export function joined(day, hour) {
  if (!day.at_seconds.length) return hour;
  const [first, last] = [day.at_seconds[0], day.at_seconds.at(-1)];
  const before = rows(hour, (at) => at < first);
  const after = rows(hour, (at) => at > last);
  const all = [before, day, after].filter(({ at_seconds: times }) => times.length).reduce((one, other) => appended(one, other));
  return { ...all, interval_seconds: day.interval_seconds, now_seconds: hour.now_seconds };
}

/** Columns with newer ones appended, at most `rowsMax` rows. */
export function appended(old, added, rowsMax = Infinity) {
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

/** The rows of columns of the last `seconds`. */
export function newestRows(columns, seconds) {
  const from = columns.now_seconds - seconds;
  return rows(columns, (at) => at > from);
}

/** The rows of these times. */
function rows(columns, isWanted) {
  const wanted = columns.at_seconds.map(isWanted);
  const cut = (value) => {
    if (Array.isArray(value)) return value.filter((_, at) => wanted[at]);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, cut(part)]));
  };
  return cut(columns);
}

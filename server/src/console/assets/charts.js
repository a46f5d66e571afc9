// The charts of the console, and the group in which a page shows some of them.

import { Chart } from './chart.js';
import { byId, say } from './dom.js';
import { SPANS, historyOf, newestRows } from './history.js';
import { Poll } from './poll.js';
import { amount, bytes, count, latency } from './words.js';

const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const PARTS = [
  ['posts', 'posts'],
  ['sources', 'users, follows'],
  ['inboxes', 'inboxes'],
  ['reposts', 'reposts'],
];

const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);

export const REQUESTS = {
  title: 'Requests',
  hint: 'Answered per second, and refused or failed',
  format: amount,
  lines: ({ requests_per_second: { reads, writes, live, other }, refusals_per_second: codes }) => [
    ['reads', reads],
    ['writes', writes],
    ['live', live],
    ['other', other],
    ...(Object.keys(codes).length ? [['refused or failed', reads.map((_, at) => sum(Object.values(codes).map((values) => values[at])))]] : []),
  ],
};

export const TIMES = {
  title: 'Latency',
  hint: 'Of publishing a post, and of building a feed page',
  format: latency,
  steps: WHOLE,
  lines: (history) => [
    ['publish p99', history.publish_p99_us],
    ['publish p50', history.publish_p50_us],
    ['page p99', history.page_p99_us],
    ['page p50', history.page_p50_us],
  ],
};

export const DELIVERIES = {
  title: 'Deliveries',
  hint: 'Inbox writes per second',
  format: amount,
  lines: ({ deliveries_per_second: all }) => [['per second', all]],
};

export const LIVE = {
  title: 'Live',
  hint: 'Connections, and messages sent per second',
  format: amount,
  lines: ({ live_connections: live, live_messages_per_second: messages }) => [
    ['messages', messages],
    ['connections', live],
  ],
};

export const MEMORY = {
  title: 'Memory',
  hint: 'Resident memory, by content',
  format: bytes,
  steps: POWERS_OF_TWO,
  stacked: true,
  lines: ({ memory_bytes: { resident, ...parts } }) => {
    const known = PARTS.filter(([name]) => parts[name]).map(([name, text]) => [text, parts[name]]);
    const rest = (total, at) => Math.max(0, (total ?? 0) - sum(known.map(([, values]) => values[at])));
    return resident ? [...known, ['other', resident.map(rest)]] : known;
  },
};

export const REFUSALS = {
  title: 'Refusals',
  hint: 'Per second, by code',
  format: amount,
  none: 'none in this period',
  lines: ({ refusals_per_second: codes }) => commonest(codes),
};

export const AWAKE = {
  title: 'Awake readers',
  hint: 'Readers with an inbox',
  format: count,
  steps: WHOLE,
  lines: ({ active }) => [['awake', active]],
};

/** One line per colour: the most frequent codes, and all others together. */
function commonest(codes, linesMax = 6) {
  const all = Object.entries(codes)
    .filter(([, values]) => sum(values) > 0)
    .sort(([, a], [, b]) => sum(b) - sum(a));
  if (all.length <= linesMax) return all;
  const others = all.slice(linesMax - 1).map(([, values]) => values);
  return [...all.slice(0, linesMax - 1), ['others', others[0].map((_, at) => sum(others.map((values) => values[at])))]];
}

/** Charts in the element `#charts`, which poll the server. `#history-note` shows errors. */
export class Charts {
  #charts;
  #history;
  #seconds = SPANS['1 hour'].seconds;
  #span = SPANS['1 hour'].span;
  #node;
  #onColumns;

  /**
   * @param {import('./chart.js').Kind[]} kinds
   * @param {(columns: object) => void} [onColumns] is called with the columns that are shown
   */
  constructor(kinds, onColumns = () => {}) {
    this.#charts = kinds.map((kind) => new Chart(kind));
    this.#onColumns = onColumns;
    byId('charts').append(...this.#charts.map((chart) => chart.element));
    this.#history = historyOf(this.#span);
    this.poll = new Poll(
      () => this.#history.everyMs,
      () => this.#read(),
    );
  }

  /** Shows another period, or another node. @param {{seconds: number, span: string}} time @param {string} [node] */
  choose({ seconds, span }, node) {
    this.#seconds = seconds;
    if (span !== this.#span || node !== this.#node) this.#history = historyOf(span, node);
    [this.#span, this.#node] = [span, node];
    this.poll.wake(true);
  }

  async #read() {
    const history = this.#history;
    try {
      const all = await history.read();
      // The user has chosen another period or node meanwhile.
      if (history !== this.#history) return this.poll.wake(true);
      const columns = newestRows(all, this.#seconds);
      this.#charts.forEach((chart) => chart.show(columns, this.#seconds));
      this.#onColumns(columns);
      say(byId('history-note'), columns.at_seconds.length ? '' : 'The first figures appear in a few seconds.');
    } catch (refusal) {
      // The top of the page already reports a refusal of all requests.
      if (refusal.status === 503 || refusal.status === 404) say(byId('history-note'), refusal.message, true);
      throw refusal;
    }
  }
}

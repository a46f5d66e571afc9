// What the server is doing: the figures of now, charts of the last hour, the fullest queue.

import { ask } from './api.js';
import { Chart } from './chart.js';
import { showCluster } from './cluster.js';
import { byId, element, say } from './dom.js';
import { History } from './history.js';
import { Poll } from './poll.js';
import { isShown } from './tabs.js';
import { amount, bytes, count, latency, plural, queueName, queueText } from './words.js';

const ALMOST_FULL = 0.8;
const PARTS = [
  ['posts', 'posts'],
  ['sources', 'users, follows'],
  ['inboxes', 'inboxes'],
  ['reposts', 'reposts'],
];

const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

const TILES = [
  ['Posts', ({ posts_per_second: posts }) => perSecond(posts), ({ posts }) => `${count(posts)} stored`],
  ['Feed pages', ({ pages_per_second: pages }) => perSecond(pages), ({ pages }) => `${amount(pages)} since the start`],
  ['Deliveries', ({ deliveries_per_second: all }) => perSecond(all), ({ deliveries }) => `${amount(deliveries)} since the start`],
  ['Awake readers', ({ active }) => [count(active.at(-1)), ''], ({ users }) => `of ${count(users)} known`],
  ['Live connections', ({ live_connections: live }) => [count(live.at(-1)), ''], ({ live }) => plural(live?.messages, 'message')],
  ['Refused', (history) => [...perSecond(refusals(history)), `${amount(refusedOfHour(history))} in the last hour`]],
];

const CHARTS = [
  {
    title: 'Feed pages',
    hint: 'Time to build a page',
    format: latency,
    steps: WHOLE,
    lines: ({ page_p99_us: high, page_p50_us: median }) => [
      ['p99', high],
      ['p50', median],
    ],
  },
  {
    title: 'Fan-out',
    hint: 'From acceptance to the last inbox',
    format: latency,
    steps: WHOLE,
    lines: ({ fanout_p99_us: high, fanout_p50_us: median }) => [
      ['p99', high],
      ['p50', median],
    ],
  },
  {
    title: 'Deliveries',
    hint: 'Inboxes written each second',
    format: amount,
    lines: ({ deliveries_per_second: all }) => [['per second', all]],
  },
  {
    title: 'Refusals',
    hint: 'By code, each second',
    format: amount,
    none: 'none in the last hour',
    lines: ({ refusals_per_second: codes }) => commonest(codes),
  },
  {
    title: 'Memory',
    hint: 'What it holds',
    format: bytes,
    steps: POWERS_OF_TWO,
    stacked: true,
    lines: ({ memory_bytes: parts }) => memoryLines(parts),
  },
  {
    title: 'Live connections',
    hint: 'WebSockets and event streams',
    format: count,
    steps: WHOLE,
    lines: ({ live_connections: live }) => [['open', live]],
  },
];

const perSecond = (values) => [amount(values.at(-1)), values.length ? '/s' : ''];

const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);

/** The refusals of the newest sample, of all codes together. */
function refusals({ refusals_per_second: codes, at_seconds: times }) {
  return times.length ? [sum(Object.values(codes).map((values) => values.at(-1)))] : [];
}

/** The refusals of all samples, of all codes together. */
function refusedOfHour({ refusals_per_second: codes, interval_seconds: interval }) {
  return Math.round(sum(Object.values(codes).map(sum)) * interval);
}

/** Why the server refuses all writes. A full disk is also seen by its refusals, which may have begun since the statistics were read. */
const REFUSED = {
  disk_full: 'The disk of the server is full: it refuses writes until there is space again.',
  out_of_files: 'The server cannot create files: it refuses writes until other files are closed.',
  journal_failed: 'The journal of the server has failed: it refuses writes until a restart.',
  sequencer_unavailable: 'No node of the cluster takes writes.',
};

/** What is said above the charts, and whether it is bad. */
function state({ at_seconds: times, refusals_per_second: codes }, refused) {
  const reason = refused ?? (codes.disk_full?.at(-1) ? 'disk_full' : null);
  if (reason) return [REFUSED[reason] ?? `The server refuses writes: ${reason}.`, true];
  return [times.length ? '' : 'The first figures come in a few seconds.', false];
}

/** As many lines as there are colours: the commonest codes, and the others together. */
function commonest(codes, linesMax = 6) {
  const all = Object.entries(codes)
    .filter(([, values]) => sum(values) > 0)
    .sort(([, a], [, b]) => sum(b) - sum(a));
  if (all.length <= linesMax) return all;
  const others = all.slice(linesMax - 1).map(([, values]) => values);
  return [...all.slice(0, linesMax - 1), ['others', others[0].map((_, at) => sum(others.map((values) => values[at])))]];
}

/** The parts of the memory, and what of the resident memory is none of them. */
function memoryLines({ resident, ...parts }) {
  const known = PARTS.filter(([name]) => parts[name]).map(([name, text]) => [text, parts[name]]);
  const rest = (total, at) => Math.max(0, (total ?? 0) - sum(known.map(([, values]) => values[at])));
  return resident ? [...known, ['all else', resident.map(rest)]] : known;
}

function tile([label]) {
  const [value, unit, note] = ['value', 'unit', 'hint'].map((name) => element('span', { class: name }));
  const figure = element('dd', {}, element('span', { class: 'figure' }, value, unit), note);
  return { value, unit, note, element: element('div', { class: 'card tile' }, element('dt', {}, label), figure) };
}

/** The first tab. */
export class Overview {
  #history = new History();
  #charts = CHARTS.map((kind) => new Chart(kind));
  #tiles = TILES.map(tile);
  /** Why all writes are refused, by the statistics that were read last. */
  #refused = null;

  constructor() {
    byId('charts').append(...this.#charts.map((chart) => chart.element));
    byId('tiles').append(...this.#tiles.map((made) => made.element));
    this.poll = new Poll(
      () => this.#history.everyMs,
      () => isShown('overview'),
      () => this.#read(),
    );
  }

  /** With another key, all is asked for again. */
  restart() {
    this.#history.clear();
  }

  async #read() {
    try {
      const history = await this.#history.read();
      if (!history) return this.poll.wake(true);
      this.#charts.forEach((chart) => chart.show(history));
      TILES.forEach(([, figure], nth) => {
        const [value, unit, note] = figure(history);
        this.#tiles[nth].value.textContent = value;
        this.#tiles[nth].unit.textContent = unit;
        if (note) this.#tiles[nth].note.textContent = note;
      });
      showQueues(history.queues);
      say(byId('history-note'), ...state(history, this.#refused));
    } catch (refusal) {
      // The header says already what a refusal means for all of the page.
      say(byId('history-note'), refusal.status === 404 ? 'This server keeps no history.' : '', true);
      throw refusal;
    }
  }

  /** Shows what the statistics of now say. */
  async showStats(stats, headers) {
    this.#refused = stats.writes_refused;
    TILES.forEach(([, , note], nth) => {
      if (note) this.#tiles[nth].note.textContent = note(stats);
    });
    byId('latency').replaceChildren(...latencyRows(stats.fanout_latency));
    await showCluster(headers);
  }
}

function latencyRows(buckets) {
  if (!buckets?.some(({ count: posts }) => posts)) {
    return [element('tr', {}, element('td', { colspan: 5, class: 'hint' }, 'Nothing was published lately.'))];
  }
  return buckets.map(({ followers, count: posts, p50_us: median, p99_us: high, max_us: most }) => {
    const times = [median, high, most].map((us) => latency(posts ? us : null));
    const cells = [count(posts), ...times].map((text) => element('td', {}, text));
    return element('tr', {}, element('th', { scope: 'row' }, followers.replace('-', '–')), ...cells);
  });
}

/** The queue that is fullest, and below it all, fullest first. */
function showQueues(queues) {
  const all = Object.entries(queues)
    .filter(([, { depth }]) => depth.length)
    .map(([name, { depth, limit }]) => ({ name, depth: depth.at(-1), most: Math.max(...depth), limit, share: depth.at(-1) / limit }))
    .sort((a, b) => b.share - a.share || b.most / b.limit - a.most / a.limit || a.name.localeCompare(b.name));
  if (!all.length) return;
  byId('queue-worst').replaceChildren(...worst(all[0]));
  byId('queues').replaceChildren(...all.flatMap((queue) => [element('dt', {}, queueName(queue.name)), element('dd', {}, text(queue), gauge(queue))]));
}

const text = ({ name, depth, limit }) => element('span', {}, queueText(name, depth, limit));

function worst(queue) {
  const { name, share, most, limit } = queue;
  const fullness = share >= ALMOST_FULL ? 'almost full' : share > 0 ? 'full' : 'All queues are empty';
  const percent = share > 0 && share < 0.001 ? '< 0.1' : amount(share * 100);
  const title = share > 0 ? [element('b', { class: 'value' }, `${percent} %`), element('span', {}, ` ${fullness}: ${queueName(name)}`)] : [element('b', {}, fullness)];
  const peak = most > 0 ? `Most in the last hour, ${queueName(name)}: ${queueText(name, most, limit)}` : 'None has had anything waiting at a sample of the last hour.';
  return [element('p', { class: 'worst' }, ...title), gauge(queue), element('p', { class: 'hint' }, peak)];
}

function gauge({ share }) {
  const fill = element('span', { class: share >= ALMOST_FULL ? 'fill full' : 'fill' });
  fill.style.inlineSize = `${Math.min(1, share) * 100}%`;
  return element('span', { class: 'gauge' }, fill);
}

/** Reads the statistics, for whoever shows them. */
export const readStats = () => ask('GET', '/v1/stats');

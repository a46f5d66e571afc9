// What the server is doing, asked once a second while anybody looks.

import { ask, credential } from './api.js';
import { showCluster } from './cluster.js';
import { byId, element, facts } from './dom.js';
import { Sparkline } from './sparkline.js';
import { amount, bytes, count, duration, latency, moment } from './words.js';

const EVERY_MS = 1000;
const ALMOST_FULL = 0.8;
const DENIED = [401, 403];

// `rate` is of a counter, and shown per second; `level` is shown as it is.
const CARDS = [
  { label: 'Posts published', rate: (stats) => stats.published ?? stats.posts, note: ({ posts }) => `${count(posts)} in all` },
  { label: 'Deliveries', rate: ({ deliveries }) => deliveries, note: ({ edges }) => `${count(edges)} follow edges` },
  { label: 'Feed pages read', rate: ({ pages }) => pages, note: ({ pages }) => `${count(pages)} since the start` },
  { label: 'Live messages', rate: ({ live }) => live?.messages, note: ({ live }) => `${count(live?.connections)} connections` },
  { label: 'Active readers', level: ({ active }) => active, note: ({ users }) => `of ${count(users)} users and sources` },
  {
    label: 'Resident memory',
    level: ({ memory }) => memory?.resident_bytes,
    format: bytes,
    note: ({ memory }) => `posts take ${bytes(memory?.posts_bytes)}`,
  },
];

/** A figure with its chart. */
class Card {
  #kind;
  #format;
  #value = element('span', { class: 'value' }, '–');
  #note = element('p', { class: 'hint' }, ' ');
  #chart;
  #last = null;

  constructor(kind) {
    this.#kind = kind;
    this.#format = kind.format ?? amount;
    this.#chart = new Sparkline(kind.label, this.#format);
    const unit = kind.rate ? element('span', { class: 'unit' }, ' per second') : null;
    const figure = element('p', { class: 'figure' }, this.#value, unit);
    this.element = element('div', { class: 'card figure-card' }, element('h3', {}, kind.label), figure, this.#note);
    this.element.append(this.#chart.element);
  }

  show(stats, at) {
    const value = this.#kind.rate ? this.#rate(this.#kind.rate(stats), at) : (this.#kind.level(stats) ?? null);
    this.#value.textContent = this.#format(value);
    this.#note.textContent = this.#kind.note(stats);
    this.#chart.push(value);
  }

  /** There was no answer this second. */
  skip() {
    this.#last = null;
    this.#value.textContent = '–';
    this.#chart.push(null);
  }

  #rate(total, at) {
    const last = this.#last;
    this.#last = total === undefined ? null : { total, at };
    // A number that fell is that of another process.
    if (!this.#last || !last || total < last.total) return null;
    return ((total - last.total) * 1000) / (at - last.at);
  }
}

/** Shows the figures, from now on. Returns what asks for them at once, with another key. */
export function showFigures() {
  const cards = CARDS.map((kind) => new Card(kind));
  byId('cards').append(...cards.map((card) => card.element));
  let lostAt = null;

  async function poll() {
    try {
      const { json: stats, headers } = await ask('GET', '/v1/stats');
      cards.forEach((card) => card.show(stats, performance.now()));
      showDetails(stats, Date.parse(headers.get('Date')) || Date.now());
      await showCluster(headers);
      lostAt = null;
      const up = stats.uptime_seconds === undefined ? '' : ` for ${duration(stats.uptime_seconds)}`;
      showServer(`Running${up}`, 'good');
    } catch (refusal) {
      cards.forEach((card) => card.skip());
      isDenied = DENIED.includes(refusal.status);
      if (isDenied) {
        lostAt = null;
        showServer(credential() ? 'No figures: this key or token is not for them' : 'No figures without a key of the server', 'denied');
      } else {
        lostAt ??= new Date();
        showServer(`${lost(refusal)}, since ${lostAt.toLocaleTimeString()}`, 'bad', lost(refusal));
      }
    }
    schedule();
  }

  let timer = 0;
  // Whoever is not let in is not by asking again, and the server counts who tries.
  let isDenied = false;
  function schedule() {
    clearTimeout(timer);
    timer = document.hidden || isDenied ? 0 : setTimeout(poll, EVERY_MS);
  }
  document.addEventListener('visibilitychange', schedule);
  poll();
  return () => {
    clearTimeout(timer);
    return poll();
  };
}

function lost({ status, code, message }) {
  if (!status) return 'The server does not answer';
  return code === 'recovering' ? 'The server is not ready' : message.replace(/\.$/, '');
}

function showServer(text, how, what = how) {
  const pill = byId('server');
  // It is read aloud when it changes, so it is left alone while it only counts up.
  if (pill.dataset.what === what && how === 'bad') return;
  pill.setAttribute('aria-live', pill.dataset.what === what ? 'off' : 'polite');
  pill.dataset.how = how;
  pill.dataset.what = what;
  pill.textContent = text;
  byId('figures').classList.toggle('outdated', how !== 'good');
}

function showDetails(stats, now) {
  byId('latency').replaceChildren(...latencyRows(stats.fanout_latency));
  byId('queues').replaceChildren(...Object.entries(stats.queues ?? {}).flatMap(queue));
  byId('storage').replaceChildren(...facts(storage(stats, now)));
}

function latencyRows(buckets) {
  if (!buckets?.length) {
    return [element('tr', {}, element('td', { colspan: 5, class: 'hint' }, 'Nothing was published lately.'))];
  }
  return buckets.map(({ followers, count: posts, p50_us: median, p99_us: high, max_us: most }) => {
    const times = [median, high, most].map((us) => latency(posts ? us : null));
    const cells = [count(posts), ...times].map((text) => element('td', {}, text));
    return element('tr', {}, element('th', { scope: 'row' }, followers.replace('-', '–')), ...cells);
  });
}

function queue([name, { depth, limit }]) {
  const share = Math.min(1, depth / limit) || 0;
  const bar = element('span', { class: share >= ALMOST_FULL ? 'fill full' : 'fill' });
  bar.style.inlineSize = `${share * 100}%`;
  return [
    element('dt', {}, name.replaceAll('_', ' ')),
    element('dd', {}, element('span', {}, `${count(depth)} of ${count(limit)}`), element('span', { class: 'gauge' }, bar)),
  ];
}

function storage({ journal, snapshots = [], shed, user_crashes: crashes, live }, now) {
  const newest = snapshots.reduce((best, one) => (best && best.taken_at > one.taken_at ? best : one), null);
  const age = newest ? element('time', { datetime: newest.taken_at, title: moment(newest.taken_at) }) : 'none yet';
  if (newest) age.textContent = `${duration((now - Date.parse(newest.taken_at)) / 1000)} old`;
  return [
    ['Snapshot', age],
    ['Its size', bytes(newest?.bytes)],
    ['Journal, last event', count(journal?.sequence)],
    ['Journal, written', bytes(journal?.written_bytes)],
    ['Requests refused', count(shed)],
    ['Live clients cut off', count(live?.cut_off)],
    ['Crashes of user actors', count(crashes)],
  ];
}

// What an operator does and asks: snapshots, the last start, storage, keys, slow requests.

import { LONG_MS, ask } from './api.js';
import { act, byId, element, facts, say } from './dom.js';
import { Poll } from './poll.js';
import { refreshTimes, time } from './post.js';
import { isShown } from './tabs.js';
import { bytes, count, duration, latency, plural } from './words.js';

const EVERY_MS = 10_000;
const NONE = '–';

/** The last tab. */
export class Operations {
  #shown = '';

  /** @param {() => void} changed is called when the statistics are others at once */
  constructor(changed) {
    byId('snapshot').addEventListener('click', async (event) => {
      const done = await act(event.currentTarget, byId('snapshot-note'), async () => {
        const { json } = await ask('POST', '/v1/snapshots', undefined, LONG_MS);
        return `Taken: ${json.file}, ${bytes(json.bytes)}.`;
      });
      if (done) changed();
    });
    this.poll = new Poll(
      () => EVERY_MS,
      () => isShown('operations'),
      () => this.#read(),
    );
  }

  /** Shows what the statistics say. */
  showStats(stats) {
    byId('snapshots').replaceChildren(...snapshots(stats));
    byId('recovery').replaceChildren(...recovery(stats.recovery));
    byId('storage').replaceChildren(...facts(storage(stats)));
  }

  async #read() {
    try {
      const { json } = await ask('GET', '/v1/operations');
      say(byId('operations-note'), '');
      const now = JSON.stringify(json);
      if (now === this.#shown) return refreshTimes(byId('panel-operations'));
      this.#shown = now;
      byId('keys').replaceChildren(...keys(json.keys));
      byId('slow-hint').textContent = slowHint(json.slow_requests);
      byId('slow').replaceChildren(...slow(json.slow_requests));
    } catch (refusal) {
      if (refusal.status) say(byId('operations-note'), refusal.message, true);
      throw refusal;
    }
  }
}

/** A table whose first column names its rows. Columns of text begin at the same place, numbers end there: their heads begin with `#`. */
function table(labelledBy, head, rows) {
  const side = (nth) => (head[nth].startsWith('#') ? null : 'start');
  const line = ([first, ...others]) =>
    element('tr', {}, element('th', { scope: 'row' }, first), ...others.map((cell, nth) => element('td', { class: side(nth + 1) }, cell)));
  const made = element(
    'table',
    { 'aria-labelledby': labelledBy },
    element('thead', {}, element('tr', {}, ...head.map((name, nth) => element('th', { scope: 'col', class: side(nth) }, name.replace('#', ''))))),
    element('tbody', {}, ...rows.map(line)),
  );
  return element('div', { class: 'scroll', role: 'region', tabindex: 0, 'aria-labelledby': labelledBy }, made);
}

function snapshots({ snapshots: all = [], journal }) {
  if (!all.length) {
    const why = journal ? 'None yet. One is taken from time to time, and when the server ends.' : 'This server keeps no data on disk.';
    return [element('p', { class: 'hint' }, why)];
  }
  const newestFirst = [...all].sort((a, b) => b.sequence - a.sequence);
  const row = ({ taken_at: at, bytes: size, sequence, file }) => {
    const behind = journal ? Math.max(0, journal.sequence - sequence) : null;
    return element(
      'li',
      {},
      element('span', {}, time(at), element('span', { class: 'hint', title: file }, ` · ${bytes(size)} · up to event ${count(sequence)}`)),
      element('span', { class: 'hint' }, behind === null ? '' : `${plural(behind, 'event')} since`),
    );
  };
  return [element('ul', { class: 'rows' }, ...newestFirst.map(row))];
}

function recovery(report) {
  if (!report) return [element('p', { class: 'note' }, 'It keeps no data on disk.')];
  const { snapshot, events, cut, lost = [], skipped = [] } = report;
  if (snapshot === null && !events && !cut && !lost.length) return [element('p', { class: 'note' }, 'It began with an empty directory.')];
  const pairs = [
    ['Snapshot', snapshot === null ? 'none' : `event ${count(snapshot)}`],
    ['Events replayed after it', count(events)],
    ['Torn end of the journal', cut ? `${bytes(cut.bytes)} of ${cut.segment} were cut off` : 'none'],
    ['Events skipped', skipped.length ? count(skipped.length) : 'none'],
    ['Events lost', lost.length ? `in ${count(lost.length)} places` : 'none'],
  ];
  const isGood = !lost.length && !skipped.length;
  const verdict = element('p', { class: isGood ? 'note' : 'note error' }, isGood ? 'Everything that was acknowledged is there.' : 'Something is missing: see below.');
  const gaps = lost.map(({ segment, from, through, reason }) => element('li', {}, `${segment}: events ${count(from)} to ${through === null ? 'its end' : count(through)}: ${reason}`));
  return [verdict, element('dl', { class: 'facts' }, ...facts(pairs)), ...(gaps.length ? [element('ul', { class: 'rows' }, ...gaps)] : [])];
}

function storage({ journal, memory, users, edges, posts, archive_read_failures: failures, erasures, user_crashes: crashes, live, uptime_seconds: up }) {
  return [
    ['Journal, last event', count(journal?.sequence)],
    ['Journal, written since the start', bytes(journal?.written_bytes)],
    ['Posts in memory', `${count(posts)}, ${bytes(memory?.posts_bytes)}`],
    ['Users and sources', count(users)],
    ['Follows', count(edges)],
    ['Resident memory', bytes(memory?.resident_bytes)],
    ['Archive reads that failed', count(failures)],
    ['Erasures under way', count(erasures?.under_way)],
    ['Live clients cut off', count(live?.cut_off)],
    ['Crashes of user actors', count(crashes)],
    ['Running for', duration(up)],
  ];
}

function keys(all) {
  if (all === null) {
    return [element('p', { class: 'note warning' }, 'The server has no keys: every caller may do everything. Give it an access file before others can reach it.')];
  }
  if (!all.length) return [element('p', { class: 'hint' }, 'The access file names no keys.')];
  const scopes = { all: 'everything', read: 'reading', metrics: 'metrics' };
  const rows = all.map(({ name, kind, scope, requests, last_used: used }) => [
    name ?? 'without a name',
    kind === 'token' ? 'signing tokens' : (scopes[scope] ?? scope),
    count(requests),
    used ? time(used) : 'never',
  ]);
  return [table('keys-title', ['Name', 'For', '#Requests', '#Last used'], rows)];
}

const slowHint = ({ threshold_ms: most, count: all }) => `Requests that took ${latency(most * 1000)} or longer: ${count(all)} since the start. The newest are listed.`;

function slow({ items }) {
  if (!items.length) return [element('p', { class: 'note' }, 'None since the start.')];
  const rows = items.map(({ at, method, route, status, took_ms: took, request_id: id }) => [
    time(at),
    element('code', {}, `${method} ${route}`),
    latency(took * 1000),
    status === null ? 'client left' : String(status),
    id ?? NONE,
  ]);
  return [table('slow-title', ['When', 'Request', '#Took', '#Status', 'Request id'], rows)];
}

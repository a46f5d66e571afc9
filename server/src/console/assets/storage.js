// The use of disk and memory, snapshots, backups, and the result of the last start.

import { LONG_MS, ask } from './api.js';
import { Charts, MEMORY } from './charts.js';
import { act, byId, element, facts } from './dom.js';
import { time } from './post.js';
import { refreshStats, watchStats } from './shell.js';
import { fill, table } from './table.js';
import { bytes, count, duration, latency, moment, plural } from './words.js';

new Charts([MEMORY]);

byId('snapshot').addEventListener('click', async ({ currentTarget: button }) => {
  const done = await act(button, byId('snapshot-note'), async () => {
    const { json } = await ask('POST', '/v1/snapshots', undefined, LONG_MS);
    return `Taken: ${json.file}, ${bytes(json.bytes)}.`;
  });
  if (done) refreshStats();
});

watchStats((stats) => {
  fill(byId('disk'), facts(disk(stats)));
  fill(byId('memory'), memory(stats.memory));
  fill(byId('backups'), backups(stats));
  fill(byId('snapshots'), snapshots(stats));
  fill(byId('recovery'), recovery(stats.recovery, stats.journal));
});

/** The parts of the resident memory, with their shares. */
function memory({ posts_bytes: posts, sources_bytes: sources, inboxes_bytes: inboxes, reposts_bytes: reposts, resident_bytes: resident }) {
  const known = [
    ['Posts', posts],
    ['Users and follows', sources],
    ['Inboxes', inboxes],
    ['Reposts', reposts],
  ];
  const sum = known.reduce((total, [, value]) => total + value, 0);
  const all = resident ? [...known, ['Other', Math.max(0, resident - sum)], ['Resident memory', resident]] : known;
  const share = (value) => (resident ? `${((100 * value) / resident).toFixed(value && value < resident / 100 ? 2 : 0)} %` : '–');
  return table('memory-title', ['Part', '#Bytes', '#Share'], all.map(([name, value]) => [name, bytes(value), share(value)]));
}

function disk({ journal, memory, disk_free_bytes: free, stored_bytes: stored, users, edges, posts, archive_read_failures: failures, erasures, user_crashes: crashes }) {
  return [
    ['Free on disk', free === null ? 'no data on disk' : bytes(free)],
    ['Journal on disk', bytes(stored?.journal)],
    ['Retained for change consumers', stored?.changes === 0 ? 'none' : bytes(stored?.changes)],
    ['Snapshots on disk', bytes(stored?.snapshots)],
    ['Archive on disk', stored?.archive === 0 ? 'none' : bytes(stored?.archive)],
    ['Other files', bytes(stored?.other)],
    ['Journal, last event', count(journal?.sequence)],
    ['Journal, written since the start', bytes(journal?.written_bytes)],
    ['Posts in memory', `${count(posts)}, ${bytes(memory.posts_bytes)}`],
    ['Users and sources', count(users)],
    ['Follows', count(edges)],
    ['Resident memory', bytes(memory.resident_bytes)],
    ['Failed archive reads', count(failures)],
    ['Erasures in progress', count(erasures.under_way)],
    ['Crashes of user actors', count(crashes)],
  ];
}

function backups({ backups: made, journal }) {
  if (!made) {
    if (!journal) return [element('p', { class: 'hint' }, 'This server stores no data on disk.')];
    return [
      element('p', { class: 'note warning' }, 'No backups are configured: set --backup-to.'),
      element('p', { class: 'hint' }, 'For example ', element('code', {}, 'tidewire serve --backup-to file:///backup/tidewire'), '. See ', element('code', {}, 'docs/backup.md'), ' in the repository for backups and how to restore them.'),
    ];
  }
  const range = made.restorable_from === null ? 'nothing yet' : `${moment(made.restorable_from)} to ${moment(made.restorable_to)}`;
  const pairs = [
    ['Last run', made.count ? `${duration(made.age_seconds)} ago` : 'not yet'],
    ['Interval', duration(made.interval_seconds)],
    ['Restorable range', range],
    ['Backups', `${count(made.count)}, ${bytes(made.stored_bytes)}`],
    ['Sent since the start', bytes(made.sent_bytes)],
    ['Failed runs since the start', count(made.failures)],
  ];
  const failing = made.failing ? [element('p', { class: 'note error' }, 'The last run failed. The log of the server has the cause.')] : [];
  return [...failing, element('dl', { class: 'facts' }, ...facts(pairs)), ...runs(made.runs)];
}

/** The last runs since the start, newest first. */
function runs(all) {
  if (!all.length) return [];
  const row = ({ started_at: at, took_ms: took, sent_bytes: sent, error }) =>
    element(
      'li',
      {},
      element('span', {}, time(at), element('span', { class: error ? 'bad-text' : 'hint' }, error ? ` · failed: ${error}` : ` · ${bytes(sent)}`)),
      element('span', { class: 'hint' }, latency(1000 * took)),
    );
  return [element('h4', {}, 'Last runs'), element('ul', { class: 'rows' }, ...all.map(row))];
}

function snapshots({ snapshots: all, journal }) {
  if (!all.length) {
    const why = journal ? 'None yet. The server takes one from time to time, and when it stops.' : 'This server stores no data on disk.';
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

function recovery(report, journal) {
  if (!report && !journal) return [element('p', { class: 'hint' }, 'This server stores no data on disk.')];
  if (!report) return [element('p', { class: 'note' }, 'The server started with an empty directory.')];
  const { snapshot, events, cut, lost = [], skipped = [] } = report;
  if (snapshot === null && !events && !cut && !lost.length) return [element('p', { class: 'note' }, 'The server started with an empty directory.')];
  const pairs = [
    ['Snapshot', snapshot === null ? 'none' : `event ${count(snapshot)}`],
    ['Events replayed after it', count(events)],
    ['Torn end of the journal', cut ? `${bytes(cut.bytes)} of ${cut.segment} were cut off` : 'none'],
    ['Events skipped', skipped.length ? count(skipped.length) : 'none'],
    ['Events lost', lost.length ? `in ${plural(lost.length, 'place')}` : 'none'],
  ];
  const isGood = !lost.length && !skipped.length;
  const verdict = element('p', { class: isGood ? 'note' : 'note error' }, isGood ? 'All acknowledged writes were recovered.' : 'Some events are missing: see below.');
  const gaps = lost.map(({ segment, from, through, reason }) => element('li', {}, `${segment}: events ${count(from)} to ${through === null ? 'its end' : count(through)}: ${reason}`));
  return [verdict, element('dl', { class: 'facts' }, ...facts(pairs)), ...(gaps.length ? [element('ul', { class: 'rows' }, ...gaps)] : [])];
}

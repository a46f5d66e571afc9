// The use of keys, and how near the server is to its limits.

import { ask } from './api.js';
import { byId, element, say } from './dom.js';
import { Poll } from './poll.js';
import { time } from './post.js';
import { watchStats } from './shell.js';
import { fill, table } from './table.js';
import { bytes, count, queueName } from './words.js';

const EVERY_MS = 10_000;
const ALMOST_FULL = 0.8;

new Poll(
  () => EVERY_MS,
  async () => {
    try {
      const { json } = await ask('GET', '/v1/operations');
      say(byId('keys-note'), '');
      fill(byId('keys'), keys(json.keys));
    } catch (refusal) {
      if (refusal.status) say(byId('keys-note'), refusal.message, true);
      throw refusal;
    }
  },
);

watchStats(({ admission, queues }) => {
  const gates = Object.entries(admission).map(([name, { under_way: taken, limit, refused }]) => limitRow(gateName(name), taken, limit, formatOf(name), count(refused)));
  fill(byId('admission'), table('admission-title', ['Work', '#Now', '#Limit', 'Share', '#Refused since the start'], gates));
  const waiting = Object.entries(queues).map(([name, { depth, limit }]) => limitRow(queueName(name), depth, limit, formatOf(name)));
  fill(byId('queues'), table('queues-title', ['Queue', '#Waiting', '#Limit', 'Share'], waiting));
});

const formatOf = (name) => (name.includes('bytes') ? bytes : count);
const gateName = (name) => name.replaceAll('_', ' ');

function limitRow(name, now, limit, format, ...more) {
  const share = limit ? now / limit : 0;
  const fill = element('span', { class: share >= ALMOST_FULL ? 'fill full' : 'fill' });
  fill.style.inlineSize = `${Math.min(1, share) * 100}%`;
  return [name, format(now), format(limit), element('span', { class: 'gauge' }, fill), ...more];
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

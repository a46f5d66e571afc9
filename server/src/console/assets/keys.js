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
  const gates = Object.entries(admission).map(([name, { under_way: taken, limit, refused }]) => limitRow(gateName(name), taken, limit, formatOf(name), count(refused), element('span', { class: 'hint gate-help' }, GATES[name] ?? '')));
  fill(byId('admission'), table('admission-title', ['Work', '#Now', '#Limit', 'Share', '#Refused since the start', 'Meaning'], gates));
  const waiting = Object.entries(queues).map(([name, { depth, limit }]) => limitRow(queueName(name), depth, limit, formatOf(name)));
  fill(byId('queues'), table('queues-title', ['Queue', '#Waiting', '#Limit', 'Share'], waiting));
});

const formatOf = (name) => (name.includes('bytes') ? bytes : count);

/** The meaning of each kind of work. */
const GATES = {
  reads: 'pages of feeds and other reads',
  bulk_reads: 'pages within requests for many readers',
  wake_ups: 'reads that build the inbox of a sleeping reader first',
  writes: 'writes in progress',
  write_bytes: 'request bodies in memory',
  bulk_writes: 'requests with many changes',
  live_joins: 'live connections being opened',
  live_unauthenticated: 'live connections that have not sent their token yet',
  operations: 'requests of operators, such as those of this console',
  metrics: 'requests for metrics',
  response_bytes: 'responses that clients have not received yet',
  live_starting: 'event streams that wait until the server has started',
  waits: 'requests that wait for a record, a delivery or a list of all posts',
  delivery_waits: 'publishers that wait until their post is delivered',
  passes: 'requests that this node forwards to other nodes',
  passes_to_node: 'forwarded requests to each of the other nodes',
};
const gateName = (name) => name.replaceAll('_', ' ');

function limitRow(name, now, limit, format, ...more) {
  const share = limit ? now / limit : 0;
  const fill = element('span', { class: share >= ALMOST_FULL ? 'fill full' : 'fill' });
  fill.style.inlineSize = `${Math.min(1, share) * 100}%`;
  return [name, format(now), format(limit), element('span', { class: 'gauge' }, fill), ...more];
}

function keys(all) {
  if (all === null) {
    const command = (text) => element('code', {}, text);
    return [
      element('p', { class: 'note warning' }, 'The server has no keys: every client has full access. Set up an access file before others can reach the server.'),
      element('p', { class: 'hint' }, command('tidewire key NAME --access FILE'), ' adds a key to an access file, and ', command('tidewire serve --access FILE'), ' starts the server with it. See ', command('docs/security.md'), ' in the repository for keys and tokens.'),
    ];
  }
  if (!all.length) return [element('p', { class: 'hint' }, 'The access file has no keys.')];
  const scopes = { all: 'everything', read: 'reading', metrics: 'metrics' };
  const rows = all.map(({ name, kind, scope, requests, last_used: used }) => [
    name ?? 'unnamed',
    kind === 'token' ? 'signing tokens' : (scopes[scope] ?? scope),
    count(requests),
    used ? time(used) : 'never',
  ]);
  return [table('keys-title', ['Name', 'For', '#Requests', '#Last used'], rows)];
}

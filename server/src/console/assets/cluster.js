// The nodes of the cluster, if the server is one of them, with sums over all of them.

import { ask } from './api.js';
import { byId, element, facts, say } from './dom.js';
import { Poll } from './poll.js';
import { watchStats } from './shell.js';
import { readStats } from './stats.js';
import { fill, table } from './table.js';
import { amount, bytes, count, duration } from './words.js';

const EVERY_MS = 3000;
/** Maximum time to wait for the figures of a node, so that a node that hangs does not stop the table. */
const FIGURES_WITHIN_MS = 2000;
/** The number of missed heartbeats after which a node counts as silent. */
const SILENT_BEATS = 3;

/** The previous statistics by node, for rates. */
const before = new Map();

/** Polls all figures. A server outside a cluster has none, and gets no requests. */
function watch() {
  return new Poll(
    () => EVERY_MS,
    async () => {
      try {
        const { json: cluster } = await ask('GET', '/v1/cluster');
        show(cluster, await Promise.all(cluster.nodes.map(({ name }) => figures(name))));
        say(byId('cluster-note'), '');
      } catch (refusal) {
        if (refusal.status) say(byId('cluster-note'), refusal.message, true);
        throw refusal;
      }
    },
  );
}

let watching = null;

watchStats((_, headers) => {
  const isNode = headers.has('Tidewire-Node');
  byId('alone').hidden = isNode;
  if (isNode) watching ??= watch();
});

/** The figures of a node, with its rates since the last read; null if it does not respond. */
async function figures(name) {
  try {
    const { json: stats } = await readStats(name, FIGURES_WITHIN_MS);
    const at = performance.now();
    const last = before.get(name);
    before.set(name, { at, stats });
    const rate = (of) => (last && at > last.at ? Math.max(0, of(stats) - of(last.stats)) / ((at - last.at) / 1000) : null);
    return { stats, pages: rate(({ pages }) => pages), deliveries: rate(({ deliveries }) => deliveries) };
  } catch {
    before.delete(name);
    return null;
  }
}

/** How long a node has been silent, if that is longer than in a healthy cluster; undefined otherwise. */
function silence({ heard_ms: heard }, { beat_ms: beat }) {
  return beat && heard > SILENT_BEATS * beat ? `${(heard / 1000).toFixed(1)} s` : undefined;
}

const NONE = '–';
const HEAD = ['Node', 'Role', '#Last heard', '#Lag', '#Partitions', '#Pages/s', '#Deliveries/s', '#Live', '#Awake', '#Memory', 'Address'];

function show(cluster, nodes) {
  const last = Math.max(...nodes.map((node) => node?.stats.journal?.sequence ?? 0));
  const rows = cluster.nodes.map((node, nth) => row(node, nodes[nth], cluster, last));
  const gone = cluster.gone.map(({ name, address, gone_ms: ms }) => [name, element('span', { class: 'chip bad' }, `gone for ${duration(ms / 1000)}`), ...Array(8).fill(NONE), address]);
  fill(byId('nodes'), table('nodes-title', HEAD, [...rows, ...gone]));
  fill(byId('sums'), sums(nodes).map((pair) => element('div', {}, ...facts([pair]))));
  fill(byId('cluster-facts'), facts(about(cluster)));
  byId('cluster').hidden = false;
}

function row(shown, known, cluster, last) {
  const { name, address, partitions, heard_ms: heard } = shown;
  const silent = silence(shown, cluster);
  const is = [name === cluster.sequencer ? 'sequencer' : null, name === cluster.node ? 'answered this' : null, silent && `silent for ${silent}`].filter(Boolean);
  const { stats, pages, deliveries } = known ?? {};
  return [
    name,
    element('span', { class: silent ? 'bad-text' : null }, is.join(', ') || 'owns readers'),
    heard === null ? NONE : `${(heard / 1000).toFixed(1)} s ago`,
    stats?.journal ? count(last - stats.journal.sequence) : NONE,
    `${count(partitions.length)} of ${count(cluster.partitions)}`,
    amount(pages),
    amount(deliveries),
    count(stats?.live.connections),
    count(stats?.active),
    bytes(stats?.memory.resident_bytes),
    address,
  ];
}

/** Sums over the nodes that answer. */
function sums(nodes) {
  const known = nodes.filter(Boolean);
  /** The sum over the nodes that have this value. */
  const sum = (of) => {
    const values = known.map(of).filter((value) => value !== null && value !== undefined);
    return values.length ? values.reduce((total, value) => total + value, 0) : null;
  };
  return [
    ['Nodes', known.length === nodes.length ? count(nodes.length) : `${known.length} of ${nodes.length} answer`],
    ['Pages/s', amount(sum(({ pages }) => pages))],
    ['Deliveries/s', amount(sum(({ deliveries }) => deliveries))],
    ['Live connections', count(sum(({ stats }) => stats.live.connections))],
    ['Awake readers', count(sum(({ stats }) => stats.active))],
    ['Memory', bytes(sum(({ stats }) => stats.memory.resident_bytes))],
  ];
}

function about(cluster) {
  const { node, nodes, epoch, sequencer, applied } = cluster;
  const silent = silence(nodes.find(({ name }) => name === sequencer) ?? {}, cluster);
  const none = 'none: writes are refused until a node takes over';
  return [
    ['Sequencer', silent ? `${sequencer}, silent for ${silent}` : (sequencer ?? none)],
    ['Sequencers so far', count(epoch)],
    [`Last record that ${node} has applied`, count(applied)],
  ];
}

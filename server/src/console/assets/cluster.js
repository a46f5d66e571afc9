// The nodes of the cluster, if the server is one of them.

import { ask } from './api.js';
import { byId, element, facts } from './dom.js';
import { count } from './words.js';

/**
 * Shows the nodes, as the one that answered knows them. A server alone has none, and is not asked.
 * @param {Headers} headers of an answer of the server
 */
export async function showCluster(headers) {
  const panel = byId('cluster');
  if (!headers.get('Tidewire-Node')) {
    panel.hidden = true;
    return;
  }
  const { json: cluster } = await ask('GET', '/v1/cluster');
  byId('nodes').replaceChildren(...cluster.nodes.map((node) => row(node, cluster)));
  byId('cluster-facts').replaceChildren(...facts(about(cluster)));
  panel.hidden = false;
}

/** The number of beats after which a node counts as silent. */
const SILENT_BEATS = 3;

/** How long a node has been silent, if that is longer than in a healthy cluster; undefined otherwise, and for earlier versions. */
function silence({ heard_ms: heard }, { beat_ms: beat }) {
  return beat && heard > SILENT_BEATS * beat ? `${(heard / 1000).toFixed(1)} s` : undefined;
}

function row(shown, cluster) {
  const { name, address, partitions } = shown;
  const { node, sequencer, partitions: all } = cluster;
  const silent = silence(shown, cluster);
  const writes = silent ? 'took the writes' : 'takes the writes';
  const is = [name === sequencer ? writes : null, name === node ? 'answered this' : null, silent && `silent for ${silent}`].filter(Boolean);
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, name),
    element('td', {}, `${count(partitions.length)} of ${count(all)}`),
    element('td', {}, is.join(', ')),
    element('td', {}, address),
  );
}

function about(cluster) {
  const { node, nodes, epoch, sequencer, applied } = cluster;
  const silent = silence(nodes.find(({ name }) => name === sequencer) ?? {}, cluster);
  const none = 'no node: writes are refused until one does';
  return [
    ['Takes the writes', silent ? `${sequencer}, which has been silent for ${silent}` : (sequencer ?? none)],
    ['Sequencers so far', count(epoch)],
    [`Last record that ${node} has applied`, count(applied)],
  ];
}

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

function row({ name, address, partitions }, { node, sequencer, partitions: all }) {
  const is = [name === sequencer ? 'takes the writes' : null, name === node ? 'answered this' : null].filter(Boolean);
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, name),
    element('td', {}, `${count(partitions.length)} of ${count(all)}`),
    element('td', {}, is.join(', ')),
    element('td', {}, address),
  );
}

function about({ node, epoch, sequencer, applied }) {
  return [
    ['Takes the writes', sequencer ?? 'no node: writes are refused until one does'],
    ['Sequencers so far', count(epoch)],
    [`Last record that ${node} has applied`, count(applied)],
  ];
}

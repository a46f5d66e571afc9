// The overview: the health of the server in one line, charts, refused and slow requests.

import { ask } from './api.js';
import { Charts, DELIVERIES, LIVE, REQUESTS, TIMES } from './charts.js';
import { copyable } from './copy.js';
import { byId, element, say } from './dom.js';
import { SPANS } from './history.js';
import { Poll } from './poll.js';
import { refreshTimes, time } from './post.js';
import { watchStats } from './shell.js';
import { health } from './stats.js';
import { fill, table } from './table.js';
import { count, latency, plural, queueName } from './words.js';

const EVERY_MS = 5000;
const SPAN = 'tidewire-span';
/** The share from which a queue is listed. */
const QUEUE_NAMED = 0.01;
const SHOWN_MAX = 100;

const charts = new Charts([REQUESTS, TIMES, DELIVERIES, LIVE], showQueues);
let span = sessionStorage.getItem(SPAN) in SPANS ? sessionStorage.getItem(SPAN) : '1 hour';

/** Lists the queues that are above this share. */
function showQueues({ queues }) {
  const full = Object.entries(queues)
    .map(([name, { depth, limit }]) => ({ name, share: (depth.at(-1) ?? 0) / limit }))
    .filter(({ share }) => share > QUEUE_NAMED)
    .sort((a, b) => b.share - a.share);
  byId('queues').textContent = full.length ? `Queues: ${full.map(({ name, share }) => `${queueName(name)} ${Math.round(share * 100)} % full`).join(', ')}.` : '';
}

const chosenNode = () => byId('node').value || undefined;
const choose = () => charts.choose(SPANS[span], chosenNode());

function prepareSpans() {
  for (const name of Object.keys(SPANS)) {
    const input = element('input', { type: 'radio', name: 'span', value: name, checked: name === span });
    input.addEventListener('change', () => {
      span = name;
      sessionStorage.setItem(SPAN, name);
      choose();
    });
    byId('spans').append(element('label', {}, input, name));
  }
  byId('node').addEventListener('change', () => {
    choose();
    trouble.wake(true);
  });
  choose();
}

/** The nodes of a cluster, to choose whose figures are shown. */
async function showNodes(answering) {
  if (!answering) return;
  const { json } = await ask('GET', '/v1/cluster');
  const names = json.nodes.map(({ name }) => name);
  const [select, chosen] = [byId('node'), chosenNode() ?? answering];
  if (names.join() === [...select.options].map(({ value }) => value).join()) return;
  select.replaceChildren(...names.map((name) => element('option', { value: name }, name)));
  select.value = names.includes(chosen) ? chosen : answering;
  byId('of-node').hidden = false;
  choose();
}

async function readiness() {
  try {
    const { json } = await ask('GET', '/readyz');
    return json;
  } catch (refusal) {
    return { ready: false, code: refusal.code || 'no answer' };
  }
}

const WORST = ['bad', 'warn'];
const textNode = (part) => (typeof part === 'string' ? document.createTextNode(part) : part);

watchStats(async (stats, headers) => {
  const found = health(stats, await readiness());
  const wrong = WORST.flatMap((how) => found.filter((one) => one.how === how));
  const words = ({ text, href }) => (href ? element('a', { href }, text) : text);
  fill(byId('verdict'), wrong.length ? wrong.flatMap((one, nth) => [nth ? '; ' : '', `${one.name}: `, words(one)]).map(textNode) : [textNode('ok')]);
  byId('verdict').dataset.how = wrong.length ? wrong[0].how : 'good';
  fill(byId('health'), found.map((one) => element('div', { 'data-how': one.how }, element('dt', {}, one.name), element('dd', {}, words(one)))));
  await showNodes(headers.get('Tidewire-Node'));
}, (why) => {
  byId('verdict').textContent = why;
  byId('verdict').dataset.how = 'bad';
  // The last known values may be wrong now.
  for (const fact of byId('health').children) {
    fact.dataset.how = '';
    fact.lastChild.textContent = '–';
  }
});

const slowRow = ({ at, operation, status, took_ms: took, request_id: id }) => ({
  at,
  cells: [time(at), element('span', { class: 'chip warn' }, `slow: ${latency(took * 1000)}`), operation, status === null ? 'disconnected' : String(status), id ? copyable(id) : ''],
});

/** True for failures and overload of the server. Other refusals are of invalid requests. */
const isTrouble = (status) => status >= 500 || status === 429;

const refusedRow = ({ at, operation, code, status, request_id: id }) => ({
  at,
  cells: [time(at), element('span', { class: isTrouble(status) ? 'chip bad' : 'chip plain' }, code), operation ?? 'unknown operation', String(status), copyable(id)],
});

let shown = '';

const trouble = new Poll(
  () => EVERY_MS,
  async () => {
    const node = chosenNode();
    const { json } = await ask('GET', `/v1/operations${node ? `?node=${encodeURIComponent(node)}` : ''}`);
    const { slow_requests: slow, refused_requests: refused } = json;
    const now = JSON.stringify([slow, refused]);
    if (now === shown) return refreshTimes(byId('trouble'));
    shown = now;
    const rows = [...slow.items.map(slowRow), ...refused.items.map(refusedRow)].sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, SHOWN_MAX);
    const since = `${plural(refused.count, 'request')} refused or failed, ${count(slow.count)} slow (${latency(slow.threshold_ms * 1000)} or longer) since the start.`;
    say(byId('trouble-hint'), since);
    const none = element('p', { class: 'hint' }, 'None.');
    fill(byId('trouble'), rows.length ? table('trouble-title', ['When', 'What', 'Operation', '#Status', 'Request id'], rows.map(({ cells }) => cells)) : none);
  },
);

prepareSpans();

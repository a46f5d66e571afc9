// The page of the API: shows /openapi.json, and sends requests.

import { byId, element, say } from '/console/dom.js';
import { navigate } from '/docs/navigation.js';
import { prose, schemaSection, typeOf } from '/docs/schemas.js';
import { tryIt } from '/docs/try.js';

/** In display order. */
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

const paragraphs = (text) => text.split('\n\n').map((part) => element('p', {}, ...prose(part)));
const example = (value) =>
  element('pre', { tabindex: '0' }, typeof value === 'string' ? value : JSON.stringify(value, null, 2));

/** All operations: `{method, path, told}`. */
function operationsOf(description) {
  return Object.entries(description.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => ({ method, path, told: methods[method] })),
  );
}

/** A table of two columns that fits into narrow windows. Wider content scrolls inside it. */
function table(title, first, rows) {
  const head = [first, 'Meaning'].map((name) => element('th', { scope: 'col' }, name));
  const row = ([name, meaning]) => element('tr', {}, element('th', { scope: 'row' }, ...name), element('td', {}, ...meaning));
  const whole = element('table', {}, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...rows.map(row)));
  return [element('h3', {}, title), element('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': title }, whole)];
}

function parameters(told) {
  const row = ({ name, in: place, required, description, schema }) => [
    [element('code', {}, name), element('small', {}, required ? `${place}, required` : place)],
    [element('p', {}, ...prose(description)), element('p', { class: 'note' }, typeOf(schema))],
  ];
  return told.parameters.length ? table('Parameters', 'Parameter', told.parameters.map(row)) : [];
}

function content(of) {
  return Object.entries(of ?? {}).flatMap(([type, { schema, example: shown, 'x-messages': messages }]) => [
    element('p', {}, element('code', {}, type), ': ', typeOf(messages ?? schema)),
    shown === undefined ? null : element('details', {}, element('summary', {}, 'Example'), example(shown)),
  ]);
}

function body(told) {
  if (!told.requestBody) return [];
  const { required, description, content: of } = told.requestBody;
  const title = required ? 'Body' : 'Body (optional)';
  return [element('h3', {}, title), ...content(of), element('p', { class: 'note' }, description)];
}

function answer([status, { description, content: of }]) {
  return element('li', {}, element('p', {}, element('b', {}, status), ' ', ...prose(description)), ...content(of));
}

/** The refusals, which are all problem documents, with the meaning of their headers once for all. */
function errors(responses) {
  const row = ([status, { description, 'x-codes': codes = [] }]) => [
    [status],
    [element('p', {}, ...prose(description)), element('p', { class: 'codes' }, ...codes.map((code) => element('code', {}, code)))],
  ];
  return responses.length ? [...table('Errors', 'Status', responses.map(row)), ...headers(responses)] : [];
}

/** Each header of these answers, with the statuses that have it. */
function headers(responses) {
  const statuses = {};
  const meanings = {};
  for (const [status, { headers: sent }] of responses) {
    for (const [name, { description }] of Object.entries(sent ?? {})) {
      (statuses[name] ??= []).push(status);
      meanings[name] = description ? `: ${description}` : '';
    }
  }
  return Object.keys(statuses).map((name) =>
    element('p', { class: 'note' }, 'Header ', element('code', {}, name), ` of ${statuses[name].join(', ')}`, ...prose(meanings[name])),
  );
}

function messages({ 'x-websocket': socket }) {
  if (!socket) return [];
  const closes = Object.entries(socket.closes).map(([code, says]) => [[code], [says]]);
  return [element('h3', {}, 'Messages'), element('p', {}, typeOf(socket.messages)), ...table('Close codes', 'Code', closes)];
}

function inside(operation) {
  const { told } = operation;
  const responses = Object.entries(told.responses);
  const [good, bad] = [responses.filter(([status]) => status < 400), responses.filter(([status]) => status >= 400)];
  return [
    ...tryIt(operation),
    element('h3', {}, 'Details'),
    ...paragraphs(told.description),
    ...parameters(told),
    ...body(told),
    element('h3', {}, 'Responses'),
    element('ul', { class: 'answers' }, ...good.map(answer)),
    ...headers(good),
    ...messages(told),
    ...errors(bad),
  ];
}

/** An operation. Its content is built when it is first opened. */
function card(operation) {
  const { method, path, told } = operation;
  const made = element(
    'details',
    { class: 'operation', id: told.operationId },
    element(
      'summary',
      {},
      element('b', { class: `method ${method}` }, method.toUpperCase()),
      element('code', {}, path),
      element('span', {}, told.summary),
    ),
  );
  made.addEventListener('toggle', () => made.children.length > 1 || made.append(element('div', {}, ...inside(operation))));
  return made;
}

function group({ name, description }, operations) {
  const cards = operations.filter(({ told }) => told.tags.includes(name)).map(card);
  const title = element('h2', { id: `group-${name}` }, name);
  return element('section', { 'aria-labelledby': title.id }, title, element('p', {}, description), ...cards);
}

async function show() {
  const answered = await fetch('/openapi.json');
  if (!answered.ok) throw new Error(`the server answered ${answered.status}`);
  const description = await answered.json();
  const operations = operationsOf(description);
  byId('version').textContent = description.info.version;
  const [purpose, ...rules] = paragraphs(description.info.description);
  const fold = element('details', {}, element('summary', {}, 'Rules for all requests: errors, ids, cursors, caching, clusters'), ...rules);
  byId('about').append(purpose, fold);
  byId('operations').append(...description.tags.map((tag) => group(tag, operations)));
  byId('schemas').append(schemaSection(description.components.schemas));
  navigate(description.tags, operations);
}

byId('access').addEventListener('submit', (event) => event.preventDefault());
show().then(
  () => say(byId('note'), ''),
  (error) => say(byId('note'), `Cannot load the description: ${error.message}.`, true),
);

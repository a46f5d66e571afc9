// The page of the interface: what /openapi.json says, to be read and tried.

import { byId, element, say } from '/console/dom.js';
import { schemaSection, typeOf } from '/docs/schemas.js';
import { tryIt } from '/docs/try.js';

/** In the order in which they are read. */
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

/** Text with `code` in it. */
function prose(text) {
  return text.split('`').map((part, nth) => (nth % 2 ? element('code', {}, part) : part));
}

const paragraphs = (text) => text.split('\n\n').map((part) => element('p', {}, ...prose(part)));
const example = (value) =>
  element('pre', { tabindex: '0' }, typeof value === 'string' ? value : JSON.stringify(value, null, 2));

/** All operations: `{method, path, told}`. */
function operationsOf(description) {
  return Object.entries(description.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => ({ method, path, told: methods[method] })),
  );
}

function parameters(told) {
  if (!told.parameters.length) return [];
  const row = ({ name, in: place, required, description, schema }) =>
    element(
      'tr',
      {},
      element('th', { scope: 'row' }, element('code', {}, name), element('small', {}, required ? `${place}, needed` : place)),
      element('td', {}, typeOf(schema)),
      element('td', {}, ...prose(description)),
    );
  const head = ['Parameter', 'Type', 'Meaning'].map((name) => element('th', { scope: 'col' }, name));
  const table = element('table', {}, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...told.parameters.map(row)));
  return [element('h3', {}, 'Parameters'), element('div', { class: 'scroll' }, table)];
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
  const title = required ? 'Body' : 'Body, if any';
  return [element('h3', {}, title), ...content(of), element('p', { class: 'note' }, description)];
}

function headers(of) {
  const told = ([name, { description, schema }]) =>
    element('p', {}, 'Header ', element('code', {}, name), ': ', ...prose(description ?? ''), ' ', typeOf(schema));
  return Object.entries(of ?? {}).map(told);
}

/** An answer; of a refusal, its codes say more than an example. */
function answer([status, { description, content: of, headers: sent, 'x-codes': codes = [] }]) {
  const others = Object.fromEntries(Object.entries(of ?? {}).filter(([type]) => type !== 'application/problem+json'));
  return element(
    'li',
    { class: status < 400 ? 'good' : 'bad' },
    element('p', {}, element('b', {}, status), ' ', ...prose(description)),
    codes.length ? element('p', { class: 'codes' }, ...codes.map((code) => element('code', {}, code))) : null,
    ...content(others),
    ...headers(sent),
  );
}

function closes(told) {
  const socket = told['x-websocket'];
  if (!socket) return [];
  const pairs = Object.entries(socket.closes);
  return [
    element('h3', {}, 'Messages'),
    element('p', {}, typeOf(socket.messages)),
    element('h3', {}, 'Close codes'),
    element('dl', {}, ...pairs.flatMap(([code, says]) => [element('dt', {}, code), element('dd', {}, says)])),
  ];
}

function inside(operation) {
  const { told } = operation;
  return [
    ...paragraphs(told.description),
    ...tryIt(operation),
    ...parameters(told),
    ...body(told),
    element('h3', {}, 'Answers'),
    element('ul', { class: 'answers' }, ...Object.entries(told.responses).map(answer)),
    ...closes(told),
  ];
}

/** An operation, whose inside is made when it is first opened. */
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

function index(tags, operations) {
  const link = ({ told }) => element('li', {}, element('a', { href: `#${told.operationId}` }, told.summary));
  const list = ({ name }) => [
    element('h2', {}, name),
    element('ul', {}, ...operations.filter(({ told }) => told.tags.includes(name)).map(link)),
  ];
  return tags.flatMap(list);
}

/** Hides what does not have all the words in it. */
function find(operations, words) {
  let found = 0;
  for (const { method, path, told } of operations) {
    const text = `${method} ${path} ${JSON.stringify(told)}`.toLowerCase();
    const isFound = words.every((word) => text.includes(word));
    byId(told.operationId).hidden = !isFound;
    document.querySelector(`#index a[href="#${told.operationId}"]`).parentElement.hidden = !isFound;
    found += isFound ? 1 : 0;
  }
  for (const section of document.querySelectorAll('#operations > section')) {
    section.hidden = !section.querySelector('.operation:not([hidden])');
  }
  say(byId('found'), words.length ? `${found} of ${operations.length} operations` : '');
}

/** Opens and shows what the address names. */
function follow() {
  const named = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (!named) return;
  named.hidden = false;
  if (named.tagName === 'DETAILS') named.open = true;
  named.scrollIntoView();
  named.querySelector('summary')?.focus({ preventScroll: true });
}

async function show() {
  const answered = await fetch('/openapi.json');
  if (!answered.ok) throw new Error(`the server answered ${answered.status}`);
  const description = await answered.json();
  const operations = operationsOf(description);
  byId('version').textContent = description.info.version;
  byId('about').append(...paragraphs(description.info.description));
  byId('index').append(...index(description.tags, operations), element('p', {}, element('a', { href: '#schemas' }, 'Schemas')));
  byId('operations').append(...description.tags.map((tag) => group(tag, operations)));
  byId('schemas').append(schemaSection(description.components.schemas));
  byId('find').addEventListener('input', ({ target }) => find(operations, target.value.toLowerCase().split(/\s+/).filter(Boolean)));
  addEventListener('hashchange', follow);
  follow();
}

byId('access').addEventListener('submit', (event) => event.preventDefault());
show().then(
  () => say(byId('note'), ''),
  (error) => say(byId('note'), `The description cannot be read: ${error.message}.`, true),
);

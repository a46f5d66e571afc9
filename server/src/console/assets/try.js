// Sends requests from the page, and shows the same call as code.

import { copyButton } from '/console/copy.js';
import { act, byId, confirmed, element } from '/console/dom.js';
import { examplesFor, published } from '/docs/examples.js';
import { snippets } from '/docs/snippets.js';

// Operations such as snapshots may take minutes.
const CHANGE_MAX_MS = 600_000;
const READ_MAX_MS = 15_000;
const SHOWN_CHARACTERS_MAX = 100_000;
// Streams are endless: the page shows the messages of this time.
const LISTEN_MS = 5_000;
// Query parameters that are required.
const NEEDED = ['ids'];

function field({ name, in: place, required, schema, example }) {
  const choices = schema.type === 'boolean' ? ['true', 'false'] : schema.enum;
  const attributes = { name: `${place}:${name}`, required };
  const input = choices
    ? element('select', attributes, element('option', { value: '' }, '–'), ...choices.map((value) => element('option', { value }, value)))
    : element('input', {
        ...attributes,
        autocapitalize: 'none',
        spellcheck: 'false',
        placeholder: schema.default ?? example,
        value: place === 'path' || NEEDED.includes(name) ? example : null,
      });
  return element('label', {}, element('span', {}, name, required ? ' *' : ''), input);
}

/** The JSON body, editable; null if the operation has none. */
function bodyField({ requestBody }) {
  const content = requestBody?.content?.['application/json'];
  if (!content) return null;
  const text = JSON.stringify(content.example ?? {}, null, 2);
  const area = element('textarea', { name: 'body', rows: Math.min(12, text.split('\n').length + 1), spellcheck: 'false' });
  area.value = text;
  return element('label', { class: 'wide' }, element('span', {}, 'Body, JSON'), area);
}

/** A value as in code. Text that is not a number stays text: the server reports the fault. */
function literal(value, type) {
  if (type === 'boolean' && ['true', 'false'].includes(value)) return value === 'true';
  const isNumber = ['integer', 'number'].includes(type) && Number.isFinite(Number(value)) && String(Number(value)) === value;
  return isNumber ? Number(value) : value;
}

/** The request that the form describes. With `isWhole`, examples replace missing values. */
function callOf({ method, path, told }, form, isWhole) {
  const [inPath, query, sent] = [[], [], new URLSearchParams()];
  let url = path;
  for (const { name, in: place, schema, example } of told.parameters.filter(({ in: at }) => at !== 'header')) {
    const value = form.elements[`${place}:${name}`].value || (isWhole && place === 'path' ? String(example ?? name) : '');
    if (place === 'path') {
      inPath.push(value);
      url = url.replace(`{${name}}`, encodeURIComponent(value));
    } else if (value !== '') {
      sent.append(name, value);
      query.push([name, literal(value, schema.type)]);
    }
  }
  if (query.length) url += `?${sent}`;
  const types = Object.keys(told.responses['200']?.content ?? { 'application/json': 0 });
  return { id: told.operationId, method: method.toUpperCase(), url: location.origin + url, path: inPath, query, body: bodyOf(form), isText: !types.includes('application/json') };
}

/** The body; undefined if there is none, or while it is not JSON. */
function bodyOf(form) {
  const text = form.elements.body?.value.trim();
  if (!text) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function pretty(text, type) {
  if (!type.includes('json')) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Sends the call, and shows its response with `show(text, type)`. Fails with a summary of the problem document. */
async function send({ id, method, url }, body, show) {
  const key = byId('key').value.trim();
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers['Content-Type'] = 'application/json';
  const began = performance.now();
  const answer = await fetch(url, { method, headers, body: body || undefined, signal: AbortSignal.timeout(method === 'GET' ? READ_MAX_MS : CHANGE_MAX_MS) });
  const type = answer.headers.get('Content-Type') ?? '';
  if (answer.ok && type.startsWith('text/event-stream')) return firstEvents(answer, (text) => show(text, type));
  const text = await answer.text();
  const took = `in ${Math.round(performance.now() - began)} ms`;
  show(pretty(text, type), type);
  if (id === 'publish' && answer.ok) published(JSON.parse(text).id);
  const again = answer.headers.get('Retry-After');
  const says = `${answer.status} ${answer.statusText} ${took}${again ? `; try again in ${again} s` : ''}`;
  if (type.startsWith('application/problem+json')) throw new Error(`${says}: ${JSON.parse(text).detail}`);
  return says;
}

async function firstEvents(answer, show) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const end = setTimeout(() => reader.cancel(), LISTEN_MS);
  let text = '';
  for (let part = await reader.read(); !part.done; part = await reader.read()) show((text += part.value));
  clearTimeout(end);
  return `${answer.status} ${answer.statusText}; the first ${LISTEN_MS / 1000} s of the stream`;
}

function firstMessages({ url }, show) {
  if (byId('key').value.trim()) throw new Error('A browser cannot send a key or token with a WebSocket: use the server-sent events.');
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url.replace(/^http/, 'ws'));
    const end = setTimeout(() => socket.close(), LISTEN_MS);
    let text = '';
    socket.onmessage = ({ data }) => show((text += `${data}\n`), 'application/json');
    socket.onclose = ({ code, reason }) => {
      clearTimeout(end);
      if (text) resolve(`101 Switching Protocols; the first ${LISTEN_MS / 1000} s of the connection`);
      else reject(new Error(`The connection ended with ${code} ${reason}`));
    };
  });
}

/** The box of a response: its type, a button that copies it, its text. */
function answerBox() {
  const type = element('code');
  const text = element('pre', { tabindex: '0', 'aria-label': 'Response' });
  const box = element('div', { class: 'framed', hidden: true }, element('div', { class: 'bar' }, type, copyButton(text)), text);
  const show = (shown, of) => {
    box.hidden = shown === '';
    type.textContent = of;
    text.textContent = shown.length > SHOWN_CHARACTERS_MAX ? `${shown.slice(0, SHOWN_CHARACTERS_MAX)}\n…` : shown;
  };
  return { box, show };
}

/** Fills examples into fields without user input. In a field that has the focus, input may begin at any moment. */
function fill(form, examples) {
  for (const input of form.querySelectorAll('input')) {
    const value = examples[input.name.split(':')[1]];
    if (!value || input.value !== input.defaultValue || input === document.activeElement) continue;
    input.defaultValue = value;
    input.value = value;
  }
}

/** A form that sends a request, and the same call as code. */
export function tryIt(operation) {
  const { method, told } = operation;
  const isChange = method !== 'get';
  const name = isChange ? `Send ${method.toUpperCase()}` : 'Try it';
  const button = element('button', { type: 'submit', class: method === 'delete' ? 'danger' : 'primary' }, name);
  const hint = element('span', { class: 'note' }, isChange ? 'This changes data on the server.' : '');
  const note = element('p', { class: 'note', role: 'status' });
  const { box, show } = answerBox();
  const inputs = told.parameters.filter(({ in: place }) => place !== 'header').map(field);
  const fields = element('div', { class: 'fields' }, ...inputs, bodyField(told));
  const form = element('form', { class: 'try', autocomplete: 'off' }, fields, element('p', { class: 'actions' }, button, hint), note, box);
  const code = snippets(() => callOf(operation, form, true));
  form.addEventListener('input', code.update);
  examplesFor(operation, (examples) => {
    fill(form, examples);
    code.update();
  });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const call = callOf(operation, form, false);
    const text = `${method.toUpperCase()} ${call.url.slice(location.origin.length)} goes to this server. You cannot undo it.`;
    if (method === 'delete' && !(await confirmed('Send this?', text, 'Send'))) return;
    act(button, note, async () => {
      show('', '');
      const isSocket = 'x-websocket' in told;
      return isSocket ? firstMessages(call, show) : send(call, form.elements.body?.value.trim(), show);
    });
  });
  return [element('h3', {}, 'Try it'), form, element('h3', {}, 'As code'), code.element];
}

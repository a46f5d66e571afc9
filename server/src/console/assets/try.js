// Asking the server from the page, with the same call as code below.

import { act, byId, confirmed, element } from '/console/dom.js';
import { snippets } from '/docs/snippets.js';

// Snapshots and the like may take minutes.
const CHANGE_MAX_MS = 600_000;
const READ_MAX_MS = 15_000;
const SHOWN_CHARACTERS_MAX = 100_000;
// What goes on without end cannot be shown as one answer.
const ENDLESS = ['Live', 'Changes'];

function field({ name, in: place, required, schema, example }) {
  const choices = schema.type === 'boolean' ? ['true', 'false'] : schema.enum;
  const attributes = { name: `${place}:${name}`, required };
  const input = choices
    ? element('select', attributes, element('option', { value: '' }, '–'), ...choices.map((value) => element('option', { value }, value)))
    : element('input', { ...attributes, autocapitalize: 'none', spellcheck: 'false', placeholder: schema.default ?? example ?? '' });
  return element('label', {}, element('span', {}, name, required ? ' *' : ''), input);
}

/** The JSON body, to be changed; null if the operation has none. */
function bodyField({ requestBody }) {
  const content = requestBody?.content?.['application/json'];
  if (!content) return null;
  const text = JSON.stringify(content.example ?? {}, null, 2);
  const area = element('textarea', { name: 'body', rows: Math.min(12, text.split('\n').length + 1), spellcheck: 'false' });
  area.value = text;
  return element('label', { class: 'wide' }, element('span', {}, 'Body, JSON'), area);
}

/** A value as code has it. What is no number stays text: the server says what is wrong with it. */
function literal(value, type) {
  if (type === 'boolean' && ['true', 'false'].includes(value)) return value === 'true';
  const isNumber = ['integer', 'number'].includes(type) && Number.isFinite(Number(value)) && String(Number(value)) === value;
  return isNumber ? Number(value) : value;
}

/** What is asked, by what the form has; where `isWhole`, examples stand for what is missing. */
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

/** What the body is; undefined if there is none, or it is no JSON yet. */
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

async function ask({ method, url }, body, shown) {
  const key = byId('key').value.trim();
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers['Content-Type'] = 'application/json';
  const began = performance.now();
  const answer = await fetch(url, { method, headers, body: body || undefined, signal: AbortSignal.timeout(method === 'GET' ? READ_MAX_MS : CHANGE_MAX_MS) });
  const text = await answer.text();
  const took = Math.round(performance.now() - began);
  const answered = pretty(text, answer.headers.get('Content-Type') ?? '');
  shown.hidden = answered === '';
  shown.textContent = answered.length > SHOWN_CHARACTERS_MAX ? `${answered.slice(0, SHOWN_CHARACTERS_MAX)}\n…` : answered;
  const again = answer.headers.get('Retry-After');
  return `${answer.status} ${answer.statusText} in ${took} ms${again ? `; try again in ${again} s` : ''}`;
}

/** A form that asks, and the same call as code. */
export function tryIt(operation) {
  const { method, path, told } = operation;
  const isEndless = ENDLESS.includes(told.tags[0]);
  const isChange = method !== 'get';
  const name = isChange ? `Send ${method.toUpperCase()}` : 'Try it';
  const button = element('button', { type: 'submit', class: method === 'delete' ? 'danger' : 'primary' }, name);
  const hint = element('span', { class: 'note' }, isChange ? 'This changes what the server has.' : '');
  const note = element('p', { class: 'note', role: 'status' });
  const shown = element('pre', { tabindex: '0', hidden: true, 'aria-label': 'Answer' });
  const inputs = told.parameters.filter(({ in: place }) => place !== 'header').map(field);
  const body = bodyField(told);
  const fields = element('div', { class: 'fields' }, ...inputs, body);
  const send = isEndless ? [] : [element('p', { class: 'actions' }, button, hint), note, shown];
  const form = element('form', { class: 'try', autocomplete: 'off' }, fields, ...send);
  const code = snippets(() => callOf(operation, form, true));
  form.addEventListener('input', code.update);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (isEndless) return;
    const text = `${method.toUpperCase()} ${callOf(operation, form, false).url.slice(location.origin.length)} is sent to this server. It cannot be taken back.`;
    if (method === 'delete' && !(await confirmed('Send this?', text, 'Send'))) return;
    act(button, note, () => ask(callOf(operation, form, false), form.elements.body?.value.trim(), shown));
  });
  return [element('h3', {}, isEndless ? `Use ${path}` : 'Try it'), form, element('h3', {}, 'As code'), code.element];
}

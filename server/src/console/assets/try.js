// Asking the server from the page: for operations that change nothing.

import { act, byId, element } from '/console/dom.js';

const SHOWN_CHARACTERS_MAX = 100_000;

function field({ name, in: place, required, schema }) {
  const input = element('input', {
    name: `${place}:${name}`,
    required,
    autocapitalize: 'none',
    spellcheck: 'false',
    placeholder: schema.default ?? schema.enum?.join(' or '),
  });
  return element('label', {}, name, input);
}

/** Where to ask, by what the form has. */
function address(path, form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    const [place, part] = name.split(/:(.*)/s);
    if (place === 'path') path = path.replace(`{${part}}`, encodeURIComponent(value));
    else if (value !== '') query.append(part, value);
  }
  return query.size ? `${path}?${query}` : path;
}

function pretty(text, type) {
  if (!type.includes('json')) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function ask(url, shown) {
  const key = byId('key').value.trim();
  const began = performance.now();
  const answer = await fetch(url, {
    headers: key ? { Authorization: `Bearer ${key}` } : {},
    signal: AbortSignal.timeout(15_000),
  });
  const text = await answer.text();
  const took = Math.round(performance.now() - began);
  const body = pretty(text, answer.headers.get('Content-Type') ?? '');
  shown.hidden = false;
  shown.textContent = body.length > SHOWN_CHARACTERS_MAX ? `${body.slice(0, SHOWN_CHARACTERS_MAX)}\n…` : body;
  const again = answer.headers.get('Retry-After');
  return `${answer.status} ${answer.statusText} in ${took} ms, from ${url}${again ? `; try again in ${again} s` : ''}`;
}

/** A form that asks. */
export function tryIt(path, told) {
  const button = element('button', { type: 'submit', class: 'primary' }, 'Try it');
  const note = element('p', { class: 'note', role: 'status' });
  const shown = element('pre', { tabindex: '0', hidden: true, 'aria-label': 'Answer' });
  const asked = told.parameters.filter(({ in: place }) => place !== 'header').map(field);
  const fields = element('div', { class: 'fields' }, ...asked);
  const form = element('form', { class: 'try', autocomplete: 'off' }, fields, element('p', {}, button), note, shown);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    act(button, note, () => ask(address(path, form), shown));
  });
  return form;
}

// The same call for a terminal and for programs: curl, TypeScript, Python.

import { copyButton } from '/console/copy.js';
import { byId, element } from '/console/dom.js';

// The clients' name of each operation, in camel case in TypeScript. Operations without a method use plain HTTP.
const METHODS = {
  check_ready: 'is_ready', read_cluster: 'cluster', publish: 'publish', delete_post: 'delete_post', read_post: 'get_post',
  edit_post: 'edit_post', take_snapshot: 'take_snapshot', read_stats: 'stats', erase_user: 'erase_user', read_user: 'get_user',
  list_blocks: 'blocks', unblock: 'unblock', block: 'block', read_feed: 'feed', explain: 'explain', rebuild_feed: 'rebuild_feed',
  verify_feed: 'verify_feed', list_followers: 'followers', list_following: 'following', unfollow: 'unfollow', follow: 'follow',
  list_lists: 'lists', delete_list: 'delete_list', read_list_feed: 'list_feed', list_members: 'members', remove_member: 'remove_member',
  add_member: 'add_member', list_mutes: 'mutes', unmute: 'unmute', mute: 'mute', read_marker: 'marker', mark: 'set_marker',
  read_own_page: 'posts_of', read_replies: 'replies', read_reposts: 'reposts', revoke_tokens: 'revoke_tokens', read_user_data: 'user_data', read_rules: 'rules', change_rules: 'change_rules', read_feeds: 'feeds',
  read_posts: 'get_posts', publish_many: 'publish_many', follow_many: 'follow_many', watch: 'watch', stream_events: 'watch',
  read_changes: 'changes', list_posts: 'list_posts', list_users: 'list_users', read_history: 'stats_history', find_sources: 'find_sources',
  list_change_consumers: 'change_consumers', set_change_consumer: 'set_change_consumer', remove_change_consumer: 'remove_change_consumer',
  read_fanout: 'fanout', read_operations: 'operations', read_metrics: 'metrics',
};
const inCamelCase = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
// Operations whose body is one argument. In others, its fields are options.
const WHOLE_BODY = ['publish', 'edit_post', 'change_rules'];
// The first argument is this field of the body.
const FIRST_FIELDS = { read_feeds: ['users'], publish_many: ['posts'], follow_many: ['follows'], mark: ['cursor'] };
const PYTHON_FIELDS = { ...FIRST_FIELDS, publish: ['author', 'body'] };
// Fields of requests for which the Python client takes a datetime.
const TIMES = ['published_at', 'not_before'];

/**
 * A request, as the form describes it.
 * @typedef {object} Call
 * @property {string} id of the operation
 * @property {string} method
 * @property {string} url
 * @property {string[]} path the values in the path, in order
 * @property {[string, any][]} query
 * @property {any} body undefined: none
 * @property {boolean} isText the response is not JSON
 */

const server = () => location.origin;
const hasKey = () => byId('key').value.trim() !== '';
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {Call} call */
export function curl({ id, method, url, body }) {
  const words = ['curl'];
  if (id === 'stream_events' || id === 'read_changes') words.push('-N');
  if (method !== 'GET') words.push(`-X ${method}`);
  if (hasKey()) words.push('-H "Authorization: Bearer $TIDEWIRE_KEY"');
  if (body !== undefined) words.push("-H 'Content-Type: application/json'", `\\\n  -d ${quoted(JSON.stringify(body))}`);
  if (id === 'watch') return `# A WebSocket: curl cannot read it; any WebSocket client can.\nwebsocat ${quoted(url.replace(/^http/, 'ws'))}`;
  return `${words.join(' ')} \\\n  ${quoted(url)}`.replace('curl \\\n  ', 'curl ');
}

/** Splits a body into the first arguments and the options of a call. `pageSize` is the client's name of the limit of a page. */
function argumentsOf({ id, path, query, body }, fields, pageSize) {
  const first = [...path];
  const options = {};
  for (const [name, value] of query) {
    if (id === 'read_posts' && name === 'ids') first.push(String(value).split(','));
    else if (id === 'check_ready') options.writes = value === 'writes';
    else if (id === 'read_changes' && name === 'limit') options[pageSize] = value;
    else options[name] = value;
  }
  const named = fields[id] ?? [];
  const rest = body && !Array.isArray(body) ? { ...body } : {};
  for (const name of named) {
    first.push(id === 'follow_many' ? (rest[name] ?? []) : rest[name]);
    delete rest[name];
  }
  return { first, options, rest };
}

/** @param {Call} call */
export function typescript(call) {
  const name = inCamelCase(METHODS[call.id] ?? '');
  if (!name) return withFetch(call);
  const { first, options, rest } = argumentsOf(call, FIRST_FIELDS, 'pageSize');
  if (options.types) options.types = String(options.types).split(',');
  const isWhole = WHOLE_BODY.includes(call.id);
  const args = isWhole ? [...first, call.body ?? {}] : first;
  const last = isWhole ? options : { ...rest, ...options };
  if (Object.keys(last).length) args.push(last);
  const token = hasKey() ? ', token: process.env.TIDEWIRE_KEY' : '';
  const asked = `tidewire.${name}(${args.map(javascriptOf).join(', ')})`;
  return [`import { Tidewire } from 'tidewire';`, '', `const tidewire = new Tidewire({ server: '${server()}'${token} });`, ...useInTypeScript(name, asked)].join('\n');
}

function useInTypeScript(name, asked) {
  if (name === 'watch') return [`const feed = ${asked};`, `feed.addEventListener('change', () => console.log(feed.items));`, 'feed.start();'];
  if (name === 'changes') return [`for await (const change of ${asked}) console.log(change);`];
  return [`console.log(await ${asked});`];
}

function withFetch({ method, url, body, isText }) {
  const headers = [hasKey() ? 'Authorization: `Bearer ${process.env.TIDEWIRE_KEY}`' : null, body === undefined ? null : `'Content-Type': 'application/json'`];
  const parts = [
    method === 'GET' ? null : `method: '${method}'`,
    headers.some(Boolean) ? `headers: { ${headers.filter(Boolean).join(', ')} }` : null,
    body === undefined ? null : `body: JSON.stringify(${javascriptOf(body)})`,
  ].filter(Boolean);
  const options = parts.length ? `, { ${parts.join(', ')} }` : '';
  return `const answer = await fetch(${javascriptOf(url)}${options});\nconsole.log(await answer.${isText ? 'text' : 'json'}());`;
}

/** @param {Call} call */
export function python(call) {
  const name = METHODS[call.id];
  if (!name) return withHttpx(call);
  const { first, options, rest } = argumentsOf(call, PYTHON_FIELDS, 'page_size');
  if (call.id === 'publish_many') first[0] = first[0]?.map(withTimes);
  if (options.types) options.types = String(options.types).split(',');
  const named = keywords({ ...withTimes(rest), ...options });
  const asked = `tidewire.${name}(${[...first.map(pythonOf), ...(named ? [named] : [])].join(', ')})`;
  const token = hasKey() ? ', token=os.environ["TIDEWIRE_KEY"]' : '';
  const standard = [token ? 'import os' : null, asked.includes(FROM_TEXT) ? 'from datetime import datetime' : null].filter(Boolean);
  const lines = [...standard, ...(standard.length ? [''] : []), 'from tidewire import Tidewire', '', `with Tidewire("${server()}"${token}) as tidewire:`];
  return [...lines, ...useInPython(name, asked)].join('\n');
}

function useInPython(name, asked) {
  if (name === 'watch') return [`    with ${asked} as feed:`, '        for items in feed:', '            print(items)'];
  if (name === 'changes') return [`    for change in ${asked}:`, '        print(change)'];
  return [`    print(${asked})`];
}

function withHttpx({ method, url, body, isText }) {
  const parts = [JSON.stringify(url)];
  if (hasKey()) parts.push('headers={"Authorization": f"Bearer {os.environ[\'TIDEWIRE_KEY\']}"}');
  if (body !== undefined) parts.push(`json=${pythonOf(body)}`);
  const imports = hasKey() ? 'import os\n\nimport httpx' : 'import httpx';
  return `${imports}\n\nanswer = httpx.${method.toLowerCase()}(${parts.join(', ')})\nprint(answer.${isText ? 'text' : 'json()'})`;
}

const keywords = (named) =>
  Object.entries(named)
    .map(([key, value]) => `${key}=${pythonOf(value)}`)
    .join(', ');

/** A value as a JavaScript literal, with plain keys and single quotes. */
export function javascriptOf(value) {
  if (typeof value === 'string') return `'${JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
  if (Array.isArray(value)) return `[${value.map(javascriptOf).join(', ')}]`;
  if (value === null || typeof value !== 'object') return String(value);
  const fields = Object.entries(value).map(([name, each]) => `${/^[a-z_]\w*$/i.test(name) ? name : javascriptOf(name)}: ${javascriptOf(each)}`);
  return fields.length ? `{ ${fields.join(', ')} }` : '{}';
}

/** A piece of Python code in place of a value. */
class Code {
  constructor(text) {
    this.text = text;
  }
}

const FROM_TEXT = 'datetime.fromisoformat(';

/** Fields with the code of their times. Earlier versions of Python do not read a Z. */
function withTimes(fields) {
  const times = TIMES.filter((name) => typeof fields?.[name] === 'string');
  const codeOf = (text) => new Code(`${FROM_TEXT}${JSON.stringify(text.replace(/Z$/, '+00:00'))})`);
  return { ...fields, ...Object.fromEntries(times.map((name) => [name, codeOf(fields[name])])) };
}

/** A value as a Python literal. */
export function pythonOf(value) {
  if (value instanceof Code) return value.text;
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(', ')}]`;
  if (typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonOf(each)}`).join(', ')}}`;
}

const LANGUAGES = [['curl', curl], ['TypeScript', typescript], ['Python', python]];

const CHOICE = 'tidewire-docs-language';

/** The language that was chosen last, for all operations. A browser may refuse to store it, or have stored something else. */
let chosen = 'curl';
try {
  const stored = localStorage.getItem(CHOICE);
  if (LANGUAGES.some(([name]) => name === stored)) chosen = stored;
} catch {}

function choose(language) {
  chosen = language;
  try {
    localStorage.setItem(CHOICE, language);
  } catch {}
  dispatchEvent(new Event('language'));
}

/** The snippets of an operation. @param {() => Call} callOf returns the current request */
export function snippets(callOf) {
  const code = element('code');
  const shown = element('pre', { tabindex: '0', 'aria-label': 'The call as code' }, code);
  const choices = LANGUAGES.map(([name]) => element('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false' }, name));
  const update = () => {
    choices.forEach((button) => button.setAttribute('aria-pressed', String(button.textContent === chosen)));
    code.textContent = LANGUAGES.find(([name]) => name === chosen)[1](callOf());
  };
  for (const button of choices) button.addEventListener('click', () => choose(button.textContent));
  addEventListener('language', update);
  byId('key').addEventListener('input', update);
  const bar = element('div', { class: 'bar', role: 'group', 'aria-label': 'Language' }, ...choices, copyButton(code));
  update();
  return { element: element('div', { class: 'framed snippets' }, bar, shown), update };
}

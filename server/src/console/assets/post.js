// A post of the feed, as an element. Text of users is inserted as text only.

import { copyButton } from './copy.js';
import { element } from './dom.js';
import { postUrl, readerUrl } from './search.js';
import { ago, moment } from './words.js';

const ACTIONS = [
  ['explain', 'Why?'],
  ['reply', 'Reply'],
  ['repost', 'Repost'],
  ['mark', 'Mark read'],
  ['json', 'JSON'],
  ['hide', 'Hide from all'],
  ['delete', 'Delete'],
];

/** The actions that open a part of the entry. */
const FOLDING = ['explain', 'json'];

/** Makes the list item of an entry. Its buttons have the action as `data-action`; a post outside a feed has none. */
export function postElement({ post, reposts, via }, hasActions = true) {
  const reposted = reposts.map(({ user, at }) => element('p', { class: 'hint' }, link(user), ' reposted ', time(at)));
  const answers = post.reply_to ? [element('p', { class: 'hint' }, 'replies to ', postLink(post.reply_to))] : [];
  return element(
    'li',
    {},
    element(
      'article',
      { class: 'card post', 'aria-label': `Post ${post.id} by ${post.author}` },
      ...reposted,
      heading(post),
      ...answers,
      bodyElement(post.body),
      labels(post),
      element('p', { class: 'hint' }, postLink(post.id), ...externalId(post), ...ways(via)),
      ...(hasActions ? [buttons(post), element('p', { class: 'note', role: 'status' }), element('div', { class: 'why', hidden: true }), element('div', { class: 'raw', hidden: true })] : []),
    ),
  );
}

const externalId = ({ external_id: id }) => (id ? [` (external id ${id})`] : []);

const ways = (via) => via.flatMap((source, nth) => [nth ? ', ' : ' via ', link(source)]);

/** Updates the shown ages of posts. */
export function refreshTimes(root) {
  root.querySelectorAll('time').forEach((shown) => (shown.textContent = ago(shown.dateTime)));
}

/** A time, shown as its age. */
export const time = (at) => element('time', { datetime: at, title: moment(at) }, ago(at));

/** A link to the page of a source. */
export const link = (source, text = source) => element('a', { href: readerUrl(source) }, text);

/** A link to a post. */
export const postLink = (id, text = `post ${id}`) => element('a', { href: postUrl(id) }, text);

/** The author and the time of a post. */
export function heading(post) {
  const edited = post.edited_at ? element('span', { class: 'hint', title: moment(post.edited_at) }, 'edited') : null;
  const kind = post.kind && post.kind !== 'post' ? element('span', { class: 'chip' }, post.kind) : null;
  return element('header', {}, link(post.author), kind, element('span', { class: 'hint' }, time(post.published_at)), edited);
}

/** A body, which is any JSON: its `text` as text, and all other fields as JSON. */
export function bodyElement(body) {
  const isText = typeof body?.text === 'string';
  const { text, ...rest } = isText ? body : {};
  const others = isText ? rest : body;
  const hasOthers = !isText || Object.keys(rest).length > 0;
  const raw = hasOthers ? element('pre', { class: 'text', tabindex: 0, role: 'group', 'aria-label': 'Fields of the body' }, JSON.stringify(others, null, 2)) : null;
  return element('div', { class: 'body' }, isText ? element('p', { class: 'text' }, text) : null, raw);
}

/** The JSON of an entry, with a button that copies it. */
export function rawElement(item) {
  const raw = element('pre', { tabindex: 0, role: 'group', 'aria-label': `Post ${item.post.id} as JSON` }, JSON.stringify(item, null, 2));
  return element('div', {}, copyButton(raw), raw);
}

/** The tags and the topic of a post; null if it has none. */
export function labels({ tags = [], topic }) {
  const named = [...tags.map((tag) => link(`tag:${tag}`, `#${tag}`)), ...(topic ? [link(`topic:${topic}`, `topic ${topic}`)] : [])];
  if (!named.length) return null;
  return element('ul', { class: 'chips', 'aria-label': 'Tags' }, ...named.map((name) => element('li', { class: 'chip' }, name)));
}

function buttons(post) {
  const button = ([action, text]) => {
    const expanded = FOLDING.includes(action) ? 'false' : null;
    const name = `${text} Post ${post.id} by ${post.author}`;
    return element('button', { type: 'button', class: 'quiet', 'data-action': action, 'aria-expanded': expanded, 'aria-label': name }, text);
  };
  return element('p', { class: 'actions' }, ...ACTIONS.map(button));
}

// A post of the feed, as an element. What people wrote goes in as text only.

import { element } from './dom.js';
import { ago, moment } from './words.js';

const ACTIONS = [
  ['reply', 'Reply'],
  ['repost', 'Repost'],
  ['explain', 'Why?'],
  ['hide', 'Hide'],
  ['delete', 'Delete'],
];

/** Makes the list item of an entry. Its buttons have the action as `data-action`. */
export function postElement({ post, reposts, via }) {
  const reposted = reposts.map(({ user, at }) => element('p', { class: 'hint' }, link(user), ' reposted ', time(at)));
  const answers = post.reply_to ? [element('p', { class: 'hint' }, `answers post ${post.reply_to}`)] : [];
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
      element('p', { class: 'hint' }, `Post ${post.id}`, via.length ? ` by way of ${via.join(', ')}` : ''),
      buttons(post),
      element('p', { class: 'note', role: 'status' }),
    ),
  );
}

/** Writes the times of posts anew, as time has passed. */
export function refreshTimes(root) {
  root.querySelectorAll('time').forEach((shown) => (shown.textContent = ago(shown.dateTime)));
}

const time = (at) => element('time', { datetime: at, title: moment(at) }, ago(at));

const link = (user) => element('a', { href: `/console?user=${encodeURIComponent(user)}`, 'data-user': user }, user);

function heading(post) {
  const edited = post.edited_at ? element('span', { class: 'hint', title: moment(post.edited_at) }, 'edited') : null;
  const kind = post.kind && post.kind !== 'post' ? element('span', { class: 'chip' }, post.kind) : null;
  return element('header', {}, link(post.author), kind, element('span', { class: 'hint' }, time(post.published_at)), edited);
}

/** A body is any JSON; `text` is shown as such, all else as what it is. */
function bodyElement(body) {
  if (typeof body?.text === 'string') return element('p', { class: 'text' }, body.text);
  return element('pre', { class: 'text', tabindex: 0, 'aria-label': 'Body' }, JSON.stringify(body, null, 2));
}

function labels({ tags = [], topic }) {
  const named = [...tags.map((tag) => `#${tag}`), ...(topic ? [`topic ${topic}`] : [])];
  if (!named.length) return null;
  return element('ul', { class: 'chips', 'aria-label': 'Tags' }, ...named.map((name) => element('li', { class: 'chip' }, name)));
}

function buttons(post) {
  const button = ([action, text]) =>
    element('button', { type: 'button', class: 'quiet', 'data-action': action, 'aria-label': `${text} Post ${post.id} by ${post.author}` }, text);
  return element('p', { class: 'actions' }, ...ACTIONS.map(button));
}

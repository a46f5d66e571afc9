// A post of the feed, as an element. What people wrote goes in as text only.

import { element } from './dom.js';
import { addressOf } from './tabs.js';
import { ago, moment } from './words.js';

const ACTIONS = [
  ['explain', 'Why?'],
  ['fanout', 'Fan-out'],
  ['reply', 'Reply'],
  ['repost', 'Repost'],
  ['mark', 'Mark read'],
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
      element('div', { class: 'why', hidden: true }),
    ),
  );
}

/** Writes the times of posts anew, as time has passed. */
export function refreshTimes(root) {
  root.querySelectorAll('time').forEach((shown) => (shown.textContent = ago(shown.dateTime)));
}

/** A time, as how long ago it is. */
export const time = (at) => element('time', { datetime: at, title: moment(at) }, ago(at));

/** A link to the feed of a user. */
export const link = (user) => element('a', { href: addressOf({ tab: 'reader', user, post: '' }), 'data-user': user }, user);

/** Who published it and when. */
export function heading(post) {
  const edited = post.edited_at ? element('span', { class: 'hint', title: moment(post.edited_at) }, 'edited') : null;
  const kind = post.kind && post.kind !== 'post' ? element('span', { class: 'chip' }, post.kind) : null;
  return element('header', {}, link(post.author), kind, element('span', { class: 'hint' }, time(post.published_at)), edited);
}

/** A body is any JSON; `text` is shown as such, all else as what it is. */
export function bodyElement(body) {
  if (typeof body?.text === 'string') return element('p', { class: 'text' }, body.text);
  return element('pre', { class: 'text', tabindex: 0, role: 'group', 'aria-label': 'Body' }, JSON.stringify(body, null, 2));
}

/** The tags and the topic of a post; null if it has none. */
export function labels({ tags = [], topic }) {
  const named = [...tags.map((tag) => `#${tag}`), ...(topic ? [`topic ${topic}`] : [])];
  if (!named.length) return null;
  return element('ul', { class: 'chips', 'aria-label': 'Tags' }, ...named.map((name) => element('li', { class: 'chip' }, name)));
}

function buttons(post) {
  const button = ([action, text]) => {
    const expanded = action === 'explain' ? 'false' : null;
    const name = `${text} Post ${post.id} by ${post.author}`;
    return element('button', { type: 'button', class: 'quiet', 'data-action': action, 'aria-expanded': expanded, 'aria-label': name }, text);
  };
  return element('p', { class: 'actions' }, ...ACTIONS.map(button));
}

// Why a post is in a reader's feed, or not, in words.

import { ask, userPath } from './api.js';
import { act, element } from './dom.js';
import { blocker, reason, route } from './words.js';

/**
 * Asks why, and says it.
 * @param {string} user the reader
 * @param {string} post
 * @param {(post: string) => void} again is called when the answer has become another one
 * @returns {Promise<HTMLElement>}
 * @throws {import('./api.js').Refusal}
 */
export async function explanation(user, post, again) {
  const { json } = await ask('GET', userPath(user, 'feed', 'explain', post));
  const { shown, reasons, blockers, route: way } = json;
  const parts = [element('p', { class: 'verdict' }, shown ? `Post ${post} is in the feed.` : `Post ${post} is not in the feed.`)];
  if (reasons.length) parts.push(...list('What brings it:', reasons.map((one) => reason(one, user))));
  if (blockers.length) parts.push(...list('What hides it:', blockers.map((one) => blocker(one, user))));
  if (!reasons.length && !blockers.length) parts.push(element('p', {}, 'Nothing brings it.'));
  if (route(way)) parts.push(element('p', { class: 'hint' }, route(way)));
  if (blockers.some(({ kind, post: id }) => kind === 'hidden' && id === post)) parts.push(...unhide(post, again));
  return element('div', { class: 'explanation' }, ...parts);
}

const list = (title, lines) => [element('p', {}, title), element('ul', {}, ...lines.map((line) => element('li', {}, line)))];

function unhide(post, again) {
  const note = element('p', { class: 'note', role: 'status' });
  const button = element('button', { type: 'button' }, `Unhide post ${post}`);
  button.addEventListener('click', async () => {
    const show = () => ask('PATCH', `/v1/posts/${post}`, { hidden: false }).then(() => '');
    if (await act(button, note, show)) again(post);
  });
  return [element('p', {}, button), note];
}

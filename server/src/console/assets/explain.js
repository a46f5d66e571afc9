// Explains why a post is in a reader's feed, or not.

import { ask, userPath } from './api.js';
import { act, element } from './dom.js';
import { blocker, reason, route } from './words.js';

/**
 * Requests the explanation, and shows it.
 * @param {string} user the reader
 * @param {string} post
 * @param {(post: string) => void} again is called when the explanation has changed
 * @returns {Promise<HTMLElement>}
 * @throws {import('./api.js').Refusal}
 */
export async function explanation(user, post, again) {
  const { json } = await ask('GET', userPath(user, 'feed', 'explain', post));
  const { shown, reasons, blockers, route: way } = json;
  const parts = [element('p', { class: 'verdict' }, shown ? `Post ${post} is in the feed.` : `Post ${post} is not in the feed.`)];
  if (reasons.length) parts.push(...list('Reasons:', reasons.map((one) => reason(one, user))));
  if (blockers.length) parts.push(...list('Blockers:', blockers.map((one) => blocker(one, user))));
  if (!reasons.length && !blockers.length) parts.push(element('p', {}, 'Nothing brings it into the feed.'));
  if (route(way)) parts.push(element('p', { class: 'hint' }, route(way)));
  for (const one of blockers) parts.push(...wayOut(one, user, post, again));
  return element('div', { class: 'explanation' }, ...parts);
}

const list = (title, lines) => [element('p', {}, title), element('ul', {}, ...lines.map((line) => element('li', {}, line)))];

/** A button that removes a blocker, if the operator or the reader has set it. */
function wayOut({ kind, post: id, source }, user, post, again) {
  if (kind === 'hidden' && id === post) return undo(`Unhide post ${post}`, () => ask('PATCH', `/v1/posts/${encodeURIComponent(post)}`, { hidden: false }), () => again(post));
  if (kind === 'muted') return undo(`Unmute ${source}`, () => ask('DELETE', userPath(user, 'mutes', source)), () => again(post));
  if (kind === 'blocked') return undo(`Unblock ${source}`, () => ask('DELETE', userPath(user, 'blocks', source)), () => again(post));
  return [];
}

function undo(text, request, done) {
  const note = element('p', { class: 'note', role: 'status' });
  const button = element('button', { type: 'button' }, text);
  button.addEventListener('click', async () => {
    if (await act(button, note, () => request().then(() => ''))) done();
  });
  return [element('p', {}, button), note];
}

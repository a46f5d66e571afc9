// The newest posts of a tag, of a topic or in reply to a post. These sources have no feed.

import { ask, userPath } from './api.js';
import { act, byId, element } from './dom.js';
import { postElement, refreshTimes } from './post.js';

const LIMIT = 20;
const TIMES_EVERY_MS = 10_000;

/** Shows the posts in place of a feed. */
export function showPosts(source) {
  const replied = /^replies:([0-9]+|ext:.+)$/.exec(source)?.[1];
  // A user's token may read replies, but not the page of another source.
  const path = replied ? `/v1/posts/${encodeURIComponent(replied)}/replies` : userPath(source, 'posts');
  const [list, more, note] = [byId('posts'), byId('more'), byId('feed-note')];
  byId('explain').hidden = true;
  // This list is not live.
  byId('bring').parentElement.hidden = true;
  byId('posts').closest('section').setAttribute('aria-label', 'Posts');
  const refresh = element('button', { type: 'button' }, 'Refresh');
  byId('stream').before(element('p', { class: 'actions' }, refresh));
  let [next, asked] = [null, 0];
  const read = (button, isAfter) =>
    act(button, note, async () => {
      const query = new URLSearchParams({ limit: LIMIT, ...(isAfter && { before: next }) });
      const nth = ++asked;
      const { json } = await ask('GET', `${path}?${query}`);
      // A later request replaces this one.
      if (nth !== asked) return;
      const made = json.items.map((item) => postElement(item, false));
      if (isAfter) list.append(...made);
      else list.replaceChildren(...made);
      next = json.next;
      more.hidden = next === null;
      byId('empty').textContent = replied ? 'No replies yet.' : `No post has ${source}.`;
      byId('empty').hidden = list.children.length > 0;
      // If the button disappears, the focus moves to the first new post.
      if (isAfter && more.hidden) made[0]?.querySelector('a').focus();
    });
  refresh.addEventListener('click', () => read(refresh, false));
  more.addEventListener('click', () => read(more, true));
  setInterval(() => refreshTimes(list), TIMES_EVERY_MS);
  read(refresh, false);
}

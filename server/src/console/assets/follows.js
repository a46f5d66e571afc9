// The follows and the followers of a reader.

import { ask, userPath } from './api.js';
import { act, byId, element, say } from './dom.js';
import { link } from './post.js';
import { lasting, moment } from './words.js';

const LIMIT = 20;

/** A list of sources with a button for more. */
class SourceList {
  #path;
  #row;
  #list;
  #more;
  #note;
  #next = null;
  /** The current request. Responses to earlier ones are ignored. */
  #asked = null;

  /**
   * @param {() => string} path the path of the list, with its query
   * @param {(source: object) => HTMLElement} row
   * @param {{list: HTMLElement, more: HTMLElement, note: HTMLElement}} parts of the page
   */
  constructor(path, row, { list, more, note }) {
    [this.#path, this.#row, this.#list, this.#more, this.#note] = [path, row, list, more, note];
    more.addEventListener('click', () => this.#read(this.#next));
  }

  /** Shows the first sources. */
  show() {
    return this.#read(null);
  }

  async #read(cursor) {
    const asked = (this.#asked = {});
    this.#more.setAttribute('aria-busy', 'true');
    try {
      const { json } = await ask('GET', this.#path() + (cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`));
      if (asked !== this.#asked) return;
      const rows = json.items.map(this.#row);
      if (cursor === null) this.#list.replaceChildren(...(rows.length ? rows : [element('li', { class: 'hint' }, 'None.')]));
      else this.#list.append(...rows);
      this.#next = json.next;
      this.#more.hidden = json.next === null;
    } catch (refusal) {
      if (asked === this.#asked) say(this.#note, refusal.message, true);
    } finally {
      if (asked === this.#asked) this.#more.removeAttribute('aria-busy');
    }
  }
}

/** A source, and for how long it has been in the list. */
export const rowText = ({ id, since }) => element('span', {}, link(id), element('span', { class: 'hint', title: `since ${moment(since)}` }, ` ${lasting(since)}`));

/** Shows the follows of a reader. @param {() => void} changed is called after a follow or an unfollow */
export function prepareFollows(user, changed) {
  const note = byId('follow-note');
  const query = () => `limit=${LIMIT}${byId('only-hidden').checked ? '&hidden=true' : ''}`;
  const row = (source) => {
    const { id } = source;
    const button = element('button', { type: 'button', class: 'quiet', 'aria-label': `Unfollow ${id}` }, 'Unfollow');
    button.addEventListener('click', async () => {
      if (!(await act(button, note, () => unfollow(id)))) return;
      update();
      byId('source').focus();
    });
    return element('li', {}, rowText(source), button);
  };
  const parts = { list: byId('following'), more: byId('more-following'), note };
  const list = new SourceList(() => `${userPath(user, 'following')}?${query()}`, row, parts);
  const update = () => {
    list.show();
    changed();
  };
  const follow = async (source) => {
    const { json } = await ask('PUT', userPath(user, 'following', source));
    return json.created ? `${user} now follows ${source}.` : `${user} already follows ${source}.`;
  };
  const unfollow = async (source) => {
    await ask('DELETE', `${userPath(user, 'following', source)}${byId('keep').checked ? '?keep=true' : ''}`);
    return `${user} no longer follows ${source}.`;
  };
  byId('follow').addEventListener('submit', async (event) => {
    event.preventDefault();
    const form = event.target;
    const source = form.elements.source.value.trim();
    const change = event.submitter?.value === 'unfollow' ? unfollow : follow;
    if (!(await act(form, note, () => change(source)))) return;
    form.elements.source.value = '';
    update();
  });
  byId('only-hidden').addEventListener('change', () => list.show());
  list.show();
}

/** Shows the followers of a reader. */
export function prepareFollowers(user) {
  const row = (source) => element('li', {}, rowText(source));
  const parts = { list: byId('followers'), more: byId('more-followers'), note: byId('followers-note') };
  new SourceList(() => `${userPath(user, 'followers')}?limit=${LIMIT}`, row, parts).show();
}

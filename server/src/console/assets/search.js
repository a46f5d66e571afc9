// The search at the top of each page: readers by the beginning of their names, posts by their ids.

import { ask } from './api.js';
import { DENIED } from './poll.js';
import { byId, element, say } from './dom.js';
import { ago, count, plural } from './words.js';

const WAIT_MS = 150;
const SUGGESTED = 8;
const RECENT = 'tidewire-recent-readers';
const RECENT_MAX = 8;

/** The kind of source that has this id, or will have it once the id is typed in full. */
const kindOf = (id) => /^(tag|topic|replies):/.exec(id)?.[1] ?? 'user';

/** The sources whose ids begin with `prefix`: the one with this id first, then awake ones, then those with most followers. */
export async function sourcesBy(prefix, limit = SUGGESTED, kind = kindOf(prefix)) {
  const query = new URLSearchParams({ prefix, limit, kind });
  const { json } = await ask('GET', `/v1/sources?${query}`);
  return json.items;
}

/** A short description of a source. */
export function aboutSource({ id, active, following, followers, last_seen: seen }) {
  if (!isUser(id)) return plural(followers, 'follower');
  const state = active ? 'awake' : seen ? `seen ${ago(seen)}` : 'never read';
  return `${state}, follows ${count(following)}, ${plural(followers, 'follower')}`;
}

/** The addresses of a reader, of a part of its page, and of a post. */
export const readerUrl = (user, part = '') => `/console/readers?${new URLSearchParams({ user, ...(part && { part }) })}`;
export const postUrl = (id) => `/console/posts?${new URLSearchParams({ post: id })}`;

/** True if a source is a user, not a tag, a topic or the replies to a post. */
export const isUser = (id) => kindOf(id) === 'user';

/** The readers that were viewed in this tab, the last first. */
export const recentReaders = () => JSON.parse(sessionStorage.getItem(RECENT) ?? '[]');

/** Records a viewed reader. */
export function noteReader(user) {
  const others = recentReaders().filter((known) => known !== user);
  sessionStorage.setItem(RECENT, JSON.stringify([user, ...others].slice(0, RECENT_MAX)));
}

const isPost = (text) => /^([0-9]{6,20}|ext:.+)$/.test(text);

/** Adds the handlers of the search. */
export function prepareSearch() {
  const input = byId('searched');
  const show = (user) => location.assign(readerUrl(user));
  const picker = new Picker(input, byId('suggestions'), byId('search-note'), show);
  byId('search').addEventListener('submit', async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) return picker.close();
    const found = await picker.find(text);
    if (!found) return;
    const exact = found.sources.find(({ id }) => id === text);
    // The id of a user may be a number. A token that may not search may still read a post or a feed.
    if (exact) show(text);
    else if (isPost(text)) location.assign(postUrl(text));
    else if (found.isDenied) show(text);
    else if (found.sources.length) show(found.sources[0].id);
    else return picker.sayNobody(text);
    picker.close();
  });
}

/** The note if no name begins with the input. */
function nothingFound(prefix) {
  if (isPost(prefix)) return `No name begins with “${prefix}”. Enter shows post ${prefix}.`;
  return prefix ? `No name begins with “${prefix}”. The search matches only the beginning of names.` : 'There are no readers yet.';
}

/** The heading of the suggestions. */
function headOf(prefix) {
  if (!prefix) return 'Readers, awake ones first';
  return `Names that begin with “${prefix}”${isPost(prefix) ? `; Enter shows post ${prefix} if no name is the same` : ''}`;
}

/** An editable combobox with a list of what exists. */
class Picker {
  #input;
  #list;
  #status;
  #choose;
  #timer = 0;
  #asked = 0;
  #active = -1;

  /**
   * @param {HTMLInputElement} input with the role `combobox`
   * @param {HTMLElement} list with the role `listbox`
   * @param {HTMLElement} status the text for screen readers; visible only without suggestions
   * @param {(id: string) => void} choose is called with the chosen suggestion
   */
  constructor(input, list, status, choose) {
    [this.#input, this.#list, this.#status, this.#choose] = [input, list, status, choose];
    input.addEventListener('input', () => this.#askSoon(WAIT_MS));
    input.addEventListener('click', () => this.#askSoon(0));
    input.addEventListener('keydown', (event) => this.#pressed(event));
    const left = ({ relatedTarget }) => relatedTarget !== input && !status.contains(relatedTarget) && this.close();
    input.addEventListener('blur', left);
    status.addEventListener('focusout', left);
    // The input keeps the focus.
    for (const box of [list, status]) box.addEventListener('pointerdown', (event) => event.preventDefault());
    list.addEventListener('click', (event) => {
      const option = event.target.closest('[role=option]');
      if (option) this.#take(option);
    });
  }

  /** Requests sources now, because the shown ones may be of earlier input. Null without a response; the note says so. */
  async find(prefix) {
    clearTimeout(this.#timer);
    const nth = ++this.#asked;
    try {
      const sources = await sourcesBy(prefix);
      return nth === this.#asked ? { sources } : null;
    } catch (refusal) {
      if (nth !== this.#asked) return null;
      if (DENIED.includes(refusal.status)) return { sources: [], isDenied: true };
      this.#show([], prefix, refusal.message);
      return null;
    }
  }

  /** Says that a name is unknown, with a link to its page, where a first follow can be added. */
  sayNobody(id) {
    this.#show([], id);
    this.#status.replaceChildren(`“${id}” is unknown. `, element('a', { href: readerUrl(id) }, 'Open its page anyway'));
  }

  /** Closes the list, and ignores the response to a pending request. */
  close() {
    clearTimeout(this.#timer);
    this.#asked++;
    this.#list.hidden = true;
    this.#say('');
    this.#activate(-1);
    this.#input.setAttribute('aria-expanded', 'false');
  }

  #askSoon(wait) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), wait);
  }

  async #ask() {
    const nth = ++this.#asked;
    const prefix = this.#input.value.trim();
    let [sources, refused] = [[], ''];
    try {
      sources = await sourcesBy(prefix);
    } catch (refusal) {
      refused = refusal.message;
    }
    if (nth === this.#asked && document.activeElement === this.#input) this.#show(sources, prefix, refused);
  }

  #show(sources, prefix, refused = '') {
    const options = sources.map((source, nth) =>
      element(
        'li',
        { role: 'option', id: `${this.#list.id}-${nth}`, 'aria-selected': 'false', 'data-id': source.id },
        element('span', { class: source.active ? 'dot awake' : 'dot', 'aria-hidden': 'true' }),
        element('span', { class: 'name' }, source.id),
        element('span', { class: 'hint' }, aboutSource(source)),
      ),
    );
    this.#list.replaceChildren(...options);
    this.#list.dataset.head = headOf(prefix);
    this.#list.hidden = !options.length;
    this.#input.setAttribute('aria-expanded', String(options.length > 0));
    this.#activate(-1);
    if (options.length) this.#say(`${plural(options.length, 'name')} found. ${headOf(prefix)}`);
    else this.#say(refused || nothingFound(prefix), refused !== '', true);
  }

  #say(text, isError = false, isSeen = false) {
    this.#status.classList.toggle('unseen', !isSeen);
    say(this.#status, text, isError);
  }

  #pressed(event) {
    const options = this.#list.children.length;
    const isOpen = !this.#list.hidden;
    const isNoteSeen = !this.#status.classList.contains('unseen');
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (!isOpen) return this.#askSoon(0);
      const step = event.key === 'ArrowDown' ? 1 : -1;
      // After the last option comes the input itself, at -1.
      this.#activate(((this.#active + 1 + step + options + 1) % (options + 1)) - 1);
    } else if (event.key === 'Enter' && isOpen && this.#active >= 0) {
      event.preventDefault();
      this.#take(this.#list.children[this.#active]);
    } else if (event.key === 'Escape' && (isOpen || isNoteSeen)) {
      event.preventDefault();
      this.close();
    }
  }

  #activate(nth) {
    this.#active = nth;
    [...this.#list.children].forEach((option, place) => option.setAttribute('aria-selected', String(place === nth)));
    const option = this.#list.children[nth];
    if (option) this.#input.setAttribute('aria-activedescendant', option.id);
    else this.#input.removeAttribute('aria-activedescendant');
    option?.scrollIntoView({ block: 'nearest' });
  }

  #take(option) {
    this.#input.value = option.dataset.id;
    this.close();
    this.#choose(option.dataset.id);
  }
}

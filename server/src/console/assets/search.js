// The search at the top of each page: readers by the beginning of their names, posts by their numbers.

import { ask } from './api.js';
import { byId, element, say } from './dom.js';
import { ago, count, plural } from './words.js';

const WAIT_MS = 150;
const SUGGESTED = 8;
const RECENT = 'tidewire-recent-readers';
const RECENT_MAX = 8;

/** The sources whose ids begin so: those awake first, then those with most followers. */
export async function sourcesBy(prefix, limit = SUGGESTED, kind = 'user') {
  const query = new URLSearchParams({ prefix, limit, kind });
  const { json } = await ask('GET', `/v1/sources?${query}`);
  return json.items;
}

/** What is known of a source, in a few words. */
export function aboutSource({ active, following, followers, last_seen: seen }) {
  const state = active ? 'awake' : seen ? `seen ${ago(seen)}` : 'never read';
  return `${state}, follows ${count(following)}, ${plural(followers, 'follower')}`;
}

/** The addresses of a reader, of a part of what is known of it, and of a post. */
export const readerUrl = (user, part = '') => `/console/readers?${new URLSearchParams({ user, ...(part && { part }) })}`;
export const postUrl = (id) => `/console/posts?${new URLSearchParams({ post: id })}`;

/** Whether a source is a user, and no tag or topic. */
export const isUser = (id) => !/^(tag|topic):/.test(id);

/** The readers that were looked at in this tab, the last first. */
export const recentReaders = () => JSON.parse(sessionStorage.getItem(RECENT) ?? '[]');

/** Notes that a reader was looked at. */
export function noteReader(user) {
  const others = recentReaders().filter((known) => known !== user);
  sessionStorage.setItem(RECENT, JSON.stringify([user, ...others].slice(0, RECENT_MAX)));
}

const isPost = (text) => /^[0-9]{6,20}$/.test(text);

/** Makes the search work. */
export function prepareSearch() {
  const input = byId('searched');
  const show = (user) => location.assign(readerUrl(user));
  const picker = new Picker(input, byId('suggestions'), byId('search-note'), show);
  byId('search').addEventListener('submit', (event) => {
    event.preventDefault();
    const text = input.value.trim();
    // A user may have a number as its id.
    if (isPost(text) && !picker.suggests(text)) location.assign(postUrl(text));
    else if (text) show(text);
    picker.close();
  });
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
   * @param {HTMLElement} status what is read aloud; it is seen only where there is no suggestion
   * @param {(id: string) => void} choose is called with a suggestion that was chosen
   */
  constructor(input, list, status, choose) {
    [this.#input, this.#list, this.#status, this.#choose] = [input, list, status, choose];
    input.addEventListener('input', () => this.#askSoon(WAIT_MS));
    input.addEventListener('click', () => this.#askSoon(0));
    input.addEventListener('keydown', (event) => this.#pressed(event));
    input.addEventListener('blur', () => this.close());
    // The input keeps the focus.
    list.addEventListener('pointerdown', (event) => event.preventDefault());
    list.addEventListener('click', (event) => {
      const option = event.target.closest('[role=option]');
      if (option) this.#take(option);
    });
  }

  /** Whether this is one of the suggestions that are shown. */
  suggests(id) {
    return !this.#list.hidden && [...this.#list.children].some((option) => option.dataset.id === id);
  }

  /** Closes the list. A question under way is answered in vain. */
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
    let [sources, wrong] = [[], isPost(prefix) ? `Enter shows post ${prefix}.` : prefix ? 'No reader begins so.' : 'There is no reader yet.'];
    let isError = false;
    try {
      sources = await sourcesBy(prefix);
    } catch (refusal) {
      [wrong, isError] = [refusal.message, true];
    }
    if (nth === this.#asked && document.activeElement === this.#input) this.#show(sources, wrong, isError);
  }

  #show(sources, wrong, isError) {
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
    this.#list.hidden = !options.length;
    this.#input.setAttribute('aria-expanded', String(options.length > 0));
    this.#activate(-1);
    if (options.length) this.#say(options.length === 1 ? '1 reader found' : `${options.length} readers found`);
    else this.#say(wrong, isError, true);
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
      // Past the last one comes what was typed, at -1.
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

// One reader's feed, as it changes.

import { Feed } from '/tidewire.js';

import { ask, credential, userPath } from './api.js';
import { act, byId, confirmed, element, say } from './dom.js';
import { explanation } from './explain.js';
import { postElement, refreshTimes } from './post.js';

const STATES = {
  connecting: ['Connecting…', ''],
  live: ['Live', 'good'],
  reconnecting: ['Not live: reconnecting…', 'bad'],
  stopped: ['Stopped', 'bad'],
};
const TIMES_EVERY_MS = 10_000;
const ARRIVALS_EVERY_MS = 5_000;

/** The part of the page with the feed in it. */
export class FeedView {
  #feed = null;
  /** What is shown for each post: its entry and its element. */
  #shown = new Map();
  #isDue = false;
  #arrived = 0;
  #user = '';
  /** The explanations that are open, by the post. */
  #whys = new Map();
  /** The cursor up to which the reader has read, as far as it is known. */
  #marker = null;
  #onAction;

  /** @param {(action: string, subject?: any) => void} onAction what others have to do: for a post, a user, a live feed, a marker */
  constructor(onAction) {
    this.#onAction = onAction;
    byId('posts').addEventListener('click', (event) => this.#clicked(event));
    byId('more').addEventListener('click', () => this.#more());
    setInterval(() => refreshTimes(byId('posts')), TIMES_EVERY_MS);
    setInterval(() => this.#announce(), ARRIVALS_EVERY_MS);
  }

  /** The newest entries, as far as they are read. */
  get items() {
    return this.#feed?.items ?? [];
  }

  /** Shows the feed of a reader. */
  show(user) {
    this.#feed?.stop();
    this.#shown.clear();
    this.#whys.clear();
    this.#marker = null;
    this.#user = user;
    byId('posts').replaceChildren();
    say(byId('feed-note'), '');
    byId('feed-state').hidden = !user;
    byId('reader-title').textContent = user ? `Feed of ${user}` : 'Choose a reader';
    this.#feed = user ? this.#follow(user) : null;
    this.#render();
  }

  #follow(user) {
    const feed = new Feed({ user, token: credential() });
    // A feed that was left may still have something to say.
    const ifCurrent = (what) => () => this.#feed === feed && what();
    feed.addEventListener('change', ifCurrent(() => this.#renderSoon()));
    feed.addEventListener('state', ifCurrent(() => this.#showState()));
    feed.addEventListener('marker', ({ detail }) => ifCurrent(() => this.markedAt(detail))());
    this.#feed = feed;
    feed.start();
    return feed;
  }

  #showState() {
    const [text, how] = STATES[this.#feed.state];
    const pill = byId('feed-state');
    pill.textContent = text;
    pill.dataset.how = how;
    if (this.#feed.state === 'live') this.#onAction('live');
    const { error, state } = this.#feed;
    if (error && state === 'stopped') say(byId('feed-note'), stopped(error), true);
    this.#renderSoon();
  }

  /** Draws where the reader has read up to. */
  markedAt(cursor) {
    this.#marker = cursor;
    this.#onAction('marked', cursor);
    this.#renderSoon();
  }

  /** Many changes are drawn at once. */
  #renderSoon() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#render();
    });
  }

  #render() {
    const items = this.#feed?.items ?? [];
    const list = byId('posts');
    const focused = focusWithin(list);
    const ids = new Set(items.map(({ post }) => post.id));
    const wasEmpty = this.#shown.size === 0;
    for (const [id, { node }] of this.#shown) {
      if (ids.has(id)) continue;
      node.remove();
      this.#shown.delete(id);
      this.#whys.delete(id);
    }
    const nodes = items.map((item) => this.#nodeOf(item, wasEmpty));
    let next = list.firstElementChild;
    for (const node of nodes) {
      if (node === next) next = next.nextElementSibling;
      else list.insertBefore(node, next);
    }
    this.#drawMarker(items);
    restoreFocus(list, focused);
    byId('more').hidden = !this.#feed?.hasMore || items.length === 0;
    byId('empty').hidden = items.length > 0;
    byId('empty').textContent = this.#emptyText();
  }

  #nodeOf(item, isFirst) {
    const { id } = item.post;
    const shown = this.#shown.get(id);
    if (shown?.item === item) return shown.node;
    const node = postElement(item);
    node.dataset.post = id;
    if (!shown && !isFirst) {
      node.classList.add('new');
      this.#arrived++;
    }
    if (shown) shown.node.replaceWith(node);
    this.#shown.set(id, { item, node });
    if (this.#whys.has(id)) this.#openWhy(node, this.#whys.get(id));
    return node;
  }

  /** The line above the first entry that was read. */
  #drawMarker(items) {
    const read = this.#marker && items.find(({ cursor }) => cursor <= this.#marker);
    for (const [id, { node }] of this.#shown) {
      const isFirst = id === read?.post.id;
      const line = node.querySelector('.marker-line');
      if (isFirst && !line) node.prepend(element('p', { class: 'marker-line' }, 'Read up to here'));
      else if (!isFirst) line?.remove();
    }
  }

  /** Says below an entry why it is in the feed, or closes that again. */
  async #explain({ post }, button, node) {
    if (this.#whys.has(post.id)) return this.#closeWhy(post.id);
    const user = this.#user;
    await act(button, node.querySelector('.note'), async () => {
      const again = () => this.#closeWhy(post.id);
      const made = await explanation(user, post.id, again);
      if (user !== this.#user || !this.#shown.has(post.id)) return;
      this.#whys.set(post.id, made);
      this.#openWhy(this.#shown.get(post.id).node, made);
    });
  }

  #openWhy(node, made) {
    const box = node.querySelector('.why');
    box.replaceChildren(made);
    box.hidden = false;
    node.querySelector('[data-action=explain]').setAttribute('aria-expanded', 'true');
  }

  #closeWhy(post) {
    this.#whys.delete(post);
    // The entry may have been drawn anew since it was opened.
    const node = this.#shown.get(post)?.node;
    if (!node) return;
    const [box, button] = [node.querySelector('.why'), node.querySelector('[data-action=explain]')];
    if (box.contains(document.activeElement)) button.focus();
    box.hidden = true;
    button.setAttribute('aria-expanded', 'false');
  }

  async #mark({ cursor }, button, node) {
    const user = this.#user;
    await act(button, node.querySelector('.note'), async () => {
      await ask('PUT', userPath(user, 'marker'), { cursor });
      if (user === this.#user) this.markedAt(cursor);
    });
  }

  #emptyText() {
    if (!this.#feed) return "A reader's feed is shown here, and kept up to date while you watch.";
    return this.#feed.state === 'live' ? 'Nothing is in this feed. Follow somebody, or publish something.' : 'Nothing is known of this feed yet.';
  }

  /** Said now and then, so that a busy feed does not talk all the time. */
  #announce() {
    if (!this.#arrived) return;
    byId('arrivals').textContent = this.#arrived === 1 ? 'One new post' : `${this.#arrived} new posts`;
    this.#arrived = 0;
  }

  async #more() {
    const more = byId('more');
    await act(more, byId('feed-note'), async () => {
      const before = this.#feed.items.length;
      await this.#feed.loadMore();
      this.#render();
      this.#arrived = 0;
      const added = byId('posts').children[before];
      // From a button that went away the focus goes on to what it brought.
      if (more.hidden) added?.querySelector('button')?.focus();
    });
  }

  async #clicked(event) {
    const link = event.target.closest('a[data-user]');
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      return this.#onAction('visit', link.dataset.user);
    }
    const button = event.target.closest('button[data-action]');
    if (!button) return;
    const node = button.closest('li');
    const { item } = this.#shown.get(node.dataset.post);
    const { action } = button.dataset;
    if (action === 'delete') await this.#delete(item.post, button, node);
    else if (action === 'hide') await this.#hide(item, button, node);
    else if (action === 'explain') await this.#explain(item, button, node);
    else if (action === 'mark') await this.#mark(item, button, node);
    else this.#onAction(action, item);
  }

  async #delete(post, button, node) {
    const text = `Post ${post.id} by ${post.author} is deleted for everybody. This cannot be undone.`;
    if (!(await confirmed('Delete this post?', text, 'Delete'))) return;
    await act(button, node.querySelector('.note'), async () => {
      await ask('DELETE', `/v1/posts/${post.id}`);
      return 'Deleted.';
    });
  }

  async #hide(item, button, node) {
    const hide = async () => {
      await ask('PATCH', `/v1/posts/${item.post.id}`, { hidden: true });
      return 'Hidden.';
    };
    if (await act(button, node.querySelector('.note'), hide)) this.#onAction('hidden', item);
  }
}

/** Why a feed does not go on. */
function stopped({ message, cause }) {
  const isOfKey = cause?.code === 'invalid_token' || cause?.code === 'unauthenticated' || /asks for authentication/.test(message);
  if (isOfKey) return credential() ? 'The feed stopped: wrong key.' : 'The feed stopped: the server asks for a key.';
  return `The feed stopped: ${message}.`;
}

/** Where in the list the focus is: which button of which entry, by number if the entry goes. */
function focusWithin(list) {
  const node = document.activeElement?.closest?.('#posts > li');
  if (!node) return null;
  const { activeElement: control } = document;
  return { post: node.dataset.post, place: [...list.children].indexOf(node), action: control.dataset.action, control };
}

function restoreFocus(list, focused) {
  if (!focused || list.contains(document.activeElement)) return;
  const same = [...list.children].find((node) => node.dataset.post === focused.post);
  const node = same ?? list.children[Math.min(focused.place, list.children.length - 1)];
  // What is inside an explanation is moved along with it; the author's link has no action.
  const kept = list.contains(focused.control) ? focused.control : null;
  const target = kept ?? (same && node.querySelector(`[data-action="${focused.action}"]`)) ?? node?.querySelector('button') ?? byId('panel-reader');
  target.focus({ preventScroll: true });
}

/** The posts that were hidden from this page, to show them again. */
export function rememberHidden({ post }) {
  const box = byId('hidden-posts');
  const note = element('span', { class: 'note', role: 'status' });
  const button = element('button', { type: 'button', class: 'quiet', 'aria-label': `Unhide post ${post.id} by ${post.author}` }, 'Unhide');
  const row = element('li', {}, element('span', {}, `Post ${post.id} by ${post.author}`), button, note);
  button.addEventListener('click', async () => {
    const unhide = () => ask('PATCH', `/v1/posts/${post.id}`, { hidden: false }).then(() => 'Shown again.');
    if (!(await act(button, note, unhide))) return;
    row.remove();
    box.hidden = box.querySelector('li') === null;
    byId('publish-box').querySelector('summary').focus();
  });
  byId('publish-box').open = true;
  box.querySelector('ul').append(row);
  box.hidden = false;
}

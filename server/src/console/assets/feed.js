// The live feed of a reader.

import { Feed } from '/tidewire.js';

import { ask, credential, userPath } from './api.js';
import { act, byId, confirmed, element, say } from './dom.js';
import { explanation } from './explain.js';
import { isPaused, onPause, onResume } from './poll.js';
import { postElement, postLink, rawElement, refreshTimes } from './post.js';
import { openPublishing } from './publish.js';
import { refreshStats } from './shell.js';
import { plural } from './words.js';

const STATES = {
  connecting: ['Connecting…', ''],
  live: ['Live', 'good'],
  reconnecting: ['Not live: reconnecting…', 'bad'],
  stopped: ['Stopped', 'bad'],
};
const TIMES_EVERY_MS = 10_000;
const ARRIVALS_EVERY_MS = 5_000;

/** The feed of a reader, in the page. */
export class FeedView {
  #user;
  #feed;
  /** The shown entry and element of each post. */
  #shown = new Map();
  #isDue = false;
  #arrived = 0;
  /** The cursor of the newest shown entry: entries above it are new. */
  #newest = '';
  /** Posts that wait for their new places while the user is busy in the list. */
  #waiting = new Set();
  /** The open explanations by post. */
  #whys = new Map();
  /** The read marker, if known. */
  #marker = null;
  #onLive;

  /** Nothing is read until `start`. @param {string} user @param {() => void} onLive is called when the feed is live again */
  constructor(user, onLive) {
    [this.#user, this.#onLive] = [user, onLive];
    byId('posts').addEventListener('click', (event) => this.#clicked(event));
    byId('more').addEventListener('click', () => this.#more());
    byId('bring').addEventListener('click', (event) => this.#bringIn(event));
    byId('explain').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#explainAny(event.target);
    });
    this.#feed = new Feed({ user, token: credential() });
    this.#feed.addEventListener('change', () => this.#renderSoon());
    this.#feed.addEventListener('state', () => this.#showState());
    this.#feed.addEventListener('marker', ({ detail }) => this.#markedAt(detail));
  }

  /** Reads the feed, which wakes the reader, and stays connected. */
  start() {
    setInterval(() => refreshTimes(byId('posts')), TIMES_EVERY_MS);
    setInterval(() => this.#announce(), ARRIVALS_EVERY_MS);
    onPause(() => this.#showPill());
    onResume(() => {
      this.#showPill();
      this.#renderSoon();
    });
    const [stream, left] = [byId('stream'), () => this.#waiting.size && this.#renderSoon()];
    stream.addEventListener('pointerleave', left);
    stream.addEventListener('focusout', left);
    window.addEventListener('scroll', left, { passive: true });
    byId('feed-state').hidden = byId('empty').hidden = false;
    this.#feed.start();
    this.#showPill();
  }

  /** A paused feed still receives posts, and does not draw them. */
  #showPill() {
    const { state } = this.#feed;
    const [text, how] = isPaused() && state !== 'stopped' ? ['Paused', ''] : STATES[state];
    const pill = byId('feed-state');
    pill.textContent = text;
    pill.dataset.how = how;
  }

  #showState() {
    this.#showPill();
    if (this.#feed.state === 'live') this.#onLive();
    const { error, state } = this.#feed;
    if (error && state === 'stopped') {
      say(byId('feed-note'), stopped(error), true);
      // An expired token of the feed is also that of the page.
      if (isOfKey(error)) refreshStats();
    }
    this.#renderSoon();
  }

  /** Draws the read marker. */
  #markedAt(cursor) {
    this.#marker = cursor;
    this.#renderSoon();
  }

  /** Draws many changes together, and none during a pause. */
  #renderSoon() {
    if (this.#isDue || isPaused()) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#render();
    });
  }

  /** @param {boolean} isWanted true to show new posts even while the user is busy */
  #render(isWanted = false) {
    const { items } = this.#feed;
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
    const waiting = isWanted || !isBusy() || this.#shown.size === 0 ? [] : items.filter(({ cursor }) => cursor > this.#newest);
    const drawn = items.slice(waiting.length);
    const nodes = drawn.map((item) => this.#nodeOf(item, wasEmpty));
    if (drawn.length && drawn[0].cursor > this.#newest) this.#newest = drawn[0].cursor;
    this.#letWait(waiting);
    // A shown post that gets a higher place, for example by a repost, keeps its old place for now.
    const held = new Set(waiting.map(({ post }) => this.#shown.get(post.id)?.node));
    let next = list.firstElementChild;
    for (const node of nodes) {
      while (held.has(next)) next = next.nextElementSibling;
      if (node === next) next = next.nextElementSibling;
      else list.insertBefore(node, next);
    }
    this.#drawMarker(drawn);
    restoreFocus(list, focused);
    byId('more').hidden = !this.#feed.hasMore || items.length === 0;
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
      // Waiting posts were counted when they arrived.
      if (!this.#waiting.has(id)) this.#arrived++;
    }
    if (shown) shown.node.replaceWith(node);
    this.#shown.set(id, { item, node });
    if (this.#whys.has(id)) this.#explainAgain(id, node);
    return node;
  }

  /** Counts new posts on a button, instead of moving all others down. */
  #letWait(items) {
    const ids = items.map(({ post }) => post.id);
    const fresh = ids.filter((id) => !this.#shown.has(id));
    this.#arrived += fresh.filter((id) => !this.#waiting.has(id)).length;
    this.#waiting = new Set(ids);
    byId('bring').hidden = fresh.length === 0;
    if (fresh.length) byId('bring').textContent = plural(fresh.length, 'new post');
  }

  /** Shows the waiting posts. */
  #bringIn({ detail: clicks }) {
    this.#render(true);
    if (byId('posts').getBoundingClientRect().top < 0) byId('stream').scrollIntoView();
    // The button is gone, so the keyboard focus moves to the first new post. A pointer needs no focus.
    if (clicks === 0) byId('posts').querySelector('button')?.focus();
  }

  /** Draws the line above the first read entry. */
  #drawMarker(items) {
    const read = this.#marker && items.find(({ cursor }) => cursor <= this.#marker);
    for (const [id, { node }] of this.#shown) {
      const isFirst = id === read?.post.id;
      const line = node.querySelector('.marker-line');
      if (isFirst && !line) node.prepend(element('p', { class: 'marker-line' }, 'Read up to here'));
      else if (!isFirst) line?.remove();
    }
  }

  /** Opens or closes the explanation below an entry. */
  async #explain({ post }, button, node) {
    if (this.#whys.has(post.id)) return this.#closeWhy(post.id);
    await act(button, node.querySelector('.note'), async () => {
      const made = await explanation(this.#user, post.id, () => this.#closeWhy(post.id));
      if (!this.#shown.has(post.id)) return;
      this.#whys.set(post.id, made);
      this.#openWhy(this.#shown.get(post.id).node, made);
    });
  }

  /** Reloads the explanation of an entry that has changed. */
  #explainAgain(id, node) {
    this.#openWhy(node, this.#whys.get(id));
    const answered = async (made) => {
      if (!this.#whys.has(id) || !this.#shown.has(id)) return;
      this.#whys.set(id, made);
      this.#openWhy(this.#shown.get(id).node, made);
    };
    explanation(this.#user, id, () => this.#closeWhy(id)).then(answered, () => this.#closeWhy(id));
  }

  /** Explains above the feed why a post is in it, or not. */
  #explainAny(form, post = form.elements.post.value) {
    form.elements.post.value = post;
    const box = byId('explanation');
    return act(form, byId('explain-note'), async () => {
      box.hidden = true;
      box.replaceChildren(await explanation(this.#user, post, (again) => this.#explainAny(form, again)));
      box.hidden = false;
    });
  }

  /** Shows or hides the JSON of an entry. */
  #showRaw(item, button, node) {
    const box = node.querySelector('.raw');
    box.hidden = !box.hidden;
    box.replaceChildren(...(box.hidden ? [] : [rawElement(item)]));
    button.setAttribute('aria-expanded', String(!box.hidden));
  }

  #openWhy(node, made) {
    const box = node.querySelector('.why');
    box.replaceChildren(made);
    box.hidden = false;
    node.querySelector('[data-action=explain]').setAttribute('aria-expanded', 'true');
  }

  #closeWhy(post) {
    this.#whys.delete(post);
    // The entry may have been redrawn meanwhile.
    const node = this.#shown.get(post)?.node;
    if (!node) return;
    const [box, button] = [node.querySelector('.why'), node.querySelector('[data-action=explain]')];
    if (box.contains(document.activeElement)) button.focus();
    box.hidden = true;
    button.setAttribute('aria-expanded', 'false');
  }

  async #mark({ cursor }, button, node) {
    await act(button, node.querySelector('.note'), async () => {
      await ask('PUT', userPath(this.#user, 'marker'), { cursor });
      this.#markedAt(cursor);
    });
  }

  #emptyText() {
    return this.#feed.state === 'live' ? 'This feed is empty. Follow a source, or publish a post.' : 'This feed is not loaded yet.';
  }

  /** Announces new posts at intervals, so that a screen reader does not speak all the time. */
  #announce() {
    if (!this.#arrived) return;
    byId('arrivals').textContent = this.#arrived === 1 ? 'One new post' : `${this.#arrived} new posts`;
    this.#arrived = 0;
  }

  async #more() {
    const more = byId('more');
    await act(more, byId('feed-note'), async () => {
      const before = byId('posts').children.length;
      await this.#feed.loadMore();
      this.#render();
      this.#arrived = 0;
      const added = byId('posts').children[before];
      // If the button disappears, the focus moves to the first new post.
      if (more.hidden) added?.querySelector('button')?.focus();
    });
  }

  async #clicked(event) {
    const button = event.target.closest('button[data-action]');
    if (!button) return;
    const node = button.closest('li');
    const { item } = this.#shown.get(node.dataset.post);
    const { action } = button.dataset;
    if (action === 'delete') await this.#delete(item.post, button, node);
    else if (action === 'hide') await this.#hide(item, button, node);
    else if (action === 'explain') await this.#explain(item, button, node);
    else if (action === 'json') this.#showRaw(item, button, node);
    else if (action === 'mark') await this.#mark(item, button, node);
    else openPublishing({ author: this.#user, [action === 'reply' ? 'reply_to' : 'repost_of']: item.post.id });
  }

  async #delete(post, button, node) {
    const text = `This deletes post ${post.id} by ${post.author} for all readers. You cannot undo it.`;
    if (!(await confirmed('Delete this post?', text, 'Delete'))) return;
    await act(button, node.querySelector('.note'), async () => {
      await ask('DELETE', `/v1/posts/${post.id}`);
      return 'Deleted.';
    });
  }

  async #hide(item, button, node) {
    const hide = async () => {
      await ask('PATCH', `/v1/posts/${item.post.id}`, { hidden: true });
      return 'Hidden from all readers.';
    };
    if (!(await act(button, node.querySelector('.note'), hide))) return;
    rememberHidden(item);
    // The explanation above the feed is out of date now.
    if (byId('explained').value === item.post.id) this.#explainAny(byId('explain'));
  }
}

/** True while the user reads further down or is at a post: then nothing may move. */
function isBusy() {
  const stream = byId('stream');
  return stream.matches(':hover') || stream.contains(document.activeElement) || byId('posts').getBoundingClientRect().top < 0;
}

const isOfKey = ({ message, cause }) => ['invalid_token', 'token_expired', 'unauthenticated'].includes(cause?.code) || /requires authentication/.test(message);

/** The reason why a feed stopped. */
function stopped(error) {
  const { message, cause } = error;
  if (cause?.code === 'token_expired' || /token has expired/.test(message)) return 'The feed stopped: the token has expired.';
  if (isOfKey(error)) return credential() ? 'The feed stopped: invalid key.' : 'The feed stopped: the server requires a key.';
  return `The feed stopped: ${message}.`;
}

/** The focus in the list: the button and the entry, by its index in case the entry disappears. */
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
  // The controls of an explanation move with it; the author's link has no action.
  const kept = list.contains(focused.control) ? focused.control : null;
  const target = kept ?? (same && node.querySelector(`[data-action="${focused.action}"]`)) ?? node?.querySelector('button') ?? byId('content');
  target.focus({ preventScroll: true });
}

/** Lists a post that was hidden from this page, so that it can be unhidden. */
function rememberHidden({ post }) {
  const box = byId('hidden-posts');
  const note = element('span', { class: 'note', role: 'status' });
  const button = element('button', { type: 'button', class: 'quiet', 'aria-label': `Unhide post ${post.id} by ${post.author}` }, 'Unhide');
  const row = element('li', {}, element('span', {}, postLink(post.id, `Post ${post.id}`), ` by ${post.author}`), button, note);
  button.addEventListener('click', async () => {
    const unhide = () => ask('PATCH', `/v1/posts/${post.id}`, { hidden: false }).then(() => 'Unhidden.');
    if (!(await act(button, note, unhide))) return;
    row.remove();
    box.hidden = box.querySelector('li') === null;
    byId('explained').focus();
  });
  box.querySelector('ul').append(row);
  box.hidden = false;
}

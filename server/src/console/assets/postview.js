// One post: what it is, how it was delivered, and who reposted it.

import { ask } from './api.js';
import { byId, element, say } from './dom.js';
import { inWords, picture } from './fanout.js';
import { Poll } from './poll.js';
import { bodyElement, heading, labels, link, refreshTimes, time } from './post.js';
import { go, isShown, place } from './tabs.js';
import { clock, count, latency, moment } from './words.js';

const WHILE_DELIVERING_MS = 1000;
const LATER_MS = 10_000;
const CHOICES = 5;
const STATES = {
  queued: ['Waits for fan-out', ''],
  delivering: ['Being delivered', ''],
  delivered: ['Delivered', 'good'],
  pulled: ['Nothing to push', 'good'],
  gone: ['No details any more', ''],
};
const DECIDED = {
  setting: 'by the settings',
  followers: 'by the number of followers',
  cost: 'by what each would cost',
};

/** The tab of one post. */
export class PostView {
  #id = '';
  #fanout = null;
  #shown = '';
  #body = element('div', { class: 'card post' });
  #ways = element('div', { class: 'card' });
  #sources = element('div', { class: 'card' });
  #reposts = element('div', { class: 'card' });

  constructor() {
    const beside = element('div', { class: 'pair even' }, this.#sources, this.#reposts);
    byId('post-view').append(this.#body, this.#ways, beside);
    byId('choose-post').addEventListener('submit', (event) => {
      event.preventDefault();
      go({ tab: 'post', post: byId('post-number').value.trim() });
    });
    byId('post-view').addEventListener('click', visitUser);
    byId('post-choices').addEventListener('click', (event) => {
      const button = event.target.closest('button[data-post]');
      if (button) go({ tab: 'post', post: button.dataset.post });
    });
    new ResizeObserver(() => this.#draw()).observe(this.#ways);
    this.poll = new Poll(
      () => (['queued', 'delivering'].includes(this.#fanout?.state) ? WHILE_DELIVERING_MS : LATER_MS),
      () => isShown('post') && this.#id !== '',
      () => this.#read(),
    );
  }

  /** Shows a post. @param {object[]} items entries to choose one from, where none is chosen */
  show(id, items) {
    if (!id) this.#suggest(items);
    if (id === this.#id) return;
    this.#id = id;
    this.#fanout = null;
    this.#shown = '';
    byId('post-number').value = id;
    byId('post-title').textContent = id ? `Post ${id}` : 'Choose a post';
    byId('post-state').hidden = byId('post-view').hidden = true;
    byId('post-empty').hidden = Boolean(id);
    say(byId('post-note'), '');
    if (id) this.poll.wake(true);
  }

  #suggest(items) {
    const choice = ({ post }) =>
      element('li', {}, element('button', { type: 'button', 'data-post': post.id }, `${post.author}: ${textOf(post)}`));
    byId('post-choices').replaceChildren(...items.slice(0, CHOICES).map(choice));
  }

  async #read() {
    const id = this.#id;
    try {
      const path = `/v1/posts/${encodeURIComponent(id)}`;
      const [{ json: post }, { json: fanout }] = await Promise.all([ask('GET', path), ask('GET', `${path}/fanout`)]);
      if (id !== this.#id) return;
      this.#fanout = fanout;
      say(byId('post-note'), '');
      byId('post-state').hidden = byId('post-view').hidden = false;
      const now = JSON.stringify([post, fanout]);
      // What is the same is left alone: whoever reads or selects it is not disturbed.
      if (now === this.#shown) return refreshTimes(byId('post-view'));
      this.#shown = now;
      this.#fill(post, fanout);
    } catch (refusal) {
      if (id !== this.#id) return;
      say(byId('post-note'), refusal.status === 404 ? `No post ${id} is known. It may have been deleted.` : refusal.message, true);
      if (refusal.status === 404) byId('post-state').hidden = byId('post-view').hidden = true;
      throw refusal;
    }
  }

  #fill(post, fanout) {
    const [text, how] = STATES[fanout.state] ?? [fanout.state, ''];
    byId('post-state').textContent = text;
    byId('post-state').dataset.how = how;
    this.#body.replaceChildren(heading(post), bodyElement(post.body), ...[labels(post)].filter(Boolean));
    this.#draw();
    this.#sources.replaceChildren(...sources(fanout));
    this.#reposts.replaceChildren(...reposts(fanout.reposts));
  }

  #draw() {
    if (!this.#fanout) return;
    const drawn = picture(this.#fanout, this.#ways.clientWidth - 40);
    this.#ways.replaceChildren(...ways(this.#fanout, drawn));
  }
}

function ways(fanout, drawn) {
  const title = element('h3', {}, 'Fan-out');
  if (fanout.state === 'gone') {
    return [title, element('p', { class: 'hint' }, 'The server keeps details of its newest posts only. This one is older.')];
  }
  const whole = element('p', { class: 'lead' }, element('b', { class: 'value' }, count(fanout.followers)), ` ${fanout.followers === 1 ? 'follower' : 'followers'}`);
  const words = drawn ? [drawn] : [element('p', { class: 'hint' }, fanout.followers ? inWords(fanout) : 'Nobody follows a source of this post.')];
  const isTwice = fanout.already_there > 0 && fanout.sources.length > 1;
  const twice = isTwice ? [element('p', { class: 'hint' }, 'Who follows several sources of the post counts at each of them, and gets it once.')] : [];
  return [title, whole, ...words, ...twice, steps(fanout)];
}

/** What happened when. */
function steps({ accepted_at: accepted, started_after_us: started, first_delivery_after_us: first, finished_after_us: finished }) {
  const after = (us) => (us === null ? '–' : `+ ${latency(us)}`);
  const all = [
    ['Accepted', element('span', { title: moment(accepted) }, clock(accepted))],
    ['Fan-out begun', after(started)],
    ['First inbox', after(first)],
    ['Last inbox', after(finished)],
  ];
  return element('ol', { class: 'steps', 'aria-label': 'Times' }, ...all.map(([name, value]) => element('li', {}, element('span', { class: 'hint' }, name), element('b', {}, value))));
}

function sources({ sources: all }) {
  const title = element('h3', { id: 'sources-title' }, 'Sources');
  if (!all.length) return [title, element('p', { class: 'hint' }, 'Not known any more.')];
  const row = ({ id, route, followers, decided_by: by }) =>
    element(
      'tr',
      {},
      element('th', { scope: 'row' }, id.includes(':') ? id : link(id)),
      element('td', {}, count(followers)),
      element('td', { class: 'start' }, route === 'push' ? 'pushed' : 'pulled'),
      element('td', { class: 'start' }, DECIDED[by] ?? by),
    );
  const head = ['Source', 'Followers', 'Route', 'Decided'].map((name, nth) => element('th', { scope: 'col', class: nth > 1 ? 'start' : null }, name));
  const table = element('table', { 'aria-labelledby': 'sources-title' }, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...all.map(row)));
  return [title, element('div', { class: 'scroll', role: 'region', tabindex: 0, 'aria-labelledby': 'sources-title' }, table)];
}

function reposts({ count: found, complete, items }) {
  const many = complete ? count(found) : `at least ${count(found)}`;
  const title = element('h3', {}, found ? `Reposts: ${many}` : 'Reposts');
  if (!found) return [title, element('p', { class: 'hint' }, 'Nobody has reposted it.')];
  const shown = items.length < found ? [element('p', { class: 'hint' }, `The newest ${count(items.length)}:`)] : [];
  const row = ({ user, post, at, hidden }) =>
    element('li', {}, element('span', {}, link(user), element('span', { class: 'hint' }, ' ', time(at), hidden ? ' · hidden' : '')), element('span', { class: 'hint' }, `post ${post}`));
  return [title, ...shown, element('ul', { class: 'rows' }, ...items.map(row))];
}

function visitUser(event) {
  const user = event.target.closest('a[data-user]')?.dataset.user;
  if (!user || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go({ tab: 'reader', user, post: place().post });
}

/** The beginning of what a post says. */
function textOf({ body, id }) {
  const text = typeof body?.text === 'string' && body.text.trim() ? body.text.trim() : `post ${id}`;
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

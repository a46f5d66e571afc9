// Why a reader's feed is as it is: whom it follows, what its inbox holds, why a post shows or not.

import { ask, userPath } from './api.js';
import { act, byId, confirmed, element, facts, say } from './dom.js';
import { ago, blocker, count, moment, reason, route } from './words.js';

/** The part of the page that looks into a feed. */
export class Inspector {
  #user = null;
  #next = null;

  constructor() {
    byId('follow').addEventListener('submit', (event) => this.#changeFollow(event));
    byId('following').addEventListener('click', (event) => this.#unfollowRow(event));
    byId('only-hidden').addEventListener('change', () => this.#list());
    byId('more-following').addEventListener('click', (event) => this.#listMore(event.currentTarget));
    byId('verify').addEventListener('click', (event) => this.#compare('verify', event.currentTarget));
    byId('rebuild').addEventListener('click', (event) => this.#rebuild(event.currentTarget));
    byId('explain').addEventListener('submit', (event) => {
      event.preventDefault();
      this.explain(event.target.elements.post.value);
    });
  }

  /** Shows what there is to know about a reader. */
  show(user) {
    this.#user = user;
    byId('no-reader').hidden = Boolean(user);
    byId('inspector').hidden = !user;
    ['verdict', 'explanation', 'about'].forEach((id) => byId(id).replaceChildren());
    ['about-note', 'follow-note', 'verify-note', 'explain-note'].forEach((id) => say(byId(id), ''));
    if (user) this.refresh();
  }

  /** Says why a post is in the feed, or not. */
  explain(post) {
    const form = byId('explain');
    form.elements.post.value = post;
    return act(form, byId('explain-note'), async () => {
      byId('explanation').replaceChildren();
      const { json } = await ask('GET', userPath(this.#user, 'feed', 'explain', post));
      byId('explanation').replaceChildren(...this.#explanation(json, post));
    });
  }

  /** Asks anew whom the reader follows, and who follows the reader. */
  refresh() {
    this.#about();
    this.#list();
  }

  async #about() {
    const user = this.#user;
    try {
      const { json } = await ask('GET', userPath(user));
      if (user !== this.#user) return;
      const seen = json.last_seen ? element('span', { title: moment(json.last_seen) }, ago(json.last_seen)) : 'never';
      byId('about').replaceChildren(
        ...facts([
          ['Follows', count(json.following)],
          ['Followers', count(json.followers)],
          ['Posts', count(json.posts)],
          ['Posts are', json.celebrity ? 'pulled: a celebrity' : 'pushed'],
          ['Inbox is', json.active ? 'kept' : 'asleep'],
          ['Last read', seen],
        ]),
      );
      say(byId('about-note'), '');
    } catch (refusal) {
      const isNew = refusal.status === 404;
      say(byId('about-note'), isNew ? 'Nobody has heard of this user yet.' : refusal.message, !isNew);
    }
  }

  async #changeFollow(event) {
    event.preventDefault();
    const form = event.target;
    const source = form.elements.source.value.trim();
    const isFollow = event.submitter?.value !== 'unfollow';
    const change = isFollow ? this.#follow(source) : this.#unfollow(source);
    if (!(await act(form, byId('follow-note'), change))) return;
    form.elements.source.value = '';
    this.refresh();
  }

  #follow(source) {
    return async () => {
      const { json } = await ask('PUT', userPath(this.#user, 'following', source));
      return json.created ? `${this.#user} follows ${source} now.` : `${this.#user} follows ${source} already.`;
    };
  }

  #unfollow(source) {
    return async () => {
      const path = userPath(this.#user, 'following', source);
      await ask('DELETE', byId('keep').checked ? `${path}?keep=true` : path);
      return `${this.#user} does not follow ${source} any more.`;
    };
  }

  async #unfollowRow(event) {
    const button = event.target.closest('button[data-source]');
    if (!button) return;
    if (await act(button, byId('follow-note'), this.#unfollow(button.dataset.source))) {
      this.refresh();
      byId('source').focus();
    }
  }

  #list() {
    this.#next = null;
    return this.#listMore(byId('more-following'));
  }

  #listMore(button) {
    const user = this.#user;
    const query = new URLSearchParams({ limit: 10 });
    const isFirst = this.#next === null;
    if (!isFirst) query.set('cursor', this.#next);
    if (byId('only-hidden').checked) query.set('hidden', 'true');
    const note = byId('about-note');
    return this.#page(`${userPath(user, 'following')}?${query}`, isFirst, user).catch((refusal) => {
      say(note, refusal.message, true);
      button.hidden = true;
    });
  }

  async #page(path, isFirst, user) {
    const { json } = await ask('GET', path);
    if (user !== this.#user) return;
    const rows = json.items.map(({ id, since }) =>
      element(
        'li',
        {},
        element('span', {}, id, element('span', { class: 'hint', title: moment(since) }, ` since ${ago(since)}`)),
        element('button', { type: 'button', class: 'quiet', 'data-source': id, 'aria-label': `Unfollow ${id}` }, 'Unfollow'),
      ),
    );
    if (isFirst && !rows.length) rows.push(element('li', { class: 'hint' }, 'None.'));
    if (isFirst) byId('following').replaceChildren(...rows);
    else byId('following').append(...rows);
    this.#next = json.next;
    byId('more-following').hidden = json.next === null;
  }

  async #rebuild(button) {
    const text = `The inbox of ${this.#user} is thrown away and built anew from what it follows. Nothing is lost by it.`;
    if (await confirmed('Rebuild this inbox?', text, 'Rebuild')) this.#compare('rebuild', button);
  }

  #compare(what, button) {
    return act(button, byId('verify-note'), async () => {
      byId('verdict').replaceChildren();
      const { json } = await ask('POST', userPath(this.#user, 'feed', what));
      byId('verdict').replaceChildren(...facts(verdict(json)));
      const found = json.good ? 'The inbox was right' : 'The inbox was not right';
      return what === 'rebuild' ? `${found}. It is built anew.` : `${found}.`;
    });
  }

  #explanation({ shown, reasons, blockers, route: way }, post) {
    const list = (title, lines) => [element('p', {}, title), element('ul', {}, ...lines.map((line) => element('li', {}, line)))];
    const parts = [element('p', { class: 'verdict' }, shown ? `Post ${post} is in the feed.` : `Post ${post} is not in the feed.`)];
    if (reasons.length) parts.push(...list('What brings it:', reasons.map((one) => reason(one, this.#user))));
    if (blockers.length) parts.push(...list('What speaks against it:', blockers.map((one) => blocker(one, this.#user))));
    if (!reasons.length && !blockers.length) parts.push(element('p', {}, 'Nothing brings it.'));
    if (route(way)) parts.push(element('p', { class: 'hint' }, route(way)));
    if (blockers.some(({ kind, post: id }) => kind === 'hidden' && id === post)) parts.push(this.#unhideButton(post));
    return parts;
  }

  #unhideButton(post) {
    const button = element('button', { type: 'button' }, `Unhide post ${post}`);
    button.addEventListener('click', async () => {
      const unhide = () => ask('PATCH', `/v1/posts/${post}`, { hidden: false }).then(() => '');
      if (await act(button, byId('explain-note'), unhide)) this.explain(post);
    });
    return button;
  }
}

function verdict({ entries, rebuilt, floor, missing, extra, under_way: underWay, stale }) {
  const posts = (ids) => (ids.length ? `${ids.length}: ${ids.slice(0, 5).join(', ')}${ids.length > 5 ? ', …' : ''}` : 'none');
  return [
    ['Entries', count(entries)],
    ['Entries when built anew', count(rebuilt)],
    ['Floor', floor ?? 'none: all is in it'],
    ['Missing', posts(missing)],
    ['Too many', posts(extra)],
    ['Deliveries under way', count(underWay)],
    ['Not shown any more', count(stale)],
  ];
}

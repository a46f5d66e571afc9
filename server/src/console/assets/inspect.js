// What is known of a reader: whom it follows, what its inbox holds, why a post is missing.

import { LONG_MS, ask, userPath } from './api.js';
import { abandon, act, byId, confirmed, element, facts, say } from './dom.js';
import { explanation } from './explain.js';
import { ago, count, moment } from './words.js';

/** The part of the page beside the feed. */
export class Inspector {
  #user = null;
  #next = null;
  /** The list of sources that is asked for. */
  #listing = null;

  constructor() {
    byId('follow').addEventListener('submit', (event) => this.#changeFollow(event));
    byId('following').addEventListener('click', (event) => this.#unfollowRow(event));
    byId('only-hidden').addEventListener('change', () => this.#list());
    byId('more-following').addEventListener('click', () => this.#listing || this.#listMore(false));
    byId('verify').addEventListener('click', (event) => this.#compare('verify', event.currentTarget));
    byId('rebuild').addEventListener('click', (event) => this.#rebuild(event.currentTarget));
    byId('explain').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#explain(event.target.elements.post.value);
    });
  }

  /** Shows what there is to know about a reader. */
  show(user) {
    this.#user = user;
    this.#listing = null;
    [...['verify', 'rebuild', 'explain', 'follow'].map(byId), ...byId('following').querySelectorAll('button')].forEach(abandon);
    byId('inspector').hidden = !user;
    byId('inspect-title').textContent = `About ${user}`;
    ['verdict', 'explanation', 'about', 'following'].forEach((id) => byId(id).replaceChildren());
    ['about-note', 'follow-note', 'verify-note', 'explain-note'].forEach((id) => say(byId(id), ''));
    if (user) this.refresh();
  }

  /** Asks anew whom the reader follows, and who follows the reader. */
  refresh() {
    this.#about();
    this.#list();
  }

  #explain(post) {
    const form = byId('explain');
    const user = this.#user;
    form.elements.post.value = post;
    return act(form, byId('explain-note'), async (isWanted) => {
      byId('explanation').replaceChildren();
      const made = await explanation(user, post, (again) => user === this.#user && this.#explain(again));
      if (isWanted()) byId('explanation').replaceChildren(made);
    });
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
      if (user !== this.#user) return;
      const isNew = refusal.status === 404;
      say(byId('about-note'), isNew ? 'This user is not known yet.' : refusal.message, !isNew);
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
    const user = this.#user;
    return async () => {
      const { json } = await ask('PUT', userPath(user, 'following', source));
      return json.created ? `${user} follows ${source} now.` : `${user} follows ${source} already.`;
    };
  }

  #unfollow(source) {
    const user = this.#user;
    return async () => {
      const path = userPath(user, 'following', source);
      await ask('DELETE', byId('keep').checked ? `${path}?keep=true` : path);
      return `${user} does not follow ${source} any more.`;
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
    return this.#listMore(true);
  }

  /** Asks for the first sources, or for more. What is asked for before the answer comes is shown in its place. */
  async #listMore(isFirst) {
    const [user, button, listing] = [this.#user, byId('more-following'), {}];
    const query = new URLSearchParams({ limit: 10 });
    if (!isFirst) query.set('cursor', this.#next);
    if (byId('only-hidden').checked) query.set('hidden', 'true');
    this.#listing = listing;
    button.setAttribute('aria-busy', 'true');
    try {
      const { json } = await ask('GET', `${userPath(user, 'following')}?${query}`);
      if (listing !== this.#listing) return;
      if (!isFirst) say(byId('about-note'), '');
      this.#showSources(json, isFirst);
    } catch (refusal) {
      if (listing !== this.#listing) return;
      say(byId('about-note'), refusal.message, true);
      if (isFirst) button.hidden = true;
    } finally {
      if (listing === this.#listing) {
        this.#listing = null;
        button.removeAttribute('aria-busy');
      }
    }
  }

  #showSources({ items, next }, isFirst) {
    const rows = items.map(({ id, since }) =>
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
    this.#next = next;
    byId('more-following').hidden = next === null;
  }

  async #rebuild(button) {
    const user = this.#user;
    const text = `The inbox of ${user} is dropped and built anew from what it follows. No post is lost by it.`;
    // The button Back of the browser leads to another reader, whatever is asked.
    if ((await confirmed('Rebuild this inbox?', text, 'Rebuild')) && user === this.#user) this.#compare('rebuild', button);
  }

  #compare(what, button) {
    return act(button, byId('verify-note'), async (isWanted) => {
      byId('verdict').replaceChildren();
      const { json } = await ask('POST', userPath(this.#user, 'feed', what), undefined, LONG_MS);
      if (!isWanted()) return '';
      byId('verdict').replaceChildren(...facts(verdict(json)));
      const found = json.good ? 'The inbox was right' : 'The inbox was not right';
      return what === 'rebuild' ? `${found}. It is built anew.` : `${found}.`;
    });
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

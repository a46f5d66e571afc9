// One post: its content, fan-out, replies and reposts.

import { ask } from './api.js';
import { copyButton } from './copy.js';
import { act, byId, confirmed, element, say } from './dom.js';
import { inWords, picture } from './fanout.js';
import { Poll } from './poll.js';
import { bodyElement, heading, labels, link, postLink, refreshTimes, time } from './post.js';
import { watchStats } from './shell.js';
import { fill, table } from './table.js';
import { clock, count, latency, moment } from './words.js';

const WHILE_DELIVERING_MS = 1000;
const LATER_MS = 10_000;
const NEWEST = 12;
/** The number of last events that are searched for the newest posts. */
const EVENTS_BACK = 200;
const STATES = {
  queued: ['Queued for fan-out', ''],
  delivering: ['Delivering', ''],
  delivered: ['Delivered', 'good'],
  pulled: ['Nothing to push', 'good'],
  gone: ['No details', ''],
  denied: ['This key has no access to the fan-out', ''],
};
const DECIDED = {
  setting: 'by the settings',
  followers: 'by the number of followers',
  cost: 'by their cost',
};

/** How the option decides the routes. The responses of the server do not have its value. */
const ROUTES = {
  followers: 'Sources with more followers than --celebrity-followers are pulled. The default is 10,000; the demo has a lower number.',
  cost: 'The server compares the costs of pushing and of pulling the source: --celebrity-followers auto.',
  setting: 'The server treats all sources alike: --celebrity-followers is 0 or off.',
};

const id = new URLSearchParams(location.search).get('post')?.trim() ?? '';
const path = `/v1/posts/${encodeURIComponent(id)}`;

/** The last event of the journal that was searched for the newest posts. */
let lookedAt = null;
/** The event after which the journal has all events, if a refusal has named it. */
let oldest = 0;

/** Lists posts to choose from. */
async function choose({ journal, fanout_latency: buckets }) {
  fill(byId('latency'), latencies(buckets));
  byId('choose').hidden = false;
  if (!journal) return say(byId('newest-note'), 'Type the id of a post into the search above. This server has no journal, so the newest posts are not listed.');
  refreshTimes(byId('newest'));
  if (journal.sequence === lookedAt) return;
  lookedAt = journal.sequence;
  const lines = await newestSince(Math.max(0, journal.sequence - EVENTS_BACK)).catch((refusal) => say(byId('newest-note'), refusal.message, true));
  if (!lines) return;
  const posts = lines.text.split('\n').filter(Boolean).map((line) => JSON.parse(line).post).filter(Boolean);
  const none = 'The last changes contain no post. Type the id of an older post into the search above, or publish one.';
  say(byId('newest-note'), posts.length ? 'Type the id of a post into the search above, or choose one.' : none);
  fill(byId('newest'), posts.reverse().slice(0, NEWEST).map(choice));
}

/** The posts among the events after `after`. If the journal no longer has all of these, for example after a snapshot, those that it has. */
async function newestSince(after) {
  const read = (from) => ask('GET', `/v1/changes?${new URLSearchParams({ after: from, types: 'published', limit: EVENTS_BACK })}`);
  return read(oldest > after ? oldest : after).catch((refusal) => {
    // The position of one journal is invalid in another one.
    oldest = refusal.status === 410 ? (refusal.oldest ?? 0) : 0;
    if (!oldest) throw refusal;
    return read(oldest);
  });
}

const choice = (post) =>
  element('li', {}, element('span', {}, postLink(post.id), ' by ', link(post.author)), element('span', { class: 'hint' }, time(post.published_at)), element('span', { class: 'hint' }, textOf(post)));

function latencies(buckets) {
  if (!buckets.length) return element('p', { class: 'hint' }, 'No post was delivered in the last seconds.');
  const times = ({ count: posts, p50_us: median, p99_us: high, max_us: most }) => [median, high, most].map((us) => latency(posts ? us : null));
  const rows = buckets.map((bucket) => [bucket.followers.replace('-', '–'), count(bucket.count), ...times(bucket)]);
  return table('latency-title', ['Followers', '#Posts', '#p50', '#p99', '#Slowest'], rows);
}

/** The beginning of the text of a post. */
function textOf({ body, repost_of: reposted }) {
  const text = typeof body?.text === 'string' && body.text.trim() ? body.text.trim() : reposted ? `a repost of ${reposted}` : '';
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** The page of one post. */
class PostPage {
  #fanout = null;
  #shown = '';
  #post = null;
  #shownReplies = '';
  #said = element('div', { class: 'said' });
  #note = element('span', { class: 'note', role: 'status' });
  #isDeleted = false;
  #hide;

  constructor() {
    this.#prepare();
    byId('post-title').textContent = `Post ${id}`;
    document.title = `Post ${id} · Tidewire console`;
    byId('raw-head').append(copyButton(byId('raw')));
    new ResizeObserver(() => this.#draw()).observe(byId('fanout'));
    this.poll = new Poll(
      () => (['queued', 'delivering'].includes(this.#fanout?.state) ? WHILE_DELIVERING_MS : LATER_MS),
      () => this.#read(),
    );
  }

  async #read() {
    if (this.#isDeleted) return;
    try {
      const replies = ask('GET', `${path}/replies?limit=${NEWEST}`).catch((refusal) => ({ refusal }));
      const [{ json: post }, { json: fanout }] = await Promise.all([ask('GET', path), ask('GET', `${path}/fanout`).catch(withoutFanout)]);
      // It was deleted meanwhile.
      if (this.#isDeleted) return;
      [this.#fanout, this.#post] = [fanout, post];
      say(byId('post-note'), '');
      byId('post-state').hidden = byId('post-view').hidden = false;
      this.#fillReplies(await replies);
      const now = JSON.stringify([post, fanout]);
      // Unchanged content is not redrawn, so that a selection stays.
      if (now === this.#shown) return refreshTimes(byId('post-view'));
      this.#shown = now;
      this.#fill(post, fanout);
    } catch (refusal) {
      if (this.#isDeleted) return;
      say(byId('post-note'), refusal.status === 404 ? `Post ${id} is unknown. It may have been deleted.` : refusal.message, true);
      if (refusal.status === 404) byId('post-state').hidden = byId('post-view').hidden = true;
      throw refusal;
    }
  }

  #fillReplies({ json: page, refusal }) {
    const now = refusal?.message ?? JSON.stringify([page.items, page.next]);
    if (now === this.#shownReplies) return;
    this.#shownReplies = now;
    fill(byId('replies'), refusal ? [element('h3', {}, 'Replies'), element('p', { class: 'note error' }, refusal.message)] : repliesOf(page));
  }

  #fill(post, fanout) {
    const [text, how] = STATES[fanout.state] ?? [fanout.state, ''];
    byId('post-state').textContent = text;
    byId('post-state').dataset.how = how;
    const about = [
      post.reply_to && element('p', { class: 'hint' }, 'replies to ', postLink(post.reply_to)),
      post.repost_of && element('p', { class: 'hint' }, 'repost of ', postLink(post.repost_of)),
      post.hidden && element('p', { class: 'note warning' }, 'This post is hidden.'),
    ];
    fill(this.#said, [heading(post), bodyElement(post.body), labels(post), ...about].filter(Boolean));
    this.#hide.textContent = post.hidden ? 'Unhide' : 'Hide';
    this.#draw();
    fill(byId('sources'), sources(fanout));
    fill(byId('reposts'), reposts(fanout.reposts));
    byId('raw').textContent = JSON.stringify({ post, fanout }, null, 2);
  }

  /** Makes the buttons once: they keep the focus and the note beside them when the post changes. */
  #prepare() {
    const button = (text, action, kind = null) => {
      const made = element('button', { type: 'button', class: kind }, text);
      made.addEventListener('click', () => action(made));
      return made;
    };
    const change = (made, method, body, said) =>
      act(made, this.#note, async () => {
        await ask(method, path, body);
        this.poll.wake(true);
        return said;
      });
    const remove = async (made) => {
      const text = `This deletes post ${id} by ${this.#post.author} for all readers. You cannot undo it.`;
      if (!(await confirmed('Delete this post?', text, 'Delete'))) return;
      if (await act(made, this.#note, () => ask('DELETE', path).then(() => 'Deleted.'))) this.#sayDeleted();
    };
    this.#hide = button('Hide', (made) => change(made, 'PATCH', { hidden: !this.#post.hidden }, this.#post.hidden ? 'Unhidden.' : 'Hidden.'));
    const actions = [button('Edit…', () => this.#edit()), this.#hide, button('Delete…', remove, 'danger'), this.#note];
    byId('post').append(this.#said, element('p', { class: 'actions' }, ...actions));
  }

  /** Reduces the page to a note. It sends no more requests for the post. */
  #sayDeleted() {
    this.#isDeleted = true;
    byId('post-state').hidden = byId('post-view').hidden = true;
    say(byId('post-note'), '');
    const newest = element('a', { href: '/console/posts' }, 'Newest posts');
    byId('post-note').append('Deleted. ', newest);
    newest.focus();
  }

  /** Opens an editor of the body, as JSON. */
  #edit() {
    const body = element('textarea', { rows: 8, spellcheck: 'false' });
    body.value = JSON.stringify(this.#post.body, null, 2);
    const cancel = element('button', { type: 'button' }, 'Cancel');
    const form = element('form', { class: 'fields edit' }, element('label', { class: 'wide' }, 'Body as JSON', body), element('p', { class: 'actions' }, element('button', { type: 'submit', class: 'primary' }, 'Save'), cancel));
    const close = () => {
      form.remove();
      byId('post').querySelector('button').focus();
    };
    cancel.addEventListener('click', close);
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const save = async () => {
        await ask('PATCH', path, { body: parsedBody(body.value) });
        return 'Saved.';
      };
      if (!(await act(form, this.#note, save))) return;
      close();
      this.poll.wake(true);
    });
    byId('post').querySelector('.edit')?.remove();
    byId('post').append(form);
    body.focus();
  }

  #draw() {
    if (!this.#fanout) return;
    const drawn = picture(this.#fanout, byId('fanout').clientWidth - 40);
    byId('fanout').replaceChildren(...ways(this.#fanout, drawn));
  }
}

/** A user's token may read the post of the user, but not its fan-out. */
function withoutFanout(refusal) {
  if (refusal.status !== 403) throw refusal;
  return { json: { state: 'denied', sources: [], reposts: { count: 0, complete: true, items: [] } } };
}

function parsedBody(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}.`);
  }
}

function ways(fanout, drawn) {
  const title = element('h3', {}, 'Fan-out');
  if (fanout.state === 'denied') return [title, element('p', { class: 'hint' }, 'Use a server key to read it.')];
  if (fanout.state === 'gone') {
    return [title, element('p', { class: 'hint' }, 'The server retains details of its newest posts only. This post is older.')];
  }
  const whole = element('p', { class: 'lead' }, element('b', { class: 'value' }, count(fanout.followers)), ` ${fanout.followers === 1 ? 'follower' : 'followers'}`);
  const words = drawn ? [drawn] : [element('p', { class: 'hint' }, fanout.followers ? inWords(fanout) : 'Nobody follows a source of this post.')];
  const followed = fanout.sources.filter(({ followers }) => followers > 0);
  if (followed.length > 1) whole.append(element('span', { class: 'hint' }, ': ', ...followed.flatMap(({ id: source, followers }, nth) => [nth ? ', ' : '', `${count(followers)} of `, link(source)])));
  const twice = followed.length > 1 ? [element('p', { class: 'hint' }, 'A reader who follows several sources of the post counts for each of them, and gets the post once.')] : [];
  return [title, whole, ...words, ...twice, steps(fanout)];
}

/** The finished steps of the fan-out, with their times. */
function steps({ state, accepted_at: accepted, started_after_us: started, first_delivery_after_us: first, finished_after_us: finished }) {
  const after = (us) => (us === null ? null : `+ ${latency(us)}`);
  const all = [
    ['Accepted', element('span', { title: moment(accepted) }, clock(accepted))],
    ['Fan-out started', after(started)],
    ['First inbox', after(first)],
    [first === null ? 'Fan-out done' : 'Last inbox', state === 'pulled' ? null : after(finished)],
  ].filter(([, value]) => value !== null);
  return element('ol', { class: 'steps', 'aria-label': 'Times' }, ...all.map(([name, value]) => element('li', {}, element('span', { class: 'hint' }, name), element('b', {}, value))));
}

function sources({ sources: all }) {
  const title = element('h3', { id: 'sources-title' }, 'Sources');
  if (!all.length) return [title, element('p', { class: 'hint' }, 'No longer known.')];
  const row = ({ id: source, route, followers, decided_by: by }) => [
    link(source),
    count(followers),
    route === 'push' ? 'pushed' : 'pulled',
    DECIDED[by] ?? by,
  ];
  return [title, table('sources-title', ['Source', '#Followers', 'Route', 'Decided'], all.map(row)), element('p', { class: 'hint' }, ROUTES[all[0].decided_by] ?? '')];
}

function reposts({ count: found, complete, items }) {
  const many = complete ? count(found) : `at least ${count(found)}`;
  const title = element('h3', {}, found ? `Reposts: ${many}` : 'Reposts');
  if (!found) return [title, element('p', { class: 'hint' }, 'Nobody has reposted it.')];
  const shown = items.length < found ? [element('p', { class: 'hint' }, `The newest ${count(items.length)}:`)] : [];
  const row = ({ user, post, at, hidden }) =>
    element('li', {}, element('span', {}, link(user), element('span', { class: 'hint' }, ' ', time(at), hidden ? ' · hidden' : '')), element('span', { class: 'hint' }, postLink(post)));
  return [title, ...shown, element('ul', { class: 'rows' }, ...items.map(row))];
}

function repliesOf({ items, next, partial }) {
  const title = element('h3', {}, 'Replies');
  const isAll = next === null && !partial.length;
  if (!items.length && isAll) return [title, element('p', { class: 'hint' }, 'Nobody has replied.')];
  const all = link(`replies:${id}`, 'All replies');
  const newest = isAll ? [] : [element('p', { class: 'hint' }, items.length ? `The newest ${count(items.length)}. ` : 'Older ones only. ', all)];
  return [title, ...newest, element('ul', { class: 'choices' }, ...items.map(({ post }) => choice(post)))];
}

if (id) new PostPage();
else watchStats(choose);

// One reader: feed, follows, settings and administration. Each part has its own address.

import { ask, userPath } from './api.js';
import { byId, element, facts, say } from './dom.js';
import { prepareAdministration } from './administration.js';
import { FeedView } from './feed.js';
import { prepareFollowers, prepareFollows } from './follows.js';
import { DENIED, Poll } from './poll.js';
import { preparePreference } from './preferences.js';
import { aboutSource, isUser, noteReader, readerUrl, recentReaders, sourcesBy } from './search.js';
import './shell.js';
import { showPosts } from './source_posts.js';
import { fill } from './table.js';
import { ago, count, moment } from './words.js';

const EVERY_MS = 10_000;
const PARTS = {
  feed: 'Feed',
  follows: 'Follows',
  followers: 'Followers',
  rules: 'Rules',
  mutes: 'Mutes & blocks',
  lists: 'Lists',
  marker: 'Marker',
  administration: 'Administration',
};

/** The parts of a tag, a topic or the replies to a post. These have no feed and no settings. */
const SOURCE_PARTS = { feed: 'Posts', followers: 'Followers' };

const query = new URLSearchParams(location.search);
const user = query.get('user')?.trim() ?? '';
const parts = isUser(user) ? PARTS : SOURCE_PARTS;
const part = Object.hasOwn(parts, query.get('part') ?? '') ? query.get('part') : 'feed';

/** Lists readers to choose from. */
async function choose() {
  byId('choose').hidden = false;
  const choice = (reader, about) =>
    element('li', {}, element('a', { href: readerUrl(reader.id ?? reader) }, element('span', { class: reader.active ? 'dot awake' : 'dot', 'aria-hidden': 'true' }), reader.id ?? reader), ...about);
  const recent = recentReaders();
  byId('recent').hidden = !recent.length;
  byId('recent').querySelector('ul').replaceChildren(...recent.map((reader) => choice(reader, [])));
  try {
    const readers = await sourcesBy('');
    byId('suggested').replaceChildren(...readers.map((reader) => choice(reader, [element('span', { class: 'hint' }, aboutSource(reader))])));
    if (!readers.length) byId('suggested-note').textContent = 'There are no readers yet. The first post, with “Publish…”, or the first follow creates one.';
  } catch (refusal) {
    say(byId('suggested-note'), refusal.message, true);
  }
}

/** The summary of a source. It does not read the feed. */
function inShort({ following, followers, posts, celebrity, active, last_seen: at }) {
  const seen = at ? element('span', { title: moment(at) }, ago(at)) : 'never';
  const ofSource = [
    ['Followers', count(followers)],
    ['Posts', count(posts)],
    ['Posts are', celebrity ? 'pulled: a celebrity' : 'pushed'],
  ];
  if (!isUser(user)) return ofSource;
  return [['Follows', count(following)], ...ofSource, ['Reader is', active ? 'awake' : 'asleep'], ['Last read', seen]];
}

const isUnknown = () => (isUser(user) ? `${user} is unknown: no posts, no follows, never read.` : `${user} is unknown: no posts, no followers.`);

/**
 * Polls the summary of the reader.
 * @param {(source: object|null) => void} known is called with each response; with null if the reader is unknown
 * @param {() => void} denied is called if this key has no access
 */
function watchAbout(known, denied) {
  return new Poll(
    () => EVERY_MS,
    async () => {
      try {
        const { json } = await ask('GET', userPath(user));
        fill(byId('about'), inShort(json).map((pair) => element('div', {}, ...facts([pair]))));
        say(byId('about-note'), '');
        noteReader(user);
        known(json);
      } catch (refusal) {
        const isNew = refusal.status === 404;
        say(byId('about-note'), isNew ? isUnknown() : refusal.message, !isNew);
        if (isNew) known(null);
        else if (DENIED.includes(refusal.status)) denied();
        throw refusal;
      }
    },
  );
}

/** The feed. The page reads it at once only if the reader is awake: reading wakes a reader, and changes when the reader was last seen. */
class FeedPart {
  #view;
  #isOpen = false;

  /** @param {() => void} changed is called when the summary of the reader may have changed */
  constructor(changed) {
    this.#view = new FeedView(user, changed);
    byId('read-feed').addEventListener('click', () => this.open());
  }

  /** Opens the feed if the reader is awake, otherwise shows why it is not open. */
  known(source) {
    if (this.#isOpen) return;
    if (source?.active) return this.open();
    byId('asleep').hidden = false;
    const text = !source ? `${user} has no feed yet.` : source.last_seen ? `${user} is asleep, and last read this feed at ${moment(source.last_seen)}.` : `${user} has never read this feed.`;
    // A screen reader reads it aloud when it changes.
    if (byId('asleep-text').textContent !== text) byId('asleep-text').textContent = text;
  }

  open() {
    if (this.#isOpen) return;
    this.#isOpen = true;
    // The button goes away when the reader wakes elsewhere, and it may have the focus.
    const hadFocus = byId('asleep').contains(document.activeElement);
    byId('asleep').hidden = true;
    if (hadFocus) byId('content').focus();
    this.#view.start();
  }
}

function showReader() {
  document.title = `${user} · Tidewire console`;
  byId('reader-title').textContent = part !== 'feed' ? user : isUser(user) ? `Feed of ${user}` : `Posts of ${user}`;
  byId('reader').hidden = false;
  const link = ([name, text]) => element('a', { href: readerUrl(user, name === 'feed' ? '' : name), 'aria-current': name === part ? 'page' : null }, text);
  byId('parts').append(...Object.entries(parts).map(link));
  byId('parts').querySelector('[aria-current]').scrollIntoView({ block: 'nearest', inline: 'center' });
  const panel = document.querySelector(`[data-part=${part}]`);
  panel.hidden = false;
  const changed = () => about.wake(true);
  const feed = part === 'feed' && isUser(user) ? new FeedPart(changed) : null;
  const about = watchAbout(
    (source) => feed?.known(source),
    // A user's token may read that user's feed. For any other token the feed shows the refusal.
    () => feed?.open(),
  );
  if (feed) return;
  if (part === 'feed') showPosts(user);
  else if (part === 'follows') prepareFollows(user, changed);
  else if (part === 'followers') prepareFollowers(user);
  else if (part === 'administration') prepareAdministration(user);
  else if (part === 'mutes') ['mutes', 'blocks'].forEach((list, nth) => preparePreference(list, user, panel.querySelectorAll('.card > div')[nth]));
  else preparePreference(part, user, panel);
}

if (user) showReader();
else choose();

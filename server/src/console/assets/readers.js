// One reader: the feed, and what else is known of the reader, each part at an address of its own.

import { ask, userPath } from './api.js';
import { byId, element, facts, say } from './dom.js';
import { prepareAdministration } from './administration.js';
import { FeedView } from './feed.js';
import { prepareFollowers, prepareFollows } from './follows.js';
import { Poll } from './poll.js';
import { preparePreference } from './preferences.js';
import { aboutSource, noteReader, readerUrl, recentReaders, sourcesBy } from './search.js';
import './shell.js';
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

const query = new URLSearchParams(location.search);
const user = query.get('user')?.trim() ?? '';
const part = Object.hasOwn(PARTS, query.get('part') ?? '') ? query.get('part') : 'feed';

/** Offers readers, where none is chosen. */
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
    if (!readers.length) byId('suggested-note').textContent = 'There is none yet. One comes with the first follow: search for a name, and follow somebody.';
  } catch (refusal) {
    say(byId('suggested-note'), refusal.message, true);
  }
}

/** What is known of the reader at a glance. */
function watchAbout() {
  return new Poll(
    () => EVERY_MS,
    async () => {
      try {
        const { json } = await ask('GET', userPath(user));
        const seen = json.last_seen ? element('span', { title: moment(json.last_seen) }, ago(json.last_seen)) : 'never';
        const known = [
          ['Follows', count(json.following)],
          ['Followers', count(json.followers)],
          ['Posts', count(json.posts)],
          ['Posts are', json.celebrity ? 'pulled: a celebrity' : 'pushed'],
          ['Inbox is', json.active ? 'kept' : 'asleep'],
          ['Last read', seen],
        ];
        fill(byId('about'), known.map((pair) => element('div', {}, ...facts([pair]))));
        say(byId('about-note'), '');
      } catch (refusal) {
        const isNew = refusal.status === 404;
        say(byId('about-note'), isNew ? 'This user is not known yet.' : refusal.message, !isNew);
        throw refusal;
      }
    },
  );
}

function showReader() {
  noteReader(user);
  document.title = `${user} · Tidewire console`;
  byId('reader-title').textContent = part === 'feed' ? `Feed of ${user}` : user;
  byId('reader').hidden = false;
  const link = ([name, text]) => element('a', { href: readerUrl(user, name === 'feed' ? '' : name), 'aria-current': name === part ? 'page' : null }, text);
  byId('parts').append(...Object.entries(PARTS).map(link));
  byId('parts').querySelector('[aria-current]').scrollIntoView({ block: 'nearest', inline: 'center' });
  const panel = document.querySelector(`[data-part=${part}]`);
  panel.hidden = false;
  const about = watchAbout();
  const changed = () => about.wake(true);
  if (part === 'feed') new FeedView(user, changed);
  else if (part === 'follows') prepareFollows(user, changed);
  else if (part === 'followers') prepareFollowers(user);
  else if (part === 'administration') prepareAdministration(user);
  else if (part === 'mutes') ['mutes', 'blocks'].forEach((list, nth) => preparePreference(list, user, panel.querySelectorAll('.card > div')[nth]));
  else preparePreference(part, user, panel);
}

if (user) showReader();
else choose();

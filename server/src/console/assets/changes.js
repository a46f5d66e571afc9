// What the server accepts, as it comes.

import { byId, say } from './dom.js';
import { Events } from './events.js';
import { watchStats } from './shell.js';
import { Tail } from './tail.js';
import { clock, plural } from './words.js';

const tail = new Tail(byId('changes'));
const STATES = { open: ['Live', 'good'], broken: ['Reconnecting…', 'bad'], refused: ['Refused', 'bad'] };
let events = null;

/** What a change is, in a few words. */
function inWords(change) {
  const { type, post, id, user, source, follows, unfollows, follower, list } = change;
  const edges = (all) => (all.length === 1 ? `${all[0].follower} → ${all[0].source}` : plural(all.length, 'follow'));
  if (post) return `post ${post.id} by ${post.author}${post.repost_of ? `, a repost of ${post.repost_of}` : ''}${post.reply_to ? `, answers ${post.reply_to}` : ''}`;
  if (type === 'follows_changed') return `${plural(follows.length, 'follow')}, ${plural(unfollows.length, 'unfollow')}`;
  if (follows) return edges(follows);
  if (follower) return edges([{ follower, source }]);
  if (id) return `post ${id}`;
  return [user, list && `list ${list}`, source && `→ ${source}`].filter(Boolean).join(' ');
}

function watch() {
  events?.close();
  tail.clear();
  byId('none-yet').hidden = false;
  const types = byId('types').value;
  events = new Events(`/v1/changes${types ? `?types=${types}` : ''}`, {
    state: (state, why) => {
      const [text, how] = STATES[state];
      byId('changes-state').textContent = text;
      byId('changes-state').dataset.how = how;
      say(byId('changes-note'), state === 'refused' ? why : '', true);
    },
    event: ({ event: kind, data }) => {
      const change = JSON.parse(data);
      if (kind === 'reached') return;
      byId('none-yet').hidden = true;
      tail.add(clock(Date.now()), kind, inWords(change), data);
    },
  });
}

byId('types').addEventListener('change', watch);
watchStats(({ journal }) => {
  if (events) return;
  if (journal) return watch();
  byId('changes-state').hidden = true;
  say(byId('changes-note'), 'This server keeps nothing on disk, and changes are read from the journal: start it with a data directory.', true);
});

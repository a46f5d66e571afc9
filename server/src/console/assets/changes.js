// The changes that the server accepts, live.

import { byId, say } from './dom.js';
import { Events } from './events.js';
import { isPaused, onPause, onResume } from './poll.js';
import { link, postLink } from './post.js';
import { watchStats } from './shell.js';
import { Tail } from './tail.js';
import { clock, plural } from './words.js';

const STATES = { open: ['Live', 'good'], broken: ['Reconnecting…', 'bad'], refused: ['Refused', 'bad'] };
const LOST = {
  sequence_in_future: 'The server has another journal now. New rows come from the new journal; rows below come from the old one. Changes between them may be missing.',
  gone: 'The journal no longer has all changes since then: some are missing here.',
};
const tail = new Tail(byId('changes'), sayEmpty);
let events = null;
let state = null;

/** A short description of a change, with links. */
function inWords(change) {
  const { type, post, id, user, source, follows, unfollows, follower, list } = change;
  const edges = (all) => (all.length === 1 ? [link(all[0].follower), ' → ', link(all[0].source)] : [plural(all.length, 'follow')]);
  if (post) {
    const more = [post.repost_of && [', a repost of ', postLink(post.repost_of)], post.reply_to && [', replies to ', postLink(post.reply_to)]];
    return [postLink(post.id), ' by ', link(post.author), ...more.filter(Boolean).flat()];
  }
  if (type === 'follows_changed') return [`${plural(follows.length, 'follow')}, ${plural(unfollows.length, 'unfollow')}`];
  if (follows) return edges(follows);
  if (follower) return edges([{ follower, source }]);
  // A link to a deleted post would lead nowhere.
  if (id) return [type === 'deleted' ? `post ${id}` : postLink(id)];
  return [user && link(user), list && ` list ${list}`, source && ' → ', source && link(source)].filter(Boolean);
}

/** The option of the filter that contains this kind. */
const groupOf = (kind) => [...byId('types').options].find(({ value }) => value.split(',').includes(kind))?.value ?? 'others';

function sayEmpty(shown, isAnyKept) {
  const text = isAnyKept ? 'No recent change is of this kind.' : 'Nothing has changed since you opened this page.';
  byId('none-yet').hidden = shown > 0;
  if (byId('none-yet').textContent !== text) byId('none-yet').textContent = text;
}

function showState() {
  if (state === null) return;
  const [text, how] = isPaused() && state !== 'refused' ? ['Paused', ''] : STATES[state];
  byId('changes-state').textContent = text;
  byId('changes-state').dataset.how = how;
}

function watch() {
  sayEmpty(0, false);
  // Requests all kinds: another choice shows earlier changes, which the server would not send again.
  events = new Events('/v1/changes', {
    state: (now, why) => {
      state = now;
      showState();
      if (state === 'refused') say(byId('changes-note'), why, true);
    },
    lost: (code) => {
      tail.separate(LOST[code]);
      say(byId('changes-note'), LOST[code]);
    },
    event: ({ event: kind, data }) => {
      if (kind === 'reached') return;
      say(byId('changes-note'), '');
      tail.add({ time: clock(Date.now()), kind, text: inWords(JSON.parse(data)), raw: data, group: groupOf(kind) });
    },
  });
}

byId('types').addEventListener('change', () => tail.filter(byId('types').value));
onPause(showState);
onResume(showState);
watchStats(({ journal }) => {
  if (events) return;
  if (journal) return watch();
  byId('changes-state').hidden = true;
  say(byId('changes-note'), 'This page reads changes from the journal, but this server stores nothing on disk: start it with a data directory.', true);
});

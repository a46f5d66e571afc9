// Live clients: their figures, and the messages to one of them.

import { userPath } from './api.js';
import { Charts, AWAKE, LIVE } from './charts.js';
import { byId, element, facts, say } from './dom.js';
import { Events } from './events.js';
import { isPaused, onPause, onResume } from './poll.js';
import { link, postLink } from './post.js';
import { watchStats } from './shell.js';
import { fill } from './table.js';
import { Tail } from './tail.js';
import { amount, clock, count } from './words.js';

new Charts([LIVE, AWAKE]);

watchStats(({ live, active, users }) => {
  const known = [
    ['Connections', count(live.connections)],
    ['Readers watched', count(live.readers)],
    ['Messages since the start', amount(live.messages)],
    ['Slow clients disconnected', count(live.cut_off)],
    ['Awake readers', `${count(active)} of ${count(users)} users and sources`],
  ];
  fill(byId('figures'), known.map((pair) => element('div', {}, ...facts([pair]))));
});

const STATES = { open: ['Live', 'good'], broken: ['Reconnecting…', 'bad'] };
const tail = new Tail(byId('messages'));
let events = null;
let state = null;

function showState() {
  const [text, how] = isPaused() ? ['Paused', ''] : (STATES[state] ?? ['', '']);
  byId('watch-state').hidden = state === null;
  byId('watch-state').textContent = text;
  byId('watch-state').dataset.how = how;
}

function stop() {
  events?.close();
  events = null;
  state = null;
  showState();
  byId('stop').hidden = true;
}

/** A short description of a message, with links. */
function textOf(data) {
  const { type, item, post, cursor, below, unread } = data;
  if (item) {
    const via = item.via.flatMap((source, nth) => [nth ? ', ' : ', via ', link(source)]);
    return [postLink(item.post.id), ' by ', link(item.post.author), ...via];
  }
  if (post?.author) return [postLink(post.id), ' by ', link(post.author)];
  // A link to a removed post would lead nowhere.
  if (post) return [`post ${post.id ?? post}`];
  if (type === 'stale') return [below === null ? 'read the whole feed again' : `read the feed again below ${below}`];
  if (type === 'marker') return [`read up to ${cursor}`];
  return type === 'unread' ? [`${count(unread)} unread`] : [];
}

byId('watch').addEventListener('submit', (event) => {
  event.preventDefault();
  stop();
  tail.clear();
  const user = byId('watched').value.trim();
  const note = byId('watch-note');
  const says = {
    open: () => say(note, `Watching the feed of ${user}.`),
    broken: () => say(note, 'Connection lost; reconnecting.', true),
    refused: (why) => {
      stop();
      say(note, why, true);
    },
  };
  byId('stop').hidden = false;
  events = new Events(userPath(user, 'events'), {
    state: (now, why) => {
      state = now;
      says[now](why);
      showState();
    },
    event: ({ event: kind, data }) => tail.add({ time: clock(Date.now()), kind, text: textOf(parsed(data)), raw: data }),
  });
});
byId('stop').addEventListener('click', () => {
  stop();
  say(byId('watch-note'), 'Stopped.');
});

onPause(showState);
onResume(showState);

function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

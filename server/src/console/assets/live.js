// Live clients: how many, what they are sent, and what one of them is sent.

import { userPath } from './api.js';
import { Charts, AWAKE, LIVE } from './charts.js';
import { byId, element, facts, say } from './dom.js';
import { Events } from './events.js';
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

const tail = new Tail(byId('messages'));
let events = null;

function stop() {
  events?.close();
  events = null;
  byId('stop').hidden = true;
}

function textOf(data) {
  const { type, item, post, cursor, below, unread } = data;
  if (item) return `post ${item.post.id} by ${item.post.author}${item.via.length ? `, by way of ${item.via.join(', ')}` : ''}`;
  if (post) return `post ${post.id ?? post}${post.author ? ` by ${post.author}` : ''}`;
  if (type === 'stale') return below === null ? 'the whole feed is to be read again' : `the feed is to be read again below ${below}`;
  if (type === 'marker') return `read up to ${cursor}`;
  return type === 'unread' ? `${count(unread)} unread` : '';
}

byId('watch').addEventListener('submit', (event) => {
  event.preventDefault();
  stop();
  tail.clear();
  const user = byId('watched').value.trim();
  const note = byId('watch-note');
  const says = {
    open: () => say(note, `Watching the feed of ${user}.`),
    broken: () => say(note, 'The connection broke; it is made again.', true),
    refused: (why) => {
      stop();
      say(note, why, true);
    },
  };
  byId('stop').hidden = false;
  events = new Events(userPath(user, 'events'), {
    state: (state, why) => says[state](why),
    event: ({ event: kind, data }) => tail.add(clock(Date.now()), kind, textOf(parsed(data)), data),
  });
});
byId('stop').addEventListener('click', () => {
  stop();
  say(byId('watch-note'), 'Stopped.');
});

function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

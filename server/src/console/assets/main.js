// The console: puts its parts together.

import { byId, element } from './dom.js';
import { FeedView, rememberHidden } from './feed.js';
import { Inspector } from './inspect.js';
import { Operations } from './operations.js';
import { Overview } from './overview.js';
import { Picker, aboutSource, sourcesBy } from './picker.js';
import { wakeAll } from './poll.js';
import { PostView } from './postview.js';
import { Preferences } from './preferences.js';
import { prepare, preparePublishing, suggestAuthor } from './publish.js';
import { prepareAccess, watchServer } from './status.js';
import { go, isShown, prepareTabs } from './tabs.js';

const TITLES = { overview: 'Overview', reader: 'Reader', post: 'Post', operations: 'Operations' };

const overview = new Overview();
const operations = new Operations(() => server.wake(true));
const inspector = new Inspector();
const preferences = new Preferences(() => feed.items[0]?.cursor ?? null);
const postView = new PostView();
const feed = new FeedView((action, subject) => {
  if (action === 'visit') visit(subject);
  else if (action === 'live') inspector.refresh();
  else if (action === 'marked') preferences.marked();
  else if (action === 'hidden') rememberHidden(subject);
  else if (action === 'fanout') go({ tab: 'post', post: subject.post.id });
  else prepare(action, subject);
});
const server = watchServer(async (stats, headers) => {
  if (isShown('operations')) operations.showStats(stats);
  if (isShown('overview')) await overview.showStats(stats, headers);
});

const visit = (user) => go({ tab: 'reader', user });

let shownUser = null;

/** Shows a place of the console. */
function show({ tab, user, post }) {
  const subject = { reader: user, post: post && `post ${post}` }[tab];
  document.title = `${subject || TITLES[tab]} · Tidewire console`;
  if (user !== shownUser) showReader(user);
  if (tab === 'reader' && !user) suggestReaders();
  postView.show(post, feed.items);
  // The statistics of a tab are asked for when it is opened, not up to some seconds later.
  server?.wake(true);
}

function showReader(user) {
  shownUser = user;
  byId('user').value = user;
  byId('suggested').hidden = true;
  suggestAuthor(user);
  feed.show(user);
  inspector.show(user);
  preferences.show(user);
}

/** Offers readers that exist, where none is chosen. */
async function suggestReaders() {
  const readers = await sourcesBy('').catch(() => null);
  if (shownUser || !readers) return;
  const choice = (reader) => {
    const button = element('button', { type: 'button' }, element('span', { class: reader.active ? 'dot awake' : 'dot', 'aria-hidden': 'true' }), reader.id);
    button.addEventListener('click', () => visit(reader.id));
    return element('li', {}, button, element('span', { class: 'hint' }, aboutSource(reader)));
  };
  byId('suggested').hidden = false;
  byId('empty').hidden = true;
  byId('suggested-list').replaceChildren(...readers.map(choice));
  byId('suggested-note').textContent = readers.length ? 'Those awake first.' : 'There is none yet. One comes with the first follow: enter a name above, and follow somebody.';
}

const picker = new Picker(byId('user'), byId('suggestions'), byId('choose-note'), visit);
byId('choose').addEventListener('submit', (event) => {
  event.preventDefault();
  picker.close();
  visit(byId('user').value.trim());
});
prepareAccess(() => {
  overview.restart();
  shownUser = null;
  dispatchEvent(new Event('place'));
});
preparePublishing();
prepareTabs(show);
wakeAll();

// The console: puts its parts together, and keeps the chosen reader in the address.

import { credential, useCredential } from './api.js';
import { byId } from './dom.js';
import { FeedView, rememberHidden } from './feed.js';
import { showFigures } from './figures.js';
import { Inspector } from './inspect.js';
import { prepare, preparePublishing, suggestAuthor } from './publish.js';

const inspector = new Inspector();
const feed = new FeedView((action, subject) => {
  if (action === 'visit') visit(subject);
  else if (action === 'live') inspector.refresh();
  else if (action === 'hidden') rememberHidden(subject);
  else if (action === 'explain') explain(subject.post.id);
  else prepare(action, subject);
});

let shown = null;

function explain(post) {
  inspector.explain(post);
  byId('explain').scrollIntoView({ block: 'center' });
  byId('explained').focus({ preventScroll: true });
}

function visit(user) {
  history.pushState(null, '', user ? `/console?user=${encodeURIComponent(user)}` : '/console');
  show();
}

const userOfAddress = () => new URLSearchParams(location.search).get('user')?.trim() ?? '';

/** Shows the reader that the address names. */
function show() {
  const user = (shown = userOfAddress());
  document.title = user ? `${user} · Tidewire console` : 'Tidewire console';
  byId('user').value = user;
  suggestAuthor(user);
  feed.show(user);
  inspector.show(user);
}

byId('choose').addEventListener('submit', (event) => {
  event.preventDefault();
  visit(byId('user').value.trim());
});
byId('credential').value = credential();
byId('identify').addEventListener('submit', (event) => {
  event.preventDefault();
  useCredential(byId('credential').value.trim());
  askForFigures();
  show();
});
// A link to a part of this page is in the history, too.
window.addEventListener('popstate', () => userOfAddress() !== shown && show());

const askForFigures = showFigures();
preparePublishing();
show();

// The tabs, and where in the console one is: `?user=…&post=…#tab`, so that a reload, a link and the back button lead there.

import { byId } from './dom.js';

const NAMES = ['overview', 'reader', 'post', 'operations'];

const tabOf = (name) => byId(`tab-${name}`);
const panelOf = (name) => byId(`panel-${name}`);

/** Where the address says that one is: the tab, the reader and the post, each of which may be empty but the tab. */
export function place() {
  const query = new URLSearchParams(location.search);
  const [user, post] = ['user', 'post'].map((name) => query.get(name)?.trim() ?? '');
  const named = location.hash.slice(1);
  const implied = user ? 'reader' : post ? 'post' : 'overview';
  return { tab: NAMES.includes(named) ? named : implied, user, post };
}

/** The address of a place; what is not named stays as it is. */
export function addressOf(change) {
  const { tab, user, post } = { ...place(), ...change };
  const query = new URLSearchParams(Object.entries({ user, post }).filter(([, value]) => value));
  return `/console${query.size ? `?${query}` : ''}#${tab}`;
}

/** Goes to a place, by an entry in the history. */
export function go(change) {
  history.pushState(null, '', addressOf(change));
  dispatchEvent(new Event('place'));
}

/** Whether this tab is the one that is shown. */
export const isShown = (name) => place().tab === name;

/** Makes the tabs work. @param {(place: {tab: string, user: string, post: string}) => void} show is called for each new place */
export function prepareTabs(show) {
  const list = document.querySelector('[role=tablist]');
  list.addEventListener('click', (event) => {
    const tab = event.target.closest('[role=tab]');
    if (!tab || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (!isShown(tab.hash.slice(1))) go({ tab: tab.hash.slice(1) });
  });
  list.addEventListener('keydown', (event) => {
    const next = moved(event.key, NAMES.indexOf(place().tab));
    if (event.key !== ' ' && next === null) return;
    event.preventDefault();
    if (next !== null) go({ tab: NAMES[next] });
    tabOf(place().tab).focus();
  });
  const update = () => {
    const now = place();
    for (const name of NAMES) {
      const isCurrent = name === now.tab;
      tabOf(name).setAttribute('aria-selected', String(isCurrent));
      // Links are focused by Tab unless told otherwise: in a list of tabs the arrow keys lead from one to the next.
      tabOf(name).tabIndex = isCurrent ? 0 : -1;
      tabOf(name).href = addressOf({ tab: name });
      panelOf(name).hidden = !isCurrent;
    }
    show(now);
  };
  addEventListener('popstate', update);
  addEventListener('place', update);
  byId('skip').addEventListener('click', (event) => {
    event.preventDefault();
    panelOf(place().tab).focus();
  });
  update();
}

/** The tab that a key leads to; null for other keys. */
function moved(key, from) {
  const count = NAMES.length;
  const steps = { ArrowRight: from + 1, ArrowLeft: from - 1 + count, Home: 0, End: count - 1 };
  return key in steps ? steps[key] % count : null;
}

// The parts of all pages: the rail, the state of the server, the sign-in panel, the search, the dialog to publish, the footer.

import { ask, credential, useCredential } from './api.js';
import { byId } from './dom.js';
import { DENIED, Poll, isPaused, pause, wakeAll } from './poll.js';
import { preparePublishing } from './publish.js';
import { prepareSearch } from './search.js';
import { readStats } from './stats.js';
import { clock, duration } from './words.js';

const EVERY_MS = 5000;
const COMPACT = 'tidewire-compact';

/** The texts of refusals that another key may avoid, by code. */
const DENIALS = {
  unauthenticated: 'This server requires a key.',
  invalid_token: 'This key is invalid.',
  token_expired: 'This token has expired.',
};

let lostAt = null;
/** True without any response: then a link would lead to an error page of the browser. */
let isSilent = false;
let show = null;
let lose = null;
let newest = null;

/**
 * Passes each response with the statistics to the page, including the last earlier one.
 * @param {(stats: object, headers: Headers) => void|Promise<void>} handle
 * @param {(why: string) => void} [onLost] is called when there is no answer
 */
export function watchStats(handle, onLost = null) {
  [show, lose] = [handle, onLost];
  // The module of the page, which calls this, must run to its end first.
  if (newest) queueMicrotask(showNewest);
}

/** Other requests of the page may be refused. The page reports that; it is not the state of the server. */
async function showNewest() {
  try {
    await show?.(...newest);
  } catch (error) {
    if (error.status === undefined) console.error(error);
  }
}

/** Requests the statistics now. */
export const refreshStats = () => server.wake(true);

const server = new Poll(
  () => EVERY_MS,
  async () => {
    try {
      const { json: stats, headers } = await readStats();
      lostAt = null;
      isSilent = false;
      newest = [stats, headers];
      say(`Running for ${duration(stats.uptime_seconds)}`, 'good');
      const node = headers.get('Tidewire-Node');
      byId('about-server').textContent = [`Tidewire ${stats.version}`, stats.commit, location.host, node && `node ${node}`].filter(Boolean).join(' · ');
      setDenied(false);
      await showNewest();
    } catch (refusal) {
      if (refusal.status === undefined) throw refusal;
      if (DENIED.includes(refusal.status)) sayDenied(refusal);
      else sayLost(refusal);
      throw refusal;
    }
  },
);

function sayDenied({ code, status, message }) {
  lostAt = null;
  isSilent = false;
  // A user's token may still read that user's feed.
  if (status === 403) setDenied(true);
  if (status === 403) return say(['forbidden', 'read_only'].includes(code) ? 'This key has no access to the figures' : message, 'bad', code);
  const text = DENIALS[code] ?? message;
  say(text.replace(/\.$/, ''), 'bad', code);
  byId('page').hidden = true;
  openSignIn(text, code !== 'unauthenticated' && credential() !== '');
}

/** Hides the parts of the page that need a server key, and says so. */
function setDenied(isDenied) {
  const title = document.querySelector('#page h2');
  (title.closest('.bar') ?? title).after(byId('denied'));
  byId('denied').hidden = !isDenied || !document.querySelector('[data-figures]');
  for (const part of document.querySelectorAll('[data-figures]')) part.classList.toggle('denied', isDenied);
}

function sayLost({ status, code, message }) {
  lostAt ??= new Date();
  const what = !status ? 'The server does not answer' : code === 'recovering' ? 'The server is starting' : message.replace(/\.$/, '');
  isSilent = !status;
  lose?.(what);
  say(`${what}, since ${clock(lostAt)}`, 'bad', what);
}

function say(text, how, what = how) {
  const pill = byId('server');
  // Screen readers read changes aloud, so a text that only counts up stays.
  if (pill.dataset.what === what && how === 'bad') return;
  pill.setAttribute('aria-live', pill.dataset.what === what ? 'off' : 'polite');
  pill.dataset.how = how;
  pill.dataset.what = what;
  pill.textContent = text;
  document.body.classList.toggle('outdated', how !== 'good');
}

function openSignIn(text, isWrong = false) {
  const panel = byId('sign-in');
  byId('sign-in-text').textContent = text;
  byId('sign-in-text').classList.toggle('error', isWrong);
  byId('credential').setAttribute('aria-invalid', String(isWrong));
  byId('forget').hidden = credential() === '';
  // If the server requires a key, there is no page to return to without one.
  byId('sign-in-close').hidden = byId('page').hidden;
  panel.hidden = false;
  byId('access').setAttribute('aria-expanded', 'true');
}

function closeSignIn() {
  byId('sign-in').hidden = true;
  byId('access').setAttribute('aria-expanded', 'false');
}

function prepareSignIn() {
  byId('access').addEventListener('click', () => {
    if (!byId('sign-in').hidden && !byId('page').hidden) return closeSignIn();
    openSignIn(credential() ? 'Requests are sent with a key.' : 'Requests are sent without a key.');
    byId('credential').focus();
    sayKeyless();
  });
  const close = () => {
    closeSignIn();
    byId('access').focus();
  };
  byId('sign-in-close').addEventListener('click', close);
  byId('sign-in').addEventListener('keydown', ({ key }) => {
    if (key === 'Escape' && !byId('page').hidden) close();
  });
  byId('sign-in').querySelector('form').addEventListener('submit', async (event) => {
    event.preventDefault();
    if (await sayKeyless()) return;
    useCredential(byId('credential').value.trim());
    location.reload();
  });
  byId('forget').addEventListener('click', () => {
    useCredential('');
    location.reload();
  });
}

/** Says so if the server needs no key: it would accept any text as a key. */
async function sayKeyless() {
  const isKeyless = await ask('GET', '/v1/operations').then(({ json }) => json.keys === null, () => false);
  if (isKeyless) byId('sign-in-text').textContent = 'This server needs no key: it has no access file, and accepts requests with any key or none.';
  return isKeyless;
}

/** Keeps the page while no server can respond with another one. */
function keepWhileSilent(event) {
  const link = event.target.closest?.('a[href]');
  const isElsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || link?.target;
  if (!isSilent || !link || link.origin !== location.origin || isElsewhere) return;
  if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
  event.preventDefault();
  const text = 'The server does not answer; this page stays until it does';
  say(text, 'bad', text);
}

function prepareRail() {
  document.addEventListener('click', keepWhileSilent);
  for (const link of document.querySelectorAll('.rail a')) {
    if (link.pathname !== location.pathname) continue;
    link.setAttribute('aria-current', 'page');
    document.title = `${link.textContent} · Tidewire console`;
    link.scrollIntoView({ block: 'nearest', inline: 'center' });
  }
}

function prepareToggles() {
  const compact = byId('density');
  const setCompact = (isCompact) => {
    document.body.classList.toggle('compact', isCompact);
    compact.setAttribute('aria-pressed', String(isCompact));
  };
  setCompact(localStorage.getItem(COMPACT) === 'true');
  compact.addEventListener('click', () => {
    const isCompact = !document.body.classList.contains('compact');
    localStorage.setItem(COMPACT, String(isCompact));
    setCompact(isCompact);
  });
  byId('pause').addEventListener('click', ({ currentTarget: button }) => {
    pause(!isPaused());
    button.setAttribute('aria-pressed', String(isPaused()));
    button.textContent = isPaused() ? 'Resume' : 'Pause';
  });
}

document.addEventListener('keydown', (event) => {
  const isTyping = event.target.matches?.('input, textarea, select');
  if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  event.preventDefault();
  byId('searched').focus();
});

prepareRail();
prepareToggles();
prepareSignIn();
prepareSearch();
preparePublishing();
wakeAll();

// The state of the server in the header, and the key that it is asked with.

import { credential, useCredential } from './api.js';
import { byId } from './dom.js';
import { DENIED, Poll, wakeAll } from './poll.js';
import { readStats } from './overview.js';
import { clock, duration } from './words.js';

const EVERY_MS = 5000;

let lostAt = null;

/**
 * Asks for the statistics while the page is seen, says in the header what came of it, and hands them on.
 * @param {(stats: object, headers: Headers) => Promise<void>} show
 */
export function watchServer(show) {
  return new Poll(
    () => EVERY_MS,
    () => true,
    async () => {
      try {
        const { json: stats, headers } = await readStats();
        lostAt = null;
        const up = stats.uptime_seconds === undefined ? '' : ` for ${duration(stats.uptime_seconds)}`;
        say(`Running${up}`, 'good');
        await show(stats, headers);
      } catch (refusal) {
        if (DENIED.includes(refusal.status)) sayDenied(refusal);
        else sayLost(refusal);
        throw refusal;
      }
    },
  );
}

function sayDenied({ code, status, message }) {
  lostAt = null;
  const texts = {
    unauthenticated: 'The server asks for a key',
    invalid_token: 'Wrong key',
    token_expired: 'This token has expired',
    forbidden: 'This key may not read the figures',
    read_only: 'This key may not read the figures',
  };
  say(texts[code] ?? message.replace(/\.$/, ''), 'bad', code || message);
  // Another key does not help where the page or the name of the server is refused.
  if (status === 401 || texts[code]) openForm(true);
}

function sayLost({ status, code, message }) {
  lostAt ??= new Date();
  const what = !status ? 'The server does not answer' : code === 'recovering' ? 'The server is starting' : message.replace(/\.$/, '');
  say(`${what}, since ${clock(lostAt)}`, 'bad', what);
}

function say(text, how, what = how) {
  const pill = byId('server');
  // It is read aloud when it changes, so it is left alone while it only counts up.
  if (pill.dataset.what === what && how === 'bad') return;
  pill.setAttribute('aria-live', pill.dataset.what === what ? 'off' : 'polite');
  pill.dataset.how = how;
  pill.dataset.what = what;
  pill.textContent = text;
  document.body.classList.toggle('outdated', how !== 'good');
}

function openForm(isOpen) {
  byId('identify').hidden = !isOpen;
  byId('access').setAttribute('aria-expanded', String(isOpen));
}

/** Makes the form for a key work. @param {() => void} changed is called when there is another one */
export function prepareAccess(changed) {
  const form = byId('identify');
  byId('credential').value = credential();
  byId('access').addEventListener('click', () => {
    openForm(form.hidden);
    if (!form.hidden) byId('credential').focus();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    useCredential(byId('credential').value.trim());
    openForm(false);
    byId('access').focus();
    changed();
    wakeAll(true);
  });
}

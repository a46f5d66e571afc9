// Operations on a user: compare the inbox with a newly built one, revoke tokens, erase the user.

import { LONG_MS, ask, userPath } from './api.js';
import { act, byId, confirmed, facts } from './dom.js';
import { count } from './words.js';

/** Adds the handlers of the buttons. */
export function prepareAdministration(user) {
  byId('verify').addEventListener('click', ({ currentTarget: button }) => compare(user, 'verify', button));
  byId('rebuild').addEventListener('click', async ({ currentTarget: button }) => {
    const text = `The server drops the inbox of ${user} and builds it again from the follows. No post is lost.`;
    if (await confirmed('Rebuild this inbox?', text, 'Rebuild')) compare(user, 'rebuild', button);
  });
  byId('revoke').addEventListener('click', async ({ currentTarget: button }) => {
    const text = `The server refuses all tokens issued to ${user} until now, and ends live connections with them.`;
    if (!(await confirmed('Revoke all tokens?', text, 'Revoke', user))) return;
    act(button, byId('user-note'), async () => {
      const { json } = await ask('POST', userPath(user, 'revoke'));
      return `Revoked: the server refuses tokens issued before ${json.not_before}.`;
    });
  });
  byId('erase').addEventListener('click', async ({ currentTarget: button }) => {
    const text = `The server permanently erases ${user}: posts, follows, mutes, blocks, lists, rules, marker, and every mention in the settings of others. You cannot undo this.`;
    if (!(await confirmed('Erase this user?', text, 'Erase', user))) return;
    act(button, byId('user-note'), () => ask('DELETE', userPath(user), undefined, LONG_MS).then(() => 'The erasure has begun.'));
  });
}

function compare(user, what, button) {
  return act(button, byId('verify-note'), async () => {
    byId('verified').replaceChildren();
    const { json } = await ask('POST', userPath(user, 'feed', what), undefined, LONG_MS);
    byId('verified').replaceChildren(...facts(verdict(json)));
    const found = json.good ? 'The inbox was correct' : 'The inbox was not correct';
    return what === 'rebuild' ? `${found}. It was rebuilt.` : `${found}.`;
  });
}

function verdict({ entries, rebuilt, floor, missing, extra, under_way: underWay, stale }) {
  const posts = (ids) => (ids.length ? `${ids.length}: ${ids.slice(0, 5).join(', ')}${ids.length > 5 ? ', …' : ''}` : 'none');
  return [
    ['Entries', count(entries)],
    ['Entries after a rebuild', count(rebuilt)],
    ['Floor', floor ?? 'none: complete'],
    ['Missing', posts(missing)],
    ['Extra', posts(extra)],
    ['Deliveries in progress', count(underWay)],
    ['No longer shown', count(stale)],
  ];
}

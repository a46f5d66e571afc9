// What an operator does to a user: compares the inbox with one that is built anew, revokes tokens, erases the user.

import { LONG_MS, ask, userPath } from './api.js';
import { act, byId, confirmed, facts } from './dom.js';
import { count } from './words.js';

/** Makes the buttons work. */
export function prepareAdministration(user) {
  byId('verify').addEventListener('click', ({ currentTarget: button }) => compare(user, 'verify', button));
  byId('rebuild').addEventListener('click', async ({ currentTarget: button }) => {
    const text = `The inbox of ${user} is dropped and built anew from what it follows. No post is lost by it.`;
    if (await confirmed('Rebuild this inbox?', text, 'Rebuild')) compare(user, 'rebuild', button);
  });
  byId('revoke').addEventListener('click', async ({ currentTarget: button }) => {
    const text = `Tokens of ${user} that were issued until now are refused from now on, and live connections with them end.`;
    if (!(await confirmed('Revoke all tokens?', text, 'Revoke', user))) return;
    act(button, byId('user-note'), async () => {
      const { json } = await ask('POST', userPath(user, 'revoke'));
      return `Revoked: tokens that were issued before ${json.not_before} are refused.`;
    });
  });
  byId('erase').addEventListener('click', async ({ currentTarget: button }) => {
    const text = `${user} is erased for good: posts, follows, mutes, blocks, lists, rules, marker, and every mention of this user in those of others. This cannot be undone.`;
    if (!(await confirmed('Erase this user?', text, 'Erase', user))) return;
    act(button, byId('user-note'), () => ask('DELETE', userPath(user), undefined, LONG_MS).then(() => 'The erasure has begun.'));
  });
}

function compare(user, what, button) {
  return act(button, byId('verify-note'), async () => {
    byId('verified').replaceChildren();
    const { json } = await ask('POST', userPath(user, 'feed', what), undefined, LONG_MS);
    byId('verified').replaceChildren(...facts(verdict(json)));
    const found = json.good ? 'The inbox was right' : 'The inbox was not right';
    return what === 'rebuild' ? `${found}. It is built anew.` : `${found}.`;
  });
}

function verdict({ entries, rebuilt, floor, missing, extra, under_way: underWay, stale }) {
  const posts = (ids) => (ids.length ? `${ids.length}: ${ids.slice(0, 5).join(', ')}${ids.length > 5 ? ', …' : ''}` : 'none');
  return [
    ['Entries', count(entries)],
    ['Entries when built anew', count(rebuilt)],
    ['Floor', floor ?? 'none: all is in it'],
    ['Missing', posts(missing)],
    ['Too many', posts(extra)],
    ['Deliveries under way', count(underWay)],
    ['Not shown any more', count(stale)],
  ];
}

// Ids for trying requests: those of users and posts of this server, if a request only reads.

import { byId } from '/console/dom.js';

const SOURCES = '/v1/sources?kind=user&limit=20';
// These change no posts and no settings of users, although they are not GET.
const HARMLESS = ['verify_feed', 'rebuild_feed'];

const OF_OWN_POST = ['edit_post', 'delete_post'];

let asked;
// The post that this page published last, and the forms that use it.
let own = null;
const usersOfOwn = [];

byId('key').addEventListener('change', () => (asked = null));

const pathOf = (user) => `/v1/users/${encodeURIComponent(user)}`;

async function read(url) {
  const key = byId('key').value.trim();
  const answer = await fetch(url, { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  return answer.ok ? (await answer.json()).items : [];
}

/** A user who follows a source, and the newest posts of that source: so there is a feed with posts to explain. */
async function readExamples() {
  const user = (await read(SOURCES)).find(({ following }) => following > 0)?.id;
  if (!user) return {};
  const [{ id: source }] = await read(`${pathOf(user)}/following?limit=1`);
  const ids = (await read(`${pathOf(source)}/posts?limit=2`)).map(({ post }) => post.id);
  return { user, id: ids[0], post: ids[0], ids: ids.join(',') };
}

/** A post that this page published is an example for edits and deletions. */
export function published(id) {
  own = { id };
  for (const use of usersOfOwn) use(own);
}

/**
 * Passes examples for the parameters of an operation to `use`, when they are known. Without permission to search, and for operations that
 * change data, the examples of the description stay: one click must not change the data of users.
 */
export function examplesFor({ method, path, told }, use) {
  if (OF_OWN_POST.includes(told.operationId)) {
    usersOfOwn.push(use);
    if (own) use(own);
  }
  // The name of a list belongs to its reader.
  const isReadOnly = method === 'get' && !path.includes('{name}');
  if (!told.parameters.length || !(isReadOnly || HARMLESS.includes(told.operationId))) return;
  asked ??= readExamples().catch(() => ({}));
  asked.then(use);
}

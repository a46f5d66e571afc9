// Ids to try requests with: of users and posts that this server has, where a request only reads.

import { byId } from '/console/dom.js';

const SOURCES = '/v1/sources?kind=user&limit=20';
// These change nothing of what users have decided or published, although they are not GET.
const HARMLESS = ['verify_feed', 'rebuild_feed'];

const OF_OWN_POST = ['edit_post', 'delete_post'];

let asked;
// The post that was published last from this page, and who fills it in.
let own = null;
const usersOfOwn = [];

byId('key').addEventListener('change', () => (asked = null));

const pathOf = (user) => `/v1/users/${encodeURIComponent(user)}`;

async function read(url) {
  const key = byId('key').value.trim();
  const answer = await fetch(url, { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  return answer.ok ? (await answer.json()).items : [];
}

/** A user who follows somebody, and the newest posts of whom or what that is: so there is a feed, with posts to explain. */
async function readExamples() {
  const user = (await read(SOURCES)).find(({ following }) => following > 0)?.id;
  if (!user) return {};
  const [{ id: source }] = await read(`${pathOf(user)}/following?limit=1`);
  const ids = (await read(`${pathOf(source)}/posts?limit=2`)).map(({ post }) => post.id);
  return { user, id: ids[0], post: ids[0], ids: ids.join(',') };
}

/** What is published from this page is an example of what may be edited and deleted. */
export function published(id) {
  own = { id };
  for (const use of usersOfOwn) use(own);
}

/**
 * Brings examples for the parameters of an operation to `use`, once there are any. Without permission to look for some, and for what changes
 * something, those of the description stay: nobody's data is changed by one click.
 */
export function examplesFor({ method, path, told }, use) {
  if (OF_OWN_POST.includes(told.operationId)) {
    usersOfOwn.push(use);
    if (own) use(own);
  }
  // Lists have names, which belong to their reader.
  const isReadOnly = method === 'get' && !path.includes('{name}');
  if (!told.parameters.length || !(isReadOnly || HARMLESS.includes(told.operationId))) return;
  asked ??= readExamples().catch(() => ({}));
  asked.then(use);
}

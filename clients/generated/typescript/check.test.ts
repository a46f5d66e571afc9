// Uses what openapi-typescript has generated: answers and refusals have types, and a server answers as they say.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import createClient from 'openapi-fetch';
import type { components, paths } from './generated/tidewire.js';

type Post = components['schemas']['Post'];
type Problem = components['schemas']['Problem'];
type Feed = { data?: components['schemas']['Page']; error?: Problem };

const server = process.env['TIDEWIRE_SERVER'];
assert(server, 'TIDEWIRE_SERVER is the URL of the server');
const client = createClient<paths>({ baseUrl: server });

async function publish(author: string, id: string, text: string): Promise<Post> {
  const { data, error, response } = await client.POST('/v1/posts', {
    params: { query: { wait: 'delivered' } },
    body: { author, id, body: { text } },
  });
  assert(data, `${response.status} ${error?.code}`);
  return data;
}

test('a feed is read page by page', async () => {
  await client.PUT('/v1/users/{user}/following/{source}', { params: { path: { user: 'bob', source: 'ann' } } });
  const ids = ['11', '12', '13'];
  for (const id of ids) await publish('ann', id, `post ${id}`);
  const read: string[] = [];
  let cursor: string | null = null;
  do {
    const { data, error }: Feed = await client.GET('/v1/users/{user}/feed', {
      params: { path: { user: 'bob' }, query: { limit: 2, ...(cursor === null ? {} : { before: cursor }) } },
    });
    assert(data, error?.detail);
    for (const item of data.items) read.push(item.post.id);
    cursor = data.next;
  } while (cursor !== null);
  assert.deepEqual(read, ids.toReversed());
});

test('a refusal has its type, whatever its status', async () => {
  const refusals: [string, number, { data?: unknown; error?: Problem; response: Response }][] = [
    [
      'invalid_parameter',
      400,
      await client.GET('/v1/users/{user}/feed', { params: { path: { user: 'bob' }, query: { limit: 0 } } }),
    ],
    ['unknown_post', 404, await client.GET('/v1/posts/{id}', { params: { path: { id: '404' } } })],
    ['post_id_taken', 409, await client.POST('/v1/posts', { body: { author: 'eve', id: '11', body: 'another' } })],
  ];
  for (const [code, status, { data, error, response }] of refusals) {
    assert.equal(data, undefined);
    assert(error, `${code} is missing`);
    assert.deepEqual([error.code, error.status, response.status], [code, status, status]);
  }
  const [, , { error }] = refusals[0] as (typeof refusals)[0];
  assert.equal(error?.field, 'limit');
});

test('a post is read by the id that another system gave it', async () => {
  const external_id = 'urn:x:1';
  const { data: published } = await client.POST('/v1/posts', { body: { author: 'dan', external_id, body: 1 } });
  const { data: read } = await client.GET('/v1/posts/{id}', { params: { path: { id: `ext:${external_id}` } } });
  assert(published);
  assert.deepEqual([read?.id, read?.external_id], [published.id, external_id]);
});

test('each post of a batch has its own answer', async () => {
  const posts = [
    { author: 'ann', id: '21', body: 1 },
    { author: 'not a name', id: '22', body: 2 },
  ];
  const { data } = await client.POST('/v1/posts/batch', { body: { posts } });
  assert(data);
  const [published, refused] = data.posts;
  assert(published && 'post' in published && published.post.id === '21');
  assert(refused && 'problem' in refused);
  assert.deepEqual([refused.problem.status, refused.problem.code], [400, 'invalid_field']);
});

test('one of two kinds of answers is told by its fields', async () => {
  const { data } = await client.POST('/v1/feeds', { body: { users: ['bob', 'nobody'] } });
  assert(data);
  for (const feed of data.feeds) {
    if ('problem' in feed) assert.fail(feed.problem.detail);
    else assert(Array.isArray(feed.items), feed.user);
  }
});

test('what does not fit is no program', () => {
  // Never called: the compiler refuses each line.
  const unused = (): unknown[] => [
    // @ts-expect-error: a limit is a number
    client.GET('/v1/users/{user}/feed', { params: { path: { user: 'bob' }, query: { limit: 'two' } } }),
    // @ts-expect-error: a post has an author
    client.POST('/v1/posts', { body: { body: 1 } }),
    // @ts-expect-error: there is no such path
    client.GET('/v1/nowhere'),
    // @ts-expect-error: an entry is written in one of two ways
    client.GET('/v1/users/{user}/feed', { params: { path: { user: 'bob' }, query: { fields: 'all' } } }),
  ];
  assert.equal(typeof unused, 'function');
});

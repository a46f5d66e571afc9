// What errors say, and the shapes that calls of many things take.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Tidewire, TidewireError } from 'tidewire';

import { freePort } from './server.mjs';

/** A client whose requests are answered like this. */
function answered(status, body, headers = {}) {
  return new Tidewire({
    server: 'http://a.example',
    retries: 0,
    fetch: async () => new Response(body, { status, headers }),
  });
}

test('every error with an answer has its request id, also those of each of many', async () => {
  const headers = { 'X-Request-Id': 'abc-1' };
  const problem = { status: 422, code: 'not_a_user', detail: 'no' };
  const text = JSON.stringify(problem);
  for (const [status, body, said] of [
    [422, text, '422 not_a_user: no (request abc-1)'],
    [502, '<html>', /^the response is 502 .*\(request abc-1\)$/],
    [200, '<html>', /\(request abc-1\)$/],
  ]) {
    await assert.rejects(answered(status, body, headers).rules('ann'), { requestId: 'abc-1', message: said });
  }
  await assert.rejects(answered(422, text).rules('ann'), { requestId: undefined, message: '422 not_a_user: no' });
  const [post] = await answered(200, JSON.stringify({ posts: [{ problem }] }), headers).publishMany([]);
  const [feed] = await answered(200, JSON.stringify({ feeds: [{ user: 'ann', problem }] }), headers).feeds([]);
  assert.deepEqual([post.error.requestId, feed.error.requestId], ['abc-1', 'abc-1']);
});

test('an error says whether the request may have been done, and whether it may succeed later', async () => {
  const of = async (promise) => {
    const error = await promise.catch((error) => error);
    assert.ok(error instanceof TidewireError);
    return [error.outcomeUnknown, error.isTemporary];
  };
  const refused = (status, code) => answered(status, JSON.stringify({ status, code, detail: '' })).rules('ann');
  assert.deepEqual(await of(refused(409, 'post_id_taken')), [false, false]);
  assert.deepEqual(await of(refused(503, 'overloaded')), [false, true]);
  assert.deepEqual(await of(refused(503, 'outcome_unknown')), [true, true]);
  assert.deepEqual(await of(answered(502, '').rules('ann')), [true, true]);
  assert.deepEqual(await of(answered(200, '<html>').rules('ann')), [true, false]);
  const nobody = new Tidewire({ server: `http://127.0.0.1:${await freePort()}`, retries: 0 });
  assert.deepEqual(await of(nobody.rules('ann')), [false, true]);
});

test('another shape than that of a call is a TypeError that names the right one', async () => {
  const tidewire = answered(200, '{"posts":[]}');
  const edge = '\\{ follower, source \\} and optionally hidden, backfill is needed';
  const cases = [
    [
      () => tidewire.publish('bob', { text: 'one' }),
      '^post: \\{ author, body \\} and optionally id, .* is needed, not string',
    ],
    [
      () => tidewire.publishMany({ posts: [] }),
      '^posts: an iterable, such as an array, is needed, each of it \\{ author, body',
    ],
    [() => tidewire.publishMany([['bob', 1]]), '^posts\\[0\\]: \\{ author, body .* is needed, not array'],
    [() => tidewire.publishMany([{ author: 'bob' }]), '^posts\\[0\\] lacks body: \\{ author, body'],
    [() => tidewire.followMany({ follows: [] }), '^follows: an iterable'],
    [() => tidewire.followMany([{ user: 'ann', source: 'bob' }]), `^follows\\[0\\] lacks follower: ${edge}`],
    [
      () => tidewire.followMany([], { unfollows: [['ann', 'bob']] }),
      '^unfollows\\[0\\]: \\{ follower, source \\} is needed, not array',
    ],
    [() => tidewire.getPosts('77'), '^ids: an iterable, such as an array, is needed, each of it string; not string'],
    [() => tidewire.getPosts([77]), '^ids\\[0\\]: string is needed, not number'],
    [() => tidewire.feeds('ann'), '^users: an iterable'],
  ];
  for (const [call, said] of cases) await assert.rejects(call, { name: 'TypeError', message: new RegExp(said) });
  function* posts() {
    yield { author: 'bob', body: null };
  }
  assert.deepEqual(await tidewire.publishMany(posts()), []);
});

test('a client that cannot be made names what it needs', () => {
  const cases = [
    ['http://a.example', /^options: \{ server, token \} is needed, not string$/],
    [{ server: 'localhost:9000' }, /"localhost:9000" does not begin .*: write it as http:\/\/localhost:9000$/],
    [{ server: ':9000' }, /write it as http:\/\/localhost:9000$/],
    [{ server: 'ftp://a.example' }, /write it as http:\/\/localhost:8080$/],
    [undefined, /^server: the URL of the server is needed outside of a browser page$/],
  ];
  for (const [options, said] of cases) assert.throws(() => new Tidewire(options), { name: 'TypeError', message: said });
  const tidewire = new Tidewire({ server: 'http://a.example' });
  for (const user of [undefined, '', 7]) {
    assert.throws(() => tidewire.watch(user), { name: 'TypeError', message: 'user: the id of the reader is needed' });
  }
});

test('a connection that was not made says why', async () => {
  const server = `http://127.0.0.1:${await freePort()}`;
  const message = `no answer from ${server}: connect ECONNREFUSED ${server.slice('http://'.length)}`;
  await assert.rejects(new Tidewire({ server, retries: 0 }).rules('ann'), { code: 'no_answer', message });
});

test('a page of another origin is told that the server may not allow it', async () => {
  const fetch = () => Promise.reject(new TypeError('Failed to fetch'));
  globalThis.location = { origin: 'https://page.example', protocol: 'https:' };
  try {
    const tidewire = new Tidewire({ server: 'https://feeds.example', retries: 0, fetch });
    const said = /it refuses pages of https:\/\/page\.example, because its --cors-origins does not list them/;
    await assert.rejects(tidewire.rules('ann'), { code: 'no_answer', status: 0, message: said });
    const own = new Tidewire({ retries: 0, fetch });
    await assert.rejects(own.rules('ann'), ({ message }) => !message.includes('cors'));
  } finally {
    delete globalThis.location;
  }
});

// Refusals, and what is tried again: each fault on the way to the real server.

import assert from 'node:assert/strict';
import { after, afterEach, before, mock, test } from 'node:test';

import { Tidewire, TidewireError } from 'tidewire';

import { Faulty, refused } from './faulty.mjs';
import { Server, freePort } from './server.mjs';

let server, way, tidewire;

before(async () => {
  server = await Server.start();
  way = await Faulty.before(server.origin);
  tidewire = new Tidewire({ server: way.origin });
});

afterEach(() => {
  mock.restoreAll();
  way.plan = [];
  way.requests = [];
});

after(async () => {
  way?.stop();
  await server?.stop();
});

/** Notes waits between tries, and shortens them. */
function shortWaits() {
  const waits = [];
  const { setTimeout } = globalThis;
  mock.method(globalThis, 'setTimeout', (run, ms, ...more) => {
    // Node's fetch has timers of its own.
    if (!new Error().stack.includes('pause')) return setTimeout(run, ms, ...more);
    waits.push(ms);
    return setTimeout(run, 1, ...more);
  });
  return waits;
}

async function count(source) {
  let posts = 0;
  for await (const _ of new Tidewire({ server: server.origin }).iterPostsOf(source)) posts++;
  return posts;
}

test('refusals say what is wrong, for programs and for people', async () => {
  const problems = [
    [() => tidewire.follow('ann', 'ann'), { code: 'self_follow', status: 422 }],
    [() => tidewire.follow('no user', 'bob'), { status: 400, field: 'user' }],
    [() => tidewire.publish({ author: 'ann', body: 1, tags: ['no/tag'] }), { status: 400 }],
    [() => tidewire.getPost('5'), { code: 'unknown_post', status: 404 }],
    [() => tidewire.feed('ann', { limit: 101 }), { code: 'invalid_parameter', field: 'limit' }],
    [() => tidewire.feed('ann', { before: '!' }), { code: 'invalid_parameter', field: 'before' }],
    [() => tidewire.listFeed('ann', 'none'), { code: 'unknown_list', status: 404 }],
    [() => tidewire.changes({ after: 1e9 }).next(), { code: 'sequence_in_future', status: 400 }],
    [() => tidewire.publish({ author: 'ann', body: 1, more: 2 }), { code: 'unknown_field', field: 'more' }],
  ];
  for (const [call, expected] of problems) {
    await assert.rejects(call, (error) => {
      assert.ok(error instanceof TidewireError, `${error.stack}`);
      assert.ok(error.message.length > 5);
      const found = Object.fromEntries(Object.keys(expected).map((name) => [name, error[name]]));
      assert.deepEqual(found, expected, error.message);
      return true;
    });
  }
  const bad = [
    { follower: 'a', source: 'b' },
    { follower: 'c', source: 'c' },
  ];
  await assert.rejects(tidewire.followMany(bad), ({ errors }) => errors[0].index === 1);
});

test('what cannot be part of a path is not asked for', async () => {
  for (const part of ['', '.', '..']) await assert.rejects(tidewire.getUser(part), TypeError);
  // A number may have been rounded, and `undefined` would be a user of this name.
  const said = /^an id or a name is a string, not (undefined|null|number)$/;
  for (const part of [undefined, null, 7]) {
    await assert.rejects(tidewire.getPost(part), { name: 'TypeError', message: said });
    await assert.rejects(tidewire.follow('ann', part), { name: 'TypeError', message: said });
  }
  assert.deepEqual(way.requests, []);
  await tidewire.rules('a:b~c@d');
  assert.equal(way.requests[0].url, '/v1/users/a%3Ab~c%40d/rules');
});

test('a busy server is asked again, no sooner than it says', async () => {
  const waits = shortWaits();
  mock.method(Math, 'random', () => 1);
  way.plan = [refused(503, 'overloaded', 2), refused(429, 'rate_limited', 7)];
  assert.equal((await tidewire.follow('bea', 'bob')).created, true);
  assert.deepEqual(waits.slice(0, 2), [2_500, 8_750]);
  assert.equal(way.requests.length, 3);
});

test('what is safe is tried again, what is not is not', async () => {
  shortWaits();
  const read = () => tidewire.rules('ann');
  const publish = () => tidewire.publish({ author: 'una', body: 1 });
  const snapshot = () => tidewire.takeSnapshot();
  const cases = [
    // Refused, so that nothing was done.
    [refused(503, 'overloaded', 1), [read, publish, snapshot], 2],
    [refused(429, 'rate_limited', 1), [read, publish, snapshot], 2],
    // Waiting does not help.
    [refused(429, 'too_many'), [read, publish, snapshot], 1],
    [refused(507, 'store_full'), [read, publish], 1],
    [refused(400, 'invalid_json'), [read, publish], 1],
    // Perhaps it is done.
    [refused(503, 'outcome_unknown', 1), [publish], 2],
    [refused(503, 'outcome_unknown', 1), [snapshot], 1],
    ['lose', [read, publish], 2],
    ['drop', [read, publish], 2],
    ['drop', [snapshot], 1],
    // Of something on the way.
    [{ status: 502, body: 'bad gateway' }, [read, publish], 2],
    [{ status: 502, body: 'bad gateway' }, [snapshot], 1],
    [{ status: 429, headers: { 'Retry-After': '1' }, body: 'slow down' }, [read, publish], 2],
    [{ status: 429, headers: { 'Retry-After': '1' }, body: 'slow down' }, [snapshot], 1],
    [{ status: 404, body: 'not here' }, [read], 1],
    [{ status: 200, body: '<html>' }, [read], 1],
  ];
  for (const [fault, calls, tries] of cases) {
    for (const call of calls) {
      way.plan = [fault];
      way.requests = [];
      const name = `${JSON.stringify(fault)}: ${call}`;
      if (tries === 1) await assert.rejects(call, TidewireError, name);
      else await call();
      assert.equal(way.requests.length, tries, name);
    }
  }
});

test('a post whose answers are lost is published once', async () => {
  shortWaits();
  way.plan = ['lose', 'lose', 'lose'];
  const post = await tidewire.publish({ author: 'luz', body: { text: 'once' } });
  way.plan = ['lose', 'lose'];
  const [again, other] = await tidewire.publishMany([
    { author: 'luz', body: { text: 'once' }, id: post.id },
    { author: 'luz', body: { text: 'two' } },
  ]);
  assert.deepEqual([again.post.id, other.error], [post.id, undefined]);
  assert.equal(await count('luz'), 2);
});

test('it gives up at last, and at once if it would take too long', async () => {
  const waits = shortWaits();
  way.plan = Array(9).fill(refused(503, 'overloaded', 1));
  await assert.rejects(tidewire.rules('ann'), { code: 'overloaded', status: 503, retryAfter: 1 });
  assert.equal(way.requests.length, 5);
  way.plan = [refused(503, 'overloaded', 31)];
  waits.length = 0;
  await assert.rejects(tidewire.rules('ann'), { retryAfter: 31 });
  way.plan = [refused(503, 'overloaded', 1)];
  await assert.rejects(tidewire.rules('ann', { retries: 0 }), { code: 'overloaded' });
  assert.deepEqual(waits, []);
});

test('who does not answer in time is given up', async () => {
  way.plan = ['hang', 'hang'];
  await assert.rejects(tidewire.rules('ann', { timeoutMs: 50, retries: 1 }), { code: 'timeout', status: 0 });
  assert.equal(way.requests.length, 2);
});

test('a signal ends a request, a wait and a walk, with its reason', async () => {
  const reason = new Error('enough');
  for (const fault of ['hang', refused(503, 'overloaded', 20)]) {
    way.plan = [fault];
    const canceller = new AbortController();
    setTimeout(() => canceller.abort(reason), 50);
    await assert.rejects(tidewire.rules('ann', { signal: canceller.signal }), reason);
  }
  const ended = AbortSignal.abort(reason);
  await assert.rejects(tidewire.iterFeed('ann', { signal: ended }).next(), reason);
  await assert.rejects(tidewire.changes({ signal: ended }).next(), reason);
  const canceller = new AbortController();
  const changes = new Tidewire({ server: server.origin }).changes({ signal: canceller.signal });
  setTimeout(() => canceller.abort(reason), 200);
  await assert.rejects(async () => {
    for await (const _ of changes);
  }, reason);
});

test('the next server is asked when one does not answer, and then stays the one', async () => {
  const nobody = `http://127.0.0.1:${await freePort()}`;
  const cluster = new Tidewire({ server: [nobody, way.origin, server.origin] });
  // Not even what may not be sent twice was sent.
  assert.ok((await cluster.takeSnapshot()).sequence >= 0);
  assert.equal(way.requests.length, 1);
  await cluster.rules('ann');
  assert.equal(way.requests.length, 2);
  way.plan = [refused(503, 'shutting_down', 9)];
  await cluster.rules('ann');
  await cluster.rules('ann');
  assert.equal(way.requests.length, 3, 'it has moved on');
  await assert.rejects(new Tidewire({ server: [nobody, nobody], retries: 0 }).rules('ann'), { code: 'no_answer' });
});

test('of nodes that do not have the next change any more, all are asked', async () => {
  const cluster = new Tidewire({ server: [way.origin, server.origin] });
  way.plan = [refused(410, 'gone')];
  assert.equal((await cluster.changes({ after: 0, follow: false }).next()).value.sequence > 0, true);
  const other = await Faulty.before(server.origin);
  try {
    [other.plan, way.plan] = [[refused(410, 'gone')], [refused(410, 'gone')]];
    const gone = new Tidewire({ server: [way.origin, `${way.origin}/`, other.origin] });
    await assert.rejects(gone.changes({ after: 0 }).next(), { code: 'gone', status: 410 });
    assert.deepEqual([way.requests.length, other.requests.length], [2, 1]);
  } finally {
    other.stop();
  }
});

test('a change is not gone while a node that may have it does not answer', async () => {
  const message = (sequence) => JSON.stringify({ type: 'reached', sequence });
  const stream = (sequence) => ({ status: 200, body: `data: ${message(sequence)}\n\n` });
  for (const fault of ['drop', refused(503, 'recovering', 0), refused(503, 'overloaded', 0)]) {
    const other = await Faulty.before(server.origin);
    try {
      // Both orders, at the start and after the end of a connection.
      const cluster = new Tidewire({ server: [other.origin, way.origin] });
      other.plan = Array(9).fill(refused(410, 'gone'));
      way.plan = [fault, stream(1), fault, fault, stream(2)];
      const seen = [];
      for await (const { sequence } of cluster.changes({ after: 0 })) if (seen.push(sequence) === 2) break;
      assert.deepEqual(seen, [1, 2], JSON.stringify(fault));
    } finally {
      other.stop();
    }
  }
});

test('a walk reads a page again that lacks something, and fails if it always does', async () => {
  const waits = shortWaits();
  const item = (id) => ({ post: { id } });
  const answer = (page) => ({ status: 200, body: JSON.stringify({ next: null, newest: null, ...page }) });
  const part = answer({ items: [item('1')], partial: ['ann', 'bob'] });
  const whole = answer({ items: [item('2'), item('1')], partial: [] });
  const walk = async (options) => {
    const found = [];
    for await (const { post } of tidewire.iterFeed('ann', options)) found.push(post.id);
    return found.join();
  };
  way.plan = [part, part, part, whole];
  assert.equal(await walk(), '2,1');
  assert.ok(waits.length >= 3);
  way.plan = [part, part, part, part];
  await assert.rejects(walk, { name: 'TidewireError', code: 'partial', status: 200, message: /ann, bob/ });
  assert.equal(way.requests.length, 8);
  way.plan = [part];
  assert.equal(await walk({ takePartial: true }), '1');
  assert.equal(way.requests[8].url, '/v1/users/ann/feed?limit=100');
});

test('a function for tokens that hangs once is asked again by the next request', async () => {
  let asked = 0;
  const token = () => (asked++ === 0 ? new Promise(() => {}) : 'token');
  const client = new Tidewire({ server: way.origin, token, timeoutMs: 50 });
  await assert.rejects(client.rules('ann'), { code: 'timeout' });
  way.plan = [{ status: 200, body: '{}' }];
  await client.rules('ann', { timeoutMs: 30_000 });
  assert.deepEqual([asked, way.requests[0].headers.authorization], [2, 'Bearer token']);
});

test('what cannot be sent is the mistake of the caller, and not tried again', async () => {
  const waits = shortWaits();
  const cycle = {};
  cycle.self = cycle;
  for (const body of [1n, cycle]) await assert.rejects(tidewire.publish({ author: 'ann', body }), TypeError);
  const broken = new Tidewire({ server: way.origin, token: 'to\nken' });
  await assert.rejects(broken.rules('ann'), TypeError);
  for (const server of ['localhost:8080', 'example', 'ftp://example', ['http://a.example', '/feeds']]) {
    const said = /^server: ".+" does not begin with http:\/\/ or https:\/\/: write it as http:\/\//;
    assert.throws(() => new Tidewire({ server }), { name: 'TypeError', message: said });
  }
  assert.deepEqual([waits, way.requests], [[], []]);
});

test('another node is asked at once when one cannot reach what it needs', async () => {
  const waits = shortWaits();
  const codes = ['log_unavailable', 'sequencer_unavailable', 'owner_unavailable', 'not_applied_yet'];
  for (const fault of [
    ...codes.map((code) => refused(503, code, 1)),
    { status: 502 },
    { status: 503 },
    { status: 504 },
  ]) {
    way.plan = [fault];
    await new Tidewire({ server: [way.origin, server.origin] }).rules('ann');
    assert.deepEqual(waits, [], JSON.stringify(fault));
  }
  // Behind a proxy it may be done already.
  way.plan = [{ status: 502 }];
  await assert.rejects(new Tidewire({ server: [way.origin, server.origin] }).takeSnapshot(), { status: 502 });
});

test('what ends with an error is not read up to the present', async () => {
  const lines = (sequence) => `${JSON.stringify({ type: 'reached', sequence })}\n`;
  // Less comes than was said, and the connection ends.
  way.plan = [
    { status: 200, headers: { 'Content-Length': '1000' }, body: lines(1), cut: true },
    { status: 200, body: lines(2) },
  ];
  const seen = [];
  for await (const { sequence } of tidewire.changes({ after: 0, follow: false })) seen.push(sequence);
  assert.deepEqual(seen, [1, 2]);
});

test('lines that are not the last one say so, and are places to go on from', async () => {
  shortWaits();
  const line = (change) => `${JSON.stringify({ sequence: 40, ...change })}\n`;
  const missed = (reader) => line({ type: 'missed', reader });
  const more = line({ type: 'reached', reader: 'bob', more: true });
  way.plan = [
    { status: 200, body: missed('ann') + more },
    { status: 200, body: missed('cas') + line({ type: 'reached', sequence: 41 }) },
  ];
  const seen = [];
  for await (const { place } of tidewire.changes({ after: 40, types: ['missed'], follow: false })) seen.push(place);
  assert.deepEqual(seen, ['40-ann', '40-bob', '40-cas', '41']);
  assert.match(way.requests[1].url, /[?&]after=40&after_reader=bob&types=missed&/);
});

test('a stream that was lost within a post goes on behind the last reader', async () => {
  shortWaits();
  const event = (change) => ({ status: 200, body: `data: ${JSON.stringify({ sequence: 40, ...change })}\n\n` });
  way.plan = [
    event({ type: 'missed', reader: '-a-n' }),
    event({ type: 'reached', reader: 'bob' }),
    event({ type: 'x' }),
  ];
  const seen = [];
  for await (const { place } of tidewire.changes({ after: 40, types: ['missed'] })) if (seen.push(place) === 3) break;
  assert.deepEqual(seen, ['40--a-n', '40-bob', '40']);
  const urls = way.requests.map(({ url }) => url);
  const address = (place) => `/v1/changes?after=40${place}&types=missed`;
  assert.deepEqual(urls, [address(''), address('&after_reader=-a-n'), address('&after_reader=bob')]);
});

test('a first connection that is cut before its first message is made again, so often as a request', async () => {
  shortWaits();
  const cut = { status: 200, headers: { 'Content-Length': '1000' }, body: ': \n', cut: true };
  const stream = { status: 200, body: `data: ${JSON.stringify({ type: 'reached', sequence: 1 })}\n\n` };
  way.plan = [cut, cut, stream];
  assert.equal((await tidewire.changes({ after: 0 }).next()).value.sequence, 1);
  for (const fault of [cut, { status: 200, body: '' }]) {
    [way.plan, way.requests] = [Array(9).fill(fault), []];
    await assert.rejects(tidewire.changes({ after: 0, retries: 2 }).next(), { code: 'no_answer' });
    assert.equal(way.requests.length, 3);
  }
});

test('what is read up to the present ends, if only with an error', async () => {
  const waits = shortWaits();
  const whole = { status: 200, body: `${JSON.stringify({ type: 'deleted', id: '1', sequence: 1 })}\n` };
  const cut = { ...whole, headers: { 'Content-Length': '1000' }, body: '{"type"', cut: true };
  for (const [plan, code] of [
    [[whole, ...Array(9).fill('drop')], 'no_answer'],
    [[whole, ...Array(9).fill(cut)], 'no_answer'],
    [[whole, ...Array(9).fill({ status: 200, body: '' })], 'no_answer'],
    [[whole, ...Array(9).fill(refused(503, 'overloaded', 0))], 'overloaded'],
  ]) {
    [way.plan, way.requests, waits.length] = [plan, [], 0];
    const walk = async () => {
      for await (const _ of tidewire.changes({ after: 0, follow: false, retries: 2 }));
    };
    await assert.rejects(walk, { name: 'TidewireError', code });
    // The first answer was cut short, too.
    assert.equal(way.requests.length, 3, code);
  }
});

test('a stream waits no longer than allowed, whatever a server says', async () => {
  const waits = shortWaits();
  const stream = (sequence) => ({ status: 200, body: `data: ${JSON.stringify({ type: 'reached', sequence })}\n\n` });
  way.plan = [stream(1), refused(503, 'overloaded', 86_400), stream(2)];
  const seen = [];
  for await (const { sequence } of tidewire.changes({ after: 0 })) if (seen.push(sequence) === 2) break;
  assert.deepEqual([seen, Math.max(...waits)], [[1, 2], 30_000]);
});

test('a line that is no change ends the stream, and is not asked for for ever', async () => {
  shortWaits();
  const event = (data) => `data: ${data}\n\n`;
  for (const wrong of ['<html>', 'null', '{"type":"published"}']) {
    way.plan = [{ status: 200, body: event('{"type":"reached","sequence":1}') + event(wrong) }];
    const seen = [];
    const walk = async () => {
      for await (const { sequence } of tidewire.changes({ after: 0 })) seen.push(sequence);
    };
    await assert.rejects(walk, { name: 'TidewireError', code: 'unexpected_answer' }, wrong);
    assert.deepEqual(seen, [1]);
  }
});

test('a read can wait for a write of another node', async () => {
  await tidewire.rules('ann', { afterSequence: 0 });
  assert.equal(way.requests[0].headers['tidewire-after'], '0');
  way.plan = [{ status: 204, headers: { 'Tidewire-Sequence': '4096' } }];
  await tidewire.unfollow('ann', 'bob');
  assert.equal(tidewire.sequence, 4096);
});

test('a client needs a server', () => {
  assert.throws(() => new Tidewire(), TypeError);
  assert.throws(() => new Tidewire({ server: [] }), TypeError);
});

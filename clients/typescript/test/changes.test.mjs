// The stream of changes of the real server: all that was accepted, in order, whoever is killed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Tidewire, TidewireError } from 'tidewire';

import { Server, until } from './server.mjs';

const CONSUMER = fileURLToPath(new URL('consumer.mjs', import.meta.url));

let server, tidewire;

before(async () => {
  server = await Server.start();
  tidewire = new Tidewire({ server: server.origin, retries: 20 });
});

after(() => server?.stop());

/** Publishes numbers in the background, until it is ended. */
function publishing(author) {
  const published = [];
  let isOver = false;
  const done = (async () => {
    while (!isOver) published.push((await tidewire.publish({ author, body: published.length })).body);
  })();
  return { published, end: () => ((isOver = true), done) };
}

test('a stream goes on where it was when the server is killed and comes back', async () => {
  const canceller = new AbortController();
  const seen = [];
  const sequences = [];
  const reading = (async () => {
    for await (const change of tidewire.changes({ after: 0, types: ['published'], signal: canceller.signal })) {
      sequences.push(change.sequence);
      if (change.type === 'published') seen.push(change.post.body);
    }
  })();
  const posts = publishing('bob');
  for (let round = 0; round < 3; round++) {
    const before = posts.published.length;
    await until('it goes on', () => posts.published.length >= before + 50 && seen.length > before);
    await server.kill();
    await sleep(50);
    await server.run();
  }
  await posts.end();
  await until('all have come', () => seen.length >= posts.published.length);
  canceller.abort();
  await assert.rejects(reading, { name: 'AbortError' });
  assert.deepEqual(seen, posts.published, 'no gap and no double');
  assert.ok(sequences.every((sequence, nth) => nth === 0 || sequence >= sequences[nth - 1]));
});

test('a consumer that is killed goes on where it was, at least once and in order', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tidewire-consumer-'));
  const [place, seen] = [path.join(folder, 'place'), path.join(folder, 'seen')];
  await writeFile(seen, '');
  const { sequence } = (await tidewire.changes({ follow: false }).next()).value;
  await writeFile(place, String(sequence));
  const lines = async () => (await readFile(seen, 'utf8')).split('\n').filter(Boolean).map(Number);
  const posts = publishing('cas');
  for (let round = 0; round < 4; round++) {
    const before = (await lines()).length;
    const consumer = spawn(process.execPath, [CONSUMER, server.origin, place, seen], { stdio: 'inherit' });
    await until('it goes on', async () => (await lines()).length > before + 20);
    if (round === 3) {
      await posts.end();
      await until('all are seen', async () => (await lines()).at(-1) === posts.published.at(-1));
    }
    const ended = once(consumer, 'exit');
    consumer.kill('SIGKILL');
    await ended;
  }
  const all = await lines();
  assert.deepEqual([...new Set(all)], posts.published, 'nothing is left out');
  // What was seen but not stored is seen again: one for each kill.
  assert.ok(all.length - posts.published.length <= 4, `${all.length - posts.published.length} again`);
  await rm(folder, { recursive: true });
});

test('only changes of the given types come, with the position for storing', async () => {
  const { sequence } = (await tidewire.changes({ follow: false }).next()).value;
  await tidewire.follow('dan', 'eve');
  const post = await tidewire.publish({ author: 'eve', body: 1 });
  await tidewire.unfollow('dan', 'eve');
  await tidewire.deletePost(post.id);
  const types = ['followed', 'deleted'];
  const found = [];
  for await (const change of tidewire.changes({ after: sequence, types, follow: false })) found.push(change);
  assert.deepEqual(
    found.map(({ type }) => type),
    ['followed', 'deleted', 'reached'],
  );
  assert.equal(found[1].id, post.id);
});

test('who breaks off between the readers of a post goes on behind the last one', async () => {
  const readers = Array.from({ length: 12 }, (_, nth) => `late-${nth}`).sort();
  for (const reader of readers) {
    await tidewire.follow(reader, 'hal');
    await tidewire.changeRules(reader, { notify: true });
  }
  const { value: begin } = await tidewire.changes({ follow: false }).next();
  const post = await tidewire.publish({ author: 'hal', body: 1 });
  for (const follow of [true, false]) {
    let place = begin.place;
    const seen = [];
    while (seen.length < readers.length) {
      let count = 0;
      for await (const change of tidewire.changes({ after: place, types: ['missed'], follow })) {
        if (change.type === 'missed') {
          assert.deepEqual([change.post.id, change.place], [post.id, `${begin.sequence}-${change.reader}`]);
          seen.push(change.reader);
          count++;
        }
        place = change.place;
        if (count === 5 || seen.length === readers.length) break;
      }
    }
    assert.deepEqual(seen, readers);
    // Behind the last one comes what was accepted after the post.
    for await (const change of tidewire.changes({ after: place, types: ['missed'], follow: false }))
      place = change.place;
    assert.equal(place, String(begin.sequence + 1));
  }
  await assert.rejects(tidewire.changes({ after: '1-ann', types: ['deleted'] }).next(), { field: 'after_reader' });
  await assert.rejects(tidewire.changes({ after: '1-', types: ['missed'] }).next(), { field: 'after_reader' });
  await assert.rejects(tidewire.changes({ after: 'x', types: ['missed'] }).next(), { field: 'after' });
});

test('more than comes in one answer is read up to the present', async () => {
  const { sequence } = (await tidewire.changes({ follow: false }).next()).value;
  const drafts = Array.from({ length: 1_000 }, (_, nth) => ({ author: 'fay', body: nth }));
  for (let nth = 0; nth < 3; nth++) await tidewire.publishMany(drafts);
  const seen = [];
  for await (const change of tidewire.changes({ after: sequence, follow: false })) {
    if (change.type === 'published') seen.push(change.post.body);
  }
  assert.deepEqual(
    seen,
    [0, 1, 2].flatMap(() => drafts.map(({ body }) => body)),
  );
});

test('who breaks off leaves no stream behind', async () => {
  for await (const _ of tidewire.changes({ after: 0 })) break;
  await until('no stream is open', async () => /^tidewire_change_streams 0$/m.test(await tidewire.metrics()));
});

test('what the server does not have any more is refused, with where it begins', async () => {
  await tidewire.publish({ author: 'gus', body: 1 });
  // The journal is cut where somebody is erased.
  await until('gus is erased', () => tidewire.eraseUser('gus'));
  const error = await tidewire
    .changes({ after: 0 })
    .next()
    .catch((error) => error);
  assert.ok(error instanceof TidewireError);
  assert.deepEqual([error.code, error.status], ['gone', 410]);
  const { value } = await tidewire.changes({ after: error.oldest }).next();
  assert.ok(value.sequence >= error.oldest);
});

test('where nobody is, it says so at first', async () => {
  const nowhere = new Tidewire({ server: 'http://127.0.0.1:9', retries: 0 });
  await assert.rejects(nowhere.changes().next(), { code: 'no_answer', status: 0 });
});

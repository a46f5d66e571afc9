// The client's merging against a naive model: whatever overtakes whatever, in the end it shows what the server has.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Timeline } from '../../src/console/assets/tidewire.js';
import { Server, randomness } from './model.mjs';

const HISTORIES = Number(process.env.TIDEWIRE_JS_HISTORIES ?? 3000);
const STEPS = 120;

/** A client between whose steps anything can happen on the way to and from the server. */
class Client {
  constructor(server, random) {
    Object.assign(this, { server, random, timeline: new Timeline(4, 12), isConnected: false, waiting: [], read: null });
  }

  connect() {
    if (this.isConnected) return;
    const [hello, ...missed] = this.server.greet(this.timeline.session);
    this.isConnected = true;
    this.waiting = missed;
    this.timeline.hello(hello);
  }

  drop() {
    this.isConnected = false;
    this.waiting = [];
  }

  /** Something changes at the server, which tells of it if there is a connection. */
  change() {
    const messages = this.server.change();
    if (this.isConnected) this.waiting.push(...messages);
  }

  receive() {
    const message = this.waiting.shift();
    if (message) assert.ok(this.timeline.apply(message), 'no number is missing');
  }

  startRead() {
    this.read ??= this.timeline.startRead();
  }

  /** The server answers, which the client learns later. */
  answer() {
    if (this.read && !this.page) this.page = this.server.page(this.read);
  }

  finishRead() {
    if (!this.page) return;
    this.timeline.finishRead(this.read, this.page);
    this.read = this.page = null;
  }

  failRead() {
    this.read = this.page = null;
  }

  settle() {
    this.connect();
    while (this.waiting.length) this.receive();
    for (let reads = 0; ; reads++) {
      assert.ok(reads < 100, 'reading comes to an end');
      this.startRead();
      if (!this.read) return;
      this.answer();
      this.finishRead();
    }
  }

  check() {
    const { items, hasMore, isCurrent } = this.timeline;
    const truth = this.server.feed();
    assert.ok(isCurrent);
    assert.deepEqual([...items], truth.slice(0, items.length), 'the newest entries, none missing or twice');
    if (!hasMore) assert.equal(items.length, truth.length);
    assert.ok(items.length >= Math.min(4, truth.length), 'as many as asked for');
  }
}

test('whatever overtakes whatever, the client ends up with the newest entries of the feed', () => {
  for (let seed = 1; seed <= HISTORIES; seed++) {
    const random = randomness(seed);
    const client = new Client(new Server(random), random);
    const steps = [
      [30, () => client.change()],
      [30, () => client.receive()],
      [15, () => client.startRead()],
      [15, () => client.answer()],
      [15, () => client.finishRead()],
      [2, () => client.failRead()],
      [4, () => client.drop()],
      [8, () => client.connect()],
      [4, () => client.timeline.wantMore()],
      [1, () => client.server.restart(client)],
      [1, () => client.settle()],
    ];
    const bag = steps.flatMap(([weight, step]) => Array(weight).fill(step));
    try {
      for (let step = 0; step < STEPS; step++) bag[random(bag.length)]();
      client.settle();
      client.check();
      client.timeline.wantMore();
      client.settle();
      client.check();
    } catch (cause) {
      throw new Error(`history ${seed}`, { cause });
    }
  }
});

const item = (id, cursor, text = id) => ({ post: { id, text }, cursor });
const ids = (timeline) => timeline.items.map(({ post }) => post.id).join(' ');

/** A timeline that has read this page, and is at number 0. */
function read(page, limit = 3, keep = 500) {
  const timeline = new Timeline(limit, keep);
  timeline.hello({ epoch: 'e', seq: 0, recovered: false });
  timeline.finishRead(timeline.startRead(), page);
  return timeline;
}

test('the first read waits for nothing but asks for nothing older', () => {
  assert.deepEqual((({ before, limit }) => ({ before, limit }))(new Timeline(20).startRead()), { before: null, limit: 20 });
});

test('an entry below what was read is dropped, and one at the bound is kept', () => {
  const timeline = read({ items: [item('9', 'i'), item('8', 'h'), item('5', 'e')], next: 'e' });
  timeline.apply({ seq: 1, type: 'post', item: item('4', 'd') });
  timeline.apply({ seq: 2, type: 'post', item: item('7', 'g') });
  assert.equal(ids(timeline), '9 8 7 5');
  timeline.apply({ seq: 3, type: 'post', item: item('8', 'c') });
  assert.equal(ids(timeline), '9 7 5', 'an entry that sank below what was read');
  assert.ok(timeline.hasMore);
});

test('an entry stands once, and an update leaves it where it is', () => {
  const timeline = read({ items: [item('2', 'b'), item('1', 'a')], next: null });
  timeline.apply({ seq: 1, type: 'post', item: item('1', 'c', 'again') });
  timeline.apply({ seq: 2, type: 'update', post: { id: '2', text: 'edited' } });
  timeline.apply({ seq: 3, type: 'update', post: { id: '77', text: 'not here' } });
  assert.deepEqual([...timeline.items], [item('1', 'c', 'again'), item('2', 'b', 'edited')]);
});

test('what is stale goes, and is read again from there', () => {
  const timeline = read({ items: [item('3', 'c'), item('2', 'b'), item('1', 'a')], next: null });
  timeline.apply({ seq: 1, type: 'stale', below: 'c' });
  assert.equal(ids(timeline), '3');
  const { before, limit } = timeline.startRead();
  assert.deepEqual({ before, limit }, { before: 'c', limit: 3 });
  timeline.apply({ seq: 2, type: 'stale', below: null });
  assert.equal(ids(timeline), '');
  assert.equal(timeline.startRead().before, null);
});

test('after a stale as much is read again as there was', () => {
  const six = ['f', 'e', 'd', 'c', 'b', 'a'].map((cursor) => item(cursor, cursor));
  const timeline = read({ items: six, next: null });
  timeline.apply({ seq: 1, type: 'stale', below: 'e' });
  timeline.apply({ seq: 2, type: 'stale', below: 'f' });
  assert.deepEqual([timeline.startRead().before, timeline.startRead().limit], ['f', 5]);
});

test('a page that a stale has overtaken is not used', () => {
  const timeline = read({ items: [item('9', 'i'), item('8', 'h'), item('7', 'g')], next: 'g' });
  timeline.wantMore();
  const overtaken = timeline.startRead();
  timeline.apply({ seq: 1, type: 'stale', below: 'h' });
  timeline.finishRead(overtaken, { items: [item('1', 'a')], next: null });
  assert.equal(ids(timeline), '9 8');
  assert.equal(timeline.startRead().before, 'h');
});

test('a number that is missing is noticed, and there is nothing to resume from', () => {
  const timeline = read({ items: [], next: null });
  assert.ok(timeline.apply({ seq: 1, type: 'marker', cursor: 'a' }));
  assert.deepEqual(timeline.session, { epoch: 'e', seq: 1 });
  assert.equal(timeline.apply({ seq: 3, type: 'remove', post: '1' }), false);
  assert.equal(timeline.session, null);
});

test('the old entries stay until the feed is read again', () => {
  const timeline = read({ items: [item('1', 'a')], next: null });
  timeline.hello({ epoch: 'f', seq: 7, recovered: false });
  assert.equal(ids(timeline), '1');
  assert.equal(timeline.isCurrent, false);
  timeline.finishRead(timeline.startRead(), { items: [item('2', 'b')], next: null });
  assert.equal(ids(timeline), '2');
  assert.ok(timeline.isCurrent);
});

test('who was at the end of the feed is there again after a restart, whatever is new and however long it is', () => {
  const entries = (count) => Array.from({ length: count }, (_, nth) => item(`${nth}`, String.fromCharCode(0x4000 + nth))).reverse();
  for (const [size, added, keep, expected] of [[5, 3, 500, 8], [2, 0, 500, 2], [150, 2, 500, 152], [6, 4, 8, 8]]) {
    const server = entries(size + added);
    const old = server.slice(added);
    const timeline = new Timeline(2, keep);
    const readOn = (shown) => {
      for (let wanted, nth = 0; (wanted = timeline.startRead()); nth++) {
        assert.ok(nth < 100, 'it comes to an end');
        const { before, limit } = wanted;
        const rest = shown.filter(({ cursor }) => before === null || cursor < before);
        const items = rest.slice(0, limit);
        timeline.finishRead(wanted, { items, next: rest.length > limit ? items.at(-1).cursor : null });
      }
    };
    timeline.hello({ epoch: 'e', seq: 0, recovered: false });
    readOn(old);
    while (timeline.hasMore && timeline.items.length < keep) {
      timeline.wantMore();
      readOn(old);
    }
    assert.deepEqual([timeline.items.length, timeline.hasMore], [size, false]);
    timeline.hello({ epoch: 'f', seq: 0, recovered: false });
    readOn(server);
    const all = timeline.items.length === server.length;
    assert.deepEqual([timeline.hasMore, all || timeline.items.length >= expected], [!all, true], `${size} and ${added}`);
  }
});

test('it does not grow for ever', () => {
  const timeline = read({ items: [item('1', 'a')], next: null }, 2, 3);
  ['b', 'c', 'd', 'e'].forEach((cursor, nth) => {
    timeline.apply({ seq: nth + 1, type: 'post', item: item(cursor, cursor) });
  });
  assert.equal(ids(timeline), 'e d c');
  assert.ok(timeline.hasMore);
  timeline.wantMore();
  assert.equal(timeline.startRead().before, 'c');
});

test('a kind of message that is not known yet changes nothing', () => {
  const timeline = read({ items: [item('1', 'a')], next: null });
  assert.ok(timeline.apply({ seq: 1, type: 'sparkle', post: '1' }));
  assert.equal(ids(timeline), '1');
});

test('a beat changes nothing, unless it says that something was missed', () => {
  const timeline = new Timeline();
  timeline.hello({ epoch: 'e', seq: 4, recovered: false });
  assert.equal(timeline.apply({ type: 'beat', seq: 4 }), true);
  assert.deepEqual(timeline.session, { epoch: 'e', seq: 4 });
  assert.equal(timeline.apply({ type: 'beat', seq: 5 }), false);
  assert.equal(timeline.session, null);
});

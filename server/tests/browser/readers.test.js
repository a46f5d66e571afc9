// The feed of a reader in the console, as it changes, in a real browser against the real server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { browser, page, server } from './open_console.js';
import { STEP_MAX_MS, entry, focused, held, isLive, openFeed, readFeed, requests, shows, until, visit } from './steps.js';

test('without a reader there is a choice, with those that were looked at lately', async () => {
  await server.follow('ada', 'bob');
  await visit('readers');
  await page.locator('#suggested').getByRole('link', { name: 'ada' }).waitFor();
  assert.equal(await page.locator('#recent').isVisible(), false);
  await page.locator('#suggested').getByRole('link', { name: 'ada' }).click();
  await page.getByRole('heading', { name: 'Feed of ada' }).waitFor();
  await page.locator('.rail').getByRole('link', { name: 'Readers' }).click();
  await page.locator('#recent').getByRole('link', { name: 'ada' }).waitFor();
});

test('what is published arrives without a reload, with all fields of its body', async () => {
  await server.follow('ann', 'bob', 'cas');
  await server.publish('bob', 'was there before');
  await openFeed('ann');
  await shows(['was there before']);
  await server.publish('cas', 'from outside', { tags: ['tea', 'rust'] });
  await shows(['from outside', 'was there before']);
  assert.deepEqual(await entry('from outside').locator('.chip').allTextContents(), ['#tea', '#rust']);
  await server.ask('POST', '/v1/posts?wait=delivered', { author: 'bob', body: { text: 'with more', celsius: 7.5, wind: [3, 'NW'] } });
  await entry('with more').waitFor();
  assert.deepEqual(await entry('with more').locator('.text').allTextContents(), ['with more', JSON.stringify({ celsius: 7.5, wind: [3, 'NW'] }, null, 2)]);
});

test('an entry is shown as the JSON that the server sends, and copied', async () => {
  await browser.context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await server.follow('joe', 'kay');
  const { id } = await server.publish('kay', 'raw');
  await openFeed('joe');
  const button = entry('raw').getByRole('button', { name: `JSON Post ${id} by kay` });
  await button.click();
  assert.equal(await button.getAttribute('aria-expanded'), 'true');
  const shown = await entry('raw').getByRole('group', { name: `Post ${id} as JSON` }).textContent();
  const { items } = await server.ask('GET', '/v1/users/joe/feed');
  assert.deepEqual(JSON.parse(shown).post, items[0].post);
  await entry('raw').getByRole('button', { name: 'Copy', exact: true }).click();
  await entry('raw').getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), shown);
  await server.publish('kay', 'another');
  await page.getByRole('button', { name: '1 new post' }).click();
  await entry('another').waitFor();
  assert.equal(await entry('raw').locator('.raw').isVisible(), true, 'it stays open while the feed goes on');
  await button.click();
  assert.equal(await entry('raw').locator('.raw').isVisible(), false);
});

test('what is deleted goes, and what is edited reads anew', async () => {
  await server.follow('dan', 'eve');
  const first = await server.publish('eve', 'one');
  await server.publish('eve', 'two');
  await openFeed('dan');
  await shows(['two', 'one']);
  await server.ask('PATCH', `/v1/posts/${first.id}`, { body: { text: 'uno' } });
  await shows(['two', 'uno']);
  await entry('uno').getByText('edited').waitFor();
  const dialog = page.getByRole('dialog');
  await entry('two').getByRole('button', { name: 'Delete' }).click();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await shows(['two', 'uno']);
  await entry('two').getByRole('button', { name: 'Delete' }).click();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await shows(['uno']);
  await server.ask('DELETE', `/v1/posts/${first.id}`);
  await shows([]);
  await page.getByText('This feed is empty. Follow a source, or publish a post.').waitFor();
});

test('what is hidden goes, and comes back', async () => {
  await server.follow('fay', 'gil');
  const { id } = await server.publish('gil', 'look');
  await openFeed('fay');
  await entry('look').getByRole('button', { name: 'Hide from all' }).click();
  await shows([]);
  await page.getByRole('heading', { name: 'Hidden from all readers' }).waitFor();
  assert.equal(await page.locator('#hidden-posts a').getAttribute('href'), `/console/posts?post=${id}`);
  await page.getByRole('button', { name: 'Unhide post' }).click();
  await shows(['look']);
  assert.equal(await page.locator('#hidden-posts').isVisible(), false);
});

test('an unfollow takes its posts along, and a follow brings them', async () => {
  await server.follow('hal', 'ida', 'jon');
  for (let nth = 0; nth < 3; nth++) {
    await server.publish('ida', `ida ${nth}`);
    await server.publish('jon', `jon ${nth}`);
  }
  await openFeed('hal');
  await shows(['jon 2', 'ida 2', 'jon 1', 'ida 1', 'jon 0', 'ida 0']);
  await server.unfollow('hal', 'ida');
  await shows(['jon 2', 'jon 1', 'jon 0']);
  await server.follow('hal', 'ida');
  await shows(['jon 2', 'ida 2', 'jon 1', 'ida 1', 'jon 0', 'ida 0']);
  await server.unfollow('hal', 'jon');
  await shows(['ida 2', 'ida 1', 'ida 0']);
});

test('a long feed is read further down, and changes there, too', async () => {
  await server.follow('kim', 'lou', 'max');
  const texts = [];
  for (let nth = 0; nth < 90; nth++) {
    texts.unshift(`${nth} of ${nth % 2 ? 'max' : 'lou'}`);
    await server.publish(nth % 2 ? 'max' : 'lou', texts[0]);
  }
  await openFeed('kim');
  await shows(texts.slice(0, 20));
  for (let shownBefore = 20; shownBefore < 90; shownBefore += 20) {
    await page.getByRole('button', { name: 'Load more' }).click();
    await shows(texts.slice(0, shownBefore + 20));
  }
  await page.getByRole('button', { name: 'Load more' }).waitFor({ state: 'hidden' });
  await server.unfollow('kim', 'max');
  await shows(texts.filter((text) => text.endsWith('lou')));
  await server.follow('kim', 'max');
  await page.waitForFunction(() => document.querySelector('#posts .text').textContent.endsWith('max'));
  // How much of it is read again by itself depends on what came first.
  const click = () => document.querySelector('#more:not([hidden])')?.click();
  const isAll = () => document.querySelectorAll('#posts > li').length === 90;
  for (const began = Date.now(); !(await page.evaluate(isAll)) && Date.now() - began < STEP_MAX_MS; await sleep(50)) {
    await page.evaluate(click);
  }
  await shows(texts);
});

test('the focus stays where it went while a post was published', async () => {
  await server.follow('pat', 'pat2');
  await server.publish('pat2', 'there already');
  await openFeed('pat');
  let release;
  const isReleased = new Promise((resolve) => (release = resolve));
  await page.route('**/v1/posts', async (route) => {
    const response = await route.fetch();
    await isReleased;
    await route.fulfill({ response });
  });
  await page.getByRole('button', { name: 'Publish…' }).click();
  await page.locator('#publish').getByLabel('Author').fill('pat2');
  await page.locator('#publish').getByLabel('Text').fill('answered late');
  await page.keyboard.press('Control+Enter');
  await shows(['answered late', 'there already']);
  await page.keyboard.press('Escape');
  await entry('answered late').getByRole('button', { name: 'Reply' }).focus();
  const name = await focused();
  release();
  await page.locator('#publish-note', { hasText: 'Published as post' }).waitFor({ state: 'attached' });
  assert.equal(await focused(), name);
});

test('the focus stays at the same button of the same entry while the feed goes on', async () => {
  await server.follow('lea', 'moe');
  for (let nth = 0; nth < 3; nth++) await server.publish('moe', `line ${nth}`);
  await openFeed('lea');
  await entry('line 1').getByRole('button', { name: 'Mark read' }).focus();
  const name = await focused();
  const { items } = await server.ask('GET', '/v1/users/lea/feed');
  await server.ask('PATCH', `/v1/posts/${items[1].post.id}`, { body: { text: 'line 1, edited' } });
  await shows(['line 2', 'line 1, edited', 'line 0']);
  assert.equal(await focused(), name);
  await server.publish('moe', 'line 3');
  await page.getByRole('button', { name: '1 new post' }).waitFor();
  await shows(['line 2', 'line 1, edited', 'line 0']);
  assert.equal(await focused(), name);
  await page.getByRole('button', { name: '1 new post' }).press('Enter');
  await shows(['line 3', 'line 2', 'line 1, edited', 'line 0']);
  assert.match(await focused(), /^Why\? Post \d+ by moe$/, 'the keyboard goes on at what came');
});

test('a post is text, whatever is in it', async () => {
  await server.follow('quy', 'rex');
  const text = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
  await server.publish('rex', text);
  await server.ask('POST', '/v1/posts?wait=delivered', { author: 'rex', body: [text, { n: 1 }] });
  await openFeed('quy');
  await shows([JSON.stringify([text, { n: 1 }], null, 2), text]);
  assert.equal(await page.title(), 'quy · Tidewire console');
});

test('why a post is missing is said above the feed, and a hidden one is shown again from there', async () => {
  await server.follow('sam', 'tom', 'una');
  const hidden = await server.publish('tom', 'hidden');
  await server.ask('PUT', '/v1/users/sam/mutes/una');
  const muted = await server.publish('una', 'silence');
  await server.ask('PATCH', `/v1/posts/${hidden.id}`, { hidden: true });
  await openFeed('sam');
  const explain = async (id) => {
    await page.getByLabel('Why is a post missing?').fill(id);
    await page.keyboard.press('Enter');
    await page.locator('#explanation .verdict', { hasText: id }).waitFor();
    return page.locator('#explanation').innerText();
  };
  assert.match(await explain(muted.id), /is not in the feed\.[\s\S]*sam has muted una\./);
  assert.match(await explain('123456789'), /Post 123456789 is unknown\./);
  assert.match(await explain(hidden.id), /is hidden\./);
  await page.getByRole('button', { name: `Unhide post ${hidden.id}` }).click();
  await page.locator('#explanation', { hasText: `Post ${hidden.id} is in the feed.` }).waitFor();
  await shows(['hidden']);
});

test('why a post is in the feed is said below it, and the place is kept', async () => {
  await server.follow('tim', 'uwe');
  for (let nth = 0; nth < 15; nth++) await server.publish('uwe', `line ${nth}.`);
  await openFeed('tim');
  const low = entry('line 2.');
  await low.scrollIntoViewIfNeeded();
  const button = low.getByRole('button', { name: 'Why?' });
  const before = await button.boundingBox();
  await button.click();
  await low.getByText('tim follows uwe.').waitFor();
  assert.equal(await button.getAttribute('aria-expanded'), 'true');
  assert.equal((await button.boundingBox()).y, before.y, 'nothing above it has moved');
  assert.equal(await low.getByText('tim follows uwe.').isVisible(), true);
  await entry('line 7.').getByRole('button', { name: 'Why?' }).click();
  await entry('line 7.').getByText('tim follows uwe.').waitFor();
  await server.publish('uwe', 'line 15.');
  await page.getByRole('button', { name: '1 new post' }).click();
  await entry('line 15.').waitFor();
  assert.equal(await page.locator('#posts .why:visible').count(), 2, 'both stay open while the feed goes on');
  await button.click();
  assert.equal(await page.locator('#posts .why:visible').count(), 1);
});

test('an answer to Why? that comes after Hide does no harm, and why it is hidden is said above', async () => {
  await server.follow('val', 'wim');
  await server.publish('wim', 'in doubt');
  await openFeed('val');
  const why = await held('**/feed/explain/*');
  await entry('in doubt').getByRole('button', { name: 'Why?' }).click();
  await why.isAsked;
  await entry('in doubt').getByRole('button', { name: 'Hide' }).click();
  await shows([]);
  await why.answered();
  const { id } = await page.locator('#hidden-posts li').evaluate((row) => ({ id: /\d+/.exec(row.textContent)[0] }));
  await page.getByLabel('Why is a post missing?').fill(id);
  await page.getByRole('button', { name: 'Explain' }).click();
  await page.locator('#explanation', { hasText: `Post ${id} is hidden.` }).waitFor();
  await page.getByRole('button', { name: `Unhide post ${id}`, exact: true }).click();
  await shows(['in doubt']);
  await entry('in doubt').getByRole('button', { name: 'Why?' }).click();
  await entry('in doubt').getByText('val follows wim.').waitFor();
});

test('the line of the read marker is where it was set, here or elsewhere', async () => {
  await server.follow('xia', 'yul');
  for (const text of ['first', 'second', 'third']) await server.publish('yul', text);
  await openFeed('xia');
  const line = page.getByText('Read up to here');
  await entry('first').getByRole('button', { name: 'Mark read' }).click();
  await entry('first').getByText('Read up to here').waitFor();
  const { items } = await server.ask('GET', '/v1/users/xia/feed');
  await server.ask('PUT', '/v1/users/xia/marker', { cursor: items[1].cursor });
  await entry('second').getByText('Read up to here').waitFor();
  assert.equal(await line.count(), 1);
});

test('figures of the reader are above each part', async () => {
  await server.follow('zoe', 'abe', 'cas');
  await server.follow('abe', 'zoe');
  await server.publish('zoe', 'mine');
  await visit('readers?user=zoe&part=rules');
  const about = page.locator('#about');
  await until(async () => (await about.innerText()).includes('Follows\n2'), 'whom the reader follows');
  assert.match(await about.innerText(), /Followers\n1\nPosts\n1\nPosts are\npushed\nReader is\n(awake|asleep)\nLast read\n/);
  await visit('readers?user=nobody-knows&part=rules');
  await page.locator('#about-note', { hasText: 'nobody-knows is unknown: no posts, no follows, never read.' }).waitFor();
  await browser.forgive(/status of 404/, 1);
});

test('to look at a reader who sleeps changes nothing, until the feed is read', async () => {
  await server.follow('old', 'pal');
  await server.publish('pal', 'meanwhile');
  const { asked, end } = requests();
  await visit('readers?user=old');
  await page.getByText('old has never read this feed.').waitFor();
  await page.getByText('Reading wakes the reader').waitFor();
  await page.waitForLoadState('networkidle');
  end();
  assert.deepEqual(asked.filter((path) => /feed|events|live/.test(path) && !/\.js$/.test(path)), []);
  const { active, last_seen: seen } = await server.ask('GET', '/v1/users/old');
  assert.deepEqual([active, seen], [false, null]);
  assert.match(await page.locator('#about').innerText(), /Reader is\nasleep\nLast read\nnever/);
  assert.equal(await page.locator('#feed-state').isVisible(), false);
  await page.getByRole('button', { name: 'Read this feed' }).click();
  await isLive();
  await shows(['meanwhile']);
  assert.equal(await page.getByRole('button', { name: 'Read this feed' }).isVisible(), false);
  await until(async () => /Last read\njust now/.test(await page.locator('#about').innerText()), 'the reader was read now');
  await page.reload();
  await isLive();
  await shows(['meanwhile']);
});

test('a name that nobody has is called that, and is not made by looking at it', async () => {
  await visit('readers?user=no-such-name');
  await page.getByText('no-such-name is unknown: no posts, no follows, never read.').waitFor();
  await page.getByRole('button', { name: 'Read this feed' }).waitFor();
  await page.waitForLoadState('networkidle');
  assert.deepEqual((await server.ask('GET', '/v1/sources?prefix=no-such-name')).items, []);
  await visit('readers');
  assert.doesNotMatch(await page.locator('#recent').innerText(), /no-such-name/);
  await browser.forgive(/status of 404/, 1);
});

test('a tag shows its posts, without a connection and without what only readers have', async () => {
  await server.follow('ton', 'tag:steam');
  for (let nth = 0; nth < 25; nth++) await server.publish('ulf', `steam ${nth}.`, { tags: ['steam'], topic: 'kettles' });
  const sockets = [];
  const note = (socket) => sockets.push(socket.url());
  page.on('websocket', note);
  await visit('readers?user=tag:steam&part=rules');
  await page.getByRole('heading', { name: 'Posts of tag:steam' }).waitFor();
  assert.deepEqual(await page.locator('#parts a').allInnerTexts(), ['Posts', 'Followers']);
  await entry('steam 24.').waitFor();
  assert.equal(await page.locator('#posts > li').count(), 20);
  assert.match(await page.locator('#about').innerText(), /^Followers\n1\nPosts\n25\nPosts are\npushed$/);
  await page.getByRole('button', { name: 'Load more' }).click();
  await entry('steam 0.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Load more' }).isVisible(), false);
  await server.publish('ulf', 'the newest', { tags: ['steam'] });
  await page.getByRole('button', { name: 'Refresh' }).click();
  await entry('the newest').waitFor();
  assert.equal(await page.locator('#feed-state, #read-feed, #explain').filter({ visible: true }).count(), 0);
  page.off('websocket', note);
  assert.deepEqual(sockets, []);
  await entry('steam 24.').getByRole('link', { name: 'topic kettles' }).click();
  await page.getByRole('heading', { name: 'Posts of topic:kettles' }).waitFor();
  await entry('steam 24.').getByRole('link', { name: 'ulf', exact: true }).click();
  await page.getByRole('heading', { name: 'Feed of ulf' }).waitFor();
});

test('new posts wait while the pointer is at a post, and come when it leaves or at a click', async () => {
  await server.follow('ura', 'viv');
  await server.publish('viv', 'first');
  await openFeed('ura');
  const button = entry('first').getByRole('button', { name: 'Why?' });
  const wait = (name) => page.getByRole('button', { name, exact: true });
  await button.hover();
  const before = await button.boundingBox();
  for (const text of ['second', 'third', 'fourth']) await server.publish('viv', text);
  await wait('3 new posts').waitFor();
  assert.deepEqual(await button.boundingBox(), before, 'nothing moves under the pointer');
  await shows(['first']);
  await wait('3 new posts').click();
  await shows(['fourth', 'third', 'second', 'first']);
  assert.equal(await page.locator('#bring').isVisible(), false);
  await server.publish('viv', 'fifth');
  await wait('1 new post').waitFor();
  await page.mouse.move(0, 0);
  await shows(['fifth', 'fourth', 'third', 'second', 'first']);
});

test('a post that a repost brings up again stays under the pointer until it leaves', async () => {
  await server.follow('hold-reader', 'hold-author', 'hold-friend');
  const { id } = await server.publish('hold-author', 'older');
  await server.publish('hold-author', 'newer');
  await openFeed('hold-reader');
  await entry('older').getByRole('button', { name: 'Why?' }).hover();
  await server.publish('hold-friend', 'again', { repost_of: id });
  await server.publish('hold-author', 'newest');
  await page.getByRole('button', { name: '1 new post', exact: true }).waitFor();
  await shows(['newer', 'older']);
  await page.mouse.move(0, 0);
  await shows(['newest', 'older', 'newer']);
});

test('new posts wait while somebody reads further down', async () => {
  await server.follow('wil', 'xen');
  for (let nth = 0; nth < 20; nth++) await server.publish('xen', `line ${nth}.`);
  await openFeed('wil');
  const low = entry('line 3.');
  await low.evaluate((node) => node.scrollIntoView({ behavior: 'instant' }));
  const before = await low.boundingBox();
  await server.publish('xen', 'line 20.');
  const button = page.getByRole('button', { name: '1 new post', exact: true });
  await button.waitFor();
  assert.deepEqual(await low.boundingBox(), before);
  const { y } = await button.boundingBox();
  assert.ok(y >= 0 && y < 60, 'it is at the top of the window');
  await button.click();
  await entry('line 20.').waitFor();
  await until(() => entry('line 20.').evaluate((node) => node.getBoundingClientRect().top >= 0), 'what came is seen');
});

test('a feed that is paused is called that', async () => {
  await server.follow('yan', 'zac');
  await openFeed('yan');
  await page.getByRole('button', { name: 'Pause' }).click();
  assert.equal(await page.locator('#feed-state').textContent(), 'Paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  assert.equal(await page.locator('#feed-state').textContent(), 'Live');
});

test('authors, tags and ways of a post lead to their pages', async () => {
  await server.follow('abi', 'tag:lead');
  const { id } = await server.publish('ben', 'with links', { tags: ['lead'] });
  await openFeed('abi');
  const to = (name) => entry('with links').getByRole('link', { name, exact: true }).getAttribute('href');
  assert.deepEqual([await to('ben'), await to('#lead'), await to('tag:lead'), await to(`post ${id}`)], ['/console/readers?user=ben', '/console/readers?user=tag%3Alead', '/console/readers?user=tag%3Alead', `/console/posts?post=${id}`]);
});

test('a post of an author who is muted or blocked is shown again from its explanation', async () => {
  await server.follow('cai', 'dee', 'eli');
  const muted = await server.publish('dee', 'of the muted');
  const blocked = await server.publish('eli', 'of the blocked');
  await server.ask('PUT', '/v1/users/cai/mutes/dee');
  await server.ask('PUT', '/v1/users/cai/blocks/eli');
  await openFeed('cai');
  await shows([]);
  // A block ends the follow as well.
  for (const [{ id }, name, said] of [[muted, 'Unmute dee', 'dee'], [blocked, 'Unblock eli', 'Nothing brings it into the feed.']]) {
    await page.getByLabel('Why is a post missing?').fill(id);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name }).click();
    await page.locator('#explanation', { hasText: said }).filter({ hasNotText: 'Blockers' }).waitFor();
  }
  await shows(['of the muted']);
  assert.deepEqual(await server.ask('GET', '/v1/users/cai/blocks').then(({ items }) => items), []);
});

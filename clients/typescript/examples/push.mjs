#!/usr/bin/env node
// Sends push notifications for posts that sleeping readers missed. This example prints them.
//
//     tidewire serve --active-window 5s &      # a reader without requests for 5 seconds sleeps; in production use 10m
//     npm install tidewire
//     node push.mjs                            # TIDEWIRE_SERVER and TIDEWIRE_KEY name another server and its key
//
// ann follows bob and opts in. Publish as bob, and she gets a push if she is asleep:
//
//     curl -X POST localhost:8080/v1/posts -H 'Content-Type: application/json' -d '{"author":"bob","body":{"text":"hello"}}'
//
// The place in the stream is stored after each push. So after a crash one is sent again, and none is lost: a provider of
// push notifications that gets the same key twice replaces the first push with the second.

import { readFile, rename, writeFile } from 'node:fs/promises';

import { Tidewire } from 'tidewire';

const PLACE = process.env.PUSH_PLACE ?? 'push.place';

const tidewire = new Tidewire({
  server: process.env.TIDEWIRE_SERVER ?? 'http://127.0.0.1:8080',
  token: process.env.TIDEWIRE_KEY,
});

/** A stand-in for the provider of push notifications. */
async function push(reader, key, text) {
  console.log(`push to ${reader} (${key}): ${text}`);
}

/** The stored place. At the first start there is none, and the stream starts with posts published from now on. */
async function stored() {
  return readFile(PLACE, 'utf8').catch((cause) => {
    // Any other failure must not start anew, or the messages since the stored place would be lost.
    if (cause.code !== 'ENOENT') throw cause;
  });
}

/** Replaces the file as a whole, so that a crash leaves the old place or the new one. */
async function store(place) {
  await writeFile(`${PLACE}.new`, place);
  await rename(`${PLACE}.new`, PLACE);
}

await tidewire.follow('ann', 'bob');
await tidewire.changeRules('ann', { notify: true });
for (;;) {
  try {
    // It reconnects by itself after a lost connection.
    for await (const change of tidewire.changes({ after: await stored(), types: ['missed'] })) {
      if (change.type === 'missed') {
        // Deleted posts are not returned, and need no push.
        const { posts } = await tidewire.getPosts([change.post.id]);
        for (const { id, author, body } of posts) {
          await push(change.reader, `${change.reader}/${id}`, `${author}: ${body?.text ?? '(not a text)'}`);
        }
      }
      await store(change.place);
    }
  } catch (error) {
    if (error.code !== 'gone') throw error;
    console.error(`posts up to ${error.oldest} are no longer known: continuing after them`);
    await store(String(error.oldest));
  }
}

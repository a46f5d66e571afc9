// The programs of examples/, with the installed package.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Tidewire } from 'tidewire';

import { Server, until } from './server.mjs';

test('the sender of push notifications names who sleeps, and goes on where it was killed', async () => {
  // Where the package is found, as in a folder of a user.
  const folder = await mkdtemp(fileURLToPath(new URL('push-', import.meta.url)));
  await copyFile(new URL('../examples/push.mjs', import.meta.url), path.join(folder, 'push.mjs'));
  const server = await Server.start({ words: ['--active-window', '1s'] });
  const tidewire = new Tidewire({ server: server.origin });
  const env = { ...process.env, TIDEWIRE_SERVER: server.origin, PUSH_PLACE: path.join(folder, 'place') };
  let program;
  let [printed, errors] = ['', ''];
  const start = () => {
    program = spawn(process.execPath, ['push.mjs'], { cwd: folder, env });
    program.stdout.on('data', (text) => (printed += text));
    program.stderr.on('data', (text) => (errors += text));
  };
  const isPushed = (id, text) => () => {
    assert.equal(errors, '');
    return printed.includes(`push to ann (ann/${id}): bob: ${text}\n`);
  };
  try {
    start();
    await until('it has a place', () => readFile(env.PUSH_PLACE, 'utf8').catch(() => ''));
    await until('ann sleeps', async () => !(await tidewire.getUser('ann')).active);
    const first = await tidewire.publish({ author: 'bob', body: { text: 'one' } });
    await until('the first is pushed', isPushed(first.id, 'one'));
    const ended = once(program, 'exit');
    program.kill('SIGKILL');
    await ended;
    const second = await tidewire.publish({ author: 'bob', body: { text: 'two' } });
    start();
    await until('the second is pushed', isPushed(second.id, 'two'));
  } finally {
    program?.kill('SIGKILL');
    await server.stop();
    await rm(folder, { recursive: true });
  }
});

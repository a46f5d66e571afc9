// The first program of the README, run as it is printed there.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Server } from './server.mjs';

const README = new URL('README.md', import.meta.resolve('tidewire/package.json'));

test('the first program prints a feed, and the same live', async () => {
  const [, program] = (await readFile(README, 'utf8')).match(/^```js\n(import [^]*?)^```$/m);
  // Where the package is found, as in a folder of a user.
  const folder = await mkdtemp(fileURLToPath(new URL('readme-', import.meta.url)));
  const server = await Server.start();
  try {
    await writeFile(path.join(folder, 'first.mjs'), program);
    const env = { ...process.env, TIDEWIRE_SERVER: server.origin };
    const { stdout } = await promisify(execFile)(process.execPath, ['first.mjs'], {
      cwd: folder,
      env,
      timeout: 60_000,
    });
    assert.match(stdout, /^bob: hello$/m);
    assert.match(stdout, /^live: \[ 'hello' \]$/m);
  } finally {
    await server.stop();
    await rm(folder, { recursive: true });
  }
});

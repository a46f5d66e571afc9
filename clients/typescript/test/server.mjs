// The real server, on a port and a directory of its own.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const BUILT = fileURLToPath(new URL('../../../target/debug/tidewire', import.meta.url));
const PROGRAM = process.env.TIDEWIRE_PROGRAM ?? BUILT;
const WAIT_MAX_MS = 60_000;

export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  return port;
}

/** Waits until this is true, and returns what it is. */
export async function until(what, check) {
  for (const began = Date.now(); ; await sleep(10)) {
    const is = await check();
    if (is) return is;
    if (Date.now() - began > WAIT_MAX_MS) throw new Error(`never: ${what}`);
  }
}

export class Server {
  #child;
  #directory;
  #port;
  #words = [];

  /** Starts one; with an access file of this text and further words of its command line. */
  static async start({ access, words = [] } = {}) {
    const server = new Server();
    server.#directory = await mkdtemp(path.join(tmpdir(), 'tidewire-client-'));
    server.#port = await freePort();
    server.#words = words;
    if (access) {
      const file = path.join(server.#directory, 'access.toml');
      await writeFile(file, access, { mode: 0o600 });
      server.#words = [...words, '--access', file];
    }
    await server.run().catch(async (error) => {
      await server.stop();
      throw error;
    });
    return server;
  }

  get origin() {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Starts the program, on what an earlier run has left. */
  async run() {
    const data = path.join(this.#directory, 'data');
    const words = [
      'serve',
      '--listen',
      `127.0.0.1:${this.#port}`,
      '--data-dir',
      data,
      '--erasure-grace',
      '0s',
      ...this.#words,
    ];
    // Settings of whoever runs the tests are not the server's.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TIDEWIRE_')));
    this.#child = spawn(PROGRAM, words, { stdio: 'ignore', env });
    const [failure] = [new Promise((_, reject) => this.#child.on('error', reject))];
    const ready = until(`${PROGRAM} is ready`, async () => {
      if (this.#child.exitCode !== null) throw new Error(`${PROGRAM} ended with ${this.#child.exitCode}`);
      return fetch(`${this.origin}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    });
    await Promise.race([ready, failure]);
  }

  /** Ends the program as a crash does. */
  async kill(signal = 'SIGKILL') {
    if (!this.#child?.pid || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill(signal);
    await ended;
  }

  /** Ends it for good. */
  async stop() {
    await this.kill();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

// The real server, on a port and a directory of its own.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const REPOSITORY = fileURLToPath(new URL('../../..', import.meta.url));
export const PROGRAM = process.env.TIDEWIRE_BIN ?? path.join(REPOSITORY, 'target/debug/tidewire');
const START_MAX_MS = 30_000;
/** Without the settings of whoever runs the tests, which are not the server's. */
export const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TIDEWIRE_')));

export async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  return port;
}

/** Programs beside the server, or the server by a command that is printed somewhere. */
export class Programs {
  #children = [];

  /** Starts one, and waits until it answers. */
  async start(program, words, url, options = {}) {
    const child = spawn(program, words, { stdio: 'ignore', cwd: REPOSITORY, env: ENVIRONMENT, ...options });
    this.#children.push(child);
    const began = Date.now();
    while (!(await fetch(url).then(({ ok }) => ok, () => false))) {
      if (child.exitCode !== null || Date.now() - began > START_MAX_MS) throw new Error(`${program} does not answer`);
      await sleep(50);
    }
  }

  /** Ends all of them. */
  async stop() {
    for (const child of this.#children.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null)) {
      const ended = once(child, 'exit');
      child.kill();
      await ended;
    }
  }
}

export class Server {
  #child;
  #directory;
  #port;
  #words = [];
  #key;

  /** Starts one; with an access file of this text, and the key that it is asked with. */
  static async start({ access, key } = {}) {
    const server = new Server();
    server.#key = key;
    server.#directory = await mkdtemp(path.join(tmpdir(), 'tidewire-browser-'));
    server.#port = await freePort();
    if (access) {
      const file = path.join(server.#directory, 'access.toml');
      await writeFile(file, access, { mode: 0o600 });
      server.#words = ['--access', file];
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
    const words = ['serve', '--listen', `127.0.0.1:${this.#port}`, '--data-dir', path.join(this.#directory, 'data'), ...this.#words];
    this.#child = spawn(PROGRAM, words, { stdio: 'ignore', env: ENVIRONMENT });
    const began = Date.now();
    while (!(await this.#isReady())) {
      if (this.#child.exitCode !== null) throw new Error(`${PROGRAM} ended with ${this.#child.exitCode}`);
      if (Date.now() - began > START_MAX_MS) throw new Error(`${PROGRAM} does not get ready`);
      await sleep(20);
    }
  }

  /** Ends the program as a crash does. */
  async kill(signal = 'SIGKILL') {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill(signal);
    await ended;
  }

  /** Removes the data of a server that has ended. */
  async forget() {
    await rm(path.join(this.#directory, 'data'), { recursive: true, force: true });
  }

  /** Ends it for good. */
  async stop() {
    await this.kill();
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Asks, and takes no refusal for an answer. */
  async ask(method, url, body) {
    const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    const answer = await fetch(this.origin + url, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${url}: ${answer.status} ${text}`);
    return text && JSON.parse(text);
  }

  follow(follower, ...sources) {
    return this.ask('POST', '/v1/follows', { follows: sources.map((source) => ({ follower, source })) });
  }

  unfollow(follower, source) {
    return this.ask('DELETE', `/v1/users/${follower}/following/${source}`);
  }

  publish(author, text, more = {}) {
    return this.ask('POST', '/v1/posts?wait=delivered', { author, body: { text }, ...more });
  }

  /** The bodies' texts of a reader's whole feed, newest first. */
  async texts(user) {
    const { items } = await this.ask('GET', `/v1/users/${user}/feed?limit=100`);
    return items.map(({ post }) => post.body.text);
  }

  async #isReady() {
    return fetch(`${this.origin}/readyz`).then(({ ok }) => ok, () => false);
  }
}

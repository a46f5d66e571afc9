// The web server of the app in docs/tutorial.md. It needs Node 20 or newer, and no packages.

import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const port = Number(process.env.PORT ?? 3000);
const tidewire = process.env.TIDEWIRE ?? 'http://127.0.0.1:8080';

const sessions = new Map();
const userOf = (request) => sessions.get(/\bsession=([\w-]+)/.exec(request.headers.cookie)?.[1]);

const routes = {
  'GET /': (request, response) => sendFile(response, userOf(request) ? 'feed.html' : 'sign-in.html', 'text/html'),
  'GET /feed.js': (request, response) => sendFile(response, 'feed.js', 'text/javascript'),
  'GET /me': (request, response) => send(response, 200, JSON.stringify({ user: userOf(request), server: tidewire })),
  'POST /sign-in': async (request, response) => {
    const name = new URLSearchParams(await bodyOf(request)).get('name') ?? '';
    if (!/^[a-z0-9_]{1,30}$/.test(name)) return send(response, 400, 'a name has 1 to 30 of a-z, 0-9 and _');
    const session = randomUUID();
    sessions.set(session, name);
    const cookie = `session=${session}; HttpOnly; SameSite=Lax; Path=/`;
    send(response, 303, '', { 'Set-Cookie': cookie, Location: '/' });
  },
};

const app = createServer(async (request, response) => {
  try {
    const route = routes[`${request.method} ${request.url}`];
    if (!route) return send(response, 404, 'nothing is here');
    await route(request, response);
  } catch (error) {
    console.error(error);
    send(response, 500, 'the log of the app has the cause');
  }
});
app.listen(port, '127.0.0.1', () => console.log(`open http://localhost:${port}`));

function send(response, status, body, headers = {}) {
  const defaults = { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store' };
  response.writeHead(status, { ...defaults, ...headers }).end(body);
}

function sendFile(response, name, type) {
  send(response, 200, readFileSync(new URL(name, import.meta.url)), { 'Content-Type': `${type}; charset=utf-8` });
}

async function bodyOf(request) {
  let body = '';
  for await (const chunk of request) {
    body += chunk;
    if (body.length > 1000) throw new Error('a body of over 1,000 characters');
  }
  return body;
}

const secret = Buffer.from(readFileSync('login.secret', 'utf8'), 'base64');
const tokenSeconds = Number(process.env.TOKEN_SECONDS ?? 600);

routes['POST /token'] = (request, response) => {
  const user = userOf(request);
  if (!user) return send(response, 401, 'sign in first');
  const now = Date.now() / 1000;
  const part = (json) => Buffer.from(JSON.stringify(json)).toString('base64url');
  const claims = { sub: user, iat: now, exp: now + tokenSeconds };
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  const signature = createHmac('sha256', secret).update(signed).digest('base64url');
  send(response, 200, `${signed}.${signature}`);
};

const key = readFileSync('backend.key', 'utf8').trim();

routes['POST /sign-out'] = async (request, response) => {
  const user = userOf(request);
  for (const [session, name] of sessions) if (name === user) sessions.delete(session);
  if (user) {
    const headers = { Authorization: `Bearer ${key}` };
    const answer = await fetch(`${tidewire}/v1/users/${user}/revoke`, { method: 'POST', headers });
    if (!answer.ok) throw new Error(`revoke: ${answer.status} ${await answer.text()}`);
  }
  send(response, 303, '', { Location: '/' });
};

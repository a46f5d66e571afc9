// Requests to the server this page came from, and its refusals in words.

/** A request that was not done: `message` is for people. */
export class Refusal extends Error {
  /** @param {string} message @param {number} [status] @param {string} [code] @param {number} [oldest] the first event that the journal has, if it lacks others */
  constructor(message, status = 0, code = '', oldest = undefined) {
    super(message);
    this.oldest = oldest;
    this.status = status;
    this.code = code;
  }
}

const ANSWER_MAX_MS = 15_000;

/** The time limit of what the server may do for minutes, in milliseconds. */
export const LONG_MS = 600_000;

const CREDENTIAL = 'tidewire-credential';

/** The key or token that the server is asked with, for as long as this tab is open. */
export const credential = () => sessionStorage.getItem(CREDENTIAL) ?? '';

/** Asks with another one from now on. */
export function useCredential(text) {
  if (text) sessionStorage.setItem(CREDENTIAL, text);
  else sessionStorage.removeItem(CREDENTIAL);
}

/**
 * Asks the server.
 * @param {string} method
 * @param {string} path
 * @param {object} [body] sent as JSON
 * @param {number} [within] milliseconds after which the request is given up
 * @returns {Promise<{json: any, text: string, headers: Headers}>} `json` is null if the answer is no JSON
 * @throws {Refusal}
 */
export async function ask(method, path, body, within = ANSWER_MAX_MS) {
  const init = { method, headers: {}, signal: AbortSignal.timeout(within) };
  if (credential()) init.headers.Authorization = `Bearer ${credential()}`;
  if (body !== undefined) {
    init.headers['Content-Type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  let answer, text;
  try {
    answer = await fetch(path, init);
    text = await answer.text();
  } catch {
    throw new Refusal('The server does not answer.');
  }
  const json = parsed(text);
  if (!answer.ok) throw refused(answer, json);
  return { json, text, headers: answer.headers };
}

const refused = (answer, json) => new Refusal(inWords(answer, json), answer.status, json?.code, json?.oldest);

/** The refusal that an answer is. @param {Response} answer */
export const refusalOf = async (answer) => refused(answer, parsed(await answer.text()));

/** A path under a user's, of parts that may be anything. */
export const userPath = (user, ...parts) => ['/v1/users', ...[user, ...parts].map(encodeURIComponent)].join('/');

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function inWords(answer, problem) {
  const detail = problem?.detail ?? problem?.title ?? `the server answered ${answer.status}`;
  const again = answer.headers.get('Retry-After');
  return `Refused: ${detail}.${again ? ` Try again in ${again} s.` : ''}`;
}

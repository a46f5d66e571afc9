// Requests to the server of this page, and the texts of its refusals.

/** A refused or failed request. `message` is for people. */
export class Refusal extends Error {
  /** @param {string} message @param {number} [status] @param {string} [code] @param {number} [oldest] the first event in the journal, if earlier ones are missing */
  constructor(message, status = 0, code = '', oldest = undefined) {
    super(message);
    this.oldest = oldest;
    this.status = status;
    this.code = code;
  }
}

const ANSWER_MAX_MS = 15_000;

/** The time limit of requests that may take minutes, in milliseconds. */
export const LONG_MS = 600_000;

const CREDENTIAL = 'tidewire-credential';

/** The key or token of all requests. The tab stores it until it is closed. */
export const credential = () => sessionStorage.getItem(CREDENTIAL) ?? '';

/** Sets the key or token of later requests. */
export function useCredential(text) {
  if (text) sessionStorage.setItem(CREDENTIAL, text);
  else sessionStorage.removeItem(CREDENTIAL);
}

/**
 * Asks the server.
 * @param {string} method
 * @param {string} path
 * @param {object} [body] sent as JSON
 * @param {number} [within] timeout in milliseconds
 * @returns {Promise<{json: any, text: string, headers: Headers}>} `json` is null if the response is not JSON
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

/** Returns the refusal in a response. @param {Response} answer */
export const refusalOf = async (answer) => refused(answer, parsed(await answer.text()));

/** A path below a user's path. The parts may contain any characters. */
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

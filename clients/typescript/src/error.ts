import type { Problem, ProblemCode } from './types.js';

/**
 * What went wrong: a code of a refusal, which is stable, or one of the client's own:
 * - `no_answer`: nobody answered, or the connection broke. What was asked for may have been done;
 * - `timeout`: no answer in time, likewise;
 * - `unexpected_answer`: an answer that is none of Tidewire, as of a proxy;
 * - `partial`: a page of an iteration lacks what could not be read in time, also when it was read again.
 */
export type ErrorCode = ProblemCode | 'no_answer' | 'timeout' | 'unexpected_answer' | 'partial' | (string & {});

/** What the client says itself, without a refusal of the server. */
const OWN = ['no_answer', 'timeout', 'unexpected_answer', 'partial'];
/** Of a node that was not reached by its proxy, and others that pass by themselves. */
const TEMPORARY = [0, 408, 429, 502, 503, 504];
/** The connection was not made, so that nothing was sent. */
const NOT_SENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT'];

/** A request that was refused, or was not answered. */
export class TidewireError extends Error {
  override readonly name = 'TidewireError';
  /** Stable: branch on this. */
  readonly code: ErrorCode;
  /** The HTTP status; 0: there was no answer. */
  readonly status: number;
  /** The field, path part or parameter at fault. */
  readonly field?: string;
  /** Seconds after which the same may succeed. */
  readonly retryAfter?: number;
  /** The id by which the server's log has the request: `X-Request-Id` of the answer, if it had one. */
  readonly requestId?: string;
  /** Of `gone`: the first sequence that is possible. */
  readonly oldest?: number;
  /** Of `sequence_in_future`: the last sequence that is possible. */
  readonly newest?: number;
  /** Of many follows: each that cannot be made, by its index in the request. */
  readonly errors?: Problem['errors'];

  constructor(
    problem: Omit<Problem, 'type' | 'title' | 'code'> & { code: ErrorCode },
    { requestId, ...options }: ErrorOptions & { requestId?: string | null } = {},
  ) {
    const { code, status, detail } = problem;
    const said = OWN.includes(code) ? detail : `${status} ${code}: ${detail}`;
    super(requestId ? `${said} (request ${requestId})` : said, options);
    this.requestId = requestId ?? undefined;
    this.code = problem.code;
    this.status = problem.status;
    this.field = problem.field;
    this.retryAfter = problem.retry_after;
    this.oldest = problem.oldest;
    this.newest = problem.newest;
    this.errors = problem.errors;
  }

  /** Whether the request may have been done all the same. */
  get outcomeUnknown(): boolean {
    if (this.status === 0) return !this.#isNotSent;
    if (this.code !== 'unexpected_answer') return this.code === 'outcome_unknown';
    // A proxy has answered: it does not know what the server behind it has done.
    return this.status < 300 || this.status === 408 || this.status >= 500;
  }

  /** Whether the same request may succeed later. */
  get isTemporary(): boolean {
    return TEMPORARY.includes(this.status) || this.code === 'partial';
  }

  get #isNotSent(): boolean {
    const { cause } = (this.cause ?? {}) as { cause?: { code?: string } };
    return NOT_SENT.includes(cause?.code ?? '');
  }
}

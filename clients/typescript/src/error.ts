import type { Problem, ProblemCode } from './types.js';

/**
 * The code of an error: that of a refusal, which is stable, or one of the client's own:
 * - `no_answer`: no server responded, or the connection broke. The request may have been executed;
 * - `timeout`: no response in time; the request may have been executed;
 * - `unexpected_answer`: a response that is not from Tidewire, for example of a proxy;
 * - `partial`: a page of an iteration lacks sources that could not be read in time, even after retries.
 */
export type ErrorCode = ProblemCode | 'no_answer' | 'timeout' | 'unexpected_answer' | 'partial' | (string & {});

/** The codes of the client itself, without a refusal of the server. */
const OWN = ['no_answer', 'timeout', 'unexpected_answer', 'partial'];
/** The statuses of temporary errors, including those of a proxy that does not reach its node. */
const TEMPORARY = [0, 408, 429, 502, 503, 504];
/** The connection failed, so nothing was sent. */
const NOT_SENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT'];

/** A refused request, or one without a response. */
export class TidewireError extends Error {
  override readonly name = 'TidewireError';
  /** A stable code on which programs branch. */
  readonly code: ErrorCode;
  /** The HTTP status; 0 without a response. */
  readonly status: number;
  /** The invalid field, path part or parameter. */
  readonly field?: string;
  /** Seconds after which a retry may succeed. */
  readonly retryAfter?: number;
  /** The id of the request in the server's log: `X-Request-Id` of the response, if it had one. */
  readonly requestId?: string;
  /** With `gone`: the smallest possible sequence. */
  readonly oldest?: number;
  /** With `sequence_in_future`: the largest possible sequence. */
  readonly newest?: number;
  /** Of many follows: each edge that cannot be added, by its index in the request. */
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

  /** True if the request may have been executed nevertheless. */
  get outcomeUnknown(): boolean {
    if (this.status === 0) return !this.#isNotSent;
    if (this.code !== 'unexpected_answer') return this.code === 'outcome_unknown';
    // A proxy has responded, which does not know the outcome at its server.
    return this.status < 300 || this.status === 408 || this.status >= 500;
  }

  /** True if the same request may succeed later. */
  get isTemporary(): boolean {
    return TEMPORARY.includes(this.status) || this.code === 'partial';
  }

  get #isNotSent(): boolean {
    const { cause } = (this.cause ?? {}) as { cause?: { code?: string } };
    return NOT_SENT.includes(cause?.code ?? '');
  }
}

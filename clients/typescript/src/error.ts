import type { Problem, ProblemCode } from './types.js';

/**
 * What went wrong: a code of a refusal, which is stable, or one of the client's own:
 * - `no_answer`: nobody answered, or the connection broke. What was asked for may have been done;
 * - `timeout`: no answer in time, likewise;
 * - `unexpected_answer`: an answer that is none of Tidewire, as of a proxy;
 * - `partial`: a page of a walk lacks what could not be read in time, also when it was read again.
 */
export type ErrorCode = ProblemCode | 'no_answer' | 'timeout' | 'unexpected_answer' | 'partial' | (string & {});

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
  /** Of `gone`: the first `after` that is possible. */
  readonly oldest?: number;
  /** Of `sequence_in_future`: the last `after` that is possible. */
  readonly newest?: number;
  /** Of many follows: each that cannot be made, by its index in the request. */
  readonly errors?: Problem['errors'];

  constructor(problem: Omit<Problem, 'type' | 'title' | 'code'> & { code: ErrorCode }, options?: ErrorOptions) {
    super(problem.detail, options);
    this.code = problem.code;
    this.status = problem.status;
    this.field = problem.field;
    this.retryAfter = problem.retry_after;
    this.oldest = problem.oldest;
    this.newest = problem.newest;
    this.errors = problem.errors;
  }
}

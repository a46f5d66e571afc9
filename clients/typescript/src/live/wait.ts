const BACKOFF_BASE_MS = 500;
const BACKOFF_MAX_MS = 30_000;

/** The value of a promise, unless it takes too long. */
export function inTime<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no response in ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Exponential, with full jitter, so that clients disconnected together do not reconnect together. */
export function backOff(attempt: number): number {
  return Math.random() * Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
}

// Polling: only while the page is visible and not paused, and not after a denial.

/** Time between two requests for something that does not exist: each refusal displaces another one from the server's list. */
const MISSING_EVERY_MS = 60_000;

/** The statuses of refusals that another key may avoid. */
export const DENIED = [401, 403];
const polls = new Set();
const stopped = new Set();
const resumed = new Set();
let paused = false;

/** True while updates are paused. */
export const isPaused = () => paused;

/** Pauses or resumes updates. */
export function pause(isPause) {
  paused = isPause;
  // Cancels scheduled requests too.
  wakeAll();
  (paused ? stopped : resumed).forEach((handle) => handle());
}

/** Calls a function when a pause begins. */
export const onPause = (handle) => stopped.add(handle);

/** Calls a function when a pause has ended. */
export const onResume = (handle) => resumed.add(handle);

/** A repeated request. */
export class Poll {
  #task;
  #every;
  #timer = 0;
  #isRunning = false;
  #isDenied = false;
  #isMissing = false;
  #askedAt = -Infinity;

  /**
   * @param {() => number} every milliseconds between two requests
   * @param {() => Promise<void>} task fails with a `Refusal` if the request was refused
   */
  constructor(every, task) {
    [this.#every, this.#task] = [every, task];
    polls.add(this);
    this.wake();
  }

  /** Schedules the next request; at once if `isDue`. */
  wake(isDue = false) {
    clearTimeout(this.#timer);
    if (isDue) {
      this.#isDenied = this.#isMissing = false;
      this.#askedAt = -Infinity;
    }
    if (document.hidden || this.#isDenied || this.#isRunning || (paused && !isDue)) return;
    const wait = Math.max(0, this.#askedAt + (this.#isMissing ? MISSING_EVERY_MS : this.#every()) - performance.now());
    this.#timer = setTimeout(() => this.#run(), wait);
  }

  async #run() {
    this.#isRunning = true;
    this.#askedAt = performance.now();
    const askedAt = this.#askedAt;
    try {
      await this.#task();
      this.#isMissing = false;
    } catch (refusal) {
      if (refusal.status === undefined) console.error(refusal);
      // A retry with the same key would be denied again, and the server counts denials.
      if (this.#askedAt === askedAt) [this.#isDenied, this.#isMissing] = [DENIED.includes(refusal.status), refusal.status === 404];
    }
    this.#isRunning = false;
    this.wake();
  }
}

/** Sends the due requests. */
export const wakeAll = () => polls.forEach((poll) => poll.wake());

document.addEventListener('visibilitychange', wakeAll);

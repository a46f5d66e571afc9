// What is asked for again and again: only while the page is seen and not paused, and not again by who was denied.

/** Time between two requests for something that does not exist: each refusal displaces another one from the server's list. */
const MISSING_EVERY_MS = 60_000;

/** The statuses of refusals that another key may not get. */
export const DENIED = [401, 403];
const polls = new Set();
const stopped = new Set();
const resumed = new Set();
let paused = false;

/** Whether what moves stands still, because somebody wants to look at it. */
export const isPaused = () => paused;

/** Stops what moves, or lets it go on. */
export function pause(isPause) {
  paused = isPause;
  // What is due later is not asked either.
  wakeAll();
  (paused ? stopped : resumed).forEach((handle) => handle());
}

/** Calls a function when a pause begins. */
export const onPause = (handle) => stopped.add(handle);

/** Calls a function when a pause has ended. */
export const onResume = (handle) => resumed.add(handle);

/** A question that is repeated. */
export class Poll {
  #task;
  #every;
  #timer = 0;
  #isRunning = false;
  #isDenied = false;
  #isMissing = false;
  #askedAt = -Infinity;

  /**
   * @param {() => number} every milliseconds between two questions
   * @param {() => Promise<void>} task fails with a `Refusal` if the answer was one
   */
  constructor(every, task) {
    [this.#every, this.#task] = [every, task];
    polls.add(this);
    this.wake();
  }

  /** Asks when it is time; at once if `isDue`. */
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
      // Whoever is not let in is not by asking again, and the server counts who tries.
      if (this.#askedAt === askedAt) [this.#isDenied, this.#isMissing] = [DENIED.includes(refusal.status), refusal.status === 404];
    }
    this.#isRunning = false;
    this.wake();
  }
}

/** Asks what is due. */
export const wakeAll = () => polls.forEach((poll) => poll.wake());

document.addEventListener('visibilitychange', wakeAll);

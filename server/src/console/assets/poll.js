// What is asked for again and again: only while the page is seen, and not again by who was denied.

/** The statuses of refusals that another key may not get. */
export const DENIED = [401, 403];
const polls = new Set();

/** A question that is repeated while it is wanted. */
export class Poll {
  #task;
  #every;
  #isWanted;
  #timer = 0;
  #isRunning = false;
  #isDenied = false;
  #askedAt = -Infinity;

  /**
   * @param {() => number} every milliseconds between two questions
   * @param {() => boolean} isWanted whether anybody sees the answer
   * @param {() => Promise<void>} task fails with a `Refusal` if the answer was one
   */
  constructor(every, isWanted, task) {
    [this.#every, this.#isWanted, this.#task] = [every, isWanted, task];
    polls.add(this);
  }

  /** Asks when it is time; at once if `isDue`. */
  wake(isDue = false) {
    clearTimeout(this.#timer);
    if (isDue) {
      this.#isDenied = false;
      this.#askedAt = -Infinity;
    }
    if (document.hidden || this.#isDenied || this.#isRunning || !this.#isWanted()) return;
    const wait = Math.max(0, this.#askedAt + this.#every() - performance.now());
    this.#timer = setTimeout(() => this.#run(), wait);
  }

  async #run() {
    this.#isRunning = true;
    this.#askedAt = performance.now();
    const askedAt = this.#askedAt;
    try {
      await this.#task();
    } catch (refusal) {
      // Whoever is not let in is not by asking again, and the server counts who tries.
      if (this.#askedAt === askedAt) this.#isDenied = DENIED.includes(refusal.status);
    }
    this.#isRunning = false;
    this.wake();
  }
}

/** Asks what is due; all of it if `isDue`, as with another key. */
export const wakeAll = (isDue = false) => polls.forEach((poll) => poll.wake(isDue));

document.addEventListener('visibilitychange', () => wakeAll());
addEventListener('place', () => wakeAll());
addEventListener('popstate', () => wakeAll());

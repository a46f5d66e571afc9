// The newest of what comes without end: a list that forgets the oldest, and stands still during a pause.

import { element } from './dom.js';
import { isPaused, onResume } from './poll.js';

const ROWS_MAX = 200;

/** A list with the newest first. */
export class Tail {
  #list;
  #waiting = [];
  #isDue = false;

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
    onResume(() => this.#drawSoon());
  }

  /** Adds a row. @param {string} time @param {string} kind @param {string} text what is seen of it @param {string} raw all of it, to unfold */
  add(time, kind, text, raw) {
    this.#waiting.push({ time, kind, text, raw });
    if (this.#waiting.length > ROWS_MAX) this.#waiting.shift();
    this.#drawSoon();
  }

  /** Forgets all. */
  clear() {
    this.#waiting = [];
    this.#list.replaceChildren();
  }

  #drawSoon() {
    if (this.#isDue || isPaused()) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#list.prepend(...this.#waiting.map(row).reverse());
      this.#waiting = [];
      while (this.#list.children.length > ROWS_MAX) this.#list.lastElementChild.remove();
    });
  }
}

function row({ time, kind, text, raw }) {
  const body = element('pre', { tabindex: 0, role: 'group', 'aria-label': `${kind} as JSON` });
  const details = element('details', {}, element('summary', {}, element('span', { class: 'hint' }, time), ' ', element('span', { class: 'chip' }, kind), ' ', text), body);
  details.addEventListener('toggle', () => (body.textContent = details.open ? pretty(raw) : ''));
  return element('li', {}, details);
}

function pretty(raw) {
  try {
    return JSON.stringify(JSON.parse(raw), null, 2);
  } catch {
    return raw;
  }
}

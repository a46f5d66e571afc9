// The newest rows of an endless stream: a list that removes the oldest, and does not change during a pause.

import { element } from './dom.js';
import { isPaused, onResume } from './poll.js';

/** The maximum number of retained rows of each group, and of shown rows. */
const ROWS_MAX = 200;
/** The group of rows that separate others. They are shown with any group. */
const SEPARATOR = 'separator';

/**
 * A row of the list.
 * @typedef {object} Row
 * @property {string} time
 * @property {string} kind
 * @property {(string|Node)[]} text the visible text
 * @property {string} raw the whole row as JSON, shown when it is opened
 * @property {string} [group] the group for the filter
 */

/** A list with the newest first. */
export class Tail {
  #list;
  #onDrawn;
  #group = '';
  #waiting = [];
  #isDue = false;

  /** @param {HTMLElement} list @param {(shown: number, isAnyKept: boolean) => void} [onDrawn] is called with the number of rows that are shown, without separators */
  constructor(list, onDrawn = () => {}) {
    [this.#list, this.#onDrawn] = [list, onDrawn];
    onResume(() => this.#drawSoon());
  }

  /** Adds a row. @param {Row} row */
  add(row) {
    const { group = '' } = row;
    this.#waiting.push({ ...row, group });
    // A group with many rows must not displace rows of other groups.
    if (this.#waiting.length > ROWS_MAX && this.#waiting.filter((one) => one.group === group).length > ROWS_MAX) {
      this.#waiting.splice(this.#waiting.findIndex((one) => one.group === group), 1);
    }
    this.#drawSoon();
  }

  /** Adds a row that separates later rows from earlier ones. */
  separate(text) {
    this.add({ text: [text], group: SEPARATOR });
  }

  /** Shows the rows of one group, or all if it is empty; also during a pause, because the user chooses. */
  filter(group) {
    this.#group = group;
    this.#select();
  }

  /** Removes all rows. */
  clear() {
    this.#waiting = [];
    this.#list.replaceChildren();
  }

  #drawSoon() {
    if (this.#isDue || isPaused()) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#list.prepend(...this.#waiting.map(rowElement).reverse());
      this.#waiting = [];
      this.#select();
    });
  }

  /** Hides the rows of other groups, and removes the oldest rows. */
  #select() {
    const kept = {};
    let shown = 0;
    for (const node of [...this.#list.children]) {
      const { group } = node.dataset;
      kept[group] = (kept[group] ?? 0) + 1;
      if (kept[group] > ROWS_MAX) node.remove();
      else if (group !== SEPARATOR) {
        node.hidden = (this.#group !== '' && group !== this.#group) || shown === ROWS_MAX;
        if (!node.hidden) shown++;
      }
    }
    this.#onDrawn(shown, Object.keys(kept).some((group) => group !== SEPARATOR));
  }
}

function rowElement({ time, kind, text, raw, group }) {
  if (group === SEPARATOR) return element('li', { class: 'separator', 'data-group': group }, ...text);
  const body = element('pre', { tabindex: 0, role: 'group', 'aria-label': `${kind} as JSON`, hidden: true });
  // The links are beside the summary: within it a screen reader would not find them.
  const details = element('details', {}, element('summary', {}, element('span', { class: 'hint' }, time), ' ', element('span', { class: 'chip' }, kind)));
  details.addEventListener('toggle', () => {
    body.hidden = !details.open;
    body.textContent = details.open ? pretty(raw) : '';
  });
  return element('li', { 'data-group': group }, details, element('span', {}, ...text), body);
}

function pretty(raw) {
  try {
    return JSON.stringify(JSON.parse(raw), null, 2);
  } catch {
    return raw;
  }
}

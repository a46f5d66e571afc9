// Tables of figures.

import { element } from './dom.js';

/**
 * A table whose first column names its rows. Columns are left-aligned; those whose heads begin with `#` have numbers, and are right-aligned.
 * @param {string} labelledBy the id of its title
 * @param {string[]} head
 * @param {(string|Node)[][]} rows
 */
export function table(labelledBy, head, rows) {
  const side = (nth) => (head[nth].startsWith('#') ? null : 'start');
  const line = ([first, ...others]) =>
    element('tr', {}, element('th', { scope: 'row' }, first), ...others.map((cell, nth) => element('td', { class: side(nth + 1) }, cell)));
  const made = element(
    'table',
    { 'aria-labelledby': labelledBy },
    element('thead', {}, element('tr', {}, ...head.map((name, nth) => element('th', { scope: 'col', class: side(nth) }, name.replace('#', ''))))),
    element('tbody', {}, ...rows.map(line)),
  );
  return element('div', { class: 'scroll', role: 'group', tabindex: 0, 'aria-labelledby': labelledBy }, made);
}

/** Replaces the content of a box, unless it is the same, so that a selection stays. The focus stays at the same control. */
export function fill(box, made) {
  const parts = [made].flat();
  const isSame = box.childNodes.length === parts.length && parts.every((part, nth) => part.isEqualNode(box.childNodes[nth]));
  if (isSame) return;
  const focused = box.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  box.replaceChildren(...parts);
  if (focused === null) return;
  const controls = [...box.querySelectorAll('a, button, input, select, summary, [tabindex]')];
  (controls.find((one) => nameOf(one) === focused) ?? controls[0])?.focus({ preventScroll: true });
}

const nameOf = (control) => control.getAttribute('aria-label') ?? control.textContent;

// A picture of the fan-out of one post: the width of a band shows its number of followers.

import { count, latency } from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const BANDS_HEIGHT = 150;
const BAND_MIN = 3;
const ROW_MIN = 40;
const GAP = 10;
const BAR = 10;
const LABEL_WIDTH = 176;
const WIDTH_MIN = 260;

/** The routes, with a note for each. */
const WAYS = [
  ['pushed', 'pushed', ({ finished_after_us: us }) => `the last after ${latency(us)}`],
  ['already_there', 'skipped', () => 'there already, or too old'],
  ['asleep', 'asleep', () => 'delivered when they wake'],
  ['pulled', 'pull it', () => 'when they read their feed'],
];

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children);
  return made;
}

/** Describes the picture for screen readers. */
export function inWords(fanout) {
  const parts = waysOf(fanout).map(({ value, name, note }) => `${count(value)} ${name}, ${note}`);
  return `Of ${count(fanout.followers)} followers: ${parts.join('; ') || 'none'}.`;
}

function waysOf(fanout) {
  return WAYS.map(([key, name, note]) => ({ key, name, value: fanout[key] ?? 0, note: note(fanout) })).filter(({ value }) => value > 0);
}

/**
 * Draws the picture.
 * @param {object} fanout as the server answers
 * @param {number} width in pixels
 * @returns {SVGElement|null} null if it has no followers to show yet
 */
export function picture(fanout, width) {
  const ways = waysOf(fanout);
  if (!ways.length) return null;
  const all = ways.reduce((sum, { value }) => sum + value, 0);
  const full = Math.max(WIDTH_MIN, Math.min(width, 1120));
  let y = 0;
  for (const way of ways) {
    way.height = Math.max(BAND_MIN, (way.value / all) * BANDS_HEIGHT);
    const row = Math.max(way.height, ROW_MIN);
    [way.top, way.middle] = [y + (row - way.height) / 2, y + row / 2];
    y += row + GAP;
  }
  const height = y - GAP;
  const source = ways.reduce((sum, way) => sum + way.height, 0);
  const right = full - LABEL_WIDTH;
  const top = (height - source) / 2;
  const parts = [];
  let from = top;
  for (const way of ways) {
    parts.push(band(way, from, right), svg('rect', { class: `end ${way.key}`, x: right - BAR, y: way.top, width: BAR, height: way.height, rx: 2 }), label(way, right + 12));
    from += way.height;
  }
  const bar = svg('rect', { class: 'source', x: 0, y: top, width: BAR, height: source, rx: 2 });
  return svg('svg', { class: 'fanout', viewBox: `0 0 ${full} ${height}`, width: full, height, role: 'img', 'aria-label': inWords(fanout) }, bar, ...parts);
}

function band({ key, top, height }, from, right) {
  const [left, end] = [BAR, right - BAR];
  const middle = (left + end) / 2;
  const curve = (y1, y2, x2) => `C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  const bottom = curve(top + height, from + height, left);
  const d = `M${left} ${from}${curve(from, top, end)}L${end} ${top + height}${bottom}Z`;
  return svg('path', { class: `band ${key}`, d });
}

function label({ value, name, note, middle }, x) {
  return svg(
    'text',
    { x, y: middle - 4 },
    svg('tspan', { class: 'much' }, count(value)),
    svg('tspan', { dx: 5 }, name),
    svg('tspan', { class: 'note', x, dy: 17 }, note),
  );
}

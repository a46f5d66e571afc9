// A chart of the last hour or day. uPlot draws the lines; the page adds the legend, the table and the text for screen readers.

import uPlot from './uplot.js';

import { element } from './dom.js';
import { clock, duration } from './words.js';

const HEIGHT = 176;
const HOUR = 3600;
// Seconds between two times below a chart.
const STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600];
const TABLE_ROWS = 12;
// Seconds between two rows of a table.
const ROW_STEPS = [5, 10, 15, 30, ...STEPS];
const FONT = '11px system-ui, sans-serif';
const DIGIT_WIDTH = 6.6;
// The charts show the same moment below the pointer.
const SYNC = 'page';

const isDark = matchMedia('(prefers-color-scheme: dark)');
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const isNumber = (value) => typeof value === 'number';
const minute = (seconds) => clock(seconds * 1000).slice(0, 5);

/**
 * What a chart shows.
 * @typedef {object} Kind
 * @property {string} title
 * @property {string} hint its meaning
 * @property {(value: number) => string} format
 * @property {number[]} [steps] the possible steps of the axis; by default any round number
 * @property {boolean} [stacked] the parts of a whole, one above the other
 * @property {string} [none] the text if there is no line
 * @property {(history: object) => [string, (number|null)[]][]} lines names and values, the most important line first
 */

/** A chart, its legend and its figures. */
export class Chart {
  #kind;
  #plot = null;
  #names = '';
  #seconds = HOUR;
  #now = 0;
  #every = 0;
  #times = [];
  #lines = [];
  #legend = element('ul', { class: 'legend' });
  #canvas;
  #table;
  #details;

  /** @param {Kind} kind */
  constructor(kind) {
    this.#kind = kind;
    this.#canvas = element('div', { class: 'plot', role: 'img', 'aria-label': `${kind.title}: no data yet` });
    this.#table = new Figures(kind.title);
    this.#details = element('details', { class: 'figures' }, element('summary', {}, 'Table'), this.#table.element);
    this.#details.addEventListener('toggle', () => this.#fillTable());
    const head = element('div', { class: 'chart-head' }, element('h3', {}, kind.title), element('p', { class: 'hint' }, kind.hint));
    this.element = element('div', { class: 'card chart' }, head, this.#legend, this.#canvas, this.#details);
    new ResizeObserver(() => this.#resize()).observe(this.#canvas);
    isDark.addEventListener('change', () => this.#plot?.redraw(true));
  }

  /** Shows a period. @param {object} history columns as the server sends them @param {number} seconds its length */
  show(history, seconds) {
    this.#seconds = seconds;
    [this.#now, this.#every] = [history.now_seconds, history.interval_seconds];
    this.#times = history.at_seconds;
    this.#lines = this.#kind.lines(history);
    const names = JSON.stringify(this.#lines.map(([name]) => name));
    if (names !== this.#names || !this.#plot) {
      this.#names = names;
      this.#rebuild();
    } else {
      this.#plot.setData(this.#data());
    }
    this.#say(null);
    this.#canvas.setAttribute('aria-label', this.#inWords());
    this.#fillTable();
  }

  #data() {
    const columns = this.#lines.map(([, values]) => values);
    if (!this.#kind.stacked) return [this.#times, ...columns];
    // The first line is the sum of all, the last one is its own part alone.
    const sums = [];
    for (let nth = columns.length - 1; nth >= 0; nth--) {
      const below = sums[0];
      sums.unshift(columns[nth].map((value, at) => (value ?? 0) + (below ? below[at] : 0)));
    }
    return [this.#times, ...sums];
  }

  #rebuild() {
    this.#plot?.destroy();
    this.#plot = null;
    const width = this.#canvas.clientWidth;
    // A tab that is not shown has no width; the chart is made when it has one.
    if (!width) return;
    this.#plot = new uPlot(this.#options(width), this.#data(), this.#canvas);
  }

  #resize() {
    const width = this.#canvas.clientWidth;
    if (!width) return;
    if (!this.#plot) {
      if (this.#times.length) this.#rebuild();
    } else if (this.#plot.width !== width) {
      this.#plot.setSize({ width, height: HEIGHT });
    }
  }

  #options(width) {
    const { format, stacked, steps } = this.#kind;
    const line = (_, nth) => {
      const name = `s${nth + 1}`;
      const fill = stacked || nth === 0 ? () => `${colour(name)}${stacked ? '66' : '1c'}` : undefined;
      // A single sample makes no line.
      const points = { show: (plot) => plot.data[0].length === 1, size: 6, fill: () => colour(name) };
      return { stroke: () => colour(name), width: 1.5, pxAlign: 0, fill, points };
    };
    const bands = stacked ? this.#lines.slice(1).map((_, nth) => ({ series: [nth + 1, nth + 2] })) : undefined;
    const text = { stroke: () => colour('muted'), font: FONT, ticks: { show: false } };
    return {
      width,
      height: HEIGHT,
      // The right padding is half as wide as a time below the axis.
      padding: [6, 18, 0, 0],
      legend: { show: false },
      bands,
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: SYNC }, points: { show: !stacked, size: 6 } },
      scales: { x: { range: () => this.#span() }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...text, grid: { show: false }, space: 56, size: 22, gap: 4, incrs: STEPS, values: (_, ticks) => ticks.map(minute) },
        {
          ...text,
          grid: { stroke: () => colour('line'), width: 1 },
          space: 28,
          gap: 6,
          size: (_, ticks) => 12 + Math.max(...(ticks ?? ['']).map((tick) => tick.length)) * DIGIT_WIDTH,
          values: (_, ticks) => ticks.map((tick) => (tick === 0 ? '0' : format(tick).replace('.0 ', ' '))),
          ...(steps ? { incrs: steps } : {}),
        },
      ],
      series: [{}, ...this.#lines.map(line)],
      hooks: { setCursor: [(plot) => this.#say(plot.cursor.idx ?? null)] },
    };
  }

  /** The chosen period, up to now. Parts without samples stay empty. */
  #span() {
    return [this.#now - this.#seconds, this.#now];
  }

  /** The values of the legend: those below the pointer, otherwise the newest. */
  #say(at) {
    const isPast = at !== null && at < this.#times.length;
    const row = isPast ? at : this.#times.length - 1;
    const entries = this.#lines.map(([name, values], nth) =>
      element(
        'li',
        {},
        element('span', { class: `swatch c${nth + 1}`, 'aria-hidden': 'true' }),
        `${name} `,
        element('b', {}, this.#text(values[row])),
      ),
    );
    if (isPast) entries.push(element('li', { class: 'hint' }, clock(this.#times[row] * 1000)));
    if (!this.#lines.length) entries.push(element('li', { class: 'hint' }, this.#kind.none ?? 'no data yet'));
    this.#legend.replaceChildren(...entries);
  }

  #text = (value) => (isNumber(value) ? this.#kind.format(value) : '–');

  /** Describes the lines for screen readers. */
  #inWords() {
    const { title, none } = this.#kind;
    if (!this.#lines.length) return `${title}: ${none ?? 'no data yet'}`;
    const told = this.#lines.map(([name, values]) => {
      const known = values.filter(isNumber);
      if (!known.length) return `${name}: none`;
      const [least, most] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
      return `${name}: now ${this.#text(values.at(-1))}, minimum ${this.#text(least)}, maximum ${this.#text(most)}`;
    });
    return `${title}. ${told.join('; ')}`;
  }

  #fillTable() {
    if (!this.#details.open) return;
    const head = ['Time', ...this.#lines.map(([name]) => name)];
    const cells = (at) => [clock(this.#times[at] * 1000), ...this.#lines.map(([, values]) => this.#text(values[at]))];
    const { rows, step } = rowsOf(this.#times, this.#every);
    const caption = `The newest figures, then the last ones of every ${duration(step)}.`;
    this.#table.show(caption, head, rows.map(({ key, at }) => ({ key, cells: cells(at) })));
  }
}

/** The newest sample, and the last one of each earlier interval, newest first. The rows of past intervals do not change. */
function rowsOf(times, every) {
  const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
  const step = ROW_STEPS.find((seconds) => seconds >= every && span / seconds <= TABLE_ROWS) ?? STEPS.at(-1);
  const rows = [];
  let part = null;
  for (let at = times.length - 1; at >= 0; at--) {
    const itsPart = Math.floor(times[at] / step);
    if (itsPart !== part) rows.push({ key: part === null ? 'newest' : times[at], at });
    part = itsPart;
  }
  return { rows, step };
}

/** The figures of a chart as a table. Unchanged cells stay, so a selection and the position of a screen reader stay too. */
class Figures {
  #caption = element('caption', { class: 'hint' });
  #head = element('tr');
  #body = element('tbody');
  #names = '';
  #rows = new Map();

  /** @param {string} title */
  constructor(title) {
    const table = element('table', {}, this.#caption, element('thead', {}, this.#head), this.#body);
    this.element = element('div', { class: 'scroll', role: 'group', tabindex: 0, 'aria-label': `${title}, table` }, table);
  }

  /**
   * @param {string} caption
   * @param {string[]} head
   * @param {{key: string|number, cells: string[]}[]} rows a row with the same key as before is the same row
   */
  show(caption, head, rows) {
    if (this.#caption.textContent !== caption) this.#caption.textContent = caption;
    const names = JSON.stringify(head);
    if (names !== this.#names) {
      this.#names = names;
      this.#head.replaceChildren(...head.map((name) => element('th', { scope: 'col' }, name)));
      this.#body.replaceChildren();
      this.#rows.clear();
    }
    const before = this.#rows;
    this.#rows = new Map(rows.map(({ key, cells }) => [key, before.get(key) ?? row(cells.length)]));
    for (const [key, gone] of before) if (!this.#rows.has(key)) gone.remove();
    let next = this.#body.firstElementChild;
    for (const { key, cells } of rows) {
      const shown = this.#rows.get(key);
      cells.forEach((text, nth) => {
        const cell = shown.children[nth];
        if (cell.textContent !== text) cell.textContent = text;
      });
      if (shown === next) next = next.nextElementSibling;
      else this.#body.insertBefore(shown, next);
    }
  }
}

const row = (cells) => element('tr', {}, element('th', { scope: 'row' }), ...Array.from({ length: cells - 1 }, () => element('td')));

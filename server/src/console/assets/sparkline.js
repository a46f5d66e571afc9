// A small chart of the last minute, drawn as SVG.

const SVG = 'http://www.w3.org/2000/svg';
const POINTS = 60;
const [WIDTH, HEIGHT, MARGIN] = [120, 32, 2];

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  return made;
}

/** A chart of what was pushed last. Where a value is missing it has a gap. */
export class Sparkline {
  #values = Array(POINTS).fill(null);
  #label;
  #format;
  #area = svg('path', { class: 'area' });
  #line = svg('path', { class: 'line' });

  /**
   * @param {string} label what is charted
   * @param {(value: number) => string} format
   */
  constructor(label, format) {
    [this.#label, this.#format] = [label, format];
    this.element = svg('svg', {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: 'none',
      class: 'sparkline',
      role: 'img',
    });
    this.element.append(this.#area, this.#line);
    this.#draw();
  }

  /** Adds the value of another second. */
  push(value) {
    this.#values.shift();
    this.#values.push(value);
    this.#draw();
  }

  #draw() {
    const known = this.#values.filter((value) => value !== null);
    const most = Math.max(...known, 0);
    const least = Math.min(...known, most);
    // From zero, so that heights compare; but large numbers that hardly change show that they do.
    const floor = least > most * 0.9 ? least - (most - least) - most * 0.01 : 0;
    const x = (nth) => ((nth / (POINTS - 1)) * WIDTH).toFixed(1);
    const y = (value) => {
      const share = most > floor ? (value - floor) / (most - floor) : 0;
      return (HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)).toFixed(1);
    };
    const runs = runsOf(this.#values);
    const points = (run) => run.map(([nth, value]) => `${x(nth)} ${y(value)}`).join('L');
    const bottom = (run) => `L${x(run.at(-1)[0])} ${HEIGHT}L${x(run[0][0])} ${HEIGHT}Z`;
    this.#line.setAttribute('d', runs.map((run) => `M${points(run)}`).join(''));
    this.#area.setAttribute('d', runs.map((run) => `M${points(run)}${bottom(run)}`).join(''));
    const text = known.length
      ? `least ${this.#format(Math.min(...known))}, most ${this.#format(most)}`
      : 'nothing known yet';
    this.element.setAttribute('aria-label', `${this.#label} in the last minute: ${text}`);
  }
}

/** The stretches of values without a gap, as pairs of place and value. */
function runsOf(values) {
  const runs = [[]];
  values.forEach((value, nth) => {
    if (value !== null) runs.at(-1).push([nth, value]);
    else if (runs.at(-1).length) runs.push([]);
  });
  return runs.filter((run) => run.length > 1);
}

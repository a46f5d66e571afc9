/** The shape of an object, and its description for errors. */
export interface Shape<R> {
  needed: readonly (keyof R & string)[];
  words: string;
}

/** Checks one object: programs in JavaScript have no types. Fails with a `TypeError` that names the right shape. */
export function row<R extends object>(name: string, value: R, { needed, words }: Shape<R>): R {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isObject) throw new TypeError(`${name}: ${words} is needed, not ${kind(value)}`);
  const lacks = needed.filter((field) => value[field] === undefined);
  if (lacks.length) throw new TypeError(`${name} lacks ${lacks.join(' and ')}: ${words} is needed`);
  return value;
}

/** The objects of a batch, each checked. */
export function rows<R extends object>(name: string, values: Iterable<R>, shape: Shape<R>): R[] {
  return iterated(name, values, shape.words).map((each, nth) => row(`${name}[${nth}]`, each, shape));
}

/** Checks an iterable of strings. Refuses a single string, because its characters are never intended. */
export function texts(name: string, values: Iterable<string>): string[] {
  const found = iterated(name, values, 'string');
  found.forEach((each, nth) => {
    if (typeof each !== 'string') throw new TypeError(`${name}[${nth}]: string is needed, not ${kind(each)}`);
  });
  return found;
}

function iterated<V>(name: string, values: Iterable<V>, words: string): V[] {
  if (typeof values === 'object' && values !== null && Symbol.iterator in values) return [...values];
  const said = `an iterable, such as an array, is needed, each of it ${words}`;
  throw new TypeError(`${name}: ${said}; not ${kind(values)}`);
}

function kind(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
}

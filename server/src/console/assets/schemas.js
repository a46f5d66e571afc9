// Schemas as text, with links to named schemas.

import { element } from '/console/dom.js';

const nameOf = (ref) => ref.split('/').pop();

/** Text with `code` in it. */
export function prose(text) {
  return text.split('`').map((part, nth) => (nth % 2 ? element('code', {}, part) : part));
}

/** The type of a value, in one line. */
export function typeOf(schema) {
  const line = element('span', { class: 'type' });
  line.append(...words(schema));
  return line;
}

function words(schema) {
  if (schema.$ref) return [element('a', { href: `#schema-${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.flatMap((choice, nth) => [...(nth ? [' or '] : []), ...words(choice)]);
  if ('const' in schema) return [element('code', {}, JSON.stringify(schema.const))];
  if (schema.enum) return schema.enum.flatMap((value, nth) => [...(nth ? [' or '] : []), element('code', {}, JSON.stringify(value))]);
  const types = [schema.type ?? 'any JSON'].flat();
  const isList = types.includes('array');
  return [types.join(' or '), ...(isList && schema.items ? [' of ', ...words(schema.items)] : []), limits(schema)];
}

/** Bounds and default. */
function limits(schema) {
  const { minimum, minLength, maxLength, maxItems, default: otherwise } = schema;
  // A larger bound is that of 64 bits, and JavaScript would show wrong digits.
  const maximum = Number.isSafeInteger(schema.maximum) ? schema.maximum : undefined;
  const said = [
    minimum !== undefined && maximum !== undefined ? `${minimum} to ${maximum}` : null,
    minimum !== undefined && maximum === undefined ? `at least ${minimum}` : null,
    maxLength !== undefined ? `${minLength ?? 0} to ${maxLength} characters` : null,
    maxItems !== undefined ? `at most ${maxItems}` : null,
    otherwise !== undefined ? `default ${JSON.stringify(otherwise)}` : null,
  ].filter(Boolean);
  return said.length ? `, ${said.join(', ')}` : '';
}

/** The fields of an object with their types, including nested objects. */
function fields(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, of]) => {
    const isNeeded = schema.required?.includes(name);
    return element(
      'li',
      {},
      element('code', {}, name),
      ' ',
      typeOf(of),
      isNeeded ? null : element('small', {}, 'optional'),
      of.description ? element('small', {}, ...prose(of.description)) : null,
      ...inner(of),
    );
  });
  return rows.length ? [element('ul', { class: 'fields-of' }, ...rows)] : [];
}

function inner(schema) {
  const inside = [schema, schema.items, schema.additionalProperties, ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
  const deeper = inside.flatMap((of) => (of?.oneOf && of !== schema ? of.oneOf : [of]));
  return deeper.filter((of) => of?.properties).flatMap(fields);
}

/** All named schemas. */
export function schemaSection(schemas) {
  const one = ([name, schema]) =>
    element(
      'details',
      { class: 'schema', id: `schema-${name}` },
      element('summary', {}, element('code', {}, name)),
      element(
        'div',
        {},
        schema.description ? element('p', {}, ...prose(schema.description)) : null,
        element('p', {}, typeOf(schema)),
        schema.pattern ? element('p', {}, 'Pattern ', element('code', {}, schema.pattern)) : null,
        ...inner(schema),
      ),
    );
  const title = element('h2', { id: 'schemas-title' }, 'Schemas');
  return element('section', { 'aria-labelledby': title.id }, title, ...Object.entries(schemas).map(one));
}

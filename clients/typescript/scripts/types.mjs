// Builds src/types.ts from the description of the HTTP API: a type for each schema, and all codes of refusals.
//
//     node scripts/types.mjs [--check]     --check: fails if the file differs from the description

import { readFile } from 'node:fs/promises';

import { bring, formatted } from './files.mjs';

const DESCRIPTION = new URL('../../../server/tests/it/golden/openapi.json', import.meta.url);
// Schemas of documents that no call of the client returns.
const LEFT_OUT = ['Nothing', 'NotReady', 'OpenApi'];
// A page with `fields=ids` has posts without a body. There the type of the body is `undefined`.
const ALWAYS_THERE = { Post: ['body'] };
// The post of these may be a repost without a comment. Feeds have the original instead.
const MAY_BE_REPOST = ['PublishedChange'];

const { components, paths } = JSON.parse(await readFile(DESCRIPTION, 'utf8'));
const schemas = Object.fromEntries(Object.entries(components.schemas).filter(([name]) => !LEFT_OUT.includes(name)));
const generic = whichHaveBodies();

const types = Object.entries(schemas).map(([name, schema]) => declaration(name, schema));
const text = `// Built from /openapi.json by scripts/types.mjs: not to be edited.

/** Any JSON value. */
export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/** The codes of refusals: stable, programs branch on them. Later servers may have others. */
export type ProblemCode = ${codes().map(quoted).join(' | ')};

${types.join('\n\n')}
`;
await bring('src/types.ts', await formatted(text, 'src/types.ts'));

function codes() {
  const all = new Set();
  for (const operations of Object.values(paths)) {
    for (const { responses = {} } of Object.values(operations)) {
      Object.values(responses).forEach((answer) => answer['x-codes']?.forEach((code) => all.add(code)));
    }
  }
  return [...all].sort();
}

/** The schemas that contain the body of a post, directly or indirectly: their types have a parameter for it. */
function whichHaveBodies() {
  const found = new Set(Object.keys(schemas).filter((name) => schemas[name].properties?.body));
  for (let size = -1; size !== found.size;) {
    size = found.size;
    for (const [name, schema] of Object.entries(schemas)) {
      const refers = JSON.stringify(schema).matchAll(/"#\/components\/schemas\/(\w+)"/g);
      if ([...refers].some(([, other]) => found.has(other))) found.add(name);
    }
  }
  return found;
}

function declaration(name, schema) {
  const parameter = generic.has(name) ? '<Body = unknown>' : '';
  if (schema.properties) return `${comment(schema)}export interface ${name}${parameter} ${type(schema, name)}`;
  return `${comment(schema)}export type ${name}${parameter} = ${type(schema, name)};`;
}

function type(schema, owner) {
  if (schema.$ref) {
    const name = schema.$ref.split('/').at(-1);
    return generic.has(name) ? `${name}<Body>` : name;
  }
  if ('const' in schema) return quoted(schema.const);
  if (schema.enum) return schema.enum.map(quoted).join(' | ');
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return choices.map((choice) => type(choice)).join(' | ');
  const kinds = [schema.type].flat();
  return kinds.map((kind) => simple(kind, schema, owner)).join(' | ');
}

function simple(kind, schema, owner) {
  if (kind === 'integer' || kind === 'number') return 'number';
  if (kind === 'string' || kind === 'boolean' || kind === 'null') return kind;
  if (kind === 'array') return `(${type(schema.items)})[]`;
  if (kind !== 'object') throw new Error(`no type for ${JSON.stringify(schema)}`);
  if (!schema.properties && schema.additionalProperties) return `Record<string, ${type(schema.additionalProperties)}>`;
  const fields = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const isRequired = schema.required?.includes(name) || ALWAYS_THERE[owner]?.includes(name);
    const plain = name === 'body' ? 'Body' : type(field);
    const typed = MAY_BE_REPOST.includes(owner) ? plain.replace('<Body>', '<Body | null>') : plain;
    return `${comment(field)}${name}${isRequired ? '' : '?'}: ${typed};`;
  });
  return `{\n${fields.join('\n')}\n}`;
}

function comment({ description }) {
  return description ? `/** ${description.replaceAll('*/', '* /')} */\n` : '';
}

function quoted(value) {
  return JSON.stringify(value);
}

// Builds /tidewire.js of the server, one file for pages without build tools, from src/live: without types, otherwise
// unchanged, including comments, because people read it.
//
//     node scripts/browser.mjs [--check]     --check: fails if the file differs from the build

import { readFile } from 'node:fs/promises';

import blankTypes from 'ts-blank-space';
import ts from 'typescript';

import { bring, formatted } from './files.mjs';

const BUILT = '../../server/src/console/assets/tidewire.js';
const SOURCE = new URL('../src/live/', import.meta.url);
// The exports for pages. Everything else is private to the file.
const PUBLIC = ['Timeline', 'Feed'];
const { ImportDeclaration, InterfaceDeclaration, TypeAliasDeclaration } = ts.SyntaxKind;
const LEFT_OUT = [ImportDeclaration, InterfaceDeclaration, TypeAliasDeclaration];

const read = (name) => readFile(new URL(name, SOURCE), 'utf8');

const index = await read('index.ts');
const header = index.slice(0, index.indexOf('*/') + 2);
// In reading order, which also suits readers of the result.
const names = [...index.matchAll(/^export \* from '\.\/(\w+)\.js';$/gm)].map(([, name]) => name);
const modules = await Promise.all(names.map(async (name) => withoutTypes(await read(`${name}.ts`), name)));
const constants = modules.map(({ constants }) => constants).join('');
const code = modules.map(({ code }) => code);
await bring(BUILT, await formatted([header, constants, ...code].join('\n\n'), BUILT));

/** A module's constants, and the rest of it, as JavaScript without exports. */
function withoutTypes(text, name) {
  const source = ts.createSourceFile(`${name}.ts`, text, ts.ScriptTarget.ES2022);
  const [constants, code] = [[], []];
  for (const statement of source.statements) {
    if (LEFT_OUT.includes(statement.kind)) continue;
    const [first] = statement.declarationList?.declarations ?? [statement];
    const declared = first.name.text;
    const start = statement.getStart(source);
    const comment = text.slice(statement.getFullStart(), start);
    const word = PUBLIC.includes(declared) ? '' : /^export /;
    const plain = comment + text.slice(start, statement.end).replace(word, '');
    (/^[A-Z_]+$/.test(declared) ? constants : code).push(plain);
  }
  const blank = (parts) =>
    blankTypes(parts.join(''), (node) => {
      throw new Error(`${name}.ts: ${node.getText()} is more than a type`);
    });
  return { constants: blank(constants), code: blank(code) };
}

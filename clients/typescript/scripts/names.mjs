// Builds ../names.json: the public names of this client. The tests of the Python client compare their names with these.
//
//     node scripts/names.mjs [--check]     --check: fails if the file differs from the source

import { fileURLToPath } from 'node:url';

import ts from 'typescript';

import { bring, formatted } from './files.mjs';

const BUILT = '../names.json';
const INDEX = fileURLToPath(new URL('../src/index.ts', import.meta.url));

const program = ts.createProgram([INDEX], {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext,
  strict: true,
});
const checker = program.getTypeChecker();
const exported = new Map(
  checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(INDEX))).map((one) => [one.name, one]),
);

const members = checker.getDeclaredTypeOfSymbol(resolved('Tidewire')).getProperties().filter(isPublic);
const OF_ALL = names(checker.getDeclaredTypeOfSymbol(resolved('RequestOptions')));
const text = JSON.stringify({
  methods: Object.fromEntries(members.map((member) => [member.name, options(member)])),
  client: names(checker.getDeclaredTypeOfSymbol(resolved('ClientOptions'))),
  error: names(checker.getDeclaredTypeOfSymbol(resolved('TidewireError'))),
});
await bring(BUILT, await formatted(text, BUILT));

function resolved(name) {
  const symbol = exported.get(name);
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

function isPublic({ name }) {
  return !name.startsWith('#');
}

function names(type) {
  return type
    .getProperties()
    .filter(isPublic)
    .map((one) => one.name);
}

/** The names of the options of a method: the fields of its objects, except those of every method. */
function options(member) {
  const signatures = checker.getTypeOfSymbol(member).getCallSignatures();
  const given = signatures.flatMap(({ parameters }) => parameters.map((one) => checker.getTypeOfSymbol(one)));
  return [...new Set(given.flatMap(fields))].filter((name) => !OF_ALL.includes(name)).sort();
}

function fields(type) {
  const plain = checker.getNonNullableType(type);
  const isObject = plain.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection);
  const isMany = plain.getProperties().some(({ name }) => name.startsWith('__@iterator'));
  return isObject && !isMany ? names(plain) : [];
}

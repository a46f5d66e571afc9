// Writes built files of the repository, or, with --check, fails if one differs from its build.

import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

const PACKAGE = new URL('../', import.meta.url);
const IS_CHECK = process.argv.includes('--check');

/** Writes a text to the file at this path, relative to the folder of the package. */
export async function bring(path, text) {
  const url = new URL(path, PACKAGE);
  const present = await readFile(url, 'utf8').catch(() => null);
  if (present === text) return;
  if (!IS_CHECK) return writeFile(url, text);
  console.error(`${path} differs from the build of its source: run \`npm run generate\``);
  process.exitCode = 1;
}

/** The text as prettier formats it. */
export async function formatted(text, path) {
  const filepath = fileURLToPath(new URL(path, PACKAGE));
  const options = await resolveConfig(fileURLToPath(new URL('src/index.ts', PACKAGE)));
  return format(text, { ...options, filepath });
}

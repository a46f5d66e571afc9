// Writes files that are built and kept in the repository, or, with --check, fails where one is not what would be built.

import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { format, resolveConfig } from 'prettier';

const PACKAGE = new URL('../', import.meta.url);
const IS_CHECK = process.argv.includes('--check');

/** Takes a text into the file at this path from the folder of the package. */
export async function bring(path, text) {
  const url = new URL(path, PACKAGE);
  const present = await readFile(url, 'utf8').catch(() => null);
  if (present === text) return;
  if (!IS_CHECK) return writeFile(url, text);
  console.error(`${path} is not what the source builds: run \`npm run generate\``);
  process.exitCode = 1;
}

/** The text as prettier lays it out. */
export async function formatted(text, path) {
  const filepath = fileURLToPath(new URL(path, PACKAGE));
  const options = await resolveConfig(fileURLToPath(new URL('src/index.ts', PACKAGE)));
  return format(text, { ...options, filepath });
}

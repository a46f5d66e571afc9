// Builds the copies of other people's code that the console serves from the packages that package-lock.json pins: each file with
// its licence in front, as a module of JavaScript that the content security policy allows.
//
//     npm ci && npm run generate     or `npm run check`: fails if a copy is not what would be built

import { readFile, writeFile } from 'node:fs/promises';

const IS_CHECK = process.argv.includes('--check');
const PACKAGE = new URL('node_modules/uplot/', import.meta.url);

const read = (name) => readFile(new URL(name, PACKAGE), 'utf8');

const { version } = JSON.parse(await read('package.json'));
const licence = (await read('LICENSE')).trim();
const header = `/*!\nuPlot ${version}, https://github.com/leeoniya/uPlot. Built by server/src/console/vendor/generate.mjs: do not edit.\n\n${licence}\n*/\n`;

const code = await read('dist/uPlot.iife.min.js');
const style = await read('dist/uPlot.min.css');
// It is a script that defines a global; as a module it exports it.
if (!/^var uPlot=/m.test(code)) throw new Error('uPlot is built in another way now: change generate.mjs');

const files = {
  'uplot.js': `${header}${code.trim()}\nexport default uPlot;\n`,
  'uplot.css': `${header}${style.trim()}\n`,
  'LICENSE-uplot': `${licence}\n`,
};
for (const [name, text] of Object.entries(files)) {
  const url = new URL(name, import.meta.url);
  if ((await readFile(url, 'utf8').catch(() => null)) === text) continue;
  if (!IS_CHECK) {
    await writeFile(url, text);
    continue;
  }
  console.error(`${name} is not what package-lock.json pins: run \`npm run generate\``);
  process.exitCode = 1;
}

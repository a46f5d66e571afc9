// A consumer of changes that a test kills: writes what it sees, and then where it is.

import { appendFileSync, readFileSync, writeFileSync, renameSync } from 'node:fs';

import { Tidewire } from 'tidewire';

const [server, place, seen] = process.argv.slice(2);
const tidewire = new Tidewire({ server });

for await (const change of tidewire.changes({ after: readFileSync(place, 'utf8'), types: ['published'] })) {
  if (change.type === 'published') appendFileSync(seen, `${change.post.body}\n`);
  writeFileSync(`${place}.new`, change.place);
  renameSync(`${place}.new`, place);
}

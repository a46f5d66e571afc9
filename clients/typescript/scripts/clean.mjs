// Removes the results of earlier builds: a file whose source is gone would be packed.

import { rm } from 'node:fs/promises';

await rm(new URL('../dist', import.meta.url), { recursive: true, force: true });

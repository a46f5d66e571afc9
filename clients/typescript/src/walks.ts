import { TidewireError } from './error.js';
import { pause } from './http.js';
import { backOff } from './live/wait.js';
import type { FeedWalkOptions, ListOptions, PageOptions, WalkOptions } from './options.js';
import type * as T from './types.js';

const PAGE_SIZE = 100;
const PARTIAL_TRIES = 3;

/** All entries of a feed or list, one by one. */
export type Walk<Entry> = AsyncGenerator<Entry, void, undefined>;

/** All entries, page by page. A partial page is usually complete when it is read again. */
export async function* walkFeed<Body>(
  read: (options: PageOptions) => Promise<T.Page<Body>>,
  { pageSize: limit = PAGE_SIZE, takePartial = false, ...options }: FeedWalkOptions,
): Walk<T.Item<Body>> {
  for (let before: string | null | undefined; before !== null;) {
    let page: T.Page<Body> = await read({ ...options, limit, before });
    for (let tries = 0; page.partial.length > 0 && !takePartial; tries++) {
      if (tries === PARTIAL_TRIES) throw partial(page);
      await pause(backOff(tries), options.signal);
      page = await read({ ...options, limit, before });
    }
    yield* page.items;
    before = page.next;
  }
}

function partial({ partial }: T.Page<unknown>): TidewireError {
  const detail = `the page lacks posts that could not be read in time, of ${partial.join(', ')}`;
  return new TidewireError({ code: 'partial', detail, status: 200 });
}

/** All items, part by part. */
export async function* walkList<Item>(
  read: (options: ListOptions) => Promise<{ items: Item[]; next: string | null }>,
  { pageSize: limit = PAGE_SIZE, ...options }: WalkOptions,
): Walk<Item> {
  for (let cursor: string | null | undefined; cursor !== null;) {
    const part: { items: Item[]; next: string | null } = await read({ ...options, limit, cursor });
    yield* part.items;
    cursor = part.next;
  }
}

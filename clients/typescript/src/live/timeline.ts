import type { Item, LiveMessage, Page, Post } from '../types.js';

// Bounds are cursors, which compare as text. These are above and below all cursors.
const ABOVE_ALL = '\uffff';
const BELOW_ALL = '';

export const PAGE_MAX = 100;

/** The position after which a connection resumes: the last applied message. */
export interface Session {
  epoch: string;
  seq: number;
}

/** A page to read. */
export interface Read<Body> {
  /** Entries older than this; null: the newest. */
  before: string | null;
  limit: number;
  bound: string;
  /** The value of `Tidewire-After`, if any: only a node of a cluster that has applied it may answer. */
  afterSequence: number | undefined;
  /** The messages that have arrived since the read began. */
  messages: Numbered<Body>[];
}

/** The first message of a connection. */
export type Hello = Extract<LiveMessage, { type: 'hello' }>;
/** The numbered messages, and `beat`. */
export type Numbered<Body> = Exclude<LiveMessage<Body>, { type: 'hello' | 'unread' }>;

/**
 * The entries of a feed, and how far down they are complete.
 *
 * A page shows the feed at some moment during the read, and messages may overtake it. So the messages that arrive since
 * the read began are stored, and applied again on top of the page: each may be applied twice.
 */
export class Timeline<Body = unknown> {
  /** The last applied message, `{epoch, seq}`, after which to resume. Null: cannot resume. */
  session: Session | null = null;

  #limit: number;
  #keep: number;
  #wanted: number;
  #entries = new Map<string, Item<Body>>();
  #sorted: readonly Item<Body>[] | null = null;
  /** The entries are complete from the newest down to this cursor, and there are none below. */
  #bound = ABOVE_ALL;
  /** The first page must be read, and replaces all entries. */
  #outdated = true;
  #read: Read<Body> | null = null;
  /** The sequence of a cluster's log that pages must have at least: a node behind it may lack entries without messages. */
  #afterSequence: number | undefined;

  /**
   * @param {number} limit entries to show, and to read at a time
   * @param {number} keep the number of entries above which new ones remove the oldest
   */
  constructor(limit = 20, keep = 500) {
    this.#limit = this.#wanted = Math.min(limit, PAGE_MAX);
    this.#keep = Math.max(keep, this.#limit);
  }

  /** The entries, newest first, as in pages. Do not change them. */
  get items(): readonly Item<Body>[] {
    const newestFirst = (a: Item<Body>, b: Item<Body>) => (a.cursor < b.cursor ? 1 : -1);
    return (this.#sorted ??= Object.freeze([...this.#entries.values()].sort(newestFirst)));
  }

  /** True if there may be older entries. */
  get hasMore(): boolean {
    return this.#bound !== BELOW_ALL;
  }

  /** True if the entries are those of the feed, except for messages in transit. */
  get isCurrent(): boolean {
    return !this.#outdated && this.#bound !== ABOVE_ALL;
  }

  /** Requests older entries. */
  wantMore(): void {
    this.#wanted = this.#entries.size + this.#limit;
    this.#keep = Math.max(this.#keep, this.#wanted + this.#limit);
  }

  /** Applies the first message of a connection. False: the missed messages do not follow, so the feed must be read again. */
  hello({
    epoch,
    seq,
    recovered,
    after_sequence,
  }: Pick<Hello, 'epoch' | 'seq' | 'recovered' | 'after_sequence'>): boolean {
    this.#afterSequence = after_sequence;
    const resumed = recovered && this.session?.epoch === epoch && this.session.seq === seq;
    this.session = { epoch, seq };
    if (resumed) return true;
    // A page that is being read may be older than the missed messages.
    this.#read = null;
    this.#outdated = true;
    // A client at the end of the feed stays there: new entries must not push old ones out.
    const size = this.#entries.size;
    const wanted = this.hasMore ? Math.min(size, PAGE_MAX) : Math.min(size + PAGE_MAX, this.#keep);
    this.#wanted = Math.max(this.#limit, wanted);
    return false;
  }

  /** Applies any other message. False: an earlier one is missing, so the session cannot resume. */
  apply(message: Numbered<Body>): boolean {
    if (message.type === 'beat' && message.seq === this.session?.seq) return true;
    if (!this.session || message.type === 'beat' || message.seq !== this.session.seq + 1) {
      this.session = null;
      return false;
    }
    this.session.seq = message.seq;
    this.#read?.messages.push(message);
    this.#change(message);
    return true;
  }

  /** The page to read now, `{before, limit}`; null: none. The same read may start again after a failure. */
  startRead(): Read<Body> | null {
    const missing = this.#wanted - (this.#outdated ? 0 : this.#entries.size);
    if (missing <= 0 || (!this.#outdated && !this.hasMore)) return null;
    const bound = this.#outdated ? ABOVE_ALL : this.#bound;
    const limit = Math.min(PAGE_MAX, Math.max(this.#limit, missing));
    const messages = this.#read?.messages ?? [];
    this.#read = {
      before: bound === ABOVE_ALL ? null : bound,
      limit,
      bound,
      afterSequence: this.#afterSequence,
      messages,
    };
    return this.#read;
  }

  /** Applies the page of a read. */
  finishRead(read: Read<Body>, page: Pick<Page<Body>, 'items' | 'next'>): void {
    if (this.#read !== read) return;
    this.#read = null;
    // There is a gap above the page now: it is read again from further up.
    if (!this.#outdated && this.#bound !== read.bound) return;
    if (this.#outdated) this.#entries.clear();
    this.#outdated = false;
    this.#sorted = null;
    this.#bound = page.next ?? BELOW_ALL;
    page.items.forEach((item) => this.#put(item));
    read.messages.forEach((message) => this.#change(message));
    if (this.#entries.size >= this.#wanted || !this.hasMore) this.#wanted = this.#limit;
  }

  #change(message: Numbered<Body>): void {
    this.#sorted = null;
    if (message.type === 'post') this.#put(message.item);
    if (message.type === 'remove') this.#entries.delete(message.post);
    if (message.type === 'update') this.#update(message.post);
    if (message.type === 'stale') {
      this.#wanted = Math.max(this.#wanted, this.#entries.size);
      this.#raise(message.below ?? ABOVE_ALL);
    }
  }

  #update(post: Post<Body>): void {
    const item = this.#entries.get(post.id);
    if (item) this.#entries.set(post.id, { ...item, post });
  }

  #put(item: Item<Body>): void {
    this.#entries.delete(item.post.id);
    if (item.cursor < this.#bound) return;
    this.#entries.set(item.post.id, item);
    if (this.#entries.size > this.#keep) {
      this.#sorted = null;
      this.#raise(this.items[this.#keep - 1]!.cursor);
    }
  }

  #raise(bound: string): void {
    if (bound <= this.#bound) return;
    this.#bound = bound;
    this.#sorted = null;
    for (const [id, item] of this.#entries) {
      if (item.cursor < bound) this.#entries.delete(id);
    }
  }
}

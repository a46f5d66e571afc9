// A naive server of one reader's feed, that tells of changes as docs/live.md says.

/** Whole numbers below `n`, the same for the same seed (mulberry32). */
export function randomness(seed) {
  let state = seed;
  return (n) => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) % n;
  };
}

const REMEMBERED = 12;
const POSTS = 24;

export class Server {
  #random;
  #entries = new Map();
  #clock = 0;
  #epoch = 0;
  #log = [];
  #forgotten = 0;

  constructor(random) {
    this.#random = random;
    for (let posts = random(POSTS); posts > 0; posts--) this.#place(`${random(POSTS)}`);
  }

  /** All entries, newest first. */
  feed() {
    return [...this.#entries.values()].sort((a, b) => (a.cursor < b.cursor ? 1 : -1));
  }

  /** A page, now and then a short one: the search for what shows is bounded. */
  page({ before, limit }) {
    const older = this.feed().filter(({ cursor }) => before === null || cursor < before);
    const items = older.slice(0, this.#random(4) ? limit : this.#random(limit + 1));
    const next = items.length === older.length ? null : (items.at(-1)?.cursor ?? older[0].cursor.slice(0, -1) + '~');
    return { items, next };
  }

  /** Changes something. Returns the messages that tell of it. */
  change() {
    const post = `${this.#random(POSTS)}`;
    const kind = this.#random(10);
    if (kind < 5) this.#place(post);
    else if (kind < 7) this.#entries.delete(post);
    else if (kind < 9) return this.#edit(post);
    else return this.#changeMuch();
    return [this.#tell(this.#state(post))];
  }

  /** The first message of a connection, and those that were missed. */
  greet(session) {
    const missed = session?.epoch === `${this.#epoch}` && session.seq >= this.#forgotten;
    const last = this.#forgotten + this.#log.length;
    const hello = { type: 'hello', epoch: `${this.#epoch}`, seq: missed ? session.seq : last, recovered: missed };
    if (!missed) return [hello];
    // What is sent again says what has become of the entry since.
    const again = (message) => (message.about ? { seq: message.seq, ...this.#state(message.about) } : message);
    return [hello, ...this.#log.slice(session.seq - this.#forgotten).map(again)];
  }

  restart(client) {
    client.drop();
    this.#epoch++;
    this.#log = [];
    this.#forgotten = 0;
  }

  #state(post) {
    const item = this.#entries.get(post);
    return item ? { type: 'post', item, about: post } : { type: 'remove', post, about: post };
  }

  /** Puts an entry in: at the top, as posts and reposts come, or anywhere, as what is shown again does. */
  #place(post) {
    this.#clock++;
    const time = this.#random(3) ? this.#clock : this.#random(this.#clock) + 0.5;
    const cursor = `${time.toFixed(1).padStart(8, '0')}-${post.padStart(3, '0')}-${this.#clock}`;
    this.#entries.set(post, { post: { id: post, text: this.#clock }, cursor });
  }

  #edit(post) {
    const item = this.#entries.get(post);
    if (!item) return [];
    const edited = { ...item.post, text: ++this.#clock };
    this.#entries.set(post, { ...item, post: edited });
    return [this.#tell({ type: 'update', post: edited })];
  }

  /** As a follow or an unfollow does: what is not told one by one stands below a cursor. */
  #changeMuch() {
    const told = new Set();
    const feed = this.feed();
    const below = this.#random(4) && feed.length ? feed[this.#random(feed.length)].cursor : null;
    const isBelow = (post) => below === null || (this.#entries.get(post)?.cursor ?? '') < below;
    for (let changes = this.#random(8); changes > 0; changes--) {
      const post = `${this.#random(POSTS)}`;
      if (!isBelow(post)) told.add(post);
      if (this.#random(2)) this.#entries.delete(post);
      else this.#place(post);
      if (!isBelow(post)) told.add(post);
    }
    const messages = [...told].map((post) => this.#state(post));
    messages.splice(this.#random(messages.length + 1), 0, { type: 'stale', below });
    return messages.map((message) => this.#tell(message));
  }

  #tell(message) {
    const numbered = { ...message, seq: this.#forgotten + this.#log.length + 1 };
    this.#log.push(numbered);
    if (this.#log.length > REMEMBERED) {
      this.#log.shift();
      this.#forgotten++;
    }
    return numbered;
  }
}

// The texts of numbers, times and explanations.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NONE = '–';

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/** 12,345 */
export const count = (value) => (isNumber(value) ? whole.format(value) : NONE);

/** 1 post, 2 posts */
export const plural = (value, thing) => `${count(value)} ${value === 1 ? thing : `${thing}s`}`;

/** 21:15:07 */
export const clock = (time) => new Date(time).toLocaleTimeString([], { hourCycle: 'h23' });

/** 12.3K, for narrow places; small rates keep a decimal. */
export function amount(value) {
  if (!isNumber(value)) return NONE;
  return value > 0 && value < 10 ? value.toFixed(1).replace('.0', '') : short.format(Math.round(value));
}

/** 3.2 GiB */
export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  const scaled = value / 1024 ** power;
  return `${scaled >= 100 || power === 0 ? Math.round(scaled) : scaled.toFixed(1)} ${units[power]}`;
}

/** 850 µs, 3.4 ms, 1.2 s */
export function latency(us) {
  if (!isNumber(us)) return NONE;
  if (us < 1000) return `${Math.round(us)} µs`;
  const [scaled, unit] = us < 1_000_000 ? [us / 1000, 'ms'] : [us / 1_000_000, 's'];
  return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${unit}`;
}

/** The display name of a queue. An unknown queue keeps its own name. */
export function queueName(name) {
  const names = {
    commands: 'writes',
    command_bytes: 'bytes of writes',
    read_permits: 'reads',
    wake_up: 'readers to wake',
    archive: 'archive reads',
    snapshot: 'snapshots',
    fanout: 'posts in fan-out',
    fanout_deliveries: 'deliveries',
  };
  return names[name] ?? name.replaceAll('_', ' ');
}

/** 45 s, 12 min, 3 h, 2 days */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < MINUTE) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds < 2 * DAY) return `${Math.floor(seconds / HOUR)} h`;
  return `${Math.floor(seconds / DAY)} days`;
}

/** The age of a time in the format of the server. */
export function ago(time, now = Date.now()) {
  const seconds = (now - Date.parse(time)) / 1000;
  if (Number.isNaN(seconds)) return NONE;
  if (Math.abs(seconds) < 5) return 'just now';
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

/** How long a state has lasted: for 34 s, for 3 h */
export const lasting = (since, now = Date.now()) => `for ${duration((now - Date.parse(since)) / 1000)}`;

/** A full time in the local format. */
export function moment(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toLocaleString();
}

/** Why a post may be in a reader's feed. */
export function reason({ kind, source, user, at }, reader) {
  switch (kind) {
    case 'own':
      return `${reader} wrote it.`;
    case 'follow':
      return `${reader} follows ${source}.`;
    case 'kept':
      return `${source} brought it, and it stayed after ${reader} unfollowed.`;
    case 'virtual':
      return 'A hidden follow brings it.';
    case 'repost':
      return user === source ? `${user} reposted it ${ago(at)}.` : `${user} reposted it ${ago(at)}; it came via ${source}.`;
    default:
      return `A reason that this page does not know: ${kind}.`;
  }
}

/** A blocker of a post in a reader's feed. */
export function blocker({ kind, post, source }, reader) {
  switch (kind) {
    case 'unknown':
      return `Post ${post} is unknown.`;
    case 'deleted':
      return `Post ${post} was deleted.`;
    case 'hidden':
      return `Post ${post} is hidden.`;
    case 'muted':
      return `${reader} has muted ${source}.`;
    case 'blocked':
      return `${reader} has blocked ${source}.`;
    case 'blocked_by':
      return `${source} has blocked ${reader}.`;
    case 'own_posts_off':
      return `The rules of ${reader} hide own posts.`;
    case 'reposts_off':
      return `The rules of ${reader} hide reposts.`;
    case 'reply':
      return source ? `It replies to ${source}, and the rules of ${reader} hide such replies.` : 'It replies to an unknown post.';
    default:
      return `A blocker that this page does not know: ${kind}.`;
  }
}

/** The route of a post to a reader. */
export function route(way) {
  if (way === 'push') return 'It was pushed into the inbox.';
  return way === 'pull' ? 'It is pulled when the feed is read.' : '';
}

// The current statistics, and the health of the server.

import { ask } from './api.js';
import { bytes, count, duration, plural } from './words.js';

/** Reads the statistics, of a named node of a cluster if given. @param {string} [node] @param {number} [within] milliseconds */
export const readStats = (node, within) => ask('GET', `/v1/stats${node ? `?node=${encodeURIComponent(node)}` : ''}`, undefined, within);

/** Free bytes of the disk below which it counts as nearly full. */
const DISK_LOW = 2 ** 30;

/** Why a server refuses all writes. */
const REFUSED = {
  disk_full: 'refused: the disk is full',
  out_of_files: 'refused: the server cannot create files',
  journal_failed: 'refused until a restart: the journal has failed',
  sequencer_unavailable: 'refused: the cluster has no sequencer',
};

/**
 * The health of a server.
 * @param {object} stats the statistics
 * @param {{ready: boolean, code?: string}} readiness of reads
 * @returns {{name: string, text: string, how: 'good'|'bad'|'warn'|'', href?: string}[]} `''`: not applicable; `href`: a page with details
 */
export function health(stats, readiness) {
  return [
    { name: 'Writes', ...writes(stats) },
    { name: 'Reads', ...reads(readiness) },
    { name: 'Disk', ...disk(stats) },
    { name: 'Backup', ...backup(stats) },
    { name: 'Journal', ...journal(stats) },
    { name: 'Clock', ...clock(stats) },
  ];
}

const writes = ({ writes_refused: code }) => (code ? { text: REFUSED[code] ?? `refused: ${code}`, how: 'bad' } : { text: 'accepted', how: 'good' });

const reads = ({ ready, code }) => (ready ? { text: 'answered', how: 'good' } : { text: `not answered: ${code}`, how: 'bad' });

function disk({ disk_free_bytes: free, writes_refused: code }) {
  if (free === null || free === undefined) return { text: 'not used', how: '' };
  const how = code === 'disk_full' ? 'bad' : free < DISK_LOW ? 'warn' : 'good';
  return { text: `${bytes(free)} free`, how };
}

function backup({ backups, journal: kept }) {
  if (!backups) return { text: 'not configured', how: kept ? 'warn' : '', href: '/console/storage#backups' };
  const { age_seconds: age, interval_seconds: every, failing, count: all } = backups;
  if (failing) return { text: all ? `failing; the last one is ${duration(age)} old` : 'failing; no backup yet', how: 'bad' };
  if (!all) return { text: 'the first one is in progress', how: '' };
  return { text: `${duration(age)} old`, how: age > 2 * every + 60 ? 'warn' : 'good' };
}

function journal({ journal: kept, writes_refused: code }) {
  if (!kept) return { text: 'none: memory only', how: '' };
  return code === 'journal_failed' ? { text: 'failed', how: 'bad' } : { text: `${plural(kept.sequence, 'event')}`, how: 'good' };
}

function clock({ clock: { jumps_ahead: ahead, jumps_back: back, lead_seconds: lead } }) {
  if (lead > 0) return { text: `set back; times are ${duration(lead)} ahead`, how: 'warn' };
  const jumps = ahead + back;
  return { text: jumps ? `correct; ${plural(jumps, 'jump')} since the start` : 'steady', how: 'good' };
}

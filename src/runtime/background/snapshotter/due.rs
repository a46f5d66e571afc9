//! The condition under which a snapshot is due.
//!
//! The journal is the increment: a start loads the last snapshot and replays the journal since then. Snapshots at
//! fixed intervals, or after fixed bytes of journal, cost more the larger the state is, even if little has changed.
//! So a snapshot is due only when the journal has grown by a fraction of the last snapshot. Then all snapshots
//! together write [`SNAPSHOT_JOURNAL_SHARE`] times the bytes of the journal, whatever the size of the state, and a
//! start replays about that fraction of the bytes it loads. In addition there is a snapshot after every
//! [`SNAPSHOT_INTERVALS_MAX`] intervals, so that the inboxes of a snapshot are at most about a day old.

use std::time::Duration;

use crate::runtime::background::snapshotter::SnapshotOptions;

/// Snapshots up to this size are due however little was journaled: writing one takes half a second.
const SNAPSHOT_SMALL_BYTES: u64 = 64 << 20;

/// Number of snapshot intervals after which the next snapshot is due if anything was journaled, however little.
const SNAPSHOT_INTERVALS_MAX: u32 = 16;

/// The next snapshot is due when the journal has grown by one part in this many of the last snapshot. A start then
/// replays this fraction of the bytes it loads, in about this fraction of the time.
const SNAPSHOT_JOURNAL_SHARE: u64 = 4;

/// The changes since the last snapshot was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// The time since the last snapshot was begun.
    pub(super) age: Duration,
    /// The bytes of journal since then.
    pub(super) journal_bytes: u64,
    /// The bytes of that snapshot. Zero if it failed.
    pub(super) snapshot_bytes: u64,
}

impl SnapshotOptions {
    /// Returns the longest time between two snapshots, while anything is written.
    pub fn rarest(&self) -> Duration {
        self.interval.saturating_mul(SNAPSHOT_INTERVALS_MAX)
    }

    pub(super) fn is_due(&self, since: Since) -> bool {
        let Since { age, journal_bytes, snapshot_bytes } = since;
        let is_small = snapshot_bytes <= SNAPSHOT_SMALL_BYTES;
        let is_earned = is_small || journal_bytes >= snapshot_bytes / SNAPSHOT_JOURNAL_SHARE;
        let is_old = |intervals: u32| journal_bytes > 0 && age >= self.interval.saturating_mul(intervals);
        (is_earned && (journal_bytes >= self.journal_bytes || is_old(1))) || is_old(SNAPSHOT_INTERVALS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns the bytes of all snapshots and of the journal of one day, if a state of `state_bytes` is written to at
    /// this rate.
    fn day(state_bytes: u64, bytes_per_minute: u64) -> (u64, u64) {
        let options = SnapshotOptions::default();
        let mut since = Since { age: Duration::ZERO, journal_bytes: 0, snapshot_bytes: state_bytes };
        let (mut snapshots, mut journal) = (0, 0);
        for _ in 0..24 * 60 {
            since.age += MINUTE;
            since.journal_bytes += bytes_per_minute;
            journal += bytes_per_minute;
            if options.is_due(since) {
                since = Since { age: Duration::ZERO, journal_bytes: 0, snapshot_bytes: state_bytes };
                snapshots += state_bytes;
            }
        }
        (snapshots, journal)
    }

    #[test]
    fn the_volume_of_snapshots_is_proportional_to_the_journal() {
        for state_bytes in [1 << 30, 8 << 30, 80 << 30] {
            for bytes_per_minute in [1 << 10, 1 << 20, 20 << 20, 600 << 20] {
                let (snapshots, journal) = day(state_bytes, bytes_per_minute);
                let by_the_clock = 24 * 4 / u64::from(SNAPSHOT_INTERVALS_MAX) * state_bytes;
                assert!(
                    snapshots <= SNAPSHOT_JOURNAL_SHARE * journal + by_the_clock,
                    "{snapshots} bytes of snapshots for {journal} bytes of journal, {state_bytes} bytes of state"
                );
            }
        }
        // The number of snapshots of 8 GiB in a day. With the interval alone there were 96.
        let snapshots = |bytes_per_minute| day(8 << 30, bytes_per_minute).0 >> 33;
        assert_eq!([1 << 20, 10 << 20, 100 << 20].map(snapshots), [6, 7, 68]);
    }

    #[test]
    fn a_small_snapshot_is_due_by_time_or_by_journal_bytes() {
        let options = SnapshotOptions::default();
        let (small, large) = (SNAPSHOT_SMALL_BYTES, SNAPSHOT_SMALL_BYTES + 1);
        for (minutes, journal_bytes, snapshot_bytes, expected) in [
            (14, 1, small, false),
            (15, 0, small, false),
            (15, 1, small, true),
            (0, 256 << 20, small, true),
            (15, 1, large, false),
            (15, large / SNAPSHOT_JOURNAL_SHARE, large, true),
            (14, large / SNAPSHOT_JOURNAL_SHARE, large, false),
            (15 * 16, 1, large, true),
            (15 * 16, 0, large, false),
            (0, 256 << 20, 1 << 30, true),
            (0, 256 << 20, 2 << 30, false),
            (0, 512 << 20, 2 << 30, true),
        ] {
            let since = Since { age: minutes * MINUTE, journal_bytes, snapshot_bytes };
            assert_eq!(options.is_due(since), expected, "{since:?}");
        }
    }
}

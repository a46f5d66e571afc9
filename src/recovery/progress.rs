//! The progress of a recovery, which other threads read while they wait for its end.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The phase in which a snapshot is loaded.
pub(crate) const LOADING: &str = "loading the snapshot";

/// The phase in which the events after the snapshot are read from the journal.
pub(crate) const REPLAYING: &str = "replaying the journal";

/// The phase in which the events after the snapshot are read from the log of a cluster.
pub(crate) const READING_LOG: &str = "reading the log";

/// The phase in which the readers that were active get their inboxes.
pub(crate) const WAKING: &str = "waking readers";

/// The phase after the recovery.
const DONE: &str = "done";

/// The progress of a recovery. Other threads may read it at any time.
#[derive(Debug, Default)]
pub struct RecoveryProgress {
    phase: Mutex<&'static str>,
    /// Bytes of the snapshot that were loaded.
    pub snapshot_bytes: AtomicU64,
    /// Total bytes of the snapshot.
    pub snapshot_bytes_total: AtomicU64,
    /// The number of events that were replayed.
    pub events: AtomicU64,
}

impl RecoveryProgress {
    /// The name of the current phase.
    pub fn phase(&self) -> &'static str {
        *self.phase.lock()
    }

    /// Starts another phase.
    pub fn enter(&self, phase: &'static str) {
        *self.phase.lock() = phase;
    }

    /// Returns true if the recovery will probably end soon: nine tenths of the snapshot, which takes most of the time,
    /// are loaded.
    pub fn is_nearly_done(&self) -> bool {
        match self.phase() {
            LOADING => {
                let total = self.snapshot_bytes_total.load(Ordering::Relaxed);
                total > 0 && self.snapshot_bytes.load(Ordering::Relaxed) >= total - total / 10
            }
            phase => [REPLAYING, READING_LOG, WAKING, DONE].contains(&phase),
        }
    }

    pub(crate) fn finish(&self) {
        self.enter(DONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_is_nearly_done_in_the_last_tenth_of_its_snapshot() {
        let progress = RecoveryProgress::default();
        for (phase, bytes, total, is_nearly_done) in [
            ("", 0, 0, false),
            (LOADING, 0, 0, false),
            (LOADING, 0, 7, false),
            (LOADING, 899, 1_000, false),
            (LOADING, 900, 1_000, true),
            (LOADING, 7, 7, true),
            ("fetching the snapshot of another node", 7, 7, false),
            (REPLAYING, 0, 0, true),
            (READING_LOG, 0, 0, true),
            (WAKING, 0, 0, true),
            (DONE, 0, 0, true),
        ] {
            progress.enter(phase);
            progress.snapshot_bytes.store(bytes, Ordering::Relaxed);
            progress.snapshot_bytes_total.store(total, Ordering::Relaxed);
            assert_eq!(progress.is_nearly_done(), is_nearly_done, "{phase}: {bytes} of {total}");
        }
    }
}

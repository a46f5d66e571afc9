//! What could not be read from the archive: counted, and each cause told once.
//!
//! Not responsible for:
//! - what a page does without it (`state::view`).

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tracing::error;

use crate::limits::READ_FAILURES_TOLD_MAX;
use crate::storage::archive::ArchiveError;

/// What could not be read so far.
#[derive(Debug, Default)]
pub struct ReadFailures {
    count: AtomicU64,
    /// Causes that were told. A page that is asked for again and again must not fill the log.
    told: Mutex<FxHashSet<String>>,
}

impl ReadFailures {
    /// How often something could not be read.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes note of a failure.
    pub fn note(&self, cause: &ArchiveError) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let cause = cause.with_sources();
        let mut told = self.told.lock();
        if told.len() < READ_FAILURES_TOLD_MAX && !told.contains(&cause) {
            error!("{cause}; going on without what could not be read");
            told.insert(cause);
        }
    }
}

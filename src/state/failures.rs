//! Failed reads of the archive: counted, and each cause logged once. The unavailability of a store is temporary, so it is logged at most
//! once a minute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tracing::{error, warn};

use crate::storage::archive::ArchiveError;

/// Maximum number of different causes that are reported for failed reads of the archive.
const READ_FAILURES_REPORTED_MAX: usize = 1_000;

/// Minimum time between two reports that the archive is unavailable.
const UNAVAILABLE_REPORT_PERIOD: Duration = Duration::from_secs(60);

/// The reads that have failed so far.
#[derive(Debug, Default)]
pub struct ReadFailures {
    count: AtomicU64,
    /// Causes that were logged. Repeated requests for the same page must not fill the log.
    logged: Mutex<FxHashSet<String>>,
    /// The time at which the unavailability of the archive was last logged.
    unavailable_logged: Mutex<Option<Instant>>,
}

impl ReadFailures {
    /// The number of failed reads.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts a failed read, and logs its cause if it is new.
    pub fn note(&self, cause: &ArchiveError) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if cause.is_temporary() {
            let mut logged = self.unavailable_logged.lock();
            if logged.is_none_or(|at| at.elapsed() >= UNAVAILABLE_REPORT_PERIOD) {
                *logged = Some(Instant::now());
                warn!("{}; continuing without the data, which later reads may find", cause.with_sources());
            }
            return;
        }
        let cause = cause.with_sources();
        let mut logged = self.logged.lock();
        if logged.len() < READ_FAILURES_REPORTED_MAX && !logged.contains(&cause) {
            error!("{cause}; continuing without the data that could not be read");
            logged.insert(cause);
        }
    }
}

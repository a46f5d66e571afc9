//! Figures of backups for metrics, and the thread that makes backups until the server stops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use tidewire::clock::UnixMicros;

/// Maximum number of runs in the history, about 200 bytes each.
const RUNS_MAX: usize = 20;

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct BackupRun {
    /// The time at which it began.
    pub started_at: UnixMicros,
    /// The duration of the run.
    pub took: Duration,
    /// Bytes that it sent to the store.
    pub sent_bytes: u64,
    /// The reason why it failed, or none if it is complete.
    pub error: Option<String>,
}

/// Figures that the backup thread writes and metrics read. Before backups are started, there is no interval.
#[derive(Default)]
pub struct BackupFigures {
    /// Time between two runs in seconds, at least 1. Zero without backups.
    interval_seconds: AtomicU64,
    /// The time of the last complete run, or of the start of backups if there was none.
    complete_at: AtomicI64,
    /// Every event from this time to the last complete run can be restored. Zero without a backup.
    pub restorable_from: AtomicI64,
    /// Bytes that were sent to the store since the start.
    pub sent_bytes: AtomicU64,
    /// Bytes of all objects in the store that belong to backups.
    pub stored_bytes: AtomicU64,
    /// The number of backups that can be restored.
    pub backups: AtomicU64,
    /// The number of failed runs since the start.
    pub failures: AtomicU64,
    /// True if the last run failed.
    pub is_failing: AtomicBool,
    /// The last runs, newest first.
    runs: Mutex<VecDeque<BackupRun>>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// The thread ends when this is dropped.
    thread: Option<Box<dyn Send>>,
    is_stopped: bool,
}

impl BackupFigures {
    /// Records that backups run from now on.
    pub fn begin(&self, every: Duration, now: UnixMicros) {
        self.complete_at.store(now.0, Ordering::Relaxed);
        self.interval_seconds.store(every.as_secs().max(1), Ordering::Release);
    }

    /// Stores the thread that makes backups until [`Self::stop`] is called. After that call it drops the thread at once.
    pub fn keep_until_stopped(&self, thread: Box<dyn Send>) {
        let mut running = self.running.lock();
        if !running.is_stopped {
            running.thread = Some(thread);
        }
    }

    /// Ends the thread that makes backups, before the engine is shut down. Blocks for a few seconds at most.
    pub fn stop(&self) {
        let mut running = self.running.lock();
        running.is_stopped = true;
        running.thread = None;
    }

    /// Records the time of a complete run. An earlier process may have made it.
    pub fn complete(&self, at: UnixMicros) {
        self.complete_at.store(at.0, Ordering::Relaxed);
    }

    /// Records a run that has ended. Evicts the oldest one if there are many.
    pub fn ended(&self, run: BackupRun) {
        let mut runs = self.runs.lock();
        runs.truncate(RUNS_MAX - 1);
        runs.push_front(run);
    }

    /// Returns the last runs since the start, newest first.
    pub fn runs(&self) -> Vec<BackupRun> {
        self.runs.lock().iter().cloned().collect()
    }

    /// Returns the time between two runs in seconds, or none without backups.
    pub fn interval_seconds(&self) -> Option<u64> {
        Some(self.interval_seconds.load(Ordering::Acquire)).filter(|seconds| *seconds > 0)
    }

    /// Returns the time of the last complete run.
    pub fn complete_at(&self) -> UnixMicros {
        UnixMicros(self.complete_at.load(Ordering::Relaxed))
    }

    /// Returns the age of the last complete run in seconds.
    pub fn age_seconds(&self, now: UnixMicros) -> u64 {
        now.0.saturating_sub(self.complete_at.load(Ordering::Relaxed)).max(0) as u64 / 1_000_000
    }
}

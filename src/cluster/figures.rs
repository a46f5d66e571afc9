//! The figures that a node measures about its part in the cluster.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::latency::Latency;

/// The figures of a node since the start of its process. The command processor writes them, any thread reads them.
#[derive(Debug, Default)]
pub struct ClusterFigures {
    /// Time from appending a group of events, as the sequencer, until the last of them was read back.
    pub commit_latency: Latency,
    /// Time from appending a heartbeat until it was read back. Each heartbeat waits behind the records before it, so
    /// this shows how far the node is behind.
    pub beat_latency: Latency,
    fenced: AtomicU64,
    moved: AtomicU64,
}

impl ClusterFigures {
    /// Counts a record that was read and has no effect.
    pub(super) fn note_fenced(&self) {
        self.fenced.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts partitions whose owner has changed.
    pub(super) fn note_moved(&self, partitions: u64) {
        self.moved.fetch_add(partitions, Ordering::Relaxed);
    }

    /// Returns the number of records that were read and have no effect, for example because their writer was no longer
    /// the sequencer.
    pub fn fenced(&self) -> u64 {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Returns the number of partitions that have changed their owner.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

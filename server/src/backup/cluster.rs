//! The parts of a backup that are specific to clusters: records of the log instead of a journal, and snapshots for starting nodes.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::backup::BackupError;
use crate::backup::manifest::{self, Found, Manifest, Part};
use crate::backup::store::Store;
use crate::backup::{parts, restore};
use tracing::warn;

use tidewire::cluster::state::ClusterState;
use tidewire::storage::log::SharedLog;
use tidewire::storage::sequence::Sequence;

/// The cluster of an engine that is backed up.
#[derive(Clone)]
pub struct ClusterSource {
    /// The log of the cluster.
    pub log: Arc<dyn SharedLog>,
    /// The cluster state of this node.
    pub view: Arc<ClusterState>,
}

impl ClusterSource {
    /// Returns the epoch if this node is its sequencer and has a lease.
    pub(super) fn epoch(&self) -> Option<u64> {
        let membership = self.view.membership();
        let is_sequencer = membership.sequencer().is_some_and(|sequencer| self.view.is_me(sequencer));
        (is_sequencer && self.view.is_leased()).then_some(membership.epoch().0)
    }
}

/// Opens the newest snapshot in a store that was taken at record `from` or later. If there is none, builds one from an older snapshot and
/// the copied records after it, below the data directory of a node.
///
/// # Errors
/// Fails if the store cannot be read, or has no such records.
pub fn newest_snapshot(store: Store, from: Sequence, directory: &Path) -> Result<Box<dyn Read + Send>, BackupError> {
    let Found { manifests, unreadable } = manifest::read_readable(&store)?;
    unreadable.iter().for_each(|(_, cause)| warn!("{cause}"));
    let place = store.place("");
    let Some(newest) = manifests.last() else { return Err(BackupError::NoBackup { place }) };
    let of_cluster = || manifests.iter().rev().filter(|manifest| manifest.epoch.is_some());
    let stored = parts::stored(&store)?;
    let is_there = |part: &Part| stored.contains(part);
    let has_snapshot = |manifest: &&Manifest| manifest.sequence >= from.0 && manifest.snapshot.iter().all(is_there);
    if let Some(found) = of_cluster().find(has_snapshot) {
        let parts = found.snapshot.clone().into_iter();
        return Ok(Box::new(Stored { store, parts, part: Vec::new(), taken: 0 }));
    }
    let mut failed = None;
    for found in of_cluster().filter(|manifest| manifest.last() >= from.0) {
        match restore::rebuilt_snapshot(&store, found, directory) {
            Ok(file) => return Ok(Box::new(file)),
            Err(cause) => {
                warn!("could not restore the backup {}: {cause}", found.name());
                failed.get_or_insert(cause);
            }
        }
    }
    let (wanted, ranges) = (format!("record {from}"), format!("records up to {}", newest.last()));
    Err(failed.unwrap_or(BackupError::OutOfRange { wanted, place, ranges }))
}

/// The content of a file in a store.
struct Stored {
    store: Store,
    parts: std::vec::IntoIter<Part>,
    part: Vec<u8>,
    taken: usize,
}

impl Read for Stored {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.part.len() {
            let Some(next) = self.parts.next() else { return Ok(0) };
            (self.part, self.taken) = (parts::read(&self.store, &next).map_err(io::Error::other)?, 0);
        }
        let left = &self.part[self.taken..];
        let bytes = left.len().min(into.len());
        into[..bytes].copy_from_slice(&left[..bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

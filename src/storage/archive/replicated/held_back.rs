//! The sources whose entries the archive of a cluster lacks, because their outboxes in it are damaged.
//!
//! A deposed node that has not noticed its deposition may still change the list. So a node stores the list by compare-and-set, and again
//! before every progress that leaves out entries. Then either this write fails and the node reads the list again, or the write of the
//! other node fails.

use std::collections::BTreeSet;

use super::ReplicatedArchive;
use crate::id::SourceId;
use crate::limits::HELD_BACK_SOURCES_MAX;
use crate::storage::archive::{ArchiveError, Batch};
use crate::storage::sequence::Sequence;

impl ReplicatedArchive {
    /// The last record that this node has applied.
    pub fn applied(&self) -> Sequence {
        self.state.lock().applied
    }

    /// Reads the sources that are held back.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn learn_held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        let stored = self.archive.held_back()?;
        self.state.lock().held_back = Some(stored.clone());
        Ok(stored)
    }

    /// Returns the sources that are held back, as far as this node knows. They are read again after a failure.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn known_held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        let known = self.state.lock().held_back.clone();
        known.map_or_else(|| self.learn_held_back(), Ok)
    }

    /// Stores the sources that are held back. Call it before storing a progress that leaves out their entries.
    ///
    /// # Errors
    /// Fails if the archive cannot be written, another node has stored them since, or there are too many.
    pub fn hold_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        if sources.len() > HELD_BACK_SOURCES_MAX {
            let what = format!("outboxes of more than {HELD_BACK_SOURCES_MAX} sources cannot be written");
            return Err(ArchiveError::Damaged { place: self.archive.place(), what });
        }
        // After a failure the stored list is unknown. Until it is known again, the previous list is valid for the previous progress.
        let stored = self.archive.set_held_back(sources);
        self.state.lock().held_back = stored.is_ok().then(|| sources.clone());
        stored
    }

    /// Rejects a batch that would remove entries from memory that the archive may lack.
    pub(super) fn refuse_held_back(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let state = self.state.lock();
        let Some(held_back) = &state.held_back else {
            let why = "the list of held-back sources is unknown".to_owned();
            return Err(ArchiveError::Unavailable { place: self.archive.place(), why });
        };
        match batch.placed.iter().find(|(source, ..)| held_back.contains(source)) {
            None => Ok(()),
            Some((source, ..)) => {
                let what = format!("the outbox of {source} could not be written");
                Err(ArchiveError::Damaged { place: self.archive.place(), what })
            }
        }
    }
}

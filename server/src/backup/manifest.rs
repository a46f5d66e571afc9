//! The manifest of a backup: the objects that belong to it, and the events that can be restored from it.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::backup::store::{Listed, Store};
use crate::backup::{BackupError, OBJECT_BYTES_MAX};
use tidewire::clock::UnixMicros;
use tidewire::cluster::log_checkpoint::LogCheckpoint;

/// The format of a server on one machine.
const FORMAT_OF_ONE_MACHINE: u32 = 1;

/// The format of a cluster, and the latest format that can be read. Its journal consists of records of the cluster's log.
const MANIFEST_FORMAT: u32 = 2;

/// Maximum number of backups in one place.
const BACKUPS_MAX: usize = 4_096;

/// The folder of manifests.
const FOLDER: &str = "backups";

/// A part of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// SHA-256 of the content, as 64 hexadecimal digits: the name of the object.
    pub(crate) sha256: String,
    /// The size in bytes.
    pub(crate) bytes: u64,
}

/// A piece of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JournalPiece {
    /// The first event in it.
    pub(crate) first: u64,
    /// The last event in it.
    pub(crate) last: u64,
    /// The parts of a segment file with these events.
    pub(crate) parts: Vec<Part>,
}

/// The beginning of a user's erasure, so that a restore to an earlier event can list the users to erase again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Erased {
    /// The event that erased the user.
    pub(crate) event: u64,
    /// The id of the user.
    pub(crate) user: String,
}

/// The content of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The format of this manifest.
    pub(crate) format: u32,
    /// The identity of the data directory.
    pub(crate) identity: String,
    /// The epoch of the cluster in which the manifest was written. None on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
    /// The time when the snapshot was begun, in microseconds.
    pub(crate) begun_at: i64,
    /// The event of the snapshot. The journal is replayed after it.
    pub(crate) sequence: u64,
    /// The event at the end of the snapshot and of the archive: the first one that can be restored.
    pub(crate) through: u64,
    /// The displayed time of this event, in microseconds.
    pub(crate) through_at: i64,
    /// The drift of logical instants over displayed times at this event, in microseconds.
    #[serde(rename = "lead_us")]
    pub(crate) drift_us: i64,
    /// The time of the last run that completed this backup, in microseconds.
    pub(crate) copied_at: i64,
    /// The parts of the snapshot file.
    pub(crate) snapshot: Vec<Part>,
    /// The chunks of the archive, if anything was archived.
    pub(crate) archive: Option<Vec<Part>>,
    /// The journal after `sequence`, without gaps.
    pub(crate) journal: Vec<JournalPiece>,
    /// The cluster state after the record of the snapshot. It determines which of the later records count. None on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed_from: Option<LogCheckpoint>,
    /// The cluster state after the last record. None on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) followed_to: Option<LogCheckpoint>,
    /// The erasures that began in this journal.
    pub(crate) erased: Vec<Erased>,
    /// True if an erasure ended after `through`. The snapshot or the archive may have data of the user, so another backup is due.
    pub(crate) has_ended_erasure: bool,
}

impl Manifest {
    /// Returns the format of a manifest of this epoch.
    pub(super) fn format_in(epoch: Option<u64>) -> u32 {
        epoch.map_or(FORMAT_OF_ONE_MACHINE, |_| MANIFEST_FORMAT)
    }

    /// Returns the name of its object.
    pub(crate) fn name(&self) -> String {
        let Self { begun_at, through, .. } = self;
        match self.epoch {
            None => format!("{begun_at:020}-{through:020}.json"),
            Some(epoch) => format!("{through:020}-{epoch:020}-{begun_at:020}.json"),
        }
    }

    /// Returns the key by which backups are sorted, the newest last. The clocks of a cluster's nodes differ, so the last record decides. On
    /// one machine a restore may have rolled back events, so the time decides.
    fn age_key(&self) -> impl Ord + use<> {
        let of_cluster = self.epoch.map(|epoch| (self.last(), epoch, self.through));
        (of_cluster, self.begun_at, self.through)
    }

    /// Fails if it is not the manifest of a backup of this identity.
    pub(super) fn check_identity(&self, store: &Store, expected: &str) -> Result<(), BackupError> {
        if self.identity == expected {
            return Ok(());
        }
        let (place, found, expected) = (store.place(""), self.identity.clone(), expected.to_owned());
        Err(BackupError::OtherIdentity { place, found, expected })
    }

    /// Returns the last event that can be restored.
    pub(crate) fn last(&self) -> u64 {
        self.journal.last().map_or(self.through, |piece| piece.last).max(self.through)
    }

    /// Returns all parts that the backup needs.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        let of_journal = self.journal.iter().flat_map(|piece| &piece.parts);
        self.snapshot.iter().chain(self.archive.iter().flatten()).chain(of_journal)
    }

    /// Returns the number of its parts that the store does not have in their full size.
    pub(crate) fn missing(&self, stored: &HashSet<Part>) -> usize {
        self.parts().filter(|part| !stored.contains(part)).collect::<HashSet<_>>().len()
    }

    /// Returns the bytes of the snapshot and of the archive.
    pub(super) fn base_bytes(&self) -> u64 {
        self.snapshot.iter().chain(self.archive.iter().flatten()).map(|part| part.bytes).sum()
    }

    /// Returns the bytes of the journal.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal.iter().flat_map(|piece| &piece.parts).map(|part| part.bytes).sum()
    }

    /// Returns the bytes of all parts, each counted once.
    pub(crate) fn bytes(&self) -> u64 {
        stored_bytes(std::slice::from_ref(self))
    }

    /// Returns the time of the first event that can be restored, for a message. A data directory that was empty has none.
    pub(crate) fn begins(&self) -> String {
        if self.through == 0 { "the beginning".to_owned() } else { UnixMicros(self.through_at).to_string() }
    }

    /// Returns the time of the last run that completed this backup.
    pub(crate) fn copied_at(&self) -> UnixMicros {
        UnixMicros(self.copied_at)
    }

    /// Writes the manifest, and replaces an earlier version of it.
    pub(super) fn write(&self, store: &Store) -> Result<(), BackupError> {
        let bytes = serde_json::to_vec(self).expect("a manifest has only text and numbers");
        store.put(&format!("{FOLDER}/{}", self.name()), bytes)
    }

    /// Removes the manifest. After that, the backup cannot be restored.
    pub(super) fn remove(&self, store: &Store) -> Result<(), BackupError> {
        store.remove(&format!("{FOLDER}/{}", self.name()))
    }

    /// Reads the manifest of this name.
    pub(super) fn read(store: &Store, name: &str) -> Result<Self, BackupError> {
        /// The part of a manifest that every format has.
        #[derive(Deserialize)]
        struct AnyFormat {
            format: u32,
        }
        let (name, known) = (format!("{FOLDER}/{name}"), MANIFEST_FORMAT);
        let place = store.place(&name);
        let damaged = |cause: serde_json::Error| BackupError::DamagedManifest {
            place: store.place(&name),
            what: cause.to_string(),
        };
        let bytes = match store.get(&name, OBJECT_BYTES_MAX) {
            Err(BackupError::Damaged { place, what }) => return Err(BackupError::DamagedManifest { place, what }),
            read => read?.ok_or_else(|| BackupError::Missing { place: place.clone() })?,
        };
        let AnyFormat { format: found } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if found > known {
            return Err(BackupError::NewerFormat { place, found, known });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }
}

/// Returns the names of all manifests, sorted.
pub(super) fn names(store: &Store) -> Result<Vec<String>, BackupError> {
    let listed = store.list(FOLDER)?.into_iter().map(|Listed { name, .. }| name);
    let mut names: Vec<_> = listed.filter(|name| name.ends_with(".json")).collect();
    if names.len() > BACKUPS_MAX {
        return Err(BackupError::TooMany { place: store.place(""), max: BACKUPS_MAX });
    }
    names.sort_unstable();
    Ok(names)
}

/// The backups of a place.
#[derive(Debug)]
pub(crate) struct Found {
    /// The backups whose manifests can be read, oldest first.
    pub(crate) manifests: Vec<Manifest>,
    /// The names of the manifests that are damaged or of a later version, with their errors.
    pub(crate) unreadable: Vec<(String, BackupError)>,
}

/// Reads all manifests, oldest first. They have to be of one data directory, or of one cluster.
///
/// # Errors
/// Fails if a manifest cannot be read, or two are of different data directories. A caller that removes objects needs all manifests, because
/// an unreadable one may refer to any object.
pub(crate) fn read_all(store: &Store) -> Result<Vec<Manifest>, BackupError> {
    let Found { manifests, unreadable } = read_readable(store)?;
    unreadable.into_iter().next().map_or(Ok(manifests), |(_, cause)| Err(cause))
}

/// Reads the manifests that can be read, for restores. They have to be of one data directory, or of one cluster.
///
/// # Errors
/// Fails if the store does not answer, if there are manifests and none can be read, or if two are of different data directories.
pub(crate) fn read_readable(store: &Store) -> Result<Found, BackupError> {
    let (mut manifests, mut unreadable) = (Vec::<Manifest>::new(), Vec::new());
    for name in names(store)? {
        let manifest = match Manifest::read(store, &name) {
            Ok(manifest) => manifest,
            // Another process has removed it since the names were read.
            Err(BackupError::Missing { .. }) => continue,
            Err(cause @ (BackupError::DamagedManifest { .. } | BackupError::NewerFormat { .. })) => {
                unreadable.push((name, cause));
                continue;
            }
            Err(cause) => return Err(cause),
        };
        if let Some(first) = manifests.first().filter(|first| first.identity != manifest.identity) {
            let (found, expected) = (manifest.identity, first.identity.clone());
            return Err(BackupError::OtherIdentity { place: place_of(store, &name), found, expected });
        }
        manifests.push(manifest);
    }
    if manifests.is_empty() && !unreadable.is_empty() {
        return Err(unreadable.remove(0).1);
    }
    manifests.sort_by_key(Manifest::age_key);
    Ok(Found { manifests, unreadable })
}

/// Returns the place of the manifest of this name, for messages.
pub(super) fn place_of(store: &Store, name: &str) -> String {
    store.place(&format!("{FOLDER}/{name}"))
}

pub(super) fn needed(manifests: &[Manifest]) -> HashMap<&str, u64> {
    manifests.iter().flat_map(Manifest::parts).map(|part| (&*part.sha256, part.bytes)).collect()
}

/// Returns the bytes of all parts, each counted once.
pub(super) fn stored_bytes(manifests: &[Manifest]) -> u64 {
    needed(manifests).values().sum()
}

//! The check of a store before a server starts with it.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::backup::BackupError;
use crate::backup::manifest::{self, Manifest};
use crate::backup::store::Store;
use crate::backup::url::BackupUrl;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::reader::segments;
use tidewire::storage::{archive, directory_identity, snapshot};

/// Maximum time for which a server that has its data waits for the store when it starts. During an outage of the store it starts without
/// the check.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Checks the store of a server on one machine, before anything is written to its data directory.
///
/// # Errors
/// Fails if the store has backups of another directory. If the directory is new, it also fails if the store cannot be used or does not
/// answer.
pub(crate) fn check(to: &BackupUrl, directory: &Path) -> Result<(), BackupError> {
    let files = DiskFiles::open(directory).map_err(StorageError::io("use", directory.display().to_string()))?;
    match directory_identity::find(&files) {
        Ok(Some(found)) => return check_owner(to, found),
        Ok(None) => {}
        // Recovery reports errors of the files.
        Err(_) => return Ok(()),
    }
    let has_archive = directory.join(archive::FILE).exists();
    if has_archive || !segments(&files)?.is_empty() || !snapshot::snapshots(&files)?.is_empty() {
        // The files of the first formats have no identity.
        return Ok(());
    }
    let store = Store::open(to, true)?;
    match newest(&store)? {
        None => Ok(()),
        Some(Manifest { identity: found, .. }) => {
            Err(BackupError::NewDirectory { place: store.place(""), found, directory: directory.to_owned() })
        }
    }
}

/// Fails if the store is known to have the backups of another identity.
pub(super) fn check_owner(to: &BackupUrl, identity: Identity) -> Result<(), BackupError> {
    // The first run reports this error.
    let Ok(store) = Store::open(to, true) else { return Ok(()) };
    let (send, received) = crossbeam_channel::bounded(1);
    let check = move || {
        let checked = match newest(&store) {
            Ok(Some(found)) => found.check_identity(&store, &identity.to_string()),
            // The first run reports this error.
            Ok(None) | Err(_) => Ok(()),
        };
        // Sending fails only if the timeout has dropped the receiver.
        let _ = send.send(checked);
    };
    let thread = thread::Builder::new().name("tidewire-backup-check".to_owned()).spawn(check);
    thread.map_err(BackupError::file("start", "the thread that checks the backup store"))?;
    received.recv_timeout(ANSWER_MAX).unwrap_or(Ok(()))
}

/// Returns one of the newest manifests that can be read, or none if there are no backups.
fn newest(store: &Store) -> Result<Option<Manifest>, BackupError> {
    let mut unreadable = None;
    for name in manifest::names(store)?.into_iter().rev() {
        match Manifest::read(store, &name) {
            Ok(found) => return Ok(Some(found)),
            // Another process has removed it since the names were read.
            Err(BackupError::Missing { .. }) => {}
            Err(cause @ (BackupError::DamagedManifest { .. } | BackupError::NewerFormat { .. })) => {
                unreadable.get_or_insert(cause);
            }
            Err(cause) => return Err(cause),
        }
    }
    unreadable.map_or(Ok(None), Err)
}

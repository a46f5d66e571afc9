//! Stores a snapshot that another node has sent.

use std::io::Read;

use crate::storage::error::StorageError;
use crate::storage::files::{Files, UNFINISHED};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{
    Block, SNAPSHOT_HEADER_BYTES_MAX, SNAPSHOT_SYNC_BYTES, SnapshotReader, name, parse_identity,
};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// The reason why a snapshot was not stored.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The transfer ended early.
    #[error("it ended after {bytes} bytes: {cause}")]
    Ended {
        /// The number of bytes that were received.
        bytes: u64,
        /// The error of the connection.
        cause: std::io::Error,
    },
    /// The snapshot is not one that this node can use. The text is the reason.
    #[error("{0}")]
    Refused(String),
    /// The snapshot cannot be stored, or is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The checks that the receiver makes on a snapshot. An error is the reason for the refusal.
pub trait Checks {
    /// Checks the identity and the sequence, before anything else is received.
    ///
    /// # Errors
    /// Fails if the snapshot is refused.
    fn header(&self, identity: Identity, sequence: Sequence) -> Result<(), String>;

    /// Checks the first block, after all of the snapshot was received.
    ///
    /// # Errors
    /// Fails if the snapshot is refused.
    fn first_block(&self, block: &Block) -> Result<(), String>;
}

/// Writes a snapshot into the directory, which this process must have locked. Verifies all of it, and only then gives it its final name.
/// Returns its name and its size in bytes.
///
/// # Errors
/// Fails if the snapshot is refused, damaged, or cannot be written. Then no part of it remains.
pub fn receive(files: &dyn Files, from: &mut dyn Read, checks: &dyn Checks) -> Result<(String, u64), ReceiveError> {
    let mut header = [0; SNAPSHOT_HEADER_BYTES_MAX];
    from.read_exact(&mut header).map_err(|cause| ReceiveError::Ended { bytes: 0, cause })?;
    let unknown = || ReceiveError::Refused("it is not a snapshot of a node, or a newer version wrote it".to_owned());
    let (identity, sequence) = (parse_identity(&header).ok_or_else(unknown)?, super::sequence_in(&header));
    checks.header(identity, sequence).map_err(ReceiveError::Refused)?;
    let name = name(sequence);
    let unfinished = format!("{name}{UNFINISHED}");
    let received = store(files, from, &header, &unfinished).and_then(|bytes| {
        verify(files, &unfinished, checks)?;
        let renamed = files.rename(&unfinished, &name).and_then(|()| files.sync_directory());
        renamed.map_err(StorageError::io("rename", files.place(&unfinished)))?;
        Ok(bytes)
    });
    if received.is_err() {
        let _ = files.remove(&unfinished);
    }
    received.map(|bytes| (name, bytes))
}

fn store(files: &dyn Files, from: &mut dyn Read, header: &[u8], unfinished: &str) -> Result<u64, ReceiveError> {
    let failed = |action: &'static str| StorageError::io(action, files.place(unfinished));
    let file = files.create(unfinished).map_err(failed("create"))?;
    file.append(header).map_err(failed("write"))?;
    let (mut bytes, mut unsynced, mut piece) = (header.len() as u64, 0, vec![0; PIECE_BYTES]);
    loop {
        let read = from.read(&mut piece).map_err(|cause| ReceiveError::Ended { bytes, cause })?;
        file.append(&piece[..read]).map_err(failed("write"))?;
        (bytes, unsynced) = (bytes + read as u64, unsynced + read);
        if read == 0 || unsynced > SNAPSHOT_SYNC_BYTES {
            unsynced = 0;
            file.sync().map_err(failed("sync"))?;
        }
        if read == 0 {
            return Ok(bytes);
        }
    }
}

/// Reads all of a file, with all checksums.
fn verify(files: &dyn Files, file: &str, checks: &dyn Checks) -> Result<(), ReceiveError> {
    let mut reader = SnapshotReader::open(files, file)?;
    let mut is_first = true;
    while let Some(block) = reader.next_block()? {
        if std::mem::take(&mut is_first) {
            checks.first_block(&block).map_err(ReceiveError::Refused)?;
        }
    }
    Ok(())
}

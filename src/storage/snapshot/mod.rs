//! A snapshot: the state at approximately one event, in one file, so that a start does not have to replay the whole journal.
//!
//! Responsible for:
//! - the bytes of a snapshot file: a header, blocks of records, an end record;
//! - writing the file under another name until it is complete, reading it block by block, detecting any damage.
//!
//! Numbers are little-endian. The header: magic (8 bytes), format (2), 2 zero bytes, sequence of the last event that is certainly contained
//! in the records (8), time of the start of the snapshot in microseconds (8), identity of the data directory (16, absent in format 1),
//! CRC-32C of the bytes before. A block: kind (1), compression (1: none 0, zstd 1), number of records (4), bytes of the records (4), bytes
//! stored (4), CRC-32C of the stored bytes (4), CRC-32C of the 18 bytes before, then the stored records: MessagePack, maps with named
//! fields, one after the other. The last block contains the end record, and nothing follows it.

mod reader;
mod received;
mod section;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::{Timestamp, UnixMicros};
use crate::id::PostId;
use crate::limits::{SNAPSHOT_BLOCK_BYTES, SNAPSHOT_BLOCK_BYTES_MAX};
use crate::storage::archive::Archive;
use crate::storage::error::StorageError;
use crate::storage::files::{AppendFile, Files, UNFINISHED};
use crate::storage::frame::pack;
use crate::storage::identity::{IDENTITY_BYTES, Identity};
use crate::storage::sequence::Sequence;

pub use reader::{Block, SnapshotReader};
pub use received::{Checks, ReceiveError, receive};
pub use section::Section;

/// Bytes of a snapshot that are written between two syncs.
const SNAPSHOT_SYNC_BYTES: usize = 8 << 20;

/// The format of a snapshot of a server on one machine.
const FORMAT_OF_ONE_MACHINE: u16 = 2;

/// The format of a snapshot of a node of a cluster. It has the section [`Section::Cluster`].
const FORMAT_OF_NODE: u16 = 3;

/// The latest format that can be read: a snapshot, of either kind, that relies on an archive without counts of its outboxes. It has the
/// section [`Section::ArchivedCounts`], which may be empty.
pub const SNAPSHOT_FORMAT: u16 = 4;

/// Bytes of the header in all formats but the first, the longest one.
pub const SNAPSHOT_HEADER_BYTES_MAX: usize = HEADER_BYTES + IDENTITY_BYTES;

const MAGIC: &[u8; 8] = b"TIDESNAP";
/// Bytes of the header in format 1.
const HEADER_BYTES: usize = 32;
const BLOCK_HEADER_BYTES: usize = 22;

/// The compression level of zstd. A level above 1 needs much more time and saves little space on such records.
const ZSTD_LEVEL: i32 = 1;

/// The last record of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRecord {
    /// The last event that may have an effect on the records. The journal must contain it.
    pub through: Sequence,
    /// The last logical instant that had been issued.
    pub last_instant: UnixMicros,
    /// The drift of this instant from the displayed time, in microseconds; negative if behind. It is written only if the clock has
    /// jumped.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[serde(rename = "lead_us")]
    pub drift_us: i64,
    /// Clients that poll with a token from before this logical instant must read their feeds again. None if all tokens are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_from: Option<UnixMicros>,
    /// The last posts with very many reposts that became visible again, and the instants when they did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revealed: Vec<(UnixMicros, PostId)>,
    /// The number of blocks before this one.
    pub blocks: u64,
    /// True if the archive contained any posts: if it is missing later, old posts are lost. The archive was persisted with `through`, so
    /// the archive that is opened with the snapshot must have been persisted with this or a later event.
    #[serde(default)]
    pub archive: bool,
}

fn is_zero(drift_us: &i64) -> bool {
    *drift_us == 0
}

/// The content of a snapshot file's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotHeader {
    /// The last event whose effects are certainly contained. The replay starts after it.
    pub sequence: Sequence,
    /// The time when the snapshot was started.
    pub taken_at: UnixMicros,
}

/// Returns the file name of the snapshot at `sequence`.
pub fn name(sequence: Sequence) -> String {
    format!("snapshot-{:020}.tide", sequence.0)
}

/// Returns true if the header of this known format has an identity.
fn has_identity(format: u16) -> bool {
    (FORMAT_OF_ONE_MACHINE..=SNAPSHOT_FORMAT).contains(&format)
}

/// Parses the name of a snapshot file, and returns its sequence. Returns none for another name.
pub fn parse_name(name: &str) -> Option<Sequence> {
    let digits = name.strip_prefix("snapshot-")?.strip_suffix(".tide")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok().map(Sequence) } else { None }
}

/// Returns the identity if `bytes` begins with a valid snapshot header that contains one.
pub fn parse_identity(bytes: &[u8]) -> Option<Identity> {
    let header = bytes.get(..SNAPSHOT_HEADER_BYTES_MAX).filter(|header| header.starts_with(MAGIC))?;
    let (content, checksum) = header.split_at(SNAPSHOT_HEADER_BYTES_MAX - 4);
    let format = u16::from_le_bytes([content[8], content[9]]);
    let has_one = has_identity(format) && crc32c::crc32c(content).to_le_bytes() == checksum;
    let identity = content[HEADER_BYTES - 4..].try_into().ok().map(Identity);
    identity.filter(|_| has_one)
}

/// Returns the sequence in a valid header.
fn sequence_in(header: &[u8]) -> Sequence {
    let bytes = header.get(12..20).and_then(|bytes| bytes.try_into().ok());
    Sequence(bytes.map_or(0, u64::from_le_bytes))
}

/// Returns the snapshots of a directory, newest first.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn snapshots(files: &dyn Files) -> Result<Vec<(String, Sequence)>, StorageError> {
    let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
    let with_sequence = |name: String| parse_name(&name).map(|sequence| (name, sequence));
    let mut snapshots: Vec<_> = names.into_iter().filter_map(with_sequence).collect();
    snapshots.sort_unstable_by_key(|snapshot| std::cmp::Reverse(snapshot.1));
    Ok(snapshots)
}

/// Removes the unfinished files that an earlier process left. If that fails, they only occupy disk space.
pub fn remove_unfinished(files: &dyn Files) {
    let is_unfinished = |name: &&String| name.strip_suffix(UNFINISHED).and_then(parse_name).is_some();
    for name in files.list().unwrap_or_default().iter().filter(is_unfinished) {
        let _ = files.remove(name);
    }
}

/// A snapshot that is being written.
pub struct SnapshotWriter<'a> {
    files: &'a dyn Files,
    file: Arc<dyn AppendFile>,
    unfinished: String,
    header: SnapshotHeader,
    compress: bool,
    section: Section,
    records: u32,
    raw: Vec<u8>,
    blocks: u64,
    bytes: u64,
    unsynced: usize,
    tokens_from: Option<UnixMicros>,
    revealed: Vec<(UnixMicros, PostId)>,
}

impl<'a> SnapshotWriter<'a> {
    /// Starts a snapshot: creates its file and writes the header.
    ///
    /// # Errors
    /// Fails if the file cannot be created or written.
    pub fn begin(files: &'a dyn Files, header: SnapshotHeader, compress: bool) -> Result<Self, StorageError> {
        Self::begin_beside(files, header, compress, None)
    }

    /// Starts a snapshot of a state that relies on this archive.
    ///
    /// # Errors
    /// Fails if the file cannot be created or written.
    pub fn begin_beside(
        files: &'a dyn Files,
        header: SnapshotHeader,
        compress: bool,
        archive: Option<&dyn Archive>,
    ) -> Result<Self, StorageError> {
        let unfinished = name(header.sequence) + UNFINISHED;
        let place = files.place(&unfinished);
        // A process that died while it wrote a snapshot may have left this file.
        let _ = files.remove(&unfinished);
        let file = files.create(&unfinished).map_err(StorageError::io("create", place))?;
        let mut writer = Self {
            files,
            file,
            unfinished,
            header,
            compress,
            section: Section::Sources,
            records: 0,
            raw: Vec::with_capacity(SNAPSHOT_BLOCK_BYTES),
            blocks: 0,
            bytes: 0,
            unsynced: 0,
            tokens_from: None,
            revealed: Vec::new(),
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        let identity = files.identity();
        let has_counts = archive.is_some_and(|archive| archive.is_remote());
        let format = identity.map_or(1, |identity| match identity.cluster() {
            _ if has_counts => SNAPSHOT_FORMAT,
            Some(_) => FORMAT_OF_NODE,
            None => FORMAT_OF_ONE_MACHINE,
        });
        bytes.extend(format.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(header.sequence.0.to_le_bytes());
        bytes.extend(header.taken_at.0.to_le_bytes());
        bytes.extend(identity.iter().flat_map(|identity| identity.0));
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        match writer.append(&bytes) {
            Ok(()) => Ok(writer),
            Err(cause) => {
                writer.abandon();
                Err(cause)
            }
        }
    }

    /// Adds a record to the current block. A record of another section starts a new block.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError> {
        self.begin_record(section)?;
        pack(record, &mut self.raw);
        self.end_record()
    }

    /// Adds a record that is encoded already.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn record_packed(&mut self, section: Section, record: &[u8]) -> Result<(), StorageError> {
        self.begin_record(section)?;
        self.raw.extend(record);
        self.end_record()
    }

    fn begin_record(&mut self, section: Section) -> Result<(), StorageError> {
        if section != self.section {
            self.end_block()?;
            self.section = section;
        }
        Ok(())
    }

    fn end_record(&mut self) -> Result<(), StorageError> {
        self.records += 1;
        if self.raw.len() >= SNAPSHOT_BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    /// Sets the state of delivery (`state::delivery`) for the end record: the instant from which tokens are valid, if not all are, and the
    /// posts with very many reposts that became visible.
    pub fn set_delivery(&mut self, tokens_from: Option<UnixMicros>, revealed: Vec<(UnixMicros, PostId)>) {
        (self.tokens_from, self.revealed) = (tokens_from, revealed);
    }

    /// Writes the end record, syncs the file, and renames it to its final name. Returns its size in bytes.
    ///
    /// # Errors
    /// Fails if any of these steps fails. Then there is no snapshot.
    pub fn finish(mut self, through: Sequence, last: impl Into<Timestamp>, archive: bool) -> Result<u64, StorageError> {
        match self.end(through, last.into(), archive) {
            Ok(()) => Ok(self.bytes),
            Err(cause) => {
                self.abandon();
                Err(cause)
            }
        }
    }

    fn end(&mut self, through: Sequence, last: Timestamp, archive: bool) -> Result<(), StorageError> {
        self.end_block()?;
        let Timestamp { instant: last_instant, drift_us } = last;
        let (tokens_from, blocks) = (self.tokens_from, self.blocks);
        let revealed = std::mem::take(&mut self.revealed);
        let end = EndRecord { through, last_instant, drift_us, tokens_from, revealed, blocks, archive };
        self.record(Section::End, &end)?;
        self.end_block()?;
        let name = name(self.header.sequence);
        self.file.sync().map_err(StorageError::io("sync", self.files.place(&self.unfinished)))?;
        self.files.rename(&self.unfinished, &name).map_err(StorageError::io("rename", self.files.place(&name)))?;
        self.files.sync_directory().map_err(StorageError::io("sync the directory of", self.files.place(&name)))
    }

    /// Cancels the snapshot, and removes its file.
    pub fn abandon(self) {
        // If this fails, the next snapshot at this event removes the file.
        let _ = self.files.remove(&self.unfinished);
    }

    fn end_block(&mut self) -> Result<(), StorageError> {
        if self.records == 0 {
            return Ok(());
        }
        if self.raw.len() > SNAPSHOT_BLOCK_BYTES_MAX {
            // No reader would accept such a block. The existing snapshots and the journal are retained.
            let cause =
                format!("a record of {} bytes is more than the {SNAPSHOT_BLOCK_BYTES_MAX} allowed", self.raw.len());
            let place = self.files.place(&self.unfinished);
            return Err(StorageError::io("write", place)(std::io::Error::other(cause)));
        }
        let compressed = if self.compress { zstd::bulk::compress(&self.raw, ZSTD_LEVEL).ok() } else { None };
        let stored = compressed.as_deref().filter(|smaller| smaller.len() < self.raw.len());
        let (how, stored) = stored.map_or((0, self.raw.as_slice()), |smaller| (1, smaller));
        let mut block = Vec::with_capacity(BLOCK_HEADER_BYTES + stored.len());
        block.extend([self.section.byte(), how]);
        block.extend(self.records.to_le_bytes());
        block.extend((self.raw.len() as u32).to_le_bytes());
        block.extend((stored.len() as u32).to_le_bytes());
        block.extend(crc32c::crc32c(stored).to_le_bytes());
        block.extend(crc32c::crc32c(&block).to_le_bytes());
        block.extend(stored);
        self.append(&block)?;
        self.blocks += 1;
        self.records = 0;
        self.raw.clear();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.bytes += bytes.len() as u64;
        self.unsynced += bytes.len();
        if self.unsynced > SNAPSHOT_SYNC_BYTES {
            // The file is synced in small parts: the journal's syncs, on the same disk, would have to wait for one large sync.
            self.unsynced = 0;
            self.file.sync().map_err(StorageError::io("sync", self.files.place(&self.unfinished)))?;
        }
        self.file.append(bytes).map_err(StorageError::io("write", self.files.place(&self.unfinished)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::records::DeletedRecord;
    use crate::storage::files::memory::MemoryFiles;

    const HEADER: SnapshotHeader = SnapshotHeader { sequence: Sequence(7), taken_at: UnixMicros(-5) };

    fn written(compress: bool) -> (MemoryFiles, String) {
        let files = MemoryFiles::default();
        let mut writer = SnapshotWriter::begin(&files, HEADER, compress).unwrap();
        for nth in 0..40u8 {
            writer.record(Section::Deleted, &DeletedRecord { ids: vec![nth; 64].into() }).unwrap();
        }
        writer.finish(Sequence(9), UnixMicros(3), false).unwrap();
        (files, name(Sequence(7)))
    }

    fn read(files: &MemoryFiles, name: &str) -> Result<Vec<DeletedRecord>, StorageError> {
        let mut reader = SnapshotReader::open(files, name)?;
        let mut records = Vec::new();
        while let Some(block) = reader.next_block()? {
            records.extend(block.decode::<DeletedRecord>().map_err(|reason| reader.bad(reason))?);
        }
        assert_eq!((reader.header(), reader.end().unwrap().through), (HEADER, Sequence(9)));
        Ok(records)
    }

    #[test]
    fn a_snapshot_is_read_back_compressed_or_not() {
        let sizes = [false, true].map(|compress| {
            let (files, name) = written(compress);
            assert_eq!(files.list().unwrap(), std::slice::from_ref(&name));
            assert_eq!(read(&files, &name).unwrap().len(), 40);
            files.bytes()
        });
        assert!(sizes[1] < sizes[0] / 4, "{sizes:?}");
    }

    #[test]
    fn every_flipped_byte_and_every_truncation_is_detected() {
        for compress in [false, true] {
            let (files, name) = written(compress);
            let whole = files.content(&name);
            for at in 0..whole.len() {
                let flipped = files.copied();
                flipped.tamper(&name, |bytes| bytes[at] ^= 0x10);
                assert!(read(&flipped, &name).is_err(), "byte {at}");
                let cut = files.copied();
                cut.tamper(&name, |bytes| bytes.truncate(at));
                assert!(read(&cut, &name).is_err(), "cut at {at}");
            }
            let longer = files.copied();
            longer.tamper(&name, |bytes| bytes.push(0));
            let error = read(&longer, &name).unwrap_err().to_string();
            assert!(error.contains(&format!("at byte {}: 1 bytes follow the end record", whole.len())), "{error}");
        }
    }

    #[test]
    fn foreign_files_and_newer_formats_are_distinguished() {
        let (files, name) = written(false);
        files.tamper(&name, |bytes| bytes[0] = b'X');
        assert!(matches!(read(&files, &name), Err(StorageError::Foreign { .. })));
        let (files, name) = written(false);
        files.tamper(&name, |bytes| {
            bytes[8] = 9;
            let checksum = crc32c::crc32c(&bytes[..28]).to_le_bytes();
            bytes[28..32].copy_from_slice(&checksum);
        });
        assert!(matches!(read(&files, &name), Err(StorageError::NewerFormat { found: 9, .. })));
    }
}

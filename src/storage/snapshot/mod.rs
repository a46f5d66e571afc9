//! A snapshot: the state at about one event, in one file, so that not the whole journal has to be replayed.
//!
//! Responsible for:
//! - the bytes of a snapshot file: a header, blocks of records, an end;
//! - writing it under another name until it is whole, reading it block by block, noticing any damage.
//!
//! Not responsible for:
//! - what records mean (`state::records`), when snapshots are taken and dropped (`runtime::background::snapshotter`).
//!
//! Numbers are little-endian. The header: magic (8 bytes), format (2), 2 bytes zero, sequence of the last event the walk
//! can rely on (8), time of its start in microseconds (8), identity of the data directory (16, none in format 1), CRC-32C of what is before. A block: kind (1), compression (1:
//! none 0, zstd 1), records (4), bytes of the records (4), bytes stored (4), CRC-32C of what is stored (4), CRC-32C of the
//! 18 bytes before, then the records as stored: MessagePack, maps with named fields, one behind the other. The last block is
//! an end record, and nothing follows it.

mod reader;
mod world;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::{Taken, UnixMicros};
use crate::id::PostId;
use crate::limits::{SNAPSHOT_BLOCK_BYTES, SNAPSHOT_BLOCK_BYTES_MAX, SNAPSHOT_SYNC_BYTES};
use crate::storage::error::StorageError;
use crate::storage::files::{AppendFile, Files};
use crate::storage::frame::pack;
use crate::storage::identity::{IDENTITY_BYTES, Identity};
use crate::storage::journal::Sequence;

pub use reader::{Block, SnapshotReader};
pub use world::{Records, write_world};

/// The format that is written, and the last that is read.
pub const SNAPSHOT_FORMAT: u16 = 2;

/// Bytes before the first block, in format 2.
pub const SNAPSHOT_HEADER_BYTES_MAX: usize = HEADER_BYTES + IDENTITY_BYTES;

const MAGIC: &[u8; 8] = b"TIDESNAP";
/// Bytes before the first block, in format 1.
const HEADER_BYTES: usize = 32;
const BLOCK_HEADER_BYTES: usize = 22;

/// zstd's level: above 1 it costs far more than it saves on such records.
const ZSTD_LEVEL: i32 = 1;

/// What the records of a block are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Section {
    /// [`crate::state::records::SourceRecord`], in the order of their numbers.
    Sources,
    /// [`crate::state::records::EdgesRecord`].
    Edges,
    /// [`crate::state::records::PreferencesRecord`].
    Preferences,
    /// [`crate::state::records::RepostsRecord`].
    Reposts,
    /// [`crate::state::records::RevocationsRecord`].
    Revocations,
    /// [`crate::feed::record::PostRecord`].
    Posts,
    /// [`crate::state::records::DeletedRecord`].
    Deleted,
    /// [`crate::state::records::UnderWayRecord`].
    UnderWay,
    /// [`crate::state::records::InboxRecord`].
    Inboxes,
    /// [`EndRecord`].
    End,
}

impl Section {
    const ALL: [Self; 10] = [
        Self::Sources,
        Self::Edges,
        Self::Preferences,
        Self::Reposts,
        Self::Revocations,
        Self::Posts,
        Self::Deleted,
        Self::UnderWay,
        Self::Inboxes,
        Self::End,
    ];

    fn byte(self) -> u8 {
        match self {
            Self::Sources => 1,
            Self::Edges => 2,
            Self::Posts => 3,
            Self::Deleted => 4,
            Self::UnderWay => 5,
            Self::Inboxes => 6,
            Self::Preferences => 7,
            Self::Reposts => 8,
            Self::Revocations => 9,
            Self::End => 255,
        }
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Edges => "edges",
            Self::Preferences => "choices",
            Self::Reposts => "reposts",
            Self::Revocations => "revocations",
            Self::Posts => "posts",
            Self::Deleted => "deleted",
            Self::UnderWay => "under way",
            Self::Inboxes => "inboxes",
            Self::End => "end",
        }
    }
}

/// The last record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRecord {
    /// The last event that may have left something in the snapshot: the journal must reach it.
    pub through: Sequence,
    /// The last logical instant that had been handed out.
    pub last_instant: UnixMicros,
    /// By how many microseconds it was ahead of the time shown; negative if behind. Written only if the clock has jumped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lead_us: i64,
    /// Clients that poll with a token from before this logical instant have to read their feeds again, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_from: Option<UnixMicros>,
    /// The last posts that came to be seen with more reposts than are noted one by one, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revealed: Vec<(UnixMicros, PostId)>,
    /// Blocks before this one.
    pub blocks: u64,
    /// Whether the archive had anything: without it then, old posts are gone. It was persisted with `through`, and so must
    /// be the one it is opened with, or with a later event.
    #[serde(default)]
    pub archive: bool,
}

fn is_zero(lead_us: &i64) -> bool {
    *lead_us == 0
}

/// What a snapshot file begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotHeader {
    /// Replay goes on after this event.
    pub sequence: Sequence,
    /// When the walk began.
    pub taken_at: UnixMicros,
}

/// The name of the snapshot at `sequence`.
pub fn name(sequence: Sequence) -> String {
    format!("snapshot-{:020}.tide", sequence.0)
}

/// The sequence of the snapshot that has this name, if it is one's name.
pub fn parse_name(name: &str) -> Option<Sequence> {
    let digits = name.strip_prefix("snapshot-")?.strip_suffix(".tide")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok().map(Sequence) } else { None }
}

/// The identity in the header of a snapshot, if `bytes` begin with one that has any.
pub fn parse_identity(bytes: &[u8]) -> Option<Identity> {
    let header = bytes.get(..SNAPSHOT_HEADER_BYTES_MAX).filter(|header| header.starts_with(MAGIC))?;
    let (content, checksum) = header.split_at(SNAPSHOT_HEADER_BYTES_MAX - 4);
    let has_one = content[8..10] == SNAPSHOT_FORMAT.to_le_bytes() && crc32c::crc32c(content).to_le_bytes() == checksum;
    let identity = content[HEADER_BYTES - 4..].try_into().ok().map(Identity);
    identity.filter(|_| has_one)
}

/// The snapshots of a directory, newest first.
///
/// # Errors
/// When the directory cannot be read.
pub fn snapshots(files: &dyn Files) -> Result<Vec<(String, Sequence)>, StorageError> {
    let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
    let with_sequence = |name: String| parse_name(&name).map(|sequence| (name, sequence));
    let mut snapshots: Vec<_> = names.into_iter().filter_map(with_sequence).collect();
    snapshots.sort_unstable_by_key(|snapshot| std::cmp::Reverse(snapshot.1));
    Ok(snapshots)
}

/// A snapshot being written.
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

/// The end of the name of a file that is not finished.
pub const UNFINISHED: &str = ".unfinished";

impl<'a> SnapshotWriter<'a> {
    /// Begins a snapshot.
    ///
    /// # Errors
    /// When no file can be written.
    pub fn begin(files: &'a dyn Files, header: SnapshotHeader, compress: bool) -> Result<Self, StorageError> {
        let unfinished = name(header.sequence) + UNFINISHED;
        let place = files.place(&unfinished);
        // One may be left from a process that died over it.
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
        bytes.extend(if identity.is_some() { SNAPSHOT_FORMAT } else { 1 }.to_le_bytes());
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

    /// Adds a record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError> {
        if section != self.section {
            self.end_block()?;
            self.section = section;
        }
        pack(record, &mut self.raw);
        self.records += 1;
        if self.raw.len() >= SNAPSHOT_BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    /// Sets what is known of arrivals (`state::arrivals`): from when on tokens are good, if not all are, and which posts with very many
    /// reposts came to be seen.
    pub fn set_arrivals(&mut self, tokens_from: Option<UnixMicros>, revealed: Vec<(UnixMicros, PostId)>) {
        (self.tokens_from, self.revealed) = (tokens_from, revealed);
    }

    /// Writes the end, makes the file survive power loss, and gives it its name. Returns its bytes.
    ///
    /// # Errors
    /// When any of that fails. The file is not a snapshot then.
    pub fn finish(mut self, through: Sequence, last: impl Into<Taken>, archive: bool) -> Result<u64, StorageError> {
        match self.end(through, last.into(), archive) {
            Ok(()) => Ok(self.bytes),
            Err(cause) => {
                self.abandon();
                Err(cause)
            }
        }
    }

    fn end(&mut self, through: Sequence, last: Taken, archive: bool) -> Result<(), StorageError> {
        self.end_block()?;
        let Taken { instant: last_instant, lead_us } = last;
        let (tokens_from, blocks) = (self.tokens_from, self.blocks);
        let revealed = std::mem::take(&mut self.revealed);
        let end = EndRecord { through, last_instant, lead_us, tokens_from, revealed, blocks, archive };
        self.record(Section::End, &end)?;
        self.end_block()?;
        let name = name(self.header.sequence);
        self.file.sync().map_err(StorageError::io("sync", self.files.place(&self.unfinished)))?;
        self.files.rename(&self.unfinished, &name).map_err(StorageError::io("rename", self.files.place(&name)))?;
        self.files.sync_directory().map_err(StorageError::io("sync the directory of", self.files.place(&name)))
    }

    /// Gives up, and takes away what was written.
    pub fn abandon(self) {
        // If it stays, the next snapshot at this event takes it away.
        let _ = self.files.remove(&self.unfinished);
    }

    fn end_block(&mut self) -> Result<(), StorageError> {
        if self.records == 0 {
            return Ok(());
        }
        if self.raw.len() > SNAPSHOT_BLOCK_BYTES_MAX {
            // No reader would take it. The snapshots and the journal there are stay.
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
            // A little at a time: the journal's syncs, on the same disk, would have to wait for one large one.
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
    fn every_flipped_byte_and_every_cut_is_noticed() {
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
            assert!(error.contains(&format!("at byte {}: 1 bytes stand behind", whole.len())), "{error}");
        }
    }

    #[test]
    fn what_is_no_snapshot_or_a_later_one_is_told_apart() {
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

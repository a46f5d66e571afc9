//! Reads a snapshot block by block, and verifies every checksum.

use std::io::{self, Read};

use serde::de::DeserializeOwned;

use crate::clock::UnixMicros;
use crate::limits::{SNAPSHOT_BLOCK_BYTES, SNAPSHOT_BLOCK_BYTES_MAX};
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{unpack, unpack_next};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{
    self, BLOCK_HEADER_BYTES, EndRecord, HEADER_BYTES, MAGIC, SNAPSHOT_FORMAT, SNAPSHOT_HEADER_BYTES_MAX, Section,
    SnapshotHeader,
};

/// A block of records with a correct checksum.
pub struct Block {
    /// The kind of the records.
    pub section: Section,
    /// The number of records.
    pub records: u32,
    /// Bytes of the block in the file, including its header.
    pub stored_bytes: u64,
    raw: Vec<u8>,
}

impl Block {
    /// Decodes the records of the block.
    ///
    /// # Errors
    /// Fails if a record is not of the type that the section requires.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<Vec<T>, String> {
        let mut rest = self.raw.as_slice();
        // The claimed number of records is limited by the bytes of the block, so that a damaged block cannot cause a large allocation.
        let mut records = Vec::with_capacity((self.records as usize).min(rest.len() / size_of::<T>().max(1)));
        for _ in 0..self.records {
            records.push(unpack_next(&mut rest)?);
        }
        if rest.is_empty() { Ok(records) } else { Err(format!("{} bytes too many in a block", rest.len())) }
    }

    /// Bytes of the uncompressed records.
    pub fn raw_bytes(&self) -> usize {
        self.raw.len()
    }
}

/// A snapshot that is being read.
pub struct SnapshotReader {
    place: String,
    reader: Box<dyn Read + Send>,
    header: SnapshotHeader,
    identity: Option<Identity>,
    file_bytes: u64,
    format: u16,
    /// Offset of the block that was read last or could not be read.
    at: u64,
    /// Offset of the next block.
    next: u64,
    blocks: u64,
    end: Option<EndRecord>,
}

impl SnapshotReader {
    /// Opens a snapshot and reads its header.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a snapshot, or has a later format.
    pub fn open(files: &dyn Files, name: &str) -> Result<Self, StorageError> {
        let place = files.place(name);
        let (mut reader, file_bytes) = files.read(name).map_err(StorageError::io("read", &*place))?;
        let mut bytes = vec![0; HEADER_BYTES];
        let too_short = |_| StorageError::BadSnapshot {
            place: place.clone(),
            offset_bytes: 0,
            reason: "it is shorter than a header".to_owned(),
        };
        reader.read_exact(&mut bytes).map_err(too_short)?;
        if !bytes.starts_with(MAGIC) {
            return Err(StorageError::Foreign { place, what: "snapshot" });
        }
        let is_whole = |bytes: &[u8]| {
            let (content, checksum) = bytes.split_at(bytes.len() - 4);
            crc32c::crc32c(content).to_le_bytes() == checksum
        };
        let found = u16::from_le_bytes([bytes[8], bytes[9]]);
        // The header of a later format may have the length of either known format.
        if snapshot::has_identity(found) || found > SNAPSHOT_FORMAT && !is_whole(&bytes) {
            bytes.resize(SNAPSHOT_HEADER_BYTES_MAX, 0);
            reader.read_exact(&mut bytes[HEADER_BYTES..]).map_err(too_short)?;
        }
        if !is_whole(&bytes) {
            let reason = "the checksum of its header is wrong".to_owned();
            return Err(StorageError::BadSnapshot { place, offset_bytes: 0, reason });
        }
        if found > SNAPSHOT_FORMAT {
            return Err(StorageError::NewerFormat { place, found, known: SNAPSHOT_FORMAT });
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were taken"));
        let header = SnapshotHeader { sequence: Sequence(number(12)), taken_at: UnixMicros(number(20).cast_signed()) };
        let (start, identity) = (bytes.len() as u64, snapshot::parse_identity(&bytes));
        Ok(Self {
            identity,
            place,
            reader,
            header,
            file_bytes,
            format: found,
            at: start,
            next: start,
            blocks: 0,
            end: None,
        })
    }

    /// Returns the header of the file.
    pub fn header(&self) -> SnapshotHeader {
        self.header
    }

    /// Returns the identity of the directory in which the snapshot was taken, or none in format 1.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Returns true if the file contains the counts of archived posts, because its archive does not have them.
    pub fn has_archived_counts(&self) -> bool {
        self.format >= SNAPSHOT_FORMAT
    }

    /// The format of the file.
    pub fn format(&self) -> u16 {
        self.format
    }

    /// Total bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Path of the file.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the next block of records, or none after the last one.
    ///
    /// # Errors
    /// The error names the file, the offset and the damage.
    pub fn next_block(&mut self) -> Result<Option<Block>, StorageError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let block = self.block().map_err(|reason| self.bad(reason))?;
        if block.section != Section::End {
            self.blocks += 1;
            return Ok(Some(block));
        }
        let end: EndRecord = unpack(&block.raw).map_err(|reason| self.bad(reason))?;
        if end.blocks != self.blocks {
            return Err(self.bad(format!("it contains {} blocks, but {} were written", self.blocks, end.blocks)));
        }
        if self.next != self.file_bytes {
            self.at = self.next;
            let behind = self.file_bytes.saturating_sub(self.next);
            return Err(self.bad(format!("{behind} bytes follow the end record, which must be last")));
        }
        self.end = Some(end);
        Ok(None)
    }

    /// Returns the end record once all blocks were read.
    pub fn end(&self) -> Option<EndRecord> {
        self.end.clone()
    }

    /// Creates an error for the block that was read last.
    pub fn bad(&self, reason: String) -> StorageError {
        StorageError::BadSnapshot { place: self.place.clone(), offset_bytes: self.at, reason }
    }

    fn block(&mut self) -> Result<Block, String> {
        self.at = self.next;
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.reader.read_exact(&mut header).map_err(|_| "it ends before its end record".to_owned())?;
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes were taken"));
        if crc32c::crc32c(&header[..18]) != number(18) {
            return Err("the checksum of a block's header is wrong".to_owned());
        }
        let section = Section::ALL.into_iter().find(|section| section.byte() == header[0]);
        let section = section.ok_or_else(|| format!("no version writes blocks of kind {}", header[0]))?;
        let (raw_bytes, stored_bytes) = (number(6) as usize, number(10) as usize);
        let left = self.file_bytes.saturating_sub(self.at + BLOCK_HEADER_BYTES as u64);
        // A compressed block is never larger than its records: a writer stores it uncompressed then.
        if stored_bytes as u64 > left || stored_bytes.max(raw_bytes) > SNAPSHOT_BLOCK_BYTES_MAX {
            return Err("a block is larger than any version writes".to_owned());
        }
        let mut stored = vec![0; stored_bytes];
        self.reader.read_exact(&mut stored).map_err(|cause| format!("cannot read a block: {cause}"))?;
        if crc32c::crc32c(&stored) != number(14) {
            return Err("the checksum of a block is wrong".to_owned());
        }
        let raw = match header[1] {
            0 => stored,
            1 => inflate(&stored, raw_bytes)?,
            other => return Err(format!("no version compresses by method {other}")),
        };
        if raw.len() != raw_bytes {
            return Err("a block does not have its stated length".to_owned());
        }
        let stored_bytes = (BLOCK_HEADER_BYTES + stored_bytes) as u64;
        self.next += stored_bytes;
        Ok(Block { section, records: number(2), stored_bytes, raw })
    }
}

/// Maximum bytes that one byte of zstd can represent: a run of 128 KiB takes four bytes.
const ZSTD_RATIO_MAX: usize = (128 << 10) / 4;

/// Decompresses a block. The memory grows with the decompressed data, not with the claimed size.
fn inflate(stored: &[u8], raw_bytes: usize) -> Result<Vec<u8>, String> {
    if raw_bytes > stored.len().saturating_mul(ZSTD_RATIO_MAX) {
        return Err("a block claims more bytes than its data can represent".to_owned());
    }
    let failed = |cause: io::Error| format!("zstd: {cause}");
    let mut decoder = zstd::Decoder::with_buffer(stored).map_err(failed)?;
    // A window larger than the records would only waste memory.
    decoder.window_log_max(raw_bytes.max(1 << 10).next_power_of_two().ilog2()).map_err(failed)?;
    let mut raw = Vec::with_capacity(raw_bytes.min(SNAPSHOT_BLOCK_BYTES));
    decoder.take(raw_bytes as u64 + 1).read_to_end(&mut raw).map_err(failed)?;
    Ok(raw)
}

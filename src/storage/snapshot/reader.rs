//! A snapshot being read, block by block, with every checksum looked at.

use std::io::{self, Read};

use serde::de::DeserializeOwned;

use crate::clock::UnixMicros;
use crate::limits::{SNAPSHOT_BLOCK_BYTES, SNAPSHOT_BLOCK_BYTES_MAX};
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{unpack, unpack_next};
use crate::storage::identity::Identity;
use crate::storage::journal::Sequence;
use crate::storage::snapshot::{
    self, BLOCK_HEADER_BYTES, EndRecord, HEADER_BYTES, MAGIC, SNAPSHOT_FORMAT, SNAPSHOT_HEADER_BYTES_MAX, Section,
    SnapshotHeader,
};

/// A block of records, its checksum right.
pub struct Block {
    /// What the records are.
    pub section: Section,
    /// How many.
    pub records: u32,
    /// Bytes in the file.
    pub stored_bytes: u64,
    raw: Vec<u8>,
}

impl Block {
    /// The records.
    ///
    /// # Errors
    /// When they are not what the section says.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<Vec<T>, String> {
        let mut rest = self.raw.as_slice();
        // What the block claims is not believed further than what it holds would pay for.
        let mut records = Vec::with_capacity((self.records as usize).min(rest.len() / size_of::<T>().max(1)));
        for _ in 0..self.records {
            records.push(unpack_next(&mut rest)?);
        }
        if rest.is_empty() { Ok(records) } else { Err(format!("{} bytes too many in a block", rest.len())) }
    }

    /// Bytes of the records, uncompressed.
    pub fn raw_bytes(&self) -> usize {
        self.raw.len()
    }
}

/// A snapshot being read.
pub struct SnapshotReader {
    place: String,
    reader: Box<dyn Read + Send>,
    header: SnapshotHeader,
    identity: Option<Identity>,
    file_bytes: u64,
    format: u16,
    /// Where the block starts that was read last, or cannot be.
    at: u64,
    /// Where the one after it starts.
    next: u64,
    blocks: u64,
    end: Option<EndRecord>,
}

impl SnapshotReader {
    /// Opens a snapshot.
    ///
    /// # Errors
    /// When it cannot be read, is none, or is of a later format.
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
        // A later format may go on with a header as short as the first one was.
        if found == SNAPSHOT_FORMAT || found > SNAPSHOT_FORMAT && !is_whole(&bytes) {
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

    /// What the file begins with.
    pub fn header(&self) -> SnapshotHeader {
        self.header
    }

    /// The identity of the directory it was taken in, if it says so.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// The format it has.
    pub fn format(&self) -> u16 {
        self.format
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where it is.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The next block of records, until all were read.
    ///
    /// # Errors
    /// Names the file, the offset, and what is wrong there.
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
            return Err(self.bad(format!("it has {} blocks where {} were written", self.blocks, end.blocks)));
        }
        if self.next != self.file_bytes {
            self.at = self.next;
            let behind = self.file_bytes.saturating_sub(self.next);
            return Err(self.bad(format!("{behind} bytes stand behind the end record, where nothing may")));
        }
        self.end = Some(end);
        Ok(None)
    }

    /// The end record, once all blocks were read.
    pub fn end(&self) -> Option<EndRecord> {
        self.end.clone()
    }

    /// An error at the block that was read last.
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
        // No version stores it compressed where that makes it larger.
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
            return Err("a block has another length than it says".to_owned());
        }
        let stored_bytes = (BLOCK_HEADER_BYTES + stored_bytes) as u64;
        self.next += stored_bytes;
        Ok(Block { section, records: number(2), stored_bytes, raw })
    }
}

/// Most bytes that one byte of zstd can stand for: a run of 128 KiB takes four.
const ZSTD_RATIO_MAX: usize = (128 << 10) / 4;

/// What a compressed block holds. Memory for it is taken as it comes, not as the block claims.
fn inflate(stored: &[u8], raw_bytes: usize) -> Result<Vec<u8>, String> {
    if raw_bytes > stored.len().saturating_mul(ZSTD_RATIO_MAX) {
        return Err("a block claims more than its bytes can stand for".to_owned());
    }
    let failed = |cause: io::Error| format!("zstd: {cause}");
    let mut decoder = zstd::Decoder::with_buffer(stored).map_err(failed)?;
    // A window larger than all there is would be memory for nothing.
    decoder.window_log_max(raw_bytes.max(1 << 10).next_power_of_two().ilog2()).map_err(failed)?;
    let mut raw = Vec::with_capacity(raw_bytes.min(SNAPSHOT_BLOCK_BYTES));
    decoder.take(raw_bytes as u64 + 1).read_to_end(&mut raw).map_err(failed)?;
    Ok(raw)
}

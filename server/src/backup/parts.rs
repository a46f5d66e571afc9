//! Parts: the content of a file in objects that are named by their checksums.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::backup::figures::BackupFigures;
use crate::backup::manifest::Part;
use crate::backup::store::{Listed, Store};
use crate::backup::{BackupError, OBJECT_BYTES_MAX};

/// Bytes of a part of a snapshot or of the journal. At least one is in memory at a time, and up to three with the buffers of the client.
const PART_BYTES: usize = 16 << 20;

/// Maximum pause after a part.
const REST_MAX: Duration = Duration::from_secs(1);

/// The folder of parts.
pub(super) const FOLDER: &str = "objects";

/// Returns the name of the object of a part.
pub(super) fn name(part: &Part) -> String {
    format!("{FOLDER}/{}", part.sha256)
}

/// Returns the description of these bytes.
pub(super) fn describe(bytes: &[u8]) -> Part {
    let mut sha256 = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(sha256, "{byte:02x}");
    }
    Part { sha256, bytes: bytes.len() as u64 }
}

/// Splits the content of a file that is in memory.
pub(super) fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(PART_BYTES)
}

/// Stores parts, each only if the store does not have it yet.
pub(super) struct Uploads<'a> {
    store: &'a Store,
    /// The parts that the store has, by checksum.
    stored: &'a mut HashSet<String>,
    figures: &'a BackupFigures,
    stopping: &'a AtomicBool,
    since: Instant,
}

impl<'a> Uploads<'a> {
    pub(super) fn new(
        store: &'a Store,
        stored: &'a mut HashSet<String>,
        figures: &'a BackupFigures,
        stopping: &'a AtomicBool,
    ) -> Self {
        Self { store, stored, figures, stopping, since: Instant::now() }
    }

    /// Stores a part, and pauses after it.
    pub(super) fn part(&mut self, bytes: Vec<u8>) -> Result<Part, BackupError> {
        let part = describe(&bytes);
        // Reading and compressing use the processor, so the pause leaves half of the time to requests.
        let worked = self.since.elapsed();
        if self.stopping.load(Ordering::Relaxed) {
            return Err(BackupError::Stopping);
        }
        thread::park_timeout(worked.min(REST_MAX));
        if !self.stored.contains(&part.sha256) {
            self.store.put(&name(&part), bytes)?;
            self.figures.sent_bytes.fetch_add(part.bytes, Ordering::Relaxed);
            self.stored.insert(part.sha256.clone());
        }
        self.since = Instant::now();
        Ok(part)
    }

    /// Stores all bytes that `content` returns. Errors name the file `place`.
    pub(super) fn file(&mut self, mut content: impl Read, place: &str) -> Result<Vec<Part>, BackupError> {
        let mut parts = Vec::new();
        loop {
            let mut bytes = Vec::with_capacity(PART_BYTES);
            let read = content.by_ref().take(PART_BYTES as u64).read_to_end(&mut bytes);
            if read.map_err(BackupError::file("read", place))? == 0 {
                return Ok(parts);
            }
            parts.push(self.part(bytes)?);
        }
    }
}

/// Returns the parts that the store has, by the names and sizes of its objects.
pub(crate) fn stored(store: &Store) -> Result<HashSet<Part>, BackupError> {
    let listed = store.list(FOLDER)?.into_iter();
    Ok(listed.map(|Listed { name, bytes, .. }| Part { sha256: name, bytes }).collect())
}

/// Reads a part, and compares it with its description.
pub(super) fn read(store: &Store, part: &Part) -> Result<Vec<u8>, BackupError> {
    let place = store.place(&name(part));
    let bytes =
        store.get(&name(part), OBJECT_BYTES_MAX)?.ok_or_else(|| BackupError::Missing { place: place.clone() })?;
    let found = describe(&bytes);
    if found == *part {
        return Ok(bytes);
    }
    let what = match found.bytes {
        length if length == part.bytes => format!("its checksum is {}", found.sha256),
        length => format!("it has {length} bytes instead of {}", part.bytes),
    };
    Err(BackupError::Damaged { place, what })
}

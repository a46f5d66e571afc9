//! Copies an archive as chunks of rows, and creates an archive from such chunks, for backups.
//!
//! A chunk: the length of its rows in 4 bytes, then the rows, compressed with zstd. A row: table (1 byte), length of the key (4), length of
//! the value (4), key, value, as in `layout`; integers of a key or value are big-endian, other numbers little-endian.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Database, Durability, Error, Key, ReadTransaction, ReadableDatabase, TableDefinition, Value, WriteTransaction,
};

use super::{RedbArchive, cannot, guarded, layout};
use crate::limits::{ARCHIVE_CACHE_BYTES, ARCHIVE_CHUNK_BYTES, ARCHIVE_CHUNK_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::storage::archive::{Archive, ArchiveError, ArchiveSnapshot};
use crate::storage::sequence::Sequence;

const POSTS: u8 = 1;
const OUTBOXES: u8 = 2;
const OUTBOX_COUNTS: u8 = 3;
const META: u8 = 4;

/// Bytes of a row before its key.
const ROW_HEADER_BYTES: usize = 9;

/// Maximum bytes of the rows of a chunk: the last row may exceed the limit.
const CHUNK_ROWS_BYTES_MAX: usize = ARCHIVE_CHUNK_BYTES_MAX + 2 * REQUEST_BYTES_MAX;

/// One in this many keys may end a chunk.
const KEYS_PER_END: u32 = 1 << 14;

/// The compression level of zstd, as in snapshots.
const ZSTD_LEVEL: i32 = 1;

/// One state of an archive. Its pages are not reused while the snapshot exists.
struct RedbSnapshot {
    transaction: ReadTransaction,
    path: PathBuf,
    /// The database is closed after the snapshot is dropped.
    _database: Arc<Database>,
}

impl fmt::Debug for RedbSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbSnapshot").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RedbArchive {
    pub(super) fn snapshot_now(&self) -> Result<Arc<dyn ArchiveSnapshot>, Error> {
        let database = self.database()?;
        let (transaction, path) = (database.begin_read()?, self.path.clone());
        Ok(Arc::new(RedbSnapshot { transaction, path, _database: database }))
    }
}

impl ArchiveSnapshot for RedbSnapshot {
    fn chunks(&self, each: &mut dyn FnMut(Vec<u8>) -> bool) -> Result<(), ArchiveError> {
        let mut copy = || {
            let mut chunks = Chunks { rows: Vec::new(), is_wanted: true, each };
            chunks.table(&self.transaction, POSTS, layout::POSTS)?;
            chunks.table(&self.transaction, OUTBOXES, layout::OUTBOXES)?;
            chunks.table(&self.transaction, OUTBOX_COUNTS, layout::OUTBOX_COUNTS)?;
            chunks.table(&self.transaction, META, layout::META)
        };
        guarded(&self.path, || copy().map_err(|error| cannot("copy", &self.path, error)))
    }
}

struct Chunks<'a> {
    rows: Vec<u8>,
    is_wanted: bool,
    each: &'a mut dyn FnMut(Vec<u8>) -> bool,
}

impl Chunks<'_> {
    /// Adds the rows of a table. A chunk never has rows of two tables: a change in one does not change chunks of the other.
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        from: &ReadTransaction,
        number: u8,
        table: TableDefinition<'static, K, V>,
    ) -> Result<(), Error> {
        for row in from.open_table(table)?.range::<K::SelfType<'_>>(..)? {
            let (key, value) = row?;
            let (key, value) = (key.value(), value.value());
            let (key, value) = (K::as_bytes(&key), V::as_bytes(&value));
            let (key, value) = (key.as_ref(), value.as_ref());
            self.rows.push(number);
            self.rows.extend((key.len() as u32).to_le_bytes());
            self.rows.extend((value.len() as u32).to_le_bytes());
            self.rows.extend_from_slice(key);
            self.rows.extend_from_slice(value);
            let is_end = self.rows.len() >= ARCHIVE_CHUNK_BYTES && crc32c::crc32c(key).is_multiple_of(KEYS_PER_END);
            if is_end || self.rows.len() >= ARCHIVE_CHUNK_BYTES_MAX {
                self.end()?;
            }
            if !self.is_wanted {
                return Ok(());
            }
        }
        if self.rows.is_empty() || !self.is_wanted { Ok(()) } else { self.end() }
    }

    fn end(&mut self) -> Result<(), Error> {
        let mut chunk = (self.rows.len() as u32).to_le_bytes().to_vec();
        chunk.extend(zstd::bulk::compress(&self.rows, ZSTD_LEVEL)?);
        self.rows.clear();
        self.is_wanted = (self.each)(chunk);
        Ok(())
    }
}

/// An archive that is being created from the chunks of another one.
#[derive(Debug)]
pub struct ArchiveFromChunks {
    archive: RedbArchive,
}

impl ArchiveFromChunks {
    /// Creates an empty archive in the file `path`.
    ///
    /// # Errors
    /// Fails if the files of an archive cannot be created.
    pub fn create(path: &Path) -> Result<Self, ArchiveError> {
        let archive = RedbArchive::open(path, ARCHIVE_CACHE_BYTES)?;
        // A full disk ends a restore with an error.
        archive.stop_waiting();
        Ok(Self { archive })
    }

    /// Adds the rows of a chunk.
    ///
    /// # Errors
    /// Fails if the bytes are not a chunk, or the archive cannot be written.
    pub fn add(&self, chunk: &[u8]) -> Result<(), ArchiveError> {
        let rows = decompress(chunk).map_err(|what| ArchiveError::Damaged { place: self.archive.place(), what })?;
        self.archive.run("write to", || {
            self.archive.file().catch_up()?;
            let transaction = self.archive.transact(|transaction| {
                transaction.set_durability(Durability::None)?;
                insert(transaction, &rows)
            })?;
            self.archive.commit(transaction)
        })
    }

    /// Makes the archive durable and closes it. Returns the event with which the copied archive was persisted.
    ///
    /// # Errors
    /// Fails if the archive cannot be written.
    pub fn finish(self) -> Result<Sequence, ArchiveError> {
        let through = self.archive.through()?;
        self.archive.persist(through)?;
        self.archive.close();
        Ok(through)
    }
}

fn decompress(chunk: &[u8]) -> Result<Vec<u8>, String> {
    let (length, compressed) = chunk.split_first_chunk().ok_or("a chunk is shorter than its header")?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > CHUNK_ROWS_BYTES_MAX {
        return Err(format!("a chunk has {length} bytes of rows, more than {CHUNK_ROWS_BYTES_MAX}"));
    }
    let rows = zstd::bulk::decompress(compressed, length).map_err(|cause| format!("a chunk is damaged: {cause}"))?;
    if rows.len() == length { Ok(rows) } else { Err(format!("a chunk has {} bytes of {length}", rows.len())) }
}

fn insert(to: &WriteTransaction, mut rows: &[u8]) -> Result<(), Error> {
    let mut posts = to.open_table(layout::POSTS)?;
    let mut outboxes = to.open_table(layout::OUTBOXES)?;
    let mut counts = to.open_table(layout::OUTBOX_COUNTS)?;
    let mut meta = to.open_table(layout::META)?;
    while !rows.is_empty() {
        let (table, key, value, rest) = split_row(rows).ok_or_else(|| layout::damaged("a row is cut".to_owned()))?;
        rows = rest;
        match table {
            POSTS => drop(posts.insert(u64::from_le_bytes(sized(key)?), value)?),
            OUTBOXES => drop(outboxes.insert(key, ())?),
            OUTBOX_COUNTS => drop(counts.insert(key, &sized(value)?)?),
            META => drop(meta.insert(key, u64::from_le_bytes(sized(value)?))?),
            other => return Err(layout::damaged(format!("there is no table {other}"))),
        }
    }
    Ok(())
}

type Row<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

/// Returns the table, the key and the value of the first row, and the rows after it.
fn split_row(rows: &[u8]) -> Option<Row<'_>> {
    let (header, rest) = rows.split_at_checked(ROW_HEADER_BYTES)?;
    let length = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?) as usize);
    let (key, rest) = rest.split_at_checked(length(1)?)?;
    let (value, rest) = rest.split_at_checked(length(5)?)?;
    Some((header[0], key, value, rest))
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Error> {
    bytes.try_into().map_err(|_| layout::damaged(format!("a row has {} bytes instead of {N}", bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::outbox::{Part, Route};
    use crate::feed::position::at;
    use crate::id::PostId;
    use crate::storage::archive::samples::{CACHE_BYTES, all, post, posts, source};
    use crate::storage::archive::{ArchivedRecord, Batch, LocalArchive as _};
    use crate::storage::identity::Identity;

    const IDENTITY: Identity = Identity([3; 16]);

    /// Posts of a few kilobytes that do not compress, so that some of them fill a chunk.
    fn batch(ids: std::ops::Range<u64>) -> Batch {
        let mut random = fastrand::Rng::with_seed(ids.start);
        let mut text = || (0..4_000).map(|_| random.alphanumeric()).collect::<String>();
        let placed = ids.clone().map(|id| (source(["ann", "bob"][id as usize % 2]), at(id as i64, id), Route::Push));
        Batch {
            placed: placed.collect(),
            posts: ids.map(|id| (PostId(id), post(&text()))).collect(),
            ..Batch::default()
        }
    }

    fn chunks(view: &dyn ArchiveSnapshot) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        view.chunks(&mut |chunk| {
            chunks.push(chunk);
            true
        })
        .unwrap();
        chunks
    }

    #[test]
    fn a_copy_has_the_state_at_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let archive = RedbArchive::open(&directory.path().join("from"), CACHE_BYTES).unwrap();
        archive.set_identity(IDENTITY).unwrap();
        archive.write(&batch(0..100)).unwrap();
        archive.write(&posts([(7, ArchivedRecord::Deleted)])).unwrap();
        archive.persist(Sequence(9)).unwrap();
        let view = archive.snapshot().unwrap().unwrap();
        archive.write(&posts([(8, ArchivedRecord::Deleted), (1_000, post("later"))])).unwrap();
        archive.persist(Sequence(10)).unwrap();
        let path = directory.path().join("to");
        let copy = ArchiveFromChunks::create(&path).unwrap();
        chunks(&*view).iter().for_each(|chunk| copy.add(chunk).unwrap());
        assert_eq!(copy.finish().unwrap(), Sequence(9));
        let copied = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        copied.check().unwrap();
        assert_eq!((copied.identity().unwrap(), copied.through().unwrap()), (Some(IDENTITY), Sequence(9)));
        assert_eq!(copied.post(PostId(7)).unwrap(), Some(ArchivedRecord::Deleted));
        assert!(matches!(copied.post(PostId(8)).unwrap(), Some(ArchivedRecord::Post(_))));
        assert_eq!(copied.post(PostId(1_000)).unwrap(), None);
        for source in ["ann", "bob"] {
            assert_eq!(all(&copied, source, Part::Whole), all(&archive, source, Part::Whole));
        }
        assert_eq!(copied.archived_counts().unwrap(), archive.archived_counts().unwrap());
    }

    #[test]
    fn chunks_of_old_posts_are_identical_in_the_next_copy() {
        let directory = tempfile::tempdir().unwrap();
        let archive = RedbArchive::open(&directory.path().join("archive"), 64 << 20).unwrap();
        let write =
            |from: u64, to: u64| (from..to).step_by(500).for_each(|id| archive.write(&batch(id..id + 500)).unwrap());
        write(0, 12_000);
        let before = chunks(&*archive.snapshot().unwrap().unwrap());
        write(12_000, 12_500);
        let after = chunks(&*archive.snapshot().unwrap().unwrap());
        let again = after.iter().filter(|chunk| before.contains(chunk)).map(Vec::len).sum::<usize>();
        let all: usize = after.iter().map(Vec::len).sum();
        assert!(before.len() > 3 && again > all / 3, "{again} of {all} bytes in {} chunks", after.len());
    }

    #[test]
    fn a_copy_ends_when_the_receiver_stops() {
        let directory = tempfile::tempdir().unwrap();
        let archive = RedbArchive::open(&directory.path().join("archive"), CACHE_BYTES).unwrap();
        archive.write(&batch(0..10)).unwrap();
        let mut taken = 0;
        archive
            .snapshot()
            .unwrap()
            .unwrap()
            .chunks(&mut |_| {
                taken += 1;
                false
            })
            .unwrap();
        assert_eq!(taken, 1);
    }

    #[test]
    fn invalid_chunks_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let copy = ArchiveFromChunks::create(&directory.path().join("archive")).unwrap();
        let compressed = |rows: &[u8]| {
            let mut chunk = (rows.len() as u32).to_le_bytes().to_vec();
            chunk.extend(zstd::bulk::compress(rows, 1).unwrap());
            chunk
        };
        for (chunk, expected) in [
            (vec![1, 2], "shorter than its header"),
            (vec![255; 40], "more than"),
            (vec![9, 0, 0, 0, 1, 2, 3], "a chunk is damaged"),
            (compressed(&[1; 8]), "a row is cut"),
            (compressed(&[9, 0, 0, 0, 0, 0, 0, 0, 0]), "there is no table 9"),
            (compressed(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 5]), "a row has 1 bytes instead of 8"),
        ] {
            let refused = copy.add(&chunk).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}

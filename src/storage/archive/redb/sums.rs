//! Checksums of an archive's pages, in a separate file. redb does not verify the pages that it reads, and a damaged page may look valid.
//!
//! Numbers are little-endian. The header is 64 bytes: `TIDESUMS`, format (2 bytes, 1), 2 zero bytes, CRC-32C of the database header at the
//! orderly close (4), or 0 while the archive is open, 44 zero bytes, CRC-32C of the 60 bytes before (4). From byte 4,096 on there are 4
//! bytes for each 4,096 bytes of the archive: the CRC-32C of the page number (8 bytes) and of the page, or 1 if that is 0. The value 0
//! means that there is no checksum, for example because the page was never written.
//!
//! The checksums are synced before the pages. After a power loss the checksums of uncommitted pages are unreliable, but these pages are not
//! read: redb never overwrites a page that belongs to the last commit.

use std::io;
use std::ops::Bound;
use std::panic;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

use super::buffered_file::BufferedFile;
use crate::storage::archive::ArchiveError;

/// Bytes per checksum: a page of redb, or a part of one.
const PAGE_BYTES: usize = 4_096;

const MAGIC: &[u8; 8] = b"TIDESUMS";
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 64;
/// Offset of the first checksum in the file, in bytes.
const START: u64 = 4_096;
const SUM_BYTES: u64 = 4;

/// Bytes of redb's header, and the offset of the byte that contains its flags.
const DATABASE_HEADER_BYTES: usize = 320;
const FLAGS_AT: usize = 9;
const IS_OPEN: u8 = 2;

/// The payload of a panic that the archive converts into an error: the content of a page differs from the written content.
#[derive(Clone, Copy, Debug)]
pub(super) struct DamagedPage {
    pub(super) offset_bytes: u64,
}

/// The file of a database that verifies the checksum of each page when it is read. Clones share the same file.
#[derive(Clone, Debug)]
pub(super) struct ChecksummedFile {
    file: BufferedFile,
    /// The file of checksums. None while the checksums of the pages are unknown.
    sums: Arc<RwLock<Option<BufferedFile>>>,
}

impl ChecksummedFile {
    /// Wraps a file without checksums. [`Self::compare_with`] or [`Self::checksum_all`] adds them.
    pub(super) fn new(file: BufferedFile) -> Self {
        Self { file, sums: Arc::default() }
    }

    /// Uses `sums` from now on: verifies pages that are read, and records the checksums of pages that are written. Fails if `sums` is not a
    /// valid checksum file, or if the database header differs from the one at the orderly close. Errors name the files `path` and
    /// `sums_path`.
    pub(super) fn compare_with(&self, sums: BufferedFile, path: &Path, sums_path: &Path) -> Result<(), ArchiveError> {
        let failed = |cause: io::Error| super::cannot("read", sums_path, cause.into());
        let damaged = |path: &Path, what: &str| ArchiveError::Damaged {
            place: path.display().to_string(),
            what: what.to_owned(),
        };
        let mut header = [0; HEADER_BYTES];
        if sums.len().map_err(failed)? >= HEADER_BYTES as u64 {
            sums.read(0, &mut header).map_err(failed)?;
        }
        let [header @ .., a, b, c, d] = &header;
        if !header.starts_with(MAGIC) || crc32c::crc32c(header).to_le_bytes() != [*a, *b, *c, *d] {
            return Err(damaged(sums_path, "its header is wrong"));
        }
        let format = u16::from_le_bytes([header[8], header[9]]);
        if format > FORMAT {
            let (found, known) = (format.into(), FORMAT.into());
            return Err(ArchiveError::NewerFormat { place: sums_path.display().to_string(), found, known });
        }
        let closed_with = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let (found, _) = self.database_header().map_err(|cause| super::cannot("read", path, cause.into()))?;
        if closed_with != 0 && found != closed_with {
            return Err(damaged(path, "its header differs from the one at the last close"));
        }
        let (end, found) = (end_of_sums(self.file.len().map_err(failed)?), sums.len().map_err(failed)?);
        if closed_with != 0 && found != end {
            return Err(damaged(path, "its length differs from the one at the last close"));
        }
        *self.sums.write() = Some(sums);
        Ok(())
    }

    /// Records that the archive is open: from now on its header may change at any time.
    pub(super) fn mark_open(&self) -> io::Result<()> {
        let sums = self.sums.read();
        let Some(sums) = &*sums else { return Ok(()) };
        let end = end_of_sums(self.file.len()?);
        // After a power loss one of the two files may have grown without the other. The added pages contain no data.
        if sums.len()? != end {
            sums.set_len(end)?;
        }
        sums.write(0, &header(0))?;
        sums.sync_data()
    }

    /// Writes the checksums of all current pages to the empty file `sums`, and uses it from now on.
    pub(super) fn checksum_all(&self, sums: BufferedFile) -> io::Result<()> {
        let bytes = self.file.len()?;
        sums.set_len(end_of_sums(bytes))?;
        sums.write(0, &header(0))?;
        let mut page = [0; PAGE_BYTES];
        for number in 1..bytes / PAGE_BYTES as u64 {
            self.file.read(number * PAGE_BYTES as u64, &mut page)?;
            // A page that was never written needs no checksum.
            if page.iter().any(|byte| *byte != 0) {
                sums.write(place_of(number), &sum(number, &page).to_le_bytes())?;
            }
        }
        *self.sums.write() = Some(sums);
        Ok(())
    }

    /// Sets whether a sync of either file waits for space on a full disk.
    pub(super) fn set_waits_for_space(&self, waits_for_space: bool) {
        self.each(|file| {
            file.set_waits_for_space(waits_for_space);
            Ok(())
        })
        .unwrap_or_default();
    }

    /// Returns true if a sync waits for space. False while the archive is opened or about to be closed.
    pub(super) fn waits_for_space(&self) -> bool {
        self.file.waits_for_space()
    }

    /// Writes the buffered data to both files.
    ///
    /// # Errors
    /// Fails if the disk is still full, or a write fails for another reason.
    pub(super) fn catch_up(&self) -> io::Result<()> {
        self.each(BufferedFile::catch_up)
    }

    fn each(&self, act: impl Fn(&BufferedFile) -> io::Result<()>) -> io::Result<()> {
        let sums = self.sums.read().clone();
        sums.iter().chain([&self.file]).try_for_each(act)
    }

    /// Returns the checksum of the database header, which is never 0, and true if the header states that the database is open.
    pub(super) fn database_header(&self) -> io::Result<(u32, bool)> {
        let mut header = [0; DATABASE_HEADER_BYTES];
        if self.file.len()? < DATABASE_HEADER_BYTES as u64 {
            return Ok((1, true));
        }
        self.file.read(0, &mut header)?;
        Ok((crc32c::crc32c(&header).max(1), header[FLAGS_AT] & IS_OPEN != 0))
    }

    /// Verifies the complete pages that were read at `offset`.
    fn compare(&self, offset: u64, read: &[u8]) -> io::Result<()> {
        let sums = self.sums.read();
        let Some(sums) = &*sums else { return Ok(()) };
        let first = offset / PAGE_BYTES as u64;
        if !offset.is_multiple_of(PAGE_BYTES as u64) || first == 0 {
            // Only the header is read at such offsets, and it is not a page.
            return Ok(());
        }
        let pages = read.chunks_exact(PAGE_BYTES);
        let mut expected = vec![0; pages.len() * SUM_BYTES as usize];
        sums.read(place_of(first), &mut expected)?;
        for ((page, expected), number) in pages.zip(expected.chunks_exact(SUM_BYTES as usize)).zip(first..) {
            if expected != [0; SUM_BYTES as usize] && expected != sum(number, page).to_le_bytes() {
                let offset_bytes = number * PAGE_BYTES as u64;
                // After an error redb would reject all operations until it is opened again. A panic ends only the current operation.
                panic::resume_unwind(Box::new(DamagedPage { offset_bytes }));
            }
        }
        Ok(())
    }

    fn record_sums(&self, offset: u64, written: &[u8]) -> io::Result<()> {
        let sums = self.sums.read();
        let Some(sums) = &*sums else { return Ok(()) };
        let page_bytes = PAGE_BYTES as u64;
        let (first, end) = (offset / page_bytes, (offset + written.len() as u64).div_ceil(page_bytes));
        if first == 0 {
            return Ok(());
        }
        let is_whole = offset.is_multiple_of(page_bytes) && written.len().is_multiple_of(PAGE_BYTES);
        let noted: Vec<u8> = match is_whole {
            true => {
                let pages = written.chunks_exact(PAGE_BYTES).zip(first..);
                pages.flat_map(|(page, number)| sum(number, page).to_le_bytes()).collect()
            }
            // There is no checksum for a page that is partly written. redb writes complete pages only.
            false => vec![0; (end - first) as usize * SUM_BYTES as usize],
        };
        sums.write(place_of(first), &noted)
    }
}

fn place_of(number: u64) -> u64 {
    START + number * SUM_BYTES
}

fn end_of_sums(archive_bytes: u64) -> u64 {
    place_of(archive_bytes / PAGE_BYTES as u64)
}

fn sum(number: u64, page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), page).max(1)
}

fn header(closed_with: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&closed_with.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    header
}

impl StorageBackend for ChecksummedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)?;
        self.compare(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let sums = self.sums.read().clone();
        // The checksum file grows before the archive, so that every page of the archive has a place for its checksum.
        if let Some(sums) = sums.filter(|_| len > 0) {
            sums.set_len(end_of_sums(len))?;
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.each(BufferedFile::sync_data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.record_sums(offset, data)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        let sums = self.sums.read().clone();
        // Buffered data is read as if it were in the file, but the next start would not find it. So it is written first.
        let is_written = sums.is_some() && self.catch_up().and_then(|()| self.file.sync_data()).is_ok();
        if let (Some(sums), true, Ok((closed_with, false))) = (&sums, is_written, self.database_header()) {
            // If this fails on a full disk, the checksum file still states that the archive is open, as after a crash. Then the next start
            // does not verify the header.
            let _ = sums.write(0, &header(closed_with)).and_then(|()| sums.sync_data());
        }
        sums.iter().chain([&self.file]).try_for_each(BufferedFile::close)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::outbox::{Part, Route};
    use crate::feed::position::at;
    use crate::id::PostId;
    use crate::storage::archive::redb::open;
    use crate::storage::archive::samples::{all, placed, post, posts};
    use crate::storage::archive::{Archive, Batch, LocalArchive as _, RedbArchive};
    use crate::storage::sequence::Sequence;
    use parking_lot::Mutex;

    /// A file in memory that records the synced state separately.
    #[derive(Clone, Debug, Default)]
    struct Disk(Arc<Mutex<State>>);

    #[derive(Clone, Debug, Default)]
    struct State {
        now: Vec<u8>,
        durable: Vec<u8>,
        unsynced: Vec<Change>,
    }

    #[derive(Clone, Debug)]
    enum Change {
        Length(usize),
        Write(usize, Vec<u8>),
    }

    impl Change {
        fn apply(&self, bytes: &mut Vec<u8>) {
            match self {
                Self::Length(length) => bytes.resize(*length, 0),
                Self::Write(at, data) => {
                    bytes.resize(bytes.len().max(at + data.len()), 0);
                    bytes[*at..at + data.len()].copy_from_slice(data);
                }
            }
        }
    }

    impl Disk {
        fn change(&self, change: Change) {
            let state = &mut *self.0.lock();
            change.apply(&mut state.now);
            state.unsynced.push(change);
        }

        /// Returns the state after a power loss: any of the unsynced changes may survive, some of them torn.
        fn after_power_loss(&self, random: &mut fastrand::Rng) -> Self {
            let State { durable: mut left, unsynced, .. } = self.0.lock().clone();
            for change in unsynced {
                match change {
                    _ if random.bool() => {}
                    Change::Write(at, data) if random.u8(0..4) == 0 => {
                        let torn = random.usize(0..=data.len() / 512) * 512;
                        Change::Write(at, data[..torn.min(data.len())].to_vec()).apply(&mut left);
                    }
                    change => change.apply(&mut left),
                }
            }
            Self(Arc::new(Mutex::new(State { now: left.clone(), durable: left, unsynced: Vec::new() })))
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.lock().now.len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let state = self.0.lock();
            let found = state.now.get(offset as usize..offset as usize + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.change(Change::Length(len as usize));
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            let state = &mut *self.0.lock();
            state.unsynced.clear();
            state.durable.clone_from(&state.now);
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.change(Change::Write(offset as usize, data.to_vec()));
            Ok(())
        }
    }

    /// Both files of an archive.
    #[derive(Clone, Default)]
    struct Files {
        archive: Disk,
        sums: Disk,
    }

    impl Files {
        fn open(&self) -> Result<RedbArchive, ArchiveError> {
            let (path, sums_path) = (Path::new("archive"), Path::new("sums"));
            super::super::guarded(path, || {
                let buffered = |disk: &Disk| BufferedFile::new(disk.clone(), "a file".to_owned());
                let file = ChecksummedFile::new(buffered(&self.archive));
                let is_new = self.sums.len().unwrap() == 0;
                if !is_new {
                    file.compare_with(buffered(&self.sums), path, sums_path)?;
                    file.mark_open().unwrap();
                }
                // The cache is small, so that many pages are written before they are committed, and read again.
                let database = open::open(file.clone(), path, 64 << 10)?;
                if is_new {
                    open::initialise(&database).unwrap();
                    file.checksum_all(buffered(&self.sums)).unwrap();
                }
                RedbArchive::of(database, file, path)
            })
        }
    }

    fn batch(nth: u64) -> Batch {
        let text = "x".repeat(700);
        Batch { posts: posts([(nth, post(&text))]).posts, ..placed([("ann", at(nth as i64, nth), Route::Push)]) }
    }

    #[test]
    fn persisted_pages_do_not_look_damaged_after_a_power_loss() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let files = Files::default();
            let archive = files.open().unwrap();
            archive.persist(Sequence(1)).unwrap();
            let mut persisted = 0;
            for nth in 0..random.u64(50..300) {
                archive.write(&batch(nth)).unwrap();
                if random.u8(0..40) == 0 {
                    archive.persist(Sequence(nth + 2)).unwrap();
                    persisted = nth + 1;
                }
            }
            for _ in 0..4 {
                let left = Files {
                    archive: files.archive.after_power_loss(&mut random),
                    sums: files.sums.after_power_loss(&mut random),
                };
                let found = left.open().unwrap_or_else(|cause| panic!("seed {seed}: {cause}"));
                let count = all(&found, "ann", Part::Whole).len() as u64;
                assert_eq!(count, persisted, "seed {seed}");
                assert!((0..count).all(|nth| found.post(PostId(nth)).unwrap().is_some()), "seed {seed}");
                // The archive accepts writes, and the new pages have correct checksums.
                (count..count + 20).for_each(|nth| found.write(&batch(nth)).unwrap());
                found.persist(Sequence(1_000)).unwrap();
                drop(found);
                let found = left.open().unwrap_or_else(|cause| panic!("seed {seed}, opened again: {cause}"));
                assert_eq!(all(&found, "ann", Part::Whole).len() as u64, count + 20, "seed {seed}");
                found.check().unwrap();
            }
        }
    }

    #[test]
    fn a_page_with_a_wrong_checksum_fails_only_reads_of_this_page() {
        let files = Files::default();
        let archive = files.open().unwrap();
        (0..300).for_each(|nth| archive.write(&batch(nth)).unwrap());
        archive.persist(Sequence(1)).unwrap();
        drop(archive);
        // The disk lost a write: the page is valid, but has its earlier content.
        let lost = files.archive.0.lock().now.windows(700).position(|bytes| bytes == [b'x'; 700]).unwrap();
        let page = lost / PAGE_BYTES * PAGE_BYTES;
        files.archive.0.lock().now[page..page + PAGE_BYTES].fill(0);
        let archive = files.open().unwrap();
        let unreadable = (0..300).filter(|nth| archive.post(PostId(*nth)).is_err()).count();
        assert!((1..20).contains(&unreadable), "{unreadable}");
        let error = (0..300).find_map(|nth| archive.post(PostId(nth)).err()).unwrap().to_string();
        assert!(error.contains(&format!("the page at byte {page} has a wrong checksum")), "{error}");
        archive.write(&batch(900)).unwrap();
        assert!(archive.post(PostId(900)).unwrap().is_some());
        // A write to the damaged page leaves nothing behind either: the archive continues, does not grow, and opens again.
        let bad = (0..300).find(|nth| archive.post(PostId(*nth)).is_err()).unwrap();
        archive.write(&batch(bad)).unwrap_err();
        let bytes = files.archive.0.lock().now.len();
        (0..500).for_each(|_| drop(archive.write(&batch(bad)).unwrap_err()));
        assert_eq!(files.archive.0.lock().now.len(), bytes);
        archive.write(&batch(901)).unwrap();
        archive.persist(Sequence(2)).unwrap();
        drop(archive);
        let archive = files.open().unwrap();
        assert!(archive.post(PostId(901)).unwrap().is_some() && archive.post(PostId(bad)).is_err());
    }
}

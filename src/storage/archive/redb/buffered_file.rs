//! A database file that tolerates a full disk.
//!
//! After a failed write redb rejects all operations until it is opened again, and loses the data that was not persisted. So a full disk
//! must not fail a write. A write must not wait either, since redb holds locks meanwhile that readers need. A sync may wait: redb holds no
//! such locks then, except in the sync right after the file grew.

use std::collections::VecDeque;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};
use tracing::{info, warn};

#[cfg(test)]
pub(super) use tests::{Disk, PLENTY, batch};

/// Interval at which a waiting sync retries the buffered writes.
const RETRY: Duration = Duration::from_millis(100);

/// The file of a database, with a buffer for writes that do not fit onto the disk. Clones share both.
#[derive(Clone, Debug)]
pub(super) struct BufferedFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Box<dyn StorageBackend>,
    name: String,
    /// The writes that failed on a full disk, and all later writes, in order: later writes may overlap earlier ones.
    unwritten: RwLock<VecDeque<(u64, Vec<u8>)>>,
    /// True if a sync waits for space. While an archive is opened or closed, the sync returns the error instead.
    waits_for_space: AtomicBool,
    /// True if the file grew, and nothing was written since.
    has_just_grown: AtomicBool,
}

impl BufferedFile {
    /// Wraps `file`; `name` is its name in log messages.
    pub(super) fn new(file: impl StorageBackend, name: String) -> Self {
        Self(Arc::new(Shared {
            file: Box::new(file),
            name,
            unwritten: RwLock::default(),
            waits_for_space: AtomicBool::new(false),
            has_just_grown: AtomicBool::new(false),
        }))
    }

    /// Sets whether a sync waits for space on a full disk.
    pub(super) fn set_waits_for_space(&self, waits_for_space: bool) {
        self.0.waits_for_space.store(waits_for_space, Ordering::Release);
    }

    /// Returns true if a sync waits for space. False while the archive is opened or about to be closed.
    pub(super) fn waits_for_space(&self) -> bool {
        self.0.waits_for_space.load(Ordering::Acquire)
    }

    /// Writes the buffered data to the file.
    ///
    /// # Errors
    /// Fails if the disk is still full, or the write fails for another reason.
    pub(super) fn catch_up(&self) -> io::Result<()> {
        if self.0.unwritten.read().is_empty() {
            return Ok(());
        }
        let mut unwritten = self.0.unwritten.write();
        while let Some((offset, data)) = unwritten.front() {
            self.0.file.write(*offset, data)?;
            unwritten.pop_front();
        }
        info!("space is available for {} again", self.0.name);
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        loop {
            match self.catch_up() {
                Err(error) if is_full(&error) && self.0.waits_for_space.load(Ordering::Acquire) => {
                    thread::park_timeout(RETRY);
                }
                outcome => return outcome,
            }
        }
    }

    fn buffer(&self, offset: u64, data: &[u8], why: &io::Error) {
        let mut unwritten = self.0.unwritten.write();
        if unwritten.is_empty() {
            warn!("no space on disk for {}: {why}; buffering the data until there is space", self.0.name);
        }
        unwritten.push_back((offset, data.to_vec()));
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Copies the part of `data`, written at offset `from`, that overlaps with `out`, which was read at offset `at`.
pub(super) fn overlay(from: u64, data: &[u8], at: u64, out: &mut [u8]) {
    let start = from.max(at);
    let end = (from + data.len() as u64).min(at + out.len() as u64);
    if start < end {
        let into = (start - at) as usize..(end - at) as usize;
        out[into].copy_from_slice(&data[(start - from) as usize..(end - from) as usize]);
    }
}

impl StorageBackend for BufferedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let unwritten = self.0.unwritten.read();
        self.0.file.read(offset, out)?;
        unwritten.iter().for_each(|(from, data)| overlay(*from, data, offset, out));
        Ok(())
    }

    /// Growing allocates no disk blocks yet on file systems with sparse files, so this never waits for space.
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.has_just_grown.store(true, Ordering::Release);
        self.0.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // redb holds a lock here that readers need, and only the length of the file has to be synced.
        if !self.0.has_just_grown.swap(false, Ordering::AcqRel) {
            self.wait()?;
        }
        // A failed sync is not retried: the retry may succeed although data is lost.
        self.0.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.has_just_grown.store(false, Ordering::Release);
        let unwritten = self.0.unwritten.read();
        let written = match unwritten.is_empty() {
            true => self.0.file.write(offset, data),
            false => Err(io::ErrorKind::StorageFull.into()),
        };
        drop(unwritten);
        match written {
            Err(error) if is_full(&error) => {
                self.buffer(offset, data, &error);
                Ok(())
            }
            written => written,
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::outbox::{Part, Route};
    use crate::feed::position::at;
    use crate::id::PostId;
    use crate::storage::archive::redb::open;
    use crate::storage::archive::redb::sums::ChecksummedFile;
    use crate::storage::archive::samples::{all, placed, post, posts};
    use crate::storage::archive::{Archive, Batch, LocalArchive as _, RedbArchive};
    use crate::storage::sequence::Sequence;
    use redb::backends::InMemoryBackend;
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, AtomicU64};
    use testkit::{OnDrop, eventually};

    /// A disk that has space for a given number of further writes.
    #[derive(Clone, Debug)]
    pub(in crate::storage::archive::redb) struct Disk {
        memory: Arc<InMemoryBackend>,
        writes_left: Arc<AtomicI64>,
        /// Writes refused since the limit was set.
        refused: Arc<AtomicU64>,
    }

    pub(in crate::storage::archive::redb) const PLENTY: i64 = i64::MAX / 2;

    impl Disk {
        pub(in crate::storage::archive::redb) fn new() -> Self {
            Self { memory: Arc::default(), writes_left: Arc::new(AtomicI64::new(PLENTY)), refused: Arc::default() }
        }

        pub(in crate::storage::archive::redb) fn set_writes_left(&self, writes_left: i64) {
            self.refused.store(0, Ordering::Release);
            self.writes_left.store(writes_left, Ordering::Release);
        }

        /// Returns true once a sync has tried again several times. The first refusal is of the write itself.
        fn is_waited_for(&self) -> bool {
            self.refused.load(Ordering::Acquire) > 4
        }

        fn open(&self) -> RedbArchive {
            let (path, file) = (Path::new("disk"), BufferedFile::new(self.clone(), "the archive".to_owned()));
            let file = ChecksummedFile::new(file);
            let database = open::open(file.clone(), path, 1 << 20).unwrap();
            open::initialise(&database).unwrap();
            RedbArchive::of(database, file, path).unwrap()
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.memory.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.memory.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.memory.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            if self.writes_left.fetch_sub(1, Ordering::AcqRel) > 0 {
                return self.memory.write(offset, data);
            }
            self.refused.fetch_add(1, Ordering::AcqRel);
            // A part of the data still fits, in whole sectors.
            self.memory.write(offset, &data[..data.len() / 2 / 512 * 512])?;
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    pub(in crate::storage::archive::redb) fn batch(nth: u64) -> Batch {
        let text = "x".repeat(3_000);
        Batch { posts: posts([(nth, post(&text))]).posts, ..placed([("ann", at(nth as i64, nth), Route::Push)]) }
    }

    fn check(archive: &RedbArchive, count: u64) {
        assert_eq!(all(archive, "ann", Part::Whole), (0..count).map(|nth| at(nth as i64, nth)).collect::<Vec<_>>());
        assert!((0..count).all(|nth| archive.post(PostId(nth)).unwrap().is_some()));
    }

    #[test]
    fn a_disk_full_at_any_write_loses_nothing_and_writes_resume_when_space_is_free() {
        for writes_left in (0..200).step_by(3) {
            let disk = Disk::new();
            let archive = disk.open();
            disk.set_writes_left(writes_left);
            let mut count = 0;
            // This is more than the cache of redb, so some pages are written and read again.
            while count < 1_000 && archive.write(&batch(count)).is_ok() {
                count += 1;
            }
            check(&archive, count);
            disk.set_writes_left(PLENTY);
            archive.write(&batch(count)).unwrap();
            archive.persist(Sequence(1)).unwrap();
            check(&archive, count + 1);
            drop(archive);
            check(&disk.open(), count + 1);
        }
    }

    #[test]
    fn persist_on_a_full_disk_waits_for_space_while_reads_continue() {
        for writes_left in 0..8 {
            let disk = Disk::new();
            let archive = disk.open();
            (0..20).for_each(|nth| archive.write(&batch(nth)).unwrap());
            disk.set_writes_left(writes_left);
            thread::scope(|threads| {
                let persisting = threads.spawn(|| archive.persist(Sequence(2)));
                // If an assertion fails, the thread would wait for ever, and the test with it.
                let room = OnDrop(|| disk.set_writes_left(PLENTY));
                eventually("a sync waits for room", || {
                    check(&archive, 20);
                    disk.is_waited_for()
                });
                assert!(archive.catch_up().unwrap_err().is_full(), "space for {writes_left} writes");
                assert!(!persisting.is_finished(), "space for {writes_left} writes");
                drop(room);
                persisting.join().unwrap().unwrap();
            });
            drop(archive);
            check(&disk.open(), 20);
        }
    }

    #[test]
    fn closing_does_not_wait_for_free_space() {
        let disk = Disk::new();
        let archive = disk.open();
        archive.write(&batch(0)).unwrap();
        archive.persist(Sequence(1)).unwrap();
        archive.write(&batch(1)).unwrap();
        disk.set_writes_left(0);
        thread::scope(|threads| {
            let persisting = threads.spawn(|| archive.persist(Sequence(2)));
            let stop = OnDrop(|| archive.stop_waiting());
            eventually("a sync waits for room", || disk.is_waited_for());
            drop(stop);
            {
                // If the sync waited on, the scope would wait, too.
                let _room = OnDrop(|| {
                    if !persisting.is_finished() {
                        disk.set_writes_left(PLENTY);
                    }
                });
                eventually("persisting ends", || persisting.is_finished());
            }
            persisting.join().unwrap().unwrap_err();
        });
        archive.close();
        disk.set_writes_left(PLENTY);
        check(&disk.open(), 1);
    }
}

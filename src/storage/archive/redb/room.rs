//! A file that outlasts a full disk.
//!
//! Responsible for:
//! - keeping in memory what the disk had no room for, until it has, and answering reads as if it were written;
//! - a sync that waits for that, unless the archive is being closed.
//!
//! Not responsible for:
//! - other failures, of which a database cannot know what they left on disk: those go through.
//!
//! After a write that failed redb refuses everything until it is opened again, and what was not persisted is lost then. So a
//! full disk must not fail a write. Nor may a write wait, since redb holds locks meanwhile that readers need. A sync may:
//! there it holds none, but for the one after the file grew.

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

/// How often it is tried whether there is room again.
const RETRY: Duration = Duration::from_millis(100);

/// The file of a database, and what does not fit onto the disk. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct RoomyFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Box<dyn StorageBackend>,
    name: String,
    /// Writes that found no room, and all that came after the first of them, in order: pages overlap over time.
    unwritten: RwLock<VecDeque<(u64, Vec<u8>)>>,
    /// Whether a sync waits for room. Whoever opens an archive or closes it is told instead.
    is_patient: AtomicBool,
    /// The file grew, and nothing was written since.
    has_just_grown: AtomicBool,
}

impl RoomyFile {
    /// Makes `file` outlast a full disk; messages call it `name`.
    pub(super) fn new(file: impl StorageBackend, name: String) -> Self {
        Self(Arc::new(Shared {
            file: Box::new(file),
            name,
            unwritten: RwLock::default(),
            is_patient: AtomicBool::new(false),
            has_just_grown: AtomicBool::new(false),
        }))
    }

    /// Says whether a sync shall wait for room.
    pub(super) fn set_patient(&self, is_patient: bool) {
        self.0.is_patient.store(is_patient, Ordering::Release);
    }

    /// Whether it shall, or the archive is about to be closed.
    pub(super) fn is_patient(&self) -> bool {
        self.0.is_patient.load(Ordering::Acquire)
    }

    /// Writes what found no room before.
    ///
    /// # Errors
    /// When there still is none.
    pub(super) fn catch_up(&self) -> io::Result<()> {
        if self.0.unwritten.read().is_empty() {
            return Ok(());
        }
        let mut unwritten = self.0.unwritten.write();
        while let Some((offset, data)) = unwritten.front() {
            self.0.file.write(*offset, data)?;
            unwritten.pop_front();
        }
        info!("there is room for {} again", self.0.name);
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        loop {
            match self.catch_up() {
                Err(error) if is_full(&error) && self.0.is_patient.load(Ordering::Acquire) => {
                    thread::park_timeout(RETRY);
                }
                outcome => return outcome,
            }
        }
    }

    fn keep(&self, offset: u64, data: &[u8], why: &io::Error) {
        let mut unwritten = self.0.unwritten.write();
        if unwritten.is_empty() {
            warn!("no room for {}: {why}; trying until there is", self.0.name);
        }
        unwritten.push_back((offset, data.to_vec()));
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Puts what of `data`, written at `from`, falls into `out`, read at `at`, there.
pub(super) fn overlay(from: u64, data: &[u8], at: u64, out: &mut [u8]) {
    let start = from.max(at);
    let end = (from + data.len() as u64).min(at + out.len() as u64);
    if start < end {
        let into = (start - at) as usize..(end - at) as usize;
        out[into].copy_from_slice(&data[(start - from) as usize..(end - from) as usize]);
    }
}

impl StorageBackend for RoomyFile {
    fn len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let unwritten = self.0.unwritten.read();
        self.0.file.read(offset, out)?;
        unwritten.iter().for_each(|(from, data)| overlay(*from, data, offset, out));
        Ok(())
    }

    /// Growing takes no room yet where files can have holes, so there is no waiting for it.
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.has_just_grown.store(true, Ordering::Release);
        self.0.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // redb holds a lock here that readers need, and only the file's length is to be synced.
        if !self.0.has_just_grown.swap(false, Ordering::AcqRel) {
            self.wait()?;
        }
        // Not tried twice: after a failed sync the next may succeed though data is lost.
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
                self.keep(offset, data, &error);
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
    use crate::storage::archive::contract::{all, placed, post, posts};
    use crate::storage::archive::redb::open;
    use crate::storage::archive::redb::sums::SummedFile;
    use crate::storage::archive::{Archive, Batch, RedbArchive};
    use crate::storage::journal::Sequence;
    use redb::backends::InMemoryBackend;
    use std::path::Path;
    use std::sync::atomic::AtomicI64;
    use std::time::Instant;

    /// A disk with room for so many more writes.
    #[derive(Clone, Debug)]
    pub(in crate::storage::archive::redb) struct Disk {
        memory: Arc<InMemoryBackend>,
        room: Arc<AtomicI64>,
    }

    pub(in crate::storage::archive::redb) const PLENTY: i64 = i64::MAX / 2;

    impl Disk {
        pub(in crate::storage::archive::redb) fn new() -> Self {
            Self { memory: Arc::default(), room: Arc::new(AtomicI64::new(PLENTY)) }
        }

        pub(in crate::storage::archive::redb) fn set_room(&self, room: i64) {
            self.room.store(room, Ordering::Release);
        }

        fn open(&self) -> RedbArchive {
            let (path, file) = (Path::new("disk"), RoomyFile::new(self.clone(), "the archive".to_owned()));
            let file = SummedFile::new(file);
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
            if self.room.fetch_sub(1, Ordering::AcqRel) > 0 {
                return self.memory.write(offset, data);
            }
            // A part of it still finds room, in whole sectors.
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
    fn a_disk_that_runs_full_at_any_write_loses_nothing_and_is_used_again_once_there_is_room() {
        for room in (0..200).step_by(3) {
            let disk = Disk::new();
            let archive = disk.open();
            disk.set_room(room);
            let mut count = 0;
            // More than redb caches: some of it must be written, and read again.
            while count < 1_000 && archive.write(&batch(count)).is_ok() {
                count += 1;
            }
            check(&archive, count);
            disk.set_room(PLENTY);
            archive.write(&batch(count)).unwrap();
            archive.persist(Sequence(1)).unwrap();
            check(&archive, count + 1);
            drop(archive);
            check(&disk.open(), count + 1);
        }
    }

    #[test]
    fn persisting_on_a_disk_that_runs_full_waits_for_room_while_others_read() {
        for room in 0..8 {
            let disk = Disk::new();
            let archive = disk.open();
            (0..20).for_each(|nth| archive.write(&batch(nth)).unwrap());
            disk.set_room(room);
            thread::scope(|threads| {
                let persisting = threads.spawn(|| archive.persist(Sequence(2)));
                let began = Instant::now();
                while began.elapsed() < RETRY {
                    check(&archive, 20);
                }
                assert!(!persisting.is_finished(), "room for {room} writes");
                assert!(archive.catch_up().unwrap_err().is_full());
                disk.set_room(PLENTY);
                persisting.join().unwrap().unwrap();
            });
            drop(archive);
            check(&disk.open(), 20);
        }
    }

    #[test]
    fn closing_does_not_wait_for_room() {
        let disk = Disk::new();
        let archive = disk.open();
        archive.write(&batch(0)).unwrap();
        archive.persist(Sequence(1)).unwrap();
        archive.write(&batch(1)).unwrap();
        disk.set_room(0);
        thread::scope(|threads| {
            let persisting = threads.spawn(|| archive.persist(Sequence(2)));
            thread::park_timeout(RETRY / 2);
            archive.stop_waiting();
            persisting.join().unwrap().unwrap_err();
        });
        archive.close();
        disk.set_room(PLENTY);
        check(&disk.open(), 1);
    }
}

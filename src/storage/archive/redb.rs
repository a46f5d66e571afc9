//! An archive in one file of the embedded database redb.
//!
//! Responsible for:
//! - the contract of [`Archive`] across crashes and restarts.

mod buffered_file;
mod copy;
#[cfg(test)]
mod full_disk;
mod layout;
mod open;
mod overlay;
mod read;
mod read_only;
mod rewrite;
#[cfg(test)]
mod steps;
mod sums;
mod tables;
mod write;

pub use copy::ArchiveFromChunks;
pub use read_only::{ReadOnlyArchive, Totals, identity_in, identity_without_lock};

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::Sender;
use parking_lot::RwLock;
use redb::{Database, Durability, Error, ReadTransaction, ReadableDatabase, WriteTransaction};

use crate::feed::outbox::OutboxQuery;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::archive::{
    Archive, ArchiveError, ArchiveSnapshot, ArchivedCounts, ArchivedRecord, Batch, EachOutbox, LargestIds,
    LocalArchive, Rewrite,
};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;
use sums::{ChecksummedFile, DamagedPage};
use tables::OpenTables;

/// An archive in a file. Everything written survives an orderly close. A crash preserves only persisted data.
#[derive(Debug)]
pub struct RedbArchive {
    /// The open database. None once the archive is closed.
    database: RwLock<Option<Arc<Database>>>,
    /// The file of the database. A rewrite replaces it.
    file: RwLock<ChecksummedFile>,
    tables: OpenTables,
    path: PathBuf,
    ids: LargestIds,
}

impl RedbArchive {
    /// Opens the archive in the file `path`, and creates the file if it does not exist; its directory must exist. `cache_bytes` is the
    /// maximum memory for pages of the file, including written pages.
    ///
    /// # Errors
    /// Fails if the file is not an archive, has a newer format, is damaged or in use, or if an operation of the system fails.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self, ArchiveError> {
        guarded(path, || {
            let (database, file) = open::database(path, cache_bytes)?;
            Self::of(database, file, path)
        })
    }

    fn of(database: Database, file: ChecksummedFile, path: &Path) -> Result<Self, ArchiveError> {
        let ids = open::check_tables(&database, path)?;
        file.set_waits_for_space(true);
        Ok(Self {
            database: RwLock::new(Some(Arc::new(database))),
            file: RwLock::new(file),
            tables: OpenTables::default(),
            path: path.to_owned(),
            ids,
        })
    }

    fn file(&self) -> ChecksummedFile {
        self.file.read().clone()
    }

    fn database(&self) -> Result<Arc<Database>, Error> {
        self.database.read().clone().ok_or(Error::DatabaseClosed)
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, Error>) -> Result<T, ArchiveError> {
        self.run("read", || read(&self.database()?.begin_read()?))
    }

    fn run<T>(&self, action: &'static str, run: impl FnOnce() -> Result<T, Error>) -> Result<T, ArchiveError> {
        guarded(&self.path, || run().map_err(|error| cannot(action, &self.path, error)))
    }

    /// Sends the summaries of all outboxes, in order of their source ids, until the receiver is dropped.
    fn list_outboxes(&self, found: &Sender<Vec<(SourceId, ArchivedCounts)>>) -> Result<(), ArchiveError> {
        let mut after = None;
        loop {
            let some = self.read(|snapshot| read::outboxes_after(snapshot, after.as_ref(), read::OUTBOXES_TOGETHER))?;
            let Some((last, _)) = some.last() else { return Ok(()) };
            after = Some(last.clone());
            if found.send(some).is_err() {
                return Ok(());
            }
        }
    }

    fn try_write(&self, batch: &Batch) -> Result<(), Error> {
        // While the disk is full no transaction is started: its pages would be buffered in memory.
        self.file().catch_up()?;
        let transaction = self.transact(|transaction| {
            transaction.set_durability(Durability::None)?;
            write::batch(transaction, batch)
        })?;
        // The ids are noted before the commit, which makes the posts visible.
        self.ids.note(batch.posts.iter().map(|(id, _)| *id));
        self.commit(transaction)
    }

    fn commit(&self, transaction: WriteTransaction) -> Result<(), Error> {
        let committed = transaction.commit();
        self.tables.close();
        Ok(committed?)
    }

    fn try_persist(&self, through: Sequence) -> Result<(), Error> {
        self.file().catch_up()?;
        // A transaction starts from the newest root, whatever the durability of its commit, and an immediate commit makes its root
        // durable. So this commit persists everything that `write` committed: the documentation of redb states that `Durability::None` is
        // not persisted "unless followed by a commit with `Durability::Immediate`".
        let transaction = self.transact(|transaction| {
            transaction.set_durability(Durability::Immediate)?;
            // Without this the first start after a crash reads the whole file to find the free pages. It also makes the commit two-phase,
            // so that the commit does not rely on checksums over bytes that users chose.
            transaction.set_quick_repair(true);
            transaction.open_table(layout::META)?.insert(layout::META_THROUGH, through.0)?;
            Ok(())
        })?;
        self.commit(transaction)
    }

    /// Runs `write` in a new transaction and returns the transaction uncommitted. If `write` panics because of a damaged page, the
    /// transaction is aborted before the panic continues: redb does not roll back a transaction that is dropped during a panic, so its
    /// pages would be lost and the archive would need a repair.
    fn transact(
        &self,
        write: impl FnOnce(&mut WriteTransaction) -> Result<(), Error>,
    ) -> Result<WriteTransaction, Error> {
        let mut transaction = self.database()?.begin_write()?;
        match panic::catch_unwind(AssertUnwindSafe(|| write(&mut transaction))) {
            Ok(written) => written.map(|()| transaction),
            Err(damaged) => {
                transaction.abort()?;
                panic::resume_unwind(damaged)
            }
        }
    }
}

impl Drop for RedbArchive {
    fn drop(&mut self) {
        self.close();
    }
}

impl Archive for RedbArchive {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.run("write to", || self.try_write(batch))
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.run("persist", || self.try_persist(through))
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        guarded(&self.path, || self.rewrite_file(rewrite))
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.read(|snapshot| {
            let through = snapshot.open_table(layout::META)?.get(layout::META_THROUGH)?;
            Ok(through.map_or(Sequence(0), |through| Sequence(through.value())))
        })
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.run("read", || {
            let found = self.tables.get(|| self.database())?.posts.get(id.0)?;
            found.map(|value| layout::kept(value.value())).transpose()
        })
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        let read = || read::positions(&self.tables.get(|| self.database())?.outboxes, source, query);
        let mut found = self.run("read", read)?;
        into.append(&mut found);
        Ok(())
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        self.read(|snapshot| {
            let posts = snapshot.open_table(layout::POSTS)?;
            let rows = posts.range(from.0..)?.take(max);
            rows.map(|row| Ok(PostId(row?.0.value()))).collect::<Result<_, _>>().map(Some)
        })
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        let (found, taken) = crossbeam_channel::bounded(read::OUTBOX_READS_AHEAD);
        // A start lists all outboxes, so one thread reads while the other one uses what it found.
        thread::scope(|scope| {
            let reading = scope.spawn(move || self.list_outboxes(&found));
            let used = taken.into_iter().flatten().try_for_each(|(source, counts)| each(source, counts));
            // If `each` failed, the receiver is dropped, and the reading ends.
            let read = reading.join().expect("errors of redb are returned");
            used.and(read)
        })
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.read(read::identity)
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        // At the start nothing waits for space on a full disk.
        self.file().set_waits_for_space(false);
        let written = self.run("write to", || {
            let mut transaction = self.database()?.begin_write()?;
            transaction.set_quick_repair(true);
            write::identity(&transaction, identity)?;
            self.commit(transaction)
        });
        self.file().set_waits_for_space(true);
        written
    }

    fn stop_waiting(&self) {
        self.file().set_waits_for_space(false);
    }

    fn close(&self) {
        self.stop_waiting();
        // Closing writes the data that was not persisted, so it can fail like any write.
        let database = self.database.write().take();
        self.tables.close();
        let close = || {
            drop(database);
            Ok(())
        };
        if let Err(error) = guarded(&self.path, close) {
            tracing::error!("{error}");
        }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.ids.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn local(&self) -> Option<&dyn LocalArchive> {
        Some(self)
    }
}

impl LocalArchive for RedbArchive {
    fn snapshot(&self) -> Result<Option<Arc<dyn ArchiveSnapshot>>, ArchiveError> {
        self.run("copy", || self.snapshot_now().map(Some))
    }

    fn check(&self) -> Result<(), ArchiveError> {
        self.read(read::check_counts)
    }

    fn catch_up(&self) -> Result<(), ArchiveError> {
        self.file().catch_up().map_err(|error| cannot("write to", &self.path, error.into()))
    }
}

/// Converts a panic into an error. redb does not verify the pages that it reads, and panics on an invalid page; a damaged file must not end
/// the threads that read from it. redb supports this: it rolls back the running operation.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T, ArchiveError>) -> Result<T, ArchiveError> {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
        let what = match cause.downcast_ref() {
            Some(DamagedPage { offset_bytes }) => format!("the page at byte {offset_bytes} has a wrong checksum"),
            None => "a page of it is invalid".to_owned(),
        };
        Err(ArchiveError::Damaged { place: path.display().to_string(), what })
    })
}

fn cannot(action: &'static str, path: &Path, error: Error) -> ArchiveError {
    let place = path.display().to_string();
    match error {
        Error::Corrupted(what) => ArchiveError::Damaged { place, what },
        error => ArchiveError::Failed { action, place, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::layout::OutboxKey;
    use super::*;
    use crate::feed::outbox::{Part, Route};
    use crate::feed::position::{Direction, PositionRange, at};
    use crate::storage::archive::samples::{CACHE_BYTES, all, placed, post, posts, source};
    use Route::{Pull, Push};
    use redb::WriteTransaction;
    use std::fs;

    struct Disk {
        _directory: tempfile::TempDir,
        path: PathBuf,
    }

    impl Disk {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self { path: directory.path().join("archive"), _directory: directory }
        }

        fn open(&self) -> RedbArchive {
            RedbArchive::open(&self.path, CACHE_BYTES).unwrap()
        }

        /// Returns the archive that a start finds if the process is killed now.
        fn killed(&self) -> (Self, RedbArchive) {
            let other = Self::new();
            fs::copy(&self.path, &other.path).unwrap();
            let archive = other.open();
            (other, archive)
        }
    }

    const NINE: OutboxQuery =
        OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Newer, max: 9 };

    fn batch(nth: u64) -> Batch {
        Batch { posts: posts([(nth, post("text"))]).posts, ..placed([("ann", at(nth as i64, nth), Push)]) }
    }

    /// Returns the number of batches from 0 on that are stored, and checks that each of them is complete.
    fn batches(archive: &RedbArchive) -> u64 {
        let entries = all(archive, "ann", Part::Pushed);
        let count = entries.len() as u64;
        assert_eq!(entries, (0..count).map(|nth| at(nth as i64, nth)).collect::<Vec<_>>());
        for nth in 0..=count {
            assert_eq!(archive.post(PostId(nth)).unwrap().is_some(), nth < count);
        }
        let counted =
            archive.archived_counts().unwrap().first().map_or(0, |(_, archived_counts)| archived_counts.pushed.posts);
        assert_eq!(counted, count);
        assert_eq!(archive.is_empty(), count == 0);
        count
    }

    #[test]
    fn persisted_batches_survive_a_crash() {
        let disk = Disk::new();
        let archive = disk.open();
        assert_eq!(batches(&disk.killed().1), 0);
        for nth in 0..5 {
            archive.write(&batch(2 * nth)).unwrap();
            archive.write(&batch(2 * nth + 1)).unwrap();
            archive.persist(Sequence(nth)).unwrap();
            let (again, killed) = disk.killed();
            assert_eq!((batches(&killed), killed.through().unwrap()), (2 * nth + 2, Sequence(nth)));
            // The next start finds the same data.
            drop(killed);
            assert_eq!(batches(&again.open()), 2 * nth + 2);
        }
    }

    #[test]
    fn a_crash_loses_only_writes_since_the_last_persist() {
        let disk = Disk::new();
        let archive = disk.open();
        (0..10).for_each(|nth| archive.write(&batch(nth)).unwrap());
        archive.persist(Sequence(10)).unwrap();
        (10..200).for_each(|nth| archive.write(&batch(nth)).unwrap());
        let (_disk, killed) = disk.killed();
        let kept = batches(&killed);
        assert!((10..=200).contains(&kept), "{kept}");
        // Later writes do not mix with the lost ones.
        killed.write(&batch(kept)).unwrap();
        assert_eq!(batches(&killed), kept + 1);
    }

    #[test]
    fn an_orderly_close_keeps_everything() {
        let disk = Disk::new();
        (0..3).for_each(|nth| disk.open().write(&batch(nth)).unwrap());
        assert_eq!(batches(&disk.open()), 3);
    }

    #[test]
    fn a_post_that_is_in_both_parts_is_copied_once() {
        let archive = Disk::new().open();
        raw(&archive, |transaction| {
            let mut key = OutboxKey::of(&source("ann"));
            let mut outboxes = transaction.open_table(layout::OUTBOXES).unwrap();
            for (position, route) in [(at(1, 0), Push), (at(2, 0), Push), (at(2, 0), Pull), (at(3, 0), Pull)] {
                outboxes.insert(key.at(route, position), ()).unwrap();
            }
        });
        assert_eq!(all(&archive, "ann", Part::Whole), [at(1, 0), at(2, 0), at(3, 0)]);
        for (direction, nearest) in [(Direction::Older, [at(3, 0), at(2, 0)]), (Direction::Newer, [at(1, 0), at(2, 0)])]
        {
            let mut into = Vec::new();
            archive.positions(&source("ann"), OutboxQuery { max: 2, direction, ..NINE }, &mut into).unwrap();
            assert_eq!(into, nearest);
        }
    }

    /// Writes to the database directly, like a damaged disk or a faulty program would.
    fn raw(archive: &RedbArchive, write: impl FnOnce(&WriteTransaction)) {
        let transaction = archive.database().unwrap().begin_write().unwrap();
        write(&transaction);
        archive.commit(transaction).unwrap();
    }

    fn damage<T: std::fmt::Debug>(result: Result<T, ArchiveError>) -> String {
        match result.unwrap_err() {
            ArchiveError::Damaged { what, .. } => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn invalid_rows_are_errors() {
        let neither = |bytes| format!("a post of {bytes} bytes is neither post nor tombstone");
        for (value, what) in [(vec![], neither(0)), (vec![2, 3, 4], neither(3)), (vec![0, 1], neither(2))] {
            let archive = Disk::new().open();
            raw(&archive, |to| drop(to.open_table(layout::POSTS).unwrap().insert(7, value.as_slice()).unwrap()));
            assert_eq!(damage(archive.post(PostId(7))), what);
        }
        for extra in [&[0][..], &[0; 200]] {
            let archive = Disk::new().open();
            archive.write(&batch(1)).unwrap();
            let key = [OutboxKey::of(&source("ann")).at(Push, at(1, 1)), extra].concat();
            raw(&archive, |to| drop(to.open_table(layout::OUTBOXES).unwrap().insert(key.as_slice(), ()).unwrap()));
            let mut into = vec![at(9, 9)];
            let copied = archive.positions(&source("ann"), NINE, &mut into);
            assert_eq!(damage(copied), format!("an outbox has a key of {} bytes", key.len()));
            assert_eq!(into, [at(9, 9)]);
        }
        let archived_counts = |at: usize, byte| {
            let mut bytes = [0; layout::COUNTS_BYTES];
            bytes[at] = byte;
            bytes
        };
        for (id, archived_counts, what) in [
            (&b"ann"[..], archived_counts(8, 2), "the counts of an outbox hold an invalid number"),
            (b"ann", archived_counts(7, 1), "the counts of an outbox hold an invalid number"),
            (b"\xff", archived_counts(8, 1), "the source id of the counts of an outbox is not text"),
            (
                b"",
                archived_counts(8, 1),
                "the counts of an outbox have a bad source id: an id must have at least 1 character",
            ),
        ] {
            let archive = Disk::new().open();
            raw(&archive, |to| {
                drop(to.open_table(layout::OUTBOX_COUNTS).unwrap().insert(id, &archived_counts).unwrap());
            });
            assert_eq!(damage(archive.archived_counts()), what);
        }
    }

    #[test]
    fn an_invalid_page_is_an_error() {
        const PAGE_BYTES: usize = 4096;
        let disk = Disk::new();
        let archive = disk.open();
        (0..100).for_each(|nth| archive.write(&batch(nth)).unwrap());
        drop(archive);
        let good = fs::read(&disk.path).unwrap();
        let errors_of = |page: usize| {
            let mut bytes = good.clone();
            bytes[page * PAGE_BYTES..][..PAGE_BYTES].fill(0xee);
            fs::write(&disk.path, &bytes).unwrap();
            let archive = RedbArchive::open(&disk.path, CACHE_BYTES)?;
            archive.post(PostId(50))?;
            archive.positions(&source("ann"), NINE, &mut Vec::new())?;
            archive.archived_counts()?;
            archive.write(&batch(100))?;
            archive.persist(Sequence(1))
        };
        let used = |page: &usize| good[page * PAGE_BYTES..][..PAGE_BYTES].iter().any(|byte| *byte != 0);
        let pages = (1..good.len() / PAGE_BYTES).filter(used);
        let damaged = pages.filter(|page| matches!(errors_of(*page), Err(ArchiveError::Damaged { .. })));
        assert!(damaged.count() >= 5);
    }

    #[test]
    fn a_failed_batch_has_no_effect() {
        let archive = Disk::new().open();
        let uncounted = OutboxKey::of(&source("bob")).at(Push, at(1, 1)).to_vec();
        raw(&archive, |to| drop(to.open_table(layout::OUTBOXES).unwrap().insert(uncounted.as_slice(), ()).unwrap()));
        let failing = Batch { removed: vec![(source("bob"), at(1, 1))], ..batch(0) };
        assert_eq!(damage(archive.write(&failing)), "bob has uncounted posts");
        assert_eq!(archive.post(PostId(0)).unwrap(), None);
        assert_eq!(all(&archive, "ann", Part::Whole), []);
        assert_eq!(all(&archive, "bob", Part::Whole), [at(1, 1)]);
        archive.write(&batch(0)).unwrap();
        assert_eq!(all(&archive, "ann", Part::Whole), [at(0, 0)]);
    }
}

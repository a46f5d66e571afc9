//! The tables that feeds are read from, opened once for all reads between two writes.
//!
//! Otherwise a page of a hundred old posts opens a table for each post, which takes a tenth of the user time of the page.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{Database, Error, ReadOnlyTable, ReadableDatabase};

use super::layout;

/// The tables as they were at one moment.
pub(super) struct Tables {
    pub(super) posts: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) outboxes: ReadOnlyTable<&'static [u8], ()>,
    /// A dropped database closes its file, even while tables are open. So each read owns the database that it reads from.
    _database: Arc<Database>,
}

/// The tables that are open, if there was a read since the last write.
#[derive(Default)]
pub(super) struct OpenTables {
    now: RwLock<Now>,
}

#[derive(Default)]
struct Now {
    tables: Option<Arc<Tables>>,
    /// The number of times that the tables were closed.
    closed: u64,
}

impl fmt::Debug for OpenTables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OpenTables").finish_non_exhaustive()
    }
}

impl OpenTables {
    /// Returns the tables of the database with everything that was written before the call.
    pub(super) fn get(&self, database: impl FnOnce() -> Result<Arc<Database>, Error>) -> Result<Arc<Tables>, Error> {
        let closed = {
            let now = self.now.read();
            if let Some(tables) = &now.tables {
                return Ok(Arc::clone(tables));
            }
            now.closed
        };
        let database = database()?;
        let snapshot = database.begin_read()?;
        let (posts, outboxes) = (snapshot.open_table(layout::POSTS)?, snapshot.open_table(layout::OUTBOXES)?);
        let tables = Arc::new(Tables { posts, outboxes, _database: database });
        let mut now = self.now.write();
        // If a write ended meanwhile, these tables may be older than it. This read may use them, but no later read.
        if now.closed == closed {
            now.tables = Some(Arc::clone(&tables));
        }
        Ok(tables)
    }

    /// Closes the tables once no read uses them. Call it at the end of every write, before the writer continues, and when the database is
    /// closed or replaced.
    pub(super) fn close(&self) {
        let closed = {
            let mut now = self.now.write();
            now.closed += 1;
            now.tables.take()
        };
        // Dropped without the lock: this may close a database, which writes to its file.
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use testkit::OnDrop;

    use super::OpenTables;
    use crate::id::PostId;
    use crate::storage::archive::samples::{CACHE_BYTES, post, posts};
    use crate::storage::archive::{Archive as _, ArchiveError, RedbArchive};

    #[test]
    fn tables_opened_during_a_commit_are_not_cached() {
        let directory = tempfile::tempdir().unwrap();
        let archive = RedbArchive::open(&directory.path().join("archive"), CACHE_BYTES).unwrap();
        let (tables, opened) = (OpenTables::default(), Cell::new(0));
        let open_and = |then: &dyn Fn()| {
            let database = || {
                opened.set(opened.get() + 1);
                then();
                archive.database()
            };
            tables.get(database).unwrap();
            opened.get()
        };
        assert_eq!(open_and(&|| tables.close()), 1);
        assert_eq!(open_and(&|| ()), 2);
        assert_eq!(open_and(&|| ()), 2, "they are kept");
        tables.close();
        assert_eq!(open_and(&|| ()), 3);
    }

    #[test]
    fn a_read_finds_earlier_writes_while_others_read_constantly() {
        let directory = tempfile::tempdir().unwrap();
        let archive = RedbArchive::open(&directory.path().join("archive"), CACHE_BYTES).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        archive.post(PostId(0)).unwrap();
                    }
                });
            }
            let _ends = OnDrop(|| is_over.store(true, Ordering::Relaxed));
            let is_found = |nth| {
                archive.write(&posts([(nth, post("text"))]))?;
                Ok::<_, ArchiveError>(archive.post(PostId(nth))?.is_some())
            };
            let missed = (0..2_000).map(is_found).find(|found| !matches!(found, Ok(true)));
            assert!(missed.is_none(), "{missed:?}");
        });
    }
}

//! Rewrites an archive: the retained data is copied to another file, which then replaces the first one.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use redb::backends::FileBackend;
use redb::{
    AccessGuard, Database, Durability, Error, Key, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend,
    Table, TableDefinition, Value,
};

use super::buffered_file::BufferedFile;
use super::layout::{self, OutboxKey};
use super::open::{leftover, leftover_sums, remove, remove_leftovers};
use super::sums::ChecksummedFile;
use super::{RedbArchive, cannot, guarded, open};
use crate::limits::{ARCHIVE_CACHE_BYTES, ERASURE_RESTS};
use crate::storage::archive::{ArchiveError, Fate, Rewrite};

/// Bytes of rows after which the copy of an archive that is being rewritten is passed to the operating system.
const REWRITE_CHUNK_BYTES: usize = 8 << 20;

impl RedbArchive {
    pub(super) fn rewrite_file(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        self.rewrite_file_to(rewrite, |file| file)
    }

    /// As [`Self::rewrite_file`], but writes to the backend that `wrap` returns for the new file. Tests use it to inject faults.
    pub(super) fn rewrite_file_to<B: StorageBackend>(
        &self,
        rewrite: &Rewrite<'_>,
        wrap: impl Fn(FileBackend) -> B,
    ) -> Result<(), ArchiveError> {
        let failed = |error| cannot("rewrite", &self.path, error);
        remove_leftovers(&self.path).map_err(|error| failed(error.into()))?;
        // A damaged page ends the copy by a panic.
        let copied = guarded(&self.path, || self.write_copy(rewrite, &wrap));
        let written = copied.and_then(|copy| self.replace_by(copy).map_err(failed));
        if written.is_err() {
            // If this fails, the next rewrite or start removes the files.
            let _ = remove_leftovers(&self.path);
        }
        written
    }

    fn write_copy<B: StorageBackend>(
        &self,
        rewrite: &Rewrite<'_>,
        wrap: impl Fn(FileBackend) -> B,
    ) -> Result<(Database, ChecksummedFile), ArchiveError> {
        let failed = |error| cannot("rewrite", &self.path, error);
        let file = wrap(open::file(&leftover(&self.path), &self.path)?);
        let file =
            ChecksummedFile::new(BufferedFile::new(file, format!("the rewritten archive {}", self.path.display())));
        // The file is still empty, so the checksums of all its pages are recorded when they are written.
        file.checksum_all(open::sums(&leftover_sums(&self.path), true)?).map_err(|error| failed(error.into()))?;
        let database = open::open(file.clone(), &self.path, ARCHIVE_CACHE_BYTES)?;
        let from = self.database().and_then(|from| Ok(from.begin_read()?)).map_err(failed)?;
        let copy = Copy { archive: self, from, to: &database, file: &file };
        copy.all(rewrite).map_err(failed)?;
        Ok((database, file))
    }

    fn replace_by(&self, (database, file): (Database, ChecksummedFile)) -> Result<(), Error> {
        let sums = self.path.with_extension("sums");
        drop(self.database()?);
        // The old checksums are removed first: an archive with the checksums of another one counts as damaged.
        remove(&sums)?;
        open::sync_directory(&self.path)?;
        let old = self.swap(database, file)?;
        self.tables.close();
        open::sync_directory(&self.path)?;
        std::fs::rename(leftover_sums(&self.path), sums)?;
        open::sync_directory(&self.path)?;
        // Closes the old file, unless others still read from it. It has no name any more, so nothing depends on it.
        let close = || {
            drop(old);
            Ok(())
        };
        if let Err(error) = guarded(&self.path, close) {
            tracing::warn!("could not close the replaced archive file: {error}");
        }
        Ok(())
    }

    /// Puts the new database in the place of the old one, which it returns.
    fn swap(&self, database: Database, file: ChecksummedFile) -> Result<Arc<Database>, Error> {
        let mut now = self.database.write();
        let Some(now) = &mut *now else { return Err(Error::DatabaseClosed) };
        std::fs::rename(leftover(&self.path), &self.path)?;
        let mut file_now = self.file.write();
        file.set_waits_for_space(file_now.waits_for_space());
        let old = std::mem::replace(&mut *file_now, file);
        // Its remaining writes are useless, so a sync must not wait for space on a full disk.
        old.set_waits_for_space(false);
        // Threads that read from the old database own it until the end of the read.
        Ok(std::mem::replace(now, Arc::new(database)))
    }
}

struct Copy<'a> {
    archive: &'a RedbArchive,
    from: ReadTransaction,
    to: &'a Database,
    file: &'a ChecksummedFile,
}

impl Copy<'_> {
    fn all(&self, Rewrite { without, fate, .. }: &Rewrite<'_>) -> Result<(), Error> {
        self.table(layout::POSTS, |to, id, value| {
            match value.value() {
                [layout::POST, post @ ..] => match fate(post) {
                    Fate::Keep => to.insert(id.value(), value.value())?,
                    Fate::Replace(other) => to.insert(id.value(), [&[layout::POST], &*other].concat().as_slice())?,
                    Fate::Tombstone => to.insert(id.value(), [layout::TOMBSTONE].as_slice())?,
                },
                tombstone => to.insert(id.value(), tombstone)?,
            };
            Ok(size_of::<u64>() + value.value().len())
        })?;
        let outboxes: HashSet<&[u8]> = without.iter().map(|source| source.as_str().as_bytes()).collect();
        let is_kept = |source: &[u8]| !outboxes.contains(source);
        self.table(layout::OUTBOXES, |to, key, _| {
            if OutboxKey::source_in(key.value()).is_none_or(is_kept) {
                to.insert(key.value(), ())?;
            }
            Ok(key.value().len())
        })?;
        self.table(layout::OUTBOX_COUNTS, |to, source, archived_counts| {
            if is_kept(source.value()) {
                to.insert(source.value(), archived_counts.value())?;
            }
            Ok(layout::COUNTS_BYTES)
        })?;
        self.table(layout::META, |to, name, value| {
            to.insert(name.value(), value.value())?;
            Ok(name.value().len())
        })?;
        // This commit makes all earlier commits durable, too.
        let mut transaction = self.to.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(true);
        Ok(transaction.commit()?)
    }

    /// Copies a table in chunks: `row` inserts the retained part of a row, and returns its size in bytes.
    fn table<K: Key + 'static, V: Value + 'static>(
        &self,
        table: TableDefinition<'static, K, V>,
        row: impl Fn(&mut Table<'_, K, V>, AccessGuard<'_, K>, AccessGuard<'_, V>) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let from = self.from.open_table(table)?;
        let mut rows = from.iter()?;
        loop {
            if !self.archive.file().waits_for_space() {
                return Err(Error::DatabaseClosed);
            }
            let began = Instant::now();
            let mut transaction = self.to.begin_write()?;
            transaction.set_durability(Durability::None)?;
            let mut to = transaction.open_table(table)?;
            let mut bytes = 0;
            while bytes < REWRITE_CHUNK_BYTES
                && let Some((key, value)) = rows.next().transpose()?
            {
                bytes += row(&mut to, key, value)?;
            }
            drop(to);
            transaction.commit()?;
            // On a full disk the writes are buffered in memory. This fails then, so that the buffer does not grow to the size of the
            // archive.
            self.file.catch_up()?;
            if bytes < REWRITE_CHUNK_BYTES {
                return Ok(());
            }
            // The pause lets syncs of the journal, on the same disk, proceed between the chunks.
            thread::park_timeout(began.elapsed() * ERASURE_RESTS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use testkit::OnDrop;

    use std::path::Path;

    use super::*;
    use crate::feed::outbox::{Part, Route};
    use crate::feed::position::at;
    use crate::id::PostId;
    use crate::storage::archive::samples::{CACHE_BYTES, all, placed, post, posts, source};
    use crate::storage::archive::{Archive, ArchivedRecord, Batch, LocalArchive as _};
    use crate::storage::identity::Identity;
    use crate::storage::sequence::Sequence;

    fn contains(file: &Path, text: &str) -> bool {
        std::fs::read(file).unwrap().windows(text.len()).any(|part| part == text.as_bytes())
    }

    fn filled(path: &Path) -> RedbArchive {
        let archive = RedbArchive::open(path, CACHE_BYTES).unwrap();
        for nth in 0..200u64 {
            let (who, text) = if nth % 2 == 0 { ("zoe-the-erased", "marker-of-zoe") } else { ("bob", "of bob") };
            let batch =
                Batch { posts: posts([(nth, post(text))]).posts, ..placed([(who, at(nth as i64, nth), Route::Push)]) };
            archive.write(&batch).unwrap();
        }
        archive.persist(Sequence(7)).unwrap();
        archive
    }

    fn fate(post: &[u8]) -> Fate {
        if post.ends_with(b"marker-of-zoe") { Fate::Tombstone } else { Fate::Keep }
    }

    #[test]
    fn a_rewrite_removes_every_byte_of_removed_data_and_keeps_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive.redb");
        let archive = filled(&path);
        assert!(contains(&path, "marker-of-zoe") && contains(&path, "zoe-the-erased"));
        let reading = archive.database().unwrap().begin_read().unwrap();
        archive.rewrite(&Rewrite { without: &[source("zoe-the-erased")], fate: &fate, as_of: Sequence(0) }).unwrap();
        drop(reading);
        let check = |archive: &RedbArchive, more: u64| {
            assert_eq!(all(archive, "zoe-the-erased", Part::Whole), []);
            assert_eq!(all(archive, "bob", Part::Whole).len() as u64, 100 + more);
            assert_eq!(archive.post(PostId(2)).unwrap(), Some(ArchivedRecord::Deleted));
            assert_eq!(archive.post(PostId(3)).unwrap(), Some(post("of bob")));
            assert_eq!(archive.archived_counts().unwrap().len(), 1);
        };
        check(&archive, 0);
        assert_eq!(archive.through().unwrap(), Sequence(7));
        // The archive accepts further writes, and they are durable.
        archive.write(&placed([("bob", at(900, 900), Route::Push)])).unwrap();
        archive.persist(Sequence(8)).unwrap();
        drop(archive);
        assert!(!contains(&path, "marker-of-zoe") && !contains(&path, "zoe-the-erased"));
        let again = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        check(&again, 1);
        assert_eq!(again.through().unwrap(), Sequence(8));
    }

    #[test]
    fn the_rewritten_file_has_new_checksums_and_the_same_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive.redb");
        let archive = filled(&path);
        archive.set_identity(Identity([7; 16])).unwrap();
        // These posts fill several pages.
        let more = (200..500).map(|nth| (PostId(nth), post(&"of bob ".repeat(10)))).collect();
        archive.write(&Batch { posts: more, ..Batch::default() }).unwrap();
        archive.rewrite(&Rewrite { without: &[source("zoe-the-erased")], fate: &fate, as_of: Sequence(0) }).unwrap();
        archive.write(&placed([("bob", at(900, 900), Route::Push)])).unwrap();
        assert!(!leftover(&path).exists() && !leftover_sums(&path).exists());
        drop(archive);
        let good = std::fs::read(&path).unwrap();
        let sums = std::fs::read(path.with_extension("sums")).unwrap();
        let opened = |bytes: &[u8]| {
            std::fs::write(path.with_extension("sums"), &sums).unwrap();
            std::fs::write(&path, bytes).unwrap();
            RedbArchive::open(&path, CACHE_BYTES)
        };
        let is_whole = |archive: &RedbArchive| {
            archive.check()?;
            assert_eq!(archive.identity()?, Some(Identity([7; 16])));
            (0..500).try_for_each(|id| archive.post(PostId(id)).map(drop))
        };
        let (mut refused_starts, mut refused_rewrites) = (0, 0);
        for page in
            (4_096..good.len()).step_by(4_096).filter(|at| good[*at..][..4_096].windows(6).any(|b| b == b"of bob"))
        {
            let mut damaged = good.clone();
            damaged[page + 4_000] ^= 1;
            match opened(&damaged) {
                Err(ArchiveError::Damaged { .. }) => refused_starts += 1,
                Err(other) => panic!("{other}"),
                Ok(archive) => {
                    let rewritten = archive.rewrite(&Rewrite { without: &[], fate: &fate, as_of: Sequence(0) });
                    // Damage in a free page has no effect.
                    let is_used = is_whole(&archive).is_err();
                    assert_eq!(matches!(rewritten, Err(ArchiveError::Damaged { .. })), is_used, "{rewritten:?}");
                    assert!(!leftover(&path).exists() && !leftover_sums(&path).exists());
                    refused_rewrites += u32::from(is_used);
                }
            }
        }
        assert!(refused_starts > 0 && refused_rewrites > 0, "{refused_starts}, {refused_rewrites}");
        is_whole(&opened(&good).unwrap()).unwrap();
    }

    #[test]
    fn a_crash_between_any_two_steps_of_a_rewrite_leaves_a_valid_archive() {
        let [directory, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let path = directory.path().join("archive.redb");
        let archive = filled(&path);
        let old = [std::fs::read(&path).unwrap(), std::fs::read(path.with_extension("sums")).unwrap()];
        archive.rewrite(&Rewrite { without: &[source("zoe-the-erased")], fate: &fate, as_of: Sequence(0) }).unwrap();
        let new = [std::fs::read(&path).unwrap(), std::fs::read(path.with_extension("sums")).unwrap()];
        let path = other.path().join("archive.redb");
        let (sums, unfinished) = (path.with_extension("sums"), [leftover(&path), leftover_sums(&path)]);
        for (step, left) in [
            vec![(&path, &old[0]), (&sums, &old[1]), (&unfinished[0], &new[0]), (&unfinished[1], &new[1])],
            vec![(&path, &old[0]), (&unfinished[0], &new[0]), (&unfinished[1], &new[1])],
            vec![(&path, &new[0]), (&unfinished[1], &new[1])],
            vec![(&path, &new[0]), (&sums, &new[1])],
        ]
        .into_iter()
        .enumerate()
        {
            [&path, &sums, &unfinished[0], &unfinished[1]].into_iter().for_each(|file| remove(file).unwrap());
            left.into_iter().for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
            let archive = RedbArchive::open(&path, CACHE_BYTES).unwrap();
            archive.check().unwrap();
            assert_eq!(all(&archive, "bob", Part::Whole).len(), 100, "step {step}");
            assert_eq!(all(&archive, "zoe-the-erased", Part::Whole).len(), if step < 2 { 100 } else { 0 });
            assert!(sums.exists() && !unfinished[0].exists() && !unfinished[1].exists(), "step {step}");
            drop(archive);
            RedbArchive::open(&path, CACHE_BYTES).unwrap();
        }
    }

    #[test]
    fn reads_continue_while_the_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive.redb");
        drop(filled(&path));
        for _ in 0..5 {
            // Without a cache, so that all reads are of the file.
            let archive = RedbArchive::open(&path, 0).unwrap();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for nth in [1, 3, 5] {
                    let (archive, is_over) = (&archive, &is_over);
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            assert!(archive.post(PostId(nth)).unwrap().is_some());
                            assert_eq!(all(archive, "bob", Part::Whole).len(), 100);
                        }
                    });
                }
                let _ends = OnDrop(|| is_over.store(true, Ordering::Relaxed));
                archive.rewrite(&Rewrite { without: &[], fate: &|_| Fate::Keep, as_of: Sequence(0) }).unwrap();
            });
        }
    }

    #[test]
    fn an_interrupted_copy_is_removed_and_the_archive_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive.redb");
        let archive = filled(&path);
        archive.stop_waiting();
        archive.rewrite(&Rewrite { without: &[source("bob")], fate: &fate, as_of: Sequence(0) }).unwrap_err();
        assert_eq!(all(&archive, "bob", Part::Whole).len(), 100);
        assert!(!leftover(&path).exists());
        drop(archive);
        std::fs::write(leftover(&path), "what a process left").unwrap();
        let again = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        assert_eq!((all(&again, "bob", Part::Whole).len(), leftover(&path).exists()), (100, false));
    }
}

//! Tests of an archive and its checksums on a disk that is full while they are closed or rewritten.
#![cfg(test)]

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::buffered_file::{BufferedFile, Disk, PLENTY, batch};
use super::sums::ChecksummedFile;
use super::{RedbArchive, guarded, open};
use crate::feed::outbox::Part;
use crate::id::PostId;
use crate::storage::archive::samples::{all, source};
use crate::storage::archive::{Archive, ArchiveError, Fate, LocalArchive as _, Rewrite};
use crate::storage::sequence::Sequence;

fn opened(archive: &Disk, sums: &Disk, is_new: bool) -> Result<RedbArchive, ArchiveError> {
    let (path, sums_path) = (Path::new("archive"), Path::new("sums"));
    guarded(path, || {
        let buffered = |disk: &Disk| BufferedFile::new(disk.clone(), "a file".to_owned());
        let file = ChecksummedFile::new(buffered(archive));
        if !is_new {
            file.compare_with(buffered(sums), path, sums_path)?;
            file.mark_open().unwrap();
        }
        let database = open::open(file.clone(), path, 1 << 20)?;
        if is_new {
            open::initialise(&database).unwrap();
            file.checksum_all(buffered(sums)).unwrap();
        }
        RedbArchive::of(database, file, path)
    })
}

#[test]
fn an_archive_closed_on_a_full_disk_reopens_with_persisted_data() {
    let mut refused = Vec::new();
    let mut kept = 0;
    for (full, writes_left) in [[true, false], [false, true], [true, true]]
        .into_iter()
        .flat_map(|full| (0..80).map(move |writes_left| (full, writes_left)))
    {
        let disks = [Disk::new(), Disk::new()];
        let archive = opened(&disks[0], &disks[1], true).unwrap();
        (0..20).for_each(|nth| archive.write(&batch(nth)).unwrap());
        archive.persist(Sequence(1)).unwrap();
        (20..24).for_each(|nth| archive.write(&batch(nth)).unwrap());
        disks.iter().zip(full).filter(|(_, is_full)| *is_full).for_each(|(disk, _)| disk.set_writes_left(writes_left));
        archive.close();
        drop(archive);
        disks.iter().for_each(|disk| disk.set_writes_left(PLENTY));
        match opened(&disks[0], &disks[1], false) {
            Err(cause) => refused.push(format!("{full:?} at write {writes_left}: {cause}")),
            Ok(archive) => {
                let found = all(&archive, "ann", Part::Whole).len() as u64;
                assert!(found >= 20, "{full:?} at write {writes_left}: {found}");
                (0..found).for_each(|nth| assert!(archive.post(PostId(nth)).unwrap().is_some()));
                archive.check().unwrap();
                kept += u64::from(found == 24);
            }
        }
    }
    assert!(refused.is_empty(), "{} of 240 refused: {}", refused.len(), refused.join("\n"));
    assert!(kept > 0, "if there is space in the end, all data is stored");
}

/// A file on a disk that has space for a given number of further writes.
#[derive(Debug)]
struct Limited(FileBackend, Arc<AtomicI64>);

impl StorageBackend for Limited {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.1.fetch_sub(1, Ordering::AcqRel) > 0 {
            true => self.0.write(offset, data),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

#[test]
fn a_disk_full_at_any_write_of_a_rewrite_leaves_the_archive_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive.redb");
    let archive = RedbArchive::open(&path, 1 << 20).unwrap();
    let count = 300;
    (0..count).for_each(|nth| archive.write(&batch(nth)).unwrap());
    archive.persist(Sequence(7)).unwrap();
    let rewrite = Rewrite { without: &[source("zoe")], fate: &|_| Fate::Keep, as_of: Sequence(0) };
    let is_whole = |archive: &RedbArchive| {
        archive.check().unwrap();
        assert_eq!(all(archive, "ann", Part::Whole).len() as u64, count);
        (0..count).for_each(|nth| assert!(archive.post(PostId(nth)).unwrap().is_some()));
        assert_eq!(archive.through().unwrap(), Sequence(7));
    };
    let names = || {
        let mut names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let mut refused = 0;
    for writes_left in (0..).map(|nth| nth * (1 + nth / 8)) {
        let left = Arc::new(AtomicI64::new(writes_left));
        match archive.rewrite_file_to(&rewrite, |file| Limited(file, Arc::clone(&left))) {
            Ok(()) => {
                left.store(PLENTY, Ordering::Release);
                break;
            }
            Err(cause) => assert!(cause.is_full(), "{writes_left}: {cause:?}"),
        }
        refused += 1;
        assert!(refused < 200, "a disk with space for {writes_left} writes is not enough");
        is_whole(&archive);
        assert_eq!(names(), ["archive.redb", "archive.sums"], "{writes_left}");
    }
    assert!(refused > 5, "{refused}");
    is_whole(&archive);
    // The rewritten file has replaced the first one, and accepts writes.
    archive.write(&batch(count)).unwrap();
    drop(archive);
    let archive = RedbArchive::open(&path, 1 << 20).unwrap();
    assert_eq!(all(&archive, "ann", Part::Whole).len() as u64, count + 1);
    archive.check().unwrap();
}

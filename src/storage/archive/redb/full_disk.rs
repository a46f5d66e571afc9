//! An archive and its checksums on a disk that is full when they are closed.

use std::path::Path;

use super::room::RoomyFile;
use super::room::tests::{Disk, PLENTY, batch};
use super::sums::SummedFile;
use super::{RedbArchive, guarded, open};
use crate::feed::outbox::Part;
use crate::storage::archive::contract::all;
use crate::storage::archive::{Archive, ArchiveError};
use crate::storage::journal::Sequence;

fn opened(archive: &Disk, sums: &Disk, is_new: bool) -> Result<RedbArchive, ArchiveError> {
    let (path, sums_path) = (Path::new("archive"), Path::new("sums"));
    guarded(path, || {
        let roomy = |disk: &Disk| RoomyFile::new(disk.clone(), "a file".to_owned());
        let file = SummedFile::new(roomy(archive));
        if !is_new {
            file.compare_with(roomy(sums), path, sums_path)?;
            file.begin().unwrap();
        }
        let database = open::open(file.clone(), path, 1 << 20)?;
        if is_new {
            open::initialise(&database).unwrap();
            file.seal(roomy(sums)).unwrap();
        }
        RedbArchive::of(database, file, path)
    })
}

#[test]
fn an_archive_that_is_closed_on_a_full_disk_opens_again_with_what_was_persisted() {
    let mut refused = Vec::new();
    let mut kept = 0;
    for (full, room) in
        [[true, false], [false, true], [true, true]].into_iter().flat_map(|full| (0..80).map(move |room| (full, room)))
    {
        let disks = [Disk::new(), Disk::new()];
        let archive = opened(&disks[0], &disks[1], true).unwrap();
        (0..20).for_each(|nth| archive.write(&batch(nth)).unwrap());
        archive.persist(Sequence(1)).unwrap();
        (20..24).for_each(|nth| archive.write(&batch(nth)).unwrap());
        disks.iter().zip(full).filter(|(_, is_full)| *is_full).for_each(|(disk, _)| disk.set_room(room));
        archive.close();
        drop(archive);
        disks.iter().for_each(|disk| disk.set_room(PLENTY));
        match opened(&disks[0], &disks[1], false) {
            Err(cause) => refused.push(format!("{full:?} at write {room}: {cause}")),
            Ok(archive) => {
                let found = all(&archive, "ann", Part::Whole).len() as u64;
                assert!(found >= 20, "{full:?} at write {room}: {found}");
                (0..found).for_each(|nth| assert!(archive.post(crate::id::PostId(nth)).unwrap().is_some()));
                archive.check().unwrap();
                kept += u64::from(found == 24);
            }
        }
    }
    assert!(refused.is_empty(), "{} of 240 refused: {}", refused.len(), refused.join("\n"));
    assert!(kept > 0, "where there is room in the end all is kept");
}

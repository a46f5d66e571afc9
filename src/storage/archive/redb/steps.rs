//! Tests of a process that ends between any two steps of adding checksums to an archive, or of setting an archive aside: the next start
//! must find all data.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use redb::{Database, WriteTransaction};

use super::{RedbArchive, identity_in, layout};
use crate::feed::outbox::{Part, Route};
use crate::feed::position::at;
use crate::id::PostId;
use crate::storage::archive::samples::{CACHE_BYTES, all, placed, post, posts};
use crate::storage::archive::{Archive, ArchiveError, Batch, LocalArchive as _};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

const POSTS: u64 = 60;
const IDENTITY: Identity = Identity([5; 16]);

/// Files of an archive. Each name is the part of the file name after `archive`.
type Left<'a> = Vec<(&'a str, &'a [u8])>;

struct Place(tempfile::TempDir);

impl Place {
    /// Creates a directory with these files.
    fn with(left: &Left<'_>) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        left.iter().for_each(|(name, bytes)| fs::write(place.file(name), bytes).unwrap());
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("archive{name}"))
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.file(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let files = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn open(&self) -> Result<RedbArchive, ArchiveError> {
        RedbArchive::open(&self.file(".redb"), CACHE_BYTES)
    }

    fn open_or_set_aside(&self) -> Result<RedbArchive, ArchiveError> {
        RedbArchive::open_or_set_aside(&self.file(".redb"), CACHE_BYTES)
    }
}

fn fill(archive: &RedbArchive) {
    archive.set_identity(IDENTITY).unwrap();
    for nth in 0..POSTS {
        let batch = Batch {
            posts: posts([(nth, post(&"text".repeat(50)))]).posts,
            ..placed([("ann", at(nth as i64, nth), Route::Push)])
        };
        archive.write(&batch).unwrap();
    }
    archive.persist(Sequence(POSTS)).unwrap();
}

fn check(archive: &RedbArchive, what: &str) {
    archive.check().unwrap();
    assert_eq!((archive.identity().unwrap(), archive.through().unwrap()), (Some(IDENTITY), Sequence(POSTS)), "{what}");
    assert_eq!(all(archive, "ann", Part::Whole).len() as u64, POSTS, "{what}");
    (0..POSTS).for_each(|id| assert!(archive.post(PostId(id)).unwrap().is_some(), "{what}"));
}

/// Changes the archive to the format of the previous version, and returns its bytes.
fn format_1(path: &Path) -> Vec<u8> {
    let database = Database::create(path).unwrap();
    let change = |change: &dyn Fn(&WriteTransaction)| {
        let transaction = database.begin_write().unwrap();
        change(&transaction);
        transaction.commit().unwrap();
    };
    change(&|to| drop(to.open_table(layout::META).unwrap().insert(layout::META_FORMAT, 1).unwrap()));
    drop(database);
    fs::read(path).unwrap()
}

#[test]
fn a_crash_between_any_two_steps_of_an_upgrade_leaves_a_valid_archive() {
    let made = Place::with(&vec![]);
    let archive = made.open().unwrap();
    fill(&archive);
    drop(archive);
    fs::remove_file(made.file(".sums")).unwrap();
    let old = format_1(&made.file(".redb"));
    // One state is of a kill while the whole archive was read, the other of a kill right after the upgrade.
    let opened = Database::create(made.file(".redb")).unwrap();
    let old_killed = made.read(".redb");
    drop(opened);
    let upgraded = made.open().unwrap();
    let (new_killed, new_killed_sums) = (made.read(".redb"), made.read(".sums"));
    check(&upgraded, "upgraded");
    drop(upgraded);
    let (new, new_sums) = (made.read(".redb"), made.read(".sums"));
    let part = &new_killed_sums[..new_killed_sums.len() / 2];
    let steps: Vec<Left<'_>> = vec![
        vec![(".redb", &old)],
        vec![(".redb", &old_killed)],
        vec![(".redb", &old_killed), (".sums.unfinished", &[])],
        vec![(".redb", &old_killed), (".sums.unfinished", part)],
        vec![(".redb", &old_killed), (".sums.unfinished", &new_killed_sums)],
        vec![(".redb", &new_killed), (".sums.unfinished", &new_killed_sums)],
        vec![(".redb", &new_killed), (".sums", &new_killed_sums)],
        vec![(".redb", &new), (".sums", &new_sums)],
    ];
    for (step, left) in steps.iter().enumerate() {
        for repair in [false, true] {
            let place = Place::with(left);
            let what = format!("step {step}, repair {repair}");
            assert_eq!(identity_in(&place.file(".redb")).unwrap(), Some(IDENTITY), "{what}");
            for _ in 0..2 {
                let archive = if repair { place.open_or_set_aside() } else { place.open() };
                check(&archive.unwrap(), &what);
                assert_eq!(place.names(), ["archive.redb", "archive.sums"], "{what}");
            }
        }
    }
}

#[test]
fn a_crash_while_checksums_are_set_aside_leaves_a_valid_archive() {
    let made = Place::with(&vec![]);
    let archive = made.open().unwrap();
    fill(&archive);
    let (killed, killed_sums) = (made.read(".redb"), made.read(".sums"));
    drop(archive);
    let (whole, mut sums) = (made.read(".redb"), made.read(".sums"));
    sums[9] ^= 1;
    let steps: Vec<(bool, Left<'_>)> = vec![
        (true, vec![(".redb", &whole), (".sums", &sums)]),
        (false, vec![(".redb", &whole), (".sums.damaged", &sums)]),
        (false, vec![(".redb", &killed), (".sums.damaged", &sums), (".sums.unfinished", &killed_sums[..5_000])]),
        (false, vec![(".redb", &killed), (".sums.damaged", &sums), (".sums.unfinished", &killed_sums)]),
        (false, vec![(".redb", &killed), (".sums.damaged", &sums), (".sums", &killed_sums)]),
        // The checksums are set aside for the second time.
        (true, vec![(".redb", &whole), (".sums", &sums), (".sums.damaged", &sums)]),
    ];
    for (step, (needs_repair, left)) in steps.iter().enumerate() {
        let place = Place::with(left);
        let what = format!("step {step}");
        if *needs_repair {
            assert!(matches!(place.open(), Err(ArchiveError::Damaged { .. })), "{what}");
        }
        let archive = if *needs_repair { place.open_or_set_aside() } else { place.open() };
        check(&archive.unwrap(), &what);
        check(&place.open().unwrap(), &what);
        assert_eq!(place.read(".sums.damaged"), sums, "{what}");
        assert!(!place.file(".redb.damaged").exists(), "{what}");
    }
}

#[test]
fn a_crash_while_an_archive_is_set_aside_keeps_it_and_the_start_can_be_repeated() {
    let made = Place::with(&vec![]);
    let archive = made.open().unwrap();
    fill(&archive);
    drop(archive);
    let (mut cut, sums) = (made.read(".redb"), made.read(".sums"));
    cut.truncate(cut.len() / 2);
    let fresh = Place::with(&vec![]);
    drop(fresh.open().unwrap());
    let (fresh, fresh_sums) = (fresh.read(".redb"), fresh.read(".sums"));
    let aside: Left<'_> = vec![(".redb.damaged", &cut), (".sums.damaged", &sums)];
    let steps: Vec<Left<'_>> = vec![
        vec![(".redb", &cut), (".sums", &sums)],
        vec![(".redb", &cut), (".sums.damaged", &sums)],
        aside.clone(),
        [aside.clone(), vec![(".unfinished", &fresh[..4_096])]].concat(),
        [aside.clone(), vec![(".unfinished", &fresh), (".sums.unfinished", &fresh_sums)]].concat(),
        [aside.clone(), vec![(".unfinished", &fresh), (".sums", &fresh_sums)]].concat(),
        [aside, vec![(".redb", &fresh), (".sums", &fresh_sums)]].concat(),
    ];
    for (step, left) in steps.iter().enumerate() {
        let place = Place::with(left);
        let archive = place.open_or_set_aside().unwrap_or_else(|cause| panic!("step {step}: {cause}"));
        assert!(archive.is_empty(), "step {step}");
        fill(&archive);
        drop(archive);
        check(&place.open().unwrap(), "written anew");
        assert_eq!(
            (place.read(".redb.damaged"), place.read(".sums.damaged")),
            (cut.clone(), sums.clone()),
            "step {step}"
        );
        let names = ["archive.redb", "archive.redb.damaged", "archive.sums", "archive.sums.damaged"];
        assert_eq!(place.names(), names, "step {step}");
    }
}

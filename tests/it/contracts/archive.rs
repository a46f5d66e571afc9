//! Archives in memory and in redb, and a faulty one whose faults do not happen.

use proptest::prelude::*;
use testkit::archive_contract;
use testkit::contract::archive::model::{agrees_with_the_model, steps};
use testkit::contract::archive::{Tested, a_rewrite_is_older_than_the_rest_of_a_batch_that_it_overtakes};
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::samples::CACHE_BYTES;
use tidewire::storage::archive::{Archive, MemoryArchive, RedbArchive};

type Case<'a> = &'a dyn Fn(&dyn Archive) -> Tested;

fn in_memory(case: Case<'_>) -> Tested {
    case(&MemoryArchive::default())
}

fn in_redb(case: Case<'_>) -> Tested {
    let directory = tempfile::tempdir().unwrap();
    case(&RedbArchive::open(&directory.path().join("archive"), CACHE_BYTES)?)
}

fn without_faults(case: Case<'_>) -> Tested {
    case(&FaultyArchive::new(MemoryArchive::default(), Plan::default()))
}

mod memory {
    super::archive_contract! { super::in_memory }
}

mod redb {
    super::archive_contract! { super::in_redb }
}

mod faulty {
    super::archive_contract! { super::without_faults }
}

#[test]
fn a_rewrite_of_an_ordered_memory_archive_is_older_than_the_rest_of_an_overtaken_batch() -> Tested {
    a_rewrite_is_older_than_the_rest_of_a_batch_that_it_overtakes(&MemoryArchive::ordered())
}

proptest! {
    #[test]
    fn the_memory_archive_agrees_with_the_model(steps in steps()) {
        agrees_with_the_model(Option::<MemoryArchive>::unwrap_or_default, steps)?;
    }

    #[test]
    fn a_faulty_archive_without_faults_agrees_with_the_model(steps in steps()) {
        let open = |open: Option<FaultyArchive<MemoryArchive>>| open.unwrap_or_default();
        agrees_with_the_model(open, steps)?;
    }
}

proptest! {
    // Each case opens several files and waits for syncs, so there are fewer cases.
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_redb_archive_agrees_with_the_model(steps in steps()) {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("archive");
        let open = |open: Option<RedbArchive>| {
            drop(open);
            RedbArchive::open(&file, CACHE_BYTES).expect("the archive can be opened again")
        };
        agrees_with_the_model(open, steps)?;
    }
}

//! Tests of erasures in a real Cassandra, and of names that are used again afterwards.
#![cfg(test)]

use std::sync::Arc;
use std::time::Instant;

use super::CassandraArchive;
use super::layout::BucketLimits;
use super::tests::{buckets, created, entries, removal, times};
use super::write::REPLACED_FOR;
use testkit::cassandra::Nodes;
use tidewire::feed::outbox::Part;
use tidewire::storage::archive::samples::{all, next_batch, source};
use tidewire::storage::archive::{Archive, Fate, RemoteArchive as _, Rewrite};

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_rewrite_fails_while_the_engine_stops_and_can_be_repeated() {
    let nodes = Nodes::shared();
    let options = created(nodes);
    let archive = CassandraArchive::open(&options).unwrap();
    archive.write(&entries(0..5)).unwrap();
    let erasure = Rewrite { without: &[source("ann")], fate: &|_| Fate::Keep, as_of: next_batch().as_of };
    archive.stop_waiting();
    let ended = archive.rewrite(&erasure).unwrap_err();
    assert!(ended.is_unavailable(), "{ended}");
    drop(archive);
    let archive = CassandraArchive::open(&options).unwrap();
    assert_eq!(times(&all(&archive, "ann", Part::Whole)), (0..5).collect::<Vec<_>>());
    archive.rewrite(&erasure).unwrap();
    archive.invalidate_all();
    assert!(all(&archive, "ann", Part::Whole).is_empty());
}

/// Deletes the replaced buckets, as if their delay had passed.
fn delete_replaced(archive: &CassandraArchive) {
    let (core, writing) = (Arc::clone(&archive.core), Arc::clone(&archive.writing));
    let later = Instant::now() + REPLACED_FOR;
    let deleted = archive
        .calls
        .run_scan("persist", async move { writing.lock().await.writer.delete_replaced(&core, later).await });
    deleted.expect("the nodes run");
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn entries_of_a_reused_name_survive_the_deletion_of_replaced_buckets() {
    let nodes = Nodes::shared();
    for is_erased in [false, true] {
        let limits = BucketLimits { rows: 100, removed: 2 };
        let archive = CassandraArchive::open_with(&created(nodes), limits).unwrap();
        archive.write(&entries(0..5)).unwrap();
        // The first bucket of the outbox is replaced. It is deleted later.
        archive.write(&removal(0..2)).unwrap();
        assert_eq!(buckets(&archive), 2);
        let mut expected: Vec<i64> = (2..5).collect();
        if is_erased {
            let erasure = Rewrite { without: &[source("ann")], fate: &|_| Fate::Keep, as_of: next_batch().as_of };
            archive.rewrite(&erasure).unwrap();
            archive.write(&entries(10..13)).unwrap();
            expected = (10..13).collect();
        }
        delete_replaced(&archive);
        archive.invalidate_all();
        assert_eq!((times(&all(&archive, "ann", Part::Whole)), buckets(&archive)), (expected, 1), "{is_erased}");
    }
}

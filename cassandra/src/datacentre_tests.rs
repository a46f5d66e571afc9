//! Tests of a real Cassandra in two datacentres.
#![cfg(test)]

use std::time::{Duration, Instant};

use scylla::client::session_builder::SessionBuilder;

use super::tests::options;
use super::{CassandraArchive, CassandraOptions, Replication};
use testkit::cassandra::Nodes;
use tidewire::feed::outbox::{Part, Route};
use tidewire::feed::position::at;
use tidewire::id::PostId;
use tidewire::storage::archive::samples::{all, placed, post, posts};
use tidewire::storage::archive::{Archive, ArchiveError, RemoteArchive as _};
use tidewire::storage::sequence::Sequence;

/// Maximum time for the nodes to discover each other, and for writes in one datacentre to reach the other.
const PATIENCE: Duration = Duration::from_secs(60);

fn refused<T: std::fmt::Debug>(done: Result<T, ArchiveError>) -> String {
    match done.unwrap_err() {
        ArchiveError::Datacentre { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

/// Waits until each node lists this number of nodes with their datacentres. A node accepts connections before it has discovered the
/// others.
fn wait_until_known(nodes: &Nodes, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listed_by = |address: &str| {
        let session = runtime.block_on(SessionBuilder::new().known_node(address).build()).unwrap();
        session.get_cluster_state().get_nodes_info().iter().filter(|node| node.datacenter.is_some()).count()
    };
    let began = Instant::now();
    for address in nodes.addresses.split(',') {
        while listed_by(address) < count {
            assert!(began.elapsed() < PATIENCE, "{address} has not heard of the others");
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
        }
    }
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn with_two_datacentres_one_must_be_named_and_the_other_receives_no_requests() {
    let nodes = Nodes::in_datacentres(2);
    wait_until_known(&nodes, 2);
    let without = options(&nodes, &Nodes::keyspace());
    let of = |name: &str| CassandraOptions { datacentre: Some(name.to_owned()), ..without.clone() };
    let everywhere = Replication::Everywhere(1);
    let several = "has replicas in several datacentres (dc1, dc2)";
    let why = refused(CassandraArchive::create(&without, &everywhere));
    assert!(why.starts_with(several) && why.contains("--archive-datacenter"), "{why}");
    CassandraArchive::create(&of("dc1"), &everywhere).unwrap();
    assert!(refused(CassandraArchive::open(&without)).starts_with(several));
    assert!(refused(CassandraArchive::open(&of("dc3"))).contains("no replicas in the datacentre dc3"));
    assert!(refused(CassandraArchive::open(&of("dc2"))).contains("is used through the datacentre dc1"));
    let archive = CassandraArchive::open(&of("dc1")).unwrap();
    // The second node is in dc2.
    nodes.kill(2);
    archive.write(&posts([(1, post("text"))])).unwrap();
    archive.write(&placed([("ann", at(1, 1), Route::Push)])).unwrap();
    archive.persist(Sequence(3)).unwrap();
    archive.invalidate_all();
    assert_eq!(archive.post(PostId(1)).unwrap(), Some(post("text")));
    assert_eq!((all(&archive, "ann", Part::Whole), archive.through().unwrap()), (vec![at(1, 1)], Sequence(3)));
    nodes.restore();
    nodes.kill(1);
    let unavailable = archive.post(PostId(2)).unwrap_err();
    assert!(unavailable.is_temporary(), "{unavailable:?}");
    nodes.restore();
    // `create` moves the archive to the other datacentre.
    CassandraArchive::create(&of("dc2"), &everywhere).unwrap();
    CassandraArchive::open(&of("dc2")).unwrap();
    // The nodes of the first datacentre see that later.
    let began = Instant::now();
    while let Ok(still) = CassandraArchive::open(&of("dc1")) {
        assert!(began.elapsed() < PATIENCE, "{still:?}");
    }
    assert!(refused(CassandraArchive::open(&of("dc1"))).contains("is used through the datacentre dc2"));
    // A keyspace in one datacentre needs no name, although the nodes of both are known.
    let one = options(&nodes, &Nodes::keyspace());
    CassandraArchive::create(&one, &Replication::Datacentres(vec![("dc2".to_owned(), 1)])).unwrap();
    let archive = CassandraArchive::open(&one).unwrap();
    nodes.kill(1);
    for id in 0..20 {
        archive.write(&posts([(id, post("text"))])).unwrap();
        assert_eq!(archive.post(PostId(id)).unwrap(), Some(post("text")));
    }
}

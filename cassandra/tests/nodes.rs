//! Nodes that share an archive in a real Cassandra, with tiny buckets.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::Arc;

use testkit::cassandra::Nodes;
use testkit::contract::shared_archive::Store;
use tidewire::storage::archive::samples::CACHE_BYTES;
use tidewire_cassandra::{CassandraArchive, CassandraOptions, READ_TIME_MAX, Replication};

/// Creates a keyspace.
fn in_cassandra() -> Store {
    let nodes = Nodes::shared();
    let url = nodes.url(&Nodes::keyspace()).parse().unwrap();
    let (cache_bytes, read_time_max) = (CACHE_BYTES, READ_TIME_MAX);
    let options = CassandraOptions {
        url,
        login: None,
        tls: None,
        datacentre: None,
        cache_bytes,
        ttl_seconds: None,
        read_time_max,
    };
    CassandraArchive::create(&options, &Replication::Everywhere(nodes.copies())).unwrap();
    let open = move || Arc::new(CassandraArchive::open_with_tiny_buckets(&options).unwrap()) as _;
    Store { open: Box::new(open), is_in_memory: false }
}

testkit::shared_archive_contract! { #[ignore = "needs Cassandra: scripts/cassandra.sh install"] in_cassandra }

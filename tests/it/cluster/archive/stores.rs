//! The stores that the nodes of a test share: one in memory, or a real Cassandra with tiny buckets.

use std::sync::Arc;

#[cfg(feature = "cassandra")]
use tidewire::storage::archive::cassandra::{CassandraArchive, CassandraOptions, READ_TIME_MAX, Replication};
use tidewire::storage::archive::{Archive, MemoryArchive};

pub enum Store {
    Memory(Arc<MemoryArchive>),
    #[cfg(feature = "cassandra")]
    Cassandra(Box<CassandraOptions>),
}

impl Store {
    pub fn memory() -> Self {
        Self::Memory(Arc::new(MemoryArchive::ordered()))
    }

    /// Creates a keyspace.
    #[cfg(feature = "cassandra")]
    pub fn cassandra() -> Self {
        use testkit::cassandra::Nodes;
        let nodes = Nodes::shared();
        let url = nodes.url(&Nodes::keyspace()).parse().unwrap();
        let (cache_bytes, read_time_max) = (1 << 20, READ_TIME_MAX);
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
        Self::Cassandra(Box::new(options))
    }

    /// Returns the way of one more machine to it.
    pub fn open(&self) -> Arc<dyn Archive> {
        match self {
            Self::Memory(archive) => Arc::clone(archive) as _,
            #[cfg(feature = "cassandra")]
            Self::Cassandra(options) => Arc::new(CassandraArchive::open_with_tiny_buckets(options).unwrap()),
        }
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }
}

/// Runs each of these beside a store in memory, and beside a real Cassandra.
macro_rules! on_each_store {
    ($($test:ident,)*) => {
        mod in_memory {
            $(#[tokio::test] async fn $test() { super::$test(super::Store::memory()).await })*
        }

        #[cfg(feature = "cassandra")]
        mod in_cassandra {
            $(#[tokio::test] #[ignore = "needs Cassandra: scripts/cassandra.sh install"]
            async fn $test() { super::$test(super::Store::cassandra()).await })*
        }
    };
}
pub(super) use on_each_store;

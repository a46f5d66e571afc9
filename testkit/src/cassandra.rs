//! Cassandra nodes for tests and benchmarks.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::test_servers::Servers;

/// Running nodes.
pub struct Nodes(Servers);

impl Deref for Nodes {
    type Target = Servers;

    fn deref(&self) -> &Servers {
        &self.0
    }
}

impl Nodes {
    /// Starts nodes.
    pub fn start(count: usize) -> Self {
        Self::with(count, &[])
    }

    /// Starts one node that demands TLS, and the user `cassandra` with the password `cassandra`. `certificate` is a file with a key and its
    /// certificate for 127.0.0.1.
    pub fn secure(certificate: &Path) -> Self {
        Self::with(1, &[("CASSANDRA_SECURE", certificate.to_str().unwrap())])
    }

    /// Starts nodes in as many datacentres: the first is in dc1, the second in dc2, and so on.
    pub fn in_datacentres(count: usize) -> Self {
        Self::with(count, &[("CASSANDRA_DATACENTRES", &count.to_string())])
    }

    /// Returns the nodes that all tests of this process share. Each test uses a keyspace of its own, and none disturbs the nodes. Their
    /// number is `TIDEWIRE_CASSANDRA_NODES` [default: 1].
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Nodes> = OnceLock::new();
        let count = || std::env::var("TIDEWIRE_CASSANDRA_NODES").map_or(1, |count| count.parse().unwrap());
        SHARED.get_or_init(|| Self::start(count()))
    }

    /// Each node has an address of its own, so all have the same ports: one for clients, and one for the other nodes.
    fn with(count: usize, variables: &[(&str, &str)]) -> Self {
        Self(Servers::start("cassandra", count, 2, variables))
    }

    /// Returns the name of a keyspace that no other test of this process uses.
    pub fn keyspace() -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("tidewire_{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the URL of a keyspace, as the server accepts it.
    pub fn url(&self, keyspace: &str) -> String {
        format!("cassandra://{}/{keyspace}", self.addresses)
    }

    /// Returns the number of copies of each row: one on every node.
    pub fn copies(&self) -> u8 {
        self.count().try_into().unwrap()
    }

    /// Returns the directory of a node's data.
    pub fn data(&self, node: usize) -> PathBuf {
        self.directory().join(node.to_string()).join("data")
    }
}

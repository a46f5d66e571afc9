//! Kafka brokers for tests and benchmarks.

use std::ops::Deref;
use std::path::Path;

use crate::test_servers::Servers;

/// Running brokers.
pub struct Brokers(Servers);

impl Deref for Brokers {
    type Target = Servers;

    fn deref(&self) -> &Servers {
        &self.0
    }
}

impl Brokers {
    /// Starts brokers.
    pub fn start(count: usize) -> Self {
        Self::with_doors(count, 0)
    }

    /// As [`Self::start`], with this many doors per broker: further addresses, for connections through proxies.
    pub fn with_doors(count: usize, doors: usize) -> Self {
        Self(Servers::start("kafka", count, 2 * count * (1 + doors), &[("KAFKA_DOORS", &doors.to_string())]))
    }

    /// Starts one broker with an address for TLS and passwords. `certificate` is a file with a key and its certificate for `localhost`.
    pub fn secure(certificate: &Path) -> Self {
        let mut servers = Servers::start("kafka", 1, 3, &[("KAFKA_SECURE", certificate.to_str().unwrap())]);
        servers.addresses = format!("localhost:{}", servers.port() + 2);
        Self(servers)
    }

    /// Returns the ports of a door, counted from 1: for each broker, the port of the proxy and the port of the broker.
    pub fn door(&self, door: usize) -> Vec<(u16, u16)> {
        let listens = |broker: usize| self.port() + 2 * (self.count() * door + broker) as u16;
        (0..self.count()).map(|broker| (listens(broker) + 1, listens(broker))).collect()
    }
}

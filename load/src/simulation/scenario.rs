//! The input of a simulation: nodes, their machines, costs, and the work of clients.

use std::time::Duration;

use tidewire::cluster::membership::{PARTITIONS, rank};
use tidewire::cluster::record::NodeName;

use crate::simulation::costs::Costs;

/// The input of a simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The number of nodes. The first is the sequencer.
    pub nodes: usize,
    /// The machines of the nodes.
    pub machines: Machines,
    /// The costs of each step.
    pub costs: Costs,
    /// The work of clients.
    pub work: Work,
    /// The time before the measurement, in which queues fill.
    pub warm_up: Duration,
    /// The duration of the measurement. A closed loop lasts until all its requests are done.
    pub lasts: Duration,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The machines on which nodes, the broker and clients run.
#[derive(Clone, Copy, Debug)]
pub enum Machines {
    /// A machine for each node. The broker and the clients have enough of their own.
    Own {
        /// The number of cores of each.
        cores: usize,
        /// The bytes that its network sends per second.
        network_bytes: f64,
    },
    /// One machine for all of them.
    Shared {
        /// The number of its cores.
        cores: usize,
    },
}

/// The work of clients.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The times at which clients send requests.
    pub clients: Clients,
    /// Average number of active followers of a post's author, on all nodes.
    pub followers: f64,
    /// The share of these followers with a live connection.
    pub online_share: f64,
    /// The spread of the number of followers between authors: the standard deviation of its logarithm, which is normally distributed.
    pub spread: f64,
    /// True if clients send requests to the user's owner. Otherwise they send them to any node.
    pub asks_owner: bool,
}

/// The times at which clients send requests.
#[derive(Clone, Copy, Debug)]
pub enum Clients {
    /// At random times that do not depend on answers (a Poisson process).
    Open {
        /// Posts per second.
        posts: f64,
        /// Pages per second.
        pages: f64,
    },
    /// Each client sends its next publish after the answer to the last one, at the sequencer, for an author that the sequencer owns.
    Publish {
        /// The number of clients.
        count: usize,
        /// The total number of requests of all clients.
        requests: usize,
    },
    /// Each client reads its next page after the answer to the last one, at the owner of a reader.
    Read {
        /// The number of clients.
        count: usize,
        /// The total number of requests of all clients.
        requests: usize,
    },
}

/// Returns the share of the readers that each node owns, by the same computation as in a cluster.
pub fn owned_shares(nodes: usize) -> Vec<f64> {
    let name = |node: usize| -> NodeName { format!("node-{node}").parse().expect("a valid name") };
    let names: Vec<NodeName> = (0..nodes).map(name).collect();
    let mut owned = vec![0_u32; nodes];
    for partition in 0..PARTITIONS {
        let owner = (0..nodes).max_by_key(|node| rank(&names[*node], u64::from(partition)));
        if let Some(owner) = owner {
            owned[owner] += 1;
        }
    }
    owned.iter().map(|owned| f64::from(*owned) / f64::from(PARTITIONS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_readers_have_an_owner_and_node_shares_differ() {
        for nodes in [1, 2, 3, 6, 128] {
            let shares = owned_shares(nodes);
            assert_eq!(shares.len(), nodes);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
        let most = owned_shares(128).into_iter().fold(0.0, f64::max);
        assert!(most > 2.0 / 128.0, "256 partitions are spread by hashes: {most}");
    }
}

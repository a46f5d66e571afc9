//! Calculates the resources that a cluster needs: the use of each resource on its busiest node, and the first bottleneck.

use std::time::Duration;

use crate::simulation::costs::Costs;
use crate::simulation::scenario::owned_shares;
use crate::simulation::{Clients, Machines, NodeUse, Outcome, Scenario, Work, simulate};

/// The load of all users at peak time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// The number of users.
    pub users: f64,
    /// The number of sources that each user follows. It determines the memory of edges.
    pub follows: f64,
    /// The average number of followers of a post's author, over all posts.
    pub followers: f64,
    /// The share of the users who have read their feed in the last week. Posts are delivered to them.
    pub active_share: f64,
    /// The share of the users with a live connection.
    pub online_share: f64,
    /// The spread of the number of followers between authors, as [`Work::spread`].
    pub spread: f64,
    /// Posts of all users per second.
    pub posts: f64,
    /// Pages of all users per second.
    pub pages: f64,
    /// Number of posts in memory.
    pub posts_kept: f64,
    /// True if clients send requests to the user's owner. Otherwise they send them to any node.
    pub asks_owner: bool,
}

/// The daily activity of users, from which [`Demand`] is computed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Habits {
    /// The number of sources that each user follows. All users publish equally often, so this is also the number of followers of a post.
    pub follows: f64,
    /// Posts of a user per day.
    pub posts_per_day: f64,
    /// Pages that a user reads per day.
    pub pages_per_day: f64,
    /// Peak rate as a multiple of the average.
    pub peak: f64,
    /// The share of the users who have read their feed in the last week.
    pub active_share: f64,
    /// The share of the users with a live connection.
    pub online_share: f64,
    /// The spread of the number of followers between authors, as [`Work::spread`].
    pub spread: f64,
    /// Days for which posts stay in memory.
    pub kept_days: f64,
    /// True if clients send requests to the user's owner.
    pub asks_owner: bool,
}

/// The capacity of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// The number of cores.
    pub cores: usize,
    /// The bytes of memory.
    pub memory_bytes: f64,
    /// The bytes of disk.
    pub disk_bytes: f64,
    /// The bytes that its network sends per second.
    pub network_bytes: f64,
}

/// The needs of the nodes of a cluster. Each value is that of the busiest node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Need {
    /// Cores in use.
    pub cores: f64,
    /// The share of the time in which the command processor, one thread, is busy.
    pub processor: f64,
    /// Bytes per second that a node sends to clients and to other nodes.
    pub network_bytes: f64,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// Bytes of disk, for two snapshots.
    pub disk_bytes: f64,
    /// Bytes per second that one copy of the log grows by.
    pub log_bytes: f64,
    /// Bytes per second that the log sends to its readers.
    pub log_sent_bytes: f64,
}

/// A resource that can limit a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// The cores of a node.
    Cores,
    /// The command processor's thread, which applies all events.
    CommandProcessor,
    /// The memory of a node.
    Memory,
    /// The disk of a node.
    Disk,
    /// The network of a node.
    Network,
    /// The network of the broker that sends the log.
    LogNetwork,
}

impl Resource {
    /// Returns the name of the resource.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::CommandProcessor => "command processor",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::LogNetwork => "network of the log",
        }
    }
}

const SECONDS_PER_DAY: f64 = 86_400.0;

/// Maximum load of the command processor's thread, of the cores and of the network at which nodes still answer requests in time.
const BUSY_MAX: f64 = 0.7;

impl Habits {
    /// Returns the demand of this many users.
    pub fn of(&self, users: f64) -> Demand {
        let per_second = |per_day: f64| users * per_day * self.peak / SECONDS_PER_DAY;
        Demand {
            users,
            follows: self.follows,
            // Equal to the average number of followed sources, because all users publish equally often.
            followers: self.follows,
            active_share: self.active_share,
            online_share: self.online_share,
            spread: self.spread,
            posts: per_second(self.posts_per_day),
            pages: per_second(self.pages_per_day),
            posts_kept: users * self.posts_per_day * self.kept_days,
            asks_owner: self.asks_owner,
        }
    }
}

/// Maximum number of requests of one simulation, and its maximum duration.
const REQUESTS_MAX: f64 = 400_000.0;
const LASTS_MAX: Duration = Duration::from_secs(5);

impl Demand {
    /// Returns this demand as the work of a simulation. It counts sources above the celebrity threshold as if they pushed their posts, so
    /// deliveries are an upper bound.
    pub fn work(&self) -> Work {
        Work {
            clients: Clients::Open { posts: self.posts, pages: self.pages },
            followers: self.followers * self.active_share,
            online_share: (self.online_share / self.active_share).min(1.0),
            spread: self.spread,
            asks_owner: self.asks_owner,
        }
    }

    /// Simulates this demand on a cluster in which each node has its own machine.
    pub fn simulate(&self, nodes: usize, machine: &Machine, costs: &Costs) -> Outcome {
        let lasts = Duration::from_secs_f64(REQUESTS_MAX / (self.posts + self.pages).max(1.0)).min(LASTS_MAX);
        simulate(&Scenario {
            nodes,
            machines: Machines::Own { cores: machine.cores, network_bytes: machine.network_bytes },
            costs: *costs,
            work: self.work(),
            warm_up: lasts / 4,
            lasts,
            seed: 1,
        })
    }

    /// Returns the bytes of memory of the node that owns this share of the users.
    pub fn memory_bytes(&self, share: f64, costs: &Costs) -> f64 {
        self.users * (costs.user_bytes + self.follows * costs.edge_bytes)
            + self.posts_kept * costs.post_bytes
            + self.users * share * (self.active_share * costs.reader_bytes + self.online_share * costs.connection_bytes)
    }
}

impl Need {
    /// Returns the needs of a demand whose simulation had this outcome.
    pub fn new(demand: &Demand, outcome: &Outcome, costs: &Costs) -> Self {
        let most = |of: fn(&NodeUse) -> f64| outcome.nodes.iter().map(of).fold(0.0, f64::max);
        let share = owned_shares(outcome.nodes.len()).into_iter().fold(0.0, f64::max);
        let memory_bytes = demand.memory_bytes(share, costs);
        Self {
            cores: most(|node| node.cores),
            processor: most(|node| node.processor),
            network_bytes: most(|node| node.network_bytes),
            memory_bytes,
            disk_bytes: 2.0 * costs.snapshot_share * memory_bytes,
            log_bytes: demand.posts * costs.event_bytes,
            log_sent_bytes: outcome.log_sent_bytes,
        }
    }

    /// Returns the used shares of a machine, the greatest first. The broker has the same network.
    pub fn shares(&self, machine: &Machine) -> [(Resource, f64); 6] {
        let mut shares = [
            (Resource::Cores, self.cores / machine.cores as f64 / BUSY_MAX),
            (Resource::CommandProcessor, self.processor / BUSY_MAX),
            (Resource::Memory, self.memory_bytes / machine.memory_bytes),
            (Resource::Disk, self.disk_bytes / machine.disk_bytes),
            (Resource::Network, self.network_bytes / machine.network_bytes / BUSY_MAX),
            (Resource::LogNetwork, self.log_sent_bytes / machine.network_bytes / BUSY_MAX),
        ];
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::costs::MEASURED;

    const DEMAND: Demand = Demand {
        users: 1e6,
        follows: 100.0,
        followers: 100.0,
        active_share: 0.5,
        online_share: 0.0,
        spread: 0.0,
        posts: 100.0,
        pages: 1e4,
        posts_kept: 1e6,
        asks_owner: true,
    };

    const MACHINE: Machine = Machine { cores: 16, memory_bytes: 64e9, disk_bytes: 1e12, network_bytes: 1.25e9 };

    fn need(demand: &Demand, nodes: usize, machine: &Machine) -> Need {
        Need::new(demand, &demand.simulate(nodes, machine, &MEASURED), &MEASURED)
    }

    #[test]
    fn a_node_holds_the_whole_world_and_its_share_of_the_readers() {
        let costs = Costs { user_bytes: 200.0, edge_bytes: 30.0, post_bytes: 500.0, reader_bytes: 3_000.0, ..MEASURED };
        // Users, edges, posts, inboxes.
        assert_eq!(DEMAND.memory_bytes(1.0, &costs), 0.2e9 + 3e9 + 0.5e9 + 1.5e9);
        assert_eq!(DEMAND.memory_bytes(0.25, &costs), 0.2e9 + 3e9 + 0.5e9 + 1.5e9 / 4.0);
        let (one, many) = (need(&DEMAND, 1, &MACHINE), need(&DEMAND, 128, &MACHINE));
        assert!(many.memory_bytes > 0.7 * one.memory_bytes && many.cores < one.cores / 4.0, "{one:?} {many:?}");
        assert_eq!(one.disk_bytes, 2.0 * MEASURED.snapshot_share * one.memory_bytes);
        assert_eq!(one.log_bytes, 100.0 * MEASURED.event_bytes);
    }

    #[test]
    fn the_scarcest_resource_is_exhausted_first() {
        for (machine, first) in [
            (Machine { memory_bytes: 1e9, ..MACHINE }, Resource::Memory),
            (Machine { disk_bytes: 1e6, ..MACHINE }, Resource::Disk),
            (Machine { cores: 1, memory_bytes: 1e12, ..MACHINE }, Resource::Cores),
            (Machine { network_bytes: 1e6, ..MACHINE }, Resource::Network),
        ] {
            assert_eq!(need(&DEMAND, 3, &machine).shares(&machine)[0].0, first);
        }
        let writes = Demand { posts: 2_000.0, users: 1e3, posts_kept: 0.0, pages: 0.0, followers: 1.0, ..DEMAND };
        let slow = Machine { network_bytes: 1.25e7, ..MACHINE };
        let log = need(&writes, 10, &slow).shares(&slow);
        assert!(log.iter().any(|(resource, share)| *resource == Resource::LogNetwork && *share > 0.5), "{log:?}");
    }

    #[test]
    fn daily_operations_are_spread_over_the_seconds_of_a_day() {
        let habits = Habits {
            follows: 1.0,
            posts_per_day: 1.0,
            pages_per_day: 10.0,
            peak: 2.0,
            active_share: 1.0,
            online_share: 0.0,
            spread: 0.0,
            kept_days: 3.0,
            asks_owner: true,
        };
        let demand = habits.of(86_400.0);
        assert_eq!((demand.posts, demand.pages, demand.posts_kept), (2.0, 20.0, 259_200.0));
    }
}

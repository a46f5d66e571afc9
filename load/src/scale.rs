//! The arithmetic of larger clusters: what each node needs for given users, and what ends first.
//!
//! Responsible for:
//! - the processor time, memory, network and log that nodes need, as a pure function of demand, number of nodes and measured costs.
//!
//! Not responsible for:
//! - measuring the costs, and comparing the result with real nodes (`cluster`).

/// What users do, at the time of most load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// The number of users.
    pub users: f64,
    /// The number of sources that each follows: what edges cost in memory.
    pub follows: f64,
    /// The number of followers of a post's author, on average over posts.
    pub followers: f64,
    /// The share of the users who have read their feed in the last week: posts are delivered to them.
    pub active_share: f64,
    /// The share of the users with a live connection.
    pub online_share: f64,
    /// Posts in a second, of all users.
    pub posts: f64,
    /// Pages in a second, of all users.
    pub pages: f64,
    /// Posts that are kept in memory.
    pub posts_kept: f64,
    /// True if clients ask the owner of a user. Otherwise any node takes any request.
    pub asks_owner: bool,
}

/// What users do in a day, from which [`Demand`] follows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Habits {
    /// The number of sources that each user follows. All users post alike, so a post has as many followers.
    pub follows: f64,
    /// Posts of a user in a day.
    pub posts_per_day: f64,
    /// Pages that a user reads in a day.
    pub pages_per_day: f64,
    /// The most in a second as a multiple of the average.
    pub peak: f64,
    /// The share of the users who have read their feed in the last week.
    pub active_share: f64,
    /// The share of the users with a live connection.
    pub online_share: f64,
    /// Days for which posts stay in memory.
    pub kept_days: f64,
    /// True if clients ask the owner of a user.
    pub asks_owner: bool,
}

/// The costs that were measured: processor time in microseconds, memory and messages in bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Judging a publish and answering it over HTTP, on the sequencer, besides applying it.
    pub judge_us: f64,
    /// Reading a record back and applying it, on every node.
    pub apply_us: f64,
    /// The part of both that the scribe does, which is one thread.
    pub scribe_us: f64,
    /// Delivering a post to an inbox.
    pub delivery_us: f64,
    /// Sending a message to a live client.
    pub message_us: f64,
    /// Answering a page over HTTP.
    pub page_us: f64,
    /// Passing a request on to another node, besides answering it there.
    pub pass_us: f64,
    /// A user with the first edge, without an inbox.
    pub user_bytes: f64,
    /// A follow edge of a user.
    pub edge_bytes: f64,
    /// A post in memory.
    pub post_bytes: f64,
    /// An awake reader with a full inbox.
    pub reader_bytes: f64,
    /// A live connection.
    pub connection_bytes: f64,
    /// A publish in the log.
    pub event_bytes: f64,
    /// A page of 20 entries as an answer.
    pub page_bytes: f64,
    /// A live message with a post.
    pub message_bytes: f64,
}

/// What a node can do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// The number of cores.
    pub cores: f64,
    /// The bytes of memory.
    pub memory_bytes: f64,
    /// The bytes that its network sends or receives in a second.
    pub network_bytes: f64,
}

/// What the busiest node, the sequencer, needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Need {
    /// Cores in use.
    pub cores: f64,
    /// The share of the time in which the scribe, one thread, is busy.
    pub scribe: f64,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// Bytes sent in a second, to clients and to other nodes.
    pub network_bytes: f64,
    /// Bytes that the log grows by in a second, in one copy.
    pub log_bytes: f64,
}

/// Something that can end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// The cores of a node.
    Cores,
    /// The one thread that applies all events.
    Scribe,
    /// The memory of a node.
    Memory,
    /// The network of a node.
    Network,
}

impl Resource {
    /// Returns the name of the resource.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Scribe => "scribe",
            Self::Memory => "memory",
            Self::Network => "network",
        }
    }
}

const SECONDS_PER_DAY: f64 = 86_400.0;

/// The share of the scribe's thread, of cores and of the network that can be used while requests are still answered in time.
const BUSY_MAX: f64 = 0.7;

impl Habits {
    /// Returns the demand of this many users.
    pub fn of(&self, users: f64) -> Demand {
        let per_second = |per_day: f64| users * per_day * self.peak / SECONDS_PER_DAY;
        Demand {
            users,
            follows: self.follows,
            // As many as all follow, if all publish alike.
            followers: self.follows,
            active_share: self.active_share,
            online_share: self.online_share,
            posts: per_second(self.posts_per_day),
            pages: per_second(self.pages_per_day),
            posts_kept: users * self.posts_per_day * self.kept_days,
            asks_owner: self.asks_owner,
        }
    }
}

impl Demand {
    /// Returns the deliveries in a second: each post to those followers who are active. A source with more followers than a celebrity has is
    /// counted as if it pushed its posts, so this is an upper bound.
    pub fn deliveries(&self) -> f64 {
        self.posts * self.followers * self.active_share
    }

    fn messages(&self) -> f64 {
        self.posts * self.followers * self.online_share
    }

    /// Returns the processor time in a second of all nodes together, in cores.
    pub fn cores_of_all(&self, nodes: f64, costs: &Costs) -> f64 {
        let once = self.posts * costs.judge_us + self.shared_us(nodes, costs);
        (once + nodes * self.posts * costs.apply_us) / 1e6
    }

    /// Returns the processor time of the work that nodes share, in microseconds a second.
    fn shared_us(&self, nodes: f64, costs: &Costs) -> f64 {
        // A page may take one more step, a write two.
        let steps = if self.asks_owner { 0.0 } else { self.pages + self.posts } * (1.0 - 1.0 / nodes)
            + self.posts * (1.0 - 1.0 / nodes);
        self.deliveries() * costs.delivery_us
            + self.messages() * costs.message_us
            + self.pages * costs.page_us
            + steps * costs.pass_us
    }

    /// Returns what the busiest of `nodes` needs.
    pub fn need(&self, nodes: f64, costs: &Costs) -> Need {
        let readers = self.users / nodes;
        let alone = self.posts * (costs.judge_us + costs.apply_us);
        let passed = if self.asks_owner { 0.0 } else { 1.0 - 1.0 / nodes };
        let to_clients = self.pages * costs.page_bytes * (1.0 + passed) + self.messages() * costs.message_bytes;
        Need {
            cores: (alone + self.shared_us(nodes, costs) / nodes) / 1e6,
            scribe: self.posts * costs.scribe_us / 1e6,
            memory_bytes: self.users * (costs.user_bytes + self.follows * costs.edge_bytes)
                + self.posts_kept * costs.post_bytes
                + readers * (self.active_share * costs.reader_bytes + self.online_share * costs.connection_bytes),
            network_bytes: to_clients / nodes + self.posts * costs.event_bytes,
            log_bytes: self.posts * costs.event_bytes,
        }
    }
}

impl Need {
    /// Returns the shares of a machine that are in use, the greatest first.
    pub fn shares(&self, machine: &Machine) -> [(Resource, f64); 4] {
        let mut shares = [
            (Resource::Cores, self.cores / machine.cores / BUSY_MAX),
            (Resource::Scribe, self.scribe / BUSY_MAX),
            (Resource::Memory, self.memory_bytes / machine.memory_bytes),
            (Resource::Network, self.network_bytes / machine.network_bytes / BUSY_MAX),
        ];
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        judge_us: 20.0,
        apply_us: 5.0,
        scribe_us: 4.0,
        delivery_us: 0.5,
        message_us: 10.0,
        page_us: 20.0,
        pass_us: 30.0,
        user_bytes: 200.0,
        edge_bytes: 30.0,
        post_bytes: 500.0,
        reader_bytes: 3_000.0,
        connection_bytes: 5_000.0,
        event_bytes: 300.0,
        page_bytes: 8_000.0,
        message_bytes: 400.0,
    };

    const DEMAND: Demand = Demand {
        users: 1e6,
        follows: 100.0,
        followers: 100.0,
        active_share: 0.5,
        online_share: 0.0,
        posts: 100.0,
        pages: 1e4,
        posts_kept: 1e6,
        asks_owner: true,
    };

    fn is_near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
    }

    #[test]
    fn one_node_needs_the_sum_of_all_work() {
        let need = DEMAND.need(1.0, &COSTS);
        // 100 posts of 25 µs, 5,000 deliveries of 0.5 µs, 10,000 pages of 20 µs.
        assert!(is_near(need.cores, 0.002_5 + 0.002_5 + 0.2), "{need:?}");
        assert!(is_near(need.cores, DEMAND.cores_of_all(1.0, &COSTS)));
        // Users, edges, posts, inboxes.
        assert!(is_near(need.memory_bytes, 0.2e9 + 3e9 + 0.5e9 + 1.5e9), "{need:?}");
        assert!(is_near(need.network_bytes, 8e7 + 3e4) && is_near(need.log_bytes, 3e4), "{need:?}");
    }

    #[test]
    fn reading_is_shared_and_writing_and_the_graph_are_not() {
        let (one, many) = (DEMAND.need(1.0, &COSTS), DEMAND.need(100.0, &COSTS));
        assert!(is_near(many.scribe, one.scribe) && many.cores < one.cores / 20.0);
        assert!(many.memory_bytes > 0.7 * one.memory_bytes, "{many:?}");
        let elsewhere = Demand { asks_owner: false, ..DEMAND };
        assert!(is_near(elsewhere.need(1.0, &COSTS).cores, one.cores), "nothing is passed on to oneself");
        assert!(elsewhere.need(2.0, &COSTS).cores > DEMAND.need(2.0, &COSTS).cores);
        let all = DEMAND.cores_of_all(10.0, &COSTS);
        assert!(all > DEMAND.cores_of_all(1.0, &COSTS), "each node applies each event");
    }

    #[test]
    fn what_is_scarce_ends_first() {
        let need = DEMAND.need(3.0, &COSTS);
        let machine = Machine { cores: 16.0, memory_bytes: 64e9, network_bytes: 1.25e9 };
        for (machine, first) in [
            (machine, Resource::Memory),
            (Machine { cores: 0.01, ..machine }, Resource::Cores),
            (Machine { network_bytes: 1e6, ..machine }, Resource::Network),
        ] {
            assert_eq!(need.shares(&machine)[0].0, first);
        }
        let writes = Demand {
            posts: 200_000.0,
            users: 1e3,
            posts_kept: 0.0,
            pages: 0.0,
            follows: 1.0,
            followers: 1.0,
            ..DEMAND
        };
        assert_eq!(writes.need(3.0, &COSTS).shares(&machine)[0].0, Resource::Scribe);
    }

    #[test]
    fn a_day_is_spread_over_its_seconds() {
        let habits = Habits {
            follows: 1.0,
            posts_per_day: 1.0,
            pages_per_day: 10.0,
            peak: 2.0,
            active_share: 1.0,
            online_share: 0.0,
            kept_days: 3.0,
            asks_owner: true,
        };
        let demand = habits.of(86_400.0);
        assert_eq!((demand.posts, demand.pages, demand.posts_kept), (2.0, 20.0, 259_200.0));
    }
}

//! The path of pages and publishes through a cluster, event by event.
//!
//! Responsible for:
//! - the events of the simulation in the order of time, and the measurements;

mod log;
mod requests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;

use crate::report::Latency;
use crate::simulation::resources::{Cores, Link, Time, micros};
use crate::simulation::run::log::{Log, NodeState};
use crate::simulation::run::requests::Request;
use crate::simulation::scenario::{Clients, Machines, Scenario, owned_shares};

/// The outcome of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The nodes. The first is the sequencer.
    pub nodes: Vec<NodeUse>,
    /// The times from a publish request to its answer.
    pub publishes: Latency,
    /// The times from a page request to its answer.
    pub pages: Latency,
    /// The times from a publish to its last delivery on a node.
    pub deliveries: Latency,
    /// The measured time in seconds. A closed loop ends when all requests are answered and all posts are delivered.
    pub seconds: f64,
    /// The time until the last answer, in seconds.
    pub answered_after: f64,
    /// Requests that were sent in the measured time.
    pub sent: u64,
    /// Requests that were answered in the measured time.
    pub answered: u64,
    /// Bytes per second that the log sends to the nodes.
    pub log_sent_bytes: f64,
    /// Average number of records that a node reads at once, over all nodes.
    pub records_per_read: f64,
}

/// The load of a node in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeUse {
    /// Average number of cores in use.
    pub cores: f64,
    /// The share of the time in which its command processor was busy.
    pub processor: f64,
    /// Bytes sent per second.
    pub network_bytes: f64,
}

impl Outcome {
    /// Returns the processor time of all nodes in the measured time, in seconds.
    pub fn processor_time(&self) -> f64 {
        self.nodes.iter().map(|node| node.cores).sum::<f64>() * self.seconds
    }

    /// Returns true if requests are answered as fast as they are sent.
    pub fn keeps_up(&self) -> bool {
        self.answered as f64 >= 0.95 * self.sent as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A request arrives at a random time.
    NextPage,
    NextPost,
    /// A client of a closed loop sends its next request.
    Client(usize),
    /// A request reaches the node of its current leg.
    Enters(usize),
    /// The node of the current leg has done its work.
    Leaves(usize),
    /// A worker of a node has finished all requests that it took.
    WorkerIsFree(usize),
    /// A courier of a node has delivered its slice.
    Delivered(usize),
    /// The answer has reached the client.
    Answered(usize),
    /// The command processor of the sequencer has judged all waiting publishes.
    Judged,
    /// The log has stored all records before this one.
    Stored(usize),
    /// A node has read all records before this one from the log.
    Fetched(usize, usize),
    /// A node has decoded all records before this one.
    Decoded(usize, usize),
    /// The command processor of a node has applied all records before this one.
    Applied(usize, usize),
}

#[derive(Debug)]
pub(super) struct Measured {
    pub(super) is_on: bool,
    pub(super) publishes: Histogram<u64>,
    pub(super) pages: Histogram<u64>,
    pub(super) deliveries: Histogram<u64>,
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) answered_at: Time,
}

/// The state of a simulation.
pub(super) struct Simulation<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) now: Time,
    pub(super) events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    pub(super) scheduled: u64,
    pub(super) rng: fastrand::Rng,
    /// The machines of the nodes, or one machine for all.
    pub(super) machines: Vec<Cores>,
    pub(super) links: Vec<Link>,
    pub(super) hop: Time,
    /// The number of threads of each node that answer requests, and also of those that deliver.
    pub(super) threads: usize,
    states: Vec<NodeState>,
    log: Log,
    requests: Vec<Request>,
    pub(super) free: Vec<usize>,
    /// Requests that the clients of a closed loop have not sent yet.
    pub(super) unsent: usize,
    pub(super) used: Vec<NodeUse>,
    pub(super) measured: Measured,
}

/// Longest time in the histogram. Longer times are recorded as this one.
const TIME_MAX: u64 = 60_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX, 3).expect("the bounds are valid")
}

/// Simulates a scenario. The first part, `warm_up`, is not measured.
pub fn simulate(scenario: &Scenario) -> Outcome {
    let mut simulation = Simulation::new(scenario);
    simulation.start_clients();
    let begin = micros(scenario.warm_up.as_secs_f64() * 1e6);
    let end = match scenario.work.clients {
        Clients::Open { .. } => begin + micros(scenario.lasts.as_secs_f64() * 1e6),
        Clients::Publish { .. } | Clients::Read { .. } => Time::MAX,
    };
    while let Some(Reverse((now, _, event))) = simulation.events.pop()
        && now < end
    {
        simulation.measured.is_on = now >= begin;
        simulation.now = now;
        simulation.handle(event);
    }
    let end = if end == Time::MAX { simulation.now } else { end };
    simulation.outcome(begin, end)
}

impl<'s> Simulation<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let nodes = scenario.nodes;
        let (machines, threads, link, hop_us) = match scenario.machines {
            Machines::Own { cores, network_bytes } => {
                ((0..nodes).map(|_| Cores::new(cores)).collect(), cores, Some(network_bytes), scenario.costs.hop_us)
            }
            // On one machine the measured costs already include the hops.
            Machines::Shared { cores } => (vec![Cores::new(cores)], cores, None, 0.0),
        };
        Self {
            scenario,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            rng: fastrand::Rng::with_seed(scenario.seed),
            machines,
            links: (0..nodes).map(|_| Link::new(link)).collect(),
            hop: micros(hop_us),
            threads,
            states: owned_shares(nodes).into_iter().map(NodeState::new).collect(),
            log: Log::default(),
            requests: Vec::new(),
            free: Vec::new(),
            unsent: 0,
            used: vec![NodeUse::default(); nodes],
            measured: Measured {
                is_on: false,
                publishes: histogram(),
                pages: histogram(),
                deliveries: histogram(),
                sent: 0,
                answered: 0,
                answered_at: 0,
            },
        }
    }

    pub(super) fn at(&mut self, time: Time, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((time.max(self.now), self.scheduled, event)));
    }

    /// Adds work on a node, and returns the time of its end.
    pub(super) fn work(&mut self, node: usize, us: f64) -> Time {
        let machine = node % self.machines.len();
        if self.measured.is_on {
            self.used[node].cores += us;
        }
        self.machines[machine].work(self.now, micros(us))
    }

    /// Adds work of the broker or of a client: on the shared machine, or on one that is always idle.
    pub(super) fn work_elsewhere(&mut self, us: f64) -> Time {
        match self.scenario.machines {
            Machines::Shared { .. } => self.machines[0].work(self.now, micros(us)),
            Machines::Own { .. } => self.now + micros(us),
        }
    }

    pub(super) fn send(&mut self, node: usize, from: Time, bytes: f64) -> Time {
        if self.measured.is_on {
            self.used[node].network_bytes += bytes;
        }
        self.links[node].send(from, bytes) + self.hop
    }

    /// Returns a random time with the distribution of measured commits: its logarithm is normally distributed.
    pub(super) fn spread(&mut self, median: f64, spread: f64) -> f64 {
        // The sum of twelve uniform numbers is close enough to a normal distribution.
        let normal = (0..12).map(|_| self.rng.f64()).sum::<f64>() - 6.0;
        median * (spread * normal).exp()
    }

    fn start_clients(&mut self) {
        match self.scenario.work.clients {
            Clients::Open { .. } => {
                self.at_random(Event::NextPage);
                self.at_random(Event::NextPost);
            }
            Clients::Publish { count, requests } | Clients::Read { count, requests } => {
                self.unsent = requests.saturating_sub(count);
                (0..count.min(requests)).for_each(|client| self.at(0, Event::Client(client)));
            }
        }
    }

    fn at_random(&mut self, event: Event) {
        let Clients::Open { posts, pages } = self.scenario.work.clients else { return };
        let rate = if event == Event::NextPage { pages } else { posts };
        if rate > 0.0 {
            let wait = -(1.0 - self.rng.f64()).ln() / rate;
            self.at(self.now + micros(wait * 1e6), event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::NextPage => {
                self.at_random(event);
                let owner = self.any_owner();
                let entry = self.entry(owner);
                self.read(entry, owner, None);
            }
            Event::NextPost => {
                self.at_random(event);
                let owner = self.any_owner();
                let entry = self.entry(owner);
                self.publish(entry, owner, None);
            }
            Event::Client(client) => match self.scenario.work.clients {
                Clients::Publish { .. } => self.publish(0, 0, Some(client)),
                _ => {
                    let owner = self.any_owner();
                    self.read(owner, owner, Some(client));
                }
            },
            Event::Enters(id) => {
                let node = self.requests[id].legs[self.requests[id].at].node;
                self.states[node].waiting.push(id);
                self.wake_worker(node);
            }
            Event::WorkerIsFree(node) => {
                self.states[node].busy_workers -= 1;
                self.wake_worker(node);
            }
            Event::Delivered(node) => {
                self.states[node].busy_couriers -= 1;
                self.wake_courier(node);
            }
            Event::Leaves(id) => self.leave(id),
            Event::Answered(id) => self.answered(id),
            Event::Judged => self.judged(),
            Event::Stored(end) => self.stored(end),
            Event::Fetched(node, end) => self.fetched(node, end),
            Event::Decoded(node, end) => self.decoded(node, end),
            Event::Applied(node, end) => self.applied(node, end),
        }
    }

    fn any_owner(&mut self) -> usize {
        let mut left = self.rng.f64();
        for (node, state) in self.states.iter().enumerate() {
            left -= state.share;
            if left < 0.0 {
                return node;
            }
        }
        self.states.len() - 1
    }

    fn entry(&mut self, owner: usize) -> usize {
        if self.scenario.work.asks_owner { owner } else { self.rng.usize(..self.scenario.nodes) }
    }

    fn outcome(self, begin: Time, end: Time) -> Outcome {
        let seconds = (end - begin) as f64 / 1e9;
        let each = |used: &NodeUse| NodeUse {
            cores: used.cores / seconds / 1e6 + self.scenario.costs.idle_cores,
            processor: used.processor / seconds / 1e6,
            network_bytes: used.network_bytes / seconds,
        };
        let (reads, records) =
            self.states.iter().fold((0, 0), |sum, state| (sum.0 + state.reads, sum.1 + state.records));
        Outcome {
            nodes: self.used.iter().map(each).collect(),
            publishes: Latency::of(&self.measured.publishes),
            pages: Latency::of(&self.measured.pages),
            deliveries: Latency::of(&self.measured.deliveries),
            seconds,
            answered_after: self.measured.answered_at.saturating_sub(begin) as f64 / 1e9,
            sent: self.measured.sent,
            answered: self.measured.answered,
            log_sent_bytes: records as f64 * self.scenario.costs.event_bytes / seconds,
            records_per_read: records as f64 / reads.max(1) as f64,
        }
    }
}

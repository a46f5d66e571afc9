//! The way of pages and publishes through a cluster, event by event.
//!
//! Responsible for:
//! - the events of the simulation in the order of time;
//! - requests: where they come in, which nodes they pass, and when they are answered.
//!
//! Not responsible for:
//! - what happens between the judgement of a publish and its application on every node ([`super::log`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;

use crate::report::Latency;
use crate::simulation::log::{Log, Reader, Record};
use crate::simulation::resources::{Cores, Link, Time, micros};
use crate::simulation::scenario::{Clients, Machines, Scenario, owned_shares};

/// Bytes of a request to publish, and of its answer.
const PUBLISH_BYTES: f64 = 500.0;
const ANSWER_BYTES: f64 = 300.0;

/// Deliveries of a post that one core does before another may help.
const SLICE: f64 = 1_000.0;

/// What a scenario comes to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The nodes. The first is the sequencer.
    pub nodes: Vec<NodeUse>,
    /// The times from a request to its answer: publishes.
    pub publishes: Latency,
    /// The same: pages.
    pub pages: Latency,
    /// The times from a publish to its last delivery on a node.
    pub deliveries: Latency,
    /// Requests that were sent in the measured time.
    pub sent: u64,
    /// Requests that were answered in the measured time.
    pub answered: u64,
    /// Bytes in a second that the log sends to its readers.
    pub log_sent_bytes: f64,
    /// Records that a node reads back at once, on average over all nodes.
    pub records_per_read: f64,
}

/// What a node used in the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeUse {
    /// Cores in use.
    pub cores: f64,
    /// The share of the time in which its scribe was busy.
    pub scribe: f64,
    /// Bytes sent in a second.
    pub network_bytes: f64,
}

impl Outcome {
    /// Returns true if requests are answered as fast as they are sent.
    pub fn keeps_up(&self) -> bool {
        self.answered as f64 >= 0.95 * self.sent as f64
    }
}

/// Work at a node on the way of a request.
#[derive(Clone, Copy, Debug)]
struct Leg {
    node: usize,
    us: f64,
    /// Bytes that the node sends afterwards.
    bytes: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Page,
    Publish,
}

#[derive(Debug)]
struct Request {
    kind: Kind,
    began: Time,
    client: Option<usize>,
    legs: Vec<Leg>,
    /// The leg at which it is.
    at: usize,
    /// The leg after which a publish is judged.
    judged_after: usize,
    owner: usize,
    /// The nodes that have to apply a publish before it is answered.
    unapplied: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A request comes, at a random time.
    NextPage,
    NextPost,
    /// A client of a closed loop sends its next request.
    Client(usize),
    /// A request reaches the node of its current leg.
    Enters(usize),
    /// The node of the current leg has done its work.
    Leaves(usize),
    /// The answer has reached the client.
    Answered(usize),
    /// The scribe of a node has judged all that waited, this many.
    Judged(usize),
    /// The log has stored all records before this one.
    Stored(usize),
    /// A node has read all records before this one from the log.
    Fetched(usize, usize),
    /// A node has decoded all records before this one.
    Decoded(usize, usize),
    /// The scribe of a node has applied all records before this one.
    Applied(usize, usize),
    MeasurementBegins,
}

#[derive(Debug)]
pub(super) struct Measured {
    pub(super) is_on: bool,
    publishes: Histogram<u64>,
    pages: Histogram<u64>,
    pub(super) deliveries: Histogram<u64>,
    sent: u64,
    answered: u64,
}

/// The state of a simulation.
pub(super) struct Simulation<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    scheduled: u64,
    rng: fastrand::Rng,
    /// The machines of the nodes, or one that all share.
    machines: Vec<Cores>,
    links: Vec<Link>,
    hop: Time,
    pub(super) readers: Vec<Reader>,
    pub(super) log: Log,
    requests: Vec<Request>,
    free: Vec<usize>,
    pub(super) used: Vec<NodeUse>,
    pub(super) measured: Measured,
}

/// Times above it are recorded as this.
const TIME_MAX: u64 = 60_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX, 3).expect("the bounds are valid")
}

/// Simulates a scenario.
pub fn simulate(scenario: &Scenario) -> Outcome {
    let mut simulation = Simulation::new(scenario);
    simulation.start_clients();
    let end = micros((scenario.warm_up + scenario.lasts).as_secs_f64() * 1e6);
    simulation.at(micros(scenario.warm_up.as_secs_f64() * 1e6), Event::MeasurementBegins);
    while let Some(Reverse((now, _, event))) = simulation.events.pop()
        && now < end
    {
        simulation.now = now;
        simulation.handle(event);
    }
    simulation.outcome()
}

impl<'s> Simulation<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let nodes = scenario.nodes;
        let (machines, link, hop_us) = match scenario.machines {
            Machines::Own { cores, network_bytes } => {
                ((0..nodes).map(|_| Cores::new(cores)).collect(), Some(network_bytes), scenario.costs.hop_us)
            }
            // A hop on one machine is part of the costs that were measured on it.
            Machines::Shared { cores } => (vec![Cores::new(cores)], None, 0.0),
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
            readers: owned_shares(nodes).into_iter().map(Reader::new).collect(),
            log: Log::default(),
            requests: Vec::new(),
            free: Vec::new(),
            used: vec![NodeUse::default(); nodes],
            measured: Measured {
                is_on: false,
                publishes: histogram(),
                pages: histogram(),
                deliveries: histogram(),
                sent: 0,
                answered: 0,
            },
        }
    }

    pub(super) fn at(&mut self, time: Time, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((time.max(self.now), self.scheduled, event)));
    }

    /// Lets a node work, and returns when it is done.
    pub(super) fn work(&mut self, node: usize, us: f64) -> Time {
        let machine = node % self.machines.len();
        if self.measured.is_on {
            self.used[node].cores += us;
        }
        self.machines[machine].work(self.now, micros(us))
    }

    /// Lets the broker or a client work: on the machine that all share, or on one that is always free.
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

    /// Returns a time that is spread as measured commits are: a logarithm with a normal distribution.
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
            Clients::Publish { count } | Clients::Read { count } => {
                (0..count).for_each(|client| self.at(0, Event::Client(client)));
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
                let leg = self.requests[id].legs[self.requests[id].at];
                let done = self.work(leg.node, leg.us);
                self.at(done, Event::Leaves(id));
            }
            Event::Leaves(id) => self.leave(id),
            Event::Answered(id) => self.answered(id),
            Event::Judged(count) => self.judged(count),
            Event::Stored(end) => self.stored(end),
            Event::Fetched(node, end) => self.fetched(node, end),
            Event::Decoded(node, end) => self.decoded(node, end),
            Event::Applied(node, end) => self.applied(node, end),
            Event::MeasurementBegins => self.measured.is_on = true,
        }
    }

    fn any_owner(&mut self) -> usize {
        let mut left = self.rng.f64();
        for (node, reader) in self.readers.iter().enumerate() {
            left -= reader.share;
            if left < 0.0 {
                return node;
            }
        }
        self.readers.len() - 1
    }

    fn entry(&mut self, owner: usize) -> usize {
        if self.scenario.work.asks_owner { owner } else { self.rng.usize(..self.scenario.nodes) }
    }

    fn read(&mut self, entry: usize, owner: usize, client: Option<usize>) {
        let costs = self.scenario.costs;
        let legs = if entry == owner {
            vec![Leg { node: owner, us: costs.page_us, bytes: costs.page_bytes }]
        } else {
            // Both nodes pay for passing on, half of it before and half of it after the answer.
            let there = Leg { node: entry, us: costs.pass_us / 4.0, bytes: ANSWER_BYTES };
            let page = Leg { node: owner, us: costs.page_us + costs.pass_us / 2.0, bytes: costs.page_bytes };
            vec![there, page, Leg { bytes: costs.page_bytes, ..there }]
        };
        self.begin(Request {
            kind: Kind::Page,
            began: self.now,
            client,
            legs,
            at: 0,
            judged_after: usize::MAX,
            owner,
            unapplied: 0,
        });
    }

    /// A publish goes through the owner of its author to the sequencer, and its answer the same way back.
    fn publish(&mut self, entry: usize, owner: usize, client: Option<usize>) {
        let costs = self.scenario.costs;
        let mut path = vec![entry, owner, 0];
        path.dedup();
        let last = path.len() - 1;
        // Each hop costs both of its ends a quarter on the way there and a quarter on the way back.
        let hops = |nth: usize| f64::from(u8::from(nth > 0) + u8::from(nth < last));
        let mut legs: Vec<Leg> = (path.iter().enumerate())
            .map(|(nth, node)| Leg { node: *node, us: hops(nth) * costs.pass_us / 4.0, bytes: PUBLISH_BYTES })
            .collect();
        let back: Vec<Leg> = legs.iter().rev().map(|leg| Leg { bytes: ANSWER_BYTES, ..*leg }).collect();
        legs[last].us += costs.judge_us - costs.scribe_us / 2.0;
        legs.extend(back);
        self.begin(Request {
            kind: Kind::Publish,
            began: self.now,
            client,
            legs,
            at: 0,
            judged_after: last,
            owner,
            unapplied: 1 + u8::from(owner != 0),
        });
    }

    fn begin(&mut self, request: Request) {
        self.measured.sent += u64::from(self.measured.is_on);
        let id = match self.free.pop() {
            Some(id) => {
                self.requests[id] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        };
        self.at(self.now + self.hop, Event::Enters(id));
    }

    fn leave(&mut self, id: usize) {
        let request = &self.requests[id];
        if request.at == request.judged_after {
            return self.judge(id);
        }
        self.go_on(id);
    }

    /// Sends a request from the node of its current leg to that of the next one, or answers it.
    pub(super) fn go_on(&mut self, id: usize) {
        let request = &mut self.requests[id];
        let leg = request.legs[request.at];
        request.at += 1;
        match request.legs.get(request.at) {
            Some(next) if next.node == leg.node => self.at(self.now, Event::Enters(id)),
            next => {
                let event = if next.is_some() { Event::Enters(id) } else { Event::Answered(id) };
                let sent = self.send(leg.node, self.now, leg.bytes);
                self.at(sent, event);
            }
        }
    }

    /// One of the nodes that a publish waits for has applied it.
    pub(super) fn was_applied(&mut self, node: usize, record: Record) {
        // The others may do so after the request was answered.
        if node != 0 && node != record.owner {
            return;
        }
        let request = &mut self.requests[record.request];
        request.unapplied -= 1;
        if request.unapplied == 0 {
            self.go_on(record.request);
        }
    }

    pub(super) fn new_record(&mut self, request: usize) -> Record {
        let work = self.scenario.work;
        // The mean of this distribution is that of the scenario.
        let median = work.followers / (work.spread * work.spread / 2.0).exp();
        let followers = if work.spread > 0.0 { self.spread(median, work.spread) } else { work.followers };
        Record { request, owner: self.requests[request].owner, began: self.requests[request].began, followers }
    }

    /// Delivers a post to the readers of a node.
    pub(super) fn deliver(&mut self, node: usize, record: Record) {
        let (costs, work) = (self.scenario.costs, self.scenario.work);
        let mut left = record.followers * self.readers[node].share;
        let mut last = self.now;
        while left > 0.0 {
            let slice = left.min(SLICE);
            let done = self.work(node, slice * (costs.delivery_us + work.online_share * costs.message_us));
            let bytes = slice * work.online_share * costs.message_bytes;
            last = last.max(if bytes > 0.0 { self.send(node, done, bytes) } else { done });
            left -= slice;
        }
        if self.measured.is_on {
            self.measured.deliveries.saturating_record(last - record.began);
        }
    }

    fn answered(&mut self, id: usize) {
        let request = &self.requests[id];
        let (took, client) = (self.now - request.began, request.client);
        if self.measured.is_on {
            self.measured.answered += 1;
            match request.kind {
                Kind::Page => self.measured.pages.saturating_record(took),
                Kind::Publish => self.measured.publishes.saturating_record(took),
            }
        }
        self.free.push(id);
        if let Some(client) = client {
            let next = self.work_elsewhere(self.scenario.costs.client_us);
            self.at(next, Event::Client(client));
        }
    }

    fn outcome(self) -> Outcome {
        let seconds = self.scenario.lasts.as_secs_f64();
        let each = |used: &NodeUse| NodeUse {
            cores: used.cores / seconds / 1e6 + self.scenario.costs.idle_cores,
            scribe: used.scribe / seconds / 1e6,
            network_bytes: used.network_bytes / seconds,
        };
        let (reads, records) =
            self.readers.iter().fold((0, 0), |sum, reader| (sum.0 + reader.reads, sum.1 + reader.records));
        Outcome {
            nodes: self.used.iter().map(each).collect(),
            publishes: Latency::of(&self.measured.publishes),
            pages: Latency::of(&self.measured.pages),
            deliveries: Latency::of(&self.measured.deliveries),
            sent: self.measured.sent,
            answered: self.measured.answered,
            log_sent_bytes: records as f64 * self.scenario.costs.event_bytes / seconds,
            records_per_read: records as f64 / reads.max(1) as f64,
        }
    }
}

//! The log and the nodes that read it: from judging a publish to applying it on every node.

use std::collections::VecDeque;

use crate::simulation::resources::{Time, micros};
use crate::simulation::run::{Event, Simulation};

/// Maximum number of records that a node reads from the log at once, as in the engine.
const RECORDS_PER_READ_MAX: usize = 1_024;

/// Deliveries of a post that one courier makes before another one may help.
const SLICE: f64 = 250.0;

/// Deliveries of a post that wait for a courier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    deliveries: f64,
    began: Time,
    is_last: bool,
}

/// An event in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) request: usize,
    /// The node that owns the author.
    pub(super) owner: usize,
    pub(super) began: Time,
    /// The author's active followers on all nodes.
    pub(super) followers: f64,
}

/// The log: records in their order.
#[derive(Debug, Default)]
pub(super) struct Log {
    records: Vec<Record>,
    /// The number of records that readers may see.
    stored: usize,
    /// The time at which the group that was sent last is stored.
    stored_at: Time,
    /// Publishes that wait for the sequencer's command processor.
    unjudged: Vec<usize>,
    judging: Vec<usize>,
}

/// The state of a node. `fetched`, `decoded` and `applied` are numbers of records from the start of the log.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// The share of the users that the node owns.
    pub(super) share: f64,
    is_fetching: bool,
    is_decoding: bool,
    is_processor_busy: bool,
    fetched: usize,
    decoded: usize,
    applied: usize,
    /// Requests that wait for a worker.
    pub(super) waiting: Vec<usize>,
    pub(super) busy_workers: usize,
    /// Deliveries that wait for a courier.
    pub(super) slices: VecDeque<Slice>,
    pub(super) busy_couriers: usize,
    /// Number of reads from the log and number of their records, in the measured time.
    pub(super) reads: u64,
    pub(super) records: u64,
}

impl NodeState {
    pub(super) fn new(share: f64) -> Self {
        Self { share, ..Self::default() }
    }
}

impl Simulation<'_> {
    /// A publish reaches the command processor of the sequencer.
    pub(super) fn judge(&mut self, request: usize) {
        self.log.unjudged.push(request);
        self.wake_processor(0);
    }

    /// Lets an idle command processor apply decoded records, or otherwise judge waiting publishes.
    fn wake_processor(&mut self, node: usize) {
        let half = self.scenario.costs.processor_us / 2.0;
        let state = &mut self.states[node];
        if state.is_processor_busy {
            return;
        }
        let (us, next) = if state.applied < state.decoded {
            ((state.decoded - state.applied) as f64 * half, Event::Applied(node, state.decoded))
        } else if node == 0 && !self.log.unjudged.is_empty() {
            self.log.judging = std::mem::take(&mut self.log.unjudged);
            let count = self.log.judging.len();
            (count as f64 * half + self.scenario.costs.processor_append_us, Event::Judged)
        } else {
            return;
        };
        state.is_processor_busy = true;
        let done = self.work(node, us);
        if self.measured.is_on {
            self.used[node].processor += us;
        }
        self.at(done, next);
    }

    /// The command processor of the sequencer has judged a group. Sends the group to the log.
    pub(super) fn judged(&mut self) {
        self.states[0].is_processor_busy = false;
        for request in std::mem::take(&mut self.log.judging) {
            let record = self.new_record(request);
            self.log.records.push(record);
        }
        let costs = self.scenario.costs;
        self.work(0, costs.append_us - costs.processor_append_us);
        let written = self.work_elsewhere(costs.broker_us);
        let committed = written + micros(self.spread(costs.commit_us, costs.commit_spread));
        // The log stores groups in their order, several at a time.
        self.log.stored_at = self.log.stored_at.max(committed);
        let end = self.log.records.len();
        self.at(self.log.stored_at, Event::Stored(end));
        self.wake_processor(0);
    }

    pub(super) fn stored(&mut self, end: usize) {
        self.log.stored = self.log.stored.max(end);
        (0..self.states.len()).for_each(|node| self.fetch(node));
    }

    /// Reads the records from the log that a node does not have, unless a read is in progress.
    fn fetch(&mut self, node: usize) {
        let state = &mut self.states[node];
        if state.is_fetching || state.fetched == self.log.stored {
            return;
        }
        state.is_fetching = true;
        let end = self.log.stored.min(state.fetched + RECORDS_PER_READ_MAX);
        let sent = self.work_elsewhere(self.scenario.costs.broker_us);
        self.at(sent + micros(self.scenario.costs.hop_us), Event::Fetched(node, end));
    }

    pub(super) fn fetched(&mut self, node: usize, end: usize) {
        let state = &mut self.states[node];
        if self.measured.is_on {
            state.reads += 1;
            state.records += (end - state.fetched) as u64;
        }
        (state.fetched, state.is_fetching) = (end, false);
        self.decode(node);
        self.fetch(node);
    }

    fn decode(&mut self, node: usize) {
        let costs = self.scenario.costs;
        let state = &mut self.states[node];
        if state.is_decoding || state.decoded == state.fetched {
            return;
        }
        state.is_decoding = true;
        let (count, end) = ((state.fetched - state.decoded) as f64, state.fetched);
        let done = self.work(node, costs.read_us + count * (costs.apply_us - costs.processor_us / 2.0));
        self.at(done, Event::Decoded(node, end));
    }

    pub(super) fn decoded(&mut self, node: usize, end: usize) {
        let state = &mut self.states[node];
        (state.decoded, state.is_decoding) = (end, false);
        self.decode(node);
        self.wake_processor(node);
    }

    pub(super) fn applied(&mut self, node: usize, end: usize) {
        let state = &mut self.states[node];
        let start = state.applied;
        (state.applied, state.is_processor_busy) = (end, false);
        for nth in start..end {
            let record = self.log.records[nth];
            self.was_applied(node, record);
            self.deliver(node, record);
        }
        self.wake_processor(node);
    }

    pub(super) fn new_record(&mut self, request: usize) -> Record {
        let work = self.scenario.work;
        // The mean of this distribution is `followers` of the scenario.
        let median = work.followers / (work.spread * work.spread / 2.0).exp();
        let followers = if work.spread > 0.0 { self.spread(median, work.spread) } else { work.followers };
        Record { request, owner: self.requests[request].owner, began: self.requests[request].began, followers }
    }

    /// Gives a post to the couriers of a node.
    pub(super) fn deliver(&mut self, node: usize, record: Record) {
        let mut left = record.followers * self.states[node].share;
        while left > 0.0 {
            let deliveries = left.min(SLICE);
            left -= deliveries;
            self.states[node].slices.push_back(Slice { deliveries, began: record.began, is_last: left <= 0.0 });
        }
        self.wake_courier(node);
    }

    pub(super) fn wake_courier(&mut self, node: usize) {
        let (costs, online_share) = (self.scenario.costs, self.scenario.work.online_share);
        while self.states[node].busy_couriers < self.threads
            && let Some(slice) = self.states[node].slices.pop_front()
        {
            self.states[node].busy_couriers += 1;
            let mut done = self.work(node, slice.deliveries * (costs.delivery_us + online_share * costs.message_us));
            self.at(done, Event::Delivered(node));
            let bytes = slice.deliveries * online_share * costs.message_bytes;
            if bytes > 0.0 {
                done = self.send(node, done, bytes);
            }
            if self.measured.is_on && slice.is_last {
                self.measured.deliveries.saturating_record(done - slice.began);
            }
        }
    }
}

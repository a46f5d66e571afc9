//! The log, and the nodes that read it: from the judgement of a publish to its application on every node.
//!
//! Responsible for:
//! - groups: what waits for the scribe is judged at once, what was stored meanwhile is read at once;
//! - the order: the log stores groups one after the other, and a node decodes and applies them one after the other.
//!
//! Not responsible for:
//! - the way of a request to the sequencer and back ([`super::run`]).

use crate::simulation::resources::{Time, micros};
use crate::simulation::run::{Event, Simulation};

/// Maximum number of records that a node takes from the log at once, as the engine has it.
const RECORDS_PER_READ_MAX: usize = 1_024;

/// An event in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) request: usize,
    /// The node that owns its author.
    pub(super) owner: usize,
    pub(super) began: Time,
    /// The active followers of its author, of all nodes.
    pub(super) followers: f64,
}

/// The log: records in their order.
#[derive(Debug, Default)]
pub(super) struct Log {
    records: Vec<Record>,
    /// The number of records that readers may see.
    stored: usize,
    /// When the group that was sent last is stored.
    stored_at: Time,
    /// Publishes that wait for the sequencer's scribe.
    unjudged: Vec<usize>,
    judging: Vec<usize>,
}

/// A node as a reader of the log. The numbers are of records, from the start of the log.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The share of the users that it owns.
    pub(super) share: f64,
    is_fetching: bool,
    is_decoding: bool,
    is_scribe_busy: bool,
    fetched: usize,
    decoded: usize,
    applied: usize,
    /// Reads from the log and their records, in the measured time.
    pub(super) reads: u64,
    pub(super) records: u64,
}

impl Reader {
    pub(super) fn new(share: f64) -> Self {
        Self { share, ..Self::default() }
    }
}

impl Simulation<'_> {
    /// A publish reaches the scribe of the sequencer.
    pub(super) fn judge(&mut self, request: usize) {
        self.log.unjudged.push(request);
        self.wake_scribe(0);
    }

    /// Lets an idle scribe apply what was read, or else judge what waits.
    fn wake_scribe(&mut self, node: usize) {
        let half = self.scenario.costs.scribe_us / 2.0;
        let reader = &mut self.readers[node];
        if reader.is_scribe_busy {
            return;
        }
        let (us, next) = if reader.applied < reader.decoded {
            ((reader.decoded - reader.applied) as f64 * half, Event::Applied(node, reader.decoded))
        } else if node == 0 && !self.log.unjudged.is_empty() {
            self.log.judging = std::mem::take(&mut self.log.unjudged);
            let count = self.log.judging.len();
            (count as f64 * half + self.scenario.costs.append_us, Event::Judged(count))
        } else {
            return;
        };
        reader.is_scribe_busy = true;
        let done = self.work(node, us);
        if self.measured.is_on {
            self.used[node].scribe += us;
        }
        self.at(done, next);
    }

    /// The scribe of the sequencer has judged a group, which goes to the log.
    pub(super) fn judged(&mut self, _count: usize) {
        self.readers[0].is_scribe_busy = false;
        for request in std::mem::take(&mut self.log.judging) {
            let record = self.new_record(request);
            self.log.records.push(record);
        }
        let costs = self.scenario.costs;
        let written = self.work_elsewhere(costs.broker_us);
        let committed = written + micros(self.spread(costs.commit_us, costs.commit_spread));
        // Groups are stored in their order, several at a time.
        self.log.stored_at = self.log.stored_at.max(committed);
        let end = self.log.records.len();
        self.at(self.log.stored_at, Event::Stored(end));
        self.wake_scribe(0);
    }

    pub(super) fn stored(&mut self, end: usize) {
        self.log.stored = self.log.stored.max(end);
        (0..self.readers.len()).for_each(|node| self.fetch(node));
    }

    /// Asks the log for what a node does not have, unless it is asking already.
    fn fetch(&mut self, node: usize) {
        let reader = &mut self.readers[node];
        if reader.is_fetching || reader.fetched == self.log.stored {
            return;
        }
        reader.is_fetching = true;
        let end = self.log.stored.min(reader.fetched + RECORDS_PER_READ_MAX);
        let sent = self.work_elsewhere(self.scenario.costs.broker_us);
        self.at(sent + micros(self.scenario.costs.hop_us), Event::Fetched(node, end));
    }

    pub(super) fn fetched(&mut self, node: usize, end: usize) {
        let reader = &mut self.readers[node];
        if self.measured.is_on {
            reader.reads += 1;
            reader.records += (end - reader.fetched) as u64;
        }
        (reader.fetched, reader.is_fetching) = (end, false);
        self.decode(node);
        self.fetch(node);
    }

    fn decode(&mut self, node: usize) {
        let costs = self.scenario.costs;
        let reader = &mut self.readers[node];
        if reader.is_decoding || reader.decoded == reader.fetched {
            return;
        }
        reader.is_decoding = true;
        let (count, end) = ((reader.fetched - reader.decoded) as f64, reader.fetched);
        let done = self.work(node, costs.read_us + count * (costs.apply_us - costs.scribe_us / 2.0));
        self.at(done, Event::Decoded(node, end));
    }

    pub(super) fn decoded(&mut self, node: usize, end: usize) {
        let reader = &mut self.readers[node];
        (reader.decoded, reader.is_decoding) = (end, false);
        self.decode(node);
        self.wake_scribe(node);
    }

    pub(super) fn applied(&mut self, node: usize, end: usize) {
        let reader = &mut self.readers[node];
        let start = reader.applied;
        (reader.applied, reader.is_scribe_busy) = (end, false);
        for nth in start..end {
            let record = self.log.records[nth];
            self.was_applied(node, record);
            self.deliver(node, record);
        }
        self.wake_scribe(node);
    }
}

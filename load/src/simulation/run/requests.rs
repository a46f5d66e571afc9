//! Requests: the node that receives them, the nodes on their path, and the time of their answer.

use crate::simulation::resources::{Time, micros};
use crate::simulation::run::log::Record;
use crate::simulation::run::{Event, Simulation};

/// Bytes of a request to publish, and of its answer.
const PUBLISH_BYTES: f64 = 500.0;
const ANSWER_BYTES: f64 = 300.0;

/// Work of one node on the path of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leg {
    pub(super) node: usize,
    pub(super) us: f64,
    /// Bytes that the node sends afterwards.
    pub(super) bytes: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Page,
    Publish,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) began: Time,
    pub(super) client: Option<usize>,
    pub(super) legs: Vec<Leg>,
    /// The index of the current leg.
    pub(super) at: usize,
    /// The index of the leg after which a publish is judged.
    pub(super) judged_after: usize,
    pub(super) owner: usize,
    /// The number of nodes that still have to apply a publish before it is answered.
    pub(super) unapplied: u8,
}

impl Simulation<'_> {
    pub(super) fn read(&mut self, entry: usize, owner: usize, client: Option<usize>) {
        let costs = self.scenario.costs;
        let legs = if entry == owner {
            vec![Leg { node: owner, us: costs.page_us, bytes: costs.page_bytes }]
        } else {
            // Forwarding costs both nodes: half of it before the answer and half of it after.
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

    /// A publish goes through the owner of its author to the sequencer. Its answer takes the same path back.
    pub(super) fn publish(&mut self, entry: usize, owner: usize, client: Option<usize>) {
        let costs = self.scenario.costs;
        let mut path = vec![entry, owner, 0];
        path.dedup();
        let last = path.len() - 1;
        // Each hop costs a quarter at both ends on the way there, and a quarter on the way back.
        let hops = |nth: usize| f64::from(u8::from(nth > 0) + u8::from(nth < last));
        let mut legs: Vec<Leg> = (path.iter().enumerate())
            .map(|(nth, node)| Leg { node: *node, us: hops(nth) * costs.pass_us / 4.0, bytes: PUBLISH_BYTES })
            .collect();
        let back: Vec<Leg> = legs.iter().rev().map(|leg| Leg { bytes: ANSWER_BYTES, ..*leg }).collect();
        legs[last].us += costs.judge_us - costs.processor_us / 2.0;
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

    /// Lets an idle worker take all waiting requests. The cost of waking it does not depend on their number.
    pub(super) fn wake_worker(&mut self, node: usize) {
        if self.states[node].busy_workers == self.threads || self.states[node].waiting.is_empty() {
            return;
        }
        self.states[node].busy_workers += 1;
        let taken = std::mem::take(&mut self.states[node].waiting);
        let each: Vec<f64> = taken.iter().map(|id| self.requests[*id].legs[self.requests[*id].at].us).collect();
        let us = self.scenario.costs.wake_us + each.iter().sum::<f64>();
        let done = self.work(node, us);
        // Each request continues when its own part of the work is done, in order.
        let mut left = each.iter().sum::<f64>();
        for (id, us) in taken.into_iter().zip(each) {
            left -= us;
            self.at(done - micros(left).min(done), Event::Leaves(id));
        }
        self.at(done, Event::WorkerIsFree(node));
    }

    pub(super) fn leave(&mut self, id: usize) {
        let request = &self.requests[id];
        if request.at == request.judged_after {
            return self.judge(id);
        }
        self.go_on(id);
    }

    /// Sends a request from the node of its current leg to the node of the next leg, or answers it.
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

    /// A node has applied a publish.
    pub(super) fn was_applied(&mut self, node: usize, record: Record) {
        // The request does not wait for the other nodes, which may apply it after its answer.
        if node != 0 && node != record.owner {
            return;
        }
        let request = &mut self.requests[record.request];
        request.unapplied -= 1;
        if request.unapplied == 0 {
            self.go_on(record.request);
        }
    }

    pub(super) fn answered(&mut self, id: usize) {
        let request = &self.requests[id];
        let (took, client) = (self.now - request.began, request.client);
        if self.measured.is_on {
            self.measured.answered += 1;
            self.measured.answered_at = self.now;
            match request.kind {
                Kind::Page => self.measured.pages.saturating_record(took),
                Kind::Publish => self.measured.publishes.saturating_record(took),
            }
        }
        self.free.push(id);
        if let Some(client) = client
            && self.unsent > 0
        {
            self.unsent -= 1;
            let next = self.work_elsewhere(self.scenario.costs.client_us);
            self.at(next, Event::Client(client));
        }
    }
}

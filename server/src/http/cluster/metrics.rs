//! The metrics of forwarded requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::http::cluster::peer_auth::PeerRole;
use tidewire::latency::Latency;
use tidewire::runtime::counters::Counter;

/// The result of forwarding a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The other node has answered, possibly with a refusal.
    Answered,
    /// The request was not sent, or was a read that another node can answer later.
    Unavailable,
    /// The answer to a write was lost.
    Unknown,
    /// The other node has lost the role, or does not have it yet. The sender decides again.
    Moved,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Answered, Self::Unavailable, Self::Unknown, Self::Moved];

    fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Moved => "moved",
        }
    }
}

/// The metrics of forwarded requests, by the role of the receiver.
#[derive(Debug)]
pub(in crate::http) struct PassMetrics {
    outcomes: [[Counter; Outcome::ALL.len()]; PeerRole::ALL.len()],
    /// Time from sending a request to the head of its response.
    latency: [Latency; PeerRole::ALL.len()],
    /// Reads that were sent a second time.
    retried: Counter,
    live: Arc<AtomicUsize>,
    live_max: usize,
}

impl PassMetrics {
    pub(super) fn new(live_max: usize) -> Self {
        let (outcomes, latency, live) = Default::default();
        Self { outcomes, latency, retried: Counter::default(), live, live_max }
    }

    /// Counts a forwarded request.
    pub(super) fn count(&self, to: PeerRole, outcome: Outcome, took: Duration) {
        self.outcomes[to.index()][outcome as usize].add(1);
        self.latency[to.index()].record(took);
    }

    /// Counts a read that is sent a second time.
    pub(super) fn count_retry(&self) {
        self.retried.add(1);
    }

    /// Reserves a slot for a live connection, or returns `None` if all are in use.
    pub(super) fn enter_live(&self) -> Option<LiveSlot> {
        let enter = |taken: usize| (taken < self.live_max).then_some(taken + 1);
        let entered = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter);
        entered.ok().map(|_| LiveSlot(Arc::clone(&self.live)))
    }

    /// Returns the number of requests by role and outcome.
    pub(in crate::http) fn outcomes(&self) -> impl Iterator<Item = ([(&'static str, &'static str); 2], u64)> {
        PeerRole::ALL.into_iter().flat_map(move |to| {
            Outcome::ALL.into_iter().map(move |outcome| {
                let labels = [("to", to.name()), ("outcome", outcome.name())];
                (labels, self.outcomes[to.index()][outcome as usize].get())
            })
        })
    }

    /// Returns the latency by role.
    pub(in crate::http) fn latency(&self) -> impl Iterator<Item = (&str, &Latency)> {
        PeerRole::ALL.into_iter().map(|to| (to.name(), &self.latency[to.index()]))
    }

    /// Returns the number of reads that were sent a second time.
    pub(in crate::http) fn retried(&self) -> u64 {
        self.retried.get()
    }

    /// Returns the number of forwarded live connections, and their limit.
    pub(in crate::http) fn live(&self) -> (usize, usize) {
        (self.live.load(Ordering::Relaxed), self.live_max)
    }
}

/// The slot of a live connection, released on drop.
#[derive(Debug)]
pub(super) struct LiveSlot(Arc<AtomicUsize>);

impl Drop for LiveSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_connections_are_limited_and_release_their_slot() {
        let metrics = PassMetrics::new(2);
        let taken = [metrics.enter_live().unwrap(), metrics.enter_live().unwrap()];
        assert!(metrics.enter_live().is_none());
        drop(taken);
        assert!(metrics.enter_live().is_some());
        assert_eq!(metrics.live(), (0, 2));
    }
}

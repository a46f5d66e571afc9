//! Counters of received messages and of errors, over all connections.

use std::collections::BTreeMap;

use crate::live::numbers::Tally;

/// The counters of all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Number of received posts, summed over all connections.
    pub(super) messages: u64,
    /// Lost, repeated and reordered messages.
    pub(super) tally: Tally,
    /// Number of answered pings.
    pub(super) pings: u64,
    /// Number of closed connections by close code.
    pub(super) left: BTreeMap<u16, u64>,
    /// Number of connections that could not be reopened.
    pub(super) turned_away: u64,
}

impl Counts {
    /// Counts a connection that was closed with this code.
    pub(super) fn leave(&mut self, code: u16) {
        *self.left.entry(code).or_default() += 1;
    }

    /// Returns the number of closed connections.
    pub(super) fn closed(&self) -> u64 {
        self.left.values().sum()
    }

    /// Returns descriptions of all errors, and their total number.
    pub(super) fn troubles(&self) -> (Vec<String>, u64) {
        let mut reported = self.tally.describe();
        reported.extend(self.left.iter().map(|(code, count)| format!("{count} connections closed with {code}")));
        (reported, self.tally.total() + self.closed())
    }
}

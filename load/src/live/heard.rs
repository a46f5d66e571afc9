//! What connections have heard together, and what went wrong with them.

use std::collections::BTreeMap;

use crate::live::numbers::Tally;

/// Counts of all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Posts that were heard, by each connection.
    pub(super) messages: u64,
    /// Whether messages came in order, each once.
    pub(super) tally: Tally,
    /// Pings that were answered.
    pub(super) pings: u64,
    /// Connections that were closed, by code.
    pub(super) left: BTreeMap<u16, u64>,
    /// Connections that could not be opened again.
    pub(super) turned_away: u64,
}

impl Counts {
    /// A connection was closed with this code.
    pub(super) fn leave(&mut self, code: u16) {
        *self.left.entry(code).or_default() += 1;
    }

    /// How many connections were closed.
    pub(super) fn closed(&self) -> u64 {
        self.left.values().sum()
    }

    /// What went wrong, in words, and how many times something did.
    pub(super) fn troubles(&self) -> (Vec<String>, u64) {
        let mut told = self.tally.told();
        told.extend(self.left.iter().map(|(code, count)| format!("{count} connections closed with {code}")));
        (told, self.tally.total() + self.closed())
    }
}

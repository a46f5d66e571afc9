//! The messages that connections receive: their order on one connection, and counters over all connections. It does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Maximum missing numbers of a connection that are remembered, to distinguish a late message from a repeated one.
const MISSING_MAX: usize = 1_024;

/// Receives the events of connections.
pub(super) trait Listener {
    /// A connection received its `nth` post.
    fn on_post(&self, nth: usize, at: Instant);
    /// A message was received, with this order on its connection.
    fn count(&self, order: Order);
    /// A message without a number was received.
    fn count_unnumbered(&self);
    /// A ping was received.
    fn pinged(&self);
    /// A connection was closed with this code.
    fn leave(&self, code: u16);
}

/// The message numbers received on one connection. They increase by one.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: Option<u64>,
    missing: BTreeSet<u64>,
}

/// The order of a message, determined from its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// The first message, or the one after the last.
    Next,
    /// This many messages before it are missing.
    Gap(u64),
    /// The message was missing until now.
    Late,
    /// The message was received before.
    Again,
}

impl Numbers {
    /// Returns true if a message was received.
    pub(super) fn begun(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the greatest number received.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Records the number of a received message.
    pub(super) fn take(&mut self, number: u64) -> Order {
        let Some(last) = self.last else {
            self.last = Some(number);
            return Order::Next;
        };
        if number <= last {
            return if self.missing.remove(&number) { Order::Late } else { Order::Again };
        }
        self.last = Some(number);
        let room = MISSING_MAX.saturating_sub(self.missing.len());
        self.missing.extend((last + 1..number).take(room));
        match number - last - 1 {
            0 => Order::Next,
            lost => Order::Gap(lost),
        }
    }
}

/// Error counts of messages, over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// Number of messages that never arrived.
    pub(super) lost: u64,
    /// Number of messages that arrived again.
    pub(super) doubled: u64,
    /// Number of messages that arrived after later ones.
    pub(super) out_of_order: u64,
    /// Number of messages that could not be parsed.
    pub(super) unnumbered: u64,
}

impl Tally {
    pub(super) fn add(&mut self, order: Order) {
        match order {
            Order::Next => {}
            Order::Gap(lost) => self.lost += lost,
            Order::Late => {
                self.lost = self.lost.saturating_sub(1);
                self.out_of_order += 1;
            }
            Order::Again => self.doubled += 1,
        }
    }

    /// Describes all errors; empty if there are none.
    pub(super) fn describe(&self) -> Vec<String> {
        let all = [
            (self.lost, "lost"),
            (self.doubled, "doubled"),
            (self.out_of_order, "out of order"),
            (self.unnumbered, "without a number"),
        ];
        all.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} messages {what}")).collect()
    }

    pub(super) fn total(&self) -> u64 {
        self.lost + self.doubled + self.out_of_order + self.unnumbered
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(numbers: &[u64], lost: u64, doubled: u64, out_of_order: u64) {
        let mut tally = Tally::default();
        let mut seen = Numbers::default();
        numbers.iter().for_each(|number| tally.add(seen.take(*number)));
        assert_eq!(tally, Tally { lost, doubled, out_of_order, unnumbered: 0 }, "{numbers:?}");
    }

    #[test]
    fn lost_duplicate_and_reordered_posts_are_distinguished() {
        check(&[], 0, 0, 0);
        check(&[7, 8, 9], 0, 0, 0);
        check(&[7, 10], 2, 0, 0);
        check(&[7, 8, 8, 9], 0, 1, 0);
        check(&[7, 9, 8, 10], 0, 0, 1);
        check(&[7, 10, 9], 1, 0, 1);
        check(&[7, 9, 8, 8], 0, 1, 1);
        // Messages before the first one are not expected.
        check(&[7, 3], 0, 1, 0);
    }

    #[test]
    fn the_number_of_remembered_missing_numbers_is_bounded() {
        let mut seen = Numbers::default();
        assert_eq!(seen.take(0), Order::Next);
        assert_eq!(seen.take(5_000), Order::Gap(4_999));
        assert_eq!(seen.missing.len(), MISSING_MAX);
        assert_eq!(seen.take(u64::MAX), Order::Gap(u64::MAX - 5_001));
        assert_eq!((seen.missing.len(), seen.take(3)), (MISSING_MAX, Order::Late));
    }

    #[test]
    fn a_tally_without_errors_has_no_description() {
        assert!(Tally::default().describe().is_empty());
        let tally = Tally { lost: 3, unnumbered: 1, ..Tally::default() };
        assert_eq!(tally.describe(), ["3 messages lost", "1 messages without a number"]);
        assert_eq!(tally.total(), 4);
    }
}

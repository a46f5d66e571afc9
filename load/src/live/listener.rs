//! The interface for counting the messages that connections receive.

use std::time::Instant;

use crate::live::numbers::Order;

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

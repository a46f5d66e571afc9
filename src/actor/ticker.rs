//! Instants and post ids that only ever increase, whatever the clock does.

use std::sync::Arc;

use crate::clock::{Clock, UnixMicros};
use crate::id::PostId;

/// Hands out instants and ids. Each instant is given once.
pub struct Ticker {
    clock: Arc<dyn Clock>,
    last: UnixMicros,
    last_id: u64,
}

/// Bits of an id below the microsecond: room for ids minted faster than the clock ticks.
const ID_SUB_BITS: u32 = 12;

/// Ids run out here, in the year 2112.
const END: UnixMicros = UnixMicros((u64::MAX >> ID_SUB_BITS) as i64);

/// The latest instant a clock is believed, a year before. A clock that once showed more would leave no ids for after it was
/// set right.
const LATEST: UnixMicros = UnixMicros(END.0 - 366 * 24 * 3_600 * 1_000_000);

impl Ticker {
    /// A ticker on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: UnixMicros(i64::MIN), last_id: 0 }
    }

    /// A ticker that goes on after `last`, which was taken in an earlier life.
    #[must_use]
    pub fn after(mut self, last: UnixMicros) -> Self {
        // What was handed out is never near the end, whatever a journal says.
        let handed_out = last.0 < LATEST.0 + (END.0 - LATEST.0) / 2;
        self.last = if handed_out { last } else { LATEST };
        self.last_id = id_at(self.last) | ((1 << ID_SUB_BITS) - 1);
        self
    }

    /// The last instant that was taken.
    pub fn last(&self) -> UnixMicros {
        self.last
    }

    /// What the clock shows, without taking it.
    pub fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    /// Takes `count` instants in a row, one microsecond apart, and returns the first.
    pub fn take(&mut self, count: usize) -> UnixMicros {
        let first = self.clock.now().min(LATEST).0.max(self.last.0.saturating_add(1));
        self.last = UnixMicros(first + count.max(1) as i64 - 1);
        UnixMicros(first)
    }

    /// The smallest id that it may mint next.
    pub fn next_id(&self) -> PostId {
        PostId(id_at(self.clock.now().min(LATEST)).max(self.last_id.saturating_add(1)))
    }

    /// Mints an id in time order: microseconds since 1970, shifted (until the year 2112), and a count.
    pub fn mint(&mut self, at: UnixMicros) -> PostId {
        self.last_id = id_at(at).max(self.last_id + 1);
        PostId(self.last_id)
    }
}

/// The first id of an instant.
fn id_at(at: UnixMicros) -> u64 {
    u64::try_from(at.0).unwrap_or(0) << ID_SUB_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn another_life_goes_on_where_the_last_one_ended() {
        let clock = Arc::new(ManualClock::new(UnixMicros(1_000)));
        let mut first = Ticker::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let instant = first.take(7);
        let id = first.mint(instant);
        clock.set(UnixMicros(3));
        let mut second = Ticker::new(clock).after(first.last());
        let next = second.take(1);
        assert!(next > first.last() && second.mint(next) > id);
    }

    #[test]
    fn instants_and_ids_increase_when_the_clock_steps_back() {
        let clock = Arc::new(ManualClock::new(UnixMicros(1_000)));
        let mut ticker = Ticker::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let mut instants = vec![ticker.take(3), ticker.take(1)];
        clock.set(UnixMicros(5));
        instants.push(ticker.take(1));
        clock.set(UnixMicros(2_000));
        instants.push(ticker.take(1));
        assert_eq!(instants, [1_000, 1_003, 1_004, 2_000].map(UnixMicros));
        let ids: Vec<PostId> = instants.iter().chain([&UnixMicros(7)]).map(|at| ticker.mint(*at)).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    }
}

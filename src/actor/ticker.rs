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

impl Ticker {
    /// A ticker on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: UnixMicros(i64::MIN), last_id: 0 }
    }

    /// What the clock shows, without taking it.
    pub fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    /// Takes `count` instants in a row, one microsecond apart, and returns the first.
    pub fn take(&mut self, count: usize) -> UnixMicros {
        let first = self.clock.now().0.max(self.last.0.saturating_add(1));
        self.last = UnixMicros(first + count.max(1) as i64 - 1);
        UnixMicros(first)
    }

    /// Mints an id in time order: microseconds since 1970, shifted (until the year 2112), and a count.
    pub fn mint(&mut self, at: UnixMicros) -> PostId {
        let by_time = u64::try_from(at.0).unwrap_or(0) << ID_SUB_BITS;
        self.last_id = by_time.max(self.last_id + 1);
        PostId(self.last_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

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

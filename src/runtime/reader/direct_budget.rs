//! The time budget of direct reads.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// While more deliveries are due, direct reads may take one part in this many of the time of each shard's thread.
const TIME_SHARE: u64 = 8;

/// Maximum time that direct reads can save up, in nanoseconds.
const SAVED_NS_MAX: i64 = 2_000_000;

/// The time that direct reads may take while couriers are busy.
#[derive(Debug, Default)]
pub(crate) struct DirectBudget {
    /// The time left, in nanoseconds. Below zero if reads took longer than expected.
    left_ns: AtomicI64,
    /// The time of the last addition, in nanoseconds since the start of the engine.
    added_at_ns: AtomicU64,
}

impl DirectBudget {
    /// Returns true if another read may begin at `now_ns`, while couriers are busy.
    pub(super) fn may_begin(&self, now_ns: u64, shards: usize) -> bool {
        let before = self.added_at_ns.fetch_max(now_ns, Ordering::Relaxed);
        let added = now_ns.saturating_sub(before).saturating_mul(shards as u64) / TIME_SHARE;
        let added = i64::try_from(added).unwrap_or(i64::MAX);
        let left = self.left_ns.load(Ordering::Relaxed);
        let left = left.saturating_add(added).min(SAVED_NS_MAX) - left;
        self.left_ns.fetch_add(left, Ordering::Relaxed) + left > 0
    }

    pub(super) fn took(&self, ns: u64) {
        self.left_ns.fetch_sub(i64::try_from(ns).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_couriers_leave_direct_reads_a_share_of_the_time() {
        let reads = DirectBudget::default();
        let mut now_ns = 1_000_000_000;
        while reads.may_begin(now_ns, 1) {
            reads.took(10_000);
        }
        let mut begun = 0;
        for _ in 0..1_000 {
            now_ns += 100_000;
            while reads.may_begin(now_ns, 1) {
                reads.took(10_000);
                begun += 1;
            }
        }
        // An eighth of 100 ms, in reads of 10 us.
        assert!((1_200..=1_300).contains(&begun), "{begun}");
        reads.took(100_000_000);
        assert!(
            !reads.may_begin(now_ns + 100_000, 1) && reads.may_begin(now_ns + 1_000_000_000, 1),
            "debt is paid by time"
        );
    }
}

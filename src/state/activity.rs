//! The activity of sources: decaying counts of the posts that they published and of the pages that they read.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};

use crate::clock::UnixMicros;
use crate::feed::decaying::decayed;

/// The decaying count of the posts of a source.
#[derive(Debug, Default)]
pub struct Posts {
    /// The count as of the last post, as the bits of a float.
    count: AtomicU32,
    last: AtomicI64,
}

impl Posts {
    /// Counts a post. Only the state machine calls it.
    pub fn note(&self, now: UnixMicros) {
        let count = self.at(now) + 1.0;
        // A read between the two stores returns a slightly wrong count once.
        self.last.store(now.0, Ordering::Relaxed);
        self.count.store(count.to_bits(), Ordering::Relaxed);
    }

    /// Returns the count as of `now`.
    pub fn at(&self, now: UnixMicros) -> f32 {
        let count = f32::from_bits(self.count.load(Ordering::Relaxed));
        decayed(count, UnixMicros(self.last.load(Ordering::Relaxed)), now)
    }
}

/// Units of the count in a page: with fewer, rounding would distort the counts of frequent readers.
const UNITS_PER_PAGE: u16 = 16;

/// The decaying count of the pages that a reader read, as of the time when the reader was last seen. It has two bytes, which fit beside
/// the other fields of a source. It ends at 4,095, so a reader with more than 2,800 pages a day counts like one with 2,800.
#[derive(Debug, Default)]
pub struct Pages(AtomicU16);

impl Pages {
    /// Counts a page. This is not a read-modify-write operation: of two simultaneous pages of one reader, one may be lost.
    pub fn note(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(UNITS_PER_PAGE), Ordering::Relaxed);
    }

    /// Returns the count as of `now`, of a reader who was last seen at `seen`.
    pub fn at(&self, seen: UnixMicros, now: UnixMicros) -> f32 {
        decayed(f32::from(self.0.load(Ordering::Relaxed)), seen, now) / f32::from(UNITS_PER_PAGE)
    }

    /// Applies the decay to the count, because the reader is seen again.
    pub fn decay(&self, seen: UnixMicros, now: UnixMicros) {
        let count = self.0.load(Ordering::Relaxed);
        let left = decayed(f32::from(count), seen, now).round() as u16;
        if left != count {
            self.0.store(left, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::decaying::HALF_LIFE;

    /// Returns both counts after many days with this many occurrences each.
    fn steady(per_day: u32) -> (f32, f32) {
        let (posts, pages, mut now) = (Posts::default(), Pages::default(), UnixMicros(0));
        for _ in 0..12 * per_day {
            let seen = now;
            now = now.saturating_add(HALF_LIFE / per_day);
            posts.note(now);
            pages.decay(seen, now);
            pages.note();
        }
        (posts.at(now), pages.at(now, now))
    }

    #[test]
    fn a_steady_rate_has_a_steady_count_of_pages_and_posts() {
        for per_day in [1, 10, 100, 1_000, 2_800] {
            let expected = per_day as f32 / std::f32::consts::LN_2 + 0.5;
            let (posts, pages) = steady(per_day);
            for count in [posts, pages] {
                assert!((count / expected - 1.0).abs() < 0.05, "{posts} and {pages} of {expected}");
            }
        }
        assert!(steady(10_000).1 < 4_096.0);
    }

    #[test]
    fn the_count_of_a_page_decays_to_zero() {
        let pages = Pages::default();
        pages.note();
        let at = |half_lives| UnixMicros(0).saturating_add(HALF_LIFE * half_lives);
        assert!((pages.at(UnixMicros(0), at(7)) - 1.0 / 128.0).abs() < 0.001);
        pages.decay(UnixMicros(0), at(6));
        assert_eq!(pages.at(at(6), at(6)), 0.0);
    }
}

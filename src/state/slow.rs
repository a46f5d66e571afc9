//! Slow sources: those whose archived posts took long to read lately, so that no page waits for them before it has read all others.
//!
//! Responsible for:
//! - remembering which sources were slow, for how long one read took, and when the next may be tried all the same;
//! - whether a page may read such a source, and whether the time of a slow read counts against the page.
//!
//! Not responsible for:
//! - the order in which outboxes are read (`feed::merge`), what a page does without one (`feed::page`).
//!
//! A read of the archive cannot be broken off. So a source is found to be slow by a read that has taken the time already; that time is not
//! counted against the page, or the sources that it had yet to read would be missing in place of the slow one. From then on the source
//! is read last, if its last read would fit into the time that is left. If not, it is left out and named, but for a probe now and then, of
//! one source at a time. A page of one source reads it all the same.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::id::SourceSlot;
use crate::limits::{
    SLOW_READ_MIN, SLOW_READ_SHARE, SLOW_READS_EXCUSED_MAX, SLOW_SOURCE_PROBE_MAX, SLOW_SOURCE_PROBE_MIN,
    SLOW_SOURCE_PROBE_RESTS, SLOW_SOURCES_MAX,
};
use crate::state::reader::ReadClock;

/// Which sources were slow lately. At most [`SLOW_SOURCES_MAX`].
#[derive(Debug, Default)]
pub struct SlowSources {
    by_source: Mutex<FxHashMap<SourceSlot, Slow>>,
    /// How many there are, read without the lock: nearly always none.
    count: AtomicUsize,
    /// Held by the one page that tries a source again, so that the other archive threads are free of such reads.
    probe: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Slow {
    /// How long its last read took.
    took: Duration,
    /// From this moment of the monotonic clock on a page may try it, however long it took.
    due: Duration,
}

/// Whether a page may read a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// It was not slow.
    Unknown,
    /// It was slow, but not too slow for the time that is left.
    Fits,
    /// It was too slow, and is due to be tried again.
    Due,
    TooSlow,
}

impl SlowSources {
    /// Whether a source was slow when it was last read.
    pub fn contains(&self, source: SourceSlot) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.by_source.lock().contains_key(&source)
    }

    fn admit(&self, source: SourceSlot, now: Duration, left: Duration) -> Admission {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Admission::Unknown;
        }
        match self.by_source.lock().get(&source) {
            None => Admission::Unknown,
            Some(slow) if slow.took <= left => Admission::Fits,
            Some(slow) if slow.due <= now => Admission::Due,
            Some(_) => Admission::TooSlow,
        }
    }

    /// Takes note of how long a read took. One from `slow_from` on is slow; a source that was is so until a read takes less than half of it.
    fn note(&self, source: SourceSlot, took: Duration, slow_from: Duration, now: Duration) {
        if took < slow_from && self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut by_source = self.by_source.lock();
        let was_slow = by_source.contains_key(&source);
        if took < slow_from / 2 {
            by_source.remove(&source);
        } else if took >= slow_from || was_slow {
            if !was_slow && by_source.len() >= SLOW_SOURCES_MAX {
                let first_due = by_source.iter().min_by_key(|(_, slow)| slow.due).map(|(source, _)| *source);
                first_due.map(|first_due| by_source.remove(&first_due));
            }
            by_source.insert(source, Slow { took, due: now + rest(took) });
        }
        self.count.store(by_source.len(), Ordering::Relaxed);
    }
}

/// How long a source is left alone after a read that took too long.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(SLOW_SOURCE_PROBE_RESTS).clamp(SLOW_SOURCE_PROBE_MIN, SLOW_SOURCE_PROBE_MAX)
}

/// The time of one page that may wait for a disk.
pub struct PageTime<'a> {
    time: ReadClock<'a>,
    /// It moves back by the slow reads that are excused.
    deadline: Cell<UnixMicros>,
    slow_from: Duration,
    excuses: Cell<u32>,
    /// The page has one source, so that no others' posts wait for it: it is read however long that takes.
    has_one_source: bool,
}

impl<'a> PageTime<'a> {
    /// The time of a page that begins now.
    pub fn new(time: ReadClock<'a>, has_one_source: bool) -> Self {
        let slow_from = (left(time.clock.now(), time.deadline) / SLOW_READ_SHARE).max(SLOW_READ_MIN);
        let (deadline, excuses) = (Cell::new(time.deadline), Cell::new(SLOW_READS_EXCUSED_MAX));
        Self { time, deadline, slow_from, excuses, has_one_source }
    }

    /// Whether the page has to end.
    pub fn is_late(&self) -> bool {
        self.time.clock.now() > self.deadline.get()
    }

    /// Reads the archived posts of a source, unless that would take too long.
    pub fn read<T>(&self, slow: &SlowSources, source: SourceSlot, read: impl FnOnce() -> T) -> Option<T> {
        let clock = self.time.clock;
        let began = clock.monotonic();
        let left = left(clock.now(), self.deadline.get());
        let admission = slow.admit(source, began, left);
        let _probe = match admission {
            Admission::Unknown | Admission::Fits => None,
            _ if self.has_one_source => None,
            Admission::Due if self.excuses.get() > 0 => Some(slow.probe.try_lock()?),
            Admission::Due | Admission::TooSlow => return None,
        };
        let done = read();
        let now = clock.monotonic();
        let took = now.saturating_sub(began);
        slow.note(source, took, self.slow_from, now);
        if admission != Admission::Fits && took >= self.slow_from && self.excuses.get() > 0 {
            self.excuses.set(self.excuses.get() - 1);
            self.deadline.set(self.deadline.get().saturating_add(took));
        }
        Some(done)
    }
}

fn left(now: UnixMicros, deadline: UnixMicros) -> Duration {
    Duration::from_micros(deadline.0.saturating_sub(now.0).try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    const TIME: Duration = Duration::from_secs(2);
    const SLOW: SourceSlot = SourceSlot(7);

    fn page(clock: &ManualClock) -> PageTime<'_> {
        PageTime::new(ReadClock { clock, deadline: clock.now().saturating_add(TIME) }, false)
    }

    /// Whether a page that begins now reads the source, which takes so long, and is late then.
    fn read(slow: &SlowSources, clock: &ManualClock, takes: Duration) -> (bool, bool) {
        let page = page(clock);
        let is_read = page.read(slow, SLOW, || clock.advance(takes)).is_some();
        (is_read, page.is_late())
    }

    #[test]
    fn a_source_is_slow_from_one_long_read_until_a_short_one() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        let (quarter, micro) = (TIME / SLOW_READ_SHARE, Duration::from_micros(1));
        assert_eq!(read(&slow, &clock, quarter.checked_sub(micro).unwrap()), (true, false));
        assert!(!slow.contains(SLOW));
        for (takes, is_slow) in [(quarter, true), (quarter / 2, true), (quarter / 2 - micro, false)] {
            assert_eq!((read(&slow, &clock, takes), slow.contains(SLOW)), ((true, false), is_slow));
        }
    }

    #[test]
    fn one_that_is_too_slow_costs_no_page_its_time_and_is_tried_again_after_a_rest() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        let takes = 2 * TIME;
        for _ in 0..3 {
            assert_eq!(read(&slow, &clock, takes), (true, false), "its time is not counted");
            assert_eq!(read(&slow, &clock, takes), (false, false), "it is left alone");
            clock.advance(takes * SLOW_SOURCE_PROBE_RESTS);
        }
        // While one page tries it no other does.
        let (first, second) = (page(&clock), page(&clock));
        let tried = first.read(&slow, SLOW, || second.read(&slow, SLOW, || ()));
        assert_eq!(tried, Some(None));
        assert_eq!((read(&slow, &clock, takes).0, slow.contains(SLOW)), (true, true), "the try was fast");
    }

    #[test]
    fn a_page_waits_for_few_slow_reads_beyond_its_time() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        let page = page(&clock);
        let mut reads = 0;
        while !page.is_late() {
            page.read(&slow, SourceSlot(reads), || clock.advance(2 * TIME)).unwrap();
            reads += 1;
        }
        assert_eq!(reads, SLOW_READS_EXCUSED_MAX + 1);
    }

    #[test]
    fn of_too_many_slow_sources_the_first_due_are_forgotten() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        for nth in 0..=SLOW_SOURCES_MAX as u32 {
            page(&clock).read(&slow, SourceSlot(nth), || clock.advance(TIME)).unwrap();
        }
        assert_eq!(slow.count.load(Ordering::Relaxed), SLOW_SOURCES_MAX);
        assert!(!slow.contains(SourceSlot(0)) && slow.contains(SourceSlot(1)));
    }
}

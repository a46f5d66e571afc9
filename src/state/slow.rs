//! Slow sources: sources whose archived posts recently took long to read. A page reads them only after all other
//! sources.
//!
//! A read of the archive cannot be cancelled, so a source is found to be slow only after a slow read. The time of that read does not
//! count against the page: otherwise the sources still to be read would be missing instead of the slow one. From then on the source is
//! read last, if the duration of its last read fits into the remaining time. If it does not fit, the page omits the source and names it.
//! Occasionally a page probes an omitted source, one source at a time. A page of one source reads it in any case.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::id::SourceSlot;
use crate::limits::SLOW_SOURCE_PROBE_MAX;
use crate::state::read_clock::ReadClock;

/// Minimum time for which a slow source is skipped.
const SLOW_SOURCE_PROBE_MIN: Duration = Duration::from_secs(1);

/// A source that is too slow for a page is skipped for this many times the duration of its last read. Probes of it thus take at most this
/// fraction of one archive thread.
const SLOW_SOURCE_PROBE_RESTS: u32 = 8;

/// Number of slow reads whose time does not count against one page, because their sources were not known to be slow.
const SLOW_READS_EXCUSED_MAX: u32 = 2;

/// A read that takes less than this is never slow, however little time a page has left.
const SLOW_READ_MIN: Duration = Duration::from_millis(5);

/// A read of one source is slow if it takes more than one in this many parts of a page's time.
const SLOW_READ_SHARE: u32 = 4;

/// Maximum number of sources that are recorded as slow to read in the archive. Beyond it, the ones that are probed next are dropped.
const SLOW_SOURCES_MAX: usize = 1_024;

/// The sources that were slow recently. At most `SLOW_SOURCES_MAX`.
#[derive(Debug, Default)]
pub struct SlowSources {
    by_source: Mutex<FxHashMap<SourceSlot, Slow>>,
    /// The number of slow sources, read without the lock: nearly always zero.
    count: AtomicUsize,
    /// Locked by the one page that probes a source, so that such reads do not occupy the other archive threads.
    probe: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Slow {
    /// Duration of the last read.
    took: Duration,
    /// From this time of the monotonic clock on, a page may probe the source, regardless of `took`.
    due: Duration,
}

/// The decision about reading a source for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// The source is not known to be slow.
    Unknown,
    /// The source is slow, but its last read fits into the remaining time.
    Fits,
    /// The source is too slow, and due for a probe.
    Due,
    TooSlow,
}

impl SlowSources {
    /// Returns true if a source was slow when it was last read.
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

    /// Records how long a read took. A read of at least `slow_from` marks the source as slow; it remains slow until a
    /// read takes less than half of that.
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
            by_source.insert(source, Slow { took, due: now + probe_delay(took) });
        }
        self.count.store(by_source.len(), Ordering::Relaxed);
    }
}

/// Returns the time for which a source is not probed after a read that took too long.
fn probe_delay(took: Duration) -> Duration {
    took.saturating_mul(SLOW_SOURCE_PROBE_RESTS).clamp(SLOW_SOURCE_PROBE_MIN, SLOW_SOURCE_PROBE_MAX)
}

/// The time limit of one page that may block on disk reads.
pub struct PageTime<'a> {
    time: ReadClock<'a>,
    /// Moved later by the duration of each excused slow read.
    deadline: Cell<UnixMicros>,
    slow_from: Duration,
    excused_reads_left: Cell<u32>,
    /// True if the page has one source. It is read in any case, because no other posts wait for it.
    has_one_source: bool,
}

impl<'a> PageTime<'a> {
    /// Creates the time limit of a page that begins now.
    pub fn new(time: ReadClock<'a>, has_one_source: bool) -> Self {
        let slow_from = (left(time.clock.now(), time.deadline) / SLOW_READ_SHARE).max(SLOW_READ_MIN);
        let (deadline, excused_reads_left) = (Cell::new(time.deadline), Cell::new(SLOW_READS_EXCUSED_MAX));
        Self { time, deadline, slow_from, excused_reads_left, has_one_source }
    }

    /// Returns true if the page has to end.
    pub fn is_late(&self) -> bool {
        self.time.clock.now() > self.deadline.get()
    }

    /// Reads the archived posts of a source with `read`. Returns `None` without reading if the read would take too long.
    pub fn read<T>(&self, slow: &SlowSources, source: SourceSlot, read: impl FnOnce() -> T) -> Option<T> {
        let clock = self.time.clock;
        let began = clock.monotonic();
        let left = left(clock.now(), self.deadline.get());
        let admission = slow.admit(source, began, left);
        let _probe = match admission {
            Admission::Unknown | Admission::Fits => None,
            _ if self.has_one_source => None,
            Admission::Due if self.excused_reads_left.get() > 0 => Some(slow.probe.try_lock()?),
            Admission::Due | Admission::TooSlow => return None,
        };
        let done = read();
        let now = clock.monotonic();
        let took = now.saturating_sub(began);
        slow.note(source, took, self.slow_from, now);
        if admission != Admission::Fits && took >= self.slow_from && self.excused_reads_left.get() > 0 {
            self.excused_reads_left.set(self.excused_reads_left.get() - 1);
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

    /// Returns true if a page that begins now reads the source, whose read lasts `takes`, and true if the page is late then.
    fn read(slow: &SlowSources, clock: &ManualClock, takes: Duration) -> (bool, bool) {
        let page = page(clock);
        let is_read = page.read(slow, SLOW, || clock.advance(takes)).is_some();
        (is_read, page.is_late())
    }

    #[test]
    fn a_source_is_slow_from_a_long_read_until_a_short_one() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        let (quarter, micro) = (TIME / SLOW_READ_SHARE, Duration::from_micros(1));
        assert_eq!(read(&slow, &clock, quarter.checked_sub(micro).unwrap()), (true, false));
        assert!(!slow.contains(SLOW));
        for (takes, is_slow) in [(quarter, true), (quarter / 2, true), (quarter / 2 - micro, false)] {
            assert_eq!((read(&slow, &clock, takes), slow.contains(SLOW)), ((true, false), is_slow));
        }
    }

    #[test]
    fn a_source_that_is_too_slow_is_skipped_and_probed_after_a_pause() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        let takes = 2 * TIME;
        for _ in 0..3 {
            assert_eq!(read(&slow, &clock, takes), (true, false), "its time is not counted");
            assert_eq!(read(&slow, &clock, takes), (false, false), "it is left alone");
            clock.advance(takes * SLOW_SOURCE_PROBE_RESTS);
        }
        // While one page probes the source, no other page does.
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
    fn the_first_due_of_too_many_slow_sources_are_forgotten() {
        let (slow, clock) = (SlowSources::default(), ManualClock::new(UnixMicros(0)));
        for nth in 0..=SLOW_SOURCES_MAX as u32 {
            page(&clock).read(&slow, SourceSlot(nth), || clock.advance(TIME)).unwrap();
        }
        assert_eq!(slow.count.load(Ordering::Relaxed), SLOW_SOURCES_MAX);
        assert!(!slow.contains(SourceSlot(0)) && slow.contains(SourceSlot(1)));
    }
}

//! Fan-out records: how the most recent posts reached their followers, for operators.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::feed::outbox::Route;
use crate::id::{PostId, SourceSlot};
use crate::limits::FANOUT_RECORDS_MAX;

/// The number of a record. A post that is published has one; a post that is delivered again has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordId(u64);

/// One source of a post when the post was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceReach {
    /// The author, a tag or the topic.
    pub source: SourceSlot,
    /// The way by which the post reaches the followers of this source.
    pub route: Route,
    /// The number of these followers, at most `u32::MAX`.
    pub followers: u32,
}

/// The progress of the fan-out of a post. Times are since the post was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deliveries {
    /// The time after which the first slice of recipients was cut.
    pub started: Option<Duration>,
    /// The time after which the first slice was confirmed as delivered.
    pub first: Option<Duration>,
    /// The time after which all slices were confirmed.
    pub finished: Option<Duration>,
    /// The number of followers of pushing sources that had an inbox, counted once for each of these sources.
    pub awake: u64,
    /// The number of inboxes to which the post was added.
    pub added: u64,
}

/// The record of one post.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FanoutRecord {
    /// The post itself.
    pub post: PostId,
    /// Its sources in the order of the post: author, tags, topic, replies.
    pub sources: Box<[SourceReach]>,
    /// The progress. All zero for a post that no source pushes.
    pub deliveries: Deliveries,
}

/// The records of the last posts: 160 bytes each for a post with two sources, and at most 350 with the most sources, so 350 KB in all.
#[derive(Debug, Default)]
pub struct FanoutRecords(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// The oldest first.
    records: VecDeque<FanoutRecord>,
    /// The number of records that were begun.
    begun: u64,
}

impl FanoutRecords {
    /// Adds the record of a post that is about to be queued for fan-out. Drops the oldest record above the limit.
    pub fn begin(&self, post: PostId, sources: Box<[SourceReach]>) -> RecordId {
        let record = FanoutRecord { post, sources, deliveries: Deliveries::default() };
        let mut ring = self.0.lock();
        // Dropped after the lock is released.
        let _oldest = if ring.records.len() == FANOUT_RECORDS_MAX { ring.records.pop_front() } else { None };
        ring.records.push_back(record);
        ring.begun += 1;
        let id = RecordId(ring.begun - 1);
        drop(ring);
        id
    }

    /// Replaces the progress of a post. Does nothing if its record was dropped.
    pub fn update(&self, id: RecordId, deliveries: Deliveries) {
        let mut ring = self.0.lock();
        let first = ring.begun - ring.records.len() as u64;
        let nth = id.0.checked_sub(first).and_then(|nth| usize::try_from(nth).ok());
        if let Some(record) = nth.and_then(|nth| ring.records.get_mut(nth)) {
            record.deliveries = deliveries;
        }
    }

    /// Returns the record of a post, unless it was dropped. Compares it with all records, about a microsecond.
    pub fn of(&self, post: PostId) -> Option<FanoutRecord> {
        self.0.lock().records.iter().rev().find(|record| record.post == post).cloned()
    }
}

/// Counts the deliveries of one post during its fan-out.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    record: RecordId,
    queued_at: Instant,
    deliveries: Deliveries,
}

impl Progress {
    /// Begins with no deliveries, for a post that was queued at this instant.
    pub fn new(record: RecordId, queued_at: Instant) -> Self {
        Self { record, queued_at, deliveries: Deliveries::default() }
    }

    /// Records that a slice was cut with this many recipients, all with inboxes.
    pub fn note_cut(&mut self, recipients: usize) {
        if self.deliveries.started.is_none() {
            self.deliveries.started = Some(self.queued_at.elapsed());
        }
        self.deliveries.awake += recipients as u64;
    }

    /// Records that a slice was delivered and added the post to this many inboxes. Returns true for the first slice.
    pub fn note_delivered(&mut self, added: u64) -> bool {
        self.deliveries.added += added;
        let is_first = self.deliveries.first.is_none();
        if is_first {
            self.deliveries.first = Some(self.queued_at.elapsed());
        }
        is_first
    }

    /// Writes the progress so far into the record.
    pub fn store(&self, records: &FanoutRecords) {
        records.update(self.record, self.deliveries);
    }

    /// Writes the progress into the record, as finished this long after the post was queued.
    pub fn finish(mut self, records: &FanoutRecords, took: Duration) {
        self.deliveries.finished = Some(took);
        self.store(records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(records: &FanoutRecords, post: u64) -> RecordId {
        let reach = SourceReach { source: SourceSlot(3), route: Route::Push, followers: 7 };
        records.begin(PostId(post), [reach].into())
    }

    fn added(added: u64) -> Deliveries {
        Deliveries { added, ..Deliveries::default() }
    }

    #[test]
    fn the_last_posts_are_kept_and_older_ones_are_forgotten() {
        let records = FanoutRecords::default();
        let ids: Vec<RecordId> = (0..FANOUT_RECORDS_MAX as u64 + 2).map(|post| begin(&records, post)).collect();
        for (post, id) in (0..).zip(&ids) {
            records.update(*id, added(post + 100));
        }
        let found = |post| records.of(PostId(post)).map(|record| record.deliveries.added);
        let newest = FANOUT_RECORDS_MAX as u64 + 1;
        assert_eq!([found(0), found(1), found(2), found(newest)], [None, None, Some(102), Some(newest + 100)]);
        assert_eq!(records.0.lock().records.len(), FANOUT_RECORDS_MAX);
    }

    #[test]
    fn a_slice_counts_when_it_is_cut_and_when_it_is_delivered() {
        let records = FanoutRecords::default();
        let mut progress = Progress::new(begin(&records, 5), Instant::now());
        progress.note_cut(10);
        progress.note_cut(4);
        assert_eq!((progress.note_delivered(9), progress.note_delivered(4)), (true, false));
        progress.store(&records);
        let stored = records.of(PostId(5)).unwrap().deliveries;
        assert_eq!((stored.awake, stored.added, stored.finished), (14, 13, None));
        assert!(stored.started <= stored.first && stored.started.is_some(), "{stored:?}");
        progress.finish(&records, Duration::from_secs(1));
        assert_eq!(records.of(PostId(5)).unwrap().deliveries.finished, Some(Duration::from_secs(1)));
    }
}

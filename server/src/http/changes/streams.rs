//! The open streams of changes: their limit, and figures of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire::limits::CHANGE_STREAMS_MAX;
use tidewire::storage::sequence::Sequence;

/// The value of a slot without a stream.
const FREE: u64 = u64::MAX;

/// The reason why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The stream has sent all requested events.
    Complete,
    /// The client closed the connection.
    Client,
    /// The client read too slowly for too long, or has vanished.
    Slow,
    /// The server stops.
    Stopping,
    /// The key of the client was removed.
    Key,
    /// The journal does not have the next event any more, or could not be read.
    Failed,
}

/// All reasons, with their names in metrics.
const REASONS: [(Ended, &str); 6] = [
    (Ended::Complete, "complete"),
    (Ended::Client, "client"),
    (Ended::Slow, "slow"),
    (Ended::Stopping, "stopping"),
    (Ended::Key, "key"),
    (Ended::Failed, "failed"),
];

/// The streams of all workers.
pub struct ChangeStreams {
    /// The sequence that each stream has sent.
    places: [AtomicU64; CHANGE_STREAMS_MAX],
    refused: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
    ended: [AtomicU64; REASONS.len()],
}

impl Default for ChangeStreams {
    fn default() -> Self {
        Self {
            places: std::array::from_fn(|_| AtomicU64::new(FREE)),
            refused: AtomicU64::default(),
            events: AtomicU64::default(),
            bytes: AtomicU64::default(),
            ended: Default::default(),
        }
    }
}

impl ChangeStreams {
    /// Reserves a slot for another stream. Returns `None` if all are in use.
    pub(super) fn begin(streams: &Arc<Self>) -> Option<Slot> {
        let take = |place: &AtomicU64| place.compare_exchange(FREE, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let Some(nth) = streams.places.iter().position(take) else {
            streams.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(Slot { streams: Arc::clone(streams), nth, ended: Ended::Client })
    }

    /// Returns the number of streams that may be open.
    pub(in crate::http) fn limit(&self) -> usize {
        self.places.len()
    }

    fn sent(&self) -> impl Iterator<Item = u64> {
        self.places.iter().map(|place| place.load(Ordering::Relaxed)).filter(|sent| *sent != FREE)
    }

    /// Returns the number of open streams.
    pub(in crate::http) fn open(&self) -> u64 {
        self.sent().count() as u64
    }

    /// Returns the number of records by which the slowest stream is behind the last one.
    pub(in crate::http) fn behind(&self, last: Sequence) -> u64 {
        // A stream that has just begun has sent nothing.
        self.sent().filter(|sent| *sent > 0).min().map_or(0, |slowest| last.0.saturating_sub(slowest))
    }

    /// Returns the refused streams, the sent events and the sent bytes since the start.
    pub(in crate::http) fn totals(&self) -> [u64; 3] {
        [&self.refused, &self.events, &self.bytes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of ended streams, by reason.
    pub(in crate::http) fn ended(&self) -> [(&'static str, u64); REASONS.len()] {
        std::array::from_fn(|nth| (REASONS[nth].1, self.ended[nth].load(Ordering::Relaxed)))
    }
}

/// The slot of an open stream, released on drop.
pub(super) struct Slot {
    streams: Arc<ChangeStreams>,
    nth: usize,
    ended: Ended,
}

impl Slot {
    /// Counts a part of the stream.
    pub(super) fn note_sent(&self, through: Sequence, events: u64, bytes: usize) {
        self.streams.places[self.nth].store(through.0, Ordering::Relaxed);
        self.streams.events.fetch_add(events, Ordering::Relaxed);
        self.streams.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Sets the reason why the stream ends. Without a call, the reason is that the client closed it.
    pub(super) fn end(&mut self, why: Ended) {
        self.ended = why;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let nth = REASONS.iter().position(|(reason, _)| *reason == self.ended).unwrap_or_default();
        self.streams.ended[nth].fetch_add(1, Ordering::Relaxed);
        self.streams.places[self.nth].store(FREE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_use_slots_up_to_the_limit_and_release_them() {
        let streams = Arc::new(ChangeStreams::default());
        let mut slots: Vec<Slot> = (0..streams.limit()).map(|_| ChangeStreams::begin(&streams).unwrap()).collect();
        assert!(ChangeStreams::begin(&streams).is_none());
        assert_eq!(streams.behind(Sequence(9)), 0, "none has begun");
        slots[0].note_sent(Sequence(7), 2, 100);
        slots[1].note_sent(Sequence(8), 1, 10);
        assert_eq!((streams.open(), streams.behind(Sequence(9))), (CHANGE_STREAMS_MAX as u64, 2));
        slots[1].end(Ended::Slow);
        drop(slots);
        assert!(ChangeStreams::begin(&streams).is_some());
        assert_eq!(streams.totals(), [1, 3, 110]);
        let ended = streams.ended();
        assert_eq!((ended[1].1, ended[2]), (CHANGE_STREAMS_MAX as u64, ("slow", 1)));
    }
}

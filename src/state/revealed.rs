//! Revealed origins: posts with very many reposts that became visible again, or were published only after their
//! reposts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::clock::UnixMicros;
use crate::id::PostId;
use crate::limits::REVEALED_ORIGINS_MAX;

/// The last of these posts. Pages lock them only if there is one that is new to the client.
#[derive(Debug)]
pub struct RevealedOrigins {
    /// Oldest instant first, each post once.
    origins: Mutex<VecDeque<(UnixMicros, PostId)>>,
    /// The latest of these instants.
    newest: AtomicI64,
}

impl Default for RevealedOrigins {
    fn default() -> Self {
        Self { origins: Mutex::default(), newest: AtomicI64::new(i64::MIN) }
    }
}

impl RevealedOrigins {
    /// Notes that a post became visible at `at`. If the oldest post must be dropped, first calls `forget` with its
    /// instant.
    pub(super) fn note(&self, at: UnixMicros, origin: PostId, forget: impl FnOnce(UnixMicros)) {
        let mut origins = self.origins.lock();
        match origins.iter().position(|(_, noted)| *noted == origin) {
            // A replay may repeat an event that the snapshot contains.
            Some(nth) if origins[nth].0 >= at => return,
            // A post that was new by the earlier instant is new by the later one too.
            Some(nth) => drop(origins.remove(nth)),
            None => {}
        }
        let place = origins.partition_point(|noted| *noted < (at, origin));
        origins.insert(place, (at, origin));
        if origins.len() > REVEALED_ORIGINS_MAX {
            forget(origins[0].0);
            origins.pop_front();
        }
        self.newest.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Returns the posts noted after `since`, oldest first.
    pub fn since(&self, since: UnixMicros) -> Vec<(UnixMicros, PostId)> {
        if self.newest.load(Ordering::Acquire) <= since.0 {
            return Vec::new();
        }
        let origins = self.origins.lock();
        let start = origins.partition_point(|(at, _)| *at <= since);
        origins.range(start..).copied().collect()
    }

    /// Returns all of them, oldest first, for storage.
    pub fn all(&self) -> Vec<(UnixMicros, PostId)> {
        self.origins.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revealed_post_is_kept_once_and_the_first_of_too_many_are_dropped() {
        let revealed = RevealedOrigins::default();
        let mut forgotten = Vec::new();
        let max = REVEALED_ORIGINS_MAX as i64;
        for at in 0..max {
            revealed.note(UnixMicros(at), PostId(at as u64), |at| forgotten.push(at.0));
        }
        // The same post again, and a post that a replay repeats: neither takes more space.
        revealed.note(UnixMicros(max), PostId(0), |at| forgotten.push(at.0));
        revealed.note(UnixMicros(0), PostId(0), |at| forgotten.push(at.0));
        assert_eq!((revealed.all().len(), revealed.all()[0]), (max as usize, (UnixMicros(1), PostId(1))));
        revealed.note(UnixMicros(max + 1), PostId(999_999), |at| forgotten.push(at.0));
        assert_eq!((revealed.all().len(), forgotten), (max as usize, vec![1]));
        let since =
            |since| revealed.since(UnixMicros(since)).into_iter().map(|(_, origin)| origin.0).collect::<Vec<_>>();
        assert_eq!((since(max + 1), since(max), since(max - 1)), (vec![], vec![999_999], vec![0, 999_999]));
    }
}

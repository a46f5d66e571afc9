//! Revealed origins: posts with very many reposts that came to be seen again, or only after them.
//!
//! Responsible for:
//! - remembering the last such posts and when they came to be seen, so that each client that resumes can look for those reposts of them
//!   that its reader follows.
//!
//! Not responsible for:
//! - reposts of posts with fewer, which are noted one by one with their sources (`feed::resume::LatePosts`);
//! - clients to whom something forgotten may be new (`state::arrivals`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::clock::UnixMicros;
use crate::id::PostId;
use crate::limits::REVEALED_ORIGINS_MAX;

/// The last of these posts. Pages look at them under a lock only if there is one that is new to the client.
#[derive(Debug)]
pub struct RevealedOrigins {
    /// Oldest instant first, each post once.
    origins: Mutex<VecDeque<(UnixMicros, PostId)>>,
    /// The last of these instants.
    newest: AtomicI64,
}

impl Default for RevealedOrigins {
    fn default() -> Self {
        Self { origins: Mutex::default(), newest: AtomicI64::new(i64::MIN) }
    }
}

impl RevealedOrigins {
    /// Notes that a post came to be seen at `at`. Calls `forget` with the instant of another before that is forgotten.
    pub(super) fn note(&self, at: UnixMicros, origin: PostId, forget: impl FnOnce(UnixMicros)) {
        let mut origins = self.origins.lock();
        match origins.iter().position(|(_, noted)| *noted == origin) {
            // A replay may repeat what a snapshot has.
            Some(nth) if origins[nth].0 >= at => return,
            // What was new by the earlier instant is new by the later one.
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

    /// Those after `since`, oldest first.
    pub fn since(&self, since: UnixMicros) -> Vec<(UnixMicros, PostId)> {
        if self.newest.load(Ordering::Acquire) <= since.0 {
            return Vec::new();
        }
        let origins = self.origins.lock();
        let start = origins.partition_point(|(at, _)| *at <= since);
        origins.range(start..).copied().collect()
    }

    /// All of them, oldest first, to be stored.
    pub fn all(&self) -> Vec<(UnixMicros, PostId)> {
        self.origins.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_post_is_kept_once_and_of_too_many_the_first_are_forgotten() {
        let revealed = RevealedOrigins::default();
        let mut forgotten = Vec::new();
        let max = REVEALED_ORIGINS_MAX as i64;
        for at in 0..max {
            revealed.note(UnixMicros(at), PostId(at as u64), |at| forgotten.push(at.0));
        }
        // Again, and from a replay: neither takes more room.
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

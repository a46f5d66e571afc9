//! Posts and outboxes that are kept in memory for a short time, because a command has looked them up.
//!
//! A command takes a hold before it looks up anything in the archive. From then on, every change of the held posts and
//! outboxes stays in memory. Memory and the result of the look-up together are therefore equivalent to a new look-up:
//! memory is used for the posts that it has, and the result for all others.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::id::{PostId, SourceSlot};

/// The posts and outboxes that must be kept in memory.
#[derive(Debug, Default)]
pub struct Held(Mutex<Counts>);

/// The number of holds on each post and outbox.
#[derive(Debug, Default)]
struct Counts {
    posts: FxHashMap<PostId, u32>,
    outboxes: FxHashMap<SourceSlot, (u32, Arc<ReleaseFlag>)>,
}

/// Shared by the holds on one outbox. It is set when the look-up of that outbox is no longer valid.
#[derive(Debug, Default)]
pub struct ReleaseFlag(AtomicBool);

/// Holds some posts and outboxes until it is dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<Held>,
    posts: Vec<PostId>,
    outboxes: Vec<(SourceSlot, Arc<ReleaseFlag>)>,
}

/// The posts and outboxes held at one moment.
#[derive(Debug, Default)]
pub(super) struct HeldNow {
    posts: Vec<PostId>,
    outboxes: Vec<SourceSlot>,
}

impl Held {
    /// Adds a hold on posts and outboxes.
    pub(super) fn hold(self: &Arc<Self>, posts: Vec<PostId>, outboxes: impl Iterator<Item = SourceSlot>) -> Hold {
        let counts = &mut *self.0.lock();
        posts.iter().for_each(|id| *counts.posts.entry(*id).or_default() += 1);
        let mut hold = |slot| {
            let (count, flag) = counts.outboxes.entry(slot).or_default();
            *count += 1;
            (slot, Arc::clone(flag))
        };
        let outboxes = outboxes.map(&mut hold).collect();
        Hold { held: Arc::clone(self), posts, outboxes }
    }

    /// Returns the held posts and outboxes. A hold that begins later has not looked up anything yet, so it finds posts
    /// that have left memory in the archive.
    pub(super) fn now(&self) -> HeldNow {
        let counts = self.0.lock();
        let mut now = HeldNow {
            posts: counts.posts.keys().copied().collect(),
            outboxes: counts.outboxes.keys().copied().collect(),
        };
        drop(counts);
        now.posts.sort_unstable();
        now.outboxes.sort_unstable();
        now
    }

    /// Releases an outbox that has become too large to be held: every command that holds it must look it up again.
    pub(super) fn release(&self, slot: SourceSlot) {
        if let Some((_, flag)) = self.0.lock().outboxes.remove(&slot) {
            flag.0.store(true, Ordering::Release);
        }
    }
}

impl ReleaseFlag {
    /// Returns true if the outbox was released.
    pub(super) fn is_released(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Hold {
    /// Returns the outboxes that this hold covers.
    pub(super) fn outboxes(&self) -> &[(SourceSlot, Arc<ReleaseFlag>)] {
        &self.outboxes
    }
}

impl HeldNow {
    pub(super) fn has_post(&self, id: PostId) -> bool {
        self.posts.binary_search(&id).is_ok()
    }

    pub(super) fn has_outbox(&self, slot: SourceSlot) -> bool {
        self.outboxes.binary_search(&slot).is_ok()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let counts = &mut *self.held.0.lock();
        for id in &self.posts {
            if let Entry::Occupied(mut count) = counts.posts.entry(*id) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        for (slot, flag) in &self.outboxes {
            if let Entry::Occupied(mut held) = counts.outboxes.entry(*slot)
                && Arc::ptr_eq(&held.get().1, flag)
            {
                held.get_mut().0 -= 1;
                if held.get().0 == 0 {
                    held.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_held_twice_is_held_until_both_holds_end() {
        let held = Arc::<Held>::default();
        let first = held.hold(vec![PostId(1), PostId(2)], [SourceSlot(1)].into_iter());
        let second = held.hold(vec![PostId(2)], [].into_iter());
        drop(first);
        let now = held.now();
        assert!(now.has_post(PostId(2)) && !now.has_post(PostId(1)) && !now.has_outbox(SourceSlot(1)));
        drop(second);
        assert!(held.now().posts.is_empty());
    }

    #[test]
    fn a_released_outbox_is_held_again_by_a_later_hold() {
        let held = Arc::<Held>::default();
        let early = held.hold(Vec::new(), [SourceSlot(1)].into_iter());
        held.release(SourceSlot(1));
        assert!(early.outboxes()[0].1.is_released() && !held.now().has_outbox(SourceSlot(1)));
        let late = held.hold(Vec::new(), [SourceSlot(1)].into_iter());
        drop(early);
        assert!(!late.outboxes()[0].1.is_released() && held.now().has_outbox(SourceSlot(1)));
        drop(late);
        assert!(!held.now().has_outbox(SourceSlot(1)));
    }
}

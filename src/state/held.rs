//! Posts and outboxes that stay in memory for a moment, because a command was looked up for them.
//!
//! Responsible for:
//! - keeping what a command needs, and what changes of it until the scribe judges the command, from leaving memory.
//!
//! Not responsible for:
//! - looking anything up (`state::resolved`), what leaves memory otherwise (`state::tiering`).
//!
//! Whoever looks something up in the archive holds it first. From then on every change of it is in memory and stays there, so
//! that memory and what was found are together as good as looking now: memory where it knows the post, what was found
//! where it does not.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::id::{PostId, SourceSlot};

/// What must stay in memory.
#[derive(Debug, Default)]
pub struct Held(Mutex<Counts>);

/// How many hold each.
#[derive(Debug, Default)]
struct Counts {
    posts: FxHashMap<PostId, u32>,
    outboxes: FxHashMap<SourceSlot, (u32, Arc<Grip>)>,
}

/// How long what was found of an outbox is good.
#[derive(Debug, Default)]
pub struct Grip(AtomicBool);

/// Holds some posts and outboxes until it is dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<Held>,
    posts: Vec<PostId>,
    outboxes: Vec<(SourceSlot, Arc<Grip>)>,
}

/// What is held at one moment.
#[derive(Debug, Default)]
pub(super) struct HeldNow {
    posts: Vec<PostId>,
    outboxes: Vec<SourceSlot>,
}

impl Held {
    /// Holds posts and outboxes.
    pub(super) fn hold(self: &Arc<Self>, posts: Vec<PostId>, outboxes: impl Iterator<Item = SourceSlot>) -> Hold {
        let counts = &mut *self.0.lock();
        posts.iter().for_each(|id| *counts.posts.entry(*id).or_default() += 1);
        let mut grip = |slot| {
            let (count, grip) = counts.outboxes.entry(slot).or_default();
            *count += 1;
            (slot, Arc::clone(grip))
        };
        let outboxes = outboxes.map(&mut grip).collect();
        Hold { held: Arc::clone(self), posts, outboxes }
    }

    /// What is held. A hold that begins later has yet to look at anything, so that it finds what left memory in the archive.
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

    /// Lets an outbox go that is too large to be held any longer: whoever holds it has to look it up again.
    pub(super) fn let_go(&self, slot: SourceSlot) {
        if let Some((_, grip)) = self.0.lock().outboxes.remove(&slot) {
            grip.0.store(true, Ordering::Release);
        }
    }
}

impl Grip {
    /// Whether the outbox was let go.
    pub(super) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Hold {
    /// The outboxes that it holds.
    pub(super) fn outboxes(&self) -> &[(SourceSlot, Arc<Grip>)] {
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
        for (slot, grip) in &self.outboxes {
            if let Entry::Occupied(mut held) = counts.outboxes.entry(*slot)
                && Arc::ptr_eq(&held.get().1, grip)
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
    fn what_is_held_twice_is_held_until_both_end() {
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
    fn an_outbox_that_was_let_go_is_held_anew_by_whoever_comes_later() {
        let held = Arc::<Held>::default();
        let early = held.hold(Vec::new(), [SourceSlot(1)].into_iter());
        held.let_go(SourceSlot(1));
        assert!(early.outboxes()[0].1.is_lost() && !held.now().has_outbox(SourceSlot(1)));
        let late = held.hold(Vec::new(), [SourceSlot(1)].into_iter());
        drop(early);
        assert!(!late.outboxes()[0].1.is_lost() && held.now().has_outbox(SourceSlot(1)));
        drop(late);
        assert!(!held.now().has_outbox(SourceSlot(1)));
    }
}

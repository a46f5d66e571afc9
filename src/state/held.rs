//! Posts and outboxes that stay in memory for a moment, because a command was looked up for them.
//!
//! Responsible for:
//! - keeping what a command needs, and what changes of it until the scribe judges the command, from leaving memory.
//!
//! Not responsible for:
//! - looking anything up (`state::resolved`), what leaves memory otherwise (`state::shelving`).
//!
//! Whoever looks something up in the archive holds it first. From then on every change of it is in memory and stays there, so
//! that memory and what was found are together as good as looking now: memory where it knows the post, what was found
//! where it does not.

use std::hash::Hash;
use std::sync::Arc;

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
    outboxes: FxHashMap<SourceSlot, u32>,
}

/// Holds some posts and outboxes until it is dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<Held>,
    posts: Vec<PostId>,
    outboxes: Vec<SourceSlot>,
}

/// What is held at one moment.
#[derive(Debug, Default)]
pub(super) struct HeldNow {
    pub(super) posts: Vec<PostId>,
    pub(super) outboxes: Vec<SourceSlot>,
}

impl Held {
    /// Holds posts and outboxes.
    pub(super) fn hold(self: &Arc<Self>, posts: Vec<PostId>, outboxes: Vec<SourceSlot>) -> Hold {
        let mut counts = self.0.lock();
        posts.iter().for_each(|id| *counts.posts.entry(*id).or_default() += 1);
        outboxes.iter().for_each(|slot| *counts.outboxes.entry(*slot).or_default() += 1);
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
}

impl HeldNow {
    pub(super) fn is_empty(&self) -> bool {
        self.posts.is_empty() && self.outboxes.is_empty()
    }

    pub(super) fn has_post(&self, id: PostId) -> bool {
        self.posts.binary_search(&id).is_ok()
    }

    pub(super) fn has_outbox(&self, slot: SourceSlot) -> bool {
        self.outboxes.binary_search(&slot).is_ok()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.held.0.lock();
        self.posts.iter().for_each(|id| release(&mut counts.posts, id));
        self.outboxes.iter().for_each(|slot| release(&mut counts.outboxes, slot));
    }
}

fn release<K: Hash + Eq>(counts: &mut FxHashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_twice_is_held_until_both_let_go() {
        let held = Arc::<Held>::default();
        let first = held.hold(vec![PostId(1), PostId(2)], vec![SourceSlot(1)]);
        let second = held.hold(vec![PostId(2)], Vec::new());
        drop(first);
        let now = held.now();
        assert!(now.has_post(PostId(2)) && !now.has_post(PostId(1)) && !now.has_outbox(SourceSlot(1)));
        drop(second);
        assert!(held.now().posts.is_empty());
    }
}

//! The inboxes of one shard, which the shard's thread and reading threads share.
//!
//! Only the shard's thread waits for a lock, and only while some positions are copied. A reading thread tries for about
//! a microsecond; then the reader's actor builds the page. Reading threads only clean up: they remove positions that
//! are too old or deleted for good. A slab stores the inboxes of a stripe close together: a delivery to one of a
//! million readers costs one or two cache misses, and all other costs are smaller.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;

use slab::Slab;

use crate::clock::UnixMicros;
use crate::feed::inbox::{Inbox, Push};
use crate::feed::position::Position;
use crate::id::SourceSlot;
use crate::limits::SAMPLED_INBOXES_MAX;
use crate::runtime::message::InboxTotals;
use crate::runtime::reader::lock::{Mutex, MutexGuard, lock_soon};
use crate::state::reader::PulledSources;
use crate::state::records::{InboxRecord, pack_positions};

/// Number of consecutive readers whose inboxes share a lock. With fewer, a post to a few followers takes nearly one lock for each of them;
/// with more, more pages find their stripe locked.
const STRIPE_READERS: usize = 1_024;

/// Maximum number of slots that are probed for a sample, some of which may be empty.
const SAMPLED_PLACES_MAX: usize = 8 * SAMPLED_INBOXES_MAX;

const NO_INBOX: u32 = WATCHED - 1;

/// The bit of a key that marks a watched reader.
const WATCHED: u32 = 1 << 31;

/// The number of inboxes that are read before the first of them is written, so that their cache misses overlap. The
/// best of 4 to 64 in measurements.
const GROUP: usize = 16;

/// The inboxes of one shard.
#[derive(Debug, Default)]
pub struct Inboxes {
    /// Consecutive readers share a stripe. Stripes are added as the numbers of the readers grow, and never removed.
    stripes: boxcar::Vec<Mutex<Stripe>>,
}

#[derive(Debug, Default)]
struct Stripe {
    slots: Slab<Inbox>,
    /// For each slot, the sources of its reader that must be pulled, as of the last page that was built from a copy.
    pulled: Vec<Option<Arc<PulledSources>>>,
    /// The slot of each reader's inbox, with the bit [`WATCHED`].
    keys: Vec<u32>,
}

/// A copy of the newest part of an inbox.
#[derive(Debug)]
pub struct InboxCopy {
    /// The newest positions. The floor is raised to the newest position that was left out.
    pub inbox: Inbox,
    /// True if positions were left out.
    pub is_cut: bool,
    /// The sources to pull, as of the last copy.
    pub pulled: Option<Arc<PulledSources>>,
}

/// The result of a delivery to several inboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delivered {
    /// The number of inboxes to which the post was added.
    pub added: u64,
    /// The number of inboxes that already contained it.
    pub duplicates: u64,
    /// The number of inboxes whose floor is above it.
    pub below_floor: u64,
}

/// The place at which the next sample continues, and the result of the last one.
#[derive(Debug, Default)]
pub struct Sample {
    stripe: usize,
    slot: usize,
    /// The mean heap bytes of the inboxes in the last sample.
    bytes_each: f64,
}

impl Inboxes {
    /// Adds a post to the inboxes of `recipients`, given by their numbers within the shard. A recipient without inbox
    /// is asleep and finds the post when it wakes. With `late_at` the post may have a position far below those that
    /// arrived before it. Calls `on_watched` for each watched recipient.
    pub fn deliver(
        &self,
        position: Position,
        late_at: Option<UnixMicros>,
        recipients: &[u32],
        mut on_watched: impl FnMut(u32),
    ) -> Delivered {
        let mut delivered = Delivered::default();
        for of_stripe in recipients.chunk_by(|one, other| stripe_of(*one) == stripe_of(*other)) {
            let Some(stripe) = of_stripe.first().and_then(|first| self.stripes.get(stripe_of(*first))) else {
                continue;
            };
            stripe.lock().deliver(position, late_at, of_stripe, &mut delivered, &mut on_watched);
        }
        delivered
    }

    /// Opens an empty inbox for a reader that has none.
    pub fn open(&self, reader: u32, posts_max: NonZeroUsize) {
        while self.stripes.count() <= stripe_of(reader) {
            self.stripes.push(Mutex::default());
        }
        if let Some(mut stripe) = self.stripe(reader) {
            let slot = stripe.slots.insert(Inbox::new(posts_max));
            let nth = nth(reader);
            if stripe.keys.len() <= nth {
                stripe.keys.resize(nth + 1, NO_INBOX);
            }
            stripe.keys[nth] = slot as u32;
            if stripe.pulled.len() <= slot {
                stripe.pulled.resize(slot + 1, None);
            }
        }
    }

    /// Removes the inbox of a reader.
    pub fn close(&self, reader: u32) {
        let Some(mut stripe) = self.stripe(reader) else { return };
        let Some(slot) = stripe.slot_of(reader) else { return };
        // Dropped after the lock is released.
        let _removed = (stripe.slots.remove(slot), stripe.pulled[slot].take());
        stripe.keys[nth(reader)] = NO_INBOX;
        drop(stripe);
    }

    /// Calls `work` with the inbox of a reader, if there is one.
    pub fn with<T>(&self, reader: u32, work: impl FnOnce(&mut Inbox) -> T) -> Option<T> {
        let mut stripe = self.stripe(reader)?;
        let slot = stripe.slot_of(reader)?;
        Some(work(&mut stripe.slots[slot]))
    }

    /// Marks a reader as watched, or as not watched.
    pub fn set_watched(&self, reader: u32, is_watched: bool) {
        if let Some(mut stripe) = self.stripe(reader)
            && let Some(key) = stripe.keys.get_mut(nth(reader))
        {
            *key = if is_watched { *key | WATCHED } else { *key & !WATCHED };
        }
    }

    /// Removes positions at or below `oldest` from a reader's inbox, then copies the newest ones, at most `max`.
    /// Returns None if the reader is asleep or watched, or the stripe stays locked.
    pub fn copy_newest(&self, reader: u32, max: usize, oldest: Position) -> Option<InboxCopy> {
        // Allocated before the lock is taken.
        let positions = Vec::with_capacity(max + 1);
        let mut stripe = self.stripes.get(stripe_of(reader)).and_then(lock_soon)?;
        let key = *stripe.keys.get(nth(reader))?;
        if key & WATCHED != 0 {
            return None;
        }
        let slot = place(key);
        let inbox = stripe.slots.get_mut(slot)?;
        inbox.raise_floor(oldest);
        let (inbox, is_cut) = (inbox.copy_newest(max, positions), inbox.len() > max);
        Some(InboxCopy { inbox, is_cut, pulled: stripe.pulled[slot].clone() })
    }

    /// Stores the pulled sources of a reader for its next page.
    pub fn set_pulled(&self, reader: u32, pulled: &Arc<PulledSources>) {
        if let Some(stripe) = self.stripe(reader) {
            set_pulled(stripe, reader, pulled);
        }
    }

    /// Does the same, unless the stripe is locked: the sources can be computed again.
    pub fn try_set_pulled(&self, reader: u32, pulled: &Arc<PulledSources>) {
        if let Some(stripe) = self.stripes.get(stripe_of(reader)).and_then(lock_soon) {
            set_pulled(stripe, reader, pulled);
        }
    }

    /// Removes posts that are deleted for good from a reader's inbox, unless the stripe is locked: pages skip them anyway.
    pub fn try_remove(&self, reader: u32, gone: &[Position]) {
        if let Some(mut stripe) = self.stripes.get(stripe_of(reader)).and_then(lock_soon)
            && let Some(slot) = stripe.slot_of(reader)
        {
            for position in gone {
                stripe.slots[slot].remove(*position);
            }
        }
    }

    /// Copies at most `max` inboxes, of readers from number `from` on. Returns the next start if there are more.
    pub fn copies(&self, from: u32, max: usize, slot: impl Fn(u32) -> SourceSlot) -> (Vec<InboxRecord>, Option<u32>) {
        let mut copies = Vec::with_capacity(max);
        for (nth_stripe, stripe) in self.stripes.iter().skip(stripe_of(from)) {
            let stripe = stripe.lock();
            let first = (nth_stripe * STRIPE_READERS) as u32;
            for reader in from.max(first)..first + stripe.keys.len() as u32 {
                if copies.len() == max {
                    return (copies, Some(reader));
                }
                let Some(inbox) = stripe.slot_of(reader).map(|slot| &stripe.slots[slot]) else { continue };
                copies.push(InboxRecord {
                    reader: slot(reader).0,
                    synced: inbox.synced(),
                    floor: inbox.floor(),
                    posts: pack_positions(inbox.oldest_first()),
                });
            }
        }
        (copies, None)
    }

    /// Counts the contents of the inboxes.
    pub fn totals(&self) -> InboxTotals {
        let mut totals = InboxTotals::default();
        for (_, stripe) in &self.stripes {
            let stripe = stripe.lock();
            totals.bytes += stripe.index_bytes();
            for (slot, inbox) in &stripe.slots {
                totals.inboxes += 1;
                totals.entries += inbox.len();
                totals.bytes += size_of::<Inbox>() + inbox.heap_bytes() + stripe.pulled_bytes(slot);
            }
        }
        totals
    }

    /// Estimates the bytes of all inboxes from a sample: all inboxes if there are few, otherwise different ones each
    /// time.
    pub fn sample(&self, sample: &mut Sample) -> usize {
        let (mut inboxes, mut fixed) = (0, 0);
        for (_, stripe) in &self.stripes {
            let stripe = stripe.lock();
            inboxes += stripe.slots.len();
            fixed += stripe.slots.capacity() * size_of::<Inbox>() + stripe.index_bytes();
        }
        let (mut looked, mut bytes) = (0, 0);
        for _ in 0..SAMPLED_PLACES_MAX {
            if looked == SAMPLED_INBOXES_MAX.min(inboxes) {
                break;
            }
            let stripe = self.stripes.get(sample.stripe).map(Mutex::lock);
            // A removed inbox leaves an empty entry in the slab.
            if let Some(stripe) = &stripe
                && let Some(inbox) = stripe.slots.get(sample.slot)
            {
                looked += 1;
                bytes += inbox.heap_bytes() + stripe.pulled_bytes(sample.slot);
            }
            sample.slot += 1;
            if stripe.is_none_or(|stripe| sample.slot >= stripe.slots.capacity()) {
                sample.slot = 0;
                sample.stripe = (sample.stripe + 1) % self.stripes.count().max(1);
            }
        }
        if looked > 0 {
            sample.bytes_each = bytes as f64 / looked as f64;
        }
        (sample.bytes_each * inboxes as f64) as usize + fixed
    }

    /// Returns the number of inboxes for which memory is allocated.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.stripes.iter().map(|(_, stripe)| stripe.lock().slots.capacity()).sum()
    }

    /// Locks the stripe of a reader.
    fn stripe(&self, reader: u32) -> Option<MutexGuard<'_, Stripe>> {
        self.stripes.get(stripe_of(reader)).map(Mutex::lock)
    }
}

impl Stripe {
    fn deliver(
        &mut self,
        position: Position,
        late_at: Option<UnixMicros>,
        recipients: &[u32],
        delivered: &mut Delivered,
        on_watched: &mut impl FnMut(u32),
    ) {
        for group in recipients.chunks(GROUP) {
            let mut keys = [NO_INBOX; GROUP];
            for (key, recipient) in keys.iter_mut().zip(group) {
                *key = self.keys.get(nth(*recipient)).copied().unwrap_or(NO_INBOX);
            }
            let mut touched = 0;
            for key in keys {
                let newest = self.slots.get(place(key)).and_then(Inbox::newest);
                touched ^= newest.map_or(0, |position| position.id.0);
            }
            black_box(touched);
            for (key, recipient) in keys.into_iter().zip(group) {
                let push = |inbox: &mut Inbox| {
                    late_at.into_iter().for_each(|at| inbox.note_late(at));
                    inbox.push(position)
                };
                match self.slots.get_mut(place(key)).map(push) {
                    Some(Push::Added { .. }) => delivered.added += 1,
                    Some(Push::Duplicate) => delivered.duplicates += 1,
                    Some(Push::BelowFloor) => delivered.below_floor += 1,
                    None => {}
                }
                if key & WATCHED != 0 {
                    on_watched(*recipient);
                }
            }
        }
    }

    fn slot_of(&self, reader: u32) -> Option<usize> {
        let slot = place(*self.keys.get(nth(reader))?);
        self.slots.contains(slot).then_some(slot)
    }

    fn pulled_bytes(&self, slot: usize) -> usize {
        self.pulled[slot].as_ref().map_or(0, |pulled| pulled.heap_bytes())
    }

    fn index_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<u32>() + self.pulled.capacity() * size_of::<Option<Arc<PulledSources>>>()
    }
}

fn set_pulled(mut stripe: MutexGuard<'_, Stripe>, reader: u32, pulled: &Arc<PulledSources>) {
    let Some(slot) = stripe.slot_of(reader) else { return };
    let before = stripe.pulled[slot].replace(Arc::clone(pulled));
    // The list is freed after the lock is released.
    drop(stripe);
    drop(before);
}

fn stripe_of(reader: u32) -> usize {
    reader as usize / STRIPE_READERS
}

fn nth(reader: u32) -> usize {
    reader as usize % STRIPE_READERS
}

fn place(key: u32) -> usize {
    (key & !WATCHED) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    const READER: u32 = 7;

    fn inboxes(posts_max: usize) -> Inboxes {
        let inboxes = Inboxes::default();
        inboxes.open(READER, NonZeroUsize::new(posts_max).unwrap());
        inboxes
    }

    fn copy(inboxes: &Inboxes, max: usize) -> Option<Inbox> {
        inboxes.copy_newest(READER, max, Position::MIN).map(|copy| copy.inbox)
    }

    #[test]
    fn a_copy_is_a_smaller_inbox_that_received_the_same_posts() {
        let mut random = fastrand::Rng::with_seed(1);
        for posts_max in [1, 30, 100, 300] {
            let (inboxes, mut smaller) =
                (inboxes(posts_max), Inbox::new(NonZeroUsize::new(posts_max.min(42)).unwrap()));
            for _ in 0..500 {
                let position = at(random.i64(0..400), 1);
                inboxes.deliver(position, None, &[READER], |_| {});
                smaller.push(position);
                let copy = copy(&inboxes, 42).unwrap();
                assert_eq!(copy.floor(), smaller.floor());
                assert!(copy.iter().eq(smaller.iter()) && copy.len() == smaller.len());
                assert_eq!(copy.contains(position), smaller.contains(position));
            }
        }
    }

    #[test]
    fn a_copy_first_drops_expired_posts() {
        let inboxes = inboxes(9);
        for time in 1..=5 {
            inboxes.deliver(at(time, 1), None, &[READER], |_| {});
        }
        let copy = inboxes.copy_newest(READER, 9, at(3, 1)).unwrap().inbox;
        assert!(copy.iter().eq([at(5, 1), at(4, 1)]));
        assert_eq!((copy.floor(), inboxes.totals().entries), (at(3, 1), 2));
    }

    #[test]
    fn inboxes_that_are_closed_watched_or_locked_are_not_copied() {
        let (inboxes, other_stripe) = (inboxes(9), READER + STRIPE_READERS as u32);
        inboxes.open(other_stripe, NonZeroUsize::MIN);
        assert!(copy(&inboxes, 9).is_some());
        inboxes.with(other_stripe, |_| assert!(copy(&inboxes, 9).is_some())).unwrap();
        inboxes.with(READER, |_| assert!(copy(&inboxes, 9).is_none())).unwrap();
        inboxes.set_watched(READER, true);
        assert!(copy(&inboxes, 9).is_none());
        inboxes.set_watched(READER, false);
        assert!(copy(&inboxes, 9).is_some());
        inboxes.close(READER);
        assert!(copy(&inboxes, 9).is_none() && inboxes.copy_newest(READER + 1, 9, Position::MIN).is_none());
        assert_eq!(inboxes.totals().inboxes, 1);
    }
}

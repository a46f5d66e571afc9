//! The inbox store: the inboxes of one shard.
//!
//! Responsible for:
//! - access to an inbox for exactly two parties: its user actor, through an [`InboxHandle`], and the shard's courier,
//!   through [`InboxStore::deliver`];
//! - removing an inbox when its user actor ends, for whatever reason;
//! - collecting invalidations for watched readers, and the list of actors that the courier has to notify.
//!
//! Not responsible for:
//! - choosing the posts to deliver (`runtime::fanout`), storing them in an inbox (`feed::inbox`).
//!
//! Both parties run on the shard's thread, one at a time, so neither locks nor waits. A slab stores the inboxes close
//! together: a delivery to one of a million readers costs one or two cache misses, and all other costs are smaller.

use std::cell::RefCell;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::clock::UnixMicros;
use crate::feed::inbox::{Inbox, Push};
use crate::feed::position::Position;
use crate::feed::stream::Invalidation;
use crate::id::SourceSlot;
use crate::limits::{LIVE_NOTICES_MAX, SAMPLED_INBOXES_MAX};
use crate::live::event::{LiveEntry, RecentItems};
use crate::runtime::message::InboxTotals;
use crate::runtime::reader::user::UserActor;
use crate::state::records::{InboxRecord, pack_positions};
use crate::state::view::Entry;

/// Maximum number of slots that are probed for these inboxes, some of which may be empty.
const SAMPLED_PLACES_MAX: usize = 8 * SAMPLED_INBOXES_MAX;

/// The inboxes of one shard.
#[derive(Debug, Default)]
pub struct InboxStore {
    inboxes: Slab<Inbox>,
    /// The key of each reader's inbox, indexed by the reader's number within the shard, with the bit [`WATCHED`].
    keys: Vec<u32>,
    /// The invalidations of watched readers, by the reader's number within the shard.
    watcher_slots: FxHashMap<u32, WatcherSlot>,
    /// The readers whose actors have to be notified, each once.
    to_wake: Vec<u32>,
    /// Items that were sent to several readers with the same content.
    recent_items: RecentItems,
    /// The slab index at which the next sample continues.
    sampled: usize,
    /// The mean heap bytes of the inboxes in the last sample.
    bytes_each: f64,
}

/// The invalidations of one watched reader, until its actor takes them.
#[derive(Debug)]
struct WatcherSlot {
    user: Addr<UserActor>,
    invalidations: Vec<Invalidation>,
}

const NO_INBOX: u32 = WATCHED - 1;

/// The bit of a key that marks a watched reader.
const WATCHED: u32 = 1 << 31;

/// The number of inboxes that are read before the first of them is written, so that their cache misses overlap. The
/// best of 4 to 64 in measurements.
const GROUP: usize = 16;

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

impl InboxStore {
    /// Adds a post to the inboxes of `recipients`, given by their numbers within the shard. A recipient without inbox
    /// is asleep and finds the post when it wakes. With `late_at` the post may have a position far below those that
    /// arrived before it.
    pub fn deliver(&mut self, position: Position, late_at: Option<UnixMicros>, recipients: &[u32]) -> Delivered {
        let mut delivered = Delivered::default();
        for group in recipients.chunks(GROUP) {
            let mut keys = [NO_INBOX; GROUP];
            for (key, recipient) in keys.iter_mut().zip(group) {
                *key = self.keys.get(*recipient as usize).copied().unwrap_or(NO_INBOX);
            }
            let mut touched = 0;
            for key in keys {
                let newest = self.inboxes.get(place(key)).and_then(Inbox::newest);
                touched ^= newest.map_or(0, |position| position.id.0);
            }
            black_box(touched);
            for (key, recipient) in keys.into_iter().zip(group) {
                let push = |inbox: &mut Inbox| {
                    late_at.into_iter().for_each(|at| inbox.note_late(at));
                    inbox.push(position)
                };
                match self.inboxes.get_mut(place(key)).map(push) {
                    Some(Push::Added { .. }) => delivered.added += 1,
                    Some(Push::Duplicate) => delivered.duplicates += 1,
                    Some(Push::BelowFloor) => delivered.below_floor += 1,
                    None => {}
                }
                if key & WATCHED != 0 {
                    self.note(*recipient, Invalidation::Published(position));
                }
            }
        }
        delivered
    }

    /// Adds an invalidation for those of `recipients` that are watched.
    pub fn notify(&mut self, invalidation: Invalidation, recipients: &[u32]) {
        for recipient in recipients {
            self.note(*recipient, invalidation);
        }
    }

    fn note(&mut self, reader: u32, invalidation: Invalidation) {
        let Some(WatcherSlot { invalidations, .. }) = self.watcher_slots.get_mut(&reader) else { return };
        if invalidations.is_empty() {
            self.to_wake.push(reader);
        }
        add(invalidations, invalidation);
    }

    /// Calls `wake` for each actor that got its first invalidation since the last call.
    pub fn wake_users(&mut self, wake: impl Fn(&Addr<UserActor>)) {
        for reader in self.to_wake.drain(..) {
            if let Some(watcher_slot) = self.watcher_slots.get(&reader) {
                wake(&watcher_slot.user);
            }
        }
    }

    /// Copies at most `max` inboxes, of readers from number `from` on. Returns the next start if there are more.
    pub fn copies(&self, from: u32, max: usize, slot: impl Fn(u32) -> SourceSlot) -> (Vec<InboxRecord>, Option<u32>) {
        let mut copies = Vec::with_capacity(max);
        for reader in from..self.keys.len() as u32 {
            if copies.len() == max {
                return (copies, Some(reader));
            }
            let Some(inbox) = self.inboxes.get(place(self.keys[reader as usize])) else { continue };
            copies.push(InboxRecord {
                reader: slot(reader).0,
                synced: inbox.synced(),
                floor: inbox.floor(),
                posts: pack_positions(inbox.oldest_first()),
            });
        }
        (copies, None)
    }

    /// Counts the contents of the inboxes.
    pub fn totals(&self) -> InboxTotals {
        let mut totals = InboxTotals { bytes: self.keys.capacity() * size_of::<u32>(), ..InboxTotals::default() };
        for (_, inbox) in &self.inboxes {
            totals.inboxes += 1;
            totals.entries += inbox.len();
            totals.bytes += size_of::<Inbox>() + inbox.heap_bytes();
        }
        totals
    }

    /// Estimates the bytes of all inboxes from a sample: all inboxes if there are few, otherwise different ones each
    /// time.
    pub fn sample(&mut self) -> usize {
        let (places, mut looked, mut bytes) = (self.inboxes.capacity(), 0, 0);
        // A removed inbox leaves an empty entry in the slab.
        for _ in 0..places.min(SAMPLED_PLACES_MAX) {
            if looked == SAMPLED_INBOXES_MAX {
                break;
            }
            if let Some(inbox) = self.inboxes.get(self.sampled) {
                looked += 1;
                bytes += inbox.heap_bytes();
            }
            self.sampled = (self.sampled + 1) % places;
        }
        if looked > 0 {
            self.bytes_each = bytes as f64 / looked as f64;
        }
        let on_heap = (self.bytes_each * self.inboxes.len() as f64) as usize;
        on_heap + self.inboxes.capacity() * size_of::<Inbox>() + self.keys.capacity() * size_of::<u32>()
    }

    fn open(&mut self, reader: u32, posts_max: NonZeroUsize) -> usize {
        let key = self.inboxes.insert(Inbox::new(posts_max));
        let reader = reader as usize;
        if self.keys.len() <= reader {
            self.keys.resize(reader + 1, NO_INBOX);
        }
        self.keys[reader] = key as u32;
        key
    }

    fn close(&mut self, reader: u32, key: usize) {
        self.inboxes.remove(key);
        self.keys[reader as usize] = NO_INBOX;
        self.watcher_slots.remove(&reader);
    }

    fn watch(&mut self, reader: u32, user: Addr<UserActor>) {
        self.keys[reader as usize] |= WATCHED;
        self.watcher_slots.insert(reader, WatcherSlot { user, invalidations: Vec::new() });
    }

    fn unwatch(&mut self, reader: u32) {
        self.keys[reader as usize] &= !WATCHED;
        self.watcher_slots.remove(&reader);
    }
}

/// Adds an invalidation, unless a waiting one covers it. Above the limit, one [`Invalidation::Missed`] replaces all
/// of them.
fn add(invalidations: &mut Vec<Invalidation>, invalidation: Invalidation) {
    if invalidations.iter().any(|waiting| waiting.covers(invalidation)) {
        return;
    }
    let invalidation = if invalidations.len() >= LIVE_NOTICES_MAX { Invalidation::Missed } else { invalidation };
    invalidations.retain(|waiting| !invalidation.covers(*waiting));
    invalidations.push(invalidation);
}

fn place(key: u32) -> usize {
    (key & !WATCHED) as usize
}

/// A user actor's handle of its inbox. Dropping the handle removes the inbox.
#[derive(Debug)]
pub struct InboxHandle {
    inbox_store: Rc<RefCell<InboxStore>>,
    reader: u32,
    key: usize,
}

impl InboxHandle {
    /// Opens an empty inbox for a reader that has none, given by its number within the shard.
    pub fn open(inbox_store: Rc<RefCell<InboxStore>>, reader: u32, posts_max: NonZeroUsize) -> Self {
        let key = inbox_store.borrow_mut().open(reader, posts_max);
        Self { inbox_store, reader, key }
    }

    /// Calls `work` with the inbox.
    pub fn with<T>(&self, work: impl FnOnce(&mut Inbox) -> T) -> T {
        work(&mut self.inbox_store.borrow_mut().inboxes[self.key])
    }

    /// Starts to collect invalidations for the reader. The courier notifies `user` when there are any.
    pub fn watch(&self, user: Addr<UserActor>) {
        self.inbox_store.borrow_mut().watch(self.reader, user);
    }

    /// Stops collecting invalidations.
    pub fn unwatch(&self) {
        self.inbox_store.borrow_mut().unwatch(self.reader);
    }

    /// Returns the invalidations collected since the last call.
    pub fn take_invalidations(&self) -> Vec<Invalidation> {
        let mut inbox_store = self.inbox_store.borrow_mut();
        inbox_store
            .watcher_slots
            .get_mut(&self.reader)
            .map(|watcher_slot| std::mem::take(&mut watcher_slot.invalidations))
            .unwrap_or_default()
    }

    /// Returns the item of an entry, shared with other readers of the shard for whom the entry has the same content.
    pub fn item(&self, at: Position, entry: Entry) -> Arc<LiveEntry> {
        self.inbox_store.borrow_mut().recent_items.item(at, entry)
    }
}

impl Drop for InboxHandle {
    fn drop(&mut self) {
        self.inbox_store.borrow_mut().close(self.reader, self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use crate::id::PostId;

    #[test]
    fn mail_reaches_open_pigeonholes_only() {
        let inbox_store = Rc::new(RefCell::new(InboxStore::default()));
        let posts_max = NonZeroUsize::new(2).unwrap();
        let handles: Vec<_> =
            (0..40).map(|reader| InboxHandle::open(Rc::clone(&inbox_store), reader * 2, posts_max)).collect();
        let everyone: Vec<u32> = (0..100).collect();
        let all = Delivered { added: 40, ..Delivered::default() };
        assert_eq!(inbox_store.borrow_mut().deliver(at(1, 1), None, &everyone), all);
        let again = Delivered { duplicates: 40, ..Delivered::default() };
        assert_eq!(inbox_store.borrow_mut().deliver(at(1, 1), None, &everyone), again);
        assert!(handles.iter().all(|handle| handle.with(|inbox| inbox.len()) == 1));
        drop(handles);
        assert_eq!(inbox_store.borrow_mut().deliver(at(2, 2), None, &everyone), Delivered::default());
        assert_eq!(inbox_store.borrow().totals().inboxes, 0);
    }

    #[test]
    fn a_survey_looks_at_few_inboxes_and_tells_of_all() {
        let inbox_store = Rc::new(RefCell::new(InboxStore::default()));
        let readers = 3 * SAMPLED_INBOXES_MAX as u32;
        let posts_max = NonZeroUsize::new(800).unwrap();
        let sample = || inbox_store.borrow_mut().sample() as f64;
        assert!(sample() < 1.0, "no inboxes take nothing");
        let handles: Vec<_> =
            (0..readers).map(|reader| InboxHandle::open(Rc::clone(&inbox_store), reader, posts_max)).collect();
        for nth in 0..200 {
            // Readers with even numbers get all posts, the others half of them.
            let recipients: Vec<u32> = (0..readers).filter(|reader| nth % 2 == 0 || reader % 2 == 0).collect();
            inbox_store.borrow_mut().deliver(at(nth, 1), None, &recipients);
        }
        let counted = inbox_store.borrow().totals().bytes as f64;
        let free = (inbox_store.borrow().inboxes.capacity() - readers as usize) * size_of::<Inbox>();
        for _ in 0..9 {
            let sampled = sample() - free as f64;
            assert!((0.99..1.01).contains(&(sampled / counted)), "{sampled} bytes sampled, and {counted} counted");
        }
        drop(handles);
        let empty: Vec<_> = (0..9).map(|_| sample()).collect();
        assert!(empty.iter().all(|sampled| *sampled < counted / 2.0 && sampled == &empty[0]), "{empty:?}");
    }

    #[test]
    fn no_notice_is_dropped_for_one_that_says_less() {
        let post = |id| Invalidation::Published(at(1, id));
        let turned = |id| Invalidation::EntryChanged(PostId(id));
        let wait = |invalidations: &[Invalidation]| {
            let mut waiting = Vec::new();
            invalidations.iter().for_each(|invalidation| add(&mut waiting, *invalidation));
            waiting
        };
        assert_eq!(wait(&[post(1), post(2), post(1)]), [post(1), post(2)]);
        let all = [post(1), Invalidation::Marked, turned(1), Invalidation::Everything, turned(2), post(3)];
        assert_eq!(wait(&all), [Invalidation::Marked, turned(1), Invalidation::Everything, turned(2)]);
        let many: Vec<Invalidation> = (0..=LIVE_NOTICES_MAX as u64).map(turned).collect();
        assert_eq!(wait(&many[1..]), many[1..]);
        assert_eq!(wait(&many), [Invalidation::Missed]);
        assert_eq!(wait(&[&many[..], &all].concat()), [Invalidation::Missed]);
    }
}

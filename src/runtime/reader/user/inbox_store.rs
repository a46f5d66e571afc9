//! The inbox store: the inboxes of one shard.
//!
//! User actors and the courier use it on the shard's thread, one at a time. Other threads only copy inboxes
//! (`runtime::reader::inboxes`).

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use actix::Addr;
use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::feed::inbox::Inbox;
use crate::feed::position::Position;
use crate::feed::stream::Invalidation;
use crate::limits::LIVE_NOTICES_MAX;
use crate::live::event::{LiveEntry, RecentItems};
use crate::runtime::reader::inboxes::{Delivered, Inboxes, Sample};
use crate::runtime::reader::user::UserActor;
use crate::state::feed_filter::Entry;
use crate::state::reader::PulledSources;

/// The inboxes of one shard, as the shard's thread uses them.
#[derive(Debug)]
pub struct InboxStore {
    inboxes: Arc<Inboxes>,
    /// The invalidations of watched readers, by the reader's number within the shard.
    watcher_slots: FxHashMap<u32, WatcherSlot>,
    /// The readers whose actors have to be notified, each once.
    to_wake: Vec<u32>,
    /// Items that were sent to several readers with the same content.
    recent_items: RecentItems,
    sample: Sample,
}

/// The invalidations of one watched reader, until its actor takes them.
#[derive(Debug)]
struct WatcherSlot {
    user: Addr<UserActor>,
    invalidations: Vec<Invalidation>,
}

impl InboxStore {
    /// Creates the store of these inboxes.
    pub fn new(inboxes: Arc<Inboxes>) -> Self {
        let (watcher_slots, to_wake) = (FxHashMap::default(), Vec::new());
        Self { inboxes, watcher_slots, to_wake, recent_items: RecentItems::default(), sample: Sample::default() }
    }

    /// Adds a post to the inboxes of `recipients`, as [`Inboxes::deliver`] does, and notes it for the watched ones.
    pub fn deliver(&mut self, position: Position, late_at: Option<UnixMicros>, recipients: &[u32]) -> Delivered {
        let inboxes = Arc::clone(&self.inboxes);
        inboxes.deliver(position, late_at, recipients, |reader| self.note(reader, Invalidation::Published(position)))
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

    /// Returns the inboxes.
    pub fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    /// Estimates the bytes of all inboxes from a sample.
    pub fn sample(&mut self) -> usize {
        self.inboxes.sample(&mut self.sample)
    }

    fn close(&mut self, reader: u32) {
        self.inboxes.close(reader);
        self.watcher_slots.remove(&reader);
    }

    fn watch(&mut self, reader: u32, user: Addr<UserActor>) {
        self.inboxes.set_watched(reader, true);
        self.watcher_slots.insert(reader, WatcherSlot { user, invalidations: Vec::new() });
    }

    fn unwatch(&mut self, reader: u32) {
        self.inboxes.set_watched(reader, false);
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
    // The others cover only their equals, of which none waits.
    if matches!(invalidation, Invalidation::Everything | Invalidation::Missed) {
        invalidations.retain(|waiting| !invalidation.covers(*waiting));
    }
    invalidations.push(invalidation);
}

/// A user actor's handle of its inbox. Dropping the handle removes the inbox.
#[derive(Debug)]
pub struct InboxHandle {
    inbox_store: Rc<RefCell<InboxStore>>,
    inboxes: Arc<Inboxes>,
    reader: u32,
}

impl InboxHandle {
    /// Opens an empty inbox for a reader that has none, given by its number within the shard.
    pub fn open(inbox_store: Rc<RefCell<InboxStore>>, reader: u32, posts_max: NonZeroUsize) -> Self {
        let inboxes = Arc::clone(&inbox_store.borrow().inboxes);
        inboxes.open(reader, posts_max);
        Self { inbox_store, inboxes, reader }
    }

    /// Calls `work` with the inbox. Meanwhile no other thread can read this inbox or any other inbox of the stripe.
    ///
    /// # Panics
    /// Panics if the inbox is gone, which happens only if the handle was dropped.
    pub fn with<T>(&self, work: impl FnOnce(&mut Inbox) -> T) -> T {
        self.inboxes.with(self.reader, work).expect("an inbox is there as long as its handle")
    }

    /// Returns the inbox and leaves an empty one, which has the posts of no edge.
    pub fn take(&self) -> Inbox {
        self.with(|inbox| std::mem::replace(inbox, Inbox::new(inbox.posts_max())))
    }

    /// Removes posts that are deleted for good.
    pub fn remove(&self, gone: &[Position]) {
        if !gone.is_empty() {
            self.with(|inbox| {
                for position in gone {
                    inbox.remove(*position);
                }
            });
        }
    }

    /// Stores the sources to pull, for pages that are built from a copy of the inbox.
    pub fn set_pulled(&self, pulled: &Arc<PulledSources>) {
        self.inboxes.set_pulled(self.reader, pulled);
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
        self.inbox_store.borrow_mut().close(self.reader);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use crate::id::PostId;
    use crate::limits::SAMPLED_INBOXES_MAX;

    #[test]
    fn posts_are_delivered_to_open_inboxes_only() {
        let inbox_store = Rc::new(RefCell::new(InboxStore::new(Arc::default())));
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
        assert_eq!(inbox_store.borrow().inboxes.totals().inboxes, 0);
    }

    #[test]
    fn a_sample_of_few_inboxes_estimates_the_bytes_of_all() {
        let inbox_store = Rc::new(RefCell::new(InboxStore::new(Arc::default())));
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
        let counted = inbox_store.borrow().inboxes.totals().bytes as f64;
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
    fn a_notice_is_never_replaced_by_a_less_specific_one() {
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

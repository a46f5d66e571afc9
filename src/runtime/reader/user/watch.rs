//! The watch of one reader: the events for its live connections.

use std::sync::Arc;
use std::time::Instant;

use actix::Addr;

use crate::clock::UnixMicros;
use crate::feed::lookups::{Asked, LookupValidity, Lookups};
use crate::feed::page::{Page, Range, Reach};
use crate::feed::position::Position;
use crate::feed::preferences::Preferences;
use crate::feed::stream::{Change, EntryFingerprint, Epoch, FeedStream, Invalidation, StreamPosition};
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceSlot};
use crate::limits::{LIVE_CONNECTIONS_PER_READER_MAX, LIVE_QUEUE_BYTES_MAX};
use crate::live::event::{EventKind, LiveEvent};
use crate::live::subscriber_queue::{Pushed, SubscriberGuard, SubscriberQueue};
use crate::runtime::core::Core;
use crate::runtime::message::Fetched;
use crate::runtime::reader::user::UserActor;
use crate::runtime::reader::user::inbox_store::InboxHandle;
use crate::state::feed_filter::{Entry, PostLookup};
use crate::state::posts::Stored;
use crate::state::reader::{Archived, LookupTarget, Reader};
use crate::state::viewer::Viewer;

/// The data that a watch reads.
pub(super) struct WatchContext<'a> {
    pub(super) core: &'a Core,
    pub(super) reader: &'a mut Reader,
    pub(super) inbox_handle: &'a InboxHandle,
    pub(super) now: UnixMicros,
}

/// The watch of one reader.
#[derive(Debug)]
pub(super) struct Watch {
    stream: FeedStream,
    lookups: Lookups,
    subscribers: Vec<SubscriberGuard>,
    /// The unfollowed sources whose posts the reader keeps.
    kept: Vec<SourceSlot>,
    /// The reader's decisions when the whole feed was last compared.
    decided: Decided,
    /// True if a page has been read since then that does not agree with the events: it was built after other decisions,
    /// or before the invalidation was handled. After another decision this invalidation may not reach the reader, or
    /// may find no difference.
    has_divergent_page: bool,
    /// The time since which no connection is attached.
    unattended_since: Option<UnixMicros>,
}

/// An invalidation that waits for a lookup in the archive.
#[derive(Debug)]
pub(super) struct PendingLookup {
    pub(super) invalidation: Invalidation,
    pub(super) sought: LookupTarget,
    pub(super) asked: Asked,
}

/// The decisions of a reader about the feed.
#[derive(Debug)]
struct Decided {
    edges: u32,
    preferences: Arc<Preferences>,
}

impl Decided {
    fn by(viewer: &Viewer) -> Self {
        Self { edges: viewer.feed.version(), preferences: Arc::clone(&viewer.preferences) }
    }

    fn is_like(&self, other: &Self) -> bool {
        let (these, those) = (&*self.preferences, &*other.preferences);
        let has_same = || these.rules == those.rules && these.mutes == those.mutes && these.blocks == those.blocks;
        self.edges == other.edges && (Arc::ptr_eq(&self.preferences, &other.preferences) || has_same())
    }
}

impl Watch {
    /// Begins to watch. From now on invalidations are collected.
    pub(super) fn begin(context: &mut WatchContext<'_>, user: Addr<UserActor>) -> Self {
        // The watch is registered before the feed is read, so that later changes cause invalidations.
        context.inbox_handle.watch(user);
        context.core.watchers.enter(context.slot());
        let kept = context.kept();
        context.core.watchers.replace_kept(context.slot(), &[], &kept);
        let (entries, floor, viewer) = context.newest();
        let decided = Decided::by(&viewer);
        let epoch = Epoch(fastrand::u64(..));
        let stream = FeedStream::new(context.core.config.live, epoch, entry_fingerprints(&entries), floor);
        Self {
            stream,
            lookups: Lookups::new(epoch),
            subscribers: Vec::new(),
            kept,
            decided,
            has_divergent_page: false,
            unattended_since: Some(context.now),
        }
    }

    /// Attaches a connection. Returns false if the limit of connections is reached.
    pub(super) fn attach(
        &mut self,
        context: &mut WatchContext<'_>,
        subscriber: Arc<SubscriberQueue>,
        resume: Option<StreamPosition>,
    ) -> bool {
        self.prune(context.now);
        if self.subscribers.len() >= LIVE_CONNECTIONS_PER_READER_MAX {
            return false;
        }
        let missed = resume.and_then(|place| self.missed(context, place));
        let (place, recovered) = (resume.filter(|_| missed.is_some()), missed.is_some());
        let kind = EventKind::Hello { recovered, marker: context.marker() };
        let hello = LiveEvent { place: place.unwrap_or(self.stream.place()), kind };
        let events = [hello].into_iter().chain(missed.unwrap_or_default());
        let is_attached =
            events.map(|event| subscriber.push(event, Instant::now())).all(|pushed| pushed == Pushed::Queued);
        if is_attached {
            self.subscribers.push(SubscriberGuard(subscriber));
            self.unattended_since = None;
        }
        true
    }

    /// Returns the events that a reconnecting client missed, with the current content of posts. None if they are not
    /// known.
    fn missed(&self, context: &mut WatchContext<'_>, from: StreamPosition) -> Option<Vec<LiveEvent>> {
        let changes = self.stream.changes_after(from)?;
        let mut missed = Vec::new();
        for (last, change) in changes {
            let post = match change {
                Change::Post(post) | Change::Update(post) => context.entry_of(post, None).ok()?,
                Change::Remove(_) | Change::Stale(_) | Change::Marker => None,
            };
            let kind = context.kind(change, post)?;
            missed.push(LiveEvent { place: StreamPosition { last, ..from }, kind });
        }
        // More bytes would soon exceed the limit of the queue. Reading the feed again costs less.
        let is_too_much = missed.iter().map(LiveEvent::bytes).sum::<usize>() > LIVE_QUEUE_BYTES_MAX / 2;
        (!is_too_much).then_some(missed)
    }

    /// Handles an invalidation: sends the resulting events, or returns the lookup that it needs in the archive.
    pub(super) fn invalidation(
        &mut self,
        context: &mut WatchContext<'_>,
        invalidation: Invalidation,
    ) -> Option<PendingLookup> {
        self.lookups.note(invalidation);
        let post = match invalidation {
            Invalidation::Everything => {
                self.compare_all(context);
                return None;
            }
            Invalidation::Missed => {
                self.send_change(context, Change::Marker, None);
                // An entry that was added and removed unnoticed may be on a page that a client read in the meantime.
                self.send_change(context, Change::Stale(None), None);
                self.has_divergent_page = false;
                self.compare_all(context);
                return None;
            }
            Invalidation::Marked => {
                self.send_change(context, Change::Marker, None);
                return None;
            }
            Invalidation::Published(position) => match context.core.world.posts.stored(position.id) {
                Some(Stored::Live(post)) => post.repost_of.unwrap_or(post.id()),
                // The deletion has its own invalidation.
                Some(Stored::Deleted) => return None,
                // A post with a publication time far in the past may already be in the archive.
                None => return Some(self.pending_lookup(invalidation, LookupTarget::BroughtBy(position.id))),
            },
            Invalidation::Edited(post) | Invalidation::EntryChanged(post) => post,
        };
        match context.entry_of(post, None) {
            Ok(entry) => self.compare_entry(context, post, entry, invalidation),
            Err(Archived) => return Some(self.pending_lookup(invalidation, LookupTarget::Of(post))),
        }
        None
    }

    fn pending_lookup(&mut self, invalidation: Invalidation, sought: LookupTarget) -> PendingLookup {
        PendingLookup { invalidation, sought, asked: self.lookups.ask() }
    }

    /// Continues with an invalidation that waited for the archive.
    pub(super) fn fetched(&mut self, context: &mut WatchContext<'_>, fetched: Fetched) -> Option<PendingLookup> {
        let Fetched { invalidation, asked, found } = fetched;
        let answer = found.as_ref().map_or(LookupValidity::Good, |(post, _)| self.lookups.judge(asked, *post));
        let lookup = match (answer, found) {
            (LookupValidity::Good, found) => {
                self.compare_fetched(context, invalidation, found);
                None
            }
            (LookupValidity::Superseded, _) => None,
            // Treated as `EntryChanged`, which covers every other invalidation of the post.
            (LookupValidity::Outdated, found) => {
                found.and_then(|(post, _)| self.invalidation(context, Invalidation::EntryChanged(post)))
            }
        };
        self.lookups.end(asked);
        lookup
    }

    fn compare_fetched(
        &mut self,
        context: &mut WatchContext<'_>,
        invalidation: Invalidation,
        found: Option<(PostId, Vec<PostLookup>)>,
    ) {
        let seen = found.and_then(|(post, found)| Some((post, context.entry_of(post, Some(&found)).ok()?)));
        match seen {
            Some((post, entry)) => self.compare_entry(context, post, entry, invalidation),
            // The content of the change is unknown, so the event only reports that there is one.
            None => self.send_change(context, Change::Stale(None), None),
        }
    }

    fn compare_entry(
        &mut self,
        context: &mut WatchContext<'_>,
        post: PostId,
        entry: Option<(Position, Entry)>,
        invalidation: Invalidation,
    ) {
        let entry_fingerprint = entry.as_ref().map(|(at, entry)| entry.entry_fingerprint(*at));
        if let Some(change) = self.stream.observe(post, entry_fingerprint, invalidation) {
            self.send_change(context, change, entry);
        }
    }

    fn compare_all(&mut self, context: &mut WatchContext<'_>) {
        self.note_kept(context);
        let (mut entries, floor, viewer) = context.newest();
        let before = std::mem::replace(&mut self.decided, Decided::by(&viewer));
        // A changed limit of entries per source changes pages, even if the feed is the same.
        let has_other_pages = before.preferences.rules.per_source_max != self.decided.preferences.rules.per_source_max;
        if std::mem::take(&mut self.has_divergent_page) || has_other_pages {
            self.send_change(context, Change::Stale(None), None);
        }
        for change in self.stream.observe_all(entry_fingerprints(&entries), floor) {
            let entry = match change {
                Change::Post(post) | Change::Update(post) => {
                    entries.iter().position(|(_, entry)| entry.post.id() == post).map(|nth| entries.swap_remove(nth))
                }
                Change::Remove(_) | Change::Stale(_) | Change::Marker => None,
            };
            self.send_change(context, change, entry);
        }
    }

    fn send_change(&mut self, context: &mut WatchContext<'_>, change: Change, entry: Option<(Position, Entry)>) {
        let Some(kind) = context.kind(change, entry) else { return };
        let last = self.stream.record(change);
        let event = LiveEvent { place: StreamPosition { last, ..self.stream.place() }, kind };
        let (counters, now) = (&context.core.counters, Instant::now());
        self.subscribers.retain(|SubscriberGuard(subscriber)| {
            let pushed = subscriber.push(event.clone(), now);
            counters.live_messages.add(u64::from(pushed == Pushed::Queued));
            counters.live_cut_off.add(u64::from(pushed == Pushed::CutOff));
            pushed == Pushed::Queued
        });
        self.note_unattended(context.now);
    }

    /// Records that a page was built with this watch's reader.
    pub(super) fn page_built(&mut self, range: Range, page: &Page<Entry>, viewer: &Viewer) {
        let is_shown = !range.is_count();
        let agrees = || self.decided.is_like(&Decided::by(viewer)) && self.agrees_with(range, page);
        self.has_divergent_page = self.has_divergent_page || is_shown && !agrees();
    }

    /// Returns true if the events sent so far agree with a page, as far down as the stream is known.
    fn agrees_with(&self, range: Range, page: &Page<Entry>) -> bool {
        if let (Range::Resume(_), false) = (range, page.gap) {
            return self.agrees_with_each(page);
        }
        let shown = shown(range, page);
        if page.needs_archive || page.reach != Reach::Full {
            // The page will be built on another thread, later.
            return shown.end <= self.stream.floor();
        }
        page.partial.is_empty() && self.stream.agrees(&entry_fingerprints(&page.items), shown, page.passed_over)
    }

    /// Returns true if the events sent so far agree with the entries of a page whose range is unknown.
    fn agrees_with_each(&self, page: &Page<Entry>) -> bool {
        let agrees =
            |(at, entry): &(Position, Entry)| self.stream.agrees(&[entry.entry_fingerprint(*at)], *at..at.next_up(), 0);
        !page.needs_archive && page.partial.is_empty() && page.items.iter().all(agrees)
    }

    /// Removes connections that have ended.
    pub(super) fn prune(&mut self, now: UnixMicros) {
        self.subscribers.retain(|SubscriberGuard(subscriber)| !subscriber.is_closed());
        self.note_unattended(now);
    }

    fn note_unattended(&mut self, now: UnixMicros) {
        if self.subscribers.is_empty() && self.unattended_since.is_none() {
            self.unattended_since = Some(now);
        }
    }

    /// Returns the time since which no connection is attached, if none is.
    pub(super) fn unattended_since(&self) -> Option<UnixMicros> {
        self.unattended_since
    }

    /// Ends the watch. No more invalidations are collected.
    pub(super) fn end(&self, core: &Core, reader: SourceSlot) {
        core.watchers.leave(reader, &self.kept);
    }

    fn note_kept(&mut self, context: &WatchContext<'_>) {
        let kept = context.kept();
        context.core.watchers.replace_kept(context.slot(), &self.kept, &kept);
        self.kept = kept;
    }
}

impl WatchContext<'_> {
    pub(super) fn slot(&self) -> SourceSlot {
        self.reader.source().slot
    }

    fn marker(&self) -> Option<Position> {
        self.reader.source().preferences().marker.map(|marker| marker.at)
    }

    fn kept(&self) -> Vec<SourceSlot> {
        self.reader.source().following().only_kept().collect()
    }

    fn newest(&mut self) -> (Vec<(Position, Entry)>, Position, Viewer) {
        let (core, reader, now) = (self.core, &mut *self.reader, self.now);
        let (oldest, deadline) = (core.config.oldest_in_inbox(now), core.read_clock(now).deadline);
        let entries = core.config.live.window_entries;
        let is_late = || core.clock.now() > deadline;
        let budget = Budget::new(Allowance::ON_SHARD, &is_late);
        let newest = self.inbox_handle.with(|inbox| reader.newest(inbox, &core.world, entries, oldest, &budget));
        core.counters.live_work.add(budget.work().units());
        newest
    }

    fn entry_of(
        &mut self,
        post: PostId,
        fetched: Option<&[PostLookup]>,
    ) -> Result<Option<(Position, Entry)>, Archived> {
        let (core, reader) = (self.core, &*self.reader);
        let budget = Budget::untimed(Allowance::UNLIMITED);
        let entry = self.inbox_handle.with(|inbox| reader.entry_of(inbox, &core.world, post, fetched, &budget));
        core.counters.live_looks.add(1);
        core.counters.live_work.add(budget.work().units());
        entry
    }

    /// Returns the full content of a change. If the post has no entry any more, the change is its removal.
    fn kind(&self, change: Change, entry: Option<(Position, Entry)>) -> Option<EventKind> {
        Some(match (change, entry) {
            (Change::Post(_), Some((at, entry))) => EventKind::Post(self.inbox_handle.item(at, entry)),
            (Change::Update(_), Some((_, entry))) => EventKind::Update(entry.post),
            (Change::Post(post) | Change::Update(post) | Change::Remove(post), _) => EventKind::Remove(post),
            (Change::Stale(below), _) => EventKind::Stale(below),
            (Change::Marker, _) => EventKind::Marker(self.marker()?),
        })
    }
}

/// Returns the range of positions in which a page is complete.
fn shown<E>(range: Range, page: &Page<E>) -> std::ops::Range<Position> {
    let next = page.next.unwrap_or(Position::MIN);
    match range {
        Range::Newest | Range::Since(_) | Range::Resume(_) => next..Position::MAX,
        Range::Before(below) => next..below,
        // The page does not show the range above its newest entry.
        Range::After(above) => above.next_up()..page.items.first().map_or(above, |(newest, _)| *newest).next_up(),
    }
}

fn entry_fingerprints(entries: &[(Position, Entry)]) -> Vec<EntryFingerprint> {
    entries.iter().map(|(at, entry)| entry.entry_fingerprint(*at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    #[test]
    fn the_bounds_of_a_page_enclose_exactly_the_entries_it_shows() {
        let page = |times: &[i64], next: Option<i64>| Page {
            items: times.iter().map(|time| (at(*time, 0), ())).collect(),
            next: next.map(|time| at(time, 0)),
            ..Page::empty()
        };
        let (min, max) = (Position::MIN, Position::MAX);
        let after = |time| at(time, 0).next_up();
        for (range, page, expected) in [
            (Range::Newest, page(&[9, 8], Some(8)), at(8, 0)..max),
            (Range::Newest, page(&[9, 8], None), min..max),
            (Range::Newest, page(&[], Some(5)), at(5, 0)..max),
            (Range::Before(at(7, 0)), page(&[6, 5], Some(5)), at(5, 0)..at(7, 0)),
            (Range::Before(at(7, 0)), page(&[], None), min..at(7, 0)),
            (Range::After(at(3, 0)), page(&[5, 4], Some(4)), after(3)..after(5)),
            (Range::After(at(3, 0)), page(&[], Some(3)), after(3)..after(3)),
        ] {
            assert_eq!(shown(range, &page), expected, "{range:?}, {page:?}");
        }
    }
}

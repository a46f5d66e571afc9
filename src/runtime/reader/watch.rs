//! The watch of one reader: what its live connections are told.
//!
//! Responsible for:
//! - looking at the feed when there is a notice, and telling every connection what that changes;
//! - letting connections join, with what they missed or the word that they have to read the feed anew.
//!
//! Not responsible for:
//! - what must be told (`feed::stream`), how a connection keeps up (`live::subscriber_queue`), who gets notices (`live::watchers`).

use std::sync::Arc;
use std::time::Instant;

use actix::Addr;

use crate::clock::UnixMicros;
use crate::feed::lookups::{Answer, Asked, Lookups};
use crate::feed::page::{Page, Range, Reach};
use crate::feed::position::Position;
use crate::feed::preferences::Preferences;
use crate::feed::stream::{Change, EntryFingerprint, Epoch, Invalidation, Place, Stream};
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceSlot};
use crate::limits::{LIVE_CONNECTIONS_PER_READER_MAX, LIVE_QUEUE_BYTES_MAX};
use crate::live::event::{Event, What};
use crate::live::subscriber_queue::{Feeding, Pushed, SubscriberQueue};
use crate::runtime::message::Fetched;
use crate::runtime::reader::inbox_store::InboxHandle;
use crate::runtime::reader::user::UserActor;
use crate::runtime::shared::Shared;
use crate::state::posts::Stored;
use crate::state::reader::{Archived, Reader, Sought};
use crate::state::view::{Entry, Found};
use crate::state::viewer::Viewer;

/// What a watch looks at.
pub(super) struct Eyes<'a> {
    pub(super) shared: &'a Shared,
    pub(super) reader: &'a mut Reader,
    pub(super) inbox_handle: &'a InboxHandle,
    pub(super) now: UnixMicros,
}

/// The watch of one reader.
#[derive(Debug)]
pub(super) struct Watch {
    stream: Stream,
    lookups: Lookups,
    subscribers: Vec<Feeding>,
    /// Sources of which the reader keeps what they brought.
    kept: Vec<SourceSlot>,
    /// What the reader had decided when the feed was last looked at as a whole.
    decided: Decided,
    /// A page was read since that showed something else than what was told: by other decisions, or before the notice of it. That notice
    /// may not reach this reader, or find nothing to tell, once something else is decided.
    is_overtaken: bool,
    /// Since when nobody is connected.
    alone_since: Option<UnixMicros>,
}

/// A notice waits until something was looked up in the archive.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) invalidation: Invalidation,
    pub(super) sought: Sought,
    pub(super) asked: Asked,
}

/// What a reader has decided about the feed.
#[derive(Debug)]
struct Decided {
    edges: u64,
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
    /// Begins to watch. From here on there are notices.
    pub(super) fn begin(eyes: &mut Eyes<'_>, user: Addr<UserActor>) -> Self {
        // Before the first look: what changes after it is told.
        eyes.inbox_handle.watch(user);
        eyes.shared.watchers.enter(eyes.slot());
        let kept = eyes.kept();
        eyes.shared.watchers.keep(eyes.slot(), &[], &kept);
        let (entries, floor, viewer) = eyes.newest();
        let decided = Decided::by(&viewer);
        let epoch = Epoch(fastrand::u64(..));
        let stream = Stream::new(eyes.shared.config.live, epoch, entry_fingerprints(&entries), floor);
        Self {
            stream,
            lookups: Lookups::new(epoch),
            subscribers: Vec::new(),
            kept,
            decided,
            is_overtaken: false,
            alone_since: Some(eyes.now),
        }
    }

    /// Lets a connection join. Returns false if there are as many as there may be.
    pub(super) fn attach(
        &mut self,
        eyes: &mut Eyes<'_>,
        subscriber: Arc<SubscriberQueue>,
        resume: Option<Place>,
    ) -> bool {
        self.prune(eyes.now);
        if self.subscribers.len() >= LIVE_CONNECTIONS_PER_READER_MAX {
            return false;
        }
        let missed = resume.and_then(|place| self.missed(eyes, place));
        let (place, recovered) = (resume.filter(|_| missed.is_some()), missed.is_some());
        let what = What::Hello { recovered, marker: eyes.marker() };
        let hello = Event { place: place.unwrap_or(self.stream.place()), what };
        let events = [hello].into_iter().chain(missed.unwrap_or_default());
        let joins = events.map(|event| subscriber.push(event, Instant::now())).all(|pushed| pushed == Pushed::Waits);
        if joins {
            self.subscribers.push(Feeding(subscriber));
            self.alone_since = None;
        }
        true
    }

    /// What a client that comes back missed, as it stands now; nothing if that is not known.
    fn missed(&self, eyes: &mut Eyes<'_>, from: Place) -> Option<Vec<Event>> {
        let told = self.stream.told_after(from)?;
        let mut missed = Vec::new();
        for (last, change) in told {
            let post = match change {
                Change::Post(post) | Change::Update(post) => eyes.entry_of(post, None).ok()?,
                Change::Remove(_) | Change::Stale(_) | Change::Marker => None,
            };
            let what = eyes.what(change, post)?;
            missed.push(Event { place: Place { last, ..from }, what });
        }
        // So much would cut it off right away: it reads the feed anew with less.
        let is_too_much = missed.iter().map(Event::bytes).sum::<usize>() > LIVE_QUEUE_BYTES_MAX / 2;
        (!is_too_much).then_some(missed)
    }

    /// Looks at what a notice is about, and tells what that changes, unless that takes the archive.
    pub(super) fn invalidation(&mut self, eyes: &mut Eyes<'_>, invalidation: Invalidation) -> Option<Waits> {
        self.lookups.note(invalidation);
        let post = match invalidation {
            Invalidation::Everything => {
                self.look_at_everything(eyes);
                return None;
            }
            Invalidation::Missed => {
                self.tell(eyes, Change::Marker, None);
                // What came and went unseen may be on a page that somebody read meanwhile.
                self.tell(eyes, Change::Stale(None), None);
                self.is_overtaken = false;
                self.look_at_everything(eyes);
                return None;
            }
            Invalidation::Marked => {
                self.tell(eyes, Change::Marker, None);
                return None;
            }
            Invalidation::Published(position) => match eyes.shared.world.posts.stored(position.id) {
                Some(Stored::Live(post)) => post.repost_of.unwrap_or(post.id()),
                // There is a notice of that.
                Some(Stored::Deleted) => return None,
                // One that is dated back far may be archived already.
                None => return Some(self.wait(invalidation, Sought::BroughtBy(position.id))),
            },
            Invalidation::Edited(post) | Invalidation::Turned(post) => post,
        };
        match eyes.entry_of(post, None) {
            Ok(entry) => self.see(eyes, post, entry, invalidation),
            Err(Archived) => return Some(self.wait(invalidation, Sought::Of(post))),
        }
        None
    }

    fn wait(&mut self, invalidation: Invalidation, sought: Sought) -> Waits {
        Waits { invalidation, sought, asked: self.lookups.ask() }
    }

    /// Goes on with a notice that waited for the archive.
    pub(super) fn fetched(&mut self, eyes: &mut Eyes<'_>, fetched: Fetched) -> Option<Waits> {
        let Fetched { invalidation, asked, found } = fetched;
        let answer = found.as_ref().map_or(Answer::Good, |(post, _)| self.lookups.judge(asked, *post));
        let waits = match (answer, found) {
            (Answer::Good, found) => {
                self.see_found(eyes, invalidation, found);
                None
            }
            (Answer::Superseded, _) => None,
            // As if it had turned: that says at least as much as any other notice of the post.
            (Answer::Outdated, found) => {
                found.and_then(|(post, _)| self.invalidation(eyes, Invalidation::Turned(post)))
            }
        };
        self.lookups.end(asked);
        waits
    }

    fn see_found(&mut self, eyes: &mut Eyes<'_>, invalidation: Invalidation, found: Option<(PostId, Vec<Found>)>) {
        let seen = found.and_then(|(post, found)| Some((post, eyes.entry_of(post, Some(&found)).ok()?)));
        match seen {
            Some((post, entry)) => self.see(eyes, post, entry, invalidation),
            // It cannot be told what changed, but that something did.
            None => self.tell(eyes, Change::Stale(None), None),
        }
    }

    fn see(&mut self, eyes: &mut Eyes<'_>, post: PostId, entry: Option<(Position, Entry)>, invalidation: Invalidation) {
        let entry_fingerprint = entry.as_ref().map(|(at, entry)| entry.entry_fingerprint(*at));
        if let Some(change) = self.stream.see(post, entry_fingerprint, invalidation) {
            self.tell(eyes, change, entry);
        }
    }

    fn look_at_everything(&mut self, eyes: &mut Eyes<'_>) {
        self.note_kept(eyes);
        let (mut entries, floor, viewer) = eyes.newest();
        let before = std::mem::replace(&mut self.decided, Decided::by(&viewer));
        // With another limit for each source pages are others, though the feed is the same.
        let has_other_pages = before.preferences.rules.per_source_max != self.decided.preferences.rules.per_source_max;
        if std::mem::take(&mut self.is_overtaken) || has_other_pages {
            self.tell(eyes, Change::Stale(None), None);
        }
        for change in self.stream.see_all(entry_fingerprints(&entries), floor) {
            let entry = match change {
                Change::Post(post) | Change::Update(post) => {
                    entries.iter().position(|(_, entry)| entry.post.id() == post).map(|nth| entries.swap_remove(nth))
                }
                Change::Remove(_) | Change::Stale(_) | Change::Marker => None,
            };
            self.tell(eyes, change, entry);
        }
    }

    fn tell(&mut self, eyes: &mut Eyes<'_>, change: Change, entry: Option<(Position, Entry)>) {
        let Some(what) = eyes.what(change, entry) else { return };
        let last = self.stream.tell(change);
        let event = Event { place: Place { last, ..self.stream.place() }, what };
        let (counters, now) = (&eyes.shared.counters, Instant::now());
        self.subscribers.retain(|Feeding(subscriber)| {
            let pushed = subscriber.push(event.clone(), now);
            counters.live_messages.add(u64::from(pushed == Pushed::Waits));
            counters.live_cut_off.add(u64::from(pushed == Pushed::CutOff));
            pushed == Pushed::Waits
        });
        self.note_alone(eyes.now);
    }

    /// Notes that a page was built, through these eyes.
    pub(super) fn page_built(&mut self, range: Range, page: &Page<Entry>, viewer: &Viewer) {
        let is_shown = !matches!(range, Range::Since(_));
        let was_told = || self.decided.is_like(&Decided::by(viewer)) && self.has_told(range, page);
        self.is_overtaken = self.is_overtaken || is_shown && !was_told();
    }

    /// Whether clients were told what a page shows, as far down as is known.
    fn has_told(&self, range: Range, page: &Page<Entry>) -> bool {
        if let (Range::Resume(_), false) = (range, page.gap) {
            return self.has_told_each(page);
        }
        let shown = shown(range, page);
        if page.needs_archive || page.reach != Reach::Full {
            // It will be built elsewhere, and later.
            return shown.end <= self.stream.floor();
        }
        page.partial.is_empty() && self.stream.agrees(&entry_fingerprints(&page.items), shown, page.passed_over)
    }

    /// The same for a page of which nothing is known but what is on it.
    fn has_told_each(&self, page: &Page<Entry>) -> bool {
        let is_told =
            |(at, entry): &(Position, Entry)| self.stream.agrees(&[entry.entry_fingerprint(*at)], *at..at.next_up(), 0);
        !page.needs_archive && page.partial.is_empty() && page.items.iter().all(is_told)
    }

    /// Forgets connections that have gone.
    pub(super) fn prune(&mut self, now: UnixMicros) {
        self.subscribers.retain(|Feeding(subscriber)| !subscriber.is_closed());
        self.note_alone(now);
    }

    fn note_alone(&mut self, now: UnixMicros) {
        if self.subscribers.is_empty() && self.alone_since.is_none() {
            self.alone_since = Some(now);
        }
    }

    /// Since when nobody is connected, if nobody is.
    pub(super) fn alone_since(&self) -> Option<UnixMicros> {
        self.alone_since
    }

    /// Ends the watch. No more notices come.
    pub(super) fn end(&self, shared: &Shared, reader: SourceSlot) {
        shared.watchers.leave(reader, &self.kept);
    }

    fn note_kept(&mut self, eyes: &Eyes<'_>) {
        let kept = eyes.kept();
        eyes.shared.watchers.keep(eyes.slot(), &self.kept, &kept);
        self.kept = kept;
    }
}

impl Eyes<'_> {
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
        let (shared, reader, now) = (self.shared, &mut *self.reader, self.now);
        let (oldest, deadline) = (shared.config.oldest_in_inbox(now), shared.read_clock(now).deadline);
        let entries = shared.config.live.window_entries;
        let is_late = || shared.clock.now() > deadline;
        let budget = Budget::new(Allowance::ON_SHARD, &is_late);
        let newest = self.inbox_handle.with(|inbox| reader.newest(inbox, &shared.world, entries, oldest, &budget));
        shared.counters.live_work.add(budget.work().units());
        newest
    }

    fn entry_of(&mut self, post: PostId, fetched: Option<&[Found]>) -> Result<Option<(Position, Entry)>, Archived> {
        let (shared, reader) = (self.shared, &*self.reader);
        let budget = Budget::untimed(Allowance::UNLIMITED);
        let entry = self.inbox_handle.with(|inbox| reader.entry_of(inbox, &shared.world, post, fetched, &budget));
        shared.counters.live_looks.add(1);
        shared.counters.live_work.add(budget.work().units());
        entry
    }

    /// A change in full. What was to be told of a post that has no entry any more is that.
    fn what(&self, change: Change, entry: Option<(Position, Entry)>) -> Option<What> {
        Some(match (change, entry) {
            (Change::Post(_), Some((at, entry))) => What::Post(self.inbox_handle.item(at, entry)),
            (Change::Update(_), Some((_, entry))) => What::Update(entry.post),
            (Change::Post(post) | Change::Update(post) | Change::Remove(post), _) => What::Remove(post),
            (Change::Stale(below), _) => What::Stale(below),
            (Change::Marker, _) => What::Marker(self.marker()?),
        })
    }
}

/// Where a page shows all there is.
fn shown<E>(range: Range, page: &Page<E>) -> std::ops::Range<Position> {
    let next = page.next.unwrap_or(Position::MIN);
    match range {
        Range::Newest | Range::Since(_) | Range::Resume(_) => next..Position::MAX,
        Range::Before(below) => next..below,
        // Of what is newer than its last entry it tells nothing.
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
    fn a_page_shows_all_there_is_between_its_bounds() {
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

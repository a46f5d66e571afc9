//! A page that is built from a copy of an inbox, on the thread of its caller.

use std::sync::Arc;

use crate::feed::following::Following;
use crate::feed::inbox::Inbox;
use crate::feed::page::{Page, Range, Reach};
use crate::feed::work::{Allowance, Budget};
use crate::state::feed_filter::{Entry, FeedFilter, Finder};
use crate::state::read_clock::ReadClock;
use crate::state::reader::{PageRequest, PageStart, PulledSources, build};
use crate::state::sources::Source;
use crate::state::world::World;

/// Maximum work for a page on the thread of its caller, in the units of [`Work::units`](crate::feed::work::Work::units): some 0.5 ms. A
/// page of 20 entries takes some 5,000 units.
const DIRECT_WORK_MAX: u64 = 50_000;

/// Maximum number of pulled sources of a page that is built on the thread of its caller.
const DIRECT_PULLED_MAX: usize = 256;

/// Maximum number of sources among which the thread of a caller searches for those to pull: some 20 us. The actor does it for readers with
/// more.
const DIRECT_LISTED_MAX: usize = 1_024;

/// A page that is built from a copy of an inbox, on the thread of its caller.
pub struct DirectPage<'a> {
    world: &'a World,
    request: PageRequest,
    start: PageStart,
}

impl<'a> DirectPage<'a> {
    /// Reads the data that must be read before the inbox is copied. Returns `None` for [`Range::Before`], because only the newest positions
    /// are copied.
    pub fn new(source: &Source, world: &'a World, request: PageRequest) -> Option<Self> {
        if matches!(request.range, Range::Before(_)) {
            return None;
        }
        Some(Self { world, request, start: PageStart::of(source, world) })
    }

    fn following(&self) -> &Following {
        &self.start.viewer.feed
    }

    /// Returns the number of positions to copy: twice as many as entries are requested, since some may not be shown.
    pub fn positions(&self) -> usize {
        2 * (self.request.bounded_limit() + 1)
    }

    /// Returns true if the page may be built from this copy: it has the posts of all edges, and reaches down to the start of the range.
    pub fn suffices(&self, inbox: &Inbox) -> bool {
        let has_range = match self.request.range {
            Range::Newest | Range::Before(_) => true,
            Range::After(above) => above >= inbox.floor(),
            Range::Resume(token) | Range::Since(token) => token.floor() >= inbox.floor(),
        };
        has_range && self.following().last_made() <= inbox.synced()
    }

    /// Returns the sources to pull, and true if they are not the `known` ones. Returns `None` if finding them would take long.
    pub fn pulled(&self, own: &Source, known: Option<Arc<PulledSources>>) -> Option<(Arc<PulledSources>, bool)> {
        match known.filter(|known| known.is_current(self.following(), self.world)) {
            Some(known) => Some((known, false)),
            None if self.following().reach_len() > DIRECT_LISTED_MAX => None,
            None => Some((Arc::new(PulledSources::of(own, self.following(), self.world)), true)),
        }
    }

    /// Builds the page from a copy of the inbox. Returns `None` if that takes longer than a caller's thread may work, needs the archive, or
    /// needs more of the inbox than was copied. `is_cut` is true if the inbox has more than the copy.
    pub fn build(
        &self,
        inbox: &Inbox,
        is_cut: bool,
        pulled: &PulledSources,
        time: ReadClock<'_>,
    ) -> Option<Page<Entry>> {
        if pulled.parts.iter().filter(|warm| warm.until > inbox.floor()).count() > DIRECT_PULLED_MAX {
            return None;
        }
        let is_late = || time.is_late();
        let budget = Budget::new(Allowance { units_max: DIRECT_WORK_MAX, ..Allowance::ON_SHARD }, &is_late);
        let mut view = FeedFilter::new(Finder::Memory(self.world), &self.start.viewer, Some(inbox), &budget);
        view.ends_at_floor = is_cut;
        let page = build(&mut view, &pulled.parts, self.start.settled, self.request);
        let is_full = match self.request.range {
            Range::Newest | Range::Before(_) => page.next.is_some() && page.items.len() == self.request.bounded_limit(),
            Range::After(_) | Range::Resume(_) => page.next.is_some(),
            Range::Since(_) => true,
        };
        (!page.needs_archive && page.reach == Reach::Full && (is_full || !is_cut)).then_some(page)
    }
}

//! Pages: what a reader is shown of a feed.
//!
//! Responsible for:
//! - filling a page from the inbox, from pulled outboxes, and below the inbox's floor from all outboxes;
//! - deciding at this moment, by the [`View`], what shows; a page is full while anything is left;
//! - saying where to go on, and what could not be read.
//!
//! Not responsible for:
//! - the rules of what shows ([`View`] is the seam), turning entries into text.
//!
//! A feed has two zones. Above the inbox's floor ("warm") the inbox has all pushed posts, and only what was left to be
//! pulled must be merged. At and below it ("cold") the inbox knows nothing, and every followed outbox is merged whole.

use std::num::NonZeroUsize;

use rustc_hash::FxHashMap;

use crate::feed::inbox::Inbox;
use crate::feed::merge::{Input, Merge, Outboxes};
use crate::feed::outbox::Part;
use crate::feed::position::{Direction, Position, Span};
use crate::feed::work::{Budget, Work};
use crate::id::SourceSlot;

/// Which entries are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// The newest.
    Newest,
    /// Those right below a position: load more.
    Before(Position),
    /// Those right above a position: fill a gap.
    After(Position),
    /// The newest, as far as they are above a position: what is unread.
    Since(Position),
}

/// What became of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look<E> {
    /// It shows, as this entry.
    Shown(E),
    /// It does not show, for now.
    Hidden,
    /// It is gone for good: whoever still keeps it may drop it.
    Gone,
    /// What became of it is in the archive.
    Archived,
    /// It is in the archive, and cannot be read.
    Unreadable,
}

impl<E> Look<E> {
    /// Whether it is gone for good.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

/// Decides what shows.
pub trait View {
    /// What an entry looks like.
    type Entry;

    /// Judges the post at `position` by the present state.
    fn look(&mut self, position: Position) -> Look<Self::Entry>;

    /// Of whom a page may have only so many entries.
    fn source(entry: &Self::Entry) -> SourceSlot;
}

/// A page, newest entry first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<E> {
    /// The entries, each with its position.
    pub items: Vec<(Position, E)>,
    /// Where to go on with older entries; none when there is nothing older.
    pub next: Option<Position>,
    /// The newest entry of the feed, as far as is known: where to go on with newer ones.
    pub newest: Option<Position>,
    /// Sources whose outboxes could not be read, or not in time. What they have is missing here and appears on a later read.
    pub partial: Vec<SourceSlot>,
    /// Entries between those shown that were passed over, since their source has as many as a page may have of it.
    pub passed_over: usize,
    /// Positions met that are gone for good.
    pub gone: Vec<Position>,
    /// Positions met whose posts cannot be read. They are missing here.
    pub unreadable: Vec<Position>,
    /// The page needs what is not in memory. It is not to be shown, but to be built again with the archive.
    pub needs_archive: bool,
    /// What was done to build it.
    pub work: Work,
}

impl<E> Page<E> {
    /// The page of a feed without entries.
    pub fn empty() -> Self {
        Self {
            items: Vec::new(),
            next: None,
            newest: None,
            partial: Vec::new(),
            passed_over: 0,
            gone: Vec::new(),
            unreadable: Vec::new(),
            needs_archive: false,
            work: Work::default(),
        }
    }
}

/// What a feed is made of.
#[derive(Debug)]
pub struct Feed<'a, O, S> {
    /// The reader's inbox; without one the whole feed is cold.
    pub inbox: Option<&'a Inbox>,
    /// What must be merged with the inbox above its floor.
    pub warm: &'a [(SourceSlot, Part)],
    /// Every source of the feed.
    pub sources: S,
    /// Where outboxes are read.
    pub outboxes: &'a O,
    /// Candidates looked at for one page, at most.
    pub scan_max: usize,
    /// What may be done for the page.
    pub budget: &'a Budget<'a>,
    /// Entries of one source in one page, at most.
    pub per_source_max: Option<NonZeroUsize>,
}

struct Scan<E> {
    found: Vec<(Position, E)>,
    /// How many were passed over before each of them, since their source has enough.
    before: Vec<usize>,
    /// How many were passed over in all.
    passed_over: usize,
    /// The scan's bound was hit here.
    stopped_at: Option<Position>,
}

impl<O: Outboxes, S: Iterator<Item = SourceSlot> + Clone> Feed<'_, O, S> {
    /// Builds a page of at most `limit` entries.
    pub fn page<V: View>(&self, range: Range, limit: usize, view: &mut V) -> Page<V::Entry> {
        let mut page = Page::empty();
        match range {
            Range::Newest => {
                page.next = self.fill_older(Span::ALL, limit, view, &mut page);
                page.newest = page.items.first().map(|item| item.0).or(page.next.filter(|next| *next < Position::MAX));
            }
            Range::Before(below) => {
                page.next = self.fill_older(Span { below, ..Span::ALL }, limit, view, &mut page);
                page.newest = self.head(Span::ALL, view, &mut page);
            }
            Range::After(above) => self.fill_newer(above, limit, view, &mut page),
            Range::Since(above) => {
                page.next = self.fill_older(Span { above, ..Span::ALL }, limit, view, &mut page);
                page.newest = page.items.first().map(|item| item.0);
            }
        }
        page.partial.sort_unstable();
        page.partial.dedup();
        page.unreadable.sort_unstable();
        page.unreadable.dedup();
        page.work = self.budget.work();
        page
    }

    /// Fills the page from the newest entry of `span` on, and returns where to go on.
    fn fill_older<V: View>(
        &self,
        span: Span,
        limit: usize,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Option<Position> {
        let mut scan = self.scan(span, Direction::Older, limit + 1, view, page);
        // One entry more than asked for tells whether there is a next page.
        let more = scan.found.len() > limit;
        scan.found.truncate(limit);
        page.items = scan.found;
        page.passed_over = page.items.len().checked_sub(1).map_or(0, |last| scan.before[last]);
        if more {
            return page.items.last().map(|item| item.0);
        }
        // What could not be read may be anywhere below the bound: that the rest is at an end is not known.
        let unknown = (!page.partial.is_empty()).then(|| page.items.last().map_or(span.below, |item| item.0));
        // Their source may have so many on the next page again.
        let passed_over = page.items.last().filter(|_| scan.passed_over > page.passed_over).map(|item| item.0);
        passed_over.or(scan.stopped_at).or(unknown)
    }

    fn fill_newer<V: View>(&self, above: Position, limit: usize, view: &mut V, page: &mut Page<V::Entry>) {
        let span = Span { above, ..Span::ALL };
        let mut scan = self.scan(span, Direction::Newer, limit, view, page);
        page.passed_over = scan.before.last().copied().unwrap_or(0);
        scan.found.reverse();
        page.items = scan.found;
        // Cut short, the page names where it stopped, so that the gap can be filled from there on.
        page.newest = scan.stopped_at.or_else(|| self.head(Span::ALL, view, page));
        let oldest = page.items.last().map_or(above, |item| item.0);
        let older = self.scan(Span { below: oldest, ..Span::ALL }, Direction::Older, 1, view, page);
        let anything_older = !older.found.is_empty() || older.stopped_at.is_some() || !page.partial.is_empty();
        page.next = anything_older.then_some(oldest);
    }

    fn head<V: View>(&self, span: Span, view: &mut V, page: &mut Page<V::Entry>) -> Option<Position> {
        let scan = self.scan(span, Direction::Older, 1, view, page);
        // Where nothing showed for as far as was looked, everything newer is above where the scan stopped.
        scan.found.first().map(|item| item.0).or(scan.stopped_at)
    }

    /// Looks at candidates until `wanted` of them show, nothing is left, or the bound is hit.
    fn scan<V: View>(
        &self,
        span: Span,
        direction: Direction,
        wanted: usize,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Scan<V::Entry> {
        let (found, before) = (Vec::with_capacity(wanted), Vec::new());
        let mut scan = Scan { found, before, passed_over: 0, stopped_at: None };
        let mut looked_at = 0;
        let mut share = Share { most: self.per_source_max, taken: FxHashMap::default() };
        for zone in self.zones(span, direction) {
            let mut candidates = self.merge(zone, direction, wanted - scan.found.len());
            for position in candidates.by_ref() {
                self.budget.candidate();
                match view.look(position) {
                    Look::Shown(entry) if share.take(V::source(&entry)) => {
                        scan.before.push(scan.passed_over);
                        scan.found.push((position, entry));
                    }
                    Look::Shown(_) => scan.passed_over += 1,
                    Look::Hidden => {}
                    Look::Gone => page.gone.push(position),
                    Look::Unreadable => page.unreadable.push(position),
                    Look::Archived => page.needs_archive = true,
                }
                looked_at += 1;
                if scan.found.len() < wanted && looked_at == self.scan_max {
                    scan.stopped_at = Some(position);
                }
                if scan.found.len() == wanted || scan.stopped_at.is_some() || page.needs_archive {
                    break;
                }
            }
            let enough = scan.found.len() == wanted || scan.stopped_at.is_some();
            let shortfall = candidates.into_shortfall();
            page.partial.extend(shortfall.unavailable);
            page.needs_archive |= shortfall.archived.is_some() && !enough;
            if enough || page.needs_archive {
                break;
            }
        }
        scan
    }

    /// The parts of `span` above and below the inbox's floor, in the order of reading.
    fn zones(&self, span: Span, direction: Direction) -> impl Iterator<Item = Zone> {
        let floor = self.inbox.map_or(Position::MAX, Inbox::floor);
        let warm = Zone::Warm(Span { above: span.above.max(floor), ..span });
        let cold = Zone::Cold(Span { below: span.below.min(floor.next_up()), ..span });
        let ordered = match direction {
            Direction::Older => [warm, cold],
            Direction::Newer => [cold, warm],
        };
        ordered.into_iter().filter(|zone| !zone.span().is_empty())
    }

    fn merge(&self, zone: Zone, direction: Direction, wanted: usize) -> Merge<'_, O> {
        match zone {
            Zone::Warm(span) => {
                let outboxes = self.warm.iter().map(|(source, part)| Input::Outbox(*source, *part));
                let inputs = self.inbox.into_iter().map(Input::Inbox).chain(outboxes);
                Merge::new(self.outboxes, self.budget, inputs, span, direction, wanted)
            }
            Zone::Cold(span) => {
                let inputs = self.sources.clone().map(|source| Input::Outbox(source, Part::Whole));
                Merge::new(self.outboxes, self.budget, inputs, span, direction, wanted)
            }
        }
    }
}

/// How many entries each source has in a page.
struct Share {
    most: Option<NonZeroUsize>,
    taken: FxHashMap<SourceSlot, usize>,
}

impl Share {
    /// Whether a source may have one more.
    fn take(&mut self, source: SourceSlot) -> bool {
        let Some(most) = self.most else { return true };
        let taken = self.taken.entry(source).or_default();
        let may = *taken < most.get();
        *taken += usize::from(may);
        may
    }
}

#[derive(Clone, Copy)]
enum Zone {
    Warm(Span),
    Cold(Span),
}

impl Zone {
    fn span(self) -> Span {
        match self {
            Self::Warm(span) | Self::Cold(span) => span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::merge::tests::Shelf;
    use crate::feed::outbox::{Outbox, Route};
    use crate::feed::position::at;
    use crate::feed::work::Allowance;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::num::NonZeroUsize;

    /// Posts of the listed ids are hidden or gone.
    #[derive(Default)]
    struct Filter {
        hidden: BTreeSet<u64>,
        gone: BTreeSet<u64>,
    }

    impl View for Filter {
        type Entry = ();

        fn look(&mut self, position: Position) -> Look<()> {
            match position.id.0 {
                id if self.hidden.contains(&id) => Look::Hidden,
                id if self.gone.contains(&id) => Look::Gone,
                _ => Look::Shown(()),
            }
        }

        fn source((): &()) -> SourceSlot {
            SourceSlot(0)
        }
    }

    /// Three sources: 0 and 1 push, 2 is pulled. The inbox holds what was pushed, capped.
    struct World {
        shelf: Shelf,
        inbox: Inbox,
        scan_max: usize,
    }

    const SOURCES: [SourceSlot; 3] = [SourceSlot(0), SourceSlot(1), SourceSlot(2)];

    impl World {
        fn new(posts_max: usize) -> Self {
            let shelf = Shelf { outboxes: vec![Outbox::default(); 3], ..Shelf::default() };
            Self { shelf, inbox: Inbox::new(NonZeroUsize::new(posts_max).unwrap()), scan_max: 1_000 }
        }

        fn publish(&mut self, source: usize, position: Position) {
            let route = if source == 2 { Route::Pull } else { Route::Push };
            if self.shelf.outboxes[source].insert(position, route) && route == Route::Push {
                self.inbox.push(position);
            }
        }

        fn page(&self, range: Range, limit: usize, view: &mut Filter) -> Page<()> {
            let warm = [(SourceSlot(2), Part::Pulled)];
            let (inbox, scan_max) = (Some(&self.inbox), self.scan_max);
            let (sources, outboxes) = (SOURCES.into_iter(), &self.shelf);
            let budget = &Budget::untimed(Allowance::UNLIMITED);
            Feed { inbox, warm: &warm, sources, outboxes, scan_max, budget, per_source_max: None }
                .page(range, limit, view)
        }
    }

    fn times(page: &Page<()>) -> Vec<i64> {
        page.items.iter().map(|item| item.0.published_at.0).collect()
    }

    #[test]
    fn a_page_goes_on_below_the_floor_without_a_gap() {
        let mut world = World::new(2);
        (1..=9).for_each(|time| world.publish((time % 3) as usize, at(time, time as u64)));
        assert!(world.inbox.floor() > Position::MIN);
        let mut none = Filter::default();
        let page = world.page(Range::Newest, 5, &mut none);
        assert_eq!((times(&page), page.next), (vec![9, 8, 7, 6, 5], Some(at(5, 5))));
        let page = world.page(Range::Before(at(5, 5)), 5, &mut none);
        assert_eq!((times(&page), page.next, page.newest), (vec![4, 3, 2, 1], None, Some(at(9, 9))));
        let page = world.page(Range::After(at(3, 3)), 4, &mut none);
        assert_eq!((times(&page), page.next, page.newest), (vec![7, 6, 5, 4], Some(at(4, 4)), Some(at(9, 9))));
    }

    #[test]
    fn the_last_page_says_that_nothing_is_older_even_when_it_is_full() {
        let mut world = World::new(10);
        (1..=4).for_each(|time| world.publish(0, at(time, 0)));
        let page = world.page(Range::Newest, 4, &mut Filter::default());
        assert_eq!((times(&page).len(), page.next), (4, None));
    }

    #[test]
    fn filtered_entries_are_replaced_and_gone_ones_reported() {
        let mut world = World::new(10);
        (1..=8).for_each(|time| world.publish(0, at(time, time as u64)));
        let mut view = Filter { hidden: [8, 6].into(), gone: [7].into() };
        let page = world.page(Range::Newest, 3, &mut view);
        assert_eq!((times(&page), page.next), (vec![5, 4, 3], Some(at(3, 3))));
        assert_eq!(page.gone, [at(7, 7)]);
    }

    #[test]
    fn a_scan_that_hits_its_bound_says_where_to_go_on() {
        let mut world = World { scan_max: 4, ..World::new(100) };
        (1..=20).for_each(|time| world.publish((time % 3) as usize, at(time, time as u64)));
        let mut view = Filter { hidden: (3..=18).collect(), gone: BTreeSet::new() };
        for (direction, expected) in [(Direction::Older, vec![20, 19, 2, 1]), (Direction::Newer, vec![1, 2, 19, 20])] {
            let (mut met, mut pages) = (Vec::new(), 0);
            let mut range = if direction == Direction::Older { Range::Newest } else { Range::After(Position::MIN) };
            loop {
                let page = world.page(range, 3, &mut view);
                pages += 1;
                let mut shown = times(&page);
                if direction == Direction::Newer {
                    shown.reverse();
                }
                met.extend(shown);
                range = match (direction, page.next, page.newest) {
                    (Direction::Older, Some(next), _) => Range::Before(next),
                    (Direction::Newer, _, Some(newest)) if range != Range::After(newest) && pages < 20 => {
                        Range::After(page.items.first().map_or(newest, |item| item.0))
                    }
                    _ => break,
                };
            }
            assert_eq!(met, expected);
            assert!(pages > 3);
        }
    }

    #[test]
    fn what_cannot_be_read_in_time_is_named_and_the_rest_is_served() {
        let mut world = World::new(10);
        (1..=6).for_each(|time| world.publish((time % 3) as usize, at(time, time as u64)));
        world.shelf.pulls_left = Some(Cell::new(0));
        let page = world.page(Range::Newest, 10, &mut Filter::default());
        assert_eq!((times(&page), page.partial), (vec![6, 4, 3, 1], vec![SourceSlot(2)]));
    }

    proptest! {
        #[test]
        fn paging_either_way_meets_everything_that_shows_once(
            posts in prop::collection::vec((0..3usize, 0..30i64), 0..120),
            hidden in prop::collection::btree_set(0..120u64, 0..40),
            gone in prop::collection::btree_set(0..120u64, 0..20),
            posts_max in 1..50usize,
            limit in 1..12usize,
        ) {
            let mut world = World::new(posts_max);
            let mut expected = BTreeMap::new();
            for (id, (source, time)) in posts.into_iter().enumerate() {
                let position = at(time, id as u64);
                world.publish(source, position);
                if !hidden.contains(&position.id.0) && !gone.contains(&position.id.0) {
                    expected.insert(position, ());
                }
            }
            let newest = expected.last_key_value().map(|(position, ())| *position);
            let mut view = Filter { hidden, gone };

            let (mut down, mut range) = (Vec::new(), Range::Newest);
            loop {
                let page = world.page(range, limit, &mut view);
                prop_assert_eq!(page.newest, newest);
                prop_assert!(page.items.len() == limit || page.next.is_none());
                down.extend(page.items);
                let Some(next) = page.next else { break };
                range = Range::Before(next);
            }
            prop_assert!(down.iter().rev().copied().eq(expected.clone()));

            let (mut up, mut above) = (Vec::new(), Position::MIN);
            loop {
                let page = world.page(Range::After(above), limit, &mut view);
                let Some(first) = page.items.first() else { break };
                above = first.0;
                up.extend(page.items.into_iter().rev());
            }
            prop_assert!(up.into_iter().eq(expected));
        }
    }
}

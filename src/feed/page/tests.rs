//! Tests of pages: small worlds are read and compared with the published posts.
#![cfg(test)]

use super::*;
use crate::feed::merge::tests::TestOutboxes;
use crate::feed::outbox::{Outbox, Route};
use crate::feed::position::at;
use crate::feed::work::Allowance;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use testkit::PageCount;

/// A visibility filter that treats the posts with the listed ids as hidden or deleted.
#[derive(Default)]
struct Filter {
    hidden: BTreeSet<u64>,
    gone: BTreeSet<u64>,
}

impl VisibilityFilter for Filter {
    type Entry = ();

    fn look(&mut self, position: Position) -> Visibility<()> {
        match position.id.0 {
            id if self.hidden.contains(&id) => Visibility::Hidden,
            id if self.gone.contains(&id) => Visibility::Gone,
            _ => Visibility::Shown(()),
        }
    }

    fn accepted_at(&self, position: Position) -> Option<UnixMicros> {
        Some(position.published_at)
    }

    fn owner(&self) -> Option<SourceSlot> {
        None
    }

    fn source((): &()) -> SourceSlot {
        SourceSlot(0)
    }
}

/// A world of three sources: 0 and 1 push, 2 is pulled. The inbox holds the pushed posts, up to its limit.
struct World {
    archived_counts: TestOutboxes,
    inbox: Inbox,
    units_max: u64,
    pulled_until: Position,
}

const SOURCES: [SourceSlot; 3] = [SourceSlot(0), SourceSlot(1), SourceSlot(2)];

impl World {
    fn new(posts_max: usize) -> Self {
        let archived_counts = TestOutboxes { outboxes: vec![Outbox::default(); 3], ..TestOutboxes::default() };
        Self {
            archived_counts,
            inbox: Inbox::new(NonZeroUsize::new(posts_max).unwrap()),
            units_max: u64::MAX,
            pulled_until: Position::MAX,
        }
    }

    fn publish(&mut self, source: usize, position: Position) {
        let route = if source == 2 { Route::Pull } else { Route::Push };
        if self.archived_counts.outboxes[source].insert(position, route) && route == Route::Push {
            self.inbox.push(position);
        }
    }

    fn page(&self, range: Range, limit: usize, view: &mut impl VisibilityFilter<Entry = ()>) -> Page<()> {
        let warm = [WarmPart { source: SourceSlot(2), part: Part::Pulled, until: self.pulled_until }];
        let inbox = Some(&self.inbox);
        let (sources, outboxes) = (SOURCES.into_iter(), &self.archived_counts);
        let budget = &Budget::untimed(Allowance { units_max: self.units_max, ..Allowance::last(0) });
        Feed { inbox, warm: &warm, sources, outboxes, budget, per_source_max: None, late: &[] }.page(range, limit, view)
    }
}

#[test]
fn an_outbox_whose_pulled_posts_end_below_the_page_is_not_read() {
    let mut world = World::new(5);
    world.publish(2, at(3, 0));
    (4..12).for_each(|time| world.publish(0, at(time, 0)));
    world.pulled_until = at(3, 0);
    let mut view = Filter::default();
    let newest = world.page(Range::Newest, 3, &mut view);
    assert_eq!((times(&newest), newest.work.pulls), (vec![11, 10, 9], 0));
    assert_eq!(times(&world.page(Range::Newest, 20, &mut view)), [11, 10, 9, 8, 7, 6, 5, 4, 3]);
    let mut world = World::new(50);
    world.publish(2, at(3, 0));
    (1..3).for_each(|time| world.publish(0, at(time, 0)));
    world.pulled_until = at(3, 0);
    assert_eq!(times(&world.page(Range::Newest, 20, &mut view)), [3, 2, 1], "the inbox reaches below it");
}

fn times(page: &Page<()>) -> Vec<i64> {
    page.items.iter().map(|item| item.0.published_at.0).collect()
}

#[test]
fn a_page_continues_below_the_floor_without_a_gap() {
    let mut world = World::new(2);
    (1..=9).for_each(|time| world.publish((time % 3) as usize, at(time, time as u64)));
    assert!(world.inbox.floor() > Position::MIN);
    let mut none = Filter::default();
    let page = world.page(Range::Newest, 5, &mut none);
    assert_eq!((times(&page), page.next), (vec![9, 8, 7, 6, 5], Some(at(5, 5))));
    let page = world.page(Range::Before(at(5, 5)), 5, &mut none);
    assert_eq!((times(&page), page.next, page.newest), (vec![4, 3, 2, 1], None, Some(at(9, 9))));
    let page = world.page(Range::After(at(3, 3)), 4, &mut none);
    assert_eq!((times(&page), page.next, page.newest), (vec![7, 6, 5, 4], Some(at(4, 4)), Some(at(7, 7))));
    assert!(page.is_cut, "what is newer comes next");
}

/// A visibility filter in which a post arrives after its place was examined for the first time.
struct Arriving(Option<Position>);

impl VisibilityFilter for Arriving {
    type Entry = ();

    fn look(&mut self, position: Position) -> Visibility<()> {
        if self.0.take_if(|arriving| *arriving == position).is_some() {
            Visibility::Hidden
        } else {
            Visibility::Shown(())
        }
    }

    fn accepted_at(&self, position: Position) -> Option<UnixMicros> {
        Some(position.published_at)
    }

    fn owner(&self) -> Option<SourceSlot> {
        None
    }

    fn source((): &()) -> SourceSlot {
        SourceSlot(0)
    }
}

#[test]
fn a_post_that_arrives_while_a_page_is_built_does_not_count_as_received() {
    let mut world = World::new(10);
    (1..=4).for_each(|time| world.publish(2, at(time, time as u64)));
    for (above, received) in [(at(2, 2), vec![3]), (at(3, 3), vec![])] {
        let page = world.page(Range::After(above), 5, &mut Arriving(Some(at(4, 4))));
        assert_eq!((times(&page), page.newest), (received, Some(at(3, 3))));
    }
}

#[test]
fn the_last_page_has_no_next_cursor_even_when_it_is_full() {
    let mut world = World::new(10);
    (1..=4).for_each(|time| world.publish(0, at(time, 0)));
    let page = world.page(Range::Newest, 4, &mut Filter::default());
    assert_eq!((times(&page).len(), page.next), (4, None));
}

#[test]
fn filtered_entries_are_replaced_and_deleted_ones_reported() {
    let mut world = World::new(10);
    (1..=8).for_each(|time| world.publish(0, at(time, time as u64)));
    let mut view = Filter { hidden: [8, 6].into(), gone: [7].into() };
    let page = world.page(Range::Newest, 3, &mut view);
    assert_eq!((times(&page), page.next), (vec![5, 4, 3], Some(at(3, 3))));
    assert_eq!(page.gone, [at(7, 7)]);
}

#[test]
fn a_scan_that_exhausts_its_budget_returns_where_to_continue() {
    let mut world = World { units_max: 4 * 200, ..World::new(100) };
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
fn late_sources_are_named_and_other_posts_are_served() {
    let mut world = World::new(10);
    (1..=6).for_each(|time| world.publish((time % 3) as usize, at(time, time as u64)));
    world.archived_counts.pulls_left = Some(Cell::new(0));
    let page = world.page(Range::Newest, 10, &mut Filter::default());
    assert_eq!((times(&page), page.partial), (vec![6, 4, 3, 1], vec![SourceSlot(2)]));
}

#[test]
fn a_feed_without_entries_has_no_newest_even_if_the_budget_is_exhausted() {
    let mut world = World::new(10);
    (1..=4).for_each(|time| world.publish(0, at(time, time as u64)));
    let mut hidden = Filter { hidden: (1..=4).collect(), gone: BTreeSet::new() };
    for range in [Range::Newest, Range::Before(at(3, 3)), Range::After(at(3, 3))] {
        assert_eq!(world.page(range, 2, &mut hidden).newest, None, "{range:?}");
    }
    // Enough units for the page, but not for another scan from the top.
    world.units_max = 3 * 200;
    let page = world.page(Range::Before(at(3, 3)), 1, &mut Filter::default());
    assert_eq!((times(&page), page.reach), (vec![2], Reach::Full));
    assert!(page.newest >= Some(at(2, 2)), "what is newer is above: {:?}", page.newest);
}

proptest! {
    #[test]
    fn paging_terminates_with_late_sources_and_small_budgets(
        posts in prop::collection::vec((0..3usize, 0..30i64), 0..60),
        hidden in prop::collection::btree_set(0..60u64, 0..40),
        late in prop::collection::btree_set((0..3_u32).prop_map(SourceSlot), 0..=3),
        (posts_max, limit, units_max) in (1..30usize, 1..8usize, 0..3_000u64),
    ) {
        let mut world = World { units_max, ..World::new(posts_max) };
        let mut in_time = BTreeMap::new();
        for (id, (source, time)) in posts.into_iter().enumerate() {
            let position = at(time, id as u64);
            world.publish(source, position);
            if !late.contains(&SOURCES[source]) && !hidden.contains(&position.id.0) {
                in_time.insert(position, ());
            }
        }
        world.archived_counts.late = late.clone();
        let mut view = Filter { hidden, gone: BTreeSet::new() };
        let (mut down, mut range) = (BTreeMap::new(), Range::Newest);
        loop {
            let page = world.page(range, limit, &mut view);
            prop_assert!(page.reach != Reach::Nothing);
            prop_assert!(late.is_superset(&page.partial.iter().copied().collect()) || units_max < 500);
            for (position, ()) in page.items {
                prop_assert!(down.insert(position, ()).is_none(), "{position:?} comes twice");
            }
            let Some(next) = page.next else { break };
            let is_further = match range {
                Range::Before(before) => next < before,
                _ => next < Position::MAX,
            };
            prop_assert!(is_further);
            range = Range::Before(next);
        }
        // With some units to spare, only late sources are omitted.
        if units_max >= 500 {
            prop_assert!(in_time.keys().all(|position| down.contains_key(position)));
        }
    }

    #[test]
    fn paging_in_either_direction_meets_every_visible_post_once(
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
        let mut pages = PageCount::default();
        loop {
            pages.count();
            let page = world.page(range, limit, &mut view);
            prop_assert_eq!(page.newest, newest);
            prop_assert!(page.items.len() == limit || page.next.is_none());
            down.extend(page.items);
            let Some(next) = page.next else { break };
            range = Range::Before(next);
        }
        prop_assert!(down.iter().rev().copied().eq(expected.clone()));

        let (mut up, mut above) = (Vec::new(), Position::MIN);
        let mut pages = PageCount::default();
        loop {
            pages.count();
            let page = world.page(Range::After(above), limit, &mut view);
            let Some(first) = page.items.first() else { break };
            above = first.0;
            up.extend(page.items.into_iter().rev());
        }
        prop_assert!(up.into_iter().eq(expected));
    }
}

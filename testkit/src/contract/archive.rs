//! The contract of an archive, as one test suite that runs for every implementation.
//!
//! Responsible for:
//! - one case for each guarantee of [`Archive`]; random batches and reads are compared with a naive model in `model`.
pub mod model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use Direction::{Newer, Older};
use Route::{Pull, Push};
use tidewire::feed::outbox::{ArchivedCounts, OutboxQuery, Part, Route, RouteCount};
use tidewire::feed::position::{Direction, Position, PositionRange, at};
use tidewire::id::PostId;
use tidewire::limits::{NAME_BYTES_MAX, POST_BODY_BYTES_MAX};
use tidewire::storage::archive::samples::{all, copied, next_batch, placed, post, posts, removed, source};
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedRecord, Batch, Fate, Rewrite, Wanted};
use tidewire::storage::sequence::Sequence;

use crate::OnDrop;

/// The result of a case.
pub type Tested = Result<(), ArchiveError>;

/// Concurrent writes of several machines are ordered by the events that their batches name.
pub fn a_rewrite_is_older_than_the_rest_of_a_batch_that_it_overtakes(archive: &dyn Archive) -> Tested {
    let Batch { as_of: first, .. } = next_batch();
    let at_first = |batch: Batch| Batch { as_of: first, ..batch };
    archive.write(&at_first(posts([(1, post("named")), (2, post("named")), (3, post("named"))])))?;
    archive.persist(first)?;
    // A part of the next batch, which the rewrite overtakes.
    let Batch { as_of: then, .. } = next_batch();
    archive.write(&Batch { as_of: then, ..posts([(4, post("named"))]) })?;
    let fate = |_: &[u8]| Fate::Replace(b"unnamed".to_vec());
    archive.rewrite(&Rewrite { without: &[], fate: &fate, as_of: first })?;
    let rest = posts([(1, post("a")), (2, ArchivedRecord::Deleted), (4, post("z"))]);
    archive.write(&Batch { as_of: then, ..rest })?;
    // A write that is older than the rewrite.
    archive.write(&at_first(posts([(3, post("named"))])))?;
    let kept = [1, 2, 3, 4].map(|id| archive.post(PostId(id)));
    let kept: Vec<_> = kept.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(kept, [post("a"), ArchivedRecord::Deleted, post("unnamed"), post("z")].map(Some));
    Ok(())
}

/// Generates a test for each guarantee of an archive. `$on` runs a case on a new archive; attributes apply to each test.
#[macro_export]
macro_rules! archive_contract {
    ($(#[$attribute:meta])* $on:path) => {
        $crate::archive_contract! { @cases [$(#[$attribute])*] $on:
            a_post_is_found_until_it_is_replaced,
            the_later_of_two_posts_with_one_id_is_stored,
            any_id_and_any_bytes_can_be_stored,
            an_archive_is_empty_until_a_post_or_a_tombstone_is_written,
            prefetched_reads_return_current_data,
            reads_of_a_part_are_ordered_within_their_range,
            extreme_times_are_ordered,
            an_empty_range_has_no_entries,
            an_entry_is_placed_once_and_keeps_its_first_route,
            a_removed_entry_can_be_placed_again,
            an_entry_placed_and_removed_in_one_batch_is_absent,
            the_newest_archived_position_never_decreases,
            entries_of_different_sources_do_not_mix,
            a_listing_of_outboxes_can_read_the_archive_and_end_early,
            readers_see_all_of_a_batch_or_none,
            the_last_persisted_sequence_is_stored,
            what_is_written_while_the_engine_stops_is_stored,
            a_rewrite_removes_and_replaces_records_and_keeps_the_rest,
        }
    };
    (@cases $attributes:tt $on:path: $($case:ident,)*) => {
        $($crate::archive_contract! { @case $attributes $on, $case })*
    };
    (@case [$($attributes:tt)*] $on:path, $case:ident) => {
        #[test]
        $($attributes)*
        fn $case() -> $crate::contract::archive::Tested {
            $on(&$crate::contract::archive::$case)
        }
    };
}

/// Checks the counts of all outboxes, if the archive counts them.
fn assert_counts<const N: usize>(archive: &dyn Archive, expected: [(&str, ArchivedCounts); N]) {
    if !archive.is_remote() {
        let expected = expected.map(|(id, counts)| (source(id), counts));
        assert_eq!(archive.archived_counts().expect("the archive can be read"), expected);
    }
}

/// Returns the sources with archived entries, in order.
fn sources(archive: &dyn Archive) -> Vec<String> {
    let sources = archive.sources().expect("the archive can be read");
    let mut sources: Vec<_> = sources.into_iter().map(|source| source.to_string()).collect();
    sources.sort();
    sources
}

pub(crate) fn of_route(newest: Option<Position>, posts: u64) -> RouteCount {
    RouteCount { newest, posts }
}

pub fn a_rewrite_removes_and_replaces_records_and_keeps_the_rest(archive: &dyn Archive) -> Tested {
    archive.write(&posts([
        (1, post("goes")),
        (2, post("stays")),
        (3, post("changes")),
        (4, ArchivedRecord::Deleted),
    ]))?;
    // Three of the names have a common prefix.
    let entries = [("an", 1, Push), ("ann", 1, Push), ("ann", 2, Pull), ("anna", 2, Push), ("tag:tea", 1, Pull)];
    archive.write(&placed(entries.map(|(of, nth, route)| (of, at(nth, nth as u64), route))))?;
    archive.persist(Sequence(5))?;
    let fate = |bytes: &[u8]| match bytes {
        b"goes" => Fate::Tombstone,
        b"changes" => Fate::Replace(b"changed".to_vec()),
        _ => Fate::Keep,
    };
    for _ in 0..2 {
        let without = [source("ann"), source("nobody")];
        archive.rewrite(&Rewrite { without: &without, fate: &fate, as_of: next_batch().as_of })?;
        let kept = [1, 2, 3, 4].map(|id| archive.post(PostId(id)));
        let kept: Vec<_> = kept.into_iter().collect::<Result<_, _>>()?;
        let expected = [ArchivedRecord::Deleted, post("stays"), post("changed"), ArchivedRecord::Deleted].map(Some);
        assert_eq!(kept, expected);
        assert_eq!(all(archive, "ann", Part::Whole), []);
        for (of, nth) in [("an", 1), ("anna", 2), ("tag:tea", 1)] {
            assert_eq!(all(archive, of, Part::Whole), [at(nth, nth as u64)], "{of}");
        }
        assert_eq!(sources(archive), ["an", "anna", "tag:tea"]);
        assert_eq!(archive.through()?, Sequence(5));
        assert!((1..5).all(|id| archive.may_have(PostId(id))));
    }
    // The archive accepts writes as before.
    archive.write(&placed([("ann", at(9, 9), Push)]))?;
    archive.persist(Sequence(6))?;
    assert_eq!(all(archive, "ann", Part::Whole), [at(9, 9)]);
    Ok(())
}

pub fn a_post_is_found_until_it_is_replaced(archive: &dyn Archive) -> Tested {
    assert_eq!(archive.post(PostId(7))?, None);
    for kept in [post("first"), post("second, longer"), ArchivedRecord::Deleted, post("third")] {
        archive.write(&posts([(7, kept.clone())]))?;
        assert_eq!(archive.post(PostId(7))?, Some(kept));
        archive.persist(Sequence(1))?;
    }
    assert_eq!(archive.post(PostId(8))?, None);
    Ok(())
}

pub fn the_later_of_two_posts_with_one_id_is_stored(archive: &dyn Archive) -> Tested {
    archive.write(&posts([(7, post("a")), (3, post("b")), (7, ArchivedRecord::Deleted), (3, post("c"))]))?;
    assert_eq!(archive.post(PostId(7))?, Some(ArchivedRecord::Deleted));
    assert_eq!(archive.post(PostId(3))?, Some(post("c")));
    Ok(())
}

pub fn any_id_and_any_bytes_can_be_stored(archive: &dyn Archive) -> Tested {
    let longest = ArchivedRecord::Post(vec![0; POST_BODY_BYTES_MAX]);
    let cases = [
        (0, post("")),
        (1, ArchivedRecord::Post(vec![0])),
        (2, ArchivedRecord::Post(vec![1])),
        (3, longest),
        (u64::MAX, post("z")),
    ];
    archive.write(&posts(cases.clone()))?;
    for (id, kept) in cases {
        assert_eq!(archive.post(PostId(id))?, Some(kept));
    }
    Ok(())
}

pub fn an_archive_is_empty_until_a_post_or_a_tombstone_is_written(archive: &dyn Archive) -> Tested {
    archive.persist(Sequence(1))?;
    archive.write(&next_batch())?;
    archive.write(&placed([("ann", at(1, 1), Push)]))?;
    assert!(archive.is_empty());
    archive.write(&posts([(1, ArchivedRecord::Deleted)]))?;
    assert!(!archive.is_empty());
    Ok(())
}

pub fn prefetched_reads_return_current_data(archive: &dyn Archive) -> Tested {
    let ann = source("ann");
    let query = OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Older, max: 9 };
    let wanted = [Wanted::Post(PostId(1)), Wanted::Outbox(&ann, query), Wanted::Post(PostId(2))];
    for nth in 1..4 {
        if let Some(archive) = archive.remote() {
            archive.prefetch(&mut wanted.into_iter());
        }
        let kept = (nth > 1).then(|| post(&(nth - 1).to_string()));
        assert_eq!((archive.post(PostId(1))?, archive.post(PostId(2))?), (kept, None));
        assert_eq!(all(archive, "ann", Part::Whole).len(), nth - 1);
        // Later calls must not get the values that were cached for these calls.
        let entry = placed([("ann", at(nth as i64, 1), Push)]);
        archive.write(&Batch { posts: posts([(1, post(&nth.to_string()))]).posts, ..entry })?;
    }
    Ok(())
}

pub fn reads_of_a_part_are_ordered_within_their_range(archive: &dyn Archive) -> Tested {
    for time in [4, 1, 6, 3, 7, 2, 5] {
        let route = if time % 2 == 0 { Pull } else { Push };
        archive.write(&placed([("ann", at(time, 0), route)]))?;
    }
    let middle = PositionRange { above: at(1, 0), below: at(7, 0) };
    for (part, span, way, max, expected) in [
        (Part::Pushed, PositionRange::ALL, Older, 3, vec![7, 5, 3]),
        (Part::Pulled, PositionRange::ALL, Older, 9, vec![6, 4, 2]),
        (Part::Pushed, middle, Newer, 9, vec![3, 5]),
        (Part::Pulled, PositionRange::ALL, Newer, 2, vec![2, 4]),
        (Part::Whole, middle, Older, 4, vec![6, 5, 4, 3]),
        (Part::Whole, middle, Newer, 4, vec![2, 3, 4, 5]),
        (Part::Whole, PositionRange::ALL, Newer, usize::MAX, vec![1, 2, 3, 4, 5, 6, 7]),
        (Part::Whole, PositionRange::ALL, Older, 0, vec![]),
    ] {
        let times: Vec<_> = copied(archive, "ann", part, span, way, max).iter().map(|p| p.published_at.0).collect();
        assert_eq!(times, expected, "{part:?} {span:?} {way:?} {max}");
    }
    Ok(())
}

pub fn extreme_times_are_ordered(archive: &dyn Archive) -> Tested {
    let ascending = [at(i64::MIN, 1), at(-256, 0), at(-1, u64::MAX), at(0, 0), at(255, 1), at(256, 0), at(i64::MAX, 7)];
    let [a, b, c, d, e, f, g] = ascending;
    archive.write(&placed([d, g, b, a, f, c, e].map(|position| ("ann", position, Push))))?;
    assert_eq!(all(archive, "ann", Part::Pushed), ascending);
    Ok(())
}

pub fn an_empty_range_has_no_entries(archive: &dyn Archive) -> Tested {
    archive.write(&placed([("ann", at(5, 0), Push), ("ann", at(5, 1), Pull)]))?;
    for (above, below) in [
        (at(5, 0), at(5, 0)),
        (at(5, 0), at(5, 1)),
        (at(9, 0), at(1, 0)),
        (at(6, 0), Position::MAX),
        (Position::MAX, Position::MIN),
        (Position::MAX, Position::MAX),
    ] {
        for way in [Older, Newer] {
            assert_eq!(copied(archive, "ann", Part::Whole, PositionRange { above, below }, way, 9), []);
        }
    }
    Ok(())
}

pub fn an_entry_is_placed_once_and_keeps_its_first_route(archive: &dyn Archive) -> Tested {
    archive.write(&placed([("ann", at(1, 1), Push), ("ann", at(1, 1), Pull), ("ann", at(1, 1), Push)]))?;
    archive.write(&placed([("ann", at(1, 1), Pull)]))?;
    archive.write(&placed([("ann", at(1, 1), Push)]))?;
    assert_eq!(all(archive, "ann", Part::Pushed), [at(1, 1)]);
    assert_eq!(all(archive, "ann", Part::Pulled), []);
    let archived_counts = ArchivedCounts { pushed: of_route(Some(at(1, 1)), 1), pulled: of_route(None, 0) };
    assert_counts(archive, [("ann", archived_counts)]);
    Ok(())
}

pub fn a_removed_entry_can_be_placed_again(archive: &dyn Archive) -> Tested {
    archive.write(&removed([("ann", at(1, 1)), ("ann", at(1, 1))]))?;
    assert_counts(archive, []);
    archive.write(&placed([("ann", at(1, 1), Push), ("ann", at(2, 2), Pull)]))?;
    archive.write(&removed([("ann", at(1, 1)), ("ann", at(3, 3)), ("ann", at(1, 1)), ("bob", at(2, 2))]))?;
    assert_eq!(all(archive, "ann", Part::Whole), [at(2, 2)]);
    archive.write(&placed([("ann", at(1, 1), Pull)]))?;
    assert_eq!(all(archive, "ann", Part::Pulled), [at(1, 1), at(2, 2)]);
    let archived_counts = ArchivedCounts { pushed: of_route(Some(at(1, 1)), 0), pulled: of_route(Some(at(2, 2)), 2) };
    assert_counts(archive, [("ann", archived_counts)]);
    Ok(())
}

pub fn an_entry_placed_and_removed_in_one_batch_is_absent(archive: &dyn Archive) -> Tested {
    let both = Batch { removed: vec![(source("ann"), at(1, 1))], ..placed([("ann", at(1, 1), Pull)]) };
    archive.write(&both)?;
    archive.write(&both)?;
    assert_eq!(all(archive, "ann", Part::Whole), []);
    let archived_counts = ArchivedCounts { pushed: of_route(None, 0), pulled: of_route(Some(at(1, 1)), 0) };
    assert_counts(archive, [("ann", archived_counts)]);
    Ok(())
}

pub fn the_newest_archived_position_never_decreases(archive: &dyn Archive) -> Tested {
    archive.write(&placed([("ann", at(9, 0), Push), ("ann", at(5, 0), Push)]))?;
    archive.write(&removed([("ann", at(9, 0))]))?;
    archive.write(&placed([("ann", at(7, 0), Push)]))?;
    let archived_counts = ArchivedCounts { pushed: of_route(Some(at(9, 0)), 2), pulled: of_route(None, 0) };
    assert_counts(archive, [("ann", archived_counts)]);
    Ok(())
}

pub fn entries_of_different_sources_do_not_mix(archive: &dyn Archive) -> Tested {
    let longest = format!("topic:{}", "x".repeat(NAME_BYTES_MAX));
    let ids = ["a", "a-", "aa", "ab", "b", "tag:a", &longest];
    for (time, id) in (0..).zip(ids) {
        archive.write(&placed([(id, at(time, 0), Push), (id, at(time, 1), Pull)]))?;
    }
    for (time, id) in (0..).zip(ids) {
        assert_eq!(all(archive, id, Part::Whole), [at(time, 0), at(time, 1)], "{id}");
    }
    assert_eq!(all(archive, "c", Part::Whole), []);
    assert_eq!(sources(archive), ids);
    Ok(())
}

pub fn a_listing_of_outboxes_can_read_the_archive_and_end_early(archive: &dyn Archive) -> Tested {
    archive.write(&placed([("ann", at(1, 1), Push), ("bob", at(2, 2), Pull)]))?;
    let mut listed = Vec::new();
    let ended = archive.each_outbox(&mut |source, counts| {
        assert_eq!(all(archive, source.as_str(), Part::Whole).len() as u64, counts.pushed.posts + counts.pulled.posts);
        listed.push(source.to_string());
        Err(ArchiveError::Unavailable { place: "the caller".to_owned(), why: "ended".to_owned() })
    });
    assert!(matches!(ended, Err(ArchiveError::Unavailable { place, .. }) if place == "the caller"));
    assert_eq!(listed, ["ann"]);
    Ok(())
}

pub fn readers_see_all_of_a_batch_or_none(archive: &dyn Archive) -> Tested {
    let written = AtomicBool::new(false);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            while !written.load(Ordering::Acquire) {
                let now = all(archive, "ann", Part::Pushed).len();
                assert!(now >= seen && now.is_multiple_of(3), "{now} entries after {seen}");
                seen = now;
            }
        });
        let ends = OnDrop(|| written.store(true, Ordering::Release));
        let mut batches = (0..50).map(|time| placed([0, 1, 2].map(|id| ("ann", at(time, id), Push))));
        let result = batches.try_for_each(|batch| archive.write(&batch));
        drop(ends);
        reader.join().expect("the reader saw whole batches only");
        result
    })
}

/// A stopping engine takes its last snapshot, which the archive precedes.
pub fn what_is_written_while_the_engine_stops_is_stored(archive: &dyn Archive) -> Tested {
    archive.stop_waiting();
    archive.write(&posts([(1, post("a"))]))?;
    archive.persist(Sequence(7))?;
    assert_eq!((archive.post(PostId(1))?, archive.through()?), (Some(post("a")), Sequence(7)));
    Ok(())
}

pub fn the_last_persisted_sequence_is_stored(archive: &dyn Archive) -> Tested {
    assert_eq!(archive.through()?, Sequence(0));
    for through in [7, 9, u64::MAX].map(Sequence) {
        archive.persist(through)?;
        archive.write(&posts([(1, post("a"))]))?;
        assert_eq!(archive.through()?, through);
    }
    Ok(())
}

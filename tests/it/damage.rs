//! Damaged, missing and doubled files: noticed, named, and gone on without only where that loses nothing or was asked for.

use std::sync::Arc;

use testkit::{eventually_async, stride};
use tidewire::engine::StorageConfig;
use tidewire::feed::event::Event;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::frame::{self, FRAME_HEADER_BYTES, FrameKind};
use tidewire::storage::journal::{Durability, Journal};
use tidewire::storage::segment::{self, Segment};
use tidewire::storage::sequence::Sequence;

use testkit::histories::{History, Store, journal, model, names, open, recover, recovered, state, storage, written};
use testkit::world::draft;

const LARGE: u64 = 1 << 20;

fn history(count: usize) -> Vec<Event> {
    History::new(11).events(count)
}

/// Where each event of a segment starts.
fn offsets(files: &MemoryFiles, name: &str) -> Vec<usize> {
    let (mut offsets, segment) = (Vec::new(), Segment::read(files, name, segment::parse_name(name).unwrap()).unwrap());
    let walk = segment.walk(|found| {
        offsets.push(found.offset_bytes as usize);
        Ok::<_, ()>(())
    });
    walk.unwrap();
    offsets
}

/// Flips the byte at `at` in a copy of the files.
fn flipped(files: &MemoryFiles, name: &str, at: usize, mask: u8) -> MemoryFiles {
    let flipped = files.copied();
    flipped.tamper(name, |bytes| bytes[at] ^= mask);
    flipped
}

/// Flips every byte of every segment: a start is refused, except for what is in front of the tail that was written last.
fn every_flip_is_noticed(segment_bytes: u64, close: bool) {
    let events = history(14);
    let files = written(&events, segment_bytes, &[], close);
    let segments = names(&files, "journal-");
    let (last, tail) = (segments.last().unwrap(), segments.last().map(|name| offsets(&files, name)).unwrap());
    for name in &segments {
        for at in (0..files.content(name).len()).step_by(stride(7)) {
            let damaged = flipped(&files, name, at, 1 << (at % 8));
            match recover(&damaged, false) {
                Err(StorageError::Damaged { place, .. }) => assert_eq!(place, format!("memory/{name}")),
                Err(other) => panic!("byte {at} of {name}: {other}"),
                Ok(recovered) => {
                    // Behind the last event nothing tells any more that it was whole once; behind the mark, nothing is.
                    let in_tail = name == last && (close || at >= *tail.last().unwrap());
                    assert!(in_tail && recovered.report.torn.is_some(), "byte {at} of {name} went unnoticed");
                    let kept = events.len() - usize::from(!close);
                    assert_eq!(recovered.tail.last.0 as usize, kept, "byte {at} of {name}");
                    assert_eq!(state(&recovered.world), model(&events[..kept]), "byte {at} of {name}");
                }
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_a_journal_is_detected() {
    for (segment_bytes, close) in [(LARGE, false), (LARGE, true), (600, false), (600, true)] {
        every_flip_is_noticed(segment_bytes, close);
    }
}

/// Three groups, the last of four events. The process ends without closing the journal, at once or after it was idle.
fn groups_of_four(idle: bool) -> (MemoryFiles, Vec<Event>) {
    let (files, events) = (MemoryFiles::default(), history(12));
    let mut store = Store::open(Arc::new(files.clone()), journal(Durability::Always, LARGE)).unwrap().0;
    events.chunks(4).for_each(|group| store.write(group).unwrap());
    assert!(store.journal.wants_mark());
    if idle {
        store.journal.mark_synced();
        assert!(!store.journal.wants_mark());
    }
    (files, events)
}

#[test]
fn a_flip_in_the_last_synced_group_is_damage_after_the_journal_was_idle() {
    let (files, events) = groups_of_four(true);
    let name = &names(&files, "journal-")[0];
    let starts = offsets(&files, name);
    let mark = files.content(name).len() - FRAME_HEADER_BYTES - frame::MARK.len();
    for at in starts[8]..files.content(name).len() {
        let found = recover(&flipped(&files, name, at, 1 << (at % 8)), false);
        match found {
            Err(StorageError::Damaged { .. }) if at < mark => {}
            Ok(found) if at >= mark => assert_eq!(found.tail.last, Sequence(12), "only the mark is cut, byte {at}"),
            found => panic!("byte {at}: {:?}", found.map(|found| found.report)),
        }
    }
    let (mut store, report) = Store::open(Arc::new(files.clone()), journal(Durability::Always, LARGE)).unwrap();
    assert_eq!((report.events, report.torn, store.journal.wants_mark()), (12, None, false));
    let more = History::new(99).events(2);
    store.write(&more).unwrap();
    drop(store);
    assert_eq!(recovered(&files).unwrap(), (model(events.iter().chain(&more)), Sequence(14)));
}

#[test]
fn a_flip_in_an_unconfirmed_group_is_reported_as_a_torn_tail() {
    let (files, _) = groups_of_four(false);
    let name = &names(&files, "journal-")[0];
    let found = recover(&flipped(&files, name, offsets(&files, name)[8] + 33, 4), false).unwrap();
    // Three whole events are behind it. A power loss may leave as much of what was written and not synced.
    assert_eq!((found.tail.last, found.report.torn.unwrap().whole_behind), (Sequence(8), 3));
}

#[tokio::test]
async fn an_idle_engine_writes_a_mark_of_its_last_sync() {
    let files = MemoryFiles::default();
    let engine = open(files.clone(), &storage(Durability::Always, LARGE)).unwrap().0;
    engine.publish(draft("bob", "1"), true).await.unwrap();
    let left = eventually_async("the journal ends with a mark", async || {
        let left = files.forked();
        let is_marked = left.content(&names(&left, "journal-")[0]).ends_with(frame::MARK);
        is_marked.then_some(left)
    })
    .await;
    let name = &names(&left, "journal-")[0];
    let last = *offsets(&left, name).last().unwrap();
    assert!(matches!(recover(&flipped(&left, name, last + 33, 4), false), Err(StorageError::Damaged { .. })));
    engine.shutdown();
}

#[test]
fn every_flipped_byte_of_a_snapshot_is_reported_and_the_journal_replayed() {
    let events = history(30);
    let expected = model(&events);
    // Of two snapshots, one is compressed.
    for snapshots in [&[19][..], &[20]] {
        let files = written(&events, LARGE, snapshots, true);
        let name = &names(&files, "snapshot-")[0];
        for at in (0..files.content(name).len()).step_by(stride(7)) {
            let found = recover(&flipped(&files, name, at, 1 << (at % 8)), false).unwrap();
            assert_eq!(state(&found.world), expected, "byte {at}");
            assert_eq!((found.report.skipped.len(), found.report.events), (1, 30), "byte {at}");
            assert!(found.report.skipped[0].contains(name.as_str()), "{:?}", found.report.skipped);
        }
    }
}

#[test]
fn damage_is_reported_with_place_offset_and_sequence_and_repair_lists_lost_events() {
    let events = history(40);
    for segment_bytes in [LARGE, 900] {
        let files = written(&events, segment_bytes, &[], false);
        for lost in [1usize, 2, 17, 38, 39] {
            let name = names(&files, "journal-").into_iter().rfind(|name| first(name) <= lost).unwrap();
            let at = offsets(&files, &name)[lost - first(&name)];
            let damaged = flipped(&files, &name, at + 33, 4);
            let refusal = recover(&damaged, false).err().unwrap();
            let StorageError::Damaged { place, offset_bytes, sequence, .. } = &refusal else { panic!("{refusal}") };
            assert_eq!((place.as_str(), *offset_bytes as usize), (&*format!("memory/{name}"), at));
            assert_eq!(*sequence, Sequence(lost as u64));
            assert!(refusal.to_string().contains("--repair"), "{refusal}");
            repaired(&damaged, &events, lost);
        }
    }
}

fn first(name: &str) -> usize {
    segment::parse_name(name).unwrap().0 as usize
}

/// Repair goes on without the one event, says so, and leaves a directory that starts as any other.
fn repaired(damaged: &MemoryFiles, events: &[Event], lost: usize) {
    let settings = storage(Durability::Always, LARGE);
    assert!(open(damaged.clone(), &settings).is_err(), "nothing is repaired unless asked for");
    let (engine, report) = open(damaged.clone(), &StorageConfig { repair: true, ..settings.clone() }).unwrap();
    let gone: Vec<_> = report.lost.iter().map(|lost| (lost.from.0 as usize, lost.until)).collect();
    assert_eq!(gone, [(lost, Some(Sequence(lost as u64 + 1)))]);
    let expected = model(events.iter().enumerate().filter(|(nth, _)| nth + 1 != lost).map(|(_, event)| event));
    assert_eq!(state(&engine.shared().world), expected);
    engine.shutdown();
    let (engine, report) = open(damaged.clone(), &settings).unwrap();
    assert_eq!((report.lost.len(), state(&engine.shared().world)), (0, expected));
    engine.shutdown();
}

/// Damages snapshots and takes segments away, and says what a start makes of it.
fn check(damage: impl Fn(&MemoryFiles), expected: Result<(Option<u64>, usize), &str>) {
    let events = history(40);
    // The snapshot at 20 is compressed, the one at 31 is not.
    let files = written(&events, 600, &[20, 31], true);
    damage(&files);
    match (recover(&files, false), expected) {
        (Ok(found), Ok((snapshot, skipped))) => {
            assert_eq!(found.report.snapshot.map(|at| at.0), snapshot);
            assert_eq!(found.report.skipped.len(), skipped, "{:?}", found.report.skipped);
            assert_eq!(found.report.events, 40 - snapshot.unwrap_or(0));
            assert_eq!(state(&found.world), model(&events));
        }
        (Err(refusal), Err(part)) => {
            assert!(refusal.to_string().contains(part), "{refusal}");
            assert!(refusal.to_string().contains("--repair"), "{refusal}");
        }
        (Ok(found), Err(part)) => panic!("a start from {:?} instead of {part:?}", found.report),
        (Err(refusal), Ok(_)) => panic!("{refusal}"),
    }
}

fn damage_snapshot(files: &MemoryFiles, nth: usize) {
    files.tamper(&names(files, "snapshot-")[nth], |bytes| bytes[100] ^= 1);
}

/// Removes the segments that start in a range of events, and their names for good.
fn remove_segments(files: &MemoryFiles, from: usize, until: usize) {
    let gone: Vec<_> =
        names(files, "journal-").into_iter().filter(|name| (from..until).contains(&first(name))).collect();
    assert!(!gone.is_empty());
    gone.iter().for_each(|name| files.remove(name).unwrap());
}

#[test]
fn a_damaged_snapshot_causes_a_longer_replay_and_loses_no_event() {
    check(|_| {}, Ok((Some(31), 0)));
    check(|files| damage_snapshot(files, 1), Ok((Some(20), 1)));
    check(|files| damage_snapshot(files, 0), Ok((Some(31), 0)));
    check(|files| (0..2).for_each(|nth| damage_snapshot(files, nth)), Ok((None, 2)));
    check(|files| files.tamper(&names(files, "snapshot-")[1], Vec::clear), Ok((Some(20), 1)));
    check(|files| files.tamper(&names(files, "snapshot-")[1], |bytes| bytes[..8].fill(b'x')), Ok((Some(20), 1)));
}

#[test]
fn segments_before_the_snapshot_may_be_missing_unless_they_are_needed() {
    check(|files| remove_segments(files, 0, 16), Ok((Some(31), 0)));
    let without_the_oldest = |files: &MemoryFiles| {
        (0..2).for_each(|nth| damage_snapshot(files, nth));
        remove_segments(files, 0, 2);
    };
    check(without_the_oldest, Err("events 1 to "));
    let between_the_snapshots = |files: &MemoryFiles| {
        damage_snapshot(files, 1);
        remove_segments(files, 22, 30);
    };
    check(between_the_snapshots, Err("no journal segment before"));
}

#[test]
fn a_missing_needed_segment_is_refused_at_any_position() {
    let no_snapshots = |files: &MemoryFiles| {
        names(files, "snapshot-").iter().for_each(|name| files.remove(name).unwrap());
    };
    let middle = |files: &MemoryFiles| {
        no_snapshots(files);
        remove_segments(files, 10, 20);
    };
    check(middle, Err("no journal segment before"));
    let behind_the_snapshot = |files: &MemoryFiles| {
        let segments = names(files, "journal-");
        let next_to_last = first(&segments[segments.len() - 2]);
        assert!(next_to_last > 31, "{segments:?}");
        remove_segments(files, next_to_last, next_to_last + 1);
    };
    check(behind_the_snapshot, Err("no journal segment before"));
    check(|files| remove_segments(files, 25, 99), Err("contains event 31"));
    check(|files| remove_segments(files, 0, 99), Err("contains event 31"));
}

#[test]
fn a_repair_without_a_journal_restores_the_state_of_the_snapshot() {
    let events = history(40);
    let files = written(&events, 900, &[20, 31], true);
    remove_segments(&files, 0, 99);
    let settings = storage(Durability::Always, LARGE);
    let repair = StorageConfig { repair: true, ..settings };
    let (engine, report) = open(files.clone(), &repair).unwrap();
    let gone: Vec<_> = report.lost.iter().map(|lost| (lost.from, lost.until)).collect();
    assert_eq!(gone, [(Sequence(32), None)], "what the snapshot holds is not gone, what followed it may be");
    assert_eq!(state(&engine.shared().world), model(&events[..31]));
    engine.shutdown();
    let (text, last) = recovered(&files).unwrap();
    assert_eq!((text, last), (model(&events[..31]), Sequence(31)));
}

#[test]
fn repair_does_not_count_the_closing_mark_as_an_event() {
    let events = history(40);
    let lost = |files: &MemoryFiles| {
        let report = recover(files, true).unwrap().report;
        assert!(report.torn.is_none(), "{:?}", report.torn);
        report.lost.iter().map(|lost| (lost.from.0, lost.until.map(|until| until.0))).collect::<Vec<_>>()
    };
    let closed = written(&events, LARGE, &[], true);
    let name = &names(&closed, "journal-")[0];
    let last = *offsets(&closed, name).last().unwrap();
    assert_eq!(lost(&flipped(&closed, name, last + 33, 4)), [(40, Some(41))]);
    // The next process starts a segment at once.
    let two = written(&events[..39], LARGE, &[], true);
    let mark = two.content(name).len() - 1;
    let (mut store, _) = Store::open(Arc::new(two.clone()), journal(Durability::Always, 1)).unwrap();
    store.write(&events[39..]).unwrap();
    drop(store);
    assert_eq!(names(&two, "journal-").len(), 2);
    assert!(matches!(recover(&flipped(&two, name, mark, 4), false), Err(StorageError::Damaged { .. })));
    assert_eq!(lost(&flipped(&two, name, mark, 4)), []);
}

#[tokio::test]
async fn an_unloadable_snapshot_is_set_aside_and_does_not_count_as_retained() {
    let files = written(&history(40), 900, &[20, 31], true);
    let snapshots = names(&files, "snapshot-");
    let damaged = flipped(&files, snapshots.last().unwrap(), 100, 1);
    let (engine, report) = open(damaged.clone(), &storage(Durability::Always, 900)).unwrap();
    assert_eq!((report.skipped.len(), engine.snapshots().len()), (1, 1));
    engine.snapshot().await.unwrap();
    engine.shutdown();
    let kept = names(&damaged, "snapshot-");
    assert_eq!(kept.len(), 3, "{kept:?}");
    assert!(kept.contains(&snapshots[0]) && kept.contains(&format!("{}.damaged", snapshots[1])), "{kept:?}");
    let again = flipped(&damaged, &kept[2], 100, 1);
    let found = recover(&again, false).unwrap();
    assert_eq!((found.report.skipped.len(), state(&found.world)), (1, model(&history(40))));
}

#[test]
fn the_refusal_names_unloadable_snapshots_and_missing_journal_events() {
    let files = written(&history(40), 900, &[20, 31], true);
    remove_segments(&files, 0, 15);
    for name in names(&files, "snapshot-") {
        files.tamper(&name, |bytes| bytes[100] ^= 1);
    }
    let refusal = recover(&files, false).err().unwrap().to_string();
    assert_eq!(refusal.matches("is damaged at byte").count(), 2, "{refusal}");
    assert!(refusal.contains("Without a snapshot") && refusal.contains("no journal segment before"), "{refusal}");
}

#[test]
fn repeated_replays_any_snapshot_and_duplicate_segments_recover_the_same_state() {
    for seed in 0..20 {
        let events = History::new(seed).events(60);
        let expected = model(&events);
        assert_eq!(model(events.iter().chain(&events)), expected, "seed {seed}: everything twice");
        let files = written(&events, 800, &[10, 25, 41], seed % 2 == 0);
        for snapshot in names(&files, "snapshot-").iter().rev() {
            assert_eq!(recovered(&files).unwrap(), (expected.clone(), Sequence(60)), "seed {seed}");
            files.remove(snapshot).unwrap();
        }
        assert_eq!(recovered(&files).unwrap(), (expected.clone(), Sequence(60)), "seed {seed}: from nothing");
        doubled(&files, &events);
    }
}

/// Adds segments that hold again what others hold, and goes on writing behind them.
fn doubled(files: &MemoryFiles, events: &[Event]) {
    for (from, until) in [(31, 40), (31, 60), (59, 59), (60, 60)] {
        let files = files.copied();
        let mut bytes = segment::header(Sequence(from));
        for at in from..=until {
            let event = rmp_serde::to_vec_named(&events[at as usize - 1]).unwrap();
            frame::encode(&mut bytes, FrameKind::Event, Sequence(at), Sequence(at - 1), |into| into.extend(event));
        }
        if names(&files, "journal-").contains(&segment::name(Sequence(from))) {
            continue;
        }
        files.put(&segment::name(Sequence(from)), bytes);
        let more = History::new(99).events(4);
        let options = journal(Durability::Always, LARGE);
        let (mut store, report) = Store::open(Arc::new(files.clone()), options).unwrap();
        assert_eq!((state(&store.world), report.events), (model(events), 60), "each is replayed once");
        store.write(&more).unwrap();
        store.journal.close().unwrap();
        assert_eq!(recovered(&files).unwrap().0, model(events.iter().chain(&more)), "events {from} to {until} doubled");
    }
}

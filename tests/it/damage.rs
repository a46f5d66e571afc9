//! Damaged, missing, foreign and hostile files: always noticed, never a panic.

use serde_json::{Value, json};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::frame::{self, FrameKind};
use tidewire::storage::journal::{Durability, Journal, Sequence};
use tidewire::storage::segment;
use tidewire::storage::snapshot::{self as file, Section, SnapshotHeader, SnapshotWriter};

use crate::kept::{History, check_prefix, recover, snapshot, state, written};

const ONE_SEGMENT: u64 = 1 << 20;

fn history(seed: u64, length: usize) -> History {
    History::random(&mut fastrand::Rng::with_seed(seed), length)
}

fn first_segment() -> String {
    segment::name(Sequence(1))
}

/// A3.
#[test]
fn a_journal_cut_anywhere_holds_the_events_before_the_cut() {
    let history = history(3, 12);
    let files = written(&history, ONE_SEGMENT);
    let whole = files.content(&first_segment());
    let mut lengths = std::collections::BTreeSet::new();
    for length in 0..=whole.len() {
        let cut = files.copied();
        cut.tamper(&first_segment(), |bytes| bytes.truncate(length));
        lengths.insert(check_prefix(&cut, &history, 0));
    }
    assert!(lengths.into_iter().eq(0..=12), "each number of events is met");
}

/// A4, a journal that was never closed: damage before the last commit refuses, damage in it is cut and told.
#[test]
fn every_flipped_byte_of_a_journal_is_noticed() {
    let history = history(4, 8);
    let files = written(&history, ONE_SEGMENT);
    let whole = files.content(&first_segment());
    let mut refused = 0;
    for at in 0..whole.len() {
        let flipped = files.copied();
        flipped.tamper(&first_segment(), |bytes| bytes[at] ^= 0x04);
        match recover(&flipped, false) {
            Err(cause) => {
                refused += 1;
                let text = cause.to_string();
                assert!(text.contains(&first_segment()), "{text}");
                if matches!(cause, StorageError::Damaged { .. }) {
                    assert!(text.contains("--repair"), "{text}");
                }
                let repaired = recover(&flipped, true);
                assert!(repaired.is_ok_and(|state| !state.report.lost.is_empty()) || at < 10, "byte {at}");
            }
            Ok(recovered) => {
                assert!(recovered.report.torn.is_some(), "byte {at} was flipped, and nobody said so");
                assert_eq!(recovered.tail.last, Sequence(7), "only the last event may go");
                assert_eq!(state(&recovered.world), history.states[7]);
            }
        }
    }
    assert!(refused > whole.len() / 2);
}

/// A4, a journal that was closed in order: nothing at all may be cut off it.
#[test]
fn a_closed_journal_may_lose_nothing_unnoticed() {
    let history = history(5, 5);
    let files = MemoryFiles::default();
    let mut journal = crate::kept::journal(files.clone(), Durability::Always, ONE_SEGMENT).unwrap();
    for event in &history.events {
        journal.append(event).unwrap();
    }
    journal.close().unwrap();
    let whole = files.content(&first_segment());
    for at in 0..whole.len() - frame::FRAME_HEADER_BYTES {
        let flipped = files.copied();
        flipped.tamper(&first_segment(), |bytes| bytes[at] ^= 0x80);
        let outcome = recover(&flipped, false);
        assert!(outcome.is_err(), "byte {at}: {:?}", outcome.map(|state| state.report));
    }
    check_prefix(&files, &history, 5);
}

/// A4 and A5: a damaged snapshot is passed over.
#[test]
fn a_damaged_snapshot_falls_back_to_an_older_one_and_then_to_the_journal() {
    let history = history(6, 20);
    let files = written(&history, ONE_SEGMENT);
    snapshot(&files, &history, 5).unwrap();
    snapshot(&files, &history, 15).unwrap();
    let (older, newest) = (file::name(Sequence(5)), file::name(Sequence(15)));
    let from = |files: &MemoryFiles| recover(files, false).unwrap().report.snapshot;
    assert_eq!(from(&files), Some(Sequence(15)));
    for at in (0..files.content(&newest).len()).step_by(3) {
        let flipped = files.copied();
        flipped.tamper(&newest, |bytes| bytes[at] ^= 0x20);
        if (8..10).contains(&at) {
            continue;
        }
        let recovered = recover(&flipped, false).unwrap();
        assert_eq!((recovered.report.snapshot, recovered.report.skipped.len()), (Some(Sequence(5)), 1), "byte {at}");
        assert!(recovered.report.skipped[0].contains(&newest));
        check_prefix(&flipped, &history, 20);
    }
    files.tamper(&newest, |bytes| bytes.truncate(50));
    files.tamper(&older, |bytes| bytes.truncate(50));
    assert_eq!(from(&files), None);
    check_prefix(&files, &history, 20);
}

/// A5: what is missing is named.
#[test]
fn a_missing_segment_refuses_to_start_and_repair_tells_what_is_gone() {
    let history = history(7, 40);
    let files = written(&history, 500);
    let mut segments: Vec<String> = files.list().unwrap();
    segments.sort();
    assert!(segments.len() > 4);
    for (nth, missing) in segments.iter().enumerate() {
        let gap = files.copied();
        gap.remove(missing).unwrap();
        let is_last = nth + 1 == segments.len();
        if is_last {
            // Nothing tells that there was more, unless a snapshot saw it.
            snapshot(&gap, &history, 40).unwrap();
            assert!(matches!(recover(&gap, false), Err(StorageError::BehindSnapshot { .. })));
            continue;
        }
        let Err(cause) = recover(&gap, false) else { panic!("{missing} was not missed") };
        assert!(matches!(cause, StorageError::Missing { .. }), "{cause}");
        assert!(cause.to_string().contains(&segments[nth + 1]), "{cause}");
        let repaired = recover(&gap, true).unwrap();
        assert_eq!(repaired.report.lost.len(), 1);
        assert_eq!(repaired.tail.last, Sequence(40));
    }
}

/// A12: the same state by whatever way, and with segments that overlap.
#[test]
fn every_way_of_replaying_comes_to_the_same_state() {
    let history = history(12, 40);
    let files = written(&history, 500);
    for events in [0, 1, 7, 23, 40] {
        let from = files.copied();
        snapshot(&from, &history, events).unwrap();
        check_prefix(&from, &history, 40);
        check_prefix(&from, &history, 40);
    }
    // A second copy of the events of the second segment on, as if it had been written twice.
    let overlapping = files.copied();
    let first = overlapping.content(&segment::name(Sequence(1)));
    overlapping.tamper(&segment::name(Sequence(1)), |bytes| bytes.truncate(first.len()));
    let whole = written(&history, ONE_SEGMENT);
    overlapping.put(&segment::name(Sequence(1)), whole.content(&segment::name(Sequence(1))));
    check_prefix(&overlapping, &history, 40);
}

#[test]
fn foreign_and_later_files_are_told_apart() {
    let files = MemoryFiles::default();
    files.put(&first_segment(), b"#!/bin/sh\necho hello, this is no journal at all\n".to_vec());
    let refused = recover(&files, false).err().unwrap().to_string();
    assert!(refused.contains("is no Tidewire journal segment") && refused.contains(&first_segment()), "{refused}");
    let files = written(&history(1, 2), ONE_SEGMENT);
    files.tamper(&first_segment(), |bytes| {
        bytes[8] = 9;
        let checksum = crc32c::crc32c(&bytes[..20]).to_le_bytes();
        bytes[20..24].copy_from_slice(&checksum);
    });
    let refused = recover(&files, false).err().unwrap().to_string();
    assert!(refused.contains("format 9") && refused.contains("reads up to 1"), "{refused}");
    // Files that are none of ours are left alone.
    let files = written(&history(1, 2), ONE_SEGMENT);
    files.put("journal-1.log.bak", vec![1, 2, 3]);
    files.put("README", vec![]);
    assert!(recover(&files, false).is_ok());
}

fn any_json(random: &mut fastrand::Rng, depth: usize) -> Value {
    const NAMES: [&str; 14] = [
        "published",
        "edited",
        "deleted",
        "followed",
        "position",
        "draft",
        "id",
        "at",
        "sources",
        "body",
        "since",
        "follower",
        "ids",
        "reader",
    ];
    match random.u8(0..if depth == 0 { 4 } else { 7 }) {
        0 => json!(random.i64(..)),
        1 => json!(random.u64(0..5)),
        2 => json!("x".repeat(random.usize(0..10))),
        3 => Value::Null,
        4 => Value::Array((0..random.usize(0..4)).map(|_| any_json(random, depth - 1)).collect()),
        _ => {
            let field =
                |random: &mut fastrand::Rng| (NAMES[random.usize(0..14)].to_owned(), any_json(random, depth - 1));
            Value::Object((0..random.usize(0..5)).map(|_| field(random)).collect())
        }
    }
}

/// A6: the checksums are right, and the content makes no sense.
#[test]
fn hostile_content_is_refused_without_a_panic() {
    let (seeds, mut loaded) = (crate::kept::seeds(2_000), 0);
    for seed in 0..seeds {
        let random = &mut fastrand::Rng::with_seed(seed);
        let files = MemoryFiles::default();
        let mut bytes = segment::header(Sequence(1));
        let payload = match random.bool() {
            true => rmp_serde::to_vec_named(&any_json(random, 4)).unwrap(),
            // Among them lengths far beyond what follows.
            false => (0..random.usize(0..40))
                .map(|_| random.choice([0xdf, 0xdd, 0xdb, 0xc6, 0xff, 0x81, 0x00]).unwrap())
                .collect(),
        };
        frame::encode(&mut bytes, FrameKind::Event, Sequence(1), Sequence(0), |into| into.extend(&payload));
        files.put(&first_segment(), bytes);
        assert!(recover(&files, false).is_err(), "seed {seed}");

        let files = written(&history(1, 3), ONE_SEGMENT);
        let header = SnapshotHeader { sequence: Sequence(2), taken_at: tidewire::clock::UnixMicros(0) };
        let mut writer = SnapshotWriter::begin(&files, header, random.bool()).unwrap();
        let sections = [Section::Sources, Section::Edges, Section::Posts, Section::Deleted, Section::Inboxes];
        let section = sections[random.usize(0..sections.len())];
        writer.record(section, &any_json(random, 4)).unwrap();
        writer.finish(Sequence(2), tidewire::clock::UnixMicros(0), false).unwrap();
        // Some of it happens to be a record.
        loaded += u64::from(recover(&files, false).unwrap().report.snapshot.is_some());
    }
    assert!(loaded < seeds / 20, "{loaded} loaded");
}

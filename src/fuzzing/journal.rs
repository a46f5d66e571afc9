//! Fuzz target for the journal: a damaged journal is refused or yields a prefix of its events, and events that no version has written do no
//! harm.

use std::sync::{Arc, OnceLock};

use crate::clock::SystemClock;
use crate::feed::event::Event;
use crate::fuzzing::input::{CHANGES_MAX, Input};
use crate::fuzzing::sample;
use crate::recovery;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::files::memory::MemoryFiles;
use crate::storage::frame::{pack, unpack};
use crate::storage::journal::reader::{self, JournalRead, Reading};
use crate::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use crate::storage::journal::{Durability, Journal};
use crate::storage::sequence::Sequence;

/// Bytes of a segment: all events in one segment, or a few events in each.
const SEGMENT_BYTES: [u64; 2] = [1 << 20, 400];

/// Damages a journal, or builds one with arbitrary payloads and valid checksums, and reads it.
///
/// # Panics
/// If damage changes or loses an event without an error, or if the events that were read differ after they are written and read again.
pub fn journal(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    if how % 2 == 0 { damaged(how, input) } else { hostile(input) }
}

/// Returns the intact journal to be damaged: in one segment or several, closed or not.
fn whole(how: u8) -> &'static MemoryFiles {
    static WHOLE: OnceLock<[MemoryFiles; 4]> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        [(0, false), (0, true), (1, false), (1, true)].map(|(segments, close)| written(SEGMENT_BYTES[segments], close))
    });
    &whole[usize::from(how / 2 % 4)]
}

fn written(segment_bytes: u64, close: bool) -> MemoryFiles {
    let files = MemoryFiles::default();
    let options = JournalOptions { durability: Durability::Always, segment_bytes };
    let mut journal = SegmentJournal::open(Arc::new(files.clone()), &Tail::default(), options, Arc::new(SystemClock))
        .expect("memory has space");
    for event in sample::events() {
        journal.append(&event).and_then(|_| journal.commit()).expect("memory has space");
    }
    if close {
        journal.close().expect("memory has space");
    }
    files
}

fn damaged(how: u8, mut input: Input<'_>) {
    let files = whole(how).copied();
    for _ in 0..CHANGES_MAX {
        let names = files.list().expect("memory can be read");
        if input.is_empty() || names.is_empty() {
            break;
        }
        let (what, name) = (input.byte(), &names[usize::from(input.byte()) % names.len()]);
        match what % 4 {
            0 => files.remove(name).expect("the file exists"),
            1 => files.tamper(name, |bytes| input.repeat(bytes)),
            _ => files.tamper(name, |bytes| input.damage(bytes)),
        }
    }
    let written = sample::events();
    if let Ok((found, _)) = read(&files, false) {
        let expected = (1..).map(Sequence).zip(&written);
        assert!(
            found.len() <= written.len() && found.iter().map(|(at, event)| (*at, event)).eq(expected.take(found.len()))
        );
    }
    if let Ok((found, read)) = read(&files, true) {
        for (at, event) in &found {
            assert_eq!(Some(event), written.get(at.0 as usize - 1), "event {at} differs after the repair");
        }
        assert!(
            found.is_sorted_by(|(one, _), (other, _)| one < other),
            "events are repeated or out of order after the repair"
        );
        for at in (1..=read.tail.last.0).map(Sequence) {
            let reported = read.lost.iter().any(|lost| lost.from <= at && lost.until.is_none_or(|until| at < until));
            assert!(reported || found.iter().any(|(there, _)| *there == at), "event {at} is lost and not reported");
        }
    }
}

/// Reads the events of a journal.
fn read(files: &MemoryFiles, repair: bool) -> Result<(Vec<(Sequence, Event)>, JournalRead), StorageError> {
    let mut events = Vec::new();
    let read = reader::read(files, Reading { after: Sequence(0), repair }, |found| {
        events.push((found.sequence, recovery::event(found.payload)?));
        Ok(())
    })?;
    Ok((events, read))
}

/// Tests arbitrary payloads: a start refuses them with their sequence number, or builds a state that does not change when the same events
/// are applied twice.
fn hostile(mut input: Input<'_>) {
    let mut payloads = Vec::new();
    while !input.is_empty() {
        payloads.push(input.piece());
    }
    for payload in &payloads {
        if let Ok(event) = recovery::event(payload) {
            let mut packed = Vec::new();
            pack(&event, &mut packed);
            assert_eq!(
                unpack::<Event>(&packed).as_ref(),
                Ok(&event),
                "an event changes when it is written and read again"
            );
        }
    }
    let once = sample::recover(&sample::journal_of(payloads.iter().copied()));
    let twice = sample::recover(&sample::journal_of(payloads.iter().flat_map(|payload| [*payload, *payload])));
    match (once, twice) {
        (Ok(once), Ok(twice)) => {
            assert_eq!(
                sample::image(&once.world),
                sample::image(&twice.world),
                "applying the events twice gives another state"
            );
        }
        (Err(StorageError::Damaged { sequence, .. }), Err(StorageError::Damaged { .. })) => {
            assert!((1..=payloads.len() as u64).contains(&sequence.0), "there is no event {sequence}");
        }
        (once, twice) => panic!("once {:?}, twice {:?}", once.err(), twice.err()),
    }
}

//! The contract of a shared log, as one test suite that runs for every implementation.
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::{DEADLINE, eventually};

use tidewire::storage::log::{LogError, LogRange, LogReader, LogRecord, LogWriter, RECORD_BYTES_MAX, SharedLog};
use tidewire::storage::sequence::Sequence;

/// Timeout of a read that finds nothing.
const SHORT: Duration = Duration::from_millis(50);

/// Generates a test for each guarantee of a shared log. `$on` runs a case on a new log; attributes apply to each test.
#[macro_export]
macro_rules! log_contract {
    ($(#[$attribute:meta])* $on:path) => {
        $crate::log_contract! { $(#[$attribute])* $on, without_large_records }
        $crate::log_contract! { @case [$(#[$attribute])*] $on, a_record_has_any_size_up_to_the_limit }
    };
    ($(#[$attribute:meta])* $on:path, without_large_records) => {
        $crate::log_contract! { @cases [$(#[$attribute])*] $on:
            records_are_read_in_the_order_of_their_appends,
            a_reader_begins_after_any_sequence,
            readers_do_not_disturb_each_other,
            records_of_two_writers_keep_the_order_of_each,
            a_waiting_read_returns_when_a_record_arrives,
            a_read_without_new_records_returns_no_records,
            a_record_above_the_size_limit_is_refused_and_leaves_no_gap,
            the_range_covers_all_records,
            a_reader_after_the_end_is_refused,
        }
    };
    (@cases $attributes:tt $on:path: $($case:ident,)*) => {
        $($crate::log_contract! { @case $attributes $on, $case })*
    };
    (@case [$($attributes:tt)*] $on:path, $case:ident) => {
        #[test]
        $($attributes)*
        fn $case() {
            $on(&$crate::contract::log::$case);
        }
    };
}

pub fn numbered(n: u64) -> Vec<u8> {
    format!("record {n}").into_bytes()
}

/// Appends a record, and retries while the writer is busy.
pub fn append(writer: &mut dyn LogWriter, record: &[u8]) {
    eventually("the writer has room", || match writer.append(record.to_vec()) {
        Err(LogError::Busy { .. }) => None,
        appended => Some(appended),
    })
    .unwrap();
}

/// Reads `count` records or more.
pub fn read(reader: &mut dyn LogReader, count: usize) -> Vec<LogRecord> {
    let mut records = Vec::new();
    eventually("the records arrive", || {
        if records.len() < count {
            records.extend(reader.read(SHORT).expect("the log can be read"));
        }
        if records.len() < count { Err(format!("{} of {count} are here", records.len())) } else { Ok(()) }
    });
    records
}

/// Appends records with the numbers, and waits until they are stored.
fn store(log: &dyn SharedLog, numbers: impl Iterator<Item = u64>) {
    let after = log.range().expect("the log has a range").last;
    let mut writer = log.writer().expect("the log has a writer");
    let mut count = 0;
    for n in numbers {
        append(&mut *writer, &numbered(n));
        count += 1;
    }
    read(&mut *log.reader(after).expect("the log has a reader"), count);
}

/// Checks that the records are those with the numbers after `after`, in order, without gaps.
fn assert_numbered_after(after: u64, records: &[LogRecord]) {
    for (n, record) in (after + 1..).zip(records) {
        assert_eq!((record.sequence, &record.bytes), (Sequence(n), &numbered(n)));
    }
}

pub fn records_are_read_in_the_order_of_their_appends(log: &dyn SharedLog) {
    let mut writer = log.writer().unwrap();
    let mut reader = log.reader(Sequence(0)).unwrap();
    for n in 1..=5_000 {
        append(&mut *writer, &numbered(n));
    }
    let records = read(&mut *reader, 5_000);
    assert_eq!(records.len(), 5_000);
    assert_numbered_after(0, &records);
    assert_eq!(reader.read(SHORT), Ok(vec![]));
}

pub fn a_reader_begins_after_any_sequence(log: &dyn SharedLog) {
    store(log, 1..=20);
    for after in (0..=20).step_by(4) {
        let mut reader = log.reader(Sequence(after)).unwrap();
        let left = 20 - after as usize;
        let records = read(&mut *reader, left);
        assert_eq!(records.len(), left);
        assert_numbered_after(after, &records);
        assert_eq!(reader.read(SHORT), Ok(vec![]));
    }
}

pub fn readers_do_not_disturb_each_other(log: &dyn SharedLog) {
    store(log, 1..=10);
    let mut early = log.reader(Sequence(0)).unwrap();
    let mut late = log.reader(Sequence(7)).unwrap();
    assert_numbered_after(7, &read(&mut *late, 3));
    store(log, 11..=20);
    let records = read(&mut *early, 20);
    assert_eq!(records.len(), 20);
    assert_numbered_after(0, &records);
    assert_numbered_after(10, &read(&mut *late, 10));
}

pub fn records_of_two_writers_keep_the_order_of_each(log: &dyn SharedLog) {
    // A dropped writer would lose records that are not stored yet.
    let mut writers = ["a", "b"].map(|name| (name, log.writer().unwrap()));
    thread::scope(|scope| {
        for (name, writer) in &mut writers {
            scope.spawn(move || (0..1_000).for_each(|n| append(&mut **writer, format!("{name}{n}").as_bytes())));
        }
    });
    let records = read(&mut *log.reader(Sequence(0)).unwrap(), 2_000);
    let sequences: Vec<_> = records.iter().map(|record| record.sequence.0).collect();
    assert_eq!(sequences, (1..=2_000).collect::<Vec<_>>());
    let mut texts: Vec<_> = records.into_iter().map(|record| String::from_utf8(record.bytes).unwrap()).collect();
    // A stable sort by writer keeps the order within each.
    texts.sort_by_key(|text| text.chars().next());
    let of_both = ["a", "b"].iter().flat_map(|name| (0..1_000).map(move |n| format!("{name}{n}")));
    assert_eq!(texts, of_both.collect::<Vec<_>>());
}

pub fn a_waiting_read_returns_when_a_record_arrives(log: &dyn SharedLog) {
    let mut writer = log.writer().unwrap();
    // A record may arrive before the reader waits for it, so this is repeated.
    for round in 0..50 {
        let mut reader = log.reader(Sequence(round)).unwrap();
        let ((begins, has_begun), (answers, answer)) = (mpsc::channel(), mpsc::channel());
        thread::spawn(move || {
            begins.send(()).unwrap();
            answers.send(reader.read(2 * DEADLINE))
        });
        has_begun.recv_timeout(DEADLINE).unwrap();
        append(&mut *writer, b"one");
        let records = answer.recv_timeout(DEADLINE).unwrap().unwrap();
        assert_eq!(records, [LogRecord { sequence: Sequence(round + 1), bytes: b"one".to_vec() }]);
    }
}

pub fn a_read_without_new_records_returns_no_records(log: &dyn SharedLog) {
    let mut reader = log.reader(Sequence(0)).unwrap();
    for wait in [Duration::ZERO, SHORT, Duration::ZERO] {
        assert_eq!(reader.read(wait), Ok(vec![]));
    }
    store(log, 1..=1);
    assert_numbered_after(0, &read(&mut *reader, 1));
    assert_eq!(reader.read(SHORT), Ok(vec![]));
}

pub fn a_record_has_any_size_up_to_the_limit(log: &dyn SharedLog) {
    let mut writer = log.writer().unwrap();
    let mut reader = log.reader(Sequence(0)).unwrap();
    let sizes = [0, 1, 300, 65_536, 1_000_000, 1_048_576, RECORD_BYTES_MAX, 0, 2];
    let record = |(nth, bytes): (usize, &usize)| vec![nth as u8; *bytes];
    for record in sizes.iter().enumerate().map(record) {
        append(&mut *writer, &record);
    }
    let records = read(&mut *reader, sizes.len());
    for ((n, record), expected) in (1..).zip(&records).zip(sizes.iter().enumerate().map(record)) {
        assert_eq!(record.sequence, Sequence(n));
        assert!(record.bytes == expected, "record {n} of {} bytes differs", expected.len());
    }
}

pub fn a_record_above_the_size_limit_is_refused_and_leaves_no_gap(log: &dyn SharedLog) {
    let mut writer = log.writer().unwrap();
    let refused = writer.append(vec![0; RECORD_BYTES_MAX + 1]);
    assert_eq!(refused, Err(LogError::TooLarge { bytes: RECORD_BYTES_MAX + 1, limit: RECORD_BYTES_MAX }));
    append(&mut *writer, &numbered(1));
    assert_numbered_after(0, &read(&mut *log.reader(Sequence(0)).unwrap(), 1));
}

pub fn the_range_covers_all_records(log: &dyn SharedLog) {
    assert_eq!(log.range(), Ok(LogRange { first: Sequence(1), last: Sequence(0) }));
    for stored in [1, 2, 50] {
        let last = log.range().unwrap().last.0;
        store(log, last + 1..=stored);
        assert_eq!(log.range(), Ok(LogRange { first: Sequence(1), last: Sequence(stored) }));
    }
}

pub fn a_reader_after_the_end_is_refused(log: &dyn SharedLog) {
    let shorter = |wanted, last| LogError::Shorter { wanted: Sequence(wanted), last: Sequence(last) };
    assert_eq!(log.reader(Sequence(1)).err(), Some(shorter(1, 0)));
    store(log, 1..=3);
    assert!(log.reader(Sequence(3)).is_ok());
    assert_eq!(log.reader(Sequence(4)).err(), Some(shorter(4, 3)));
}

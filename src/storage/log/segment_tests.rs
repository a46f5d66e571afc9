//! Compares readers of segment files with a naive model, while the journal is written, its old segments are retained, rewritten and
//! deleted, and files fail.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use testkit::OnDrop;

use crate::clock::{SystemClock, UnixMicros};
use crate::storage::files::Files;
use crate::storage::files::faulty::{FaultyFiles, Plan};
use crate::storage::files::memory::MemoryFiles;
use crate::storage::journal::reader::{self, Reading, segments};
use crate::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use crate::storage::journal::{Durability, Journal, JournalError};
use crate::storage::log::files::FilesLog;
use crate::storage::log::segments::SegmentLog;
use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, ReadLog, SharedLog};
use crate::storage::retained::{self, EventFile, EventFiles};
use crate::storage::segment::{self, Segment};
use crate::storage::sequence::Sequence;

fn numbered(n: u64) -> Vec<u8> {
    format!("record {n}").into_bytes()
}

/// A journal whose files may fail, its readers, and the records that they must deliver.
struct Case {
    memory: MemoryFiles,
    files: Arc<dyn Files>,
    options: JournalOptions,
    journal: SegmentJournal,
    committed: Vec<Vec<u8>>,
    readers: Vec<(Sequence, Box<dyn LogReader>)>,
    delivered: usize,
    refused: usize,
    retained: usize,
    deleted: usize,
}

impl Case {
    fn new(plan: Plan, random: &mut Rng) -> Self {
        let memory = MemoryFiles::default();
        let files: Arc<dyn Files> = Arc::new(FaultyFiles::new(memory.clone(), plan));
        let durability = random.choice([Durability::Always, Durability::Never]).unwrap();
        let options = JournalOptions { durability, segment_bytes: random.u64(200..5_000) };
        let journal =
            SegmentJournal::open(Arc::clone(&files), &Tail::default(), options, Arc::new(SystemClock)).unwrap();
        let (committed, readers) = (Vec::new(), Vec::new());
        let (delivered, refused, retained, deleted) = (0, 0, 0, 0);
        Self { memory, files, options, journal, committed, readers, delivered, refused, retained, deleted }
    }

    fn listed(&self) -> EventFiles {
        EventFiles::list(&*self.files).unwrap()
    }

    fn log(&self) -> SegmentLog {
        SegmentLog::new(Arc::clone(&self.files), self.journal.figures())
    }

    fn first(&self) -> Sequence {
        self.listed().readable()[0].first
    }

    /// Appends a group of records, and commits it.
    fn append(&mut self, random: &mut Rng) {
        let bytes = |random: &mut Rng| if random.u8(..) == 0 { random.usize(..3 << 20) } else { random.usize(..90) };
        let group: Vec<Vec<u8>> = (0..random.usize(1..9)).map(|_| vec![random.u8(..); bytes(random)]).collect();
        for record in &group {
            self.journal.append_record(|into| into.extend(record));
        }
        match self.journal.commit() {
            Ok(_) => self.committed.extend(group),
            Err(JournalError::DiskFull { .. }) => self.refused += 1,
            // The journal accepts no more events. A restart shows which of these are stored.
            Err(JournalError::Failed(_)) => self.restart(random),
            Err(cause) => panic!("{cause}"),
        }
    }

    /// Ends the process, with a power loss if all committed events are synced, and starts the next process on the same files.
    fn restart(&mut self, random: &mut Rng) {
        if self.options.durability == Durability::Always {
            self.memory.lose_power(random);
        }
        self.memory.limit(None);
        self.files = Arc::new(self.memory.clone());
        let mut found = Vec::new();
        let first = segments(&*self.files).unwrap()[0].1;
        let reading = Reading { after: Sequence(first.0 - 1), repair: false };
        let read = reader::read(&*self.files, reading, |event| {
            found.push(event.payload.to_vec());
            Ok(())
        });
        let tail = read.unwrap().tail;
        let known = self.committed.len() + 1 - first.0 as usize;
        assert_eq!(found[..known], self.committed[first.0 as usize - 1..], "what was committed is stored");
        self.committed.extend(found.drain(known..));
        self.journal =
            SegmentJournal::open(Arc::clone(&self.files), &tail, self.options, Arc::new(SystemClock)).unwrap();
        self.readers.clear();
    }

    fn delete_oldest(&mut self) {
        let listed = self.listed();
        let all = listed.readable();
        if all.len() > 1 {
            let removed = listed.obsolete.into_iter().chain([all[0].name()]);
            removed.for_each(|name| self.memory.remove(&name).unwrap());
            self.memory.sync_directory().unwrap();
        }
    }

    fn retain_oldest(&mut self) {
        if let [oldest, _, ..] = self.listed().journal[..] {
            let retained = EventFile { retained_since: Some(UnixMicros(1)), ..oldest };
            self.memory.rename(&oldest.name(), &retained.name()).unwrap();
            self.memory.sync_directory().unwrap();
            self.retained += 1;
        }
    }

    /// Rewrites a retained segment, so that the same events are at other offsets.
    fn rewrite_one(&mut self, random: &mut Rng) {
        let Some(old) = random.choice(self.listed().retained) else { return };
        let segment = Segment::read(&self.memory, &old.name(), old.first).unwrap();
        let bytes = retained::rewritten(&segment, |event, into| {
            into.extend(event.payload);
            Ok(())
        });
        let since = old.retained_since.map(|since| UnixMicros(since.0 + 1));
        self.memory.limit(None);
        retained::write(&self.memory, EventFile { retained_since: since, ..old }, &bytes.unwrap()).unwrap();
        if random.bool() {
            self.memory.remove(&old.name()).unwrap();
            self.memory.sync_directory().unwrap();
        }
    }

    fn open_reader(&mut self, random: &mut Rng) {
        let (first, last) = (self.first(), Sequence(self.committed.len() as u64));
        let (log, after) = (self.log(), Sequence(random.u64(..=last.0 + 1)));
        assert_eq!(log.range().unwrap(), LogRange { first, last });
        match log.reader(after) {
            Ok(reader) => {
                assert!(after.next() >= first && after <= last);
                self.readers.push((after, reader));
            }
            Err(cause) if after > last => assert_eq!(cause, LogError::Shorter { wanted: after, last }),
            Err(cause) => assert_eq!(cause, LogError::Deleted { wanted: after.next(), first }),
        }
    }

    /// Reads with one of the readers. It must return the next committed records, or report that they are deleted.
    fn read(&mut self, random: &mut Rng) {
        let Some(nth) = (!self.readers.is_empty()).then(|| random.usize(..self.readers.len())) else { return };
        let first = self.first();
        let (after, reader) = &mut self.readers[nth];
        match reader.read(Duration::ZERO) {
            Ok(records) => {
                let expected = (after.0 + 1..).map(Sequence).zip(&self.committed[after.0 as usize..]);
                for (record, (sequence, bytes)) in records.iter().zip(expected) {
                    assert_eq!((record.sequence, record.bytes.len()), (sequence, bytes.len()));
                    assert!(record.bytes == *bytes, "record {sequence} is another one");
                }
                assert!(!records.is_empty() || after.0 as usize == self.committed.len(), "nothing after {after}");
                after.0 += records.len() as u64;
                assert!(after.0 as usize <= self.committed.len(), "a record that is not committed");
                self.delivered += records.len();
            }
            Err(cause) => {
                assert_eq!(cause, LogError::Deleted { wanted: after.next(), first });
                assert!(after.next() < first);
                self.readers.swap_remove(nth);
                self.deleted += 1;
            }
        }
    }

    fn step(&mut self, random: &mut Rng) {
        match random.u8(..40) {
            0..=9 => self.append(random),
            10..=12 => self.journal.mark_synced(),
            // This fails like a commit, on a full disk and after a failure.
            13 => drop(self.journal.begin_segment()),
            14 if random.bool() => self.delete_oldest(),
            14 if random.bool() => self.rewrite_one(random),
            14 => self.retain_oldest(),
            15 => {
                let free = random.bool().then(|| self.memory.bytes() + random.u64(..200));
                self.memory.limit(free);
            }
            16 if random.bool() => self.restart(random),
            16..=19 => self.open_reader(random),
            _ => self.read(random),
        }
    }
}

#[test]
fn every_reader_sees_exactly_the_committed_records_in_order_despite_faults() {
    let (mut delivered, mut refused, mut retained, mut deleted) = (0, 0, 0, 0);
    for seed in 0..300 {
        let random = &mut Rng::with_seed(seed);
        let fail_sync = random.bool().then(|| random.u64(6..60));
        let mut case = Case::new(Plan { fail_sync, ..Plan::default() }, random);
        (0..300).for_each(|_| case.step(random));
        delivered += case.delivered;
        refused += case.refused;
        retained += case.retained;
        deleted += case.deleted;
    }
    assert!(
        delivered > 50_000 && refused > 500 && retained > 200 && deleted > 50,
        "{delivered} {refused} {retained} {deleted}"
    );
}

#[test]
fn waiting_readers_follow_a_writer_while_segments_are_deleted() {
    const LAST: u64 = 5_000;
    let files: Arc<dyn Files> = Arc::new(MemoryFiles::default());
    let log = FilesLog::create(Arc::clone(&files), 2_000);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut reader in [0; 3].map(|after| log.reader(Sequence(after)).unwrap()) {
            let log = &log;
            scope.spawn(move || {
                let mut next = 1;
                while next <= LAST {
                    match reader.read(Duration::from_secs(60)) {
                        Ok(records) => {
                            assert!(!records.is_empty(), "nothing was read after {}", next - 1);
                            for LogRecord { sequence, bytes } in records {
                                assert_eq!((sequence, bytes), (Sequence(next), numbered(next)));
                                next += 1;
                            }
                        }
                        Err(LogError::Deleted { wanted, first }) => {
                            assert!(wanted == Sequence(next) && first > wanted);
                            // On a busy machine the place may be deleted again before the reader reaches it.
                            reader = loop {
                                next = log.range().unwrap().last.0 + 1;
                                match log.reader(Sequence(next - 1)) {
                                    Ok(reader) => break reader,
                                    Err(LogError::Deleted { .. }) => {}
                                    Err(cause) => panic!("{cause}"),
                                }
                            };
                        }
                        Err(cause) => panic!("{cause}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                let segments = segments(&*files).unwrap();
                segments[..segments.len().saturating_sub(3)].iter().for_each(|(name, _)| files.remove(name).unwrap());
                thread::yield_now();
            }
        });
        let _ends = OnDrop(|| has_ended.store(true, Ordering::Relaxed));
        let mut writer = log.writer().unwrap();
        (1..=LAST).for_each(|n| writer.append(numbered(n)).unwrap());
    });
}

#[test]
fn damage_is_reported_with_file_offset_and_missing_record() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(Change, &str); 4] = [
        (|bytes| bytes[60] ^= 1, "24, where record 1 should be: the checksum of the frame's payload is wrong"),
        (|bytes| bytes.truncate(80), "61, where record 2 should be: the frame is cut short"),
        (|bytes| bytes[3] ^= 1, "0, where record 1 should be: the segment's header is wrong"),
        (|bytes| bytes.truncate(24), "24, where record 1 should be: the segment has no events"),
    ];
    for (change, expected) in changes {
        let files = MemoryFiles::default();
        let log = FilesLog::create(Arc::new(files.clone()), 1 << 20);
        let mut writer = log.writer().unwrap();
        (0..3).for_each(|n| writer.append(vec![n; 8]).unwrap());
        let mut reader = log.reader(Sequence(0)).unwrap();
        let name = segment::name(Sequence(1));
        files.tamper(&name, change);
        let mut read = || reader.read(Duration::ZERO);
        let found = match read() {
            Ok(records) => {
                assert_eq!(records.last().map(|record| record.sequence), Some(Sequence(1)));
                read().unwrap_err()
            }
            Err(cause) => cause,
        };
        assert_eq!(found.to_string(), format!("memory/{name} is damaged at byte {expected}"));
        assert_eq!(read(), Err(found), "the next read continues at the same record");
    }
}

#[test]
fn records_before_a_damaged_retained_segment_are_refused_after_its_detection() {
    let files = MemoryFiles::default();
    let log = FilesLog::create(Arc::new(files.clone()), 200);
    let mut writer = log.writer().unwrap();
    (1..=30).for_each(|n| writer.append(numbered(n)).unwrap());
    for segment in EventFiles::list(&files).unwrap().journal[..3].iter() {
        let retained = EventFile { retained_since: Some(UnixMicros(1)), ..*segment };
        files.rename(&segment.name(), &retained.name()).unwrap();
    }
    let damaged = EventFiles::list(&files).unwrap().retained[1];
    files.tamper(&damaged.name(), |bytes| bytes[60] ^= 1);
    let mut reader = log.reader(Sequence(0)).unwrap();
    let failed = loop {
        match reader.read(Duration::ZERO) {
            Ok(records) => assert!(records.iter().all(|record| record.sequence < damaged.first)),
            Err(cause) => break cause,
        }
    };
    assert!(matches!(failed, LogError::Damaged { sequence, .. } if sequence == damaged.first), "{failed}");
    let first = damaged.last.next();
    assert_eq!(log.range().unwrap().first, first);
    let refused = log.reader(Sequence(0)).err();
    assert_eq!(refused, Some(LogError::Deleted { wanted: Sequence(1), first }));
    assert_eq!(log.reader(damaged.last).unwrap().read(Duration::ZERO).unwrap()[0].sequence, first);
}

//! Tests of the waits of a stream: with an engine that is behind, an archive that fails, and a slow log.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::StorageConfig;
use tidewire::feed::event::NewEdge;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::rules::RulesPatch;
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::archive::{Archive, ArchiveError, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;

use super::*;

#[path = "../../../../../tests/it/observed_archive.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests of the engine use the rest")]
mod observed_archive;

use observed_archive::{ObservedArchive, Read};

/// The time for which a test waits for something that should be soon.
const LONG: Duration = Duration::from_secs(60);

fn id(text: &str) -> SourceId {
    SourceId::new(text).unwrap()
}

/// An engine with as few posts in memory as it can, and a switch that makes its archive fail.
fn engine() -> (Engine, Arc<AtomicBool>) {
    let is_broken = Arc::<AtomicBool>::default();
    let broken = Arc::clone(&is_broken);
    let archive = ObservedArchive::new(MemoryArchive::default(), move |read| {
        let fails = matches!(read, Read::Post) && broken.load(Ordering::Relaxed);
        if fails {
            Err(ArchiveError::Unavailable { place: "memory".to_owned(), why: "broken".to_owned() })
        } else {
            Ok(())
        }
    });
    let archive = Arc::new(archive) as Arc<dyn Archive>;
    let config = EngineConfig { outbox_posts: std::num::NonZeroUsize::MIN, ..EngineConfig::default() };
    let (files, storage, progress) =
        (Arc::new(MemoryFiles::default()), StorageConfig::default(), RecoveryProgress::default());
    let opened = Engine::open_on(config, files, Some(&archive), None, &storage, Arc::new(SystemClock), &progress);
    (opened.unwrap().0, is_broken)
}

/// Lets readers follow bob and wish to know what they miss.
async fn follow_bob(engine: &Engine, readers: &[&str]) {
    for reader in readers {
        engine.follow(vec![NewEdge::new(id(reader), id("bob"))]).await.unwrap();
        let rules = RulesPatch { notify: Some(true), ..RulesPatch::default() };
        engine.change_rules(id(reader), rules).await.unwrap();
    }
}

async fn publish(engine: &Engine, number: u64) {
    let draft = Draft { id: Some(PostId(number)), ..Draft::new(id("bob"), Body::new("1").unwrap()) };
    engine.publish(draft, true).await.unwrap();
}

fn reading(engine: &Engine, log: impl Log + 'static, types: &str, format: Format, patience: Patience) -> Reading {
    let readers = Readers { engine: engine.clone(), is_here: Box::new(|_| true) };
    let types = Types::parse(types).unwrap();
    Reading { patience, ..Reading::new(log, types, format, Some(1_000), readers) }
}

/// Who has missed which post, which posts were published, and `reached`, in the order in which the stream has them.
fn told(text: &str) -> Vec<String> {
    let messages = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = messages.map(|message| match message["type"].as_str().unwrap() {
        "missed" => format!("{} missed {}", message["reader"].as_str().unwrap(), message["post"]["id"]),
        "published" => format!("published {}", message["post"]["id"]),
        other => other.to_owned(),
    });
    told.map(|one| one.replace('"', "")).collect()
}

/// Reads until the stream ends, or has told so many things.
fn read_on(reading: &mut Reading, count: usize) -> (Vec<String>, Option<Ended>) {
    let (began, mut all) = (Instant::now(), Vec::new());
    loop {
        assert!(began.elapsed() < LONG, "{all:?}");
        let piece = reading.read();
        all.extend(told(&piece.text));
        if piece.end.is_some() || all.len() >= count {
            return (all, piece.end);
        }
    }
}

const PATIENT: Patience = Patience { unknown_max: LONG, silence_max: LONG };

#[tokio::test]
async fn a_stream_waits_until_a_post_is_applied_and_leaves_nobody_out() {
    for format in [Format::Lines, Format::EventStream] {
        // The second engine has not got what is in the journal of the first.
        let ((first, _), (behind, _)) = (engine(), engine());
        follow_bob(&behind, &["ann"]).await;
        publish(&first, 7).await;
        let types = "missed,published";
        let open = |patience| reading(&behind, first.changes(Sequence(0)).unwrap(), types, format, patience);
        let mut waiting = open(PATIENT);
        for _ in 0..3 {
            let piece = waiting.read();
            assert_eq!((told(&piece.text), piece.end, piece.pause), (Vec::new(), None, Some(RETRY)), "{format:?}");
            assert_eq!(piece.through, Sequence(0), "a client that comes back gets the post again");
        }
        let mut impatient = open(Patience { silence_max: Duration::ZERO, ..PATIENT });
        let ended = impatient.read().end;
        assert_eq!(ended, (format == Format::Lines).then_some(Ended::Failed), "lines end, without the last one");
        publish(&behind, 7).await;
        let (all, _) = read_on(&mut waiting, 2);
        assert_eq!(all[..2], ["ann missed 7", "published 7"], "{format:?}");
        first.shutdown();
        behind.shutdown();
    }
}

/// Publishes until memory does not have post 7 any more.
async fn archive(engine: &Engine) {
    let (world, began) = (&engine.shared().world, Instant::now());
    for number in 100.. {
        if world.posts.get(PostId(7)).is_none() {
            return;
        }
        assert!(began.elapsed() < LONG, "the archive takes what is too old");
        publish(engine, number).await;
    }
}

#[tokio::test]
async fn a_reader_is_left_out_only_if_the_archive_cannot_be_read_for_long() {
    let (engine, is_broken) = engine();
    follow_bob(&engine, &["ann", "cas"]).await;
    let before = engine.last_change().unwrap();
    publish(&engine, 7).await;
    archive(&engine).await;
    let open =
        |format, patience| reading(&engine, engine.changes(before).unwrap(), "missed,published", format, patience);
    let expected = ["ann missed 7", "cas missed 7", "published 7"];
    for format in [Format::Lines, Format::EventStream] {
        is_broken.store(true, Ordering::Relaxed);
        let mut waiting = open(format, PATIENT);
        for _ in 0..3 {
            let piece = waiting.read();
            assert_eq!((told(&piece.text), piece.end, piece.pause), (Vec::new(), None, Some(RETRY)), "{format:?}");
        }
        is_broken.store(false, Ordering::Relaxed);
        assert_eq!(read_on(&mut waiting, 3).0[..3], expected, "{format:?}");
        is_broken.store(true, Ordering::Relaxed);
        let mut hasty = open(format, Patience { unknown_max: Duration::ZERO, ..PATIENT });
        assert_eq!(read_on(&mut hasty, 1).0[0], "published 7", "the stream goes on without them: {format:?}");
    }
    engine.shutdown();
}

/// A log whose first reads find nothing in time.
struct SlowLog {
    log: Changes,
    empty_reads: usize,
    /// True if they find records at least, none of which is an event to return.
    finds_records: bool,
    read: u64,
    /// Returned in place of nothing.
    error: Option<ChangesError>,
}

impl Log for SlowLog {
    fn next(&mut self) -> Result<Vec<(Sequence, StoredEvent)>, ChangesError> {
        if self.empty_reads == 0 {
            return Log::next(&mut self.log);
        }
        self.empty_reads -= 1;
        thread::park_timeout(Duration::from_millis(30));
        self.read += u64::from(self.finds_records);
        self.error.clone().map_or_else(|| Ok(Vec::new()), Err)
    }

    fn sequence(&self) -> Sequence {
        self.log.sequence()
    }

    fn read_through(&self) -> Sequence {
        Sequence(self.read)
    }

    fn end(&self) -> Sequence {
        self.log.end()
    }
}

#[tokio::test]
async fn lines_go_on_as_long_as_records_are_read_and_end_without_the_last_one_if_none_is() {
    let (engine, _) = engine();
    publish(&engine, 7).await;
    let unavailable = ChangesError::Log(LogError::Unavailable("away".to_owned()));
    let whole = (vec!["published 7".to_owned(), "reached".to_owned()], Some(Ended::Complete));
    let broken = (Vec::new(), Some(Ended::Failed));
    for (format, finds_records, error, expected) in [
        (Format::Lines, true, None, &whole),
        (Format::Lines, false, None, &broken),
        (Format::Lines, true, Some(&unavailable), &broken),
        (Format::EventStream, true, None, &(vec!["published 7".to_owned()], None)),
        (Format::EventStream, false, None, &(vec!["published 7".to_owned()], None)),
        (Format::EventStream, false, Some(&unavailable), &(vec!["published 7".to_owned()], None)),
    ] {
        let log = engine.changes(Sequence(0)).unwrap();
        let log = SlowLog { log, empty_reads: 30, finds_records, read: 0, error: error.cloned() };
        let patience = Patience { silence_max: Duration::from_millis(600), ..PATIENT };
        let mut slow = reading(&engine, log, "published", format, patience);
        let count = if format == Format::Lines { 2 } else { 1 };
        assert_eq!(&read_on(&mut slow, count), expected, "{format:?}, records {finds_records}, {error:?}");
    }
    engine.shutdown();
}

//! Tests of the waits of a stream: with an engine that is behind, an archive that fails, and a slow log.
#![cfg(test)]

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidewire::clock::{Clock, ManualClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::NewEdge;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::rules::RulesPatch;
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::archive::{Archive, ArchiveError, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;

use super::*;

use testkit::observed_archive::{ObservedArchive, Read};
use testkit::{eventually, eventually_async};

/// Longer than the clock of any test advances.
const LONG: Duration = Duration::from_secs(60);

fn id(text: &str) -> SourceId {
    SourceId::new(text).unwrap()
}

/// The response of an archive to a read of a post.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Found,
    Late,
    Damaged,
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(UnixMicros(0)))
}

/// An engine with the minimum number of posts in memory, and a switch for its archive.
fn engine(clock: &Arc<ManualClock>) -> (Engine, Arc<Mutex<Answer>>) {
    let answer = Arc::new(Mutex::new(Answer::Found));
    let switch = Arc::clone(&answer);
    let archive = ObservedArchive::new(MemoryArchive::default(), move |read| {
        let place = "memory".to_owned();
        match *answer.lock() {
            Answer::Late if matches!(read, Read::Post) => {
                Err(ArchiveError::Unavailable { place, why: "broken".to_owned() })
            }
            Answer::Damaged if matches!(read, Read::Post) => {
                Err(ArchiveError::Damaged { place, what: "a page".to_owned() })
            }
            _ => Ok(()),
        }
    });
    let archive = Arc::new(archive) as Arc<dyn Archive>;
    let config = EngineConfig { outbox_posts: std::num::NonZeroUsize::MIN, ..EngineConfig::default() };
    let (files, storage, progress) =
        (Arc::new(MemoryFiles::default()), StorageConfig::default(), RecoveryProgress::default());
    let opened =
        Engine::open_on(config, files, Some(&archive), None, &storage, Arc::clone(clock) as Arc<dyn Clock>, &progress);
    (opened.unwrap().0, switch)
}

/// Lets readers follow bob and request missed posts.
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
    let archive_waits = ArchiveWaits::new(patience.archive_max);
    Reading { patience, archive_waits, ..Reading::new(log, types, format, Some(1_000), None, readers) }
}

/// Returns the missed posts with their readers, the published posts, and `reached`, in the order of the stream.
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

/// Reads until the stream ends, or has sent this many messages.
fn read_on(reading: &mut Reading, count: usize) -> (Vec<String>, Option<Ended>) {
    let mut all = Vec::new();
    eventually("the stream ends, or has told it", || {
        let piece = reading.read();
        all.extend(told(&piece.text));
        if piece.end.is_some() || all.len() >= count {
            Ok((std::mem::take(&mut all), piece.end))
        } else {
            Err(format!("{all:?}"))
        }
    })
}

const PATIENT: Patience = Patience { archive_max: LONG, silence_max: LONG };

#[tokio::test]
async fn a_stream_waits_until_a_post_is_applied_and_omits_no_reader() {
    for format in [Format::Lines, Format::EventStream] {
        // The second engine does not have the events in the journal of the first.
        let clock = clock();
        let ((first, _), (behind, _)) = (engine(&clock), engine(&clock));
        follow_bob(&behind, &["ann"]).await;
        // The publish must be later than the follow.
        clock.advance(Duration::from_secs(1));
        publish(&first, 7).await;
        let types = "missed,published";
        let open = |patience| reading(&behind, first.changes(Sequence(0)).unwrap(), types, format, patience);
        let mut waiting = open(PATIENT);
        for _ in 0..3 {
            let piece = waiting.read();
            assert_eq!((told(&piece.text), piece.end, piece.pause), (Vec::new(), None, Some(RETRY)), "{format:?}");
            assert_eq!(piece.place, Place::after(Sequence(0)), "a client that comes back gets the post again");
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

/// Publishes until these posts are not in memory any more.
async fn archive(engine: &Engine, posts: &[u64]) {
    let (world, mut number) = (&engine.shared().world, 100);
    eventually_async("the archive takes what is too old", async || {
        publish(engine, number).await;
        number += 1;
        posts.iter().all(|post| world.posts.get(PostId(*post)).is_none())
    })
    .await;
}

#[tokio::test]
async fn a_reader_is_omitted_only_after_the_archive_timeout() {
    let (engine, answer) = engine(&clock());
    follow_bob(&engine, &["ann", "cas"]).await;
    let before = engine.last_change().unwrap();
    publish(&engine, 7).await;
    archive(&engine, &[7]).await;
    let open =
        |format, patience| reading(&engine, engine.changes(before).unwrap(), "missed,published", format, patience);
    let expected = ["ann missed 7", "cas missed 7", "published 7"];
    for format in [Format::Lines, Format::EventStream] {
        *answer.lock() = Answer::Late;
        // Lines wait for the archive too, independent of the wait for a record.
        let mut waiting = open(format, Patience { silence_max: Duration::ZERO, ..PATIENT });
        for _ in 0..3 {
            let piece = waiting.read();
            assert_eq!((told(&piece.text), piece.end, piece.pause), (Vec::new(), None, Some(RETRY)), "{format:?}");
        }
        *answer.lock() = Answer::Found;
        assert_eq!(read_on(&mut waiting, 3).0[..3], expected, "{format:?}");
        *answer.lock() = Answer::Late;
        let mut hasty = open(format, Patience { archive_max: Duration::ZERO, ..PATIENT });
        assert_eq!(read_on(&mut hasty, 1).0[0], "published 7", "the stream goes on without them: {format:?}");
    }
    engine.shutdown();
}

#[tokio::test]
async fn the_wait_for_an_unavailable_archive_happens_once_and_not_per_reader_and_post() {
    let clock = clock();
    let (engine, answer) = engine(&clock);
    follow_bob(&engine, &["ann", "cas", "dan"]).await;
    let before = engine.last_change().unwrap();
    for number in [7, 8, 9] {
        publish(&engine, number).await;
    }
    archive(&engine, &[7, 8, 9]).await;
    *answer.lock() = Answer::Late;
    let patience = Patience { archive_max: 4 * RETRY, ..PATIENT };
    let log = engine.changes(before).unwrap();
    let mut stream = reading(&engine, log, "missed,published", Format::EventStream, patience);
    let mut all = Vec::new();
    for _ in 0..4 {
        let piece = stream.read();
        assert_eq!((told(&piece.text), piece.pause), (Vec::new(), Some(RETRY)), "nobody is left out yet");
        clock.advance(RETRY);
    }
    // After that, the stream does not wait for the archive.
    eventually("the posts are told", || {
        let piece = stream.read();
        assert_ne!(piece.pause, Some(RETRY), "{all:?}");
        all.extend(told(&piece.text));
        all.len() >= 3
    });
    assert_eq!(all[..3], ["published 7", "published 8", "published 9"]);
    // After the archive has answered, the stream waits for it again.
    let again = |stream| Reading {
        changes: Box::new(engine.changes(before).unwrap()),
        rest: Vec::new().into_iter(),
        missed: None,
        ..stream
    };
    *answer.lock() = Answer::Found;
    let mut stream = again(stream);
    assert_eq!(read_on(&mut stream, 1).0[0], "ann missed 7");
    *answer.lock() = Answer::Late;
    assert_eq!(again(stream).read().pause, Some(RETRY));
    engine.shutdown();
}

#[tokio::test]
async fn readers_with_a_damaged_archive_or_another_owner_are_omitted_at_once() {
    let (engine, answer) = engine(&clock());
    follow_bob(&engine, &["ann", "cas"]).await;
    let before = engine.last_change().unwrap();
    publish(&engine, 7).await;
    archive(&engine, &[7]).await;
    let open = |is_here: fn(&SourceId) -> bool| {
        let log = engine.changes(before).unwrap();
        let reading = reading(&engine, log, "missed,published", Format::EventStream, PATIENT);
        Reading { readers: Readers { engine: engine.clone(), is_here: Box::new(is_here) }, ..reading }
    };
    *answer.lock() = Answer::Damaged;
    assert_eq!(told(&open(|_| true).read().text)[0], "published 7");
    // The stream does not ask the archive for these readers.
    *answer.lock() = Answer::Late;
    assert_eq!(told(&open(|_| false).read().text)[0], "published 7");
    assert_eq!(open(|reader| reader.as_str() == "cas").read().pause, Some(RETRY));
    engine.shutdown();
}

#[tokio::test]
async fn the_place_within_a_post_is_the_last_examined_reader_even_if_none_was_named() {
    let (engine, _) = engine(&clock());
    follow_bob(&engine, &["dan", "ann", "cas", "bea"]).await;
    let before = engine.last_change().unwrap();
    publish(&engine, 7).await;
    let open = |after: Option<&str>, limit| {
        let readers = Readers { engine: engine.clone(), is_here: Box::new(|reader| reader.as_str() != "bea") };
        let log = engine.changes(before).unwrap();
        Reading::new(log, Types::parse("missed").unwrap(), Format::Lines, Some(limit), after.map(id), readers)
    };
    let place = |reader: Option<&str>| Place { after: before, reader: reader.map(id) };
    for (after, limit, expected, end) in [
        (None, 1, &["ann missed 7", "reached"][..], place(Some("ann"))),
        (None, 2, &["ann missed 7", "cas missed 7", "reached"], place(Some("cas"))),
        (Some("ann"), 1, &["cas missed 7", "reached"], place(Some("cas"))),
        (Some("b"), 1, &["cas missed 7", "reached"], place(Some("cas"))),
        (Some("cas"), 1, &["dan missed 7", "reached"], place(Some("dan"))),
        (Some("dan"), 1, &["reached", "reached"], Place::after(before.next())),
        (Some("zoe"), 1, &["reached", "reached"], Place::after(before.next())),
    ] {
        let mut stream = open(after, limit);
        assert_eq!(stream.begins_after(), &place(after));
        let piece = stream.read();
        assert_eq!((told(&piece.text), &piece.place), (expected.iter().map(|&one| one.to_owned()).collect(), &end));
        assert_eq!(piece.end, Some(Ended::Complete));
    }
    engine.shutdown();
}

#[tokio::test]
async fn a_reader_in_a_place_before_an_event_without_post_is_ignored() {
    let (engine, _) = engine(&clock());
    follow_bob(&engine, &["ann"]).await;
    publish(&engine, 7).await;
    let readers = Readers { engine: engine.clone(), is_here: Box::new(|_| true) };
    let (log, types) = (engine.changes(Sequence(0)).unwrap(), Types::parse("missed").unwrap());
    let mut stream = Reading::new(log, types, Format::EventStream, None, Some(id("zoe")), readers);
    assert_eq!(told(&stream.read().text)[0], "ann missed 7");
    engine.shutdown();
}

/// The duration of a read that finds no events.
const SLOW: Duration = Duration::from_millis(30);

/// A log whose first reads return no events in time.
struct SlowLog {
    clock: Arc<ManualClock>,
    log: Changes,
    empty_reads: usize,
    /// True if these reads advance over records that are not returned as events.
    finds_records: bool,
    read: u64,
    /// Returned instead of an empty result.
    error: Option<ChangesError>,
}

impl Log for SlowLog {
    fn next(&mut self) -> Result<Vec<(Sequence, StoredEvent)>, ChangesError> {
        if self.empty_reads == 0 {
            return Log::next(&mut self.log);
        }
        self.empty_reads -= 1;
        self.clock.advance(SLOW);
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
async fn lines_continue_while_records_are_read_and_end_incomplete_otherwise() {
    let clock = clock();
    let (engine, _) = engine(&clock);
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
        let error = error.cloned();
        let log = SlowLog { clock: Arc::clone(&clock), log, empty_reads: 30, finds_records, read: 0, error };
        let patience = Patience { silence_max: 20 * SLOW, ..PATIENT };
        let mut slow = reading(&engine, log, "published", format, patience);
        let count = if format == Format::Lines { 2 } else { 1 };
        assert_eq!(&read_on(&mut slow, count), expected, "{format:?}, records {finds_records}");
    }
    engine.shutdown();
}

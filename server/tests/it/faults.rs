//! Disks that fail, run full, are slow, and processes that die: what was acknowledged is there, what was refused is not.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::ResponseError;
use serde_json::json;
use testkit::{DEADLINE, eventually, eventually_async, stride};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::post::Body;
use tidewire::id::PostId;
use tidewire::limits::COMMAND_QUEUE_MAX;
use tidewire::storage::files::Files;
use tidewire::storage::files::UNFINISHED;
use tidewire::storage::files::faulty::{FaultyFiles, Plan};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, Journal};
use tidewire_server::http::problem::Problem;

use crate::held_files::HeldFiles;
use crate::server::Server;
use testkit::histories::{History, Store, clock, journal, model, open, open_with, recovered, state, storage};
use testkit::world::{NEWEST, above, config, draft, edge, id, whole_feed};

const SEGMENT_BYTES: u64 = 700;
const STEPS: usize = 40;

/// A fixed sequence of requests, some of them for snapshots, each answered before the next.
#[derive(Default)]
struct Script {
    posts: Vec<PostId>,
}

impl Script {
    /// One request; true if it was a write.
    async fn step(&mut self, engine: &Engine, nth: usize) -> Result<bool, Error> {
        let person = |nth: usize| format!("u{}", nth % 4);
        match nth % 10 {
            0 | 5 => {
                let edges = (0..4).map(|other| edge(&person(nth), &format!("u{}", other + 4 + nth))).collect();
                engine.follow(edges).await?;
            }
            2 => drop(engine.edit(self.posts[nth % self.posts.len()], Body::new("\"new\"").ok(), Some(true)).await?),
            4 => engine.unfollow(id(&person(nth - 4)), id(&format!("u{nth}"))).await?,
            7 => engine.delete(self.posts.swap_remove(0)).await?,
            9 => {
                engine.snapshot().await?;
                return Ok(false);
            }
            _ => {
                let body = format!("\"{}\"", "x".repeat(nth * 7 % 90));
                self.posts.push(engine.publish(draft(&person(nth), &body), true).await?.post.id());
            }
        }
        Ok(true)
    }
}

/// The states that the script goes through when nothing fails, one after each write.
async fn states() -> Vec<String> {
    let engine = open(MemoryFiles::default(), &storage(Durability::Always, SEGMENT_BYTES)).unwrap().0;
    let (mut script, mut states) = (Script::default(), vec![state(&engine.shared().world)]);
    for nth in 0..STEPS {
        if script.step(&engine, nth).await.unwrap() {
            states.push(state(&engine.shared().world));
        }
    }
    engine.shutdown();
    states
}

/// What a run of the script on a failing disk came to.
struct Outcome {
    /// Writes that were acknowledged.
    acknowledged: usize,
    errors: Vec<Error>,
}

async fn run(files: impl Files, durability: Durability) -> Outcome {
    let mut outcome = Outcome { acknowledged: 0, errors: Vec::new() };
    let Ok((engine, _)) = open(files, &storage(durability, SEGMENT_BYTES)) else { return outcome };
    let mut script = Script::default();
    for nth in 0..STEPS {
        match script.step(&engine, nth).await {
            Ok(write) => outcome.acknowledged += usize::from(write),
            Err(cause) => outcome.errors.push(cause),
        }
        if outcome.errors.last().is_some_and(|error| error.code() == "journal_failed") {
            only_reads(&engine, &script).await;
            break;
        }
    }
    engine.shutdown();
    outcome
}

async fn only_reads(engine: &Engine, script: &Script) {
    let refused = engine.publish(draft("u1", "1"), false).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_temporary()), ("journal_failed", false));
    assert_eq!(Problem::from(refused).status_code(), 503);
    for post in &script.posts {
        assert_eq!(engine.post(*post).await.unwrap().id(), *post);
    }
    for reader in ["u0", "u1", "u2", "u3"] {
        let feed = whole_feed(engine, reader, 10).await;
        let own = engine.own_page(&id(reader), NEWEST).await.unwrap().page.items.len();
        assert!(feed.len() >= own, "{reader} reads {} posts, {own} of them its own", feed.len());
    }
}

/// What is in the files is the state after all acknowledged writes, or also after the one that was answered by an error.
/// A start goes on from there.
fn check(left: &MemoryFiles, states: &[String], acknowledged: usize, what: &str) {
    let (text, _) = recovered(left).unwrap_or_else(|cause| panic!("{what}: {cause}"));
    let one_more = states.get(acknowledged + 1).is_some_and(|more| text == *more);
    assert!(text == states[acknowledged] || one_more, "{what}: {acknowledged} writes were acknowledged\n{text}");
    let options = journal(Durability::Always, SEGMENT_BYTES);
    let (mut store, _) = Store::open(Arc::new(left.clone()), options).unwrap_or_else(|cause| panic!("{what}: {cause}"));
    for event in History::new(1).events(3) {
        store.write(&[event]).unwrap();
    }
    store.journal.close().unwrap();
    assert_eq!(recovered(left).unwrap().0, state(&store.world), "{what}");
}

#[tokio::test]
async fn after_a_failed_sync_writes_fail_and_reads_continue() {
    let states = states().await;
    let mut unnoticed = 0;
    for nth in 1..=50 {
        let files = MemoryFiles::default();
        let plan = Plan { fail_sync: Some(nth), ..Plan::default() };
        let outcome = run(FaultyFiles::new(files.clone(), plan), Durability::Always).await;
        let opened = outcome.acknowledged > 0 || !outcome.errors.is_empty();
        unnoticed += u32::from(opened && outcome.errors.is_empty());
        let codes: Vec<&str> = outcome.errors.iter().map(Error::code).collect();
        let expected = ["journal_failed", "snapshot_failed"];
        assert!(codes.iter().all(|code| expected.contains(code)), "sync {nth}: {codes:?}");
        check(&files.copied(), &states, outcome.acknowledged, &format!("sync {nth} failed"));
        for seed in 0..3 {
            let left = files.forked();
            left.lose_power(&mut fastrand::Rng::with_seed(seed));
            check(&left, &states, outcome.acknowledged, &format!("sync {nth} failed, then power, seed {seed}"));
        }
    }
    // Only cleaning up after a snapshot, which the script comes to twice by then, may fail without a caller being told.
    assert!(unnoticed <= 2, "{unnoticed} failures were not noticed");
}

#[tokio::test]
async fn after_a_failed_background_sync_all_writes_fail() {
    let files = MemoryFiles::default();
    // The first sync that does not keep it from starting is one in the background.
    for nth in 1.. {
        let faulty = FaultyFiles::new(files.copied(), Plan { fail_sync: Some(nth), ..Plan::default() });
        let (storage, clock) = (storage(Durability::EverySecond, 1 << 20), clock());
        let opened = open_with(config(2, above(3)), faulty, &storage, clock.clone());
        let Ok((engine, _)) = opened else { continue };
        engine.publish(draft("ann", "1"), false).await.unwrap();
        let journal = engine.journal().unwrap();
        eventually_async("a sync in the background fails", async || {
            clock.advance(Duration::from_secs(1));
            journal.failure().is_some()
        })
        .await;
        let written = journal.written_bytes.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(engine.publish(draft("ann", "2"), false).await.unwrap_err().code(), "journal_failed");
        assert_eq!(journal.written_bytes.load(std::sync::atomic::Ordering::Relaxed), written);
        assert_eq!(engine.snapshot().await.unwrap_err().code(), "journal_failed");
        engine.shutdown();
        return;
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_a_crash_at_any_disk_write() {
    let states = states().await;
    for durability in [Durability::Always, Durability::Never] {
        let whole = FaultyFiles::new(MemoryFiles::default(), Plan::default());
        assert_eq!(run(whole.clone(), durability).await.acknowledged, states.len() - 1);
        assert!(whole.operations() > 100, "{}", whole.operations());
        for at in (1..=whole.operations()).step_by(stride(7)) {
            let files = MemoryFiles::default();
            let plan = Plan { die_at: Some(at), ..Plan::default() };
            let outcome = run(FaultyFiles::new(files.clone(), plan), durability).await;
            check(&files.copied(), &states, outcome.acknowledged, &format!("{durability:?}, died at {at}"));
            for seed in 0..if durability == Durability::Always { 3 } else { 0 } {
                let left = files.forked();
                left.lose_power(&mut fastrand::Rng::with_seed(seed));
                check(&left, &states, outcome.acknowledged, &format!("died at {at}, then power, seed {seed}"));
            }
        }
    }
}

/// Fills the disk up `room` bytes after the fifth step, frees it some steps later, and looks at what is kept.
async fn full_disk(room: u64, durability: Durability) {
    let (files, what) = (MemoryFiles::default(), format!("{room} bytes left, {durability:?}"));
    let engine = open(files.clone(), &storage(durability, SEGMENT_BYTES)).unwrap().0;
    let (mut script, mut refused) = (Script::default(), 0);
    for nth in 0..STEPS {
        match nth {
            5 => files.limit(Some(files.bytes() + room)),
            16 => files.limit(None),
            _ => {}
        }
        match script.step(&engine, nth).await {
            Ok(_) => {}
            Err(cause) if nth % 10 == 9 => {
                assert_eq!(cause.code(), "disk_full", "{what}");
                assert_eq!(Problem::from(cause).status_code(), 507);
                let left_over = files.list().unwrap().iter().any(|name| name.ends_with(UNFINISHED));
                assert!(!left_over, "{what}: a snapshot that failed takes no room");
            }
            Err(cause) => {
                refused += 1;
                assert_eq!((cause.code(), cause.is_temporary()), ("disk_full", true), "{what}: {cause}");
                assert_eq!(Problem::from(cause).status_code(), 507);
            }
        }
        assert!(nth < 16 || script.step(&engine, 1).await.is_ok(), "{what}: with space there again, writes go on");
        // The system stops now and then, and what was refused must not turn up.
        let kept = state(&engine.shared().world);
        assert_eq!(recovered(&files.copied()).unwrap().0, kept, "{what}, killed after step {nth}");
        for seed in 0..if durability == Durability::Always { 2 } else { 0 } {
            let left = files.forked();
            left.lose_power(&mut fastrand::Rng::with_seed(seed));
            assert_eq!(recovered(&left).unwrap().0, kept, "{what}, power lost after step {nth}, seed {seed}");
        }
    }
    assert!(refused > 0, "{what}");
    let kept = state(&engine.shared().world);
    engine.shutdown();
    assert_eq!(recovered(&files).unwrap().0, kept, "{what}");
}

/// What the writers of all engines of this process have logged.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_reports_when_a_full_disk_refuses_writes_and_when_they_resume() {
    let filter = "tidewire::runtime::processor=info";
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(|| Lines).init();
    full_disk(200, Durability::Always).await;
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let full = log.find("refusing writes until there is space").expect(&log);
    let line = log[full..].lines().find(|line| line.contains("there is space again; accepting writes"));
    assert!(line.is_some_and(|line| line.contains(" INFO ")), "{log}");
}

#[tokio::test]
async fn a_full_disk_answers_507_keeps_no_partial_record_and_writes_resume() {
    for room in (0..450).step_by(stride(45)) {
        full_disk(room, Durability::Always).await;
    }
    for room in (0..450).step_by(stride(150)) {
        full_disk(room, Durability::Never).await;
    }
}

/// Why a server says that it refuses writes, in all the places that say so.
fn refused_by(server: &Server) -> Option<String> {
    let ready = server.get("/readyz");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)), "reads go on: {ready:?}");
    let refused = ready.json()["refused"].as_str().map(str::to_owned);
    assert_eq!(ready.json()["writes"], json!(refused.is_none()));
    refused
}

#[test]
fn a_server_reports_refused_writes_until_a_probe_succeeds_even_without_writers() {
    let many = Durability::Never;
    for (reason, durability) in [("disk_full", Durability::Always), ("disk_full", many), ("out_of_files", many)] {
        let disk = MemoryFiles::default();
        // The identity and the first segment are created at the start. Then nothing, and not by the first probe either.
        let fail_creates = (reason == "out_of_files").then_some((3, 4, NO_ROOM_FOR_A_FILE[0]));
        let files = FaultyFiles::new(disk.clone(), Plan { fail_creates, ..Plan::default() });
        let (config, clock) = (EngineConfig::default(), clock());
        let engine = open_with(config, files, &storage(durability, SEGMENT_BYTES), clock.clone()).unwrap().0;
        let server = Server::of(engine.clone());
        let body = json!({"author": "ann", "body": "x".repeat(600)});
        assert_eq!(refused_by(&server), None);
        assert_eq!(server.post("/v1/posts", &body).status, 201);
        let shown = |refused: u8, reason: &str| {
            let line = format!("tidewire_writes_refused{{reason=\"{reason}\"}} {refused}");
            server.get("/metrics").text.lines().any(|shown| shown == line)
        };
        for code in ["disk_full", "out_of_files", "journal_failed", "sequencer_unavailable"] {
            assert!(shown(0, code), "{code} is counted from the start");
        }
        if reason == "disk_full" {
            disk.limit(Some(disk.bytes() + 9));
            let free = || server.get("/metrics").text.contains("tidewire_disk_free_bytes 9\n");
            eventually("the space that is left is shown", free);
            let stats = server.get("/v1/stats").json();
            assert_eq!(stats["disk_free_bytes"], 9);
            let kinds = ["journal", "snapshots", "archive", "other"];
            let stored = kinds.map(|kind| stats["stored_bytes"][kind].as_u64().unwrap());
            assert_eq!((stored[0] > 600, stored.iter().sum::<u64>()), (true, disk.bytes()), "{stored:?}");
        }
        assert_eq!(server.post("/v1/posts", &body).json()["code"], reason);
        if reason == "disk_full" {
            // While there is no space it stays so.
            assert_eq!(refused_by(&server).as_deref(), Some(reason));
            assert_eq!(server.get("/v1/stats").json()["writes_refused"], reason);
            assert!(shown(1, reason));
            let refused = server.get("/readyz?for=writes");
            assert_eq!((refused.status, &refused.json()["code"]), (503, &json!(reason)));
            assert_eq!(server.get("/v1/users/ann/feed").json()["items"].as_array().unwrap().len(), 1);
            disk.limit(None);
        }
        eventually("a probe finds out, without a write", || {
            clock.advance(Duration::from_secs(1));
            refused_by(&server).is_none()
        });
        assert_eq!(server.get("/readyz?for=writes").status, 200);
        assert!(shown(0, reason));
        assert_eq!(disk.list().unwrap().iter().filter(|name| name.contains("probe")).count(), 0);
        assert_eq!(server.post("/v1/posts", &body).status, 201);
        let kept = state(&engine.shared().world);
        drop(server);
        assert_eq!(recovered(&disk).unwrap().0, kept);
    }
}

/// What a system answers that has no room for another open file: EMFILE, ENFILE, ENOMEM.
const NO_ROOM_FOR_A_FILE: [i32; 3] = [24, 23, 12];

#[tokio::test]
async fn failed_file_creation_is_retried_and_refused_writes_are_not_stored() {
    for cause in NO_ROOM_FOR_A_FILE {
        // The identity and the first segment are created at the start.
        for from in 3..6 {
            let files = MemoryFiles::default();
            let plan = Plan { fail_creates: Some((from, from + 2, cause)), ..Plan::default() };
            let faulty = FaultyFiles::new(files.clone(), plan);
            let engine = open(faulty, &storage(Durability::Always, SEGMENT_BYTES)).unwrap().0;
            let (mut script, mut refused) = (Script::default(), 0);
            for nth in 0..STEPS {
                match script.step(&engine, nth).await {
                    Ok(_) => {}
                    Err(cause) if nth % 10 == 9 => assert_eq!(cause.code(), "snapshot_failed"),
                    Err(cause) => {
                        refused += 1;
                        assert_eq!((cause.code(), cause.is_temporary()), ("out_of_files", true), "{cause}");
                        assert_eq!(Problem::from(cause).status_code(), 503);
                    }
                }
                assert_eq!(engine.journal().unwrap().failure(), None);
                let kept = state(&engine.shared().world);
                assert_eq!(recovered(&files.copied()).unwrap().0, kept, "error {cause} from {from}, step {nth}");
            }
            assert!((1..=3).contains(&refused), "{refused}: one write for each file that could not be created");
            engine.shutdown();
        }
    }
}

#[tokio::test]
async fn a_slow_disk_sheds_writes_and_does_not_delay_reads() {
    let disk = HeldFiles::default();
    let engine = open(disk.clone(), &storage(Durability::Always, 1 << 20)).unwrap().0;
    engine.publish(draft("ann", "1"), true).await.unwrap();
    disk.hold(true);
    // Polled once each, all are handed over before any answer is looked at.
    let sent: Vec<_> = (0..2 * COMMAND_QUEUE_MAX).map(|_| Box::pin(engine.publish(draft("bob", "1"), false))).collect();
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for mut publish in sent {
        match std::future::poll_fn(|task| std::task::Poll::Ready(publish.as_mut().poll(task))).await {
            std::task::Poll::Pending => waiting.push(publish),
            std::task::Poll::Ready(answer) => {
                assert_eq!(answer.unwrap_err().code(), "overloaded");
                refused += 1;
            }
        }
        assert!(engine.queues().iter().all(|queue| queue.depth <= queue.limit), "{:?}", engine.queues());
    }
    assert!(refused > 0 && waiting.len() >= COMMAND_QUEUE_MAX, "{refused} refused, {} waiting", waiting.len());
    assert_eq!(engine.shared().counters.shed.get(), refused);
    let read = tokio::time::timeout(DEADLINE, whole_feed(&engine, "ann", 20)).await;
    assert_eq!(read.expect("a read does not wait for the disk").len(), 1);
    disk.hold(false);
    let taken = waiting.len();
    for publish in waiting {
        publish.await.unwrap();
    }
    assert_eq!(engine.source(&id("bob")).unwrap().posts, taken);
    engine.shutdown();
    assert_eq!(recovered(&disk.files).unwrap().1.0 as usize, taken + 1);
}

#[test]
fn a_disk_full_while_a_segment_starts_stores_no_refused_event() {
    for room in (0..80).step_by(stride(7)) {
        let (mut history, files) = (History::new(room), MemoryFiles::default());
        let options = journal(Durability::Always, 600);
        let mut store = Store::open(Arc::new(files.clone()), options).unwrap().0;
        let mut kept = history.events(1);
        store.write(&kept).unwrap();
        files.limit(Some(files.bytes() + room));
        for nth in 0..20 {
            // Some are large, which asks for the next segment; the small ones after them fit into this one.
            let group = history.events(if nth % 3 == 0 { 6 } else { 1 });
            if store.write(&group).is_ok() {
                kept.extend(group);
            }
            if nth % 4 == 3 {
                files.limit(Some(files.bytes() + 40 * nth));
            }
            for seed in 0..4 {
                let left = files.forked();
                left.lose_power(&mut fastrand::Rng::with_seed(seed));
                left.limit(None);
                let (mut store, _) = Store::open(Arc::new(left.clone()), options).unwrap();
                assert_eq!(state(&store.world), model(&kept), "room for {room}, step {nth}, seed {seed}");
                store.journal.close().unwrap();
                assert_eq!(recovered(&left).unwrap().0, model(&kept));
            }
        }
    }
}

//! Engines that end and start again: what readers see, which ids and instants they get, whom they share the directory with.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::{eventually, eventually_async};
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::position::Position;
use tidewire::feed::post::Body;
use tidewire::id::PostId;
use tidewire::limits::{CLOCK_EARLIEST, CLOCK_STEP_MAX};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::lock::DirectoryLock;

use testkit::histories::{START, clock, names, open, open_with, recover, recovered, state, storage};
use testkit::world::{NEWEST, config, draft, edge, entries, id, whole_feed};

const LARGE: u64 = 1 << 20;

#[tokio::test]
async fn awake_readers_have_complete_feeds_right_after_a_restart() {
    let files = MemoryFiles::default();
    let settings = storage(Durability::Always, LARGE);
    let mut engine = open_with(config(2, CelebrityPolicy::PushAll), files.clone(), &settings, clock()).unwrap().0;
    let readers: Vec<String> = (0..300).map(|nth| format!("r{nth}")).collect();
    engine.follow(readers.iter().map(|reader| edge(reader, "star")).collect()).await.unwrap();
    for reader in &readers {
        engine.feed(&id(reader), NEWEST).await.unwrap();
    }
    engine.snapshot().await.unwrap();
    for _ in 0..30 {
        engine.publish(draft("star", "1"), true).await.unwrap();
    }
    engine.shutdown();
    engine = open_with(config(2, CelebrityPolicy::PushAll), files, &settings, clock()).unwrap().0;
    assert!(engine.source(&id("r299")).unwrap().active, "inboxes are kept");
    assert_eq!(engine.inbox_totals().await.entries, 300 * 30);
    assert_eq!(whole_feed(&engine, "r299", 100).await.len(), 30);
    engine.shutdown();
}

/// One of several writers, who go on until they are told to stop: posts, edits, deletes, follows and unfollows.
async fn write_on(engine: Engine, writer: usize, stop: Arc<AtomicBool>) {
    let (name, mut posts) = (format!("u{writer}"), Vec::new());
    for nth in 0usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let other = format!("u{}", 7 + nth % 23);
        match nth % 11 {
            0 => drop(engine.follow(vec![edge(&name, &other), edge(&other, &name)]).await.unwrap()),
            3 => engine.unfollow(id(&name), id(&other)).await.unwrap(),
            5 => engine.delete(posts.swap_remove(nth % posts.len())).await.unwrap(),
            7 => {
                let body = Body::new(&format!("{nth}")).ok();
                engine.edit(posts[nth % posts.len()], body, Some(nth % 2 == 0)).await.unwrap();
            }
            _ => posts.push(engine.publish(draft(&name, "\"text\""), false).await.unwrap().post.id()),
        }
    }
}

async fn snapshots_under_load(segment_bytes: u64, compress: bool) {
    let files = MemoryFiles::default();
    let mut settings = storage(Durability::Always, segment_bytes);
    settings.snapshots.compress = compress;
    let engine =
        open_with(config(2, CelebrityPolicy::PushAll), files.clone(), &settings, Arc::new(SystemClock)).unwrap().0;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..5).map(|writer| tokio::spawn(write_on(engine.clone(), writer, Arc::clone(&stop)))).collect();
    let last = || engine.journal().unwrap().committed.last().0;
    let (mut snapshots, mut behind) = (0, 0);
    eventually_async("four snapshots are taken, and something is written meanwhile", async || {
        let until = last() + 50;
        eventually_async("the writers go on", async || last() > until).await;
        let taken = engine.snapshot().await.unwrap();
        snapshots += 1;
        behind += u64::from(last() > taken.sequence.0 + 1);
        snapshots >= 4 && behind > 0
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let (expected, left) = (state(&engine.shared().world), files.forked());
    engine.shutdown();
    left.lose_power(&mut fastrand::Rng::with_seed(7));
    let mut snapshots = names(&left, "snapshot-");
    assert_eq!(snapshots.len(), 2, "two are kept");
    let whole_journal = segment_bytes == LARGE << 10;
    while let Some(newest) = snapshots.pop() {
        let found = recover(&left, false).unwrap();
        assert_eq!(tidewire::storage::snapshot::name(found.report.snapshot.unwrap()), newest);
        assert_eq!(state(&found.world), expected, "from {newest}");
        left.remove(&newest).unwrap();
    }
    match recovered(&left) {
        Ok((text, _)) => assert!(whole_journal && text == expected, "without a snapshot"),
        Err(cause) => assert!(!whole_journal && matches!(cause, StorageError::Missing { .. }), "{cause}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_taken_under_full_load_leads_to_the_state_at_the_end_of_the_journal() {
    for round in 0..6 {
        // In every other round segments are dropped meanwhile.
        snapshots_under_load(if round % 2 == 0 { LARGE << 10 } else { 4_000 }, round % 3 == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ids_of_many_writers_are_unique_and_increase_across_restarts() {
    let (mut files, mut all) = (MemoryFiles::default(), BTreeSet::new());
    for life in 0..3 {
        let engine = open(files.clone(), &storage(Durability::Always, LARGE)).unwrap().0;
        let floor = all.last().copied().unwrap_or(PostId(0));
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut ids = Vec::new();
                    for _ in 0..150 {
                        let post = engine.publish(draft(&format!("u{writer}"), "1"), false).await.unwrap().post;
                        ids.push(post.id());
                    }
                    ids
                })
            })
            .collect();
        for writer in writers {
            let ids = writer.await.unwrap();
            assert!(ids.is_sorted_by(|a, b| a < b) && ids[0] > floor, "life {life}");
            all.extend(ids);
        }
        assert_eq!(all.len(), (life + 1) * 8 * 150, "no two are the same");
        // The clock stands still, and no end in order tells the next life where this one was.
        let left = files.forked();
        engine.shutdown();
        files = left;
    }
}

/// In seconds.
const HOUR: i64 = 3_600;
const YEAR: i64 = 366 * 24 * HOUR;

#[tokio::test]
async fn ids_and_follow_times_increase_and_nothing_expires_under_clock_jumps() {
    let (files, clock) = (MemoryFiles::default(), Arc::new(ManualClock::new(UnixMicros(START))));
    let month = Duration::from_secs(30 * 24 * 3_600);
    let config = EngineConfig { inbox_age: Some(month), ..config(2, CelebrityPolicy::PushAll) };
    let (mut last, mut last_edge) = (Position::MIN, UnixMicros(i64::MIN));
    let mut published = Vec::new();
    for (life, off) in
        [0, -HOUR, HOUR, -40 * YEAR, 70 * YEAR, 0, 100 * YEAR, 5_000 * YEAR, -100 * YEAR, 1].iter().enumerate()
    {
        clock.set(UnixMicros(START + off * 1_000_000));
        let dyn_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let settings = storage(Durability::Always, LARGE);
        let engine = open_with(config.clone(), files.clone(), &settings, dyn_clock).unwrap().0;
        let new = format!("new{life}");
        engine.follow(vec![edge(&new, "bob"), edge("ann", &new), edge("ann", "bob")]).await.unwrap();
        let edges = engine.following(&id("ann"), UnixMicros(i64::MAX), 1);
        assert!(life == 0 || edges[0].since > last_edge, "{off} s off");
        last_edge = edges[0].since;
        for step in [0, 1, -1, HOUR, -HOUR] {
            clock.set(UnixMicros(START + (off + step) * 1_000_000));
            let post = engine.publish(draft("bob", &published.len().to_string()), true).await.unwrap().post;
            let before = std::mem::replace(&mut last, post.position);
            let (now, at) = (clock.now(), post.position.published_at);
            let is_set_back = before.published_at > now.saturating_add(CLOCK_STEP_MAX);
            assert!(post.id() > before.id && (at > before.published_at || is_set_back), "{off} + {step} s off");
            let is_shown_wrong = at > now.saturating_add(CLOCK_STEP_MAX);
            assert!(!is_shown_wrong || now < CLOCK_EARLIEST, "{off} + {step} s off: dated {at}");
            published.push(post.position);
            published.sort_unstable();
            let entries = whole_feed(&engine, "ann", 9).await;
            let feed: Vec<PostId> = entries.into_iter().rev().map(|entry| entry.post).collect();
            let expected: Vec<PostId> = published.iter().map(|at| at.id).collect();
            assert_eq!(feed, expected, "{off} + {step} s off: by what people see, and none is gone");
        }
        if life % 2 == 0 {
            engine.snapshot().await.unwrap();
        }
        let (text, left) = (state(&engine.shared().world), files.forked());
        engine.shutdown();
        assert_eq!(recovered(&left).unwrap().0, text);
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_and_back_does_not_deactivate_readers() {
    let clock = Arc::new(ManualClock::new(UnixMicros(START)));
    let (files, settings) = (MemoryFiles::default(), storage(Durability::Always, LARGE));
    let dyn_clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let engine = open_with(config(1, CelebrityPolicy::PushAll), files, &settings, dyn_clock).unwrap().0;
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    for nth in 1..=3 {
        clock.set(UnixMicros(START + 10 * YEAR * 1_000_000 * (nth % 2)));
        engine.publish(draft("bob", "1"), true).await.unwrap();
        assert_eq!(entries(&engine.feed(&id("ann"), NEWEST).await.unwrap()).len(), nth as usize);
        assert!(engine.source(&id("ann")).unwrap().active);
    }
    engine.shutdown();
}

/// Starts on a directory, and says how that was refused.
#[tokio::test]
async fn frequent_restarts_do_not_prevent_snapshots() {
    let files = MemoryFiles::default();
    let mut settings = storage(Durability::Always, 1 << 20);
    for life in 0..3 {
        let engine = open(files.clone(), &settings).unwrap().0;
        for nth in 0..10 {
            engine.publish(draft("ann", &format!("{}", life * 10 + nth)), false).await.unwrap();
        }
        assert!(engine.snapshots().is_empty());
        engine.shutdown();
    }
    settings.snapshots.journal_bytes = 3_000;
    let engine = open(files.clone(), &settings).unwrap().0;
    eventually_async("a snapshot is taken, since something was written before the start", async || {
        !engine.snapshots().is_empty()
    })
    .await;
    engine.shutdown();
}

fn refusal(directory: &std::path::Path) -> String {
    let settings = StorageConfig { directory: directory.to_owned(), ..storage(Durability::Always, LARGE) };
    let opened = Engine::open(config(1, CelebrityPolicy::PushAll), &settings, clock(), &RecoveryProgress::default());
    let refusal = opened.map(|(engine, _)| engine.shutdown()).unwrap_err();
    refusal.to_string()
}

#[test]
fn operator_errors_are_reported_with_place_and_remedy() {
    let newer = |magic: &[u8], at: usize| {
        let mut header = [magic, &[9, 0, 0, 0]].concat();
        header.resize(at, 0);
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        header
    };
    let (journal, snapshot) = ("journal-00000000000000000001.log", "snapshot-00000000000000000003.tide");
    for (name, content, parts) in [
        (
            journal,
            b"#!/bin/sh\nthis is a script of mine\n".to_vec(),
            &["is not a Tidewire journal segment", "move it"][..],
        ),
        (journal, newer(b"TIDEJRNL", 20), &["has format 9", "reads up to 2", "use the version that wrote it"]),
        (snapshot, newer(b"TIDESNAP", 28), &["has format 9", "reads up to 4", "use the version that wrote it"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(name), content).unwrap();
        let refusal = refusal(directory.path());
        for part in parts.iter().copied().chain([name, &*directory.path().display().to_string()]) {
            assert!(refusal.contains(part), "{refusal:?} lacks {part:?}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refusal = refusal(&file);
    assert!(refusal.contains("cannot use the data directory") && refusal.contains("/file"), "{refusal}");
}

#[test]
fn foreign_files_are_kept_and_unfinished_snapshots_removed() {
    let directory = tempfile::tempdir().unwrap();
    let half = directory.path().join("snapshot-00000000000000000003.tide.unfinished");
    std::fs::write(&half, "left by a process that died over it").unwrap();
    let others = ["notes.txt", "journal-1.log", "snapshot-00000000000000000003.tide.bak", "draft.unfinished"];
    for name in others {
        std::fs::write(directory.path().join(name), "of others").unwrap();
    }
    let settings = StorageConfig { directory: directory.path().to_owned(), ..storage(Durability::Always, LARGE) };
    let opened = Engine::open(config(1, CelebrityPolicy::PushAll), &settings, clock(), &RecoveryProgress::default());
    opened.unwrap().0.shutdown();
    for name in others {
        assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), "of others");
    }
    assert!(!half.exists());
}

#[test]
fn a_second_process_on_the_directory_is_refused_with_the_pid_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let lock = DirectoryLock::take(directory.path()).unwrap();
    let place = directory.path().display().to_string();
    let process = format!("process {}", std::process::id());
    let in_process = refusal(directory.path());
    let mut server = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    server.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", &place]);
    let second = testkit::output(&mut server);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    for told in [in_process, said] {
        for part in [&*place, "is in use", &process, "--data-dir"] {
            assert!(told.contains(part), "{told:?} lacks {part:?}");
        }
    }
    drop(lock);
    drop(DirectoryLock::take(directory.path()).unwrap());
}

#[test]
fn a_killed_process_releases_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    server.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.path());
    let mut running = server.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("the server takes the lock", || {
        std::fs::read_to_string(directory.path().join("LOCK")).is_ok_and(|process| process.ends_with('\n'))
    });
    let process = running.id().to_string();
    assert!(refusal(directory.path()).contains(&process));
    running.kill().unwrap();
    running.wait().unwrap();
    drop(DirectoryLock::take(directory.path()).unwrap());
}

#[tokio::test]
async fn the_directory_is_released_when_any_shutdown_call_returns() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let engine = crate::export::open(directory.path());
        engine.publish(draft("ann", "1"), true).await.unwrap();
        let first = engine.clone();
        let first = std::thread::spawn(move || first.shutdown());
        let publishes = async || engine.publish(draft("ann", "2"), false).await.is_err();
        eventually_async("the engine ends", publishes).await;
        engine.shutdown();
        DirectoryLock::take(directory.path()).unwrap();
        first.join().unwrap();
    }
}

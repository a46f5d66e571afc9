//! The tail of accepted events: of one machine, and of the nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use testkit::{PageCount, eventually};
use tidewire::clock::SystemClock;
use tidewire::cluster::journal::bootstrap_log;
use tidewire::cluster::record::ClusterId;
use tidewire::config::EngineConfig;
use tidewire::engine::{Changes, ChangesError, Engine, StorageConfig};
use tidewire::feed::event::Event;
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tidewire::recovery::node::NoPeers;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;
use tidewire::storage::log::LogError;
use tidewire::storage::log::memory::MemoryLog;
use tidewire::storage::sequence::Sequence;

use crate::cluster::faulty_log::FaultyLog;
use crate::cluster::snapshots::{caught_up, new_log, start, write};
use crate::cluster::{cluster, in_step, join, post, sequencer};

const NO_WAIT: Duration = Duration::ZERO;

/// Reads all that the log has after a sequence, and returns the sequences and the posts of the published events.
fn published(engine: &Engine, after: Sequence) -> Vec<(Sequence, PostId)> {
    let mut changes = engine.changes(after).unwrap();
    let end = changes.end();
    published_through(end, &mut changes)
}

/// The same up to `end`, with a reader that was there before.
fn published_through(end: Sequence, changes: &mut Changes) -> Vec<(Sequence, PostId)> {
    let (mut found, mut reads) = (Vec::new(), PageCount::default());
    while changes.sequence() < end {
        reads.count();
        let of = |(sequence, event)| {
            if let Event::Published { position, .. } = event { Some((sequence, position.id)) } else { None }
        };
        // It is in the log, so that no read has to wait.
        found.extend(changes.next(NO_WAIT).unwrap().into_iter().filter_map(of));
    }
    found
}

#[tokio::test]
async fn a_single_server_delivers_the_events_after_any_sequence() {
    let (files, storage) = (Arc::new(MemoryFiles::default()), StorageConfig::default());
    let (config, progress) = (EngineConfig::default(), RecoveryProgress::default());
    let (engine, _) = Engine::open_on(config, files, None, None, &storage, Arc::new(SystemClock), &progress).unwrap();
    let mut early = engine.changes(Sequence(0)).unwrap();
    assert_eq!(early.next(NO_WAIT), Ok(vec![]));
    for number in 1..=20 {
        engine.publish(post("bob", number), false).await.unwrap();
    }
    let all = published_through(engine.last_change().unwrap(), &mut early);
    assert_eq!(all.iter().map(|(_, id)| id.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    for (nth, (sequence, _)) in all.iter().enumerate() {
        assert_eq!(published(&engine, *sequence), all[nth + 1..]);
    }
    let last = engine.journal().unwrap().committed.last();
    let shorter = ChangesError::Log(LogError::Shorter { wanted: last.next(), last });
    assert_eq!(engine.changes(last.next()).err(), Some(shorter));
}

#[tokio::test]
async fn changes_are_delivered_only_after_their_sync_and_never_lost() {
    let (files, clock) = (MemoryFiles::default(), Arc::new(SystemClock));
    let journal = JournalOptions { durability: Durability::EverySecond, ..JournalOptions::default() };
    let storage = StorageConfig { journal, ..StorageConfig::default() };
    let open = |files: MemoryFiles| {
        let (config, progress) = (EngineConfig::default(), RecoveryProgress::default());
        Engine::open_on(config, Arc::new(files), None, None, &storage, clock.clone(), &progress).unwrap().0
    };
    let engine = open(files.clone());
    let mut changes = engine.changes(Sequence(0)).unwrap();
    engine.publish(post("bob", 1), false).await.unwrap();
    let committed = engine.journal().unwrap().committed.last();
    let mut random = fastrand::Rng::with_seed(1);
    let delivered = eventually("the change is delivered", || {
        let found = changes.next(Duration::from_millis(50)).unwrap();
        (!found.is_empty()).then_some(found)
    });
    // What a power loss at this moment leaves has all that was delivered before.
    for _ in 0..10 {
        let left = files.forked();
        left.lose_power(&mut random);
        let after_power_loss = open(left);
        let end = after_power_loss.last_change().unwrap();
        assert!(delivered.iter().all(|(sequence, _)| *sequence <= end), "{delivered:?} were delivered, {end} is left");
        after_power_loss.shutdown();
    }
    assert_eq!(delivered.last().unwrap().0, committed);
}

#[tokio::test]
async fn an_engine_in_memory_has_no_changes() {
    let refused = Engine::start(EngineConfig::default()).changes(Sequence(0)).err();
    assert_eq!(refused, Some(ChangesError::NoJournal));
}

#[tokio::test]
async fn all_nodes_deliver_the_same_valid_changes() {
    let (_, nodes) = cluster();
    let first = sequencer(&nodes).await;
    for number in 1..=20 {
        first.engine.publish(post("bob", number), false).await.unwrap();
    }
    in_step(&nodes).await;
    let all = published(&first.engine, Sequence(0));
    assert_eq!(all.iter().map(|(_, id)| id.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    for node in &nodes {
        for nth in [0, 7, 19] {
            assert_eq!(published(&node.engine, all[nth].0), all[nth + 1..]);
        }
    }
}

#[tokio::test]
async fn a_returning_consumer_does_not_cause_another_read_from_a_snapshot() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let watched = FaultyLog::new(&log);
    let nodes = [join(&watched, "a").unwrap()];
    let node = sequencer(&nodes).await;
    let publish = async |from: u64| {
        let posts = (from..from + 3_000).map(|number| node.engine.publish(post("bob", number), false));
        join_all(posts).await.into_iter().for_each(|published| drop(published.unwrap()));
    };
    publish(1).await;
    let all = published(&node.engine, Sequence(0));
    assert_eq!((all.len(), watched.began()), (3_000, Sequence(1)), "the first one reads the log from its beginning");
    // A consumer that takes less than was read together, again and again.
    let (mut after, mut taken) = (Sequence(0), Vec::new());
    while taken.len() < all.len() {
        let mut changes = node.engine.changes(after).unwrap();
        let again = after.0.saturating_sub(watched.began().0);
        assert!(again <= 1_100, "{again} records are read again after {after}");
        let some: Vec<_> = changes.next(Duration::from_secs(60)).unwrap().into_iter().take(700).collect();
        after = some.last().unwrap().0;
        taken.extend(some);
    }
    let sequences: Vec<_> = taken.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(sequences, all.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>());
    // One that has taken all begins where it ended, or a beat before that.
    publish(3_001).await;
    assert_eq!(published(&node.engine, after).len(), 3_000);
    let end = node.engine.changes(after).unwrap().end();
    drop(node.engine.changes(end).unwrap());
    assert!(watched.began() > after, "{} is not after {after}", watched.began());
}

#[tokio::test]
async fn changes_are_read_from_node_snapshots_when_the_log_is_truncated() {
    let (log, files) = (new_log(5), MemoryFiles::default());
    let mut nodes = [start(&log, "a", Some(&files), &NoPeers).unwrap().0];
    let mut random = fastrand::Rng::with_seed(1);
    let published = |engine: &Engine, after| {
        let (mut changes, mut found, mut reads) = (engine.changes(after)?, Vec::new(), PageCount::default());
        while changes.sequence() < changes.end() {
            reads.count();
            found.extend(changes.next(Duration::from_millis(100))?.into_iter().map(|(sequence, _)| sequence));
        }
        Ok::<_, ChangesError>(found)
    };
    write(&nodes, &mut random, 1, 50).await;
    let all = published(&nodes[0].engine, Sequence(0)).unwrap();
    assert!(all.len() >= 30, "{all:?}");
    let older = nodes[0].engine.snapshot().await.unwrap().sequence;
    write(&nodes, &mut random, 51, 50).await;
    let newer = nodes[0].engine.snapshot().await.unwrap().sequence;
    write(&nodes, &mut random, 101, 50).await;
    let all = published(&nodes[0].engine, Sequence(0)).unwrap();
    for round in 0..2 {
        for (lost, from) in [(Sequence(1), Sequence(0)), (older.next(), older), (newer.next(), newer)] {
            if round == 0 {
                log.delete_before(lost);
            }
            let from = if round == 0 { from } else { newer };
            let engine = &nodes[0].engine;
            for after in [from, from.next(), newer.next(), *all.last().unwrap()] {
                let expected: Vec<_> = all.iter().copied().filter(|sequence| *sequence > after).collect();
                assert_eq!(published(engine, after), Ok(expected), "round {round}, log from {lost}, after {after}");
            }
            if let Some(gone) = from.0.checked_sub(1) {
                let deleted = LogError::Deleted { wanted: from, first: from.next() };
                assert_eq!(published(engine, Sequence(gone)), Err(ChangesError::Log(deleted)), "log from {lost}");
            }
        }
        // The node knows the same after a restart.
        nodes[0].engine.shutdown();
        nodes[0] = start(&log, "a", Some(&files), &NoPeers).unwrap().0;
        caught_up(&nodes[0], &log).await;
    }
    nodes[0].engine.shutdown();
}

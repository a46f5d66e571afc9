//! The tail of accepted events: of one machine, and of the nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Changes, ChangesError, Engine, StorageConfig};
use tidewire::feed::event::Event;
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Sequence;
use tidewire::storage::log::LogError;

use crate::cluster::{cluster, in_step, post, sequencer};

const NO_WAIT: Duration = Duration::ZERO;

/// Reads all that is there, and returns the sequences and the posts of the published events.
fn published(changes: &mut Changes) -> Vec<(Sequence, PostId)> {
    let mut found = Vec::new();
    loop {
        let events = changes.next(Duration::from_millis(200)).unwrap();
        if events.is_empty() {
            return found;
        }
        let of = |(sequence, event)| {
            if let Event::Published { position, .. } = event { Some((sequence, position.id)) } else { None }
        };
        found.extend(events.into_iter().filter_map(of));
    }
}

#[tokio::test]
async fn one_machine_delivers_the_events_after_any_sequence() {
    let (files, storage) = (Arc::new(MemoryFiles::default()), StorageConfig::default());
    let (config, progress) = (EngineConfig::default(), RecoveryProgress::default());
    let (engine, _) = Engine::open_on(config, files, None, None, &storage, Arc::new(SystemClock), &progress).unwrap();
    let mut early = engine.changes(Sequence(0)).unwrap();
    assert_eq!(early.next(NO_WAIT), Ok(vec![]));
    for number in 1..=20 {
        engine.publish(post("bob", number), false).await.unwrap();
    }
    let all = published(&mut early);
    assert_eq!(all.iter().map(|(_, id)| id.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    for (nth, (sequence, _)) in all.iter().enumerate() {
        assert_eq!(published(&mut engine.changes(*sequence).unwrap()), all[nth + 1..]);
    }
    let last = engine.journal().unwrap().committed.last();
    let shorter = ChangesError::Log(LogError::Shorter { wanted: last.next(), last });
    assert_eq!(engine.changes(last.next()).err(), Some(shorter));
}

#[tokio::test]
async fn an_engine_in_memory_has_no_changes() {
    let refused = Engine::start(EngineConfig::default()).changes(Sequence(0)).err();
    assert_eq!(refused, Some(ChangesError::NoJournal));
}

#[tokio::test]
async fn all_nodes_deliver_the_same_changes_and_only_what_counts() {
    let (_, nodes) = cluster();
    let first = sequencer(&nodes).await;
    for number in 1..=20 {
        first.engine.publish(post("bob", number), false).await.unwrap();
    }
    in_step(&nodes).await;
    let all = published(&mut first.engine.changes(Sequence(0)).unwrap());
    assert_eq!(all.iter().map(|(_, id)| id.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    for node in &nodes {
        for nth in [0, 7, 19] {
            assert_eq!(published(&mut node.engine.changes(all[nth].0).unwrap()), all[nth + 1..]);
        }
    }
}

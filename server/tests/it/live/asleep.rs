//! Clients of readers who fall asleep.

use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{Clock, ManualClock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::id::SourceId;
use tidewire::live::event::EventKind;
use tidewire::storage::journal::MemoryJournal;
use tokio::task::yield_now;
use tokio::time::timeout;

use testkit::DEADLINE;
use testkit::world::{above, config, id, next_event};

const WINDOW: Duration = Duration::from_millis(10);

/// How often readers are put to sleep meanwhile.
const SLEEPS: u64 = 400;

/// Comes and goes until readers have been put to sleep often enough. Whoever goes has been idle for long by then.
async fn come_and_go(engine: Engine, clock: Arc<ManualClock>, reader: SourceId, mut random: fastrand::Rng) {
    while engine.shared().counters.sleeps.get() < SLEEPS {
        let mut watcher = engine.watch(&reader, None).await.unwrap();
        let hello = next_event(&mut watcher).await.kind;
        assert!(matches!(hello, EventKind::Hello { .. }), "{reader}: {hello:?}");
        drop(watcher);
        clock.advance(WINDOW);
        for _ in 0..random.u8(..) {
            yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_connects_while_its_reader_falls_asleep_is_accepted() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let config = EngineConfig { active_window: WINDOW, live_history_ttl: Duration::ZERO, ..config(2, above(5)) };
    let engine = Engine::start_with(config, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    let coming = (0..40).map(|nth| {
        let (reader, random) = (id(&format!("r{nth}")), fastrand::Rng::with_seed(nth));
        tokio::spawn(timeout(DEADLINE, come_and_go(engine.clone(), Arc::clone(&clock), reader, random)))
    });
    for coming in coming.collect::<Vec<_>>() {
        coming.await.unwrap().expect("readers fall asleep");
    }
    engine.shutdown();
}

//! Backups of a cluster whose nodes have different clocks.

use testkit::eventually_async;
use tidewire::clock::{Clock, UnixMicros};
use tidewire::recovery::node::NoPeers;

use super::of_cluster::{founded, loaded, retried, start_with};
use super::*;
use testkit::world::{draft, id};

/// A clock that is an hour fast.
struct Fast;

impl Clock for Fast {
    fn now(&self) -> UnixMicros {
        SystemClock.now().saturating_add(Duration::from_secs(3_600))
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

#[test]
fn the_newest_backup_has_the_last_record_even_if_an_earlier_clock_was_fast() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let a = start_with(Arc::new(Fast), None, &log, "a", &place.path("a"), &NoPeers).unwrap();
        a.write(1).await;
        let mut of_a = a.backups(&place, Arc::new(log.clone()));
        back_up(&mut of_a).unwrap();
        a.write(50).await;
        back_up(&mut of_a).unwrap();
        a.engine.leave();
        let b = start_with(Arc::new(SystemClock), None, &log, "b", &place.path("b"), &NoPeers).unwrap();
        b.write(100).await;
        let mut of_b = b.backups(&place, Arc::new(log.clone()));
        // The end of an erasure is a reason to begin another backup.
        retried(|| b.engine.publish(draft("zoe", "{}"), false)).await;
        retried(|| b.engine.erase(id("zoe"))).await;
        eventually_async("the erasure ends", async || b.engine.erasures().count == 0).await;
        b.state().await;
        back_up(&mut of_b).unwrap();
        assert_eq!(place.objects("backups").len(), 3, "it continues that of the first node, and begins another");
        b.write(200).await;
        let (last, digest) = b.state().await;
        back_up(&mut of_b).unwrap();
        let ran = place.restore("newest", "");
        assert_eq!(ran.code, 0, "{}", ran.err);
        let restored = loaded(&place.path("newest"));
        assert!(restored.0 >= last && restored.1 == digest, "{restored:?} {last} {digest}");
        [a.engine, b.engine].iter().for_each(Engine::shutdown);
    });
}

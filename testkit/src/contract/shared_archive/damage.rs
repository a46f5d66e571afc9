//! An outbox that is damaged in the archive: nothing can be added to it until it is repaired.

use std::collections::BTreeSet;

use super::*;
use crate::eventually_async;

impl TestCluster {
    fn in_memory_of(&self, nth: u64) -> Vec<usize> {
        let of = |member: &Member| {
            let world = &member.node.engine.shared().world;
            world.sources.get(&id(&author(nth))).map_or(0, |source| source.outbox().in_memory())
        };
        self.members.iter().map(of).collect()
    }

    /// Checks that all posts of the damaged outbox since the damage are in memory, and few of others.
    async fn check_memory(&self, expected: usize) {
        self.in_step().await;
        let is_small = |nth: u64| self.in_memory_of(nth).into_iter().all(|count| count <= 8);
        eventually_async("posts of others leave memory", async || is_small(0) && is_small(2)).await;
        assert!(self.in_memory_of(1).into_iter().all(|count| count >= expected), "{:?}", self.in_memory_of(1));
        self.check().await;
    }
}

pub async fn a_damaged_outbox_keeps_posts_of_its_source_in_memory_and_delays_no_other(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(30).await;
    cluster.settle().await;
    let damaged = id(&author(1));
    *cluster.damaged.lock().unwrap() = Some(damaged.clone());
    cluster.publish_up_to(90).await;
    cluster.edit(40, "[40]").await;
    cluster.delete(41).await;
    cluster.delete(43).await;
    let last = cluster.log.range().unwrap().last;
    eventually_async("the archive goes on without the source", async || cluster.archive.through().unwrap() >= last)
        .await;
    assert_eq!(cluster.archive.held_back().unwrap(), BTreeSet::from([damaged.clone()]));
    // 31, 34 to 88, without the one that was deleted.
    cluster.check_memory(19).await;
    for nth in 0..3 {
        cluster.restart(nth);
        cluster.all_are_members().await;
        cluster.publish_up_to(93 + 3 * nth as u64).await;
        cluster.check_memory(20 + nth).await;
    }
    assert_eq!(cluster.archive.held_back().unwrap(), BTreeSet::from([damaged]));
    *cluster.damaged.lock().unwrap() = None;
    cluster.sequencer().await;
    let writer = cluster.sequencer_index().unwrap_or_default();
    cluster.restart(writer);
    eventually_async("the next writer has written what was held back", async || {
        cluster.archive.held_back().unwrap().is_empty()
    })
    .await;
    for nth in 0..3 {
        cluster.restart(nth);
        cluster.all_are_members().await;
    }
    cluster.publish_up_to(120).await;
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

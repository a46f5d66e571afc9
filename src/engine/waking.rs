//! The end of a start: restores the inboxes of readers that were awake, and delivers the posts that these may lack.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::engine::Engine;
use crate::feed::inbox::Inbox;
use crate::feed::schedule::FanoutRoute;
use crate::feed::stream::Invalidation;
use crate::id::SourceSlot;
use crate::limits::FANOUT_QUEUE_MAX;
use crate::recovery::UnfinishedFanout;
use crate::runtime::fanout::FanoutQueue;
use crate::runtime::message::{FanoutOrder, Restore};
use crate::state::records::{InboxRecord, unpack_positions};
use crate::state::sources::Source;

/// Number of inboxes that are restored in one batch after a start.
const INBOXES_PER_RESTORE: usize = 4 * 1024;

impl Engine {
    /// Wakes the readers that were active, each with the inbox it had.
    pub(super) fn restore_inboxes(&self, records: &[InboxRecord]) {
        let shared = self.shared();
        let sharding = shared.world.sharding;
        let restored = |record: &InboxRecord| -> (Arc<Source>, Inbox) {
            let reader = Arc::clone(shared.world.sources.at(SourceSlot(record.reader)));
            let positions = unpack_positions(&record.posts);
            (reader, Inbox::restored(shared.config.inbox_posts, record.floor, record.synced, positions))
        };
        for records in records.chunks(INBOXES_PER_RESTORE) {
            let mut by_shard: Vec<Vec<_>> = vec![Vec::new(); sharding.shards()];
            for (reader, inbox) in records.iter().map(restored) {
                by_shard[sharding.shard_of(reader.slot)].push((reader, inbox));
            }
            for (shard, readers) in self.inner.shards.iter().zip(by_shard) {
                let (reply, done) = std::sync::mpsc::channel();
                // Only one message per shard is sent at a time, so its mailbox has capacity.
                if shard.activator.try_send(Restore { readers, reply }).is_ok() {
                    let _ = done.recv();
                }
            }
        }
    }

    /// Delivers the posts that the restored inboxes may lack, and waits until this is done: a feed that contained a
    /// post before the restart must contain it afterwards. Delivering a post that is already in an inbox changes
    /// nothing.
    pub(super) fn resume_fanouts(&self, fanout: &FanoutQueue, under_way: Vec<UnfinishedFanout>) {
        for (position, sources) in under_way {
            while !fanout.has_capacity_for(FANOUT_QUEUE_MAX / 2) {
                thread::park_timeout(Duration::from_millis(1));
            }
            let author = sources.first().copied().unwrap_or(SourceSlot::NONE);
            let deliveries = self.shared().count_deliveries(sources.iter().copied());
            let fanout_routes = sources.iter().copied().map(FanoutRoute::Inboxes).collect();
            fanout.push(FanoutOrder {
                invalidation: Invalidation::Published(position),
                author,
                fanout_routes,
                deliveries,
                accepted_at: None,
                record: None,
                waiting: None,
            });
        }
        while !self.shared().open_fanouts.is_empty() {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

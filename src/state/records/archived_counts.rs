//! The record of an outbox's archived posts, for an archive that does not count its outboxes.
//!
//! The record is written after all posts, and posts are archived meanwhile. A post may therefore be in the snapshot and be counted here as
//! well; it is counted again when it is archived again. A post that is in neither would be lost, so a post is counted if it is not known
//! whether it was counted before. The counts of such an archive are upper bounds. Replies to a post are counted exactly, because they are
//! listed as well.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::feed::outbox::{ArchivedCounts, RouteCount};
use crate::feed::position::Position;
use crate::id::SourceSlot;
use crate::state::records::{InvalidRecordError, RecordTraversal, invalid, pack_positions, unpack_positions};
use crate::state::world::StateMachine;

/// The archived posts of one outbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedCountsRecord {
    /// The index of the source.
    pub source: u32,
    /// The newest post that was pushed and archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_newest: Option<Position>,
    /// The number of archived posts that were pushed.
    #[serde(default)]
    pub pushed: u64,
    /// The newest post that was left to be pulled and was archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled_newest: Option<Position>,
    /// The number of archived posts that were left to be pulled.
    #[serde(default)]
    pub pulled: u64,
    /// Archived replies to a post: time and id, 16 bytes each. If there are many, several records of the source have the same counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<ByteBuf>,
}

/// Maximum number of positions in one record.
const LISTED_PER_RECORD: usize = 16 * 1_024;

impl<'a> RecordTraversal<'a> {
    /// Returns the counts of all outboxes with archived posts; nothing if the archive counts them itself, or there is none.
    pub fn archived_counts(self) -> impl Iterator<Item = ArchivedCountsRecord> + use<'a> {
        let is_wanted = self.world.archive().is_some_and(|archive| archive.is_remote());
        self.readers().filter(move |_| is_wanted).flat_map(|source| {
            let outbox = source.outbox();
            let ArchivedCounts { pushed, pulled } = outbox.archived_counts();
            let record = ArchivedCountsRecord {
                source: source.slot.0,
                pushed_newest: pushed.newest,
                pushed: pushed.posts,
                pulled_newest: pulled.newest,
                pulled: pulled.posts,
                listed: None,
            };
            let listed = outbox.listed().map(|listed| listed.collect::<Vec<_>>());
            let pack = |some: &[Position]| Some(pack_positions(some.iter().copied()));
            match listed {
                _ if pushed.newest.is_none() && pulled.newest.is_none() => Vec::new(),
                None => vec![record],
                Some(none) if none.is_empty() => vec![ArchivedCountsRecord { listed: pack(&none), ..record }],
                Some(listed) => listed
                    .chunks(LISTED_PER_RECORD)
                    .map(|some| ArchivedCountsRecord { listed: pack(some), ..record.clone() })
                    .collect(),
            }
        })
    }
}

impl StateMachine {
    /// Restores the counts of one outbox, unless the archive counts for itself.
    ///
    /// # Errors
    /// Fails if the source is unknown.
    pub fn restore_archived_counts(&mut self, record: &ArchivedCountsRecord) -> Result<(), InvalidRecordError> {
        if record.source as usize >= self.world().sources.len() {
            return invalid(format!("the source {} of archived counts does not exist", record.source));
        }
        if self.world().archive().is_some_and(|archive| archive.is_remote()) {
            let counts = ArchivedCounts {
                pushed: RouteCount { newest: record.pushed_newest, posts: record.pushed },
                pulled: RouteCount { newest: record.pulled_newest, posts: record.pulled },
            };
            let source = self.world().sources.at(SourceSlot(record.source));
            source.change_outbox(|outbox| {
                outbox.set_archived_counts(counts);
                if let Some(listed) = &record.listed {
                    outbox.restore_listed(unpack_positions(listed));
                }
            });
            self.world().renew_pulled_epoch();
        }
        Ok(())
    }
}

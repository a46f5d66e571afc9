//! The records of the repost index.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::feed::position::Position;
use crate::feed::reposts::Repost;
use crate::id::{PostId, SourceSlot};
use crate::state::records::{InvalidRecordError, RecordTraversal, invalid, pack_positions, unpack_positions};
use crate::state::world::StateMachine;

/// Reposts of one post, as columns of consecutive little-endian numbers. A post with many reposts has several records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepostsRecord {
    /// The id of the original post.
    pub of: PostId,
    /// For each repost, the source in whose outbox it is: 4 bytes each.
    pub sources: ByteBuf,
    /// The authors of the reposts: 4 bytes each.
    pub authors: ByteBuf,
    /// The positions of the reposts: time and id, 16 bytes each.
    pub at: ByteBuf,
    /// The indexes, within the columns, of the hidden reposts: 4 bytes each.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub hidden: ByteBuf,
    /// The ids of reposts of this post that named a repost which was published after them: 8 bytes each. They are in records of their own, without
    /// the other columns.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub redirected: ByteBuf,
}

impl RepostsRecord {
    /// Returns the ids of the redirected reposts.
    pub fn redirected(&self) -> impl Iterator<Item = PostId> {
        self.redirected.as_chunks::<8>().0.iter().map(|id| PostId(u64::from_le_bytes(*id)))
    }
}

/// Maximum number of reposts in one record.
const REPOSTS_PER_RECORD: usize = 16 * 1024;

impl RecordTraversal<'_> {
    /// Passes the records of all reposts to `each`.
    ///
    /// # Errors
    /// Returns the error of `each`.
    pub fn reposts<E>(self, mut each: impl FnMut(RepostsRecord) -> Result<(), E>) -> Result<(), E> {
        for origin in self.world.reposts.origins() {
            let Some(reposts) = self.world.reposts.of(origin) else { continue };
            // Copied, so that the command processor does not wait for a disk.
            let reposts = reposts.read().clone();
            let is_known = |slot: SourceSlot| (slot.0 as usize) < self.sources;
            let mut known: Vec<Repost> =
                reposts.iter().filter(|repost| is_known(repost.source) && is_known(repost.author)).collect();
            // This is the order that is fastest to restore.
            known.sort_unstable();
            for some in known.chunks(REPOSTS_PER_RECORD) {
                each(record(origin, some, |at| reposts.is_hidden(at)))?;
            }
        }
        let mut redirected = self.world.reposts.all_redirected();
        redirected.sort_unstable_by_key(|(repost, origin)| (*origin, *repost));
        for of_one in redirected.chunk_by(|(_, origin), (_, next)| origin == next) {
            for some in of_one.chunks(REPOSTS_PER_RECORD) {
                let ids = some.iter().flat_map(|(repost, _)| repost.0.to_le_bytes()).collect::<Vec<u8>>().into();
                each(RepostsRecord { redirected: ids, ..record(some[0].1, &[], |_| false) })?;
            }
        }
        Ok(())
    }
}

fn record(of: PostId, reposts: &[Repost], is_hidden: impl Fn(Position) -> bool) -> RepostsRecord {
    let slots = |slot: fn(&Repost) -> SourceSlot| {
        reposts.iter().flat_map(|repost| slot(repost).0.to_le_bytes()).collect::<Vec<u8>>().into()
    };
    let hidden = (0u32..).zip(reposts).filter(|(_, repost)| is_hidden(repost.at));
    RepostsRecord {
        of,
        sources: slots(|repost| repost.source),
        authors: slots(|repost| repost.author),
        at: pack_positions(reposts.iter().map(|repost| repost.at)),
        hidden: hidden.flat_map(|(nth, _)| nth.to_le_bytes()).collect::<Vec<u8>>().into(),
        redirected: ByteBuf::new(),
    }
}

impl StateMachine {
    /// Restores reposts of one post.
    ///
    /// # Errors
    /// Fails if a source is not known, or the columns do not match each other.
    pub fn restore_reposts(&mut self, record: &RepostsRecord) -> Result<(), InvalidRecordError> {
        let (sources, authors) = (record.sources.as_chunks::<4>().0, record.authors.as_chunks::<4>().0);
        let at: Vec<Position> = unpack_positions(&record.at).collect();
        let fit = [(record.sources.len(), 4), (record.authors.len(), 4), (record.at.len(), 16)];
        if fit.iter().any(|(bytes, each)| *bytes != each * at.len()) {
            return invalid(format!("the columns of the reposts of {} have different lengths", record.of));
        }
        let known = self.world().sources.len();
        let repost = |nth: usize| Repost {
            source: SourceSlot(u32::from_le_bytes(sources[nth])),
            author: SourceSlot(u32::from_le_bytes(authors[nth])),
            at: at[nth],
        };
        let reposts: Vec<Repost> = (0..at.len()).map(repost).collect();
        if reposts.iter().any(|repost| repost.source.0.max(repost.author.0) as usize >= known) {
            return invalid(format!("a repost of {} belongs to a source that does not exist", record.of));
        }
        self.world().reposts.extend(record.of, &reposts);
        for place in record.hidden.as_chunks::<4>().0 {
            let Some(at) = at.get(u32::from_le_bytes(*place) as usize) else {
                return invalid(format!("a hidden repost of {} does not exist", record.of));
            };
            if let Some(reposts) = self.world().reposts.of(record.of) {
                reposts.write().hide(*at, true);
            }
        }
        record.redirected().for_each(|repost| self.world().reposts.note_redirected(repost, record.of));
        Ok(())
    }
}

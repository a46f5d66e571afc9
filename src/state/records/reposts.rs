//! The image of which posts repeat which.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::feed::position::Position;
use crate::feed::reposts::Repost;
use crate::id::{PostId, SourceSlot};
use crate::state::records::{InvalidRecordError, Walk, misfit, pack_positions, unpack_positions};
use crate::state::world::Writer;

/// Reposts of one post, as columns: numbers little-endian, one after the other. A post with many has several records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepostsRecord {
    /// The post they repeat.
    pub of: PostId,
    /// Which of their sources: 4 bytes each.
    pub sources: ByteBuf,
    /// Their authors: 4 bytes each.
    pub authors: ByteBuf,
    /// Where they stand: time and id, 16 bytes each.
    pub at: ByteBuf,
    /// Which of them, by place, are hidden: 4 bytes each.
    #[serde(default, skip_serializing_if = "super::is_empty")]
    pub hidden: ByteBuf,
}

/// Reposts in one record.
const REPOSTS_PER_RECORD: usize = 16 * 1024;

impl Walk<'_> {
    /// All reposts.
    ///
    /// # Errors
    /// What `each` fails with.
    pub fn reposts<E>(self, mut each: impl FnMut(RepostsRecord) -> Result<(), E>) -> Result<(), E> {
        for origin in self.world.reposts.origins() {
            let Some(reposts) = self.world.reposts.of(origin) else { continue };
            // Copied, so that the writer does not wait for a disk.
            let reposts = reposts.read().clone();
            let is_known = |slot: SourceSlot| (slot.0 as usize) < self.sources;
            let mut known: Vec<Repost> =
                reposts.iter().filter(|repost| is_known(repost.source) && is_known(repost.author)).collect();
            // In this order they are restored fastest.
            known.sort_unstable();
            for some in known.chunks(REPOSTS_PER_RECORD) {
                each(record(origin, some, |at| reposts.is_hidden(at)))?;
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
    }
}

impl Writer {
    /// Takes reposts in.
    ///
    /// # Errors
    /// When a source is not known, or the columns do not fit each other.
    pub fn restore_reposts(&mut self, record: &RepostsRecord) -> Result<(), InvalidRecordError> {
        let (sources, authors) = (record.sources.as_chunks::<4>().0, record.authors.as_chunks::<4>().0);
        let at: Vec<Position> = unpack_positions(&record.at).collect();
        let fit = [(record.sources.len(), 4), (record.authors.len(), 4), (record.at.len(), 16)];
        if fit.iter().any(|(bytes, each)| *bytes != each * at.len()) {
            return misfit(format!("the columns of the reposts of {} are of different length", record.of));
        }
        let known = self.world().sources.len();
        let repost = |nth: usize| Repost {
            source: SourceSlot(u32::from_le_bytes(sources[nth])),
            author: SourceSlot(u32::from_le_bytes(authors[nth])),
            at: at[nth],
        };
        let reposts: Vec<Repost> = (0..at.len()).map(repost).collect();
        if reposts.iter().any(|repost| repost.source.0.max(repost.author.0) as usize >= known) {
            return misfit(format!("a repost of {} is of a source that is not there", record.of));
        }
        self.world().reposts.extend(record.of, &reposts);
        for place in record.hidden.as_chunks::<4>().0 {
            let Some(at) = at.get(u32::from_le_bytes(*place) as usize) else {
                return misfit(format!("a hidden repost of {} is not there", record.of));
            };
            if let Some(reposts) = self.world().reposts.of(record.of) {
                reposts.write().hide(*at, true);
            }
        }
        Ok(())
    }
}

//! Reading an outbox from both tiers, memory and archive, as one.

use crate::feed::outbox::{OutboxQuery, ReadGap};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::id::{PostId, SourceSlot};
use crate::state::slow::PageTime;
use crate::state::sources::Source;
use crate::state::world::World;
use crate::storage::archive::{Archive, Wanted};

impl World {
    /// Returns true if the archive is on the network, so that concurrent reads are faster.
    pub fn has_remote_archive(&self) -> bool {
        self.archive().is_some_and(|archive| archive.is_remote())
    }

    /// Announces the posts among these that are about to be looked up in the archive, if it is on the network.
    pub fn prefetch_posts(&self, ids: impl Iterator<Item = PostId>) {
        let Some(archive) = self.archive().and_then(|archive| archive.remote()) else { return };
        let is_wanted = |id: &PostId| self.posts.stored(*id).is_none() && archive.may_have(*id);
        archive.prefetch(&mut ids.filter(is_wanted).map(Wanted::Post));
    }

    /// Announces outboxes in the same way.
    pub fn prefetch_outboxes(&self, asks: &mut dyn Iterator<Item = (SourceSlot, OutboxQuery)>) {
        let Some(archive) = self.archive().and_then(|archive| archive.remote()) else { return };
        let mut in_memory = Vec::new();
        let mut wanted = asks.filter_map(|(slot, ask)| {
            let source = self.sources.at(slot);
            in_memory.clear();
            source.pull(ask, &mut in_memory).err()?;
            Some(Wanted::Outbox(&source.id, OutboxQuery { span: archived_span(source, ask), ..ask }))
        });
        archive.prefetch(&mut wanted);
    }

    /// Appends to `into` the requested posts of an outbox, from memory and from the archive. Blocks on disk reads,
    /// unless the source is too slow for the `time` of a page.
    ///
    /// # Errors
    /// Fails if the archive could not be read, or not in time. The posts in memory that come before every archived one
    /// were appended.
    pub fn pull_whole(
        &self,
        source: SourceSlot,
        ask: OutboxQuery,
        time: Option<&PageTime<'_>>,
        into: &mut Vec<Position>,
    ) -> Result<(), ReadGap> {
        let source = self.sources.at(source);
        let start = into.len();
        // Memory is read first: a post that leaves it meanwhile is in the archive already.
        let more = source.pull(ask, into);
        let (Err(more), Some(archive)) = (more, self.archive()) else { return Ok(()) };
        let in_memory = into.len();
        if let Err(missing) = self.copy_archived(&**archive, source, ask, time, into) {
            into.truncate(in_memory);
            let comes_first = |position: &Position| match (ask.direction, more) {
                (Direction::Older, ReadGap::Archived(archived)) => *position > archived,
                _ => false,
            };
            let known = into[start..].partition_point(comes_first);
            into.truncate(start + known);
            return Err(missing);
        }
        let both = &mut into[start..];
        match ask.direction {
            Direction::Older => both.sort_unstable_by(|a, b| b.cmp(a)),
            Direction::Newer => both.sort_unstable(),
        }
        let mut kept = start;
        for at in start..into.len() {
            if kept == start || into[kept - 1] != into[at] {
                into[kept] = into[at];
                kept += 1;
            }
        }
        into.truncate(kept.min(start + ask.max));
        Ok(())
    }

    fn copy_archived(
        &self,
        archive: &dyn Archive,
        source: &Source,
        ask: OutboxQuery,
        time: Option<&PageTime<'_>>,
        into: &mut Vec<Position>,
    ) -> Result<(), ReadGap> {
        let archived = OutboxQuery { span: archived_span(source, ask), ..ask };
        let mut copy = || archive.positions(&source.id, archived, into);
        let copied = match time {
            Some(time) => time.read(&self.slow_sources, source.slot, copy).ok_or(ReadGap::Late)?,
            None => copy(),
        };
        copied.map_err(|cause| {
            self.read_failures.note(&cause);
            ReadGap::Unreadable
        })
    }
}

/// Returns the span in which memory may lack entries of an outbox. Above it, the archive of a cluster may have the same
/// entries as memory.
fn archived_span(source: &Source, ask: OutboxQuery) -> PositionRange {
    let below = source.outbox().archived(ask.part).map_or(Position::MIN, Position::next_up);
    PositionRange { below: below.min(ask.span.below), ..ask.span }
}

//! Admission to fan-out: refuses posts while fan-out is too far behind.
//!
//! A post may be checked twice, by the same function. The check of the command processor decides: the command processor alone knows the posts
//! that were accepted before this one and are not queued yet. The check before the command processor's queue only sheds load: in
//! an overload most posts are refused, and these cost the command processor no time.

use crate::error::Error;
use crate::id::SourceSlot;
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::shared::Shared;

/// The fraction (one in this many) of the maximum backlog that the posts of one author may use.
const FANOUT_BACKLOG_AUTHORS: usize = 4;

/// Maximum number of posts of one author that may wait for their delivery. Beyond it only this author is refused.
const FANOUTS_PER_AUTHOR_MAX: usize = 4 * 1024;

impl Shared {
    /// Checks that fan-out is not too far behind for one more post, in total and with the posts of its author.
    /// `accepted` are the posts that are accepted but not queued yet. The author is None while unknown; otherwise it
    /// comes with its part of these posts.
    ///
    /// # Errors
    /// Fails if a limit of the backlog is reached, and counts the refusal.
    pub(crate) fn check_fanout_backlog(
        &self,
        accepted: Backlog,
        author: Option<(SourceSlot, Backlog)>,
    ) -> Result<(), Error> {
        let limit = self.config.fanout_backlog_max();
        if self.open_fanouts.deliveries().saturating_add(accepted.deliveries) >= limit {
            return Err(self.overloaded("fanout_deliveries", limit));
        }
        let Some((author, accepted)) = author else { return Ok(()) };
        let of_author = self.open_fanouts.of(author) + accepted;
        if of_author.posts >= FANOUTS_PER_AUTHOR_MAX {
            return Err(self.overloaded("author_fanout", FANOUTS_PER_AUTHOR_MAX));
        }
        let deliveries_max = limit.div_ceil(FANOUT_BACKLOG_AUTHORS);
        let is_full = of_author.deliveries >= deliveries_max;
        if is_full { Err(self.overloaded("author_fanout_deliveries", deliveries_max)) } else { Ok(()) }
    }

    /// Returns the maximum number of deliveries that a post needs that is pushed to the followers of these sources.
    pub(crate) fn count_deliveries(&self, sources: impl Iterator<Item = SourceSlot>) -> usize {
        let followers = |source| self.world.sources.at(source).followers().len();
        let followers = sources.map(followers).fold(0, u64::saturating_add);
        usize::try_from(followers).unwrap_or(usize::MAX).min(self.directory.len())
    }
}

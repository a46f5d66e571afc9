//! The list of the reposts of one post, newest first.

use std::collections::BTreeMap;

use crate::feed::position::Position;
use crate::id::{PostId, SourceSlot};
use crate::limits::REPOSTS_EXAMINED_MAX;
use crate::state::viewer::Viewer;
use crate::state::world::World;

impl Viewer {
    /// Returns at most `max` reposts of a post below a position, newest first, each with its author. The mutes and blocks of the viewer apply,
    /// and the blocks of the authors, but not the rules of the home feed. Examines all reposts of the post.
    pub fn reposts_below(
        &self,
        world: &World,
        origin: PostId,
        below: Position,
        max: usize,
    ) -> Vec<(Position, SourceSlot)> {
        let Some(reposts) = world.reposts.of(origin) else { return Vec::new() };
        let silenced = self.silenced_reposts(&reposts.read());
        // A repost that is added meanwhile may be visited twice.
        let mut newest = BTreeMap::new();
        let mut above = None;
        loop {
            let some = reposts.read();
            above = some.some(above, REPOSTS_EXAMINED_MAX, |repost| {
                // A repost with tags has an entry for each of them, too.
                let is_wanted = repost.source == repost.author
                    && repost.at < below
                    && (newest.len() < max || newest.first_key_value().is_some_and(|(oldest, _)| *oldest < repost.at))
                    && !some.is_hidden(repost.at)
                    && silenced.binary_search(&repost.at).is_err()
                    && self.may_see(world, repost.author);
                if is_wanted {
                    newest.insert(repost.at, repost.author);
                    if newest.len() > max {
                        newest.pop_first();
                    }
                }
            });
            if above.is_none() {
                return newest.into_iter().rev().collect();
            }
        }
    }
}

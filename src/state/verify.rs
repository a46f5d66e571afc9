//! Verifying an inbox: one built anew beside it must hold the same.

use std::collections::BTreeSet;

use crate::feed::inbox::Inbox;
use crate::feed::page::{Look, View};
use crate::feed::position::Position;
use crate::id::PostId;
use crate::limits::VERDICT_POSTS_MAX;
use crate::state::reader::Reader;
use crate::state::view::{Finder, HomeView};
use crate::state::world::World;

/// How an inbox compares with one built anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Entries of the inbox.
    pub entries: usize,
    /// Entries of the one built anew.
    pub rebuilt: usize,
    /// The inbox is complete above this position.
    pub floor: Position,
    /// Posts it lacks, the newest first, at most [`VERDICT_POSTS_MAX`].
    pub missing: Vec<PostId>,
    /// Posts it should not show but does, likewise.
    pub extra: Vec<PostId>,
    /// Posts it lacks because they are just being delivered.
    pub under_way: usize,
    /// Entries that no page shows, of sources not followed any more or of deleted posts: they go by themselves.
    pub stale: usize,
}

impl Verdict {
    /// Whether the inbox is as it should be.
    pub fn is_good(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty()
    }
}

/// Compares the inbox of a reader, in step with its edges, with one built anew. `under_way` are the posts being delivered.
pub fn verify(reader: &mut Reader, inbox: &mut Inbox, world: &World, under_way: &[Position]) -> Verdict {
    reader.sync(inbox, world);
    let mut fresh = Inbox::new(inbox.posts_max());
    reader.rebuild(&mut fresh, world);
    let floor = inbox.floor().max(fresh.floor());
    let above_floor = |inbox: &Inbox| inbox.iter().filter(|position| *position > floor).collect::<BTreeSet<Position>>();
    let (live, rebuilt) = (above_floor(inbox), above_floor(&fresh));
    let under_way: BTreeSet<Position> = under_way.iter().copied().collect();
    let (late, missing): (Vec<Position>, Vec<Position>) =
        newest_first(&rebuilt, &live).partition(|position| under_way.contains(position));
    let following = reader.source().following();
    let mut view = HomeView { finder: Finder::Memory(world), reader: reader.source().slot, following: &following };
    // What shows must have come from somewhere, and nothing that is followed has it.
    let shows = |position: &Position| matches!(view.look(*position), Look::Shown(_)) && !under_way.contains(position);
    let (extra, stale): (Vec<Position>, Vec<Position>) = newest_first(&live, &rebuilt).partition(shows);
    let named = |positions: &[Position]| positions.iter().take(VERDICT_POSTS_MAX).map(|at| at.id).collect();
    Verdict {
        entries: inbox.len(),
        rebuilt: fresh.len(),
        floor: inbox.floor(),
        missing: named(&missing),
        extra: named(&extra),
        under_way: late.len(),
        stale: stale.len(),
    }
}

/// What is in the first set and not in the second.
fn newest_first(these: &BTreeSet<Position>, others: &BTreeSet<Position>) -> impl Iterator<Item = Position> {
    these.iter().rev().filter(|position| !others.contains(position)).copied()
}

//! What shows: the rules, applied to a candidate at the moment of reading.
//!
//! Nothing about visibility is stored with an inbox. A delete, a hidden post, an unfollow takes effect with the next
//! page, and undoing it brings back exactly what was there.

use std::cell::Cell;
use std::sync::Arc;

use crate::clock::{Clock, UnixMicros};
use crate::feed::graph::Following;
use crate::feed::merge::{Ask, Outboxes, Unavailable};
use crate::feed::page::{Look, View};
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::{SourceId, SourceSlot};
use crate::state::sources::Sources;
use crate::state::world::World;

/// A post as a reader sees it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The post.
    pub post: Arc<Post>,
    /// Which of the post's sources brought it, a bit each, in the order of [`Post::sources`].
    via: u32,
}

impl Entry {
    /// The followed sources that brought it. None for a reader's own post.
    pub fn via(&self) -> impl Iterator<Item = &SourceId> {
        let brought = move |nth: usize| self.via & (1 << nth) != 0;
        self.post.sources().iter().enumerate().filter(move |(nth, _)| brought(*nth)).map(|(_, source)| &source.id)
    }
}

/// What one reader's home feed shows.
#[derive(Debug)]
pub struct HomeView<'a> {
    /// The state to judge by.
    pub world: &'a World,
    /// Who reads.
    pub reader: SourceSlot,
    /// Whom the reader follows.
    pub following: &'a Following,
}

impl View for HomeView<'_> {
    type Entry = Entry;

    fn look(&mut self, position: Position) -> Look<Entry> {
        let Some(post) = self.world.posts.get(position.id) else { return Look::Gone };
        if post.hidden {
            return Look::Hidden;
        }
        let (mut via, mut reached) = (0, post.author().slot == self.reader);
        for (nth, source) in post.sources().iter().enumerate() {
            if let Some(edge) = self.following.get(source.slot) {
                reached = true;
                // A hidden edge brings posts, but is named nowhere.
                via |= u32::from(!edge.hidden) << nth;
            }
        }
        if reached { Look::Shown(Entry { post, via }) } else { Look::Hidden }
    }
}

/// What everyone sees on a source's own page.
#[derive(Debug)]
pub struct OwnPageView<'a> {
    /// The state to judge by.
    pub world: &'a World,
}

impl View for OwnPageView<'_> {
    type Entry = Entry;

    fn look(&mut self, position: Position) -> Look<Entry> {
        match self.world.posts.get(position.id) {
            None => Look::Gone,
            Some(post) if post.hidden => Look::Hidden,
            Some(post) => Look::Shown(Entry { post, via: 0 }),
        }
    }
}

/// The outboxes in memory, read until a deadline.
pub struct TimedOutboxes<'a> {
    sources: &'a Sources,
    clock: &'a dyn Clock,
    deadline: UnixMicros,
    pulls: Cell<u32>,
}

/// Outboxes read between two looks at the clock.
const PULLS_PER_LOOK: u32 = 16;

impl<'a> TimedOutboxes<'a> {
    /// Outboxes that can be read up to and including `deadline`.
    pub fn new(sources: &'a Sources, clock: &'a dyn Clock, deadline: UnixMicros) -> Self {
        Self { sources, clock, deadline, pulls: Cell::new(0) }
    }

    fn is_late(&self) -> bool {
        let pulls = self.pulls.get();
        self.pulls.set(pulls + 1);
        if pulls % PULLS_PER_LOOK != PULLS_PER_LOOK - 1 {
            return false;
        }
        let late = self.clock.now() > self.deadline;
        if late {
            // Stay late: the next pull looks again.
            self.pulls.set(pulls);
        }
        late
    }
}

impl Outboxes for TimedOutboxes<'_> {
    fn pull(&self, source: SourceSlot, ask: Ask, into: &mut Vec<Position>) -> Result<(), Unavailable> {
        if self.is_late() {
            return Err(Unavailable);
        }
        self.sources.at(source).outbox().copy(ask.part, ask.span, ask.direction, ask.max, into);
        Ok(())
    }
}

impl Outboxes for Sources {
    fn pull(&self, source: SourceSlot, ask: Ask, into: &mut Vec<Position>) -> Result<(), Unavailable> {
        self.at(source).outbox().copy(ask.part, ask.span, ask.direction, ask.max, into);
        Ok(())
    }
}

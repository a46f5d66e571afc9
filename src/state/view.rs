//! What shows: the rules, applied to a candidate at the moment of reading.
//!
//! Nothing about visibility is stored with an inbox. A delete, a hidden post, an unfollow takes effect with the next
//! page, and undoing it brings back exactly what was there.

use std::cell::Cell;
use std::sync::Arc;

use crate::clock::{Clock, UnixMicros};
use crate::feed::graph::Following;
use crate::feed::merge::Outboxes;
use crate::feed::outbox::{Ask, Missing};
use crate::feed::page::{Look, View};
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::state::posts::Stored;
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

/// Where a view finds posts.
#[derive(Clone, Copy)]
pub enum Finder<'a> {
    /// In memory. What may be in the archive makes the page ask for it.
    Memory(&'a World),
    /// In memory and in the archive: only on a thread that may wait for a disk.
    Archive(&'a World),
}

impl Finder<'_> {
    fn find(self, id: PostId) -> Result<Arc<Post>, Look<Entry>> {
        let world = match self {
            Self::Memory(world) | Self::Archive(world) => world,
        };
        match (world.posts.stored(id), self) {
            (Some(Stored::Live(post)), _) => Ok(post),
            (Some(Stored::Deleted), _) => Err(Look::Gone),
            (None, Self::Memory(_)) => Err(if world.has_archived() { Look::Archived } else { Look::Gone }),
            (None, Self::Archive(_)) => match world.archived(id) {
                Ok(Some(Stored::Live(post))) => Ok(post),
                Ok(_) => Err(Look::Gone),
                Err(cause) => {
                    world.read_failures.note(&cause);
                    Err(Look::Unreadable)
                }
            },
        }
    }
}

/// What one reader's home feed shows.
pub struct HomeView<'a> {
    /// Where posts are found.
    pub finder: Finder<'a>,
    /// Who reads.
    pub reader: SourceSlot,
    /// Whom the reader follows.
    pub following: &'a Following,
}

impl View for HomeView<'_> {
    type Entry = Entry;

    fn look(&mut self, position: Position) -> Look<Entry> {
        let post = match self.finder.find(position.id) {
            Ok(post) => post,
            Err(look) => return look,
        };
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
pub struct OwnPageView<'a> {
    /// Where posts are found.
    pub finder: Finder<'a>,
}

impl View for OwnPageView<'_> {
    type Entry = Entry;

    fn look(&mut self, position: Position) -> Look<Entry> {
        match self.finder.find(position.id) {
            Err(look) => look,
            Ok(post) if post.hidden => Look::Hidden,
            Ok(post) => Look::Shown(Entry { post, via: 0 }),
        }
    }
}

/// Outboxes, read until a deadline.
pub struct TimedOutboxes<'a> {
    finder: Finder<'a>,
    clock: &'a dyn Clock,
    deadline: UnixMicros,
    pulls: Cell<u32>,
}

/// Outboxes read between two looks at the clock.
const PULLS_PER_LOOK: u32 = 16;

impl<'a> TimedOutboxes<'a> {
    /// Outboxes that can be read up to and including `deadline`.
    pub fn new(finder: Finder<'a>, clock: &'a dyn Clock, deadline: UnixMicros) -> Self {
        Self { finder, clock, deadline, pulls: Cell::new(0) }
    }

    fn is_late(&self) -> bool {
        let pulls = self.pulls.get();
        self.pulls.set(pulls + 1);
        // A pull from the archive may take long by itself.
        let often = matches!(self.finder, Finder::Archive(_));
        if !often && pulls % PULLS_PER_LOOK != PULLS_PER_LOOK - 1 {
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
    fn pull(&self, source: SourceSlot, ask: Ask, into: &mut Vec<Position>) -> Result<(), Missing> {
        if self.is_late() {
            return Err(Missing::Late);
        }
        match self.finder {
            Finder::Memory(world) => world.sources.at(source).outbox().pull(ask, into),
            Finder::Archive(world) => world.pull_whole(source, ask, into),
        }
    }
}

impl Outboxes for Sources {
    fn pull(&self, source: SourceSlot, ask: Ask, into: &mut Vec<Position>) -> Result<(), Missing> {
        self.at(source).outbox().pull(ask, into)
    }
}

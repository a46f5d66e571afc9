//! The visibility filter of a feed: decides whether a candidate is shown, by the rules that apply at the moment of
//! reading.
//!
//! Inboxes store nothing about visibility. A delete, a hidden post or an unfollow takes effect with the next page, and
//! undoing it restores exactly the earlier feed.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::clock::UnixMicros;
use crate::feed::inbox::Inbox;
use crate::feed::merge::Outboxes;
use crate::feed::outbox::{OutboxQuery, ReadGap};
use crate::feed::page::{Visibility, VisibilityFilter};
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::stream::EntryFingerprint;
use crate::feed::work::Budget;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::state::posts::Stored;
use crate::state::slow::PageTime;
use crate::state::sources::Sources;
use crate::state::viewer::{ByRepost, Direct, Viewer};
use crate::state::world::World;

/// An entry of a feed: a post, and the reasons why it is there.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The post; for a repost, the original.
    pub post: Arc<Post>,
    /// The author of the post or repost at whose position the entry is.
    pub by: SourceSlot,
    /// The sources of the post that brought it, one bit each, in the order of [`Post::sources`].
    via: u32,
    merged: Option<Box<Merged>>,
}

/// The reposts of an entry, and the sources that they add.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
struct Merged {
    reposts: Vec<Reposted>,
    via: Vec<SourceId>,
}

/// One of the reposts that an entry merges.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reposted {
    /// The author of the repost.
    pub user: SourceId,
    /// The position of the repost.
    pub at: Position,
}

impl Entry {
    /// Returns the followed sources that brought the entry, each once. Empty for a reader's own post.
    pub fn via(&self) -> impl Iterator<Item = &SourceId> {
        let brought = move |nth: usize| self.via & (1 << nth) != 0;
        let direct = self.post.sources().iter().enumerate().filter(move |(nth, _)| brought(*nth));
        let merged = self.merged.iter().flat_map(|merged| &merged.via);
        direct.map(|(_, source)| &source.id).chain(merged)
    }

    /// Returns one repost of each user who reposted the post, the newest one of that user, newest first.
    pub fn reposts(&self) -> &[Reposted] {
        self.merged.as_deref().map_or(&[], |merged| &merged.reposts)
    }

    /// Returns true if both entries show the same version of the same post for the same reasons, so that they look the
    /// same to different readers.
    pub fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.post, &other.post) && self.via == other.via && self.merged == other.merged
    }

    /// Returns the fingerprint of the entry at a position, which a live stream compares.
    pub fn entry_fingerprint(&self, at: Position) -> EntryFingerprint {
        let mut reasons = FxHasher::default();
        self.via.hash(&mut reasons);
        self.merged.hash(&mut reasons);
        let version = self.post.edited_at.map_or(0, |edited_at| edited_at.0 as u64);
        EntryFingerprint { at, post: self.post.id(), reasons: reasons.finish(), version }
    }
}

/// The result of looking up an id: the post, if there is one.
pub type PostLookup = (PostId, Option<Arc<Post>>);

/// The place where a visibility filter looks up posts.
#[derive(Clone, Copy)]
pub enum Finder<'a> {
    /// In memory. If a post may be in the archive, the page requires the archive.
    Memory(&'a World),
    /// In memory, and among posts that were already looked up in the archive.
    Fetched(&'a World, &'a [PostLookup]),
    /// In memory and in the archive. Only on a thread that may block on disk reads.
    Archive(&'a World),
}

impl<'a> Finder<'a> {
    /// Returns the world that is searched.
    pub fn world(self) -> &'a World {
        match self {
            Self::Memory(world) | Self::Fetched(world, _) | Self::Archive(world) => world,
        }
    }

    /// Returns the post with this id, or the reason why it cannot be shown.
    pub(super) fn find<E>(self, id: PostId) -> Result<Arc<Post>, Visibility<E>> {
        self.find_as(id, false)
    }

    /// Returns the same as `find`. If `is_placed` is true, an outbox or inbox names the post: then it existed, and has
    /// a tombstone if it was deleted.
    fn find_as<E>(self, id: PostId, is_placed: bool) -> Result<Arc<Post>, Visibility<E>> {
        let found = self.find_any(id, is_placed)?;
        // The single place that hides all posts of an erased user at once, until they are deleted one by one.
        if self.world().sources.is_erased(found.author().slot) { Err(Visibility::Gone) } else { Ok(found) }
    }

    fn find_any<E>(self, id: PostId, is_placed: bool) -> Result<Arc<Post>, Visibility<E>> {
        let world = self.world();
        match (world.posts.stored(id), self) {
            (Some(Stored::Live(post)), _) => Ok(post),
            (Some(Stored::Deleted), _) => Err(Visibility::Gone),
            (None, Self::Memory(_)) => Err(if world.has_archived() { Visibility::Archived } else { Visibility::Gone }),
            (None, Self::Fetched(_, found)) => match found.iter().find(|(looked_up, _)| *looked_up == id) {
                Some((_, post)) => post.clone().ok_or(Visibility::Gone),
                None => Err(Visibility::Archived),
            },
            (None, Self::Archive(_)) => match world.archived(id) {
                Ok(Some(Stored::Live(post))) => Ok(post),
                Ok(None) if is_placed && world.note_missing(id) => Err(Visibility::Unreadable),
                Ok(_) => Err(Visibility::Gone),
                Err(cause) => {
                    world.read_failures.note(&cause);
                    Err(if cause.is_temporary() { Visibility::Late } else { Visibility::Unreadable })
                }
            },
        }
    }
}

/// The visibility filter of one feed. A post and its reposts have one entry, at the newest position that counts.
pub struct FeedFilter<'a> {
    /// The place where posts are looked up.
    pub finder: Finder<'a>,
    /// The reader, with the edges and preferences that apply.
    pub viewer: &'a Viewer,
    /// The reader's inbox, if the feed has one.
    pub inbox: Option<&'a Inbox>,
    /// Counts the work done.
    pub budget: &'a Budget<'a>,
    /// The time limit for reading slow sources, if there is one.
    pub time: Option<&'a PageTime<'a>>,
    /// True if entries are shown only where the newest post or repost is by someone other than the reader.
    pub of_others: bool,
    /// True if the page ends at the floor of the inbox, which is a copy of the newest part of another one.
    pub ends_at_floor: bool,
    /// For each reposted post that the page has reached: the position of its entry, or `None` if it has none. The
    /// position is determined once, even if no repost counts. Otherwise a post with thousands of reposts would be
    /// evaluated thousands of times, and a change meanwhile could show it twice.
    entry_positions: FxHashMap<PostId, Option<Position>>,
}

impl<'a> FeedFilter<'a> {
    /// Creates the visibility filter of one page.
    pub fn new(finder: Finder<'a>, viewer: &'a Viewer, inbox: Option<&'a Inbox>, budget: &'a Budget<'a>) -> Self {
        let (of_others, ends_at_floor, entry_positions) = (false, false, FxHashMap::default());
        Self { finder, viewer, inbox, budget, time: None, of_others, ends_at_floor, entry_positions }
    }

    /// Returns the entry of a post and its position.
    ///
    /// # Errors
    /// Returns the reason why there is no entry.
    pub fn entry_of(&mut self, origin: PostId) -> Result<(Position, Entry), Visibility<Entry>> {
        let origin = self.find(origin, false)?;
        let (direct, reposts) = self.reasons(&origin);
        let at = self.entry_position(&origin, direct, &reposts).ok_or(Visibility::Hidden)?;
        Ok((at, self.entry(at)?))
    }

    /// Returns the reasons that bring a post to this feed and are not blocked.
    fn reasons(&self, origin: &Post) -> (Direct, Vec<ByRepost>) {
        let is_let_in = self.viewer.rule(self.finder.world(), origin).is_none();
        let direct = if is_let_in { self.viewer.direct(origin) } else { Direct::default() };
        if !self.viewer.rules.reposts {
            return (direct, Vec::new());
        }
        let mut reposts = self.viewer.reposts(self.finder.world(), origin, self.budget);
        reposts.retain(|by| by.blocker.is_none());
        (direct, reposts)
    }

    fn find(&self, id: PostId, is_placed: bool) -> Result<Arc<Post>, Visibility<Entry>> {
        if matches!(self.finder, Finder::Archive(world) if world.has_archived() && world.posts.stored(id).is_none()) {
            self.budget.disk_read();
        }
        self.finder.find_as(id, is_placed)
    }

    fn entry(&mut self, position: Position) -> Result<Entry, Visibility<Entry>> {
        let post = self.find(position.id, true)?;
        let (is_repost, by) = (post.repost_of.is_some(), post.author().slot);
        let origin_id = post.repost_of.unwrap_or(post.id());
        if post.hidden {
            return Err(Visibility::Hidden);
        }
        match self.entry_positions.get(&origin_id) {
            Some(None) => return Err(Visibility::Hidden),
            Some(known) if *known != Some(position) => return Err(Visibility::Elsewhere),
            _ => {}
        }
        let origin = match post.repost_of {
            None => post,
            Some(id) => self.find(id, false).map_err(|look| if look.is_gone() { Visibility::Hidden } else { look })?,
        };
        if origin.hidden || self.viewer.silencer(self.finder.world(), &origin).is_some() {
            if is_repost {
                self.entry_positions.insert(origin_id, None);
            }
            return Err(Visibility::Hidden);
        }
        let (direct, mut reposts) = self.reasons(&origin);
        if !reposts.is_empty() {
            let entry_position = self.entry_position(&origin, direct, &reposts);
            self.entry_positions.insert(origin_id, entry_position);
            if entry_position != Some(position) {
                return Err(entry_position.map_or(Visibility::Hidden, |_| Visibility::Elsewhere));
            }
        } else if is_repost {
            self.entry_positions.insert(origin_id, direct.is_reached().then_some(origin.position));
            return Err(Visibility::Hidden);
        } else if !direct.is_reached() {
            return Err(Visibility::Hidden);
        }
        if self.of_others && by == self.viewer.reader {
            return Err(Visibility::Hidden);
        }
        // The page has not reached newer reposts yet, so they are ignored.
        reposts.retain(|by| by.repost.at <= position);
        let via = if self.viewer.names_sources { direct.named } else { 0 };
        self.budget.lookups(reposts.len());
        let merged = (!reposts.is_empty()).then(|| Box::new(self.merge(&origin, via, reposts)));
        Ok(Entry { by, post: origin, via, merged })
    }

    /// Returns the position of an entry: the newest position of anything that brings it. A repost that is still being
    /// delivered to the inbox does not count until it is there.
    fn entry_position(&self, origin: &Post, direct: Direct, reposts: &[ByRepost]) -> Option<Position> {
        let sources = || origin.sources().iter().enumerate().filter(|(nth, _)| direct.by & (1 << nth) != 0);
        let is_visited = || direct.own || sources().any(|(_, source)| self.is_visited(origin.position, source.slot));
        let own_place = (direct.is_reached() && is_visited()).then_some(origin.position);
        let mut newest = own_place;
        for by in reposts {
            if Some(by.repost.at) > newest && self.is_visited(by.repost.at, by.repost.source) {
                newest = Some(by.repost.at);
            }
        }
        newest
    }

    /// Returns true if a page visits a position to which a source brings a post.
    fn is_visited(&self, at: Position, source: SourceSlot) -> bool {
        let Some(inbox) = self.inbox else { return true };
        self.budget.lookups(1);
        let is_pulled = || !self.finder.world().sources.at(source).outbox().was_pushed(at);
        let is_pushed_here = || source != self.viewer.reader && !self.viewer.feed.is_only_kept(source);
        at <= inbox.floor() || inbox.contains(at) || !is_pushed_here() || is_pulled()
    }

    fn merge(&self, origin: &Post, via: u32, mut reposts: Vec<ByRepost>) -> Merged {
        reposts.sort_unstable_by_key(|by| Reverse(by.repost));
        reposts.sort_by_key(|by| Reverse(by.repost.at));
        let sources = &self.finder.world().sources;
        let mut merged = Merged::default();
        let mut named: Vec<SourceSlot> = (origin.sources().iter().enumerate())
            .filter(|(nth, _)| via & (1 << nth) != 0)
            .map(|(_, source)| source.slot)
            .collect();
        let mut reposters = FxHashSet::default();
        for ByRepost { repost, .. } in reposts.into_iter().filter(|by| by.named) {
            if reposters.insert(repost.author) {
                let user = sources.at(repost.author).id.clone();
                merged.reposts.push(Reposted { user, at: repost.at });
            }
            // In a home feed, no source brings the reader's own repost.
            let is_own = self.viewer.has_own && repost.source == self.viewer.reader;
            if self.viewer.names_sources && !is_own && !named.contains(&repost.source) {
                named.push(repost.source);
                merged.via.push(sources.at(repost.source).id.clone());
            }
        }
        merged
    }
}

impl VisibilityFilter for FeedFilter<'_> {
    type Entry = Entry;

    fn look(&mut self, position: Position) -> Visibility<Entry> {
        self.entry(position).map_or_else(|look| look, Visibility::Shown)
    }

    fn looks_ahead(&self) -> bool {
        matches!(self.finder, Finder::Archive(world) if world.has_remote_archive())
    }

    fn prepare(&mut self, positions: &[Position]) {
        self.finder.world().prefetch_posts(positions.iter().map(|position| position.id));
    }

    fn accepted_at(&self, position: Position) -> Option<UnixMicros> {
        self.finder.find::<Entry>(position.id).ok().map(|post| post.accepted_at)
    }

    fn owner(&self) -> Option<SourceSlot> {
        self.viewer.owner()
    }

    fn source(entry: &Entry) -> SourceSlot {
        entry.by
    }
}

/// Outboxes, read from the place where the posts are looked up.
pub struct FoundOutboxes<'a> {
    /// The place where posts are looked up.
    pub finder: Finder<'a>,
    /// Counts possible disk reads.
    pub budget: &'a Budget<'a>,
    /// The time limit for reading slow sources, if there is one.
    pub time: Option<&'a PageTime<'a>>,
}

impl Outboxes for FoundOutboxes<'_> {
    fn pull(&self, source: SourceSlot, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap> {
        match self.finder {
            Finder::Memory(world) | Finder::Fetched(world, _) => world.sources.at(source).pull(ask, into),
            Finder::Archive(world) => {
                if world.has_archived() {
                    self.budget.disk_read();
                }
                world.pull_whole(source, ask, self.time, into)
            }
        }
    }

    fn is_slow(&self, source: SourceSlot) -> bool {
        matches!(self.finder, Finder::Archive(world) if world.slow_sources.contains(source))
    }

    fn prepare(&self, asks: &mut dyn Iterator<Item = (SourceSlot, OutboxQuery)>) {
        if let Finder::Archive(world) = self.finder {
            // Slow sources may be omitted.
            world.prefetch_outboxes(&mut asks.filter(|(source, _)| !world.slow_sources.contains(*source)));
        }
    }
}

impl Outboxes for Sources {
    fn pull(&self, source: SourceSlot, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap> {
        self.at(source).pull(ask, into)
    }
}

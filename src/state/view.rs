//! What shows: the rules, applied to a candidate at the moment of reading.
//!
//! Nothing about visibility is stored with an inbox. A delete, a hidden post, an unfollow takes effect with the next
//! page, and undoing it brings back exactly what was there.

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::clock::UnixMicros;
use crate::feed::inbox::Inbox;
use crate::feed::merge::Outboxes;
use crate::feed::outbox::{Ask, Missing};
use crate::feed::page::{Look, View};
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

/// An entry of a feed: a post, and why it is there.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The post; of a repost the one it repeats.
    pub post: Arc<Post>,
    /// Who published what the entry stands for: the post's author, or of its newest repost.
    pub by: SourceSlot,
    /// Which of the post's sources brought it, a bit each, in the order of [`Post::sources`].
    via: u32,
    merged: Option<Box<Merged>>,
}

/// What reposts add to an entry.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
struct Merged {
    reposts: Vec<Reposted>,
    via: Vec<SourceId>,
}

/// One of the reposts that an entry merges.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reposted {
    /// Who reposted.
    pub user: SourceId,
    /// The repost.
    pub at: Position,
}

impl Entry {
    /// The followed sources that brought it, each once. None for a reader's own post.
    pub fn via(&self) -> impl Iterator<Item = &SourceId> {
        let brought = move |nth: usize| self.via & (1 << nth) != 0;
        let direct = self.post.sources().iter().enumerate().filter(move |(nth, _)| brought(*nth));
        let merged = self.merged.iter().flat_map(|merged| &merged.via);
        direct.map(|(_, source)| &source.id).chain(merged)
    }

    /// Those who reposted it, each by the newest repost, newest first.
    pub fn reposts(&self) -> &[Reposted] {
        self.merged.as_deref().map_or(&[], |merged| &merged.reposts)
    }

    /// Whether both show the same post, in the same words, for the same reasons: to different readers they look the same.
    pub fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.post, &other.post) && self.via == other.via && self.merged == other.merged
    }

    /// The entry at a position, as a live stream compares it.
    pub fn entry_fingerprint(&self, at: Position) -> EntryFingerprint {
        let mut reasons = FxHasher::default();
        self.via.hash(&mut reasons);
        self.merged.hash(&mut reasons);
        let version = self.post.edited_at.map_or(0, |edited_at| edited_at.0 as u64);
        EntryFingerprint { at, post: self.post.id(), reasons: reasons.finish(), version }
    }
}

/// What was found under an id.
pub type Found = (PostId, Option<Arc<Post>>);

/// Where a view finds posts.
#[derive(Clone, Copy)]
pub enum Finder<'a> {
    /// In memory. What may be in the archive makes the page ask for it.
    Memory(&'a World),
    /// In memory, and among some that were looked up in the archive.
    Fetched(&'a World, &'a [Found]),
    /// In memory and in the archive: only on a thread that may wait for a disk.
    Archive(&'a World),
}

impl<'a> Finder<'a> {
    /// The world it looks in.
    pub fn world(self) -> &'a World {
        match self {
            Self::Memory(world) | Self::Fetched(world, _) | Self::Archive(world) => world,
        }
    }

    /// The post with this id, or why it cannot be shown.
    pub(super) fn find<E>(self, id: PostId) -> Result<Arc<Post>, Look<E>> {
        self.find_as(id, false)
    }

    /// The same. One that is placed in an outbox or inbox was there once, and left a tombstone if it was deleted.
    fn find_as<E>(self, id: PostId, is_placed: bool) -> Result<Arc<Post>, Look<E>> {
        let found = self.find_any(id, is_placed)?;
        // The one place that makes all that an erased user published vanish at once, until it is deleted post by post.
        if self.world().sources.is_erased(found.author().slot) { Err(Look::Gone) } else { Ok(found) }
    }

    fn find_any<E>(self, id: PostId, is_placed: bool) -> Result<Arc<Post>, Look<E>> {
        let world = self.world();
        match (world.posts.stored(id), self) {
            (Some(Stored::Live(post)), _) => Ok(post),
            (Some(Stored::Deleted), _) => Err(Look::Gone),
            (None, Self::Memory(_)) => Err(if world.has_archived() { Look::Archived } else { Look::Gone }),
            (None, Self::Fetched(_, found)) => match found.iter().find(|(looked_up, _)| *looked_up == id) {
                Some((_, post)) => post.clone().ok_or(Look::Gone),
                None => Err(Look::Archived),
            },
            (None, Self::Archive(_)) => match world.archived(id) {
                Ok(Some(Stored::Live(post))) => Ok(post),
                Ok(None) if is_placed => {
                    world.note_missing(id);
                    Err(Look::Unreadable)
                }
                Ok(_) => Err(Look::Gone),
                Err(cause) => {
                    world.read_failures.note(&cause);
                    Err(Look::Unreadable)
                }
            },
        }
    }
}

/// What one feed shows: of posts that repeat each other one entry, at the newest that counts.
pub struct FeedView<'a> {
    /// Where posts are found.
    pub finder: Finder<'a>,
    /// Through whose eyes.
    pub viewer: &'a Viewer,
    /// The reader's inbox, if the feed has one.
    pub inbox: Option<&'a Inbox>,
    /// What is done is counted here.
    pub budget: &'a Budget<'a>,
    /// The time in which slow sources have to be read, if there is a bound.
    pub time: Option<&'a PageTime<'a>>,
    /// Whether only entries show that stand for what others published.
    pub of_others: bool,
    /// Where entries stand whose posts are repeated, if anywhere, as far as the page has met any of them: found out once, also where no
    /// repost counts, or a post that thousands repeat would be looked at thousands of times, and a change meanwhile could show it twice.
    stands: FxHashMap<PostId, Option<Position>>,
}

impl<'a> FeedView<'a> {
    /// A view for one page.
    pub fn new(finder: Finder<'a>, viewer: &'a Viewer, inbox: Option<&'a Inbox>, budget: &'a Budget<'a>) -> Self {
        Self { finder, viewer, inbox, budget, time: None, of_others: false, stands: FxHashMap::default() }
    }

    /// The entry of a post, wherever it stands.
    ///
    /// # Errors
    /// Why there is none.
    pub fn entry_of(&mut self, origin: PostId) -> Result<(Position, Entry), Look<Entry>> {
        let origin = self.find(origin, false)?;
        let (direct, reposts) = self.reasons(&origin);
        let at = self.stands_at(&origin, direct, &reposts).ok_or(Look::Hidden)?;
        Ok((at, self.entry(at)?))
    }

    /// What brings a post to this feed, and nothing speaks against.
    fn reasons(&self, origin: &Post) -> (Direct, Vec<ByRepost>) {
        let is_let_in = self.viewer.rule(self.finder.world(), origin).is_none();
        let direct = if is_let_in { self.viewer.direct(origin) } else { Direct::default() };
        if !self.viewer.preferences.rules.reposts {
            return (direct, Vec::new());
        }
        let mut reposts = self.viewer.reposts(self.finder.world(), origin, self.budget);
        reposts.retain(|by| by.blocker.is_none());
        (direct, reposts)
    }

    fn find(&self, id: PostId, is_placed: bool) -> Result<Arc<Post>, Look<Entry>> {
        if matches!(self.finder, Finder::Archive(world) if world.has_archived() && world.posts.stored(id).is_none()) {
            self.budget.disk_read();
        }
        self.finder.find_as(id, is_placed)
    }

    fn entry(&mut self, position: Position) -> Result<Entry, Look<Entry>> {
        let post = self.find(position.id, true)?;
        let is_repost = post.repost_of.is_some();
        let origin_id = post.repost_of.unwrap_or(post.id());
        if post.hidden {
            return Err(Look::Hidden);
        }
        match self.stands.get(&origin_id) {
            Some(None) => return Err(Look::Hidden),
            Some(stands) if *stands != Some(position) => return Err(Look::Elsewhere),
            _ => {}
        }
        let origin = match post.repost_of {
            None => Arc::clone(&post),
            Some(id) => self.find(id, false).map_err(|look| if look.is_gone() { Look::Hidden } else { look })?,
        };
        if origin.hidden || self.viewer.silencer(self.finder.world(), &origin).is_some() {
            if is_repost {
                self.stands.insert(origin_id, None);
            }
            return Err(Look::Hidden);
        }
        let (direct, mut reposts) = self.reasons(&origin);
        if !reposts.is_empty() {
            let stands = self.stands_at(&origin, direct, &reposts);
            self.stands.insert(origin_id, stands);
            if stands != Some(position) {
                return Err(stands.map_or(Look::Hidden, |_| Look::Elsewhere));
            }
        } else if is_repost {
            self.stands.insert(origin_id, direct.is_reached().then_some(origin.position));
            return Err(Look::Hidden);
        } else if !direct.is_reached() {
            return Err(Look::Hidden);
        }
        if self.of_others && post.author().slot == self.viewer.reader {
            return Err(Look::Hidden);
        }
        // What is newer cannot be met yet, so that it is as if it were not there.
        reposts.retain(|by| by.repost.at <= position);
        let via = if self.viewer.names_sources { direct.named } else { 0 };
        self.budget.lookups(reposts.len());
        let merged = (!reposts.is_empty()).then(|| Box::new(self.merge(&origin, via, reposts)));
        Ok(Entry { by: post.author().slot, post: origin, via, merged })
    }

    /// Where an entry stands: at the newest of what brings it. A repost that is on its way into the inbox does not count until
    /// it is there.
    fn stands_at(&self, origin: &Post, direct: Direct, reposts: &[ByRepost]) -> Option<Position> {
        let sources = || origin.sources().iter().enumerate().filter(|(nth, _)| direct.by & (1 << nth) != 0);
        let is_met = || direct.own || sources().any(|(_, source)| self.is_met(origin.position, source.slot));
        let own_place = (direct.is_reached() && is_met()).then_some(origin.position);
        let mut newest = own_place;
        for by in reposts {
            if Some(by.repost.at) > newest && self.is_met(by.repost.at, by.repost.source) {
                newest = Some(by.repost.at);
            }
        }
        newest
    }

    /// Whether a page meets what a source brings at a position.
    fn is_met(&self, at: Position, source: SourceSlot) -> bool {
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
            // At home a reader's own repost is brought by nobody.
            let is_own = self.viewer.has_own && repost.source == self.viewer.reader;
            if self.viewer.names_sources && !is_own && !named.contains(&repost.source) {
                named.push(repost.source);
                merged.via.push(sources.at(repost.source).id.clone());
            }
        }
        merged
    }
}

impl View for FeedView<'_> {
    type Entry = Entry;

    fn look(&mut self, position: Position) -> Look<Entry> {
        self.entry(position).map_or_else(|look| look, Look::Shown)
    }

    fn accepted_at(&self, position: Position) -> Option<UnixMicros> {
        self.finder.find::<Entry>(position.id).ok().map(|post| post.accepted_at)
    }

    fn source(entry: &Entry) -> SourceSlot {
        entry.by
    }
}

/// Outboxes, read where posts are found.
pub struct FoundOutboxes<'a> {
    /// Where posts are found.
    pub finder: Finder<'a>,
    /// What may be a read of a disk is counted here.
    pub budget: &'a Budget<'a>,
    /// The time in which slow sources have to be read, if there is a bound.
    pub time: Option<&'a PageTime<'a>>,
}

impl Outboxes for FoundOutboxes<'_> {
    fn pull(&self, source: SourceSlot, ask: Ask, into: &mut Vec<Position>) -> Result<(), Missing> {
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
}

impl Outboxes for Sources {
    fn pull(&self, source: SourceSlot, ask: Ask, into: &mut Vec<Position>) -> Result<(), Missing> {
        self.at(source).pull(ask, into)
    }
}

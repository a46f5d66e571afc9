//! The viewer: the reader of a feed, with the edges, blocks and rules that decide which posts are visible.
//!
//! Pages and explanations both use this module, so they cannot contradict each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::feed::post::{Membership, Post};
use crate::feed::preferences::Preferences;
use crate::feed::reposts::{Repost, Reposts};
use crate::feed::rules::{Replies, Rules};
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceSlot};
use crate::limits::REPOSTS_EXAMINED_MAX;
use crate::state::reposts::RepostIndex;
use crate::state::sources::Source;
use crate::state::world::World;

/// The reader of a feed, with the edges and preferences that apply.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// The slot of the reader.
    pub reader: SourceSlot,
    /// The edges that bring posts: the reader's follows, or the members of a list.
    pub feed: Arc<Following>,
    /// The edges to the sources that the reader follows.
    pub follows: Arc<Following>,
    /// The rules that apply.
    pub rules: Rules,
    /// The mutes, blocks and lists of the reader.
    pub preferences: Arc<Preferences>,
    /// The source, if this is a page of one source. The page ignores a mute or a block of that source, which concern other feeds.
    pub page_of: Option<SourceSlot>,
    /// [`Source::shown_by`] of the reader, read before anything else.
    pub shown_by: u32,
    /// True if any author blocks the reader.
    pub is_blocked: bool,
    /// True if the reader's own posts belong to the feed.
    pub has_own: bool,
    /// True if entries name the sources that brought them.
    pub names_sources: bool,
}

/// A reason that keeps a post from being shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// The post belongs to a muted source.
    Muted(SourceSlot),
    /// The post belongs to a blocked source.
    Blocked(SourceSlot),
    /// The author of the post blocks the reader.
    BlockedBy(SourceSlot),
    /// The post is hidden from all feeds.
    Hidden,
    /// The reader is the author of the post, and the rules exclude own posts.
    OwnPost,
    /// The rules exclude replies to the author of the parent post; `None` if that author is not known.
    Reply(Option<SourceSlot>),
    /// The post is a repost, and the rules exclude reposts.
    Repost,
}

/// The edges that bring a post itself, without its reposts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Direct {
    /// True if it is the reader's own post.
    pub own: bool,
    /// The sources of the post that bring it, one bit each, in the order of [`Post::sources`].
    pub by: u32,
    /// The sources in `by` that may be named, because their edges are not hidden.
    pub named: u32,
}

impl Direct {
    /// Returns true if anything brings the post.
    pub fn is_reached(self) -> bool {
        self.own || self.by != 0
    }
}

/// A repost that brings its original, by one of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByRepost {
    /// The repost, as stored for that source.
    pub repost: Repost,
    /// True if the source may be named.
    pub named: bool,
    /// The reason why the repost does not count, if there is one.
    pub blocker: Option<Blocker>,
}

impl Viewer {
    /// Creates the viewer of a reader's home feed.
    pub fn home(reader: &Source, following: &Arc<Following>) -> Self {
        Self { has_own: true, ..Self::of(reader, Arc::clone(following), Arc::clone(following)) }
    }

    /// Creates the viewer of one of the reader's lists. The same rules apply to the members' posts as in the home feed.
    pub fn list(reader: &Source, members: &Arc<Following>) -> Self {
        Self::of(reader, Arc::clone(members), reader.following())
    }

    /// Creates a viewer of these edges, with the preferences of a reader.
    fn of(reader: &Source, feed: Arc<Following>, follows: Arc<Following>) -> Self {
        let shown_by = reader.shown_by();
        let preferences = reader.preferences();
        Self {
            shown_by,
            is_blocked: reader.is_blocked(),
            reader: reader.slot,
            feed,
            follows,
            rules: preferences.rules,
            preferences,
            page_of: None,
            has_own: false,
            names_sources: true,
        }
    }

    /// Creates the viewer of a source's own page as the public sees it.
    pub fn everybody(source: SourceSlot) -> Self {
        let mut feed = Following::default();
        feed.insert(source, UnixMicros(0), false);
        let feed = Arc::new(feed);
        let rules = Rules { replies: Replies::All, ..Rules::default() };
        Self { follows: Arc::clone(&feed), feed, rules, page_of: Some(source), names_sources: false, ..Self::nobody() }
    }

    /// Creates the viewer of a source's own page as the source sees it: the originals of its reposts are shown as well,
    /// unless the source blocks their author or is blocked by that author.
    pub fn own_page(source: &Source) -> Self {
        let blocks = source.preferences().blocks.clone();
        let preferences = Arc::new(Preferences { blocks, ..Preferences::default() });
        Self { preferences, ..Self::page(source.slot, source) }
    }

    /// Creates the viewer of the page of a source as a reader sees it: all its posts, except those that the reader's mutes and blocks or
    /// the blocks of authors exclude.
    pub fn page(source: SourceSlot, reader: &Source) -> Self {
        let Self { feed, follows, rules, page_of, .. } = Self::everybody(source);
        Self { rules, page_of, names_sources: false, ..Self::of(reader, feed, follows) }
    }

    /// Creates the viewer of the reposts of a post.
    pub fn of_reposts(reader: &Source) -> Self {
        let (feed, follows) = Default::default();
        Self::of(reader, feed, follows)
    }

    /// Creates the viewer of an unknown reader.
    pub fn nobody() -> Self {
        let (feed, follows, rules, preferences) = Default::default();
        Self {
            reader: SourceSlot::NONE,
            feed,
            follows,
            rules,
            preferences,
            page_of: None,
            shown_by: 0,
            is_blocked: false,
            has_own: false,
            names_sources: true,
        }
    }

    /// Returns the owner of the feed: the reader, or the source of an own page that anybody sees.
    pub fn owner(&self) -> Option<SourceSlot> {
        let reader = Some(self.reader).filter(|reader| *reader != SourceSlot::NONE);
        reader.or_else(|| self.feed.followed().next())
    }

    /// Returns true if only posts of one source can be in the feed.
    pub fn has_one_source(&self, world: &World) -> bool {
        let has_own_posts = || self.has_own && !world.sources.at(self.reader).outbox().is_empty();
        self.feed.reach_len() == 1 && !has_own_posts()
    }

    /// Returns the first source that hides a post and all its reposts: one that is muted or blocked, or an author who blocks the reader.
    pub fn silencer(&self, world: &World, post: &Post) -> Option<Blocker> {
        self.silencers(world, post).next()
    }

    /// Returns all such sources, in the same order.
    pub fn silencers(&self, world: &World, post: &Post) -> impl Iterator<Item = Blocker> {
        let of_sources = post.sources().iter().filter_map(|source| self.silences(source.slot));
        of_sources.chain(self.blocked_by(world, post.author().slot))
    }

    /// Returns the block that hides all posts of an author from the reader. No other code decides this.
    fn blocked_by(&self, world: &World, author: SourceSlot) -> Option<Blocker> {
        (self.is_blocked && world.sources.at(author).blocks(self.reader)).then_some(Blocker::BlockedBy(author))
    }

    fn silences(&self, source: SourceSlot) -> Option<Blocker> {
        if self.page_of == Some(source) {
            return None;
        }
        if self.preferences.blocks.contains(source) {
            return Some(Blocker::Blocked(source));
        }
        self.preferences.mutes.contains(source).then_some(Blocker::Muted(source))
    }

    /// Returns the edges that bring a post itself, regardless of blockers. No edge brings a repost itself: it is shown only with its
    /// original, even if an earlier repost names it as original.
    pub fn direct(&self, post: &Post) -> Direct {
        if post.repost_of.is_some() {
            return Direct::default();
        }
        let mut direct = Direct { own: self.has_own && post.author().slot == self.reader, ..Direct::default() };
        for (nth, source) in post.sources().iter().enumerate() {
            if let Some(brought) = self.feed.brings(source.slot, post.position) {
                direct.by |= 1 << nth;
                direct.named |= u32::from(!brought.hidden) << nth;
            }
        }
        direct
    }

    /// Returns the rule that hides a post itself. A repost may show it nevertheless.
    pub fn rule(&self, world: &World, post: &Post) -> Option<Blocker> {
        let (rules, author) = (self.rules, post.author().slot);
        if author == self.reader {
            return (!rules.show_own).then_some(Blocker::OwnPost);
        }
        post.reply_to?;
        let answered = world.answered_by(post);
        // Edges to an erased user are removed one by one, but no longer count.
        let answered = answered.filter(|answered| !world.sources.is_erased(*answered));
        let shows = match rules.replies {
            Replies::All => true,
            Replies::None => false,
            Replies::Followed => {
                answered.is_some_and(|answered| {
                    let shows = |edges: &Following| edges.get(answered).is_some_and(|edge| !edge.hidden);
                    answered == self.reader || shows(&self.follows) || shows(&self.feed)
                }) || self.brings_replies(world, post, answered)
            }
        };
        (!shows).then_some(Blocker::Reply(answered))
    }

    /// Returns true if `post` is a reply, the reader follows the replies to its parent post, and neither the reader nor the author of the parent
    /// post, `answered`, blocks the other.
    fn brings_replies(&self, world: &World, post: &Post, answered: Option<SourceSlot>) -> bool {
        let has_block = |author| self.preferences.blocks.contains(author) || self.blocked_by(world, author).is_some();
        let brings = |replies: &Membership| self.feed.brings(replies.slot, post.position).is_some();
        post.replies().is_some_and(brings) && !answered.is_some_and(has_block)
    }

    /// Returns the reposts that bring `post`, in no order, once for each source that brings them.
    pub fn reposts(&self, world: &World, post: &Post, budget: &Budget<'_>) -> Vec<ByRepost> {
        let Some(reposts) = world.reposts.of(post.id()) else { return Vec::new() };
        let reposts = reposts.read();
        let found = self.of_feed(&reposts, budget);
        budget.lookups(found.len());
        let silenced = if found.is_empty() { Vec::new() } else { self.silenced(&reposts, budget) };
        let brought = |repost: Repost| {
            let own = self.has_own && repost.author == self.reader && repost.source == self.reader;
            let brought = self.feed.brings(repost.source, repost.at);
            let named = brought.is_some_and(|brought| !brought.hidden);
            let is_silenced =
                || silenced.binary_search_by_key(&repost.at, |(at, _)| *at).ok().map(|nth| silenced[nth].1);
            // Decisions of others come first, so that the result does not reveal additional decisions of the reader.
            let by_others = || {
                reposts
                    .is_hidden(repost.at)
                    .then_some(Blocker::Hidden)
                    .or_else(|| self.blocked_by(world, repost.author))
            };
            let blocker = by_others().or_else(|| self.repost_rule(repost)).or_else(is_silenced);
            let is_there = !world.sources.is_erased(repost.author);
            (is_there && (own || brought.is_some())).then_some(ByRepost { repost, named: named || own, blocker })
        };
        found.into_iter().filter_map(brought).collect()
    }

    /// Returns the positions of the reposts of a post in outboxes of this feed, even if they do not bring it.
    pub fn places_of_reposts(&self, index: &RepostIndex, origin: PostId, budget: &Budget<'_>) -> Vec<Position> {
        let Some(reposts) = index.of(origin) else { return Vec::new() };
        let found = self.of_feed(&reposts.read(), budget);
        found.into_iter().map(|repost| repost.at).collect()
    }

    /// Returns the reposts of a post that are in outboxes of this feed.
    fn of_feed(&self, reposts: &Reposts, budget: &Budget<'_>) -> Vec<Repost> {
        let own = self.has_own.then_some(self.reader);
        let mut found = Vec::new();
        let is_chosen = |source| self.feed.contains(source) || own == Some(source) || self.has_kept(source);
        let looked_at = reposts.of(self.feed.sources().chain(own), self.feed.reach_len() + 1, is_chosen, &mut found);
        budget.reposts(looked_at);
        found
    }

    fn has_kept(&self, source: SourceSlot) -> bool {
        self.feed.kept().binary_search_by_key(&source, |kept| kept.source).is_ok()
    }

    /// Returns the reposts that belong to a muted or blocked source, each once, by position.
    fn silenced(&self, reposts: &Reposts, budget: &Budget<'_>) -> Vec<(Position, Blocker)> {
        let (mutes, blocks) = (&self.preferences.mutes, &self.preferences.blocks);
        if mutes.is_empty() && blocks.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let sources = mutes.iter().chain(blocks.iter()).map(|(source, _)| source);
        let silences = |source| self.preferences.silences(source);
        budget.reposts(reposts.of(sources, mutes.len() + blocks.len(), silences, &mut found));
        budget.lookups(found.len());
        let silenced = found.into_iter().filter_map(|repost| Some((repost.at, self.silences(repost.source)?)));
        let mut silenced: Vec<(Position, Blocker)> = silenced.collect();
        silenced.sort_by_key(|(at, _)| *at);
        silenced.dedup_by_key(|(at, _)| *at);
        silenced
    }

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

    /// Returns the positions of the reposts that belong to a muted or blocked source, sorted.
    fn silenced_reposts(&self, reposts: &Reposts) -> Vec<Position> {
        let budget = Budget::untimed(Allowance::last(0));
        self.silenced(reposts, &budget).into_iter().map(|(at, _)| at).collect()
    }

    /// Returns true if no block hides all posts of an author from the reader.
    fn may_see(&self, world: &World, author: SourceSlot) -> bool {
        !world.sources.is_erased(author) && self.blocked_by(world, author).is_none()
    }

    fn repost_rule(&self, repost: Repost) -> Option<Blocker> {
        let rules = self.rules;
        if !rules.reposts {
            return Some(Blocker::Repost);
        }
        (repost.author == self.reader && !rules.show_own).then_some(Blocker::OwnPost)
    }
}

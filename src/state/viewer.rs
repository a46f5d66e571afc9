//! The viewer: through whose eyes a feed is seen, and what that lets through.
//!
//! Responsible for:
//! - the reasons a post has to show in one feed, and what speaks against each: follows, mutes, blocks by the reader and by authors, rules.
//!
//! Not responsible for:
//! - pages (`feed::page`), where a merged entry stands (`state::view`), telling people (`state::explain`).
//!
//! Pages and explanations both ask here, so they cannot disagree.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::preferences::Preferences;
use crate::feed::reposts::{Repost, Reposts};
use crate::feed::rules::{Replies, Rules};
use crate::feed::work::Budget;
use crate::id::{PostId, SourceSlot};
use crate::state::reposts::RepostIndex;
use crate::state::sources::Source;
use crate::state::world::World;

/// Through whose eyes a feed is seen.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// Who reads.
    pub reader: SourceSlot,
    /// What brings posts: whom the reader follows, or the members of a list.
    pub feed: Arc<Following>,
    /// Whom the reader follows.
    pub follows: Arc<Following>,
    /// What the reader has decided.
    pub preferences: Arc<Preferences>,
    /// [`Source::shown_by`] of the reader, taken before anything was looked at.
    pub shown_by: u32,
    /// Whether any author blocks the reader.
    pub is_blocked: bool,
    /// Whether the reader's own posts belong to the feed.
    pub has_own: bool,
    /// Whether entries name the sources that brought them.
    pub names_sources: bool,
}

/// What keeps a post from showing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// It belongs to a muted source.
    Muted(SourceSlot),
    /// It belongs to a blocked source.
    Blocked(SourceSlot),
    /// Its author blocks the reader.
    BlockedBy(SourceSlot),
    /// It is kept out of all feeds.
    Hidden,
    /// It is the reader's own.
    OwnPost,
    /// It answers somebody, if that is known, whom the rules leave out.
    Reply(Option<SourceSlot>),
    /// It repeats another, and the rules leave reposts out.
    Repost,
}

/// What brings a post by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Direct {
    /// It is the reader's own.
    pub own: bool,
    /// Which of its sources bring it, a bit each, in the order of [`Post::sources`].
    pub by: u32,
    /// Those of them that may be named.
    pub named: u32,
}

impl Direct {
    /// Whether anything brings it.
    pub fn is_reached(self) -> bool {
        self.own || self.by != 0
    }
}

/// A repost that brings what it repeats, by one of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByRepost {
    /// The repost, as that source has it.
    pub repost: Repost,
    /// Whether the source may be named.
    pub named: bool,
    /// What speaks against it.
    pub blocker: Option<Blocker>,
}

impl Viewer {
    /// A reader's home feed.
    pub fn home(reader: &Source, following: &Arc<Following>) -> Self {
        let (feed, follows) = (Arc::clone(following), Arc::clone(following));
        Self { feed, follows, has_own: true, ..Self::of(reader) }
    }

    /// A list of the reader's. Its members' posts are under the same rules as those at home.
    pub fn list(reader: &Source, members: &Arc<Following>) -> Self {
        let (feed, follows) = (Arc::clone(members), reader.following());
        Self { feed, follows, ..Self::of(reader) }
    }

    /// A reader to whom nothing is brought.
    fn of(reader: &Source) -> Self {
        let (shown_by, is_blocked) = (reader.shown_by(), reader.is_blocked());
        Self { reader: reader.slot, preferences: reader.preferences(), shown_by, is_blocked, ..Self::nobody() }
    }

    /// A source's own page, before everybody.
    pub fn everybody(source: SourceSlot) -> Self {
        let mut feed = Following::default();
        feed.insert(source, UnixMicros(0), false);
        let feed = Arc::new(feed);
        let rules = Rules { replies: Replies::All, ..Rules::default() };
        let preferences = Arc::new(Preferences { rules, ..Preferences::default() });
        Self { follows: Arc::clone(&feed), feed, preferences, names_sources: false, ..Self::nobody() }
    }

    /// A source's own page, before its owner: what they repeat shows there as well, unless there is a block between them and its author.
    pub fn own_page(source: &Source) -> Self {
        let page = Self::everybody(source.slot);
        let preferences = Preferences {
            rules: page.preferences.rules,
            blocks: source.preferences().blocks.clone(),
            ..Preferences::default()
        };
        Self {
            preferences: Arc::new(preferences),
            feed: page.feed,
            follows: page.follows,
            names_sources: false,
            ..Self::of(source)
        }
    }

    /// A reader nobody has heard of.
    pub fn nobody() -> Self {
        let (feed, follows, preferences) = Default::default();
        let reader = SourceSlot::NONE;
        Self { reader, feed, follows, preferences, shown_by: 0, is_blocked: false, has_own: false, names_sources: true }
    }

    /// Whether nobody's posts can be in the feed but those of one source.
    pub fn has_one_source(&self, world: &World) -> bool {
        let has_own_posts = || self.has_own && !world.sources.at(self.reader).outbox().is_empty();
        self.feed.reach_len() == 1 && !has_own_posts()
    }

    /// The source that keeps a post, and all that repeats it, from showing: one that is muted or blocked, or an author who blocks the reader.
    pub fn silencer(&self, world: &World, post: &Post) -> Option<Blocker> {
        self.silencers(world, post).next()
    }

    /// All of them.
    pub fn silencers(&self, world: &World, post: &Post) -> impl Iterator<Item = Blocker> {
        let of_sources = post.sources().iter().filter_map(|source| self.silences(source.slot));
        of_sources.chain(self.blocked_by(world, post.author().slot))
    }

    /// The one place that decides whether an author's posts are there for the reader at all.
    fn blocked_by(&self, world: &World, author: SourceSlot) -> Option<Blocker> {
        (self.is_blocked && world.sources.at(author).blocks(self.reader)).then_some(Blocker::BlockedBy(author))
    }

    fn silences(&self, source: SourceSlot) -> Option<Blocker> {
        if self.preferences.blocks.contains(source) {
            return Some(Blocker::Blocked(source));
        }
        self.preferences.mutes.contains(source).then_some(Blocker::Muted(source))
    }

    /// What brings a post by itself, whatever speaks against it. A repost is brought only with what it repeats, also when
    /// another that came before it names it as its origin.
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

    /// The rule that keeps a post from showing by itself. A repost of it may bring it nevertheless.
    pub fn rule(&self, world: &World, post: &Post) -> Option<Blocker> {
        let (rules, author) = (self.preferences.rules, post.author().slot);
        if author == self.reader {
            return (!rules.show_own).then_some(Blocker::OwnPost);
        }
        let reply_to = post.reply_to?;
        // Posts do not always come in order: what is answered may have come after its answer.
        let later = || world.posts.get(reply_to).map(|post| post.author().slot);
        let answered = post.answered.as_deref().map(|author| author.slot).or_else(later);
        // Edges to who was erased go one by one, and count no more.
        let answered = answered.filter(|answered| !world.sources.is_erased(*answered));
        let shows = match rules.replies {
            Replies::All => true,
            Replies::None => false,
            Replies::Followed => answered.is_some_and(|answered| {
                let shows = |edges: &Following| edges.get(answered).is_some_and(|edge| !edge.hidden);
                answered == self.reader || shows(&self.follows) || shows(&self.feed)
            }),
        };
        (!shows).then_some(Blocker::Reply(answered))
    }

    /// The reposts that bring `post`, in no order, each once for each source that brings it.
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
            // What others decided first: it is not to be known by what the reader decided beside.
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

    /// Where reposts of a post stand that sources of this feed have, whether they bring it or not.
    pub fn places_of_reposts(&self, index: &RepostIndex, origin: PostId, budget: &Budget<'_>) -> Vec<Position> {
        let Some(reposts) = index.of(origin) else { return Vec::new() };
        let found = self.of_feed(&reposts.read(), budget);
        found.into_iter().map(|repost| repost.at).collect()
    }

    /// Those of the reposts of a post that sources of this feed have.
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

    /// Which reposts belong to a source that is muted or blocked, each once, by position.
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

    fn repost_rule(&self, repost: Repost) -> Option<Blocker> {
        let rules = self.preferences.rules;
        if !rules.reposts {
            return Some(Blocker::Repost);
        }
        (repost.author == self.reader && !rules.show_own).then_some(Blocker::OwnPost)
    }
}

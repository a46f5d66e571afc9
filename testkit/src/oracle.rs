//! The naive oracle: posts in a vector, and the decisions of readers in maps. Every read filters and sorts everything.

mod counts;

use std::collections::{BTreeMap, BTreeSet};

use tidewire::feed::rules::{Replies, Rules, RulesPatch};
use tidewire::id::PostId;

/// A position: time, then id.
pub type At = (i64, u64);

#[derive(Clone, Debug, Default)]
pub struct NaivePost {
    pub id: u64,
    pub published_at: i64,
    pub author: String,
    /// The sources of the post: its author, tags, topic, and the replies to the post that it answers.
    pub sources: Vec<String>,
    pub body: String,
    pub hidden: bool,
    pub deleted: bool,
    /// The original that it repeats, as of the publish time of the later of both.
    pub repost_of: Option<u64>,
    pub reply_to: Option<u64>,
    /// The author whom it answers, as of its publish time.
    pub answered: Option<String>,
    /// The value of [`Oracle::arrivals`] when it was published or last became visible again.
    pub arrived: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NaiveEdge {
    pub hidden: bool,
    /// The edge brings no posts below this position.
    pub start: Option<At>,
}

/// The retained posts of a removed edge.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from: Option<At>,
    until: At,
    hidden: bool,
}

/// A reader, or a follower, and a source.
type Pair = (String, String);

#[derive(Clone, Default, Debug)]
pub struct Oracle {
    pub posts: Vec<NaivePost>,
    pub edges: BTreeMap<Pair, NaiveEdge>,
    stays: BTreeMap<Pair, Vec<Stay>>,
    pub celebrity: BTreeMap<String, bool>,
    pub mutes: BTreeSet<Pair>,
    pub blocks: BTreeSet<Pair>,
    pub rules: BTreeMap<String, Rules>,
    /// By reader and name.
    pub lists: BTreeMap<Pair, BTreeSet<String>>,
    /// The position of each marker, and the value of [`Oracle::arrivals`] when it was set.
    pub markers: BTreeMap<String, (At, usize)>,
    /// The number of times that a post became visible.
    pub arrivals: usize,
}

/// The kind of feed.
#[derive(Clone, Copy, Debug)]
pub enum Of<'a> {
    Home(&'a str),
    /// A list, by its owner and its name.
    List(&'a str, &'a str),
    /// A source's own posts.
    Page(&'a str),
    /// A source's own posts, as the source sees them.
    Mine(&'a str),
    /// The replies to a post, as a source, for the reader who sees them.
    Replies(&'a str, &'a str),
}

/// An entry as the oracle expects it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    pub at: At,
    pub post: PostId,
    pub body: String,
    /// The followed sources that brought it, in the order of their names.
    pub via: Vec<String>,
    /// The authors who repeated it, each with the newest repost.
    pub reposts: Vec<(String, u64)>,
}

/// A reason that brings a post.
#[derive(Clone, Debug)]
struct Reason {
    at: At,
    /// The author of the repost, if it is one.
    reposter: Option<String>,
    /// The source, unless it is the reader's own post.
    source: Option<String>,
    is_named: bool,
    /// True if a rule excludes it.
    is_barred: bool,
    text: String,
}

/// The expected content of an explanation.
#[derive(PartialEq, Eq, Debug)]
pub struct Explained {
    pub shown: bool,
    pub reasons: BTreeSet<String>,
    pub is_blocked: bool,
}

/// The requested part of a feed.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Newest,
    Before(At),
    After(At),
}

/// A page as the oracle expects it.
#[derive(PartialEq, Eq, Debug)]
pub struct ExpectedPage {
    pub items: Vec<Expected>,
    pub has_next: bool,
    pub newest: Option<At>,
}

impl NaivePost {
    pub fn at(&self) -> At {
        (self.published_at, self.id)
    }
}

fn pair(one: &str, other: &str) -> Pair {
    (one.to_owned(), other.to_owned())
}

impl<'a> Of<'a> {
    fn reader(self) -> Option<&'a str> {
        match self {
            Self::Home(reader) | Self::List(reader, _) => Some(reader),
            Self::Page(_) | Self::Mine(_) | Self::Replies(..) => None,
        }
    }
}

/// Changes by authors and readers.
impl Oracle {
    /// Adds a visible edge that brings all posts.
    pub fn follow(&mut self, follower: &str, source: &str) {
        self.follow_with(follower, source, false, None);
    }

    /// Adds an edge, or makes a hidden one visible. Returns true if the edge is new or became visible.
    pub fn follow_with(&mut self, follower: &str, source: &str, hidden: bool, backfill: Option<usize>) -> bool {
        if let Some(edge) = self.edges.get_mut(&pair(follower, source)) {
            // A request for a hidden follow does not hide a visible one.
            let comes_to_show = edge.hidden && !hidden;
            edge.hidden &= hidden;
            return comes_to_show;
        }
        let mut positions = self.positions(source);
        positions.sort_unstable_by(|a, b| b.cmp(a));
        let start = match backfill {
            None => None,
            Some(0) => positions.first().map(|(time, id)| (*time, id + 1)),
            Some(backfill) => positions.get(backfill - 1).copied(),
        };
        self.edges.insert(pair(follower, source), NaiveEdge { hidden, start });
        if let Some(stays) = self.stays.get_mut(&pair(follower, source)) {
            stays.retain(|stay| stay.from < start);
        }
        true
    }

    pub fn unfollow(&mut self, follower: &str, source: &str) {
        self.edges.remove(&pair(follower, source));
        self.stays.remove(&pair(follower, source));
    }

    pub fn unfollow_but_keep(&mut self, follower: &str, source: &str, now: i64) {
        let Some(edge) = self.edges.remove(&pair(follower, source)) else { return };
        let until = self.positions(source).into_iter().max().max(Some((now, u64::MAX))).unwrap();
        let stays = self.stays.entry(pair(follower, source)).or_default();
        stays.retain(|older| older.from < edge.start || older.until > until);
        stays.push(Stay { from: edge.start, until, hidden: edge.hidden });
    }

    /// Removes all data of a user.
    pub fn erase(&mut self, user: &str) {
        let of_others = |(one, other): &Pair| one != user && other != user;
        self.posts.iter_mut().filter(|post| post.author == user).for_each(|post| post.deleted = true);
        for post in self.posts.iter_mut().filter(|post| post.answered.as_deref() == Some(user)) {
            post.answered = None;
        }
        self.edges.retain(|pair, _| of_others(pair));
        self.stays.retain(|pair, _| of_others(pair));
        self.mutes.retain(of_others);
        self.blocks.retain(of_others);
        self.lists.retain(|(reader, _), _| reader != user);
        self.lists.values_mut().for_each(|members| members.retain(|member| member != user));
        self.celebrity.remove(user);
        self.rules.remove(user);
        self.markers.remove(user);
    }

    /// Adds a block, and removes the edges between the two. Returns false if the block existed.
    pub fn block(&mut self, reader: &str, source: &str) -> bool {
        self.unfollow(reader, source);
        self.unfollow(source, reader);
        self.blocks.insert(pair(reader, source))
    }

    pub fn has_block(&self, one: &str, other: &str) -> bool {
        self.blocks.contains(&pair(one, other)) || self.blocks.contains(&pair(other, one))
    }

    /// Returns the original that a post repeats, for an author who is about to repost it. None if the post is hidden, or one of both
    /// authors blocks the other.
    pub fn repeated_by(&self, author: &str, id: u64) -> Option<u64> {
        self.post(id)?.repost_of.filter(|_| self.is_shown_to(author, id))
    }

    /// Returns true if a user may see a post by its id.
    pub fn is_shown_to(&self, user: &str, id: u64) -> bool {
        let Some(post) = self.post(id) else { return false };
        user == post.author || !(post.hidden || self.has_block(user, &post.author))
    }

    /// Applies a new repost of `origin`: earlier reposts of it repeat `origin` instead, unless one author blocks the other.
    pub fn redirect(&mut self, author: &str, id: u64, origin: u64, arrived: usize) {
        let names = |post: &NaivePost| !post.deleted && post.repost_of == Some(id) && post.id != origin;
        let named = self.posts.iter().enumerate().filter(|(_, post)| names(post));
        let shown = named.filter(|(_, post)| !self.has_block(author, &post.author)).map(|(nth, _)| nth);
        for nth in shown.collect::<Vec<_>>() {
            (self.posts[nth].repost_of, self.posts[nth].arrived) = (Some(origin), arrived);
        }
    }

    pub fn change_rules(&mut self, reader: &str, patch: RulesPatch) -> Rules {
        let rules = self.rules.entry(reader.to_owned()).or_default();
        rules.show_own = patch.show_own.unwrap_or(rules.show_own);
        rules.replies = patch.replies.unwrap_or(rules.replies);
        rules.reposts = patch.reposts.unwrap_or(rules.reposts);
        rules.per_source_max = patch.per_source_max.unwrap_or(rules.per_source_max);
        rules.notify = patch.notify.unwrap_or(rules.notify);
        *rules
    }

    /// Counts that a post becomes visible, and returns the count.
    pub fn arrives(&mut self) -> usize {
        self.arrivals += 1;
        self.arrivals
    }

    fn positions(&self, source: &str) -> Vec<At> {
        let of_source = |post: &&NaivePost| !post.deleted && post.sources.iter().any(|of| of == source);
        self.posts.iter().filter(of_source).map(NaivePost::at).collect()
    }
}

/// The results of reads.
impl Oracle {
    pub fn post(&self, id: u64) -> Option<&NaivePost> {
        self.posts.iter().find(|post| post.id == id && !post.deleted)
    }

    pub fn rules_of(&self, reader: &str) -> Rules {
        self.rules.get(reader).copied().unwrap_or_default()
    }

    fn feed_rules(&self, of: Of<'_>) -> Rules {
        // Everybody sees all of a source's own page.
        let all = Rules { replies: Replies::All, ..Rules::default() };
        of.reader().map_or(all, |reader| self.rules_of(reader))
    }

    fn is_member(&self, of: Of<'_>, source: &str) -> bool {
        match of {
            Of::Home(reader) => self.edges.contains_key(&pair(reader, source)),
            Of::List(reader, list) => self.lists.get(&pair(reader, list)).is_some_and(|all| all.contains(source)),
            Of::Page(page) | Of::Mine(page) | Of::Replies(page, _) => page == source,
        }
    }

    /// Returns none if a source does not bring a post into a feed. Otherwise: true if the edge is visible, and true if it was removed.
    fn brings(&self, of: Of<'_>, source: &str, at: At) -> Option<(bool, bool)> {
        let Of::Home(reader) = of else { return self.is_member(of, source).then_some((true, false)) };
        let edge = self.edges.get(&pair(reader, source)).filter(|edge| edge.start <= Some(at));
        let stays = self.stays.get(&pair(reader, source)).into_iter().flatten();
        let stay = || stays.clone().find(|stay| stay.from <= Some(at) && at <= stay.until);
        edge.map(|edge| (!edge.hidden, false)).or_else(|| stay().map(|stay| (!stay.hidden, true)))
    }

    fn is_silenced(&self, of: Of<'_>, post: &NaivePost) -> bool {
        let (Of::Home(reader) | Of::List(reader, _) | Of::Replies(_, reader) | Of::Mine(reader)) = of else {
            return false;
        };
        let is_page = |source: &String| matches!(of, Of::Replies(page, _) | Of::Mine(page) if page == source);
        let mutes = |source: &String| !matches!(of, Of::Mine(_)) && self.mutes.contains(&pair(reader, source));
        let blocks = |source: &String| self.blocks.contains(&pair(reader, source));
        let is_blocked = self.blocks.contains(&pair(&post.author, reader));
        is_blocked || post.sources.iter().any(|source| !is_page(source) && (mutes(source) || blocks(source)))
    }

    /// Returns true if the rules exclude a post that is not a repost.
    fn is_left_out(&self, of: Of<'_>, post: &NaivePost) -> bool {
        let rules = self.feed_rules(of);
        if of.reader() == Some(&post.author) {
            return !rules.show_own;
        }
        let Some(reply_to) = post.reply_to else { return false };
        let answered = post.answered.clone().or_else(|| self.post(reply_to).map(|post| post.author.clone()));
        let is_near = |author: &String| {
            let follows = |reader| self.edges.get(&pair(reader, author)).is_some_and(|edge| !edge.hidden);
            let is_listed = !matches!(of, Of::Home(_)) && self.is_member(of, author);
            of.reader() == Some(author.as_str()) || of.reader().is_some_and(follows) || is_listed
        };
        match rules.replies {
            Replies::All => false,
            Replies::None => true,
            Replies::Followed if answered.as_ref().is_some_and(is_near) => false,
            Replies::Followed => {
                let has_block = |author| of.reader().is_some_and(|reader| self.has_block(reader, author));
                let is_brought = self.brings(of, &format!("replies:{reply_to}"), post.at()).is_some();
                !is_brought || answered.as_deref().is_some_and(has_block)
            }
        }
    }

    /// Returns all reasons that bring a post, directly or by a repost.
    fn reasons(&self, of: Of<'_>, origin: &NaivePost, reposts: &[&NaivePost]) -> Vec<Reason> {
        let rules = self.feed_rules(of);
        let own = |post: &NaivePost| matches!(of, Of::Home(reader) if post.author == reader);
        let mut reasons = Vec::new();
        let of_sources = |post: &NaivePost, reposter: Option<String>, is_barred| {
            let reason = |source: &String| {
                let (is_named, is_kept) = self.brings(of, source, post.at())?;
                let how = if is_kept { "kept" } else { "follows" };
                let text = match reposter {
                    _ if !is_named => "virtual".to_owned(),
                    None => format!("{how} {source}"),
                    Some(_) => format!("repost {} via {source}", post.id),
                };
                let (reposter, source) = (reposter.clone(), Some(source.clone()));
                Some(Reason { at: post.at(), reposter, source, is_named, is_barred, text })
            };
            post.sources.iter().filter_map(reason).collect::<Vec<_>>()
        };
        if origin.repost_of.is_none() {
            let is_barred = self.is_left_out(of, origin);
            if own(origin) {
                let (at, text) = (origin.at(), "own".to_owned());
                reasons.push(Reason { at, reposter: None, source: None, is_named: false, is_barred, text });
            }
            reasons.extend(of_sources(origin, None, is_barred));
        }
        for repost in reposts.iter().filter(|post| post.repost_of == Some(origin.id)) {
            let is_unwanted_own = of.reader() == Some(&repost.author) && !rules.show_own;
            let is_barred = repost.hidden || !rules.reposts || is_unwanted_own || self.is_silenced(of, repost);
            let reposter = Some(repost.author.clone());
            if own(repost) {
                let text = format!("repost {} via {}", repost.id, repost.author);
                let (at, reposter) = (repost.at(), reposter.clone());
                reasons.push(Reason { at, reposter, source: None, is_named: true, is_barred, text });
            }
            reasons.extend(of_sources(repost, reposter, is_barred));
        }
        reasons
    }

    fn all_reposts(&self) -> Vec<&NaivePost> {
        self.posts.iter().filter(|post| !post.deleted && post.repost_of.is_some()).collect()
    }

    fn entry(&self, of: Of<'_>, origin: &NaivePost, reposts: &[&NaivePost]) -> Option<Expected> {
        if origin.deleted || origin.hidden || self.is_silenced(of, origin) {
            return None;
        }
        let mut reasons = self.reasons(of, origin, reposts);
        reasons.retain(|reason| !reason.is_barred);
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.at));
        let at = reasons.first()?.at;
        reasons.retain(|reason| reason.is_named);
        let mut reposts: Vec<(String, u64)> = Vec::new();
        for reason in &reasons {
            let Some(user) = &reason.reposter else { continue };
            if !reposts.iter().any(|(listed, _)| listed == user) {
                reposts.push((user.clone(), reason.at.1));
            }
        }
        let via: BTreeSet<String> = reasons.into_iter().filter_map(|reason| reason.source).collect();
        let via = if of.reader().is_none() { Vec::new() } else { via.into_iter().collect() };
        Some(Expected { at, post: PostId(origin.id), body: origin.body.clone(), via, reposts })
    }

    /// A whole feed, newest first.
    pub fn entries(&self, of: Of<'_>) -> Vec<Expected> {
        let reposts = self.all_reposts();
        let mut entries: Vec<Expected> = self.posts.iter().filter_map(|post| self.entry(of, post, &reposts)).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        entries
    }

    /// A reader's whole feed, newest first.
    pub fn feed(&self, reader: &str) -> Vec<Expected> {
        self.entries(Of::Home(reader))
    }

    /// A source's own page, newest first.
    pub fn own_page(&self, source: &str) -> Vec<Expected> {
        self.entries(Of::Page(source))
    }

    /// A page, with no more entries of one author than the rules allow.
    pub fn page(&self, of: Of<'_>, asked: Asked, limit: usize) -> ExpectedPage {
        let all = self.entries(of);
        let newest = all.first().map(|entry| entry.at);
        let mut candidates = all.clone();
        match asked {
            Asked::Newest => {}
            Asked::Before(at) => candidates.retain(|entry| entry.at < at),
            Asked::After(at) => candidates.retain(|entry| entry.at > at),
        }
        if let Asked::After(_) = asked {
            candidates.reverse();
        }
        let most = self.feed_rules(of).per_source_max.map_or(usize::MAX, std::num::NonZeroUsize::get);
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        candidates.retain(|entry| {
            let author = self.post(entry.at.1).map_or("", |post| &post.author);
            let taken = taken.entry(author).or_default();
            *taken += 1;
            *taken <= most
        });
        let is_cut = candidates.len() > limit;
        candidates.truncate(limit);
        let mut newest = newest;
        if let Asked::After(_) = asked {
            candidates.reverse();
            newest = candidates.first().filter(|_| is_cut).map(|entry| entry.at).or(newest);
        }
        let oldest = match (candidates.last(), asked) {
            (Some(entry), _) => Some(entry.at),
            (None, Asked::Newest) => None,
            (None, Asked::Before(at) | Asked::After(at)) => Some(at),
        };
        let has_next = all.iter().any(|entry| Some(entry.at) < oldest);
        ExpectedPage { items: candidates, has_next, newest }
    }

    /// Returns the number of unread entries of others, at most 99, and true if there are more. An entry is unread if it is above the
    /// marker, or arrived after the marker was set.
    pub fn unread(&self, reader: &str) -> (usize, bool) {
        let marker = self.markers.get(reader).copied();
        let new = |entry: &&Expected| {
            let post = self.posts.iter().find(|post| post.at() == entry.at).unwrap();
            let arrived = post.arrived.max(self.post(entry.post.0).map_or(0, |origin| origin.arrived));
            let is_read = marker.is_some_and(|(at, arrivals)| entry.at <= at && arrived <= arrivals);
            !is_read && post.author != reader
        };
        let of_others = self.feed(reader).iter().filter(new).count();
        (of_others.min(99), of_others > 99)
    }

    /// Explains why a post is in the home feed. For a repost: why it counts.
    pub fn explain(&self, reader: &str, id: u64) -> Explained {
        let nothing = Explained { shown: false, reasons: BTreeSet::new(), is_blocked: true };
        let Some(post) = self.post(id) else { return nothing };
        let Some(origin) = self.post(post.repost_of.unwrap_or(id)) else { return nothing };
        let mut reasons = self.reasons(Of::Home(reader), origin, &self.all_reposts());
        reasons.retain(|reason| post.repost_of.is_none() || reason.at == post.at());
        let is_out = post.hidden || origin.hidden || self.is_silenced(Of::Home(reader), origin);
        let is_barred = reasons.iter().any(|reason| reason.is_barred);
        let reasons: BTreeSet<String> =
            reasons.into_iter().filter(|reason| !reason.is_barred).map(|reason| reason.text).collect();
        let shown = !is_out && !reasons.is_empty();
        Explained { shown, is_blocked: is_out || (!shown && is_barred), reasons }
    }

    /// Returns true if an explanation may reveal a post to the reader: their own post, or a post with a reason, unless it is hidden,
    /// deleted, or by an author who blocks them.
    pub fn is_there_for(&self, reader: &str, id: u64) -> bool {
        let Some(post) = self.post(id) else { return false };
        let Some(origin) = self.post(post.repost_of.unwrap_or(id)) else { return false };
        let is_there = |post: &NaivePost| !post.hidden && !self.blocks.contains(&pair(&post.author, reader));
        let mut reposts = self.all_reposts();
        reposts.retain(|repost| is_there(repost));
        let mut reasons = self.reasons(Of::Home(reader), origin, &reposts);
        reasons.retain(|reason| post.repost_of.is_none() || reason.at == post.at());
        origin.author == reader || (is_there(post) && is_there(origin) && !reasons.is_empty())
    }

    pub fn followers(&self, source: &str) -> usize {
        self.edges.keys().filter(|(_, followed)| followed == source).count()
    }
}

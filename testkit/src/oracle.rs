//! The naive oracle: posts in a vector, everything readers decided in maps; every read filters everything and sorts.

mod counts;

use std::collections::{BTreeMap, BTreeSet};

use tidewire::feed::rules::{Replies, Rules, RulesPatch};
use tidewire::id::PostId;

/// Where something stands: time, then id.
pub type At = (i64, u64);

#[derive(Clone, Debug, Default)]
pub struct NaivePost {
    pub id: u64,
    pub published_at: i64,
    pub author: String,
    /// The author, then tags, topic and the replies of what it answers, as sources.
    pub sources: Vec<String>,
    pub body: String,
    pub hidden: bool,
    pub deleted: bool,
    /// What it repeats in the end, as of when the later of both was published.
    pub repost_of: Option<u64>,
    pub reply_to: Option<u64>,
    /// Whom it answers, as of when it was published.
    pub answered: Option<String>,
    /// When it was published or last came to be shown again, by [`Oracle::arrivals`].
    pub arrived: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NaiveEdge {
    pub hidden: bool,
    /// What stands below does not come.
    pub start: Option<At>,
}

/// What stays of an edge that is gone.
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
    /// Up to where, and when by [`Oracle::arrivals`].
    pub markers: BTreeMap<String, (At, usize)>,
    /// How many posts came to be shown so far.
    pub arrivals: usize,
}

/// Which feed.
#[derive(Clone, Copy, Debug)]
pub enum Of<'a> {
    Home(&'a str),
    /// Whose, and its name.
    List(&'a str, &'a str),
    /// A source's own posts.
    Page(&'a str),
    /// The same, as its owner sees it.
    Mine(&'a str),
    /// The replies to a post, as a source, and the reader who sees them.
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
    /// Who repeated it, each with the newest repost.
    pub reposts: Vec<(String, u64)>,
}

/// Something that brings a post.
#[derive(Clone, Debug)]
struct Reason {
    at: At,
    /// The repost's author, if it is one.
    reposter: Option<String>,
    /// The source, unless it is the reader's own post.
    source: Option<String>,
    is_named: bool,
    /// A rule speaks against it.
    is_barred: bool,
    text: String,
}

/// What an explanation must say.
#[derive(PartialEq, Eq, Debug)]
pub struct Explained {
    pub shown: bool,
    pub reasons: BTreeSet<String>,
    pub is_blocked: bool,
}

/// Which part of a feed.
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

/// What readers do.
impl Oracle {
    /// Makes an edge that shows and brings everything.
    pub fn follow(&mut self, follower: &str, source: &str) {
        self.follow_with(follower, source, false, None);
    }

    /// Makes an edge, or lets one show or not. True if it is new.
    pub fn follow_with(&mut self, follower: &str, source: &str, hidden: bool, backfill: Option<usize>) -> bool {
        if let Some(edge) = self.edges.get_mut(&pair(follower, source)) {
            // Nobody's own follow is hidden by being asked for as a virtual one.
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

    /// Nothing is left of a user.
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

    /// Edges between the two go. False if it was blocked.
    pub fn block(&mut self, reader: &str, source: &str) -> bool {
        self.unfollow(reader, source);
        self.unfollow(source, reader);
        self.blocks.insert(pair(reader, source))
    }

    pub fn has_block(&self, one: &str, other: &str) -> bool {
        self.blocks.contains(&pair(one, other)) || self.blocks.contains(&pair(other, one))
    }

    /// What a post repeats, for an author who is about to repost it: unknown, if it is hidden or one of both blocks the other.
    pub fn repeated_by(&self, author: &str, id: u64) -> Option<u64> {
        self.post(id)?.repost_of.filter(|_| self.is_shown_to(author, id))
    }

    /// Whether a user may see a post by its id.
    pub fn is_shown_to(&self, user: &str, id: u64) -> bool {
        let Some(post) = self.post(id) else { return false };
        user == post.author || !(post.hidden || self.has_block(user, &post.author))
    }

    /// A new repost of `origin` is known: what named it before repeats `origin` instead, but where one author blocks the other.
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

    /// A post comes to be shown: when.
    pub fn arrives(&mut self) -> usize {
        self.arrivals += 1;
        self.arrivals
    }

    fn positions(&self, source: &str) -> Vec<At> {
        let of_source = |post: &&NaivePost| !post.deleted && post.sources.iter().any(|of| of == source);
        self.posts.iter().filter(of_source).map(NaivePost::at).collect()
    }
}

/// What they see.
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

    /// Whether a feed gets a post of a source: if by an edge that shows, and if by one that is gone.
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

    /// Whether the rules leave out a post that is no repost.
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

    /// All that brings a post, by itself or by a repost.
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

    /// How many entries of others came above the marker, or after it was set, up to 99, and whether there are more.
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

    /// Why a post shows at home, or of a repost: why it counts.
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

    /// Whether an explanation may say anything of a post to the reader: of their own, and of what something brings, unless it is hidden, deleted
    /// or of somebody who blocks them.
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

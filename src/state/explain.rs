//! Explanations: why a post is, or is not, in a feed.

use crate::feed::outbox::{Part, Route};
use crate::feed::page::Visibility;
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceId, SourceSlot};
use crate::state::feed_filter::Finder;
use crate::state::viewer::{self, Viewer};

/// A reason why a post is in a feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The reader is the author of the post.
    Own,
    /// The reader follows a source of the post.
    Follows(SourceId),
    /// The reader has unfollowed a source of the post, and chose to retain its earlier posts.
    Kept(SourceId),
    /// A hidden follow brings the post. It must not be named.
    Virtual,
    /// A repost of it is in the feed.
    Repost {
        /// The author of the repost.
        user: SourceId,
        /// The position of the repost.
        at: Position,
        /// The source: `user`, or a tag or topic of the repost.
        source: SourceId,
    },
}

/// A reason why a post is not in a feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// No post has this id.
    Unknown(PostId),
    /// The post with this id was deleted.
    Deleted(PostId),
    /// The post with this id is hidden from all feeds.
    Hidden(PostId),
    /// The post belongs to a muted source.
    Muted(SourceId),
    /// The post belongs to a blocked source.
    Blocked(SourceId),
    /// The author of the post blocks the reader.
    BlockedBy(SourceId),
    /// The rules exclude the reader's own posts.
    OwnPost,
    /// The rules exclude replies to this author; `None` if the author is not known.
    Reply(Option<SourceId>),
    /// The rules exclude all reposts.
    Repost,
}

/// The explanation why a post is, or is not, in a feed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// True if the post is shown; for a repost, if it counts for the entry of the original.
    pub shown: bool,
    /// All reasons that bring it and that no blocker removes.
    pub reasons: Vec<Reason>,
    /// The blockers that hide it. Empty if it is shown, or if nothing brings it.
    pub blockers: Vec<Blocker>,
    /// The route of the newest of its reasons. `None` if it is not shown.
    pub route: Option<Route>,
    /// The source by whose route it came, unless that source must not be named.
    pub through: Option<SourceId>,
    /// The party whose decisions determine the result.
    pub decided_by: DecidedBy,
}

/// The party whose decisions determine that a post is, or is not, in a feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DecidedBy {
    /// Nothing brings the post, or others hide it from the reader: it is hidden, deleted, or its author blocks the
    /// reader.
    #[default]
    Others,
    /// Something brings the post, and only decisions of the reader may hide it.
    Reader,
    /// The reader is the author of the post.
    Author,
}

impl Explanation {
    /// Removes everything that the reader must not see. A post that others hide from the reader, or that nothing
    /// brings, is reported as unknown: an explanation reveals no more about an id than a feed does.
    #[must_use]
    pub fn for_reader(mut self, id: PostId) -> Self {
        match self.decided_by {
            DecidedBy::Author => {
                self.blockers.retain(|bar| !matches!(bar, Blocker::BlockedBy(_)));
                self
            }
            DecidedBy::Reader => {
                self.blockers.retain(|bar| !bar.is_by_others());
                // The author of the parent post may be a user whose data the reader must not see.
                self.blockers
                    .iter_mut()
                    .filter(|bar| matches!(bar, Blocker::Reply(_)))
                    .for_each(|bar| *bar = Blocker::Reply(None));
                self
            }
            DecidedBy::Others => Self { blockers: vec![Blocker::Unknown(id)], ..Self::default() },
        }
    }
}

impl Blocker {
    fn is_by_others(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Deleted(_) | Self::Hidden(_) | Self::BlockedBy(_))
    }
}

/// The reason why an explanation cannot be given now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExplainUnavailable {
    /// A required post may be in the archive.
    Archived,
    /// A required post is in the archive, but cannot be read.
    Unreadable,
    /// A required post is in the archive, which does not answer at present.
    Late,
}

/// Explains a post by the current state.
///
/// # Errors
/// Fails if a required post is not available.
pub fn explain(finder: Finder<'_>, viewer: &Viewer, id: PostId) -> Result<Explanation, ExplainUnavailable> {
    let post = match found(finder, id)? {
        Ok(post) => post,
        Err(bar) => return Ok(Explanation { blockers: vec![bar], ..Explanation::default() }),
    };
    let (origin, mut bars) = match post.repost_of.map(|origin| found(finder, origin)).transpose()? {
        None => (Some(std::sync::Arc::clone(&post)), Vec::new()),
        Some(Ok(origin)) => (Some(origin), Vec::new()),
        Some(Err(bar)) => (None, vec![bar]),
    };
    let Some(origin) = origin else { return Ok(Explanation { blockers: bars, ..Explanation::default() }) };
    let names = Names(finder);
    if post.hidden {
        bars.push(Blocker::Hidden(post.id()));
    }
    if origin.hidden && origin.id() != post.id() {
        bars.push(Blocker::Hidden(origin.id()));
    }
    bars.extend(viewer.silencers(finder.world(), &origin).map(|blocker| names.bar(blocker, origin.id())));
    let only = post.repost_of.map(|_| post.position);
    let mut collected = Collected::default();
    if only.is_none() {
        collected.direct(viewer, &origin, names);
    }
    let budget = Budget::untimed(Allowance::UNLIMITED);
    for by in viewer.reposts(finder.world(), &origin, &budget) {
        if only.is_none_or(|at| at == by.repost.at) {
            let (at, user) = (by.repost.at, names.id(by.repost.author));
            let named = || Reason::Repost { user, at, source: names.id(by.repost.source) };
            let reason = if by.named { named() } else { Reason::Virtual };
            let bar = by.blocker.map(|blocker| names.bar(blocker, at.id));
            collected.add(reason, bar, at, by.repost.source);
        }
    }
    let Collected { reasons, bars: of_reasons, newest, is_newest_named } = collected;
    let shown = bars.is_empty() && !reasons.is_empty();
    let is_brought = !reasons.is_empty() || of_reasons.iter().any(|bar| !bar.is_by_others());
    let decided_by = match () {
        () if origin.author().slot == viewer.reader => DecidedBy::Author,
        () if is_brought && !bars.iter().any(Blocker::is_by_others) => DecidedBy::Reader,
        () => DecidedBy::Others,
    };
    if !shown {
        bars.extend(of_reasons);
    }
    let blockers = bars;
    let newest = newest.filter(|_| shown);
    let route = newest.map(|(at, source)| route(finder, at, source));
    let through = newest.filter(|_| is_newest_named).map(|(_, source)| names.id(source));
    Ok(Explanation { shown, reasons, blockers, route, through, decided_by })
}

fn found(finder: Finder<'_>, id: PostId) -> Result<Result<std::sync::Arc<Post>, Blocker>, ExplainUnavailable> {
    match finder.find::<()>(id) {
        Ok(post) => Ok(Ok(post)),
        Err(Visibility::Archived) => Err(ExplainUnavailable::Archived),
        Err(Visibility::Unreadable) => Err(ExplainUnavailable::Unreadable),
        Err(Visibility::Late) => Err(ExplainUnavailable::Late),
        Err(Visibility::Gone | Visibility::Hidden | Visibility::Elsewhere | Visibility::Shown(())) => {
            let was = finder.world().posts.stored(id).is_some();
            Ok(Err(if was { Blocker::Deleted(id) } else { Blocker::Unknown(id) }))
        }
    }
}

#[derive(Default)]
struct Collected {
    reasons: Vec<Reason>,
    bars: Vec<Blocker>,
    newest: Option<(Position, SourceSlot)>,
    is_newest_named: bool,
}

impl Collected {
    fn direct(&mut self, viewer: &Viewer, post: &Post, names: Names<'_>) {
        let (direct, at) = (viewer.direct(post), post.position);
        let bar = viewer.rule(names.0.world(), post).map(|blocker| names.bar(blocker, post.id()));
        if direct.own {
            self.add(Reason::Own, bar.clone(), at, post.author().slot);
        }
        for (_, source) in post.sources().iter().enumerate().filter(|(nth, _)| direct.by & (1 << nth) != 0) {
            let id = source.id.clone();
            let reason = match viewer.feed.brings(source.slot, at) {
                Some(brought) if brought.hidden => Reason::Virtual,
                Some(brought) if brought.kept => Reason::Kept(id),
                _ => Reason::Follows(id),
            };
            self.add(reason, bar.clone(), at, source.slot);
        }
    }

    fn add(&mut self, reason: Reason, bar: Option<Blocker>, at: Position, source: SourceSlot) {
        match bar {
            Some(bar) if self.bars.contains(&bar) => {}
            Some(bar) => self.bars.push(bar),
            None => {
                if self.newest < Some((at, source)) {
                    (self.newest, self.is_newest_named) = (Some((at, source)), reason != Reason::Virtual);
                }
                if !self.reasons.contains(&reason) {
                    self.reasons.push(reason);
                }
            }
        }
    }
}

/// Converts slots to external ids.
#[derive(Clone, Copy)]
struct Names<'a>(Finder<'a>);

impl Names<'_> {
    fn id(self, source: SourceSlot) -> SourceId {
        self.0.world().sources.at(source).id.clone()
    }

    fn bar(self, blocker: viewer::Blocker, post: PostId) -> Blocker {
        match blocker {
            viewer::Blocker::Muted(source) => Blocker::Muted(self.id(source)),
            viewer::Blocker::Blocked(source) => Blocker::Blocked(self.id(source)),
            viewer::Blocker::BlockedBy(author) => Blocker::BlockedBy(self.id(author)),
            viewer::Blocker::Hidden => Blocker::Hidden(post),
            viewer::Blocker::OwnPost => Blocker::OwnPost,
            viewer::Blocker::Reply(answered) => Blocker::Reply(answered.map(|answered| self.id(answered))),
            viewer::Blocker::Repost => Blocker::Repost,
        }
    }
}

/// Returns the route by which a post came from one of its sources, as recorded when it was published.
fn route(finder: Finder<'_>, at: Position, source: SourceSlot) -> Route {
    let world = finder.world();
    let source = world.sources.at(source);
    let (pushed, is_archived) = {
        let outbox = source.outbox();
        (outbox.was_pushed(at), !outbox.contains(at))
    };
    let was_pushed = || world.has_archived() && world.is_archived(source, Part::Pushed, at).unwrap_or(false);
    if pushed || (is_archived && was_pushed()) { Route::Push } else { Route::Pull }
}

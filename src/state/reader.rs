//! One reader: how its inbox is rebuilt, synchronized with the follow graph, and turned into pages.
//!
//! Responsible for:
//! - filling an inbox by pull: completely when the reader wakes, and from one source when the reader starts to follow
//!   it;
//! - knowing which followed sources have posts that must be pulled.
//!
//! Not responsible for:
//! - where the inbox is stored and what else writes to it (`runtime::reader::inbox_store`).

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::clock::{Clock, UnixMicros};
use crate::feed::following::Following;
use crate::feed::inbox::Inbox;
use crate::feed::merge::{Input, Merge};
use crate::feed::outbox::Part;
use crate::feed::page::{Feed, Page, Range, Reach, Visibility};
use crate::feed::position::{Direction, Position, Span};
use crate::feed::resume::Settled;
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceSlot};
use crate::limits::PAGE_POSTS_MAX;
use crate::state::catch_up::{catch_up, resume};
use crate::state::feed_view::{Entry, FeedView, Finder, FoundOutboxes, PostLookup};
use crate::state::posts::Stored;
use crate::state::slow::PageTime;
use crate::state::sources::Source;
use crate::state::viewer::Viewer;
use crate::state::world::World;

/// A request for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// Which entries are requested.
    pub range: Range,
    /// Maximum number of entries: 1 to 100 (`PAGE_POSTS_MAX`). A value outside is replaced by the nearer of these two.
    pub limit: usize,
}

impl PageRequest {
    /// Returns the limit that is applied. It is bounded, because the memory of a page is allocated before the page is
    /// filled.
    fn bounded_limit(self) -> usize {
        self.limit.clamp(1, PAGE_POSTS_MAX)
    }
}

/// A required post may be in the archive only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Archived;

/// The clock and the deadline of a read.
#[derive(Clone, Copy)]
pub struct ReadClock<'a> {
    /// The source of the current time.
    pub clock: &'a dyn Clock,
    /// After this instant the page ends with the entries found so far.
    pub deadline: UnixMicros,
}

impl ReadClock<'_> {
    fn is_late(self) -> bool {
        self.clock.now() > self.deadline
    }
}

/// The state of a reader's actor besides its inbox. All of it can be rebuilt from the world.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    pulled: Arc<PulledSources>,
}

/// The followed sources that have posts to pull, for one version of the edges and one epoch of the world.
#[derive(Debug, Default)]
pub struct PulledSources {
    as_of: Option<(u64, u64)>,
    parts: Vec<(SourceSlot, Part)>,
}

/// Maximum work for a page on the thread of its caller, in the units of [`Work::units`](crate::feed::work::Work::units): some 0.5 ms. A
/// page of 20 entries takes some 5,000 units.
const DIRECT_WORK_MAX: u64 = 50_000;

/// Maximum number of pulled sources of a page that is built on the thread of its caller.
const DIRECT_PULLED_MAX: usize = 256;

/// Maximum number of sources among which the thread of a caller searches for those to pull: some 20 us. The actor does it for readers with
/// more.
const DIRECT_LISTED_MAX: usize = 1_024;

impl Reader {
    /// Creates a reader whose inbox is not filled yet.
    pub fn new(source: Arc<Source>) -> Self {
        Self { source, pulled: Arc::default() }
    }

    /// The source that reads this feed.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Fills the inbox from every followed outbox. Posts that are pushed into it meanwhile are kept.
    pub fn rebuild(&mut self, inbox: &mut Inbox, world: &World) {
        inbox.set_synced(UnixMicros(i64::MIN));
        // Posts published while the reader was asleep were not pushed. Late ones among them are noted only with their
        // sources.
        inbox.note_late(world.arrivals.applied().through);
        sync(&self.source.following(), inbox, world);
    }

    /// Synchronizes the inbox with the edges.
    pub fn sync(&self, inbox: &mut Inbox, world: &World) {
        sync(&self.source.following(), inbox, world);
    }

    /// Builds a page from the current state, and returns it with the viewer and the instant up to which posts had
    /// arrived. The page can be shown if it reached as far as requested: other readers wait for this thread, so a page
    /// that takes long must be built elsewhere.
    pub fn page(
        &mut self,
        inbox: &mut Inbox,
        world: &World,
        request: PageRequest,
        oldest: UnixMicros,
        time: ReadClock<'_>,
    ) -> (Page<Entry>, Viewer, Settled) {
        // Taken first: a post that arrives from here on may be on the page, but does not count as delivered to the
        // client.
        let settled = world.arrivals.settled();
        let viewer = self.synchronize(inbox, world, oldest);
        let is_late = || time.is_late();
        let budget = Budget::new(Allowance::ON_SHARD, &is_late);
        let mut view = FeedView::new(Finder::Memory(world), &viewer, Some(inbox), &budget);
        let page = build(&mut view, &self.pulled.parts, settled, request);
        for position in &page.gone {
            inbox.remove(*position);
        }
        (page, viewer, settled)
    }

    /// Returns the newest entries of the whole feed in memory, newest first, the position from which upwards they are
    /// complete, and the viewer. Returns no entries if finding them would take long.
    pub fn newest(
        &mut self,
        inbox: &mut Inbox,
        world: &World,
        entries: usize,
        oldest: UnixMicros,
        budget: &Budget<'_>,
    ) -> (Vec<(Position, Entry)>, Position, Viewer) {
        let viewer = self.synchronize(inbox, world, oldest);
        let mut view = FeedView::new(Finder::Memory(world), &viewer, Some(inbox), budget);
        let request = PageRequest { range: Range::Newest, limit: entries };
        let page = fill(&mut view, &self.pulled.parts, &[], request, None);
        if !page.partial.is_empty() || page.reach == Reach::Nothing {
            return (Vec::new(), Position::MAX, viewer);
        }
        let last = page.items.last().map(|item| item.0).or(page.next);
        let is_all = page.next.is_none() && !page.needs_archive;
        let floor = if is_all { Position::MIN } else { last.unwrap_or(Position::MAX) };
        (page.items, floor, viewer)
    }

    /// Returns the entry of a post, if it has one. Posts that are not in memory may be among `fetched`.
    ///
    /// # Errors
    /// Fails if a required post may be in the archive and was not fetched.
    pub fn entry_of(
        &self,
        inbox: &mut Inbox,
        world: &World,
        post: PostId,
        fetched: Option<&[PostLookup]>,
        budget: &Budget<'_>,
    ) -> Result<Option<(Position, Entry)>, Archived> {
        let following = self.source.following();
        sync(&following, inbox, world);
        let finder = fetched.map_or(Finder::Memory(world), |found| Finder::Fetched(world, found));
        let viewer = Viewer::home(&self.source, &following);
        match FeedView::new(finder, &viewer, Some(inbox), budget).entry_of(post) {
            Ok(entry) => Ok(Some(entry)),
            Err(Visibility::Archived) => Err(Archived),
            Err(_) => Ok(None),
        }
    }

    /// Synchronizes the inbox and the list of pulled sources with the world, and returns the viewer for the edges used.
    fn synchronize(&mut self, inbox: &mut Inbox, world: &World, oldest: UnixMicros) -> Viewer {
        // The inbox forgets entries older than this; reads of older positions continue by pull.
        inbox.raise_floor(Position { published_at: oldest, id: PostId(0) });
        let following = self.source.following();
        sync(&following, inbox, world);
        self.refresh_pulled(&following, world);
        Viewer::home(&self.source, &following)
    }

    /// Returns the viewer for the current edges and preferences of the reader.
    pub fn viewer(&self) -> Viewer {
        Viewer::home(&self.source, &self.source.following())
    }

    /// Copies what is needed to build a page elsewhere, with the archive, as of the state that the viewer was made
    /// from.
    pub fn cold_read(&mut self, viewer: Viewer, settled: Settled, inbox: &Inbox, world: &World) -> ColdRead {
        self.refresh_pulled(&viewer.feed, world);
        ColdRead { viewer, settled, inbox: inbox.clone(), warm: self.pulled.parts.clone() }
    }

    /// Returns the sources that were pulled for the last page, for pages that are built elsewhere.
    pub fn pulled(&self) -> &Arc<PulledSources> {
        &self.pulled
    }

    fn refresh_pulled(&mut self, following: &Following, world: &World) {
        if !self.pulled.is_current(following, world) {
            self.pulled = Arc::new(PulledSources::of(&self.source, following, world));
        }
    }
}

/// Adds the earlier posts of sources that were followed since the last synchronization.
fn sync(following: &Following, inbox: &mut Inbox, world: &World) {
    if following.last_made() <= inbox.synced() {
        return;
    }
    // Posts that arrived late at these sources arrive late at this inbox, together with the edge.
    if following.made_after(inbox.synced()).any(|source| world.sources.at(source).outbox().late().is_some()) {
        inbox.note_late(world.arrivals.applied().through);
    }
    let posts_max = inbox.posts_max().get();
    let inputs = following.made_after(inbox.synced()).map(|source| Input::Outbox(source, Part::Pushed));
    let span = Span { above: inbox.floor(), ..Span::ALL };
    let budget = Budget::untimed(Allowance::UNLIMITED);
    let mut merge = Merge::new(&world.sources, &budget, inputs, span, Direction::Older, posts_max + 1);
    let newest: Vec<Position> = merge.by_ref().take(posts_max + 1).collect();
    let kept = newest.len().min(posts_max);
    // Archived posts are left out as well: pages that reach them are built with the archive.
    let left_out = newest.get(posts_max).copied().or(merge.into_shortfall().archived);
    inbox.absorb(&newest[..kept], left_out);
    inbox.set_synced(following.last_made());
}

/// A page that is built from a copy of an inbox, on the thread of its caller.
pub struct DirectPage<'a> {
    world: &'a World,
    request: PageRequest,
    settled: Settled,
    following: Arc<Following>,
    viewer: Viewer,
}

impl<'a> DirectPage<'a> {
    /// Reads what must be read before the inbox is copied. Returns none if such a page begins at any position: only the newest ones are
    /// copied.
    pub fn new(source: &Source, world: &'a World, request: PageRequest) -> Option<Self> {
        if matches!(request.range, Range::Before(_)) {
            return None;
        }
        // The order is that of [`Reader::page`].
        let settled = world.arrivals.settled();
        let following = source.following();
        let viewer = Viewer::home(source, &following);
        Some(Self { world, request, settled, following, viewer })
    }

    /// Returns the number of positions to copy: twice as many as entries are requested, since some may not be shown.
    pub fn positions(&self) -> usize {
        2 * (self.request.bounded_limit() + 1)
    }

    /// Returns true if the page may be built from this copy: it has the posts of all edges, and reaches down to where the range begins.
    pub fn suffices(&self, inbox: &Inbox) -> bool {
        let has_range = match self.request.range {
            Range::Newest | Range::Before(_) => true,
            Range::After(above) => above >= inbox.floor(),
            Range::Resume(token) | Range::Since(token) => token.floor() >= inbox.floor(),
        };
        has_range && self.following.last_made() <= inbox.synced()
    }

    /// Returns the sources to pull, and true if they are not those that were `known`. Returns none if finding them would take long.
    pub fn pulled(&self, own: &Source, known: Option<Arc<PulledSources>>) -> Option<(Arc<PulledSources>, bool)> {
        match known.filter(|known| known.is_current(&self.following, self.world)) {
            Some(known) => Some((known, false)),
            None if self.following.reach_len() > DIRECT_LISTED_MAX => None,
            None => Some((Arc::new(PulledSources::of(own, &self.following, self.world)), true)),
        }
    }

    /// Builds the page from a copy of the inbox. Returns none if that takes longer than a caller's thread should work, needs the archive, or
    /// needs more of the inbox than was copied: `is_cut` is true if there is more.
    pub fn build(
        &self,
        inbox: &Inbox,
        is_cut: bool,
        pulled: &PulledSources,
        time: ReadClock<'_>,
    ) -> Option<Page<Entry>> {
        if pulled.parts.len() > DIRECT_PULLED_MAX {
            return None;
        }
        let is_late = || time.is_late();
        let budget = Budget::new(Allowance { units_max: DIRECT_WORK_MAX, ..Allowance::ON_SHARD }, &is_late);
        let mut view = FeedView::new(Finder::Memory(self.world), &self.viewer, Some(inbox), &budget);
        view.ends_at_floor = is_cut;
        let page = build(&mut view, &pulled.parts, self.settled, self.request);
        let is_full = match self.request.range {
            Range::Newest | Range::Before(_) => page.next.is_some() && page.items.len() == self.request.bounded_limit(),
            Range::After(_) | Range::Resume(_) => page.next.is_some(),
            Range::Since(_) => true,
        };
        (!page.needs_archive && page.reach == Reach::Full && (is_full || !is_cut)).then_some(page)
    }
}

impl PulledSources {
    fn of(own: &Source, following: &Following, world: &World) -> Self {
        // The epoch is read first: if a source gets posts to pull after that, the epoch changes again.
        let as_of = Some((following.version(), world.pulled_epoch()));
        let has_pulled = |source: &SourceSlot| world.sources.at(*source).outbox().has_pulled();
        let followed = following.edges().iter().map(|edge| edge.source);
        let pulled = followed.filter(has_pulled).map(|source| (source, Part::Pulled));
        // A reader's own posts are pushed to the followers, not to the reader.
        let never_pushed = following.only_kept().chain([own.slot]);
        let parts = pulled.chain(never_pushed.map(|source| (source, Part::Whole))).collect();
        Self { as_of, parts }
    }

    fn is_current(&self, following: &Following, world: &World) -> bool {
        self.as_of == Some((following.version(), world.pulled_epoch()))
    }

    /// Returns the bytes on the heap, with its own struct but without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.parts.capacity() * size_of::<(SourceSlot, Part)>()
    }
}

/// Which entry to look up in the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupTarget {
    /// The entry that shows this post.
    Of(PostId),
    /// The entry to which this post belongs: of the original if it is a repost, otherwise its own.
    BroughtBy(PostId),
}

/// The data to build a page outside the reader's actor, on a thread that may block on disk reads.
#[derive(Debug)]
pub struct ColdRead {
    viewer: Viewer,
    /// Taken before the viewer was made and the inbox was copied.
    settled: Settled,
    inbox: Inbox,
    warm: Vec<(SourceSlot, Part)>,
}

impl ColdRead {
    /// Looks up the posts needed to find an entry. Returns the id of the post that the entry shows, and these posts, or
    /// `None` if one cannot be read.
    pub fn entry_of(&self, world: &World, sought: LookupTarget) -> Option<(PostId, Vec<PostLookup>)> {
        let find = |id: PostId| Some((id, world.find(id).ok()?.and_then(Stored::live)));
        let (LookupTarget::Of(post) | LookupTarget::BroughtBy(post)) = sought;
        let mut found = vec![find(post)?];
        // A repost may itself have reposts, if they arrived before it: their entry is its own.
        let repeated = found[0].1.as_ref().and_then(|post| post.repost_of);
        if let Some(origin) = repeated.filter(|_| matches!(sought, LookupTarget::BroughtBy(_))) {
            found.push(find(origin)?);
        }
        let origin = found[found.len() - 1].0;
        let budget = Budget::untimed(Allowance::UNLIMITED);
        let mut view = FeedView::new(Finder::Archive(world), &self.viewer, Some(&self.inbox), &budget);
        if let Ok((at, _)) = view.entry_of(origin) {
            found.push(find(at.id)?);
        }
        Some((origin, found))
    }

    /// Builds the page from memory and the archive.
    pub fn page(&self, world: &World, request: PageRequest, time: ReadClock<'_>) -> Page<Entry> {
        let seed = time.clock.now().0 as u64;
        let time = PageTime::new(time, self.viewer.has_one_source(world));
        let (finder, viewer, is_late) = (Finder::Archive(world), &self.viewer, || time.is_late());
        let budget = Budget::new(Allowance::last(seed), &is_late);
        let mut view = FeedView::new(finder, viewer, Some(&self.inbox), &budget);
        view.time = Some(&time);
        build(&mut view, &self.warm, self.settled, request)
    }
}

/// Builds a page of a feed that receives no pushed posts: a list, or a source's own posts. A page built from memory
/// alone can be shown if it reached as far as requested: other readers wait for this thread. `settled` is as of before
/// the viewer was made.
pub fn pulled_page(
    viewer: &Viewer,
    settled: Settled,
    finder: Finder<'_>,
    request: PageRequest,
    time: ReadClock<'_>,
) -> Page<Entry> {
    let allowance = match finder {
        Finder::Memory(_) | Finder::Fetched(..) => Allowance::ON_SHARD,
        Finder::Archive(_) => Allowance::last(time.clock.now().0 as u64),
    };
    let time = PageTime::new(time, viewer.has_one_source(finder.world()));
    let is_late = || time.is_late();
    let budget = Budget::new(allowance, &is_late);
    let mut view = FeedView::new(finder, viewer, None, &budget);
    view.time = Some(&time);
    build(&mut view, &[], settled, request)
}

/// Builds a page. `warm` has the outboxes that must be merged with the inbox.
fn build(view: &mut FeedView<'_>, warm: &[(SourceSlot, Part)], settled: Settled, request: PageRequest) -> Page<Entry> {
    let (viewer, arrivals) = (view.viewer, &view.finder.world().arrivals);
    let (is_steady, (range, gap, mut page)) = arrivals.watch_for_removals(|| build_by_token(view, warm, request));
    page.gap = gap;
    page.resume = resume(&page, range, viewer, settled);
    if let Some(resume) = &mut page.resume {
        // An entry may have moved below this page while it was built.
        resume.is_partial |= !is_steady && (page.may_fall || resume.may_fall);
    }
    // A virtual follow is hidden, so the page does not report that its source could not be read.
    page.partial.retain(|source| !viewer.feed.get(*source).is_some_and(|edge| edge.hidden));
    page
}

/// Fills a page; if the request has a token, with the entries that are new to the client. Returns the range that the
/// page shows, true if the client has to read the feed again, and the page.
fn build_by_token(
    view: &mut FeedView<'_>,
    warm: &[(SourceSlot, Part)],
    request: PageRequest,
) -> (Range, bool, Page<Entry>) {
    let viewer = view.viewer;
    let (range, late, gap) = catch_up(view, warm, request.range);
    let request = PageRequest { range, ..request };
    // A count of unread entries ignores the limit per source of one page, and the reader's own posts are never unread.
    let is_count = matches!(request.range, Range::Since(_));
    view.of_others = is_count;
    let per_source_max = viewer.preferences.rules.per_source_max.filter(|_| !is_count);
    (range, gap, fill(view, warm, &late, request, per_source_max))
}

fn fill(
    view: &mut FeedView<'_>,
    warm: &[(SourceSlot, Part)],
    late: &[Position],
    request: PageRequest,
    per_source_max: Option<NonZeroUsize>,
) -> Page<Entry> {
    let viewer = view.viewer;
    let own = viewer.has_own.then_some(viewer.reader);
    let goes_below_floor = !view.ends_at_floor;
    let feed = Feed {
        inbox: view.inbox,
        warm,
        sources: viewer.feed.sources().chain(own).filter(move |_| goes_below_floor),
        outboxes: &FoundOutboxes { finder: view.finder, budget: view.budget, time: view.time },
        budget: view.budget,
        per_source_max,
        late,
    };
    feed.page(request.range, request.bounded_limit(), view)
}

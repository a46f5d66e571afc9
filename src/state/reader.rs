//! One reader: rebuilds its inbox, synchronizes it with the follow graph, and builds pages from it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::inbox::Inbox;
use crate::feed::merge::{Input, Merge};
use crate::feed::outbox::Part;
use crate::feed::page::{Feed, Page, Range, Reach, Visibility, WarmPart};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::resume::{DeliveryWatermark, Resume};
use crate::feed::work::{Allowance, Budget};
use crate::id::PostId;
use crate::limits::PAGE_POSTS_MAX;
use crate::state::catch_up::{catch_up, resumable_from, resume};
use crate::state::feed_filter::{Entry, FeedFilter, Finder, FoundOutboxes, PostLookup};
use crate::state::posts::Stored;
use crate::state::read_clock::ReadClock;
use crate::state::slow::PageTime;
use crate::state::sources::Source;
use crate::state::viewer::Viewer;
use crate::state::world::World;

/// A request for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// The range of the requested entries.
    pub range: Range,
    /// Maximum number of entries: 1 to 100 (`PAGE_POSTS_MAX`). A value outside is replaced by the nearer of these two.
    pub limit: usize,
}

impl PageRequest {
    /// Requests the newest entries, at most `limit` of them.
    pub const fn newest(limit: usize) -> Self {
        Self { range: Range::Newest, limit }
    }

    /// Requests the entries directly below a position, such as `next` of a page.
    pub const fn before(position: Position, limit: usize) -> Self {
        Self { range: Range::Before(position), limit }
    }

    /// Requests the entries that were added to the feed after a page, given the `resume` of that page.
    pub const fn resume(page: Resume, limit: usize) -> Self {
        Self { range: Range::Resume(page), limit }
    }

    /// Returns the limit that is applied. It is bounded, because the memory of a page is allocated before the page is
    /// filled.
    pub(super) fn bounded_limit(self) -> usize {
        self.limit.clamp(1, PAGE_POSTS_MAX)
    }
}

/// A required post may be in the archive only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Archived;

/// The state of a reader's actor besides its inbox. All of it can be rebuilt from the world.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    pulled: Arc<PulledSources>,
}

/// The reader of a page, and the delivery watermark at its start: with the inbox and the world, all inputs of a page.
#[derive(Debug)]
pub struct PageStart {
    pub(super) settled: DeliveryWatermark,
    pub(super) viewer: Viewer,
}

/// The followed sources that have posts to pull, for one version of the edges and one epoch of the world.
#[derive(Debug, Default)]
pub struct PulledSources {
    as_of: Option<(u32, u64)>,
    pub(super) parts: Vec<WarmPart>,
}

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
        inbox.note_late(world.delivery.applied().through);
        sync(&self.source.following(), inbox, world);
    }

    /// Makes a reader follow a source that does not exist, so that its inbox cannot be filled.
    #[cfg(test)]
    pub(crate) fn follow_nothing(source: &Source, world: &World) {
        let nothing = crate::id::SourceSlot::NONE;
        world.sources.change_edges(source, |edges| edges.following_mut().insert(nothing, UnixMicros(1), false));
    }

    /// Synchronizes the inbox with the edges.
    pub fn sync(&self, inbox: &mut Inbox, world: &World) {
        sync(&self.source.following(), inbox, world);
    }

    /// Builds a page from a copy of the inbox that was made after the start, and synchronized with it. The page can be shown if it reached
    /// as far as requested: other readers wait for this thread, so a page that takes long must be built elsewhere.
    pub fn page(
        &mut self,
        start: &PageStart,
        inbox: &Inbox,
        world: &World,
        request: PageRequest,
        time: ReadClock<'_>,
    ) -> Page<Entry> {
        self.refresh_pulled(&start.viewer.feed, world);
        let is_late = || time.is_late();
        let budget = Budget::new(Allowance::ON_SHARD, &is_late);
        let mut view = FeedFilter::new(Finder::Memory(world), &start.viewer, Some(inbox), &budget);
        build(&mut view, &self.pulled.parts, start.settled, request)
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
        let PageStart { viewer, .. } = PageStart::of(&self.source, world);
        synchronize(&viewer.feed, inbox, world, oldest);
        self.refresh_pulled(&viewer.feed, world);
        let mut view = FeedFilter::new(Finder::Memory(world), &viewer, Some(inbox), budget);
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
        match FeedFilter::new(finder, &viewer, Some(inbox), budget).entry_of(post) {
            Ok(entry) => Ok(Some(entry)),
            Err(Visibility::Archived) => Err(Archived),
            Err(_) => Ok(None),
        }
    }

    /// Returns the data to build a page elsewhere, with the archive, from a copy of the inbox that was made after the start.
    pub fn cold_read(&mut self, start: PageStart, inbox: Inbox, world: &World) -> ColdRead {
        self.refresh_pulled(&start.viewer.feed, world);
        ColdRead { start, inbox, warm: self.pulled.parts.clone() }
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

impl PageStart {
    /// Reads the data that must be read before the inbox is copied. A post that arrives from here on may be on the page, but does not
    /// count as delivered to the client.
    pub fn of(source: &Source, world: &World) -> Self {
        let settled = world.delivery.settled();
        Self { settled, viewer: Viewer::home(source, &source.following()) }
    }

    /// Synchronizes an inbox with the edges that the page shows, and removes posts that are too old for it.
    pub fn synchronize(&self, inbox: &mut Inbox, world: &World, oldest: UnixMicros) {
        synchronize(&self.viewer.feed, inbox, world, oldest);
    }

    /// Returns the viewer of the page.
    pub fn viewer(&self) -> &Viewer {
        &self.viewer
    }
}

fn synchronize(following: &Following, inbox: &mut Inbox, world: &World, oldest: UnixMicros) {
    // The inbox drops entries older than this; reads of older positions continue by pull.
    inbox.raise_floor(Position { published_at: oldest, id: PostId(0) });
    sync(following, inbox, world);
}

/// Adds the earlier posts of sources that were followed since the last synchronization.
fn sync(following: &Following, inbox: &mut Inbox, world: &World) {
    if following.last_made() <= inbox.synced() {
        return;
    }
    // Posts that arrived late at these sources arrive late at this inbox, together with the edge.
    if following.made_after(inbox.synced()).any(|source| world.sources.at(source).outbox().late().is_some()) {
        inbox.note_late(world.delivery.applied().through);
    }
    let posts_max = inbox.posts_max().get();
    let inputs = following.made_after(inbox.synced()).map(|source| Input::Outbox(source, Part::Pushed));
    let span = PositionRange { above: inbox.floor(), ..PositionRange::ALL };
    let budget = Budget::untimed(Allowance::UNLIMITED);
    let mut merge = Merge::new(&world.sources, &budget, inputs, span, Direction::Older, posts_max + 1);
    let newest: Vec<Position> = merge.by_ref().take(posts_max + 1).collect();
    let kept = newest.len().min(posts_max);
    // Archived posts are left out as well: pages that reach them are built with the archive.
    let left_out = newest.get(posts_max).copied().or(merge.into_shortfall().archived);
    inbox.absorb(&newest[..kept], left_out);
    inbox.set_synced(following.last_made());
}

impl PulledSources {
    pub(super) fn of(own: &Source, following: &Following, world: &World) -> Self {
        // The epoch is read first: if a source gets posts to pull after that, the epoch changes again.
        let as_of = Some((following.version(), world.pulled_epoch()));
        let pulled = following.followed().filter_map(|source| {
            let until = world.pulled_until(world.sources.at(source))?;
            Some(WarmPart { source, part: Part::Pulled, until })
        });
        // A reader's own posts are pushed to the followers, not to the reader.
        let never_pushed = following.only_kept().chain([own.slot]);
        let whole = never_pushed.map(|source| WarmPart { source, part: Part::Whole, until: Position::MAX });
        let parts = pulled.chain(whole).collect();
        Self { as_of, parts }
    }

    pub(super) fn is_current(&self, following: &Following, world: &World) -> bool {
        self.as_of == Some((following.version(), world.pulled_epoch()))
    }

    /// Returns a current list with a source that does not exist, from which no page can be built.
    #[cfg(test)]
    pub(crate) fn broken(own: &Source, world: &World) -> Self {
        Self {
            parts: vec![WarmPart { source: crate::id::SourceSlot::NONE, part: Part::Whole, until: Position::MAX }],
            ..Self::of(own, &own.following(), world)
        }
    }

    /// Returns the bytes on the heap, with its own struct but without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.parts.capacity() * size_of::<WarmPart>()
    }
}

/// The entry to look up in the archive.
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
    start: PageStart,
    inbox: Inbox,
    warm: Vec<WarmPart>,
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
        let mut view = FeedFilter::new(Finder::Archive(world), &self.start.viewer, Some(&self.inbox), &budget);
        if let Ok((at, _)) = view.entry_of(origin) {
            found.push(find(at.id)?);
        }
        Some((origin, found))
    }

    /// Builds the page from memory and the archive.
    pub fn page(&self, world: &World, request: PageRequest, time: ReadClock<'_>) -> Page<Entry> {
        let seed = time.clock.now().0 as u64;
        let PageStart { settled, viewer } = &self.start;
        let time = PageTime::new(time, viewer.has_one_source(world));
        let (finder, is_late) = (Finder::Archive(world), || time.is_late());
        let budget = Budget::new(Allowance::last(seed), &is_late);
        let mut view = FeedFilter::new(finder, viewer, Some(&self.inbox), &budget);
        view.time = Some(&time);
        build(&mut view, &self.warm, *settled, request)
    }
}

/// Builds a page of a feed that receives no pushed posts: a list, or a source's own posts. A page built from memory alone can be shown if
/// it reached as far as requested: other readers wait for this thread. `settled` is the watermark before the viewer was created.
pub fn pulled_page(
    viewer: &Viewer,
    settled: DeliveryWatermark,
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
    let mut view = FeedFilter::new(finder, viewer, None, &budget);
    view.time = Some(&time);
    build(&mut view, &[], settled, request)
}

/// Builds a page. `warm` contains the outboxes that must be merged with the inbox.
pub(super) fn build(
    view: &mut FeedFilter<'_>,
    warm: &[WarmPart],
    settled: DeliveryWatermark,
    request: PageRequest,
) -> Page<Entry> {
    let (viewer, delivery) = (view.viewer, &view.finder.world().delivery);
    let (is_steady, (range, gap, mut page)) = delivery.watch_for_removals(|| build_by_token(view, warm, request));
    page.gap = gap;
    page.resume = resume(&page, range, viewer, settled);
    if let Some(resume) = &mut page.resume {
        // An entry may have moved below this page while it was built.
        resume.is_partial |= !is_steady && (page.may_fall || resume.may_fall);
        page.resumable_from = resumable_from(view, warm, *resume);
    }
    // A hidden follow must not be named, so the page does not report that its source could not be read.
    page.partial.retain(|source| !viewer.feed.get(*source).is_some_and(|edge| edge.hidden));
    page
}

/// Fills a page; if the request has a token, with the entries that are new to the client. Returns the range that the
/// page shows, true if the client has to read the feed again, and the page.
fn build_by_token(view: &mut FeedFilter<'_>, warm: &[WarmPart], request: PageRequest) -> (Range, bool, Page<Entry>) {
    let viewer = view.viewer;
    let (range, late, gap) = catch_up(view, warm, request.range);
    let request = PageRequest { range, ..request };
    // A count of unread entries ignores the limit per source of one page, and the reader's own posts are never unread.
    let is_count = request.range.is_count();
    view.of_others = is_count;
    let per_source_max = viewer.rules.per_source_max.filter(|_| !is_count);
    (range, gap, fill(view, warm, &late, request, per_source_max))
}

fn fill(
    view: &mut FeedFilter<'_>,
    warm: &[WarmPart],
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

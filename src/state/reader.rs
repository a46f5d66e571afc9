//! One reader: how an inbox is rebuilt, kept in step with the follow graph, and turned into pages.
//!
//! Responsible for:
//! - filling an inbox by pull, whole when the reader wakes, and from a source when the reader starts to follow it;
//! - knowing which followed sources have posts that must be pulled.
//!
//! Not responsible for:
//! - the inbox's place in memory and who else writes to it (`runtime::reader::inbox_store`).

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::clock::{Clock, UnixMicros};
use crate::feed::following::Following;
use crate::feed::inbox::Inbox;
use crate::feed::merge::{Input, Merge};
use crate::feed::outbox::Part;
use crate::feed::page::{Feed, Look, Page, Range, Reach};
use crate::feed::position::{Direction, Position, Span};
use crate::feed::resume::Settled;
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceSlot};
use crate::limits::PAGE_POSTS_MAX;
use crate::state::catch_up::{catch_up, resume};
use crate::state::posts::Stored;
use crate::state::slow::PageTime;
use crate::state::sources::Source;
use crate::state::view::{Entry, FeedView, Finder, Found, FoundOutboxes};
use crate::state::viewer::Viewer;
use crate::state::world::World;

/// A page that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// Which entries.
    pub range: Range,
    /// How many at most: 1 to [`PAGE_POSTS_MAX`]. What lies outside counts as the nearer of these.
    pub limit: usize,
}

impl PageRequest {
    /// The limit that is kept to: a page's memory is taken before it is filled.
    fn bounded_limit(self) -> usize {
        self.limit.clamp(1, PAGE_POSTS_MAX)
    }
}

/// What it takes may be in the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Archived;

/// How a read looks at time.
#[derive(Clone, Copy)]
pub struct ReadClock<'a> {
    /// Where "now" comes from.
    pub clock: &'a dyn Clock,
    /// After this the page ends, as far as it came.
    pub deadline: UnixMicros,
}

impl ReadClock<'_> {
    fn is_late(self) -> bool {
        self.clock.now() > self.deadline
    }
}

/// What a reader's actor knows beside its inbox. All of it can be made anew from the world.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    pulled: PulledSources,
}

/// The followed sources that have posts to pull, as of a version of the edges and an epoch of the world.
#[derive(Debug, Default)]
struct PulledSources {
    as_of: Option<(u64, u64)>,
    parts: Vec<(SourceSlot, Part)>,
}

impl Reader {
    /// A reader whose inbox is not filled yet.
    pub fn new(source: Arc<Source>) -> Self {
        Self { source, pulled: PulledSources::default() }
    }

    /// Who reads.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Fills the inbox from every followed outbox. Posts pushed into it meanwhile stay.
    pub fn rebuild(&mut self, inbox: &mut Inbox, world: &World) {
        inbox.set_synced(UnixMicros(i64::MIN));
        // What came while the reader slept was not pushed: the sources know of it.
        inbox.note_late(world.arrivals.applied().through);
        sync(&self.source.following(), inbox, world);
    }

    /// Brings the inbox in step with the edges.
    pub fn sync(&self, inbox: &mut Inbox, world: &World) {
        sync(&self.source.following(), inbox, world);
    }

    /// Builds a page, by the state of this moment, and says through whose eyes and as of when. It is one to be shown if it came as far as was asked for:
    /// others wait for the thread this is done on, and what takes long is to be built elsewhere.
    pub fn page(
        &mut self,
        inbox: &mut Inbox,
        world: &World,
        request: PageRequest,
        oldest: UnixMicros,
        time: ReadClock<'_>,
    ) -> (Page<Entry>, Viewer, Settled) {
        // First of all: what arrives from here on may be on the page, and does not count as given.
        let settled = world.arrivals.settled();
        let viewer = self.keep_up(inbox, world, oldest);
        let is_late = || time.is_late();
        let budget = Budget::new(Allowance::ON_SHARD, &is_late);
        let mut view = FeedView::new(Finder::Memory(world), &viewer, Some(inbox), &budget);
        let page = build(&mut view, &self.pulled.parts, settled, request);
        for position in &page.gone {
            inbox.remove(*position);
        }
        (page, viewer, settled)
    }

    /// The newest entries of the whole feed, newest first, as far as they are in memory, from where up they are all there are,
    /// and through whose eyes. None may be known, where finding them would take long.
    pub fn newest(
        &mut self,
        inbox: &mut Inbox,
        world: &World,
        entries: usize,
        oldest: UnixMicros,
        budget: &Budget<'_>,
    ) -> (Vec<(Position, Entry)>, Position, Viewer) {
        let viewer = self.keep_up(inbox, world, oldest);
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

    /// The entry of a post, if it has one. What is not in memory may be among `fetched`.
    ///
    /// # Errors
    /// When something of it may be in the archive, and was not fetched.
    pub fn entry_of(
        &self,
        inbox: &mut Inbox,
        world: &World,
        post: PostId,
        fetched: Option<&[Found]>,
        budget: &Budget<'_>,
    ) -> Result<Option<(Position, Entry)>, Archived> {
        let following = self.source.following();
        sync(&following, inbox, world);
        let finder = fetched.map_or(Finder::Memory(world), |found| Finder::Fetched(world, found));
        let viewer = Viewer::home(&self.source, &following);
        match FeedView::new(finder, &viewer, Some(inbox), budget).entry_of(post) {
            Ok(entry) => Ok(Some(entry)),
            Err(Look::Archived) => Err(Archived),
            Err(_) => Ok(None),
        }
    }

    /// Brings what is known beside the world in step with it, and says what the reader has decided by then.
    fn keep_up(&mut self, inbox: &mut Inbox, world: &World, oldest: UnixMicros) -> Viewer {
        // By age the inbox forgets what is older; reads go on below by pull.
        inbox.raise_floor(Position { published_at: oldest, id: PostId(0) });
        let following = self.source.following();
        sync(&following, inbox, world);
        self.pulled.refresh(&self.source, &following, world);
        Viewer::home(&self.source, &following)
    }

    /// Through whose eyes the feed is seen now.
    pub fn viewer(&self) -> Viewer {
        Viewer::home(&self.source, &self.source.following())
    }

    /// What it takes to build a page elsewhere, with the archive, as of when the viewer looked.
    pub fn cold_read(&mut self, viewer: Viewer, settled: Settled, inbox: &Inbox, world: &World) -> ColdRead {
        self.pulled.refresh(&self.source, &viewer.feed, world);
        ColdRead { viewer, settled, inbox: inbox.clone(), warm: self.pulled.parts.clone() }
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        self.pulled.parts.capacity() * size_of::<(SourceSlot, Part)>()
    }
}

/// Brings in what was published before by sources that are followed since the last time.
fn sync(following: &Following, inbox: &mut Inbox, world: &World) {
    if following.last_made() <= inbox.synced() {
        return;
    }
    // Posts that came late to its sources come late to this inbox with the edge.
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
    // What is archived is left out as well: pages that go that far are built with the archive.
    let left_out = newest.get(posts_max).copied().or(merge.into_shortfall().archived);
    inbox.absorb(&newest[..kept], left_out);
    inbox.set_synced(following.last_made());
}

impl PulledSources {
    fn refresh(&mut self, own: &Source, following: &Following, world: &World) {
        // The epoch is read first: a source that joins after it changes it again.
        let as_of = Some((following.version(), world.pulled_epoch()));
        if self.as_of == as_of {
            return;
        }
        let has_pulled = |source: &SourceSlot| world.sources.at(*source).outbox().has_pulled();
        let followed = following.edges().iter().map(|edge| edge.source);
        let pulled = followed.filter(has_pulled).map(|source| (source, Part::Pulled));
        // A reader's own posts are pushed to the followers, not to the reader.
        let never_pushed = following.only_kept().chain([own.slot]);
        self.parts = pulled.chain(never_pushed.map(|source| (source, Part::Whole))).collect();
        self.as_of = as_of;
    }
}

/// Which entry is looked up in the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// The one that shows this post.
    Of(PostId),
    /// The one that this post brings: of what it repeats, or its own if it repeats nothing.
    BroughtBy(PostId),
}

/// What a page is built from away from the reader's actor, on a thread that may wait for a disk.
#[derive(Debug)]
pub struct ColdRead {
    viewer: Viewer,
    /// As of before the viewer looked and the inbox was copied.
    settled: Settled,
    inbox: Inbox,
    warm: Vec<(SourceSlot, Part)>,
}

impl ColdRead {
    /// Looks up what it takes to see an entry: the post that it shows, with the posts of that entry. Nothing if that cannot be read.
    pub fn entry_of(&self, world: &World, sought: Sought) -> Option<(PostId, Vec<Found>)> {
        let find = |id: PostId| Some((id, world.find(id).ok()?.and_then(Stored::live)));
        let (Sought::Of(post) | Sought::BroughtBy(post)) = sought;
        let mut found = vec![find(post)?];
        // A post that repeats another may be repeated itself, where the repost came first: that entry is its own.
        let repeated = found[0].1.as_ref().and_then(|post| post.repost_of);
        if let Some(origin) = repeated.filter(|_| matches!(sought, Sought::BroughtBy(_))) {
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

    /// Builds the page, from memory and the archive.
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

/// Builds a page of a feed that nothing is pushed to: a list, or a source's own posts. From memory alone it is one to be shown if it came as
/// far as was asked for: others wait for the thread that this is done on. `settled` is as of before the viewer looked.
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

/// Builds a page. `warm` is what must be merged with the inbox.
fn build(view: &mut FeedView<'_>, warm: &[(SourceSlot, Part)], settled: Settled, request: PageRequest) -> Page<Entry> {
    let (viewer, arrivals) = (view.viewer, &view.finder.world().arrivals);
    let (is_steady, (range, gap, mut page)) =
        arrivals.while_nothing_is_taken_back(|| build_by_token(view, warm, request));
    page.gap = gap;
    page.resume = resume(&page, range, viewer, settled);
    if let Some(resume) = &mut page.resume {
        // An entry may have fallen behind this page while it was built.
        resume.is_partial |= !is_steady && (page.may_fall || resume.may_fall);
    }
    // Nor is it said of a virtual follow that it could not be read.
    page.partial.retain(|source| !viewer.feed.get(*source).is_some_and(|edge| edge.hidden));
    page
}

/// Fills a page with what is new to whoever has a token, if it is asked for by one: the range that it shows, whether the feed has to be
/// read again, and the page.
fn build_by_token(
    view: &mut FeedView<'_>,
    warm: &[(SourceSlot, Part)],
    request: PageRequest,
) -> (Range, bool, Page<Entry>) {
    let viewer = view.viewer;
    let (range, late, gap) = catch_up(view, warm, request.range);
    let request = PageRequest { range, ..request };
    // A limit for each page says nothing of how many entries there are, and one's own need no reading.
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
    let feed = Feed {
        inbox: view.inbox,
        warm,
        sources: viewer.feed.sources().chain(own),
        outboxes: &FoundOutboxes { finder: view.finder, budget: view.budget, time: view.time },
        budget: view.budget,
        per_source_max,
        late,
    };
    feed.page(request.range, request.bounded_limit(), view)
}

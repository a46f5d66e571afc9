//! Pages: the entries of a feed that one read returns.
//!
//! Responsible for:
//! - filling a page from the inbox, from pulled outboxes, and below the inbox's floor from all outboxes;
//! - deciding at read time, with the [`VisibilityFilter`], which entries are visible, and filling the page as far as its budget permits;
//! - returning the place to continue from, always further than the start of the page, and the parts that could not be read.
//!
//! A feed has two zones. Above the inbox's floor ("warm") the inbox has all pushed posts, and only the posts left to be pulled must be
//! merged. At and below the floor ("cold") the inbox has no posts, and the whole outbox of every followed source is merged.

use std::cmp::Ordering;
use std::num::NonZeroUsize;

use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::feed::inbox::Inbox;
use crate::feed::merge::{Input, Merge, Outboxes};
use crate::feed::outbox::Part;
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::resume::Resume;
use crate::feed::work::{Budget, Work};
use crate::id::SourceSlot;

mod visibility;

pub use visibility::{Visibility, VisibilityFilter};

/// The range of entries that a read requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// The newest entries.
    Newest,
    /// The entries directly below a position: for loading more.
    Before(Position),
    /// The entries directly above a position: for filling a gap.
    After(Position),
    /// The entries that were added to the feed since a client's token, oldest first if not all fit.
    Resume(Resume),
    /// The newest entries, as far as they are new to a token: the unread ones.
    Since(Resume),
}

impl Range {
    /// Returns true if the page is only counted. A count is not a read of the feed.
    pub fn is_count(&self) -> bool {
        matches!(self, Self::Since(_))
    }
}

/// The part of the page that was built within its budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// All that was requested, or up to the end of the feed.
    Full,
    /// A part. The page shows everything up to the position where it continues.
    Short,
    /// Nothing: the budget was spent before the first candidate was known. The page must not be shown, but built again with a larger
    /// budget.
    Nothing,
}

/// A page, newest entry first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<E> {
    /// The entries, each with its position.
    pub items: Vec<(Position, E)>,
    /// The place to continue from with older entries; none if there is nothing older.
    pub next: Option<Position>,
    /// The newest known entry of the feed; or the newest entry on the page, if newer ones did not fit or arrived while it was built.
    pub newest: Option<Position>,
    /// True if newer entries did not fit: the next page has them.
    pub is_cut: bool,
    /// True if an entry was skipped because it is at another position, maybe on a later page.
    pub may_fall: bool,
    /// The token to continue from with entries that are added after this page, once `newest` is known.
    pub resume: Option<Resume>,
    /// The instant of the last change that may make tokens invalid, such as a new follow. A token with this instant or a later one can be
    /// resumed.
    pub resumable_from: UnixMicros,
    /// True if the entries added since a token are no longer known: this is the newest page, and the client has to read the feed again.
    pub gap: bool,
    /// Sources whose outboxes could not be read at all or in time. Their posts are missing here and appear on a later read. The owner of
    /// the page stands for posts that were found in an inbox or outbox, but could not be read in time.
    pub partial: Vec<SourceSlot>,
    /// Number of entries between those shown that were skipped, because their source has the maximum number of entries on the page.
    pub passed_over: usize,
    /// Candidate positions whose posts are deleted for good.
    pub gone: Vec<Position>,
    /// Candidate positions whose posts cannot be read. They are missing here.
    pub unreadable: Vec<Position>,
    /// The part of the page that was built within its budget.
    pub reach: Reach,
    /// True if nothing is missing: the page shows as many entries as requested and there are more, or it shows all there are.
    pub is_complete: bool,
    /// True if the page needs data that is not in memory. It must not be shown, but built again with the archive.
    pub needs_archive: bool,
    /// The work that building the page took.
    pub work: Work,
}

impl<E> Page<E> {
    /// Returns the page of a feed without entries.
    pub fn empty() -> Self {
        Self {
            items: Vec::new(),
            next: None,
            newest: None,
            is_cut: false,
            may_fall: false,
            resume: None,
            resumable_from: UnixMicros(i64::MIN),
            gap: false,
            partial: Vec::new(),
            passed_over: 0,
            gone: Vec::new(),
            unreadable: Vec::new(),
            reach: Reach::Full,
            is_complete: true,
            needs_archive: false,
            work: Work::default(),
        }
    }
}

/// The inputs from which the pages of a feed are built.
#[derive(Debug)]
pub struct Feed<'a, O, S> {
    /// The reader's inbox; without one the whole feed is cold.
    pub inbox: Option<&'a Inbox>,
    /// The outbox parts that must be merged with the inbox above its floor.
    pub warm: &'a [WarmPart],
    /// Every source of the feed.
    pub sources: S,
    /// Reads the outboxes of the sources.
    pub outboxes: &'a O,
    /// The limit of work for the page, in total.
    pub budget: &'a Budget<'a>,
    /// Maximum number of entries of one source on one page.
    pub per_source_max: Option<NonZeroUsize>,
    /// Positions of late posts that are new to the resuming client, ascending.
    pub late: &'a [Position],
}

/// A part of an outbox that must be merged with the inbox above its floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WarmPart {
    /// The source of the outbox.
    pub source: SourceSlot,
    /// The part to be merged.
    pub part: Part,
    /// The part has nothing above this position.
    pub until: Position,
}

struct Scan<E> {
    found: Vec<(Position, E)>,
    /// For each entry, the number of candidates skipped before it because their source has its maximum.
    before: Vec<usize>,
    /// Total number of these skipped candidates.
    passed_over: usize,
    /// The highest position of an entry, also of skipped ones.
    shown_up_to: Position,
    /// True if any candidate has its entry at another position.
    found_elsewhere: bool,
    /// True if the budget was spent before the scan was complete.
    is_cut: bool,
    /// If so, the position up to which everything was merged and checked; `None` if nothing was.
    stopped_at: Option<Position>,
}

impl<E> Scan<E> {
    fn reach(&self) -> Reach {
        match (self.is_cut, self.stopped_at) {
            (false, _) => Reach::Full,
            (true, Some(_)) => Reach::Short,
            (true, None) => Reach::Nothing,
        }
    }
}

impl<O: Outboxes, S: Iterator<Item = SourceSlot> + Clone> Feed<'_, O, S> {
    /// Builds a page of at most `limit` entries.
    pub fn page<V: VisibilityFilter>(&self, range: Range, limit: usize, view: &mut V) -> Page<V::Entry> {
        let mut page = Page::empty();
        match range {
            Range::Newest => {
                page.next = self.fill_older(PositionRange::ALL, limit, view, &mut page);
                page.newest = page.items.first().map(|item| item.0).or(page.next.filter(|next| *next < Position::MAX));
            }
            Range::Before(below) => {
                page.next = self.fill_older(PositionRange { below, ..PositionRange::ALL }, limit, view, &mut page);
                let known = page.items.first().map(|item| item.0);
                let known = known.max(Some(below).filter(|below| *below < Position::MAX));
                page.newest = self.head(PositionRange::ALL, known, view, &mut page);
            }
            Range::After(above) => self.fill_newer(Resume::at(above), limit, view, &mut page),
            Range::Resume(resume) => self.fill_newer(resume, limit, view, &mut page),
            Range::Since(resume) => {
                let span = PositionRange { above: resume.floor(), ..PositionRange::ALL };
                let mut view = NewTo { view, resume, late: self.late };
                page.next = self.fill_older(span, limit, &mut view, &mut page);
                page.newest = page.items.first().map(|item| item.0);
            }
        }
        page.partial.sort_unstable();
        page.partial.dedup();
        page.unreadable.sort_unstable();
        page.unreadable.dedup();
        let nothing_missing = page.partial.is_empty() && page.unreadable.is_empty() && page.reach == Reach::Full;
        page.is_complete |= nothing_missing && !page.needs_archive;
        page.work = self.budget.work();
        page
    }

    /// Fills the page from the newest entry of `span` on, and returns where to continue.
    fn fill_older<V: VisibilityFilter>(
        &self,
        span: PositionRange,
        limit: usize,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Option<Position> {
        let mut scan = self.scan(span, Direction::Older, limit + 1, Late::Omit, view, page);
        page.reach = scan.reach();
        // One entry more than requested shows that there is a next page.
        let more = scan.found.len() > limit;
        page.is_complete = more;
        scan.found.truncate(limit);
        page.items = scan.found;
        page.passed_over = page.items.len().checked_sub(1).map_or(0, |last| scan.before[last]);
        if more {
            return page.items.last().map(|item| item.0);
        }
        // Unread posts may be anywhere below the bound, so the feed may continue there. A page without entries does not return its own
        // start as the place to continue from, because a late source may stay late forever.
        let unknown = page.items.last().filter(|_| !page.partial.is_empty()).map(|item| item.0);
        // The source of a skipped entry may have entries on the next page again.
        let passed_over = page.items.last().filter(|_| scan.passed_over > page.passed_over).map(|item| item.0);
        passed_over.or(scan.stopped_at).or(unknown)
    }

    fn fill_newer<V: VisibilityFilter>(&self, resume: Resume, limit: usize, view: &mut V, page: &mut Page<V::Entry>) {
        let (span, above) = (PositionRange { above: resume.floor(), ..PositionRange::ALL }, resume.position);
        let mut new = NewTo { view, resume, late: self.late };
        let mut scan = self.scan(span, Direction::Newer, limit + 1, Late::Omit, &mut new, page);
        let view = new.view;
        (page.reach, page.is_complete) = (scan.reach(), false);
        let is_full = scan.found.len() > limit;
        scan.found.truncate(limit);
        page.passed_over = scan.found.len().checked_sub(1).map_or(0, |last| scan.before[last]);
        // A page that is cut returns the position where it stopped, so that the client continues from there.
        let stopped_at = if is_full { scan.found.last().map(|item| item.0) } else { scan.stopped_at };
        scan.found.reverse();
        page.items = scan.found;
        page.is_cut = is_full || scan.is_cut;
        page.may_fall = scan.found_elsewhere;
        let known = page.items.first().map_or(above, |item| item.0);
        // A post that arrives after the scan is above these. A token with its position would mean that the client has received it.
        let received = PositionRange { below: scan.shown_up_to.max(above).next_up(), ..PositionRange::ALL };
        let newest = || if scan.is_cut { Some(above) } else { self.head(received, Some(known), view, page) };
        page.newest = stopped_at.or_else(newest);
        let oldest = page.items.last().map_or(above, |item| item.0);
        let older = self.scan(
            PositionRange { below: oldest, ..PositionRange::ALL },
            Direction::Older,
            1,
            Late::End,
            view,
            page,
        );
        let anything_older = !older.found.is_empty() || older.is_cut || !page.partial.is_empty();
        page.next = anything_older.then_some(oldest);
    }

    /// Returns the newest entry within `span`. If the budget ends before it is found, returns `known`; all newer entries
    /// are above it.
    fn head<V: VisibilityFilter>(
        &self,
        span: PositionRange,
        known: Option<Position>,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Option<Position> {
        let scan = self.scan(span, Direction::Older, 1, Late::End, view, page);
        // If the scan found no visible candidate, every newer entry is above the position where the scan stopped.
        let unreached = || known.filter(|_| scan.reach() == Reach::Nothing);
        scan.found.first().map(|item| item.0).or(scan.stopped_at).or_else(unreached)
    }

    /// Examines candidates until `wanted` of them are visible, none are left, or the budget is spent.
    fn scan<V: VisibilityFilter>(
        &self,
        span: PositionRange,
        direction: Direction,
        wanted: usize,
        late: Late,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Scan<V::Entry> {
        let (found, before) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
        let (shown_up_to, stopped_at) = (Position::MIN, None);
        let mut scan =
            Scan { found, before, passed_over: 0, shown_up_to, found_elsewhere: false, is_cut: false, stopped_at };
        let mut reached = None;
        let mut share = Share { most: self.per_source_max, taken: FxHashMap::default() };
        for (nth, zone) in self.zones(span, direction).enumerate() {
            if nth > 0 {
                reached = Some(zone.start(direction));
            }
            let mut candidates = self.merge(zone, direction, wanted - scan.found.len());
            if candidates.is_cut() && reached.is_none() && late == Late::Omit && self.budget.allowance().is_last {
                self.budget.extend_a_little();
                candidates.omit_unread();
            }
            let (mut is_spent, mut prepared) = (false, 0);
            while let Some(position) = candidates.next() {
                if prepared == 0 && view.looks_ahead() {
                    prepared = wanted;
                    let mut ahead = candidates.ahead(wanted - 1);
                    ahead.push(position);
                    view.prepare(&ahead);
                }
                prepared = prepared.saturating_sub(1);
                self.budget.candidate();
                match view.look(position) {
                    Visibility::Shown(entry) => {
                        scan.shown_up_to = scan.shown_up_to.max(position);
                        if share.take(V::source(&entry)) {
                            scan.before.push(scan.passed_over);
                            scan.found.push((position, entry));
                        } else {
                            scan.passed_over += 1;
                        }
                    }
                    Visibility::Hidden => {}
                    Visibility::Elsewhere => scan.found_elsewhere = true,
                    Visibility::Gone => page.gone.push(position),
                    Visibility::Unreadable => page.unreadable.push(position),
                    Visibility::Late => page.partial.extend(view.owner()),
                    Visibility::Archived => page.needs_archive = true,
                }
                reached = Some(position);
                is_spent = self.budget.is_spent();
                if scan.found.len() == wanted || is_spent || page.needs_archive {
                    break;
                }
            }
            let shortfall = candidates.into_shortfall();
            page.partial.extend(shortfall.unavailable);
            scan.is_cut = scan.found.len() < wanted && (is_spent || shortfall.is_cut);
            scan.stopped_at = reached.filter(|_| scan.is_cut);
            let enough = scan.found.len() == wanted || scan.is_cut;
            page.needs_archive |= shortfall.archived.is_some() && !enough;
            if enough || page.needs_archive {
                break;
            }
        }
        scan
    }

    /// Returns the parts of `span` above and below the inbox's floor, in the order of reading.
    fn zones(&self, span: PositionRange, direction: Direction) -> impl Iterator<Item = Zone> {
        let floor = self.inbox.map_or(Position::MAX, Inbox::floor);
        let warm = Zone::Warm(PositionRange { above: span.above.max(floor), ..span });
        let cold = Zone::Cold(PositionRange { below: span.below.min(floor.next_up()), ..span });
        let late = Zone::Late(PositionRange { above: Position::MIN, below: span.above.next_up() });
        let ordered = match direction {
            Direction::Older => [warm, cold, late],
            Direction::Newer => [late, cold, warm],
        };
        let has_late = !self.late.is_empty();
        let is_requested = move |zone: &Zone| has_late || !matches!(zone, Zone::Late(_));
        ordered.into_iter().filter(move |zone| is_requested(zone) && !zone.span().is_empty())
    }

    fn merge(&self, zone: Zone, direction: Direction, wanted: usize) -> Merge<'_, O> {
        match zone {
            Zone::Warm(span) => {
                // Most parts of sources that pushed their last posts end far below, and are not read at all.
                let parts = self.warm.iter().filter(|warm| warm.until > span.above);
                let outboxes = parts.map(|warm| Input::Outbox(warm.source, warm.part));
                let inputs = self.inbox.into_iter().map(Input::Inbox).chain(outboxes);
                Merge::new(self.outboxes, self.budget, inputs, span, direction, wanted)
            }
            Zone::Cold(span) => {
                let inputs = self.sources.clone().map(|source| Input::Outbox(source, Part::Whole));
                Merge::new(self.outboxes, self.budget, inputs, span, direction, wanted)
            }
            Zone::Late(span) => {
                let inputs = std::iter::once(Input::Listed(self.late));
                Merge::new(self.outboxes, self.budget, inputs, span, direction, wanted)
            }
        }
    }
}

/// A visibility filter that shows only entries that are new to a resuming client.
struct NewTo<'a, V> {
    view: &'a mut V,
    resume: Resume,
    /// The same positions as [`Feed::late`].
    late: &'a [Position],
}

impl<V: VisibilityFilter> VisibilityFilter for NewTo<'_, V> {
    type Entry = V::Entry;

    fn look(&mut self, position: Position) -> Visibility<V::Entry> {
        // The time of acceptance is only looked up if the result depends on it.
        let is_new = match (position.cmp(&self.resume.position), self.resume.above) {
            (Ordering::Greater, None) => true,
            // The client has this post, even if the post had not reached all of its readers by then.
            (Ordering::Equal, _) => false,
            _ => self.view.accepted_at(position).is_none_or(|at| self.resume.is_new(position, at)),
        };
        let is_new = is_new || self.late.binary_search(&position).is_ok();
        if is_new { self.view.look(position) } else { Visibility::Hidden }
    }

    fn looks_ahead(&self) -> bool {
        self.view.looks_ahead()
    }

    fn prepare(&mut self, positions: &[Position]) {
        self.view.prepare(positions);
    }

    fn accepted_at(&self, position: Position) -> Option<UnixMicros> {
        self.view.accepted_at(position)
    }

    fn owner(&self) -> Option<SourceSlot> {
        self.view.owner()
    }

    fn source(entry: &Self::Entry) -> SourceSlot {
        V::source(entry)
    }
}

/// Counts the entries of each source on a page.
struct Share {
    most: Option<NonZeroUsize>,
    taken: FxHashMap<SourceSlot, usize>,
}

impl Share {
    /// Counts one more entry of a source. Returns false if the source already has its maximum.
    fn take(&mut self, source: SourceSlot) -> bool {
        let Some(most) = self.most else { return true };
        let taken = self.taken.entry(source).or_default();
        let may = *taken < most.get();
        *taken += usize::from(may);
        may
    }
}

/// The treatment of outboxes that were not read before the budget was spent, if no candidate is known yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Omit them if no larger budget follows, so that the rest is shown.
    Omit,
    /// End the scan.
    End,
}

#[derive(Clone, Copy)]
enum Zone {
    Warm(PositionRange),
    Cold(PositionRange),
    /// Below the scanned span: only the late posts are read there.
    Late(PositionRange),
}

impl Zone {
    fn span(self) -> PositionRange {
        match self {
            Self::Warm(span) | Self::Cold(span) | Self::Late(span) => span,
        }
    }

    /// Returns the position where reading the zone begins. Everything before it is in the previous zone or in none.
    fn start(self, direction: Direction) -> Position {
        match direction {
            Direction::Older => self.span().below,
            Direction::Newer => self.span().above,
        }
    }
}

#[cfg(test)]
mod tests;

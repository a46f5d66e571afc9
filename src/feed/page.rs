//! Pages: what a reader is shown of a feed.
//!
//! Responsible for:
//! - filling a page from the inbox, from pulled outboxes, and below the inbox's floor from all outboxes;
//! - deciding at this moment, by the [`View`], what shows; a page is full while anything is left, as far as its budget goes;
//! - saying where to go on, always further than where the page began, and what could not be read.
//!
//! Not responsible for:
//! - the rules of what shows ([`View`] is the seam), turning entries into text.
//!
//! A feed has two zones. Above the inbox's floor ("warm") the inbox has all pushed posts, and only what was left to be
//! pulled must be merged. At and below it ("cold") the inbox knows nothing, and every followed outbox is merged whole.

use std::num::NonZeroUsize;

use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::feed::inbox::Inbox;
use crate::feed::merge::{Input, Merge, Outboxes};
use crate::feed::outbox::Part;
use crate::feed::position::{Direction, Position, Span};
use crate::feed::resume::Resume;
use crate::feed::work::{Budget, Work};
use crate::id::SourceSlot;

/// Which entries are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// The newest.
    Newest,
    /// Those right below a position: load more.
    Before(Position),
    /// Those right above a position: fill a gap.
    After(Position),
    /// Those that came into the feed after a client was given it, oldest first where not all fit.
    Resume(Resume),
    /// The newest, as far as they are new: what is unread.
    Since(Resume),
}

/// What became of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look<E> {
    /// It shows, as this entry.
    Shown(E),
    /// It does not show, for now.
    Hidden,
    /// It does not show here: its entry stands elsewhere.
    Elsewhere,
    /// It is gone for good: whoever still keeps it may drop it.
    Gone,
    /// What became of it is in the archive.
    Archived,
    /// It is in the archive, and cannot be read.
    Unreadable,
}

impl<E> Look<E> {
    /// Whether it is gone for good.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

/// Decides what shows.
pub trait View {
    /// What an entry looks like.
    type Entry;

    /// Judges the post at `position` by the present state.
    fn look(&mut self, position: Position) -> Look<Self::Entry>;

    /// When the post at `position` was accepted, if it can be looked up.
    fn accepted_at(&self, position: Position) -> Option<UnixMicros>;

    /// Of whom a page may have only so many entries.
    fn source(entry: &Self::Entry) -> SourceSlot;
}

/// How far a page came with its budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// As far as was asked for, or to the end.
    Full,
    /// Less far. It shows all there is up to where it says to go on.
    Short,
    /// Not even the first candidate was known when the budget was spent. The page is not to be shown, but to be built again with a larger one.
    Nothing,
}

/// A page, newest entry first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<E> {
    /// The entries, each with its position.
    pub items: Vec<(Position, E)>,
    /// Where to go on with older entries; none when there is nothing older.
    pub next: Option<Position>,
    /// The newest entry of the feed, as far as is known, or the newest that was given, where newer ones did not fit.
    pub newest: Option<Position>,
    /// Newer entries did not fit: they come next.
    pub is_cut: bool,
    /// An entry was passed over because it stands elsewhere, maybe among those that come next.
    pub may_fall: bool,
    /// Where to go on with what comes in after this page, once `newest` is known.
    pub resume: Option<Resume>,
    /// What came in after a token was made is not known any more: this is the newest page, and the client has to read the feed
    /// again.
    pub gap: bool,
    /// Sources whose outboxes could not be read, or not in time. What they have is missing here and appears on a later read.
    pub partial: Vec<SourceSlot>,
    /// Entries between those shown that were passed over, since their source has as many as a page may have of it.
    pub passed_over: usize,
    /// Positions met that are gone for good.
    pub gone: Vec<Position>,
    /// Positions met whose posts cannot be read. They are missing here.
    pub unreadable: Vec<Position>,
    /// How far the page came with its budget.
    pub reach: Reach,
    /// It shows as many entries as were asked for and there are more, or all there are: nothing is missing.
    pub is_complete: bool,
    /// The page needs what is not in memory. It is not to be shown, but to be built again with the archive.
    pub needs_archive: bool,
    /// What was done to build it.
    pub work: Work,
}

impl<E> Page<E> {
    /// The page of a feed without entries.
    pub fn empty() -> Self {
        Self {
            items: Vec::new(),
            next: None,
            newest: None,
            is_cut: false,
            may_fall: false,
            resume: None,
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

/// What a feed is made of.
#[derive(Debug)]
pub struct Feed<'a, O, S> {
    /// The reader's inbox; without one the whole feed is cold.
    pub inbox: Option<&'a Inbox>,
    /// What must be merged with the inbox above its floor.
    pub warm: &'a [(SourceSlot, Part)],
    /// Every source of the feed.
    pub sources: S,
    /// Where outboxes are read.
    pub outboxes: &'a O,
    /// What may be done for the page, in all.
    pub budget: &'a Budget<'a>,
    /// Entries of one source in one page, at most.
    pub per_source_max: Option<NonZeroUsize>,
    /// Positions of late posts that are new to whoever resumes, ascending.
    pub late: &'a [Position],
}

struct Scan<E> {
    found: Vec<(Position, E)>,
    /// How many were passed over before each of them, since their source has enough.
    before: Vec<usize>,
    /// How many were passed over in all.
    passed_over: usize,
    /// Any of them has its entry elsewhere.
    met_elsewhere: bool,
    /// The budget was spent before the scan was through.
    is_cut: bool,
    /// Then: everything up to here was merged and judged. None if that is nothing.
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
    pub fn page<V: View>(&self, range: Range, limit: usize, view: &mut V) -> Page<V::Entry> {
        let mut page = Page::empty();
        match range {
            Range::Newest => {
                page.next = self.fill_older(Span::ALL, limit, view, &mut page);
                page.newest = page.items.first().map(|item| item.0).or(page.next.filter(|next| *next < Position::MAX));
            }
            Range::Before(below) => {
                page.next = self.fill_older(Span { below, ..Span::ALL }, limit, view, &mut page);
                let known = page.items.first().map(|item| item.0);
                let known = known.max(Some(below).filter(|below| *below < Position::MAX));
                page.newest = self.head(known, view, &mut page);
            }
            Range::After(above) => self.fill_newer(Resume::at(above), limit, view, &mut page),
            Range::Resume(resume) => self.fill_newer(resume, limit, view, &mut page),
            Range::Since(resume) => {
                let span = Span { above: resume.floor(), ..Span::ALL };
                let mut view = NewTo { view, resume, late: self.late };
                page.next = self.fill_older(span, limit, &mut view, &mut page);
                page.newest = page.items.first().map(|item| item.0);
            }
        }
        page.partial.sort_unstable();
        page.partial.dedup();
        page.unreadable.sort_unstable();
        page.unreadable.dedup();
        let lacks_nothing = page.partial.is_empty() && page.unreadable.is_empty() && page.reach == Reach::Full;
        page.is_complete |= lacks_nothing && !page.needs_archive;
        page.work = self.budget.work();
        page
    }

    /// Fills the page from the newest entry of `span` on, and returns where to go on.
    fn fill_older<V: View>(
        &self,
        span: Span,
        limit: usize,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Option<Position> {
        let mut scan = self.scan(span, Direction::Older, limit + 1, Late::LeftOut, view, page);
        page.reach = scan.reach();
        // One entry more than asked for tells whether there is a next page.
        let more = scan.found.len() > limit;
        page.is_complete = more;
        scan.found.truncate(limit);
        page.items = scan.found;
        page.passed_over = page.items.len().checked_sub(1).map_or(0, |last| scan.before[last]);
        if more {
            return page.items.last().map(|item| item.0);
        }
        // What could not be read may be anywhere below the bound: that the rest is at an end is not known. A page without entries does
        // not send its reader back to where it began, since what is late may be late for ever.
        let unknown = page.items.last().filter(|_| !page.partial.is_empty()).map(|item| item.0);
        // Their source may have so many on the next page again.
        let passed_over = page.items.last().filter(|_| scan.passed_over > page.passed_over).map(|item| item.0);
        passed_over.or(scan.stopped_at).or(unknown)
    }

    fn fill_newer<V: View>(&self, resume: Resume, limit: usize, view: &mut V, page: &mut Page<V::Entry>) {
        let (span, above) = (Span { above: resume.floor(), ..Span::ALL }, resume.position);
        let mut new = NewTo { view, resume, late: self.late };
        let mut scan = self.scan(span, Direction::Newer, limit + 1, Late::LeftOut, &mut new, page);
        let view = new.view;
        (page.reach, page.is_complete) = (scan.reach(), false);
        let is_full = scan.found.len() > limit;
        scan.found.truncate(limit);
        page.passed_over = scan.found.len().checked_sub(1).map_or(0, |last| scan.before[last]);
        // Cut short, the page names where it stopped, so that the rest is asked for from there on.
        let stopped_at = if is_full { scan.found.last().map(|item| item.0) } else { scan.stopped_at };
        scan.found.reverse();
        page.items = scan.found;
        page.is_cut = is_full || scan.is_cut;
        page.may_fall = scan.met_elsewhere;
        let known = page.items.first().map_or(above, |item| item.0);
        let newest = || if scan.is_cut { Some(above) } else { self.head(Some(known), view, page) };
        page.newest = stopped_at.or_else(newest);
        let oldest = page.items.last().map_or(above, |item| item.0);
        let older = self.scan(Span { below: oldest, ..Span::ALL }, Direction::Older, 1, Late::Ends, view, page);
        let anything_older = !older.found.is_empty() || older.is_cut || !page.partial.is_empty();
        page.next = anything_older.then_some(oldest);
    }

    /// The newest entry; `known`, which all newer ones are above, if the budget does not reach as far as that.
    fn head<V: View>(&self, known: Option<Position>, view: &mut V, page: &mut Page<V::Entry>) -> Option<Position> {
        let scan = self.scan(Span::ALL, Direction::Older, 1, Late::Ends, view, page);
        // Where nothing showed for as far as was looked, everything newer is above where the scan stopped.
        let unreached = || known.filter(|_| scan.reach() == Reach::Nothing);
        scan.found.first().map(|item| item.0).or(scan.stopped_at).or_else(unreached)
    }

    /// Looks at candidates until `wanted` of them show, nothing is left, or the budget is spent.
    fn scan<V: View>(
        &self,
        span: Span,
        direction: Direction,
        wanted: usize,
        late: Late,
        view: &mut V,
        page: &mut Page<V::Entry>,
    ) -> Scan<V::Entry> {
        let (found, before) = (Vec::with_capacity(wanted), Vec::new());
        let mut scan = Scan { found, before, passed_over: 0, met_elsewhere: false, is_cut: false, stopped_at: None };
        let mut reached = None;
        let mut share = Share { most: self.per_source_max, taken: FxHashMap::default() };
        for (nth, zone) in self.zones(span, direction).enumerate() {
            if nth > 0 {
                reached = Some(zone.start(direction));
            }
            let mut candidates = self.merge(zone, direction, wanted - scan.found.len());
            if candidates.is_cut() && reached.is_none() && late == Late::LeftOut && self.budget.allowance().is_last {
                self.budget.extend_a_little();
                candidates.leave_out_the_rest();
            }
            let mut is_spent = false;
            for position in candidates.by_ref() {
                self.budget.candidate();
                match view.look(position) {
                    Look::Shown(entry) if share.take(V::source(&entry)) => {
                        scan.before.push(scan.passed_over);
                        scan.found.push((position, entry));
                    }
                    Look::Shown(_) => scan.passed_over += 1,
                    Look::Hidden => {}
                    Look::Elsewhere => scan.met_elsewhere = true,
                    Look::Gone => page.gone.push(position),
                    Look::Unreadable => page.unreadable.push(position),
                    Look::Archived => page.needs_archive = true,
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

    /// The parts of `span` above and below the inbox's floor, in the order of reading.
    fn zones(&self, span: Span, direction: Direction) -> impl Iterator<Item = Zone> {
        let floor = self.inbox.map_or(Position::MAX, Inbox::floor);
        let warm = Zone::Warm(Span { above: span.above.max(floor), ..span });
        let cold = Zone::Cold(Span { below: span.below.min(floor.next_up()), ..span });
        let late = Zone::Late(Span { above: Position::MIN, below: span.above.next_up() });
        let ordered = match direction {
            Direction::Older => [warm, cold, late],
            Direction::Newer => [late, cold, warm],
        };
        let has_late = !self.late.is_empty();
        let is_asked = move |zone: &Zone| has_late || !matches!(zone, Zone::Late(_));
        ordered.into_iter().filter(move |zone| is_asked(zone) && !zone.span().is_empty())
    }

    fn merge(&self, zone: Zone, direction: Direction, wanted: usize) -> Merge<'_, O> {
        match zone {
            Zone::Warm(span) => {
                let outboxes = self.warm.iter().map(|(source, part)| Input::Outbox(*source, *part));
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

/// A view of what is new to whoever resumes.
struct NewTo<'a, V> {
    view: &'a mut V,
    resume: Resume,
    /// As [`Feed::late`].
    late: &'a [Position],
}

impl<V: View> View for NewTo<'_, V> {
    type Entry = V::Entry;

    fn look(&mut self, position: Position) -> Look<V::Entry> {
        // When a post was accepted is only looked up where it matters.
        let is_new = match (position > self.resume.position, self.resume.above) {
            (true, None) => true,
            _ => self.view.accepted_at(position).is_none_or(|at| self.resume.is_new(position, at)),
        };
        let is_new = is_new || self.late.binary_search(&position).is_ok();
        if is_new { self.view.look(position) } else { Look::Hidden }
    }

    fn accepted_at(&self, position: Position) -> Option<UnixMicros> {
        self.view.accepted_at(position)
    }

    fn source(entry: &Self::Entry) -> SourceSlot {
        V::source(entry)
    }
}

/// How many entries each source has in a page.
struct Share {
    most: Option<NonZeroUsize>,
    taken: FxHashMap<SourceSlot, usize>,
}

impl Share {
    /// Whether a source may have one more.
    fn take(&mut self, source: SourceSlot) -> bool {
        let Some(most) = self.most else { return true };
        let taken = self.taken.entry(source).or_default();
        let may = *taken < most.get();
        *taken += usize::from(may);
        may
    }
}

/// What is done about outboxes that could not be read before the budget was spent, where nothing else is known yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    /// They are left out, if nobody goes on with a larger budget: the rest is shown.
    LeftOut,
    /// The scan ends.
    Ends,
}

#[derive(Clone, Copy)]
enum Zone {
    Warm(Span),
    Cold(Span),
    /// Below what is looked through, there are only the late posts.
    Late(Span),
}

impl Zone {
    fn span(self) -> Span {
        match self {
            Self::Warm(span) | Self::Cold(span) | Self::Late(span) => span,
        }
    }

    /// Where reading it begins: what comes before is in no zone, or in the one before.
    fn start(self, direction: Direction) -> Position {
        match direction {
            Direction::Older => self.span().below,
            Direction::Newer => self.span().above,
        }
    }
}

#[cfg(test)]
mod tests;

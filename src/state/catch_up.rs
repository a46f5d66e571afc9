//! Catching up: finds the posts that a client which returns with a token has missed.

use crate::clock::UnixMicros;
use crate::feed::inbox::Inbox;
use crate::feed::page::{Page, Range, Reach, WarmPart};
use crate::feed::position::Position;
use crate::feed::resume::{DeliveryWatermark, Resume};
use crate::id::{PostId, SourceSlot};
use crate::state::feed_filter::{Entry, FeedFilter};
use crate::state::viewer::Viewer;

/// Maximum number of late posts that are examined for one page.
const LATE_POSTS_PER_PAGE_MAX: usize = 1_024;

/// Returns the range to read, the new late posts in ascending order, and true if others may be missing. In that case a
/// client that resumes gets the newest page.
pub(super) fn catch_up(view: &FeedFilter<'_>, warm: &[WarmPart], range: Range) -> (Range, Vec<Position>, bool) {
    match range {
        Range::Newest | Range::Before(_) | Range::After(_) => (range, Vec::new(), false),
        Range::Resume(token) => match late(view, warm, token).filter(|_| is_same_feed(view, token)) {
            Some(late) => (range, late, false),
            None => (Range::Newest, Vec::new(), true),
        },
        Range::Since(token) => match late(view, warm, token) {
            Some(late) => (range, late, false),
            None => (range, Vec::new(), true),
        },
    }
}

/// Returns true if only new posts have entered the feed since the token was made. The reader has no new edges and the same rules, mutes and
/// blocks, and is blocked by the same users. No entry has moved below entries that were passed over.
fn is_same_feed(view: &FeedFilter<'_>, token: Resume) -> bool {
    if token.may_fall && view.finder.world().delivery.any_removed(token.below) {
        return false;
    }
    let Some(since) = token.since() else { return true };
    let viewer = view.viewer;
    let last_made = viewer.feed.last_made().max(viewer.follows.last_made());
    last_made <= since && viewer.shown_by == token.preferences
}

/// Returns the late posts that are new. Returns `None` if not all are known, if finding them is too much work, or if others may be at
/// positions that pages do not scan.
fn late(view: &FeedFilter<'_>, warm: &[WarmPart], token: Resume) -> Option<Vec<Position>> {
    let world = view.finder.world();
    // Read first: if an origin is dropped meanwhile, the check below rejects the token.
    let revealed = token.since().map_or_else(Vec::new, |since| world.delivery.revealed.since(since));
    if !world.delivery.knows(token) {
        return None;
    }
    let mut late = Vec::new();
    let Some(since) = token.since().filter(|since| world.delivery.any_late(*since)) else { return Some(late) };
    for (at, origin) in revealed {
        if !add_reposts(view, token, origin, at, &mut late) {
            return None;
        }
    }
    let mut is_known = |source: SourceSlot| {
        view.budget.lookups(1);
        if view.budget.is_spent() {
            return false;
        }
        let outbox = world.sources.at(source).outbox();
        outbox.late().is_none_or(|posts| posts.new_to(token, &mut late)) && late.len() <= LATE_POSTS_PER_PAGE_MAX
    };
    let came_late = view.inbox.is_none_or(|inbox| inbox.last_late() > since) || world.delivery.any_revealed(since);
    let all_known = if came_late {
        let own = view.viewer.has_own.then_some(view.viewer.reader);
        view.viewer.feed.sources().chain(own).all(&mut is_known)
    } else {
        warm.iter().all(|warm| is_known(warm.source))
    };
    late.sort_unstable();
    late.dedup();
    all_known.then_some(late)
}

/// Appends to `late` the positions of the reposts through which a post that became visible at `at` enters the feed, if
/// they are new. Returns false if there are too many, or finding them is too much work.
fn add_reposts(view: &FeedFilter<'_>, token: Resume, origin: PostId, at: UnixMicros, late: &mut Vec<Position>) -> bool {
    if view.budget.is_spent() {
        return false;
    }
    if view.viewer.rules.reposts {
        let places = view.viewer.places_of_reposts(&view.finder.world().reposts, origin, view.budget);
        late.extend(places.into_iter().filter(|place| token.is_new(*place, at)));
    }
    late.len() <= LATE_POSTS_PER_PAGE_MAX
}

/// Returns the instant of the last change for which the checks above reject older tokens, or may reject them, except changed preferences.
/// It is part of a page's entity tag: a client that has to read the feed again must not receive "not modified" for its page with the same
/// token.
pub(super) fn resumable_from(view: &FeedFilter<'_>, warm: &[WarmPart], token: Resume) -> UnixMicros {
    let (viewer, delivery) = (view.viewer, &view.finder.world().delivery);
    let last_late = view.inbox.filter(|_| warm.is_empty()).map(Inbox::last_late);
    [
        viewer.feed.last_made(),
        viewer.follows.last_made(),
        delivery.rejects_before(token.may_fall),
        delivery.last_late(last_late),
    ]
    .into_iter()
    .max()
    .unwrap_or(UnixMicros(i64::MIN))
}

/// Makes the token of a page that was requested with `range`.
pub(super) fn resume(page: &Page<Entry>, range: Range, viewer: &Viewer, settled: DeliveryWatermark) -> Option<Resume> {
    let given = match range {
        Range::Newest | Range::Before(_) => None,
        Range::After(above) => Some(Resume::at(above)),
        Range::Resume(token) => Some(token),
        Range::Since(_) => return None,
    };
    if let (Some(given), Reach::Nothing) = (given, page.reach) {
        return Some(given);
    }
    let newest = page.newest.or(given.map(|given| given.position))?;
    let token = match given {
        Some(given) if page.is_cut => {
            let may_fall = given.may_fall || page.may_fall;
            Resume { may_fall, ..given.given_up_to(newest, settled) }
        }
        _ => Resume::whole(newest, settled),
    };
    Some(Resume { preferences: viewer.shown_by, is_partial: !page.partial.is_empty(), ..token })
}

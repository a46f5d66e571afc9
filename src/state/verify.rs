//! Verification of an inbox: an inbox rebuilt from the world must have the same entries.

use std::collections::BTreeSet;

use crate::feed::inbox::Inbox;
use crate::feed::outbox::Route;
use crate::feed::page::{Visibility, VisibilityFilter};
use crate::feed::position::Position;
use crate::feed::work::{Allowance, Budget};
use crate::id::{PostId, SourceSlot};
use crate::state::feed_filter::{FeedFilter, Finder};
use crate::state::reader::Reader;
use crate::state::viewer::Viewer;
use crate::state::world::World;

/// Maximum number of posts of each kind that the verification of an inbox lists.
const VERDICT_POSTS_MAX: usize = 100;

/// The result of comparing an inbox with a rebuilt one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The number of entries of the inbox.
    pub entries: usize,
    /// The number of entries of the rebuilt inbox.
    pub rebuilt: usize,
    /// The inbox is complete above this position.
    pub floor: Position,
    /// Missing posts, newest first, at most `VERDICT_POSTS_MAX`.
    pub missing: Vec<PostId>,
    /// Posts that are shown but should not be, newest first, at most `VERDICT_POSTS_MAX`.
    pub extra: Vec<PostId>,
    /// The number of posts that are missing because they are still being delivered.
    pub under_way: usize,
    /// The number of entries that no page shows, of sources no longer followed or of deleted posts, or that pages pull
    /// as well. They disappear without a repair.
    pub stale: usize,
}

impl Verdict {
    /// Returns true if the inbox has no missing and no extra posts.
    pub fn is_good(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty()
    }

    /// Returns this verdict with only the faults that an earlier verdict has too. A post that is missing once may still
    /// be in delivery: it is in its outbox a moment before its fan-out is known to be open.
    #[must_use]
    pub fn confirming(mut self, earlier: &Self) -> Self {
        let found = self.missing.len();
        self.missing.retain(|id| earlier.missing.contains(id));
        self.under_way += found - self.missing.len();
        self.extra.retain(|id| earlier.extra.contains(id));
        self
    }
}

/// Compares the inbox of a reader, synchronized with its edges, with a rebuilt one. `under_way` returns the posts that
/// are being delivered.
pub fn verify(reader: &mut Reader, inbox: &mut Inbox, world: &World, under_way: impl Fn() -> Vec<Position>) -> Verdict {
    // Before the outboxes are read: a post whose delivery ends meanwhile is in the inbox.
    let mut open: BTreeSet<Position> = under_way().into_iter().collect();
    reader.sync(inbox, world);
    let mut fresh = Inbox::new(inbox.posts_max());
    reader.rebuild(&mut fresh, world);
    // Also afterwards: a post that entered an outbox meanwhile is still being delivered.
    open.extend(under_way());
    let floor = inbox.floor().max(fresh.floor());
    let above_floor = |inbox: &Inbox| inbox.iter().filter(|position| *position > floor).collect::<BTreeSet<Position>>();
    let (live, rebuilt) = (above_floor(inbox), above_floor(&fresh));
    let (late, missing): (Vec<Position>, Vec<Position>) =
        newest_first(&rebuilt, &live).partition(|position| open.contains(position));
    let following = reader.source().following();
    let viewer = Viewer::home(reader.source(), &following);
    let budget = Budget::untimed(Allowance::UNLIMITED);
    let mut view = FeedFilter::new(Finder::Memory(world), &viewer, Some(inbox), &budget);
    // An entry that the rebuilt inbox lacks is a fault if pages show it, unless it is being delivered or is a retained post.
    let is_kept = |position: &Position| {
        // All retained posts of a source that is no longer followed are pulled, even those that the inbox still has.
        following.only_kept().any(|source| world.sources.at(source).outbox().contains(*position))
    };
    let is_pulled = |position: &Position| {
        // After a restart, a post can be both in the inbox of a snapshot and among the pulled posts of a source that changed its route
        // meanwhile. A page is a union, so it is shown once.
        let is_pulled_of = |slot: SourceSlot| world.sources.at(slot).outbox().route(*position) == Some(Route::Pull);
        let post = world.posts.get(position.id);
        post.iter()
            .flat_map(|post| post.sources())
            .any(|source| following.contains(source.slot) && is_pulled_of(source.slot))
    };
    let shows = |position: &Position| {
        matches!(view.look(*position), Visibility::Shown(_))
            && !open.contains(position)
            && !is_kept(position)
            && !is_pulled(position)
    };
    let (extra, stale): (Vec<Position>, Vec<Position>) = newest_first(&live, &rebuilt).partition(shows);
    let named = |positions: &[Position]| positions.iter().take(VERDICT_POSTS_MAX).map(|at| at.id).collect();
    Verdict {
        entries: inbox.len(),
        rebuilt: fresh.len(),
        floor: inbox.floor(),
        missing: named(&missing),
        extra: named(&extra),
        under_way: late.len(),
        stale: stale.len(),
    }
}

/// Returns the positions that are in the first set and not in the second, newest first.
fn newest_first(these: &BTreeSet<Position>, others: &BTreeSet<Position>) -> impl Iterator<Item = Position> {
    these.iter().rev().filter(|position| !others.contains(position)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    use crate::clock::UnixMicros;
    use crate::feed::celebrity::CelebrityPolicy;
    use crate::feed::event::{Event, NewEdge};
    use crate::feed::followers::Sharding;
    use crate::feed::position::at;
    use crate::feed::post::{Body, Draft};
    use crate::id::SourceId;

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    /// Returns a world in which ann follows bob, bob published posts 1 to 9, ann post 20, and cas, whom ann does not
    /// follow, post 30; and ann's inbox.
    fn ann() -> (std::sync::Arc<World>, Reader, Inbox) {
        let (world, reader, inbox, _) = ann_and_writer();
        (world, reader, inbox)
    }

    fn ann_and_writer() -> (std::sync::Arc<World>, Reader, Inbox, crate::state::world::StateMachine) {
        ann_under(CelebrityPolicy::PushAll)
    }

    fn ann_under(policy: CelebrityPolicy) -> (std::sync::Arc<World>, Reader, Inbox, crate::state::world::StateMachine) {
        let (world, mut machine) = World::create(policy, Sharding::new(1));
        let edge = NewEdge::new(id("ann"), id("bob"));
        machine.apply(&Event::Followed { edges: vec![edge], since: UnixMicros(1) });
        let authors = (1..=9).map(|nth| ("bob", nth)).chain([("ann", 20), ("cas", 30)]);
        for (author, nth) in authors {
            let draft = Draft::new(id(author), Body::new("1").unwrap());
            machine.apply(&Event::Published { position: at(nth, nth as u64), draft, accepted_at: UnixMicros(nth) });
        }
        let mut reader = Reader::new(world.sources.get(&id("ann")).unwrap());
        let mut inbox = Inbox::new(NonZeroUsize::new(100).unwrap());
        reader.rebuild(&mut inbox, &world);
        (world, reader, inbox, machine)
    }

    fn posts(ids: impl IntoIterator<Item = u64>) -> Vec<PostId> {
        ids.into_iter().map(PostId).collect()
    }

    #[test]
    fn missing_and_extra_posts_are_named_and_repaired_by_a_rebuild() {
        let (world, mut reader, mut inbox) = ann();
        let good = verify(&mut reader, &mut inbox, &world, Vec::new);
        assert!(good.is_good() && (good.entries, good.rebuilt, good.stale) == (9, 9, 0), "{good:?}");
        inbox.remove(at(3, 3));
        inbox.remove(at(7, 7));
        // Pages show this post, but they pull it from the reader's own outbox.
        inbox.push(at(20, 20));
        // These posts are shown nowhere: one is of a source that is not followed, and one does not exist.
        inbox.push(at(30, 30));
        inbox.push(at(40, 40));
        let bad = verify(&mut reader, &mut inbox, &world, Vec::new);
        assert!(!bad.is_good());
        assert_eq!((&bad.missing, &bad.extra), (&posts([7, 3]), &posts([20])));
        assert_eq!((bad.entries, bad.rebuilt, bad.stale, bad.under_way), (10, 9, 2, 0));
        inbox = Inbox::new(inbox.posts_max());
        reader.rebuild(&mut inbox, &world);
        assert_eq!(verify(&mut reader, &mut inbox, &world, Vec::new), good);
    }

    #[test]
    fn a_pushed_post_that_pages_also_pull_is_not_a_fault() {
        let (world, mut reader, mut inbox, _) = ann_under(CelebrityPolicy::PullAll);
        inbox.push(at(3, 3));
        let verdict = verify(&mut reader, &mut inbox, &world, Vec::new);
        assert!(verdict.is_good() && (verdict.entries, verdict.stale) == (1, 1), "{verdict:?}");
    }

    #[test]
    fn nothing_below_the_floor_is_missing() {
        let (world, mut reader, mut inbox) = ann();
        inbox.raise_floor(at(5, 5));
        inbox.remove(at(6, 6));
        let verdict = verify(&mut reader, &mut inbox, &world, Vec::new);
        assert_eq!((verdict.missing, verdict.floor), (posts([6]), at(5, 5)));
    }

    #[test]
    fn a_post_in_flight_before_or_after_the_check_is_not_missing() {
        for open_at in [[true, false], [false, true]] {
            let (world, mut reader, mut inbox) = ann();
            inbox.remove(at(9, 9));
            let calls = std::cell::Cell::new(0);
            let under_way = || {
                let call = calls.replace(calls.get() + 1);
                if open_at[call] { vec![at(9, 9)] } else { Vec::new() }
            };
            let verdict = verify(&mut reader, &mut inbox, &world, under_way);
            assert!(verdict.is_good() && verdict.under_way == 1, "{verdict:?}");
        }
    }

    #[test]
    fn a_fault_is_confirmed_only_if_an_earlier_check_found_it() {
        let (world, mut reader, mut inbox) = ann();
        inbox.remove(at(3, 3));
        inbox.remove(at(8, 8));
        let first = verify(&mut reader, &mut inbox, &world, Vec::new);
        inbox.push(at(8, 8));
        inbox.remove(at(9, 9));
        inbox.push(at(20, 20));
        let second = verify(&mut reader, &mut inbox, &world, Vec::new).confirming(&first);
        assert_eq!((&second.missing, &second.extra, second.under_way), (&posts([3]), &posts([]), 1));
    }

    #[test]
    fn later_posts_of_a_kept_source_are_not_missing() {
        let (world, mut reader, mut inbox, mut machine) = ann_and_writer();
        let keep_until = Some(at(9, u64::MAX));
        machine.apply(&Event::Unfollowed { follower: id("ann"), source: id("bob"), keep_until });
        let draft = Draft::new(id("bob"), Body::new("1").unwrap());
        machine.apply(&Event::Published { position: at(40, 40), draft, accepted_at: UnixMicros(40) });
        let verdict = verify(&mut reader, &mut inbox, &world, Vec::new);
        // Pages pull the retained posts of the source.
        assert!(verdict.is_good() && verdict.rebuilt == 0, "{verdict:?}");
    }
}

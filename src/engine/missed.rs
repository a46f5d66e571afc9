//! The engine's interface for posts that sleeping readers have missed.

use std::thread;
use std::time::{Duration, Instant};

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::feed::position::Position;
use crate::feed::post::Draft;
use crate::id::{SourceId, SourceSlot};
use crate::limits::LIVE_REPOSTERS_MAX;
use crate::state::explain::{ExplainUnavailable, Reason, explain};
use crate::state::feed_filter::Finder;
use crate::state::sources::Sources;
use crate::state::viewer::Viewer;

/// Maximum time until an event that was read from the journal is applied.
const APPLIED_WAIT_MAX: Duration = Duration::from_millis(100);

/// Interval between two checks whether the event is applied.
const APPLIED_LOOK: Duration = Duration::from_millis(1);

/// A published post, with the data of [`Event::Published`](crate::feed::event::Event).
#[derive(Clone, Copy, Debug)]
pub struct PublishedPost<'a> {
    /// Its position in feeds, with its id.
    pub position: Position,
    /// The content, as its author sent it.
    pub draft: &'a Draft,
    /// The logical instant at which it was accepted.
    pub accepted_at: UnixMicros,
}

/// A reader who may have missed a post.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate(SourceSlot);

/// A reader who has missed a post.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missed {
    /// The id of the reader.
    pub reader: SourceId,
    /// The sources that bring the post: followed sources except virtually followed ones, kept sources, and sources of
    /// reposts.
    pub via: Vec<SourceId>,
}

impl Engine {
    /// Returns the readers with the rule `notify` who may see a post and whose id is after `after`, in ascending order
    /// of ids: they follow a source of the post or of an earlier repost of it, or keep earlier posts of a source.
    /// [`Engine::missed`] decides which of them have missed it. Returns None if the post is not applied yet. Blocks for
    /// a moment, or longer with very many readers.
    pub fn may_have_missed(&self, post: PublishedPost<'_>, after: Option<&SourceId>) -> Option<Vec<Candidate>> {
        let world = &self.inner.shared.world;
        let began = Instant::now();
        while world.delivery.applied().through < post.accepted_at {
            if began.elapsed() >= APPLIED_WAIT_MAX {
                return None;
            }
            thread::park_timeout(APPLIED_LOOK);
        }
        if world.notified.is_empty() {
            return Some(Vec::new());
        }
        let mut found = Vec::new();
        for source in post.draft.sources().filter_map(|id| world.sources.get(&id)) {
            world.notified.followers_of(&source, &mut found);
            found.extend(world.sources.keepers_of(source.slot).filter(|reader| world.notified.contains(*reader)));
        }
        // Reposts may name an id before a post with this id exists.
        match world.reposts.sources_of(post.position.id, LIVE_REPOSTERS_MAX) {
            Some(reposters) => {
                for source in reposters {
                    world.notified.followers_of(world.sources.at(source), &mut found);
                }
            }
            None => world.notified.all(&mut found),
        }
        found.sort_unstable();
        found.dedup();
        // The result must not name erased users, who may still have edges.
        found.retain(|reader| !world.sources.at(*reader).is_erased());
        let found = sorted_by_id(&world.sources, found, after);
        Some(found.into_iter().map(Candidate).collect())
    }

    /// Returns the id of a candidate.
    pub fn candidate_id(&self, Candidate(reader): Candidate) -> &SourceId {
        &self.inner.shared.world.sources.at(reader).id
    }

    /// Decides by the current state if a reader has missed a post: the reader is asleep, has not read since the post
    /// was accepted, and would find it in the feed. With `reads_archive` it may block for a moment to read the archive.
    ///
    /// # Errors
    /// Fails if this needs the archive, and `reads_archive` is false, the archive does not answer now (`Late`), or is
    /// damaged (`Unreadable`).
    pub fn missed(
        &self,
        Candidate(reader): Candidate,
        post: PublishedPost<'_>,
        reads_archive: bool,
    ) -> Result<Option<Missed>, ExplainUnavailable> {
        let shared = &self.inner.shared;
        let reader = shared.world.sources.at(reader);
        let is_wanted = reader.preferences().rules.notify && !reader.is_erased() && reader.id != post.draft.author;
        // The time of the last page is not a logical instant.
        let accepted_at = shared.clock_report.shown(post.accepted_at, shared.clock.now());
        let was_seen = reader.last_seen().is_some_and(|seen| seen >= accepted_at);
        if !is_wanted || was_seen || shared.directory.is_active(reader.slot) {
            return Ok(None);
        }
        let viewer = Viewer::home(reader, &reader.following());
        let mut explained = explain(Finder::Memory(&shared.world), &viewer, post.position.id);
        if explained.is_err() && reads_archive {
            explained = explain(Finder::Archive(&shared.world), &viewer, post.position.id);
        }
        let explanation = match explained {
            Ok(explanation) if explanation.shown => explanation,
            Ok(_) => return Ok(None),
            Err(unavailable) => return Err(unavailable),
        };
        let mut via = Vec::new();
        for reason in explanation.reasons {
            match reason {
                Reason::Follows(source) | Reason::Kept(source) | Reason::Repost { source, .. }
                    if source != reader.id && !via.contains(&source) =>
                {
                    via.push(source);
                }
                _ => {}
            }
        }
        Ok(Some(Missed { reader: reader.id.clone(), via }))
    }
}

/// The number of characters of an id that are compared first.
const HEAD_BYTES: usize = 16;

/// Returns the readers whose id is after `after`, in ascending order of ids. Slots would be cheaper to compare, but a
/// restart changes them.
///
/// No lock is held meanwhile. The characters from the first difference on are copied, so that comparisons do not wait
/// for memory: a million readers cost half a second and 24 MB, for each post and stream. A client that resumes within a
/// post sorts only the remaining readers.
fn sorted_by_id(sources: &Sources, mut readers: Vec<SourceSlot>, after: Option<&SourceId>) -> Vec<SourceSlot> {
    let id = |slot: SourceSlot| &sources.at(slot).id;
    readers.retain(|reader| after.is_none_or(|after| id(*reader) > after));
    let Some(first) = readers.first().map(|first| id(*first).as_str().as_bytes()) else { return readers };
    // Ids often have a common prefix, such as the kind of an account.
    let shared = readers.iter().fold(first.len(), |shared, reader| {
        let text = id(*reader).as_str().as_bytes();
        first.iter().zip(text).take(shared).take_while(|(one, other)| one == other).count()
    });
    let keyed = readers.into_iter().map(|reader| {
        let text = &id(reader).as_str().as_bytes()[shared..];
        let (mut head, length) = ([0; HEAD_BYTES], text.len().min(HEAD_BYTES));
        head[..length].copy_from_slice(&text[..length]);
        (head, reader)
    });
    let mut keyed: Vec<([u8; HEAD_BYTES], SourceSlot)> = keyed.collect();
    keyed.sort_unstable_by(|(head, reader), (other_head, other)| {
        head.cmp(other_head).then_with(|| id(*reader).cmp(id(*other)))
    });
    let mut sorted: Vec<SourceSlot> = keyed.into_iter().map(|(_, reader)| reader).collect();
    // Otherwise it would hold the memory of the longer pairs while a client reads the messages.
    sorted.shrink_to_fit();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::celebrity::CelebrityPolicy;
    use crate::feed::event::{Event, NewEdge};
    use crate::feed::followers::Sharding;
    use crate::state::world::World;

    #[test]
    fn missed_readers_are_sorted_by_id_and_can_start_after_one() {
        let (world, mut writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(3));
        let long = "reader-with-a-long-name";
        let mut ids: Vec<String> = ["b", "a", "a-", "a.b", "B", "zz", long].map(str::to_owned).into();
        ids.extend((0..30).rev().map(|nth| format!("{long}-{nth}")));
        let source = |id: &str| SourceId::new(id).unwrap();
        let edges = ids.iter().map(|id| NewEdge::new(source(id), source("bob"))).collect();
        writer.apply(&Event::Followed { edges, since: UnixMicros(1) });
        let slots: Vec<SourceSlot> = ids.iter().map(|id| world.sources.get(&source(id)).unwrap().slot).collect();
        let sorted = |after: Option<&str>| -> Vec<String> {
            let after = after.map(source);
            let found = sorted_by_id(&world.sources, slots.clone(), after.as_ref());
            found.iter().map(|slot| world.sources.at(*slot).id.to_string()).collect()
        };
        let mut expected = ids.clone();
        expected.sort();
        assert_eq!(sorted(None), expected);
        for (nth, after) in expected.iter().enumerate() {
            assert_eq!(sorted(Some(after)), expected[nth + 1..], "after {after}");
        }
        // An id that is not among them, such as that of a reader who has unfollowed meanwhile.
        assert_eq!(sorted(Some("y")), ["zz"]);
        assert!(sorted(Some("~")).is_empty());
        // All remaining ids have a common prefix.
        let of_long: Vec<&String> = expected.iter().filter(|id| id.starts_with(long)).collect();
        assert_eq!(sorted(Some("reader")).iter().take(of_long.len()).collect::<Vec<_>>(), of_long);
    }
}

//! Posts that sleeping readers have missed: this part of the engine's interface.

use std::thread;
use std::time::{Duration, Instant};

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::feed::position::Position;
use crate::feed::post::Draft;
use crate::id::{SourceId, SourceSlot};
use crate::state::explain::{ExplainUnavailable, Reason, explain};
use crate::state::feed_view::Finder;
use crate::state::viewer::Viewer;

/// Maximum time until an event that was read from the journal is applied.
const APPLIED_WAIT_MAX: Duration = Duration::from_millis(100);

/// Interval between two looks whether it is.
const APPLIED_LOOK: Duration = Duration::from_millis(1);

/// A published post, as [`Event::Published`](crate::feed::event::Event) has it.
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
    /// The followed sources that bring the post, without those that are followed virtually.
    pub via: Vec<SourceId>,
}

impl Engine {
    /// Returns the readers with the rule `notify` who follow a source of a post. [`Engine::missed`] decides which of them have missed it.
    /// Returns none if the post is not applied yet: then nobody can know. Blocks for a moment.
    pub fn may_have_missed(&self, post: PublishedPost<'_>) -> Option<Vec<Candidate>> {
        let world = &self.inner.shared.world;
        let began = Instant::now();
        while world.arrivals.applied().through < post.accepted_at {
            if began.elapsed() >= APPLIED_WAIT_MAX {
                return None;
            }
            thread::park_timeout(APPLIED_LOOK);
        }
        if world.notified.is_empty() {
            return Some(Vec::new());
        }
        let mut found = Vec::new();
        for source in post.draft.sources().filter_map(|id| world.sources.get(id)) {
            world.notified.followers_of(&source, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Some(found.into_iter().map(Candidate).collect())
    }

    /// Decides by the present state if a reader has missed a post: the reader sleeps, has not been seen since the post was accepted, and would
    /// find it in the feed. May block for a moment to read the archive.
    ///
    /// # Errors
    /// Fails if the archive does not answer now.
    pub fn missed(
        &self,
        Candidate(reader): Candidate,
        post: PublishedPost<'_>,
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
        let explained = explain(Finder::Memory(&shared.world), &viewer, post.position.id)
            .or_else(|_| explain(Finder::Archive(&shared.world), &viewer, post.position.id));
        let explanation = match explained {
            Ok(explanation) if explanation.shown => explanation,
            Ok(_) => return Ok(None),
            Err(unavailable) => return Err(unavailable),
        };
        let mut via = Vec::new();
        for reason in explanation.reasons {
            match reason {
                Reason::Follows(source) | Reason::Kept(source) | Reason::Repost { source, .. }
                    if !via.contains(&source) =>
                {
                    via.push(source);
                }
                _ => {}
            }
        }
        Ok(Some(Missed { reader: reader.id.clone(), via }))
    }
}

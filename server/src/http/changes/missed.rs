//! Finds the readers who have missed a post, one after the other.

use std::time::Duration;
use std::vec;

use tracing::warn;

use tidewire::engine::{Candidate, Engine, Missed, PublishedPost};
use tidewire::feed::event::Event;
use tidewire::id::SourceId;
use tidewire::state::explain::ExplainUnavailable;
use tidewire::storage::sequence::Sequence;

/// The readers whose sleep this server can check.
pub(super) struct Readers {
    pub(super) engine: Engine,
    /// Returns true if this server serves the reader.
    pub(super) is_here: Box<dyn Fn(&SourceId) -> bool + Send>,
}

impl Readers {
    /// Returns the time on the engine's monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.engine.shared().clock.monotonic()
    }
}

/// Returns the post that an event publishes.
pub(super) fn published(event: &Event) -> Option<PublishedPost<'_>> {
    match event {
        Event::Published { position, draft, accepted_at } => {
            Some(PublishedPost { position: *position, draft, accepted_at: *accepted_at })
        }
        _ => None,
    }
}

/// A published post, and the readers who may have missed it and were not checked yet.
pub(super) struct MissedPost {
    pub(super) sequence: Sequence,
    pub(super) event: Event,
    /// The reader at which the client resumes: only readers after this one follow.
    after: Option<SourceId>,
    /// The remaining candidates; `None` until the post is applied here.
    left: Option<vec::IntoIter<Candidate>>,
    /// True if the client has a place within the post.
    pub(super) is_entered: bool,
    /// True if this post's readers are left out because the archive does not answer. The archive is not asked again for this post.
    is_archive_away: bool,
    has_warned: bool,
}

/// The result for the next reader of a post.
pub(super) enum Next {
    /// The post is not applied here yet.
    NotApplied,
    /// The archive does not answer. The next call checks the same reader again.
    ArchiveLate,
    /// This reader was checked; `Some` if the reader has missed the post.
    Reader(SourceId, Option<Missed>),
    /// There is no further reader.
    Over,
}

impl MissedPost {
    /// Begins with the readers whose ids are after `after`.
    pub(super) fn new(sequence: Sequence, event: Event, after: Option<SourceId>) -> Self {
        let is_entered = after.is_some();
        Self { sequence, event, after, left: None, is_entered, is_archive_away: false, has_warned: false }
    }

    /// Returns the published post.
    pub(super) fn post(&self) -> Option<PublishedPost<'_>> {
        published(&self.event)
    }

    /// Checks the next reader. Blocks for a limited time.
    pub(super) fn next(&mut self, readers: &Readers, waits: &mut ArchiveWaits) -> Next {
        let Readers { engine, is_here } = readers;
        let Some(post) = published(&self.event) else { return Next::Over };
        if self.left.is_none() {
            self.left = engine.may_have_missed(post, self.after.as_ref()).map(Vec::into_iter);
        }
        let Some(left) = &mut self.left else { return Next::NotApplied };
        let Some(candidate) = left.as_slice().first().copied() else { return Next::Over };
        let id = engine.candidate_id(candidate);
        let asked_at = readers.now();
        let mut found = None;
        // Skips readers of other nodes: those nodes know if the readers sleep, and report them.
        if is_here(id) {
            let mut asked = engine.missed(candidate, post, false);
            if asked.is_err() && !self.is_archive_away {
                asked = engine.missed(candidate, post, true);
                if asked.is_ok() {
                    waits.note_answer();
                }
            }
            match asked {
                Ok(missed) => found = missed,
                Err(ExplainUnavailable::Late) if waits.may_wait(asked_at, readers.now()) => return Next::ArchiveLate,
                Err(cause) => {
                    self.is_archive_away |= cause == ExplainUnavailable::Late;
                    if !self.has_warned {
                        let why = if self.is_archive_away { "does not answer" } else { "is damaged where the post is" };
                        warn!(
                            sequence = self.sequence.0,
                            "a stream of changes omits the readers that have missed a post: the archive {why}"
                        );
                        self.has_warned = true;
                    }
                }
            }
        }
        left.next();
        Next::Reader(id.clone(), found)
    }
}

/// Limits how long a stream waits for an archive that does not answer: `max` per outage, however many reads it delays.
pub(super) struct ArchiveWaits {
    max: Duration,
    outage: Option<Outage>,
}

/// An outage of the archive, in times of the monotonic clock.
#[derive(Clone, Copy)]
struct Outage {
    since: Duration,
    /// The last time at which it did not answer.
    last: Duration,
}

impl ArchiveWaits {
    pub(super) fn new(max: Duration) -> Self {
        Self { max, outage: None }
    }

    /// Notes that the archive has answered. A later failure begins another outage.
    fn note_answer(&mut self) {
        self.outage = None;
    }

    /// Notes that the archive did not answer by `now` a read that began at `asked_at`, both in monotonic time. Returns true if the caller
    /// may retry.
    fn may_wait(&mut self, asked_at: Duration, now: Duration) -> bool {
        // Most readers need no archive, so its recovery may go unnoticed. A failure long after the last one therefore begins a new
        // outage.
        let goes_on = self.outage.filter(|outage| asked_at.saturating_sub(outage.last) < self.max);
        let since = goes_on.map_or(asked_at, |outage| outage.since);
        self.outage = Some(Outage { since, last: now });
        now.saturating_sub(since) < self.max
    }
}

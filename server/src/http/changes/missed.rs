//! The readers who have missed a post, one after the other.

use std::time::Duration;
use std::vec;

use tracing::warn;

use tidewire::engine::{Candidate, Engine, Missed, PublishedPost};
use tidewire::feed::event::Event;
use tidewire::id::SourceId;
use tidewire::state::explain::ExplainUnavailable;
use tidewire::storage::sequence::Sequence;

/// The readers whom this server knows to sleep.
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

/// A published post, and the readers who may have missed it and were not asked about yet.
pub(super) struct MissedPost {
    pub(super) sequence: Sequence,
    pub(super) event: Event,
    /// The reader after whom the client resumes.
    after: Option<SourceId>,
    /// Not known before the post is applied here.
    left: Option<vec::IntoIter<Candidate>>,
    /// True if the client knows a place within the post.
    pub(super) is_entered: bool,
    /// True if readers of this post were left out because the archive does not answer. It is not asked again for this post.
    is_archive_away: bool,
    has_warned: bool,
}

/// What is known of the next reader of a post.
pub(super) enum Next {
    /// The post is not applied here yet.
    NotApplied,
    /// The archive does not answer. The same reader is next again.
    ArchiveLate,
    /// This reader was asked about; `Some` if the post was missed.
    Reader(SourceId, Option<Missed>),
    /// There is no further reader.
    Over,
}

impl MissedPost {
    /// Begins with the readers of a post whose ids are after `after`.
    pub(super) fn new(sequence: Sequence, event: Event, after: Option<SourceId>) -> Self {
        let is_entered = after.is_some();
        Self { sequence, event, after, left: None, is_entered, is_archive_away: false, has_warned: false }
    }

    /// Returns the published post.
    pub(super) fn post(&self) -> Option<PublishedPost<'_>> {
        published(&self.event)
    }

    /// Asks about the next reader. Blocks for a limited time.
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
        // Another node knows whether its readers sleep, and names them.
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
                            "a stream of changes leaves out who has missed a post: the archive {why}"
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

/// How long a stream waits for an archive that does not answer: `max` for each time that it is away, whatever is asked of it meanwhile.
pub(super) struct ArchiveWaits {
    max: Duration,
    outage: Option<Outage>,
}

/// Times on the monotonic clock.
#[derive(Clone, Copy)]
struct Outage {
    since: Duration,
    /// When it last did not answer.
    last: Duration,
}

impl ArchiveWaits {
    pub(super) fn new(max: Duration) -> Self {
        Self { max, outage: None }
    }

    /// Takes note that the archive has answered: if it does not answer after that, it is away another time.
    fn note_answer(&mut self) {
        self.outage = None;
    }

    /// Takes note that the archive has not answered `now` to what was asked at `asked_at`, both of the monotonic clock. Returns true if the same is
    /// to be asked again.
    fn may_wait(&mut self, asked_at: Duration, now: Duration) -> bool {
        // Most readers need no archive, so that one that is back may stay unnoticed.
        let goes_on = self.outage.filter(|outage| asked_at.saturating_sub(outage.last) < self.max);
        let since = goes_on.map_or(asked_at, |outage| outage.since);
        self.outage = Some(Outage { since, last: now });
        now.saturating_sub(since) < self.max
    }
}

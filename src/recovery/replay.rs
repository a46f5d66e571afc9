//! The stages of a replay: decoded events are prepared on one thread, and applied on another.

use std::sync::atomic::Ordering;
use std::thread;

use crossbeam_channel::Sender;

use crate::clock::Timestamp;
use crate::feed::event::Event;
use crate::feed::post::{EarlierRepost, Post};
use crate::recovery::{BATCHES_AHEAD, Recovered, RecoveryProgress};
use crate::state::tiering::changed_post;
use crate::state::world::Applied;
use crate::storage::error::StorageError;
use crate::storage::sequence::Sequence;

/// Events of a journal or a log, in order.
pub(super) struct ReadEvents {
    pub(super) events: Vec<Event>,
    /// The sequence of the last of them.
    pub(super) through: Sequence,
}

/// Applies the events that `read` sends, and returns its result.
pub(super) fn replayed<T: Send, E: From<StorageError> + Send>(
    state: &mut Recovered,
    progress: &RecoveryProgress,
    read: impl FnOnce(Sender<ReadEvents>) -> Result<T, E> + Send,
) -> Result<T, E> {
    let (events, decoded) = crossbeam_channel::bounded::<ReadEvents>(BATCHES_AHEAD);
    let (prepared, taken) = crossbeam_channel::bounded::<(Vec<Prepared>, Sequence)>(BATCHES_AHEAD);
    thread::scope(|scope| {
        let reading = scope.spawn(move || read(events));
        // Each stage owns its sender. It ends when its input is closed, or when the next stage no longer receives.
        scope.spawn(move || {
            let prepare = |ReadEvents { events, through }| {
                prepared.send((events.into_iter().map(Prepared::from).collect(), through))
            };
            decoded.into_iter().try_for_each(prepare)
        });
        let mut outcome = Ok(());
        for (batch, through) in taken {
            progress.events.fetch_add(batch.len() as u64, Ordering::Relaxed);
            batch.into_iter().for_each(|event| apply(state, event, through));
            if let Some(archive) = state.world.replicated_archive() {
                archive.note_applied(through);
            }
            outcome = state
                .machine
                .check_replay()
                .map_err(StorageError::from)
                .and_then(|()| Ok(state.machine.archive_replayed(through)?));
            if outcome.is_err() {
                break;
            }
        }
        outcome?;
        reading.join().expect("reading does not panic")
    })
}

/// An event that is ready to be applied.
enum Prepared {
    /// A published post, already encoded: the encoding is most of the work.
    Post(Post, Vec<EarlierRepost>),
    Other(Event),
}

impl From<Event> for Prepared {
    fn from(event: Event) -> Self {
        match event {
            Event::Published { position, mut draft, accepted_at } => {
                let earlier = std::mem::take(&mut draft.earlier_reposts);
                Self::Post(Post::new(position, &draft, accepted_at), earlier)
            }
            other => Self::Other(other),
        }
    }
}

/// Applies an event up to `through`.
fn apply(state: &mut Recovered, event: Prepared, through: Sequence) {
    let drift_us = state.last_instant.drift_us;
    let changed = match &event {
        Prepared::Post(post, _) => Some(post.id()),
        Prepared::Other(event) => changed_post(event),
    };
    let (applied, taken) = match event {
        Prepared::Post(post, earlier) => {
            let instant = post.accepted_at;
            (state.machine.publish(post, &earlier), Some(Timestamp { instant, drift_us }))
        }
        Prepared::Other(event) => (state.machine.apply(&event), event.taken(drift_us)),
    };
    if let (Some(archive), Some(id)) = (state.world.replicated_archive(), changed) {
        archive.note_change(through, id);
    }
    // The last instant of the snapshot is later than those of the first replayed events.
    let is_later = |taken: &Timestamp| taken.instant >= state.last_instant.instant;
    state.last_instant = taken.filter(is_later).unwrap_or(state.last_instant);
    if let Applied::Published { post, push, .. } = applied
        && !push.is_empty()
        && !state.inboxes.is_empty()
    {
        state.under_way.push((post.position, push));
    }
}

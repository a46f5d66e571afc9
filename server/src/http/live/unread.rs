//! The number of unread entries on a live connection whose client wants it.
//!
//! It is counted when something has happened that may change it, and at most once in a period, whatever happens meanwhile. The count is that of
//! `GET /v1/users/{user}/marker`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::rt::time::{Sleep, sleep};

use tidewire::engine::{Engine, Unread};
use tidewire::error::Error;
use tidewire::id::SourceId;
use tidewire::live::event::EventKind;

/// Minimum time between two counts.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts unread entries of a reader.
pub(super) struct UnreadCount {
    engine: Engine,
    reader: SourceId,
    state: State,
    /// True if something has happened since the last count began.
    is_outdated: bool,
    /// What the client was told last.
    told: Option<(usize, bool, bool)>,
}

enum State {
    /// A count may begin.
    Idle,
    Counting(Pin<Box<dyn Future<Output = Result<Unread, Error>>>>),
    /// The period after a count is not over.
    Pausing(Pin<Box<Sleep>>),
}

impl UnreadCount {
    pub(super) fn new(engine: Engine, reader: SourceId) -> Self {
        Self { engine, reader, state: State::Idle, is_outdated: false, told: None }
    }

    /// Takes notice of a message to the client.
    pub(super) fn note(&mut self, event: &EventKind) {
        self.is_outdated |= !matches!(event, EventKind::Beat | EventKind::Update(_));
    }

    /// Returns the count when it is another one than the client was told.
    pub(super) fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Unread> {
        loop {
            match &mut self.state {
                State::Idle if !self.is_outdated => return Poll::Pending,
                State::Idle => {
                    self.is_outdated = false;
                    let (engine, reader) = (self.engine.clone(), self.reader.clone());
                    self.state = State::Counting(Box::pin(async move { engine.unread(&reader).await }));
                }
                State::Counting(counting) => {
                    let Poll::Ready(counted) = counting.as_mut().poll(task) else { return Poll::Pending };
                    self.state = State::Pausing(Box::pin(sleep(PERIOD)));
                    match counted {
                        Ok(count) => {
                            let told = Some((count.entries, count.capped, count.complete));
                            if std::mem::replace(&mut self.told, told) != told {
                                // The pause is polled with the next message.
                                task.waker().wake_by_ref();
                                return Poll::Ready(count);
                            }
                        }
                        // A queue is full, for example.
                        Err(_) => self.is_outdated = true,
                    }
                }
                State::Pausing(pause) => {
                    if pause.as_mut().poll(task).is_pending() {
                        return Poll::Pending;
                    }
                    self.state = State::Idle;
                }
            }
        }
    }
}

//! Watching feeds, as the engine's users ask for it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::engine::{Engine, Shared};
use crate::error::Error;
use crate::feed::stream::Place;
use crate::id::{SourceId, SourceSlot};
use crate::limits::{READ_ATTEMPTS_MAX, READ_CRASHES_MAX, WAKE_QUEUE_MAX};
use crate::live::event::Event;
use crate::live::subscriber_queue::{Closing, SubscriberQueue};
use crate::live::watchers::NotAdmitted;
use crate::runtime::message::{Ask, Command, Detach};

/// One live connection: what changes in a reader's home feed, as `docs/live.md` has it. Ends when it is dropped.
pub struct Watcher {
    shared: Arc<Shared>,
    reader: SourceSlot,
    subscriber: Arc<SubscriberQueue>,
    key: usize,
}

/// A connection that does not watch anybody yet, and takes no place among those that do. Is forgotten when it is dropped.
pub struct Unauthenticated {
    shared: Arc<Shared>,
    subscriber: Arc<SubscriberQueue>,
    key: usize,
}

impl Unauthenticated {
    /// How the connection ends, once it must.
    pub fn poll_closed(&mut self, task: &mut Context<'_>) -> Poll<Closing> {
        // Nothing is told before anybody is watched.
        self.subscriber.poll_next(task).map(|told| told.err().unwrap_or(Closing::Gone))
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.shared.watchers.remove_unauthenticated(self.key);
    }
}

impl Engine {
    /// Takes note of a connection that may come to watch somebody, so that it hears of a shutdown.
    ///
    /// # Errors
    /// While that is under way. How many there may be is for the caller to bound.
    pub fn stranger(&self) -> Result<Unauthenticated, Error> {
        let (shared, subscriber) = (Arc::clone(&self.inner.shared), Arc::new(SubscriberQueue::default()));
        let key = shared.watchers.meet(&subscriber).ok_or(Error::ShuttingDown)?;
        Ok(Unauthenticated { shared, subscriber, key })
    }

    /// Watches a reader's home feed. The first event says whether all that was missed since `resume` follows.
    ///
    /// # Errors
    /// When there are too many connections, of this reader or in all, or a queue is full.
    pub async fn watch(&self, reader: &SourceId, resume: Option<Place>) -> Result<Watcher, Error> {
        let mut watcher = self.seat()?;
        let shared = &self.inner.shared;
        // After it was let in: who is refused leaves nothing behind.
        let source = match shared.world.sources.get(reader).filter(|source| source.id.is_user()) {
            Some(known) => known,
            None => self.command(|reply| Command::Meet { user: reader.clone(), reply }).await?,
        };
        watcher.reader = source.slot;
        let mut crashes_before = None;
        for _ in 0..READ_ATTEMPTS_MAX {
            let (reply, answer) = oneshot::channel();
            let ask = Ask::Attach { subscriber: Arc::clone(&watcher.subscriber), resume, reply };
            self.read_scheduler(&source).ask(&source, ask).map_err(|refused| refused.1)?;
            if let Ok(answer) = answer.await {
                return answer.map(|()| watcher);
            }
            // As for a page: it fell asleep, or it crashed.
            let crashes = shared.directory.crashes(source.slot);
            if crashes >= *crashes_before.get_or_insert(crashes) + READ_CRASHES_MAX {
                return Err(Error::ReaderCrashed(reader.clone()));
            }
        }
        Err(shared.overloaded("wake_up", WAKE_QUEUE_MAX))
    }

    /// A place among the live connections.
    fn seat(&self) -> Result<Watcher, Error> {
        let shared = &self.inner.shared;
        let subscriber = Arc::new(SubscriberQueue::default());
        let key = shared.watchers.admit(&subscriber, shared.config.live_max).map_err(|cause| match cause {
            NotAdmitted::Full => shared.overloaded("live_connections", shared.config.live_max),
            NotAdmitted::Stopping => Error::ShuttingDown,
        })?;
        Ok(Watcher { shared: Arc::clone(shared), reader: SourceSlot::NONE, subscriber, key })
    }

    /// Ends all live connections, and lets none in any more. The first step of a shutdown.
    pub fn stop_live(&self) {
        self.inner.shared.watchers.stop();
    }
}

impl Watcher {
    /// The next event, or how the connection ends.
    ///
    /// # Errors
    /// When there are no more events.
    pub async fn next(&mut self) -> Result<Event, Closing> {
        poll_fn(|task| self.poll_next(task)).await
    }

    /// As [`Watcher::next`].
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Result<Event, Closing>> {
        self.subscriber.poll_next(task)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.subscriber.close(Closing::Gone);
        self.shared.watchers.dismiss(self.key);
        if let Err(actix::dev::SendError::Full(_)) = self.shared.directory.send(self.reader, Detach) {
            self.shared.watchers.unsettle(self.reader);
        }
    }
}

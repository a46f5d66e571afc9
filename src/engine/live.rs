//! The engine's interface for live connections.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::{Engine, Shared};
use crate::error::Error;
use crate::feed::stream::StreamPosition;
use crate::id::{SourceId, SourceSlot};
use crate::live::event::LiveEvent;
use crate::live::subscriber_queue::{Closing, SubscriberQueue};
use crate::live::watchers::NotAdmitted;
use crate::runtime::message::{Command, Detach, WakingRequest};
use crate::runtime::reader::read_scheduler::ReadScheduler;

/// One live connection: the changes of a reader's home feed, as specified in `docs/live.md`. Dropping it ends the
/// connection.
pub struct Watcher {
    shared: Arc<Shared>,
    reader: SourceSlot,
    subscriber: Arc<SubscriberQueue>,
    key: usize,
}

/// A connection that does not watch a reader yet, and does not count toward the limit of watching connections. Dropping
/// it removes it.
pub struct Unauthenticated {
    shared: Arc<Shared>,
    subscriber: Arc<SubscriberQueue>,
    key: usize,
}

impl Unauthenticated {
    /// Returns the reason why the connection ends, once it has to end.
    pub fn poll_closed(&mut self, task: &mut Context<'_>) -> Poll<Closing> {
        // No event is queued before the connection watches a reader.
        self.subscriber.poll_next(task).map(|event| event.err().unwrap_or(Closing::Gone))
    }
}

impl Drop for Unauthenticated {
    fn drop(&mut self) {
        self.shared.watchers.remove_unauthenticated(self.key);
    }
}

impl Engine {
    /// Registers a connection that may later watch a reader, so that a shutdown closes it.
    ///
    /// # Errors
    /// Fails during a shutdown. The caller has to limit the number of such connections.
    pub fn unauthenticated(&self) -> Result<Unauthenticated, Error> {
        let (shared, subscriber) = (Arc::clone(&self.inner.shared), Arc::new(SubscriberQueue::default()));
        let key = shared.watchers.add_unauthenticated(&subscriber).ok_or(Error::ShuttingDown)?;
        Ok(Unauthenticated { shared, subscriber, key })
    }

    /// Watches a reader's home feed. The first event reports whether all events missed since `resume` follow.
    ///
    /// # Errors
    /// Fails if there are too many connections, of this reader or in total, or a queue is full, or the reader's
    /// actor crashes.
    pub async fn watch(&self, reader: &SourceId, resume: Option<StreamPosition>) -> Result<Watcher, Error> {
        let mut watcher = self.admit()?;
        let shared = &self.inner.shared;
        // The user is registered only after the connection is admitted, so that a refused connection adds no user.
        let source = match shared.world.sources.get(reader).filter(|source| source.id.is_user()) {
            Some(known) => known,
            None => self.command(|reply| Command::RegisterUser { user: reader.clone(), reply }).await?,
        };
        watcher.reader = source.slot;
        shared.watchers.set_reader(watcher.key, source.slot);
        let attach = |scheduler: &Arc<ReadScheduler>, reply| {
            let ask = WakingRequest::Attach { subscriber: Arc::clone(&watcher.subscriber), resume, reply };
            scheduler.ask(&source, ask).map_err(|refused| refused.1)
        };
        self.ask_actor(&source, attach).await?;
        Ok(watcher)
    }

    /// Admits a connection that watches a reader, within the limit.
    fn admit(&self) -> Result<Watcher, Error> {
        let shared = &self.inner.shared;
        let subscriber = Arc::new(SubscriberQueue::default());
        let key = shared.watchers.admit(&subscriber, shared.config.live_max).map_err(|cause| match cause {
            NotAdmitted::Full => shared.overloaded("live_connections", shared.config.live_max),
            NotAdmitted::Stopping => Error::ShuttingDown,
        })?;
        Ok(Watcher { shared: Arc::clone(shared), reader: SourceSlot::NONE, subscriber, key })
    }

    /// Returns true once live connections are closed for good.
    pub fn is_live_stopped(&self) -> bool {
        self.inner.shared.watchers.is_stopped()
    }

    /// Closes all live connections, and admits no more. This is the first step of a shutdown.
    pub fn stop_live(&self) {
        self.inner.shared.watchers.stop();
    }
}

impl Watcher {
    /// Waits for the next event.
    ///
    /// # Errors
    /// Returns the reason why the connection ends, if there are no more events.
    pub async fn next(&mut self) -> Result<LiveEvent, Closing> {
        poll_fn(|task| self.poll_next(task)).await
    }

    /// Polls for the next event, as [`Watcher::next`].
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Result<LiveEvent, Closing>> {
        self.subscriber.poll_next(task)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.subscriber.close(Closing::Gone);
        self.shared.watchers.remove(self.key);
        if let Err(actix::dev::SendError::Full(_)) = self.shared.directory.send(self.reader, Detach) {
            self.shared.watchers.note_mailbox_full(self.reader);
        }
    }
}

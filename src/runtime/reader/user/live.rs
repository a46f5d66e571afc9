//! The live part of a user actor: its side of live connections.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use actix::dev::SendError;
use actix::{AsyncContext, Context, Handler};

use crate::error::Error;
use crate::feed::stream::{Invalidation, StreamPosition};
use crate::limits::LIVE_CONNECTIONS_PER_READER_MAX;
use crate::live::subscriber_queue::SubscriberQueue;
use crate::runtime::message::{Detach, Fetched, InvalidationsPending, Reply};
use crate::runtime::reader::user::UserActor;
use crate::runtime::reader::user::watch::{PendingLookup, Watch, WatchContext};
use crate::state::reader::PageStart;
use crate::state::world::World;

impl UserActor {
    pub(super) fn attach(
        &mut self,
        subscriber: Arc<SubscriberQueue>,
        resume: Option<StreamPosition>,
        reply: Reply<()>,
        ctx: &mut Context<Self>,
    ) {
        let now = self.core.clock.now();
        let Some(inbox_handle) = self.inbox_handle.as_ref() else { return };
        let source = self.reader.source();
        if source.is_erased() {
            return drop(reply.send(Err(Error::BeingErased { id: source.id.clone() })));
        }
        let mut context = WatchContext { core: &self.core, reader: &mut self.reader, inbox_handle, now };
        let watch = self.watch.get_or_insert_with(|| Box::new(Watch::begin(&mut context, ctx.address())));
        self.core.world.sources.at(context.slot()).seen(now);
        let is_in = watch.attach(&mut context, subscriber, resume);
        let (reader, limit) = (&self.reader.source().id, LIVE_CONNECTIONS_PER_READER_MAX);
        let too_many = || Error::TooMany { reader: reader.clone(), what: "live connections", limit };
        // The caller may have disconnected. Then the connection is found closed later.
        let _ = reply.send(if is_in { Ok(()) } else { Err(too_many()) });
        self.stop_watching_later(ctx);
    }

    /// Returns true if a live connection is attached.
    pub(super) fn has_live_connections(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.unattended_since().is_none())
    }

    /// Calls `work` with the watch and its context, if the reader is watched.
    fn with_watch<T>(&mut self, work: impl FnOnce(&mut Watch, &mut WatchContext<'_>) -> T) -> Option<T> {
        let now = self.core.clock.now();
        let (watch, inbox_handle) = (self.watch.as_mut()?, self.inbox_handle.as_ref()?);
        let mut context = WatchContext { core: &self.core, reader: &mut self.reader, inbox_handle, now };
        Some(work(watch, &mut context))
    }

    pub(super) fn invalidation(&mut self, invalidation: Invalidation) {
        let lookup = self.with_watch(|watch, context| watch.invalidation(context, invalidation)).flatten();
        lookup.into_iter().for_each(|lookup| self.fetch(lookup));
    }

    /// Looks up the posts that an invalidation concerns, on a thread that may wait for a disk.
    fn fetch(&mut self, PendingLookup { invalidation, sought, asked }: PendingLookup) {
        let (core, slot) = (Arc::clone(&self.core), self.reader.source().slot);
        let Some(inbox_handle) = self.inbox_handle.as_ref() else { return };
        let start = PageStart::of(self.reader.source(), &core.world);
        let inbox = inbox_handle.with(|inbox| inbox.clone());
        let read = self.reader.cold_read(start, inbox, &core.world);
        let (answer, directory) = (Arc::clone(&core), Arc::clone(&self.directory));
        let job = move |world: &World| {
            // A panic loses only this lookup; the thread continues.
            let found = panic::catch_unwind(AssertUnwindSafe(|| read.entry_of(world, sought))).unwrap_or_default();
            if let Err(SendError::Full(_)) = directory.send(slot, Fetched { invalidation, asked, found }) {
                answer.watchers.note_mailbox_full(slot);
            }
        };
        if !core.archive_readers.ask(job) {
            let refused = Fetched { invalidation, asked, found: None };
            self.with_watch(|watch, context| watch.fetched(context, refused));
        }
    }

    /// Schedules the end of the watch after the last connection has ended. The delay lets the client reconnect
    /// without a new start.
    fn stop_watching_later(&mut self, ctx: &mut Context<Self>) {
        let Some(since) = self.watch.as_ref().and_then(|watch| watch.unattended_since()) else { return };
        let source = self.reader.source();
        if source.last_seen().is_none_or(|seen| seen < since) {
            // A live client has seen all posts published until then, however long ago it connected.
            source.seen(since);
        }
        let end = ctx.run_later(self.core.config.live_history_ttl, move |actor, _| {
            let Some(watch) = actor.watch.take_if(|watch| watch.unattended_since() == Some(since)) else { return };
            watch.end(&actor.core, actor.reader.source().slot);
            if let Some(inbox_handle) = &actor.inbox_handle {
                inbox_handle.unwatch();
            }
        });
        if let Some(earlier) = self.end_of_watch.replace(end) {
            ctx.cancel_future(earlier);
        }
    }
}

impl Handler<InvalidationsPending> for UserActor {
    type Result = ();

    fn handle(&mut self, _: InvalidationsPending, ctx: &mut Self::Context) {
        let Some(inbox_handle) = self.inbox_handle.as_ref() else { return };
        let was_connected = self.has_live_connections();
        inbox_handle.take_invalidations().into_iter().for_each(|invalidation| self.invalidation(invalidation));
        self.with_watch(|watch, context| watch.prune(context.now));
        if was_connected {
            self.stop_watching_later(ctx);
        }
    }
}

impl Handler<Fetched> for UserActor {
    type Result = ();

    fn handle(&mut self, fetched: Fetched, _: &mut Self::Context) {
        let lookup = self.with_watch(|watch, context| watch.fetched(context, fetched)).flatten();
        lookup.into_iter().for_each(|lookup| self.fetch(lookup));
    }
}

impl Handler<Detach> for UserActor {
    type Result = ();

    fn handle(&mut self, _: Detach, ctx: &mut Self::Context) {
        self.with_watch(|watch, context| watch.prune(context.now));
        self.stop_watching_later(ctx);
    }
}

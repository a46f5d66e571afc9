//! The user actor: the actor of one active reader, which owns its inbox.

pub mod directory;
pub mod inbox_store;
mod live;
#[cfg(test)]
mod model;
mod watch;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, SpawnHandle};
use tracing::error;

use crate::feed::inbox::Inbox;
use crate::feed::page::{Page, Reach};
use crate::feed::stream::Invalidation;
use crate::runtime::core::Core;
use crate::runtime::message::{Reply, Sleep, WakingRequest};
use crate::runtime::reader::user::directory::Directory;
use crate::runtime::reader::user::inbox_store::{InboxHandle, InboxStore};
use crate::runtime::reader::user::watch::Watch;
use crate::state::feed_filter::Entry;
use crate::state::reader::{ColdRead, PageRequest, PageStart, Reader};
use crate::state::sources::Source;
use crate::state::verify::{Verdict, verify};

/// Delay after which an inbox with an apparent error is checked again before the error is reported. Posts that are being delivered arrive
/// sooner.
const VERIFY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The actor of one active reader.
pub struct UserActor {
    core: Arc<Core>,
    directory: Arc<Directory>,
    reader: Reader,
    /// None after the actor was put to sleep.
    inbox_handle: Option<InboxHandle>,
    /// True if the inbox was filled before the actor started.
    is_restored: bool,
    watch: Option<Box<Watch>>,
    /// The scheduled end of the watch, which takes effect if no client connects before.
    end_of_watch: Option<SpawnHandle>,
}

/// A page, or the input for building it on another thread: with the archive, or with more time.
enum Built {
    Page(Page<Entry>),
    /// The second value is the page as far as it could be built here.
    Cold(ColdRead, Page<Entry>),
}

impl UserActor {
    /// Creates the actor of a reader, whose inbox receives posts from now on. The inbox has the contents of
    /// `restored`, or it is built before the first message.
    pub fn new(
        source: Arc<Source>,
        restored: Option<Inbox>,
        inbox_store: Rc<RefCell<InboxStore>>,
        core: Arc<Core>,
        directory: Arc<Directory>,
    ) -> Self {
        let local = core.world.sharding.local(source.slot);
        let inbox_handle = InboxHandle::open(inbox_store, local, core.config.inbox_posts);
        directory.enter(source.slot);
        let is_restored = restored.is_some();
        restored.into_iter().for_each(|restored| inbox_handle.with(|inbox| *inbox = restored));
        Self {
            core,
            directory,
            reader: Reader::new(source),
            inbox_handle: Some(inbox_handle),
            is_restored,
            watch: None,
            end_of_watch: None,
        }
    }

    /// Fills the inbox from outboxes, unless it was restored.
    fn fill(&mut self) {
        let Some(inbox_handle) = self.inbox_handle.as_ref().filter(|_| !self.is_restored) else { return };
        let began = Instant::now();
        // The inbox has the posts that were delivered since it was opened. An empty one replaces it meanwhile, and no
        // page is built from that.
        let mut inbox = inbox_handle.take();
        self.reader.rebuild(&mut inbox, &self.core.world);
        inbox_handle.with(|empty| *empty = inbox);
        self.core.counters.wake_latency.record(began.elapsed());
    }

    fn page(&mut self, request: PageRequest) -> Option<Built> {
        let core = &self.core;
        let now = core.clock.now();
        if !request.range.is_count() {
            self.reader.source().seen(now);
            self.reader.source().note_page();
        }
        let (reader, oldest) = (&mut self.reader, core.config.oldest_in_inbox(now));
        let inbox_handle = self.inbox_handle.as_ref()?;
        let start = PageStart::of(reader.source(), &core.world);
        // A copy, so that no direct read finds the stripe locked while this page is built.
        let inbox = inbox_handle.with(|inbox| {
            start.synchronize(inbox, &core.world, oldest);
            inbox.clone()
        });
        let page = reader.page(&start, &inbox, &core.world, request, core.read_clock(now));
        // Stored even if it did not change here: other code refreshes it as well, and this replaces a list on which a
        // direct read crashed.
        inbox_handle.set_pulled(reader.pulled());
        inbox_handle.remove(&page.gone);
        if let Some(watch) = &mut self.watch {
            watch.page_built(request.range, &page, start.viewer());
        }
        if page.needs_archive || page.reach != Reach::Full {
            return Some(Built::Cold(reader.cold_read(start, inbox, &core.world), page));
        }
        core.count_page(&page);
        Some(Built::Page(page))
    }

    /// Builds a page on a thread that may wait for a disk, so that no other reader is delayed.
    fn read_cold(&self, read: ColdRead, begun: Page<Entry>, request: PageRequest, reply: Reply<Page<Entry>>) {
        self.core.read_cold(reply, begun, move |world, clock| read.page(world, request, clock));
    }

    fn verify(&mut self) -> Option<Verdict> {
        let (core, reader) = (&self.core, &mut self.reader);
        let inbox_handle = self.inbox_handle.as_ref()?;
        Some(inbox_handle.with(|inbox| verify(reader, inbox, &core.world, || core.open_fanouts.positions())))
    }

    fn answer_verify(&mut self, rebuild: bool, reply: Reply<Verdict>, ctx: &mut Context<Self>) {
        match self.verify() {
            Some(verdict) if verdict.is_good() => self.conclude(verdict, rebuild, reply),
            Some(first) => {
                // A difference counts only if a second comparison confirms it, after deliveries in flight had time to
                // arrive.
                ctx.run_later(VERIFY_AGAIN_AFTER, move |actor, _| {
                    if let Some(second) = actor.verify() {
                        actor.conclude(second.confirming(&first), rebuild, reply);
                    }
                });
            }
            // The actor was put to sleep; the caller repeats the request.
            None => {}
        }
    }

    fn conclude(&mut self, verdict: Verdict, rebuild: bool, reply: Reply<Verdict>) {
        if let Some(inbox_handle) = self.inbox_handle.as_ref().filter(|_| rebuild) {
            let mut inbox = Inbox::new(self.core.config.inbox_posts);
            self.reader.rebuild(&mut inbox, &self.core.world);
            inbox_handle.with(|old| *old = inbox);
            // No other part reports the changes that the rebuild made.
            self.invalidation(Invalidation::Everything);
        }
        // The caller may have disconnected.
        let _ = reply.send(Ok(verdict));
    }

    fn leave(&mut self) {
        let slot = self.reader.source().slot;
        match self.watch.take() {
            Some(watch) => watch.end(&self.core, slot),
            // The actor panicked while the watch was starting.
            None if self.core.watchers.is_watched(slot) => self.core.watchers.leave(slot, &[]),
            None => {}
        }
        if self.inbox_handle.take().is_some() {
            self.directory.leave(slot);
        }
    }
}

impl Actor for UserActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.fill();
        self.core.counters.wakes.add(1);
    }
}

impl Handler<WakingRequest> for UserActor {
    type Result = ();

    fn handle(&mut self, ask: WakingRequest, ctx: &mut Self::Context) {
        // An actor that was put to sleep drops the request; the caller then repeats it.
        match ask {
            WakingRequest::Read { request, reply, permit } => {
                match self.page(request) {
                    // The caller may have disconnected.
                    Some(Built::Page(page)) => drop(reply.send(Ok(page))),
                    Some(Built::Cold(read, begun)) => self.read_cold(read, begun, request, reply),
                    None => {}
                }
                drop(permit);
            }
            WakingRequest::Attach { subscriber, resume, reply } => self.attach(subscriber, resume, reply, ctx),
            WakingRequest::Verify { rebuild, reply } => self.answer_verify(rebuild, reply, ctx),
        }
    }
}

impl Handler<Sleep> for UserActor {
    type Result = ();

    fn handle(&mut self, _: Sleep, ctx: &mut Self::Context) {
        // A user who is being erased loses its live connections.
        if self.has_live_connections() && !self.reader.source().is_erased() {
            return self.core.watchers.note_kept_awake(self.reader.source().slot);
        }
        self.leave();
        self.core.counters.sleeps.add(1);
        ctx.stop();
    }
}

impl Drop for UserActor {
    /// However the actor ends, its inbox is removed and the directory is updated. The next read creates both again.
    fn drop(&mut self) {
        if thread::panicking() {
            let source = self.reader.source();
            error!(reader = %source.id, "a user actor crashed; its next read rebuilds it");
            self.directory.crashed(source.slot, self.core.clock.now());
            self.core.counters.user_crashes.add(1);
        }
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::engine::Engine;
    use crate::feed::event::NewEdge;
    use crate::feed::page::Range;
    use crate::feed::post::{Body, Draft};
    use crate::id::{PostId, SourceId};
    use crate::limits::USER_PANICS_MAX;
    use crate::live::event::EventKind;
    use actix::Message;
    use std::num::NonZeroUsize;
    use std::sync::mpsc;
    use testkit::{eventually_async, in_time};
    use tokio::sync::oneshot;

    /// A message whose handler panics.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Poison;

    impl Handler<Poison> for UserActor {
        type Result = ();

        fn handle(&mut self, _: Poison, _: &mut Self::Context) {
            let inbox_handle = self.inbox_handle.as_ref().unwrap();
            // In the middle of work on the inbox, the worst moment.
            inbox_handle.with(|inbox| panic!("poisoned with {} posts in the inbox", inbox.len()));
        }
    }

    const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 9 };

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    async fn publish(engine: &Engine) {
        engine.publish(Draft::new(id("bob"), Body::new("1").unwrap()), true).await.unwrap();
    }

    /// Makes the actor of `reader` panic, and waits until the directory has recorded it.
    async fn poison(engine: &Engine, reader: &SourceId) {
        let slot = engine.shared().world.sources.get(reader).unwrap().slot;
        assert!(engine.shared().directory.send(slot, Poison).is_ok());
        eventually_async("the crash is recorded", async || !engine.shared().directory.is_active(slot)).await;
    }

    /// Blocks the shard's thread, after a signal that it has begun, until it is released.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct BlockShard(oneshot::Sender<()>, mpsc::Receiver<()>);

    impl Handler<BlockShard> for UserActor {
        type Result = ();

        fn handle(&mut self, BlockShard(begins, until): BlockShard, _: &mut Self::Context) {
            begins.send(()).unwrap();
            let _ = until.recv();
        }
    }

    /// Ann unfollows the only source she follows, reads her feed, and follows it again before her actor handles
    /// either invalidation. At that time the actor finds no difference from the events it has sent.
    #[tokio::test]
    async fn a_page_read_during_a_short_unfollow_does_not_stay_on_the_client() {
        let engine = Engine::start(EngineConfig { shards: NonZeroUsize::MIN, ..EngineConfig::default() });
        let edge = NewEdge::new(id("ann"), id("bob"));
        engine.follow(vec![edge.clone()]).await.unwrap();
        publish(&engine).await;
        let mut watcher = engine.watch(&id("ann"), None).await.unwrap();
        in_time("the next event", watcher.next()).await.unwrap();
        let slot = engine.shared().world.sources.get(&id("ann")).unwrap().slot;
        let ((begins, begun), (let_go, until)) = (oneshot::channel(), mpsc::channel());
        assert!(engine.shared().directory.send(slot, BlockShard(begins, until)).is_ok());
        in_time("the shard is held", begun).await.unwrap();
        engine.unfollow(id("ann"), id("bob")).await.unwrap();
        let asking = engine.clone();
        let page = tokio::spawn(async move { asking.feed(&id("ann"), NEWEST).await });
        tokio::task::yield_now().await;
        engine.follow(vec![edge]).await.unwrap();
        drop(let_go);
        let mut entries = in_time("a page", page).await.unwrap().unwrap().page.items.len();
        publish(&engine).await;
        // The events from here on do not concern the state before.
        loop {
            match in_time("the next event", watcher.next()).await.unwrap().kind {
                EventKind::Post(item) if item.entry.post.id() == newest(&engine).await => break entries += 1,
                EventKind::Post(_) => entries += 1,
                EventKind::Stale(_) => entries = 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(entries, 2, "as many as the feed has, or those that are there to be read again");
        engine.shutdown();
    }

    async fn newest(engine: &Engine) -> PostId {
        engine.feed(&id("ann"), NEWEST).await.unwrap().page.items[0].1.post.id()
    }

    #[tokio::test]
    async fn a_crashed_actor_is_rebuilt_by_the_next_read_and_quarantined_after_many_crashes() {
        let engine = Engine::start(EngineConfig::default());
        let edge = |follower: &str| NewEdge::new(id(follower), id("bob"));
        engine.follow(vec![edge("ann"), edge("cas")]).await.unwrap();
        for posts in 1..=USER_PANICS_MAX {
            publish(&engine).await;
            for reader in ["ann", "cas"] {
                let page = engine.feed(&id(reader), NEWEST).await.unwrap().page;
                assert_eq!(page.items.len(), posts as usize);
            }
            poison(&engine, &id("ann")).await;
        }
        let refused = engine.feed(&id("ann"), NEWEST).await.unwrap_err();
        assert_eq!(refused.code(), "quarantined");
        // The courier of the shard still serves all other readers.
        publish(&engine).await;
        let page = engine.feed(&id("cas"), NEWEST).await.unwrap().page;
        assert_eq!(page.items.len(), USER_PANICS_MAX as usize + 1);
        assert_eq!(engine.shared().counters.user_crashes.get(), u64::from(USER_PANICS_MAX));
        assert_eq!(engine.inbox_totals().await.inboxes, 1);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_request_that_crashes_its_actor_is_abandoned_before_the_reader_is_quarantined() {
        let engine = Engine::start(EngineConfig::default());
        for request in ["feed", "watch", "verify"] {
            let reader = id(request);
            engine.follow(vec![NewEdge::new(reader.clone(), id("bob"))]).await.unwrap();
            let source = engine.shared().world.sources.get(&reader).unwrap();
            Reader::follow_nothing(&source, &engine.shared().world);
            let outcome = match request {
                "feed" => engine.feed(&reader, NEWEST).await.map(drop),
                "watch" => engine.watch(&reader, None).await.map(drop),
                _ => engine.verify_feed(&reader, false).await.map(drop),
            };
            assert_eq!(outcome.unwrap_err().code(), "reader_crashed", "{request}");
            let crashes = engine.shared().directory.crashes(source.slot);
            assert!((1..USER_PANICS_MAX).contains(&crashes), "{request}: {crashes} crashes");
        }
        engine.shutdown();
    }
}

//! The read scheduler of a shard: the entry point for requests to its readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::Addr;
use actix::dev::SendError;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Error;
use crate::feed::page::Page;
use crate::id::SourceSlot;
use crate::limits::{READS_WAITING_PER_SHARD_MAX, USER_MAILBOX_MAX, WAKE_QUEUE_MAX};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::message::{Reply, Wake, WakingRequest};
use crate::runtime::reader::activator::Activator;
use crate::runtime::reader::fair_queue::FairQueue;
use crate::runtime::reader::read_permit::{Permits, ReadPermit, Waking};
use crate::runtime::shared::Shared;
use crate::state::feed_filter::Entry;
use crate::state::reader::PageRequest;
use crate::state::sources::Source;

/// Maximum number of reads that the actors of one shard process at the same time: a fraction of a millisecond's work, and enough that no
/// actor waits for the next read.
const READS_TOGETHER_MAX: usize = 16;

/// The read scheduler of one shard.
pub struct ReadScheduler {
    shared: Arc<Shared>,
    activator: Addr<Activator>,
    /// The waiting reads. The flow key is the most followed source among those that the reader follows: its followers
    /// arrive all at once after it publishes.
    reads: Mutex<FairQueue<SourceSlot, Read>>,
    /// Notified when a permit is released while a read waits.
    released: Notify,
    /// The number of requests that wait for the activator.
    waking: Arc<AtomicUsize>,
    is_closed: AtomicBool,
}

/// A requested page.
struct Read {
    reader: Arc<Source>,
    request: PageRequest,
    reply: Reply<Page<Entry>>,
}

impl ReadScheduler {
    /// Creates the read scheduler of the shard with this activator.
    pub fn new(shared: Arc<Shared>, activator: Addr<Activator>) -> Self {
        let reads = Mutex::new(FairQueue::new(READS_TOGETHER_MAX, READS_WAITING_PER_SHARD_MAX));
        let (released, waking, is_closed) = (Notify::new(), Arc::default(), AtomicBool::new(false));
        Self { shared, activator, reads, released, waking, is_closed }
    }

    /// Grants released permits to waiting reads until the shard's thread ends; it runs on that thread. It is a
    /// separate task: otherwise the actor of a reader with many requests could handle one request after the other and
    /// block all other actors.
    pub async fn grant_permits(self: Arc<Self>) {
        let (_abort_on_exit, _close_on_drop) = (AbortOnExit("read scheduler"), CloseOnDrop(Arc::clone(&self)));
        loop {
            while let Some(read) = self.next_read() {
                self.begin(read);
            }
            self.released.notified().await;
        }
    }

    /// Returns the number of reads that wait for a permit.
    pub fn waiting(&self) -> usize {
        self.reads.lock().waiting()
    }

    /// Returns the number of requests that wait for their readers to be woken.
    pub fn waking(&self) -> usize {
        self.waking.load(Ordering::Relaxed)
    }

    /// Builds a page as soon as a permit is free. A refusal is sent as an answer, too. If the reply is dropped, the
    /// reader's actor ended.
    pub fn read(self: &Arc<Self>, reader: &Arc<Source>, request: PageRequest, reply: Reply<Page<Entry>>) {
        let read = Read { reader: Arc::clone(reader), request, reply };
        if self.reads.lock().try_acquire() {
            return self.begin((read, ReadPermit::new(Arc::clone(self) as _)));
        }
        let flow_key = reader.flow_key(&self.shared.world.sources);
        let queued = self.reads.lock().enqueue(flow_key, read);
        // Between the two locks a permit may have been released, or the task that grants permits may have ended.
        if queued.as_ref().is_ok_and(|is_free| *is_free) {
            self.released.notify_one();
        }
        if self.is_closed.load(Ordering::SeqCst) {
            self.refuse_all();
        }
        if let Err(Read { reply, .. }) = queued {
            // A caller that has disconnected gets no answer, here and below.
            let _ = reply.send(Err(self.shared.overloaded("read_permits", READS_WAITING_PER_SHARD_MAX)));
        }
    }

    /// Sends a request to a reader's actor, and wakes the reader if necessary.
    ///
    /// # Errors
    /// Returns the request if a queue is full, and an error with the name of the queue.
    pub fn ask(&self, reader: &Arc<Source>, ask: WakingRequest) -> Result<(), Box<(WakingRequest, Error)>> {
        let shared = &self.shared;
        let ask = match shared.directory.send(reader.slot, ask) {
            Ok(()) => return Ok(()),
            Err(SendError::Full(ask)) => {
                return Err(Box::new((ask, shared.overloaded("user_mailbox", USER_MAILBOX_MAX))));
            }
            Err(SendError::Closed(ask)) => ask,
        };
        let waking = Waking::begin(&self.waking);
        let wake = Wake { reader: Arc::clone(reader), ask, waking };
        self.activator.try_send(wake).map_err(|refused| match refused {
            SendError::Full(Wake { ask, .. }) => Box::new((ask, shared.overloaded("wake_up", WAKE_QUEUE_MAX))),
            SendError::Closed(Wake { ask, .. }) => Box::new((ask, Error::ShuttingDown)),
        })
    }

    /// Returns the next read whose caller still waits, with its permit.
    fn next_read(self: &Arc<Self>) -> Option<(Read, ReadPermit)> {
        loop {
            let read = self.reads.lock().grant_next()?;
            let permit = ReadPermit::new(Arc::clone(self) as _);
            if !read.reply.is_closed() {
                return Some((read, permit));
            }
        }
    }

    /// Sends a read to its actor.
    fn begin(&self, (read, permit): (Read, ReadPermit)) {
        let Read { reader, request, reply } = read;
        if let Err(refused) = self.ask(&reader, WakingRequest::Read { request, reply, permit }) {
            let (ask, cause) = *refused;
            ask.refuse(cause);
        }
    }

    /// Refuses all waiting reads, since no more permits will be granted.
    fn refuse_all(&self) {
        loop {
            let read = self.reads.lock().remove_oldest();
            let Some(read) = read else { return };
            let _ = read.reply.send(Err(Error::ShuttingDown));
        }
    }
}

/// Closes the read scheduler when the task that grants permits ends, that is when the engine ends.
struct CloseOnDrop(Arc<ReadScheduler>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.refuse_all();
    }
}

impl Permits for ReadScheduler {
    fn release(&self) {
        let is_wanted = self.reads.lock().release();
        if is_wanted {
            self.released.notify_one();
        }
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
    use crate::id::SourceId;
    use crate::limits::USER_PANICS_MAX;
    use crate::runtime::reader::user::UserActor;
    use actix::{Handler, Message};
    use std::num::NonZeroUsize;
    use testkit::{eventually, eventually_async, in_time};
    use tokio::sync::oneshot;
    use tokio::task::JoinSet;

    const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 9 };

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    /// Creates an engine with one shard, in which two readers follow one source.
    async fn engine() -> Engine {
        let config = EngineConfig { shards: NonZeroUsize::new(1).unwrap(), ..EngineConfig::default() };
        let engine = Engine::start(config);
        let edge = |follower: &str| NewEdge::new(id(follower), id("bob"));
        engine.follow(vec![edge("ann"), edge("cas")]).await.unwrap();
        engine
    }

    fn source(engine: &Engine, reader: &str) -> Arc<Source> {
        engine.shared().world.sources.get(&id(reader)).unwrap()
    }

    /// Takes all permits of the shard, while no other reads request any.
    fn take_permits(engine: &Engine) -> Vec<ReadPermit> {
        let read_scheduler = engine.read_scheduler(&source(engine, "ann"));
        let take = |_| {
            // A permit is released a moment after its page was answered.
            eventually("a permit is free", || read_scheduler.reads.lock().try_acquire());
            ReadPermit::new(Arc::clone(read_scheduler) as _)
        };
        (0..READS_TOGETHER_MAX).map(take).collect()
    }

    fn depth(engine: &Engine, name: &str) -> usize {
        engine.queues().into_iter().find(|queue| queue.name == name).unwrap().depth
    }

    fn waiting(engine: &Engine) -> usize {
        depth(engine, "read_permits")
    }

    /// Blocks the shard's thread, after a signal that it has begun, until it is released.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct BlockShard(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>);

    impl Handler<BlockShard> for UserActor {
        type Result = ();

        fn handle(&mut self, BlockShard(begins, until): BlockShard, _: &mut Self::Context) {
            begins.send(()).unwrap();
            let _ = until.recv();
        }
    }

    #[tokio::test]
    async fn readers_that_wait_for_activation_are_counted_until_they_are_awake() {
        let engine = engine().await;
        engine.feed(&id("ann"), NEWEST).await.unwrap();
        let ((begins, begun), (let_go, until)) = (oneshot::channel(), std::sync::mpsc::channel());
        assert!(engine.shared().directory.send(source(&engine, "ann").slot, BlockShard(begins, until)).is_ok());
        in_time("the shard is held", begun).await.unwrap();
        let mut reads = JoinSet::new();
        for waiting in 1..=READS_TOGETHER_MAX {
            let asking = engine.clone();
            reads.spawn(async move { asking.feed(&id("cas"), NEWEST).await.map(drop) });
            eventually_async("the read waits for its reader", async || depth(&engine, "wake_up") >= waiting).await;
        }
        drop(let_go);
        assert!(in_time("the pages", reads.join_all()).await.iter().all(Result::is_ok));
        assert_eq!(depth(&engine, "wake_up"), 0);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_read_beside_a_crowd_waits_for_few_of_its_reads() {
        let engine = engine().await;
        engine.follow(vec![NewEdge::new(id("dan"), id("eve"))]).await.unwrap();
        let mut permits = take_permits(&engine);
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut reads = JoinSet::new();
        // All readers except the last follow bob.
        let readers = ["ann", "cas"].repeat(10).into_iter().chain(["dan"]);
        for (nth, reader) in readers.enumerate() {
            let (asking, done) = (engine.clone(), done.clone());
            reads.spawn(async move {
                asking.feed(&id(reader), NEWEST).await.unwrap();
                done.send(reader).unwrap();
            });
            eventually_async("the read waits for a permit", async || waiting(&engine) > nth).await;
        }
        drop(permits.pop());
        reads.join_all().await;
        drop(done);
        let mut before = 0;
        while order.recv().await.unwrap() != "dan" {
            before += 1;
        }
        assert!(before <= 4, "{before} of the crowd came before");
        engine.shutdown();
    }

    #[tokio::test]
    async fn waiting_reads_are_limited_and_abandoned_reads_use_no_permit() {
        let engine = engine().await;
        let permits = take_permits(&engine);
        let (read_scheduler, ann) =
            (Arc::clone(engine.read_scheduler(&source(&engine, "ann"))), source(&engine, "ann"));
        let ask = || {
            let (reply, answer) = oneshot::channel();
            read_scheduler.read(&ann, NEWEST, reply);
            answer
        };
        let given_up: Vec<_> = std::iter::repeat_with(ask).take(READS_WAITING_PER_SHARD_MAX).collect();
        assert_eq!(waiting(&engine), READS_WAITING_PER_SHARD_MAX);
        let full = Error::Overloaded { queue: "read_permits", limit: READS_WAITING_PER_SHARD_MAX };
        assert_eq!(engine.feed(&id("cas"), NEWEST).await.unwrap_err().to_string(), full.to_string());
        drop(given_up);
        drop(permits);
        eventually_async("no read waits", async || waiting(&engine) == 0).await;
        engine.feed(&id("cas"), NEWEST).await.unwrap();
        assert_eq!((waiting(&engine), engine.shared().counters.pages.get()), (0, 1));
        engine.shutdown();
    }

    /// A read whose handler panics.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Poison(ReadPermit);

    impl Handler<Poison> for UserActor {
        type Result = ();

        fn handle(&mut self, Poison(_permit): Poison, _: &mut Self::Context) {
            panic!("poisoned");
        }
    }

    #[tokio::test]
    async fn the_permit_of_a_read_that_crashes_its_actor_is_released() {
        let engine = engine().await;
        engine.feed(&id("ann"), NEWEST).await.unwrap();
        let mut permits = take_permits(&engine);
        let (asking, cas) = (engine.clone(), id("cas"));
        let read = tokio::spawn(async move { asking.feed(&cas, NEWEST).await.map(drop) });
        eventually_async("a read waits for a permit", async || waiting(&engine) > 0).await;
        let ann = source(&engine, "ann").slot;
        assert!(engine.shared().directory.send(ann, Poison(permits.pop().unwrap())).is_ok());
        read.await.unwrap().unwrap();
        // The permit is released a moment before the actor ends.
        eventually_async("the actor ends", async || engine.shared().directory.crashes(ann) > 0).await;
        engine.shutdown();
    }

    #[tokio::test]
    async fn permits_of_refused_reads_are_released() {
        let engine = engine().await;
        let (ann, now) = (source(&engine, "ann"), engine.shared().clock.now());
        (0..USER_PANICS_MAX).for_each(|_| engine.shared().directory.crashed(ann.slot, now));
        for _ in 0..2 * READS_TOGETHER_MAX {
            assert_eq!(engine.feed(&id("ann"), NEWEST).await.unwrap_err().code(), "quarantined");
        }
        engine.feed(&id("cas"), NEWEST).await.unwrap();
        engine.shutdown();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn endless_reads_of_one_reader_do_not_starve_others_on_the_shard() {
        let engine = engine().await;
        engine.feed(&id("cas"), NEWEST).await.unwrap();
        let mut reads = JoinSet::new();
        for _ in 0..4 * READS_TOGETHER_MAX {
            let engine = engine.clone();
            reads.spawn(async move { while engine.feed(&id("ann"), NEWEST).await.is_ok() {} });
        }
        eventually_async("a read waits for a permit", async || waiting(&engine) > 0).await;
        for _ in 0..20 {
            engine.feed(&id("cas"), NEWEST).await.unwrap();
            engine.publish(Draft::new(id("bob"), Body::new("1").unwrap()), true).await.unwrap();
        }
        engine.shutdown();
        reads.join_all().await;
    }

    #[tokio::test]
    async fn waiting_reads_are_answered_when_the_engine_stops() {
        let engine = engine().await;
        let permits = take_permits(&engine);
        let mut reads = JoinSet::new();
        for nth in 0..100 {
            let asking = engine.clone();
            reads.spawn(async move { asking.feed(&id("ann"), NEWEST).await.map(drop) });
            eventually_async("the read waits for a permit", async || waiting(&engine) > nth).await;
        }
        let ending = engine.clone();
        tokio::task::spawn_blocking(move || ending.shutdown()).await.unwrap();
        let answers = reads.join_all().await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Error::ShuttingDown))), "{answers:?}");
        assert!(matches!(engine.feed(&id("ann"), NEWEST).await, Err(Error::ShuttingDown)), "none waits afterwards");
        drop(permits);
    }
}

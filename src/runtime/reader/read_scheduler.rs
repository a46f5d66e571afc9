//! The read scheduler of a shard: where its readers are asked.
//!
//! Responsible for:
//! - bringing a question to the reader's actor, or to the activator if the reader sleeps;
//! - turns among reads. Few are with actors at the same time, so that a page beside a crowd of others does not wait for all of them.
//!
//! Not responsible for:
//! - waking (`runtime::reader::activator`), what a page holds (`runtime::reader::user`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::Addr;
use actix::dev::SendError;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::Error;
use crate::feed::page::Page;
use crate::id::SourceSlot;
use crate::limits::{READS_TOGETHER_MAX, READS_WAITING_PER_SHARD_MAX, USER_MAILBOX_MAX, WAKE_QUEUE_MAX};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::message::{Ask, Reply, Wake};
use crate::runtime::reader::activator::Activator;
use crate::runtime::reader::fair_queue::FairQueue;
use crate::runtime::shared::Shared;
use crate::state::reader::PageRequest;
use crate::state::sources::Source;
use crate::state::view::Entry;

/// Where the readers of one shard are asked.
pub struct ReadScheduler {
    shared: Arc<Shared>,
    activator: Addr<Activator>,
    /// By the source that most follow of those that the reader does: its followers come all at once when it does something.
    reads: Mutex<FairQueue<SourceSlot, Read>>,
    /// A turn has ended that somebody waits for.
    ended: Notify,
    /// Questions that wait for the activator.
    waking: Arc<AtomicUsize>,
    is_closed: AtomicBool,
}

/// A page that is asked for.
struct Read {
    reader: Arc<Source>,
    request: PageRequest,
    reply: Reply<Page<Entry>>,
}

/// The turn of a read, which ends when this is dropped, however the read ended.
pub struct Turn(Arc<ReadScheduler>);

/// A question on its way to the activator: it is counted until this is dropped, whatever becomes of it.
#[derive(Debug)]
pub struct Waking(Arc<AtomicUsize>);

impl ReadScheduler {
    /// The read scheduler of the shard with this activator.
    pub fn new(shared: Arc<Shared>, activator: Addr<Activator>) -> Self {
        let reads = Mutex::new(FairQueue::new(READS_TOGETHER_MAX, READS_WAITING_PER_SHARD_MAX));
        let (ended, waking, is_closed) = (Notify::new(), Arc::default(), AtomicBool::new(false));
        Self { shared, activator, reads, ended, waking, is_closed }
    }

    /// Gives turns that have ended to those who wait, for as long as the shard's thread goes on, on which this is to run: as a task
    /// of its own, or the actor of a reader whom many ask for would go from one question to the next and let no other actor run.
    pub async fn usher(self: Arc<Self>) {
        let (_abort_on_exit, _closes) = (AbortOnExit("read scheduler"), Closes(Arc::clone(&self)));
        loop {
            while let Some(read) = self.next() {
                self.begin(read);
            }
            self.ended.notified().await;
        }
    }

    /// Reads that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.reads.lock().waiting()
    }

    /// Questions that wait for their readers to be woken.
    pub fn waking(&self) -> usize {
        self.waking.load(Ordering::Relaxed)
    }

    /// Has a page built as soon as it is its turn. Refusals are answers, too; without any, the reader's actor went away.
    pub fn read(self: &Arc<Self>, reader: &Arc<Source>, request: PageRequest, reply: Reply<Page<Entry>>) {
        let read = Read { reader: Arc::clone(reader), request, reply };
        if self.reads.lock().take() {
            return self.begin((read, Turn(Arc::clone(self))));
        }
        let crowd = reader.crowd(&self.shared.world.sources);
        let waits = self.reads.lock().wait(crowd, read);
        // Between both looks a turn may have ended, or have whoever gives turns.
        if waits.as_ref().is_ok_and(|is_free| *is_free) {
            self.ended.notify_one();
        }
        if self.is_closed.load(Ordering::SeqCst) {
            self.refuse_all();
        }
        if let Err(Read { reply, .. }) = waits {
            // Whoever went away needs no answer, here and below.
            let _ = reply.send(Err(self.shared.overloaded("read_turns", READS_WAITING_PER_SHARD_MAX)));
        }
    }

    /// Asks a reader, who is woken for it if necessary.
    ///
    /// # Errors
    /// Hands the question back if there is no room for it, and says where not.
    pub fn ask(&self, reader: &Arc<Source>, ask: Ask) -> Result<(), Box<(Ask, Error)>> {
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

    /// The next read that somebody still waits for, with its turn.
    fn next(self: &Arc<Self>) -> Option<(Read, Turn)> {
        loop {
            let read = self.reads.lock().next()?;
            let turn = Turn(Arc::clone(self));
            if !read.reply.is_closed() {
                return Some((read, turn));
            }
        }
    }

    /// Sends a read to its actor.
    fn begin(&self, (read, turn): (Read, Turn)) {
        let Read { reader, request, reply } = read;
        if let Err(refused) = self.ask(&reader, Ask::Read { request, reply, turn }) {
            let (ask, cause) = *refused;
            ask.refuse(cause);
        }
    }

    /// Nobody gives turns any more.
    fn refuse_all(&self) {
        loop {
            let read = self.reads.lock().remove();
            let Some(read) = read else { return };
            let _ = read.reply.send(Err(Error::ShuttingDown));
        }
    }
}

/// Closes the read scheduler when its usher ends, which is when the engine does.
struct Closes(Arc<ReadScheduler>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.refuse_all();
    }
}

impl Waking {
    fn begin(waking: &Arc<AtomicUsize>) -> Self {
        waking.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(waking))
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_wanted = self.0.reads.lock().end();
        if is_wanted {
            self.0.ended.notify_one();
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Turn")
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
    use tokio::sync::oneshot;
    use tokio::task::JoinSet;

    const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 9 };

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    /// An engine with one shard, where two readers follow somebody.
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

    /// All turns of the shard, where nobody else asks for any.
    fn take_turns(engine: &Engine) -> Vec<Turn> {
        let read_scheduler = engine.read_scheduler(&source(engine, "ann"));
        let take = |_| {
            // A turn ends a moment after its page was answered.
            while !read_scheduler.reads.lock().take() {
                std::thread::yield_now();
            }
            Turn(Arc::clone(read_scheduler))
        };
        (0..READS_TOGETHER_MAX).map(take).collect()
    }

    fn depth(engine: &Engine, name: &str) -> usize {
        engine.queues().into_iter().find(|queue| queue.name == name).unwrap().depth
    }

    fn waiting(engine: &Engine) -> usize {
        depth(engine, "read_turns")
    }

    /// Keeps the shard from everything else, once it says so, until somebody lets go.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Keep(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>);

    impl Handler<Keep> for UserActor {
        type Result = ();

        fn handle(&mut self, Keep(begins, until): Keep, _: &mut Self::Context) {
            begins.send(()).unwrap();
            let _ = until.recv();
        }
    }

    #[tokio::test]
    async fn readers_that_wait_to_be_woken_are_counted_until_they_are() {
        let engine = engine().await;
        engine.feed(&id("ann"), NEWEST).await.unwrap();
        let ((begins, begun), (let_go, until)) = (oneshot::channel(), std::sync::mpsc::channel());
        assert!(engine.shared().directory.send(source(&engine, "ann").slot, Keep(begins, until)).is_ok());
        begun.await.unwrap();
        let mut reads = JoinSet::new();
        for waiting in 1..=READS_TOGETHER_MAX {
            let asking = engine.clone();
            reads.spawn(async move { asking.feed(&id("cas"), NEWEST).await.map(drop) });
            while depth(&engine, "wake_up") < waiting {
                tokio::task::yield_now().await;
            }
        }
        drop(let_go);
        assert!(reads.join_all().await.iter().all(Result::is_ok));
        assert_eq!(depth(&engine, "wake_up"), 0);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_read_that_comes_beside_a_crowd_does_not_wait_for_all_of_it() {
        let engine = engine().await;
        engine.follow(vec![NewEdge::new(id("dan"), id("eve"))]).await.unwrap();
        let mut turns = take_turns(&engine);
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut reads = JoinSet::new();
        // All but the last follow bob.
        let readers = ["ann", "cas"].repeat(10).into_iter().chain(["dan"]);
        for (nth, reader) in readers.enumerate() {
            let (asking, done) = (engine.clone(), done.clone());
            reads.spawn(async move {
                asking.feed(&id(reader), NEWEST).await.unwrap();
                done.send(reader).unwrap();
            });
            while waiting(&engine) <= nth {
                tokio::task::yield_now().await;
            }
        }
        drop(turns.pop());
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
    async fn no_more_reads_wait_than_there_is_room_for_and_those_given_up_take_no_turn() {
        let engine = engine().await;
        let turns = take_turns(&engine);
        let (read_scheduler, ann) =
            (Arc::clone(engine.read_scheduler(&source(&engine, "ann"))), source(&engine, "ann"));
        let ask = || {
            let (reply, answer) = oneshot::channel();
            read_scheduler.read(&ann, NEWEST, reply);
            answer
        };
        let given_up: Vec<_> = std::iter::repeat_with(ask).take(READS_WAITING_PER_SHARD_MAX).collect();
        assert_eq!(waiting(&engine), READS_WAITING_PER_SHARD_MAX);
        let full = Error::Overloaded { queue: "read_turns", limit: READS_WAITING_PER_SHARD_MAX };
        assert_eq!(engine.feed(&id("cas"), NEWEST).await.unwrap_err().to_string(), full.to_string());
        drop(given_up);
        drop(turns);
        while waiting(&engine) > 0 {
            tokio::task::yield_now().await;
        }
        engine.feed(&id("cas"), NEWEST).await.unwrap();
        assert_eq!((waiting(&engine), engine.shared().counters.pages.get()), (0, 1));
        engine.shutdown();
    }

    /// A read whose handler crashes.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Poison(Turn);

    impl Handler<Poison> for UserActor {
        type Result = ();

        fn handle(&mut self, Poison(_turn): Poison, _: &mut Self::Context) {
            panic!("poisoned");
        }
    }

    #[tokio::test]
    async fn the_turn_of_a_read_that_crashes_its_actor_is_passed_on() {
        let engine = engine().await;
        engine.feed(&id("ann"), NEWEST).await.unwrap();
        let mut turns = take_turns(&engine);
        let (asking, cas) = (engine.clone(), id("cas"));
        let read = tokio::spawn(async move { asking.feed(&cas, NEWEST).await.map(drop) });
        while waiting(&engine) == 0 {
            tokio::task::yield_now().await;
        }
        let ann = source(&engine, "ann").slot;
        assert!(engine.shared().directory.send(ann, Poison(turns.pop().unwrap())).is_ok());
        read.await.unwrap().unwrap();
        // The turn ends a moment before the actor does.
        while engine.shared().directory.crashes(ann) == 0 {
            tokio::task::yield_now().await;
        }
        engine.shutdown();
    }

    #[tokio::test]
    async fn the_turns_of_reads_that_are_refused_are_passed_on() {
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
    async fn a_reader_whom_many_ask_for_without_end_does_not_keep_the_shard_from_others() {
        let engine = engine().await;
        engine.feed(&id("cas"), NEWEST).await.unwrap();
        let mut reads = JoinSet::new();
        for _ in 0..4 * READS_TOGETHER_MAX {
            let engine = engine.clone();
            reads.spawn(async move { while engine.feed(&id("ann"), NEWEST).await.is_ok() {} });
        }
        while waiting(&engine) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            engine.feed(&id("cas"), NEWEST).await.unwrap();
            engine.publish(Draft::new(id("bob"), Body::new("1").unwrap()), true).await.unwrap();
        }
        engine.shutdown();
        reads.join_all().await;
    }

    #[tokio::test]
    async fn reads_that_wait_are_answered_when_the_engine_ends() {
        let engine = engine().await;
        let turns = take_turns(&engine);
        let mut reads = JoinSet::new();
        for nth in 0..100 {
            let asking = engine.clone();
            reads.spawn(async move { asking.feed(&id("ann"), NEWEST).await.map(drop) });
            while waiting(&engine) <= nth {
                tokio::task::yield_now().await;
            }
        }
        let ending = engine.clone();
        tokio::task::spawn_blocking(move || ending.shutdown()).await.unwrap();
        let answers = reads.join_all().await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Error::ShuttingDown))), "{answers:?}");
        assert!(matches!(engine.feed(&id("ann"), NEWEST).await, Err(Error::ShuttingDown)), "none waits afterwards");
        drop(turns);
    }
}

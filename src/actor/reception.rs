//! The reception of a shard: where its readers are asked.
//!
//! Responsible for:
//! - bringing a question to the reader's actor, or to the doorkeeper if the reader sleeps;
//! - turns among reads. Few are with actors at the same time, so that a page beside a crowd of others does not wait for all of them.
//!
//! Not responsible for:
//! - waking (`actor::doorkeeper`), what a page holds (`actor::user`).

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use actix::Addr;
use actix::dev::SendError;
use parking_lot::Mutex;

use crate::actor::doorkeeper::Doorkeeper;
use crate::actor::message::{Ask, Reply, Wake};
use crate::actor::turns::{Arrival, Next, Rules, Turns};
use crate::engine::Shared;
use crate::error::Error;
use crate::feed::page::Page;
use crate::limits::{
    READ_WAIT_MAX, READS_NEWEST_FIRST_ABOVE, READS_TOGETHER_MAX, READS_WAITING_PER_SHARD_MAX, USER_MAILBOX_MAX,
    WAKE_QUEUE_MAX,
};
use crate::state::reader::PageRequest;
use crate::state::sources::Source;
use crate::state::view::Entry;

/// Where the readers of one shard are asked.
pub struct Reception {
    shared: Arc<Shared>,
    doorkeeper: Addr<Doorkeeper>,
    reads: Mutex<Turns<Read>>,
}

/// A page that is asked for.
struct Read {
    reader: Arc<Source>,
    request: PageRequest,
    reply: Reply<Page<Entry>>,
}

/// The turn of a read. The next one gets it when this is dropped, however the read ended.
pub struct Turn(Option<Arc<Reception>>);

impl Reception {
    /// The reception of the shard with this doorkeeper.
    pub fn new(shared: Arc<Shared>, doorkeeper: Addr<Doorkeeper>) -> Self {
        let rules = Rules {
            together_max: READS_TOGETHER_MAX,
            waiting_max: READS_WAITING_PER_SHARD_MAX,
            newest_first_above: READS_NEWEST_FIRST_ABOVE,
            wait_max: READ_WAIT_MAX,
        };
        Self { shared, doorkeeper, reads: Mutex::new(Turns::new(rules)) }
    }

    /// Reads that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.reads.lock().waiting()
    }

    /// Has a page built as soon as it is its turn. Refusals are answers, too; without any, the reader's actor went away.
    pub fn read(self: &Arc<Self>, reader: &Arc<Source>, request: PageRequest, reply: Reply<Page<Entry>>) {
        let read = Read { reader: Arc::clone(reader), request, reply };
        let arrival = self.reads.lock().come(read, Instant::now);
        let (reply, cause) = match arrival {
            Arrival::Waits => return,
            Arrival::NoRoom(read) => (read.reply, self.too_many()),
            Arrival::Turn(read) => match self.begin(read) {
                Ok(()) => return,
                Err(refused) => {
                    self.pass_on();
                    refused
                }
            },
        };
        // Whoever went away needs no answer, here and below.
        let _ = reply.send(Err(cause));
    }

    /// Asks a reader, who is woken for it if necessary.
    ///
    /// # Errors
    /// Hands the question back if there is no room for it, and says where not.
    pub fn ask(&self, reader: &Arc<Source>, ask: Ask) -> Result<(), (Ask, Error)> {
        let shared = &self.shared;
        let ask = match shared.directory.send(reader.slot, ask) {
            Ok(()) => return Ok(()),
            Err(SendError::Full(ask)) => return Err((ask, shared.overloaded("user_mailbox", USER_MAILBOX_MAX))),
            Err(SendError::Closed(ask)) => ask,
        };
        self.doorkeeper.try_send(Wake { reader: Arc::clone(reader), ask }).map_err(|refused| match refused {
            SendError::Full(Wake { ask, .. }) => (ask, shared.overloaded("wake_up", WAKE_QUEUE_MAX)),
            SendError::Closed(Wake { ask, .. }) => (ask, Error::ShuttingDown),
        })
    }

    /// Sends a read to its actor, with a turn.
    fn begin(self: &Arc<Self>, read: Read) -> Result<(), (Reply<Page<Entry>>, Error)> {
        let Read { reader, request, reply } = read;
        let turn = Turn(Some(Arc::clone(self)));
        match self.ask(&reader, Ask::Read { request, reply, turn }) {
            Err((Ask::Read { reply, mut turn, .. }, cause)) => {
                // It stays with whoever called: turns that end within each other would do so as deep as reads wait.
                turn.0 = None;
                Err((reply, cause))
            }
            Ok(()) | Err((Ask::Attach { .. }, _)) => Ok(()),
        }
    }

    /// Gives a turn that has ended to the next one.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = self.reads.lock().next(Instant::now);
            let (reply, cause) = match next {
                None => return,
                Some(Next::TooLate(read)) => (read.reply, self.too_many()),
                Some(Next::Turn(read)) if read.reply.is_closed() => continue,
                Some(Next::Turn(read)) => match self.begin(read) {
                    Ok(()) => return,
                    Err(refused) => refused,
                },
            };
            let _ = reply.send(Err(cause));
        }
    }

    fn too_many(&self) -> Error {
        self.shared.overloaded("read_turns", READS_WAITING_PER_SHARD_MAX)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(reception) = self.0.take() {
            reception.pass_on();
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
    use crate::actor::user::UserActor;
    use crate::config::EngineConfig;
    use crate::engine::Engine;
    use crate::feed::event::NewEdge;
    use crate::feed::page::Range;
    use crate::id::SourceId;
    use crate::limits::USER_PANICS_MAX;
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

    /// All turns of the shard.
    fn take_turns(engine: &Engine) -> Vec<Turn> {
        let reception = engine.reception(&source(engine, "ann"));
        let take = |_| {
            let (reply, _) = oneshot::channel();
            let read = Read { reader: source(engine, "ann"), request: NEWEST, reply };
            assert!(matches!(reception.reads.lock().come(read, Instant::now), Arrival::Turn(_)));
            Turn(Some(Arc::clone(reception)))
        };
        (0..READS_TOGETHER_MAX).map(take).collect()
    }

    fn waiting(engine: &Engine) -> usize {
        engine.queues().into_iter().find(|queue| queue.name == "read_turns").unwrap().depth
    }

    #[tokio::test]
    async fn a_read_that_comes_beside_a_crowd_does_not_wait_for_all_of_it() {
        let engine = engine().await;
        let mut turns = take_turns(&engine);
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut reads = JoinSet::new();
        let crowd = READS_NEWEST_FIRST_ABOVE + 5;
        for nth in 0..=crowd {
            let (asking, done) = (engine.clone(), done.clone());
            reads.spawn(async move {
                asking.feed(&id(if nth == crowd { "cas" } else { "ann" }), NEWEST).await.unwrap();
                done.send(nth).unwrap();
            });
            while waiting(&engine) <= nth {
                tokio::task::yield_now().await;
            }
        }
        drop(turns.pop());
        reads.join_all().await;
        drop(done);
        let mut served = Vec::new();
        while let Some(nth) = order.recv().await {
            served.push(nth);
        }
        let newest = (READS_NEWEST_FIRST_ABOVE..=crowd).rev();
        assert_eq!(served, newest.chain(0..READS_NEWEST_FIRST_ABOVE).collect::<Vec<_>>());
        engine.shutdown();
    }

    #[tokio::test]
    async fn no_more_reads_wait_than_there_is_room_for_and_those_given_up_take_no_turn() {
        let engine = engine().await;
        let turns = take_turns(&engine);
        let (reception, ann) = (Arc::clone(engine.reception(&source(&engine, "ann"))), source(&engine, "ann"));
        let ask = || {
            let (reply, answer) = oneshot::channel();
            reception.read(&ann, NEWEST, reply);
            answer
        };
        let given_up: Vec<_> = std::iter::repeat_with(ask).take(READS_WAITING_PER_SHARD_MAX).collect();
        assert_eq!(waiting(&engine), READS_WAITING_PER_SHARD_MAX);
        let full = Error::Overloaded { queue: "read_turns", limit: READS_WAITING_PER_SHARD_MAX };
        assert_eq!(engine.feed(&id("cas"), NEWEST).await.unwrap_err().to_string(), full.to_string());
        drop(given_up);
        drop(turns);
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
        assert_eq!(engine.shared().directory.crashes(ann), 1);
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
    async fn reads_that_wait_are_answered_when_the_engine_ends() {
        let engine = engine().await;
        let mut reads = JoinSet::new();
        for _ in 0..5_000 {
            let engine = engine.clone();
            reads.spawn(async move { engine.feed(&id("ann"), NEWEST).await.map(drop) });
        }
        let ending = engine.clone();
        tokio::task::spawn_blocking(move || ending.shutdown()).await.unwrap();
        let refused = reads.join_all().await.into_iter().filter_map(Result::err);
        assert!(refused.into_iter().all(|cause| matches!(cause, Error::ShuttingDown)));
        assert!(matches!(engine.feed(&id("ann"), NEWEST).await, Err(Error::ShuttingDown)));
    }
}

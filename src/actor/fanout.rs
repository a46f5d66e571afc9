//! The fan-out supervisor: takes published posts and hands them to couriers, slice by slice, in turns.
//!
//! Responsible for:
//! - skipping inactive recipients: a slice is an intersection of followers and active readers;
//! - telling who waits for a post that it is delivered.
//!
//! Not responsible for:
//! - the order of turns (`feed::schedule`), who is a celebrity (`state::world`), writing inboxes (`actor::courier`).

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use actix::{Actor, Addr, Context, Handler};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::actor::courier::Courier;
use crate::actor::message::{Deliver, FanoutOrder, Hire, Published, Reply, Ring, SliceDelivered};
use crate::actor::vital::Vital;
use crate::engine::Shared;
use crate::error::Error;
use crate::feed::graph::{Slice, SliceEnd};
use crate::feed::position::Position;
use crate::feed::schedule::{Cut, InFlight, Schedule, Turn};
use crate::id::SourceSlot;
use crate::limits::{
    FANOUT_JOBS_MAX, FANOUT_QUEUE_MAX, FANOUTS_PER_AUTHOR_MAX, RECIPIENTS_IN_FLIGHT_MAX, SLICE_RECIPIENTS_MAX,
    SLICE_SCAN_MAX, SLICES_IN_FLIGHT_MAX,
};

/// What a shard has in its hands at most, but for the slice that fills them.
const IN_FLIGHT_MAX: InFlight = InFlight { slices: SLICES_IN_FLIGHT_MAX, recipients: RECIPIENTS_IN_FLIGHT_MAX };

/// A post on its way, since when and to how many followers, who waits for its delivery, and the answer then.
struct Waiting {
    position: Position,
    author: SourceSlot,
    handed_on: Instant,
    followers: u64,
    caller: Option<(Reply<Published>, Published)>,
}

/// The fan-out supervisor.
pub struct FanoutSupervisor {
    shared: Arc<Shared>,
    orders: Receiver<(FanoutOrder, Instant)>,
    bell: Arc<Bell>,
    couriers: Vec<Addr<Courier>>,
    schedule: Schedule<Waiting>,
    _vital: Vital,
}

/// Set while a ring is on its way: one is enough, however many orders wait.
#[derive(Debug, Default)]
struct Bell(AtomicBool);

/// Posts handed on and not yet delivered everywhere.
#[derive(Debug, Default)]
pub struct OpenFanouts(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    times: FxHashMap<Position, u32>,
    by_author: FxHashMap<SourceSlot, usize>,
}

impl OpenFanouts {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().times.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in no order.
    pub fn positions(&self) -> Vec<Position> {
        self.0.lock().times.keys().copied().collect()
    }

    /// How many there are of one author, or of the first of a post's sources that is not pulled.
    pub fn of(&self, author: SourceSlot) -> usize {
        self.0.lock().by_author.get(&author).copied().unwrap_or(0)
    }

    fn begin(&self, position: Position, author: SourceSlot) {
        let mut open = self.0.lock();
        *open.times.entry(position).or_default() += 1;
        *open.by_author.entry(author).or_default() += 1;
    }

    /// A post that is delivered again while it is being delivered is open until both are done.
    fn end(&self, position: Position, author: SourceSlot) {
        let open = &mut *self.0.lock();
        if let Entry::Occupied(mut times) = open.times.entry(position) {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
        if let Entry::Occupied(mut posts) = open.by_author.entry(author) {
            *posts.get_mut() -= 1;
            if *posts.get() == 0 {
                posts.remove();
            }
        }
    }
}

/// The scribe's end of the supervisor.
#[derive(Clone)]
pub struct FanoutQueue {
    orders: Sender<(FanoutOrder, Instant)>,
    bell: Arc<Bell>,
    supervisor: Addr<FanoutSupervisor>,
    shared: Arc<Shared>,
}

/// Messages the supervisor's mailbox holds: a confirmation for each slice in flight, and the few others.
pub fn mailbox_max(shards: usize) -> usize {
    shards * SLICES_IN_FLIGHT_MAX + 8
}

impl FanoutQueue {
    /// A queue, and its other end for the supervisor, which `start` turns into an actor.
    pub fn new(
        shared: &Arc<Shared>,
        start: impl FnOnce(FanoutSupervisor) -> Addr<FanoutSupervisor>,
    ) -> (Self, Addr<FanoutSupervisor>) {
        let (orders, receiver) = crossbeam_channel::bounded(FANOUT_QUEUE_MAX);
        let bell = Arc::new(Bell::default());
        let shards = shared.world.sharding.shards();
        let supervisor = start(FanoutSupervisor {
            shared: Arc::clone(shared),
            orders: receiver,
            bell: Arc::clone(&bell),
            couriers: Vec::new(),
            schedule: Schedule::new(shards, IN_FLIGHT_MAX),
            _vital: Vital("fan-out supervisor"),
        });
        (Self { orders, bell, supervisor: supervisor.clone(), shared: Arc::clone(shared) }, supervisor)
    }

    /// Whether so many more posts have room. Only the scribe adds any, so the answer stays true until it does.
    pub fn has_room_for(&self, more: usize) -> bool {
        self.orders.len() + more <= FANOUT_QUEUE_MAX
    }

    /// The refusal of an author who has too many posts waiting already, counted.
    pub fn author_overloaded(&self, author: SourceSlot) -> Option<Error> {
        let is_full = self.shared.open_fanouts.of(author) >= FANOUTS_PER_AUTHOR_MAX;
        is_full.then(|| self.shared.overloaded("author's fan-out", FANOUTS_PER_AUTHOR_MAX))
    }

    /// The refusal of a post while memory is full and the archive takes what is too old, counted.
    pub fn store_overloaded(&self, limit: usize) -> Error {
        self.shared.overloaded("post store (bytes)", limit)
    }

    /// The refusal of a post that has no room, counted.
    pub fn overloaded(&self) -> Error {
        self.shared.overloaded("fan-out", FANOUT_QUEUE_MAX)
    }

    /// Counts a post as published, whether it is handed on or pulled.
    pub fn count_published(&self) {
        self.shared.counters.published.add(1);
    }

    /// Hands a post on. The caller made sure of [`FanoutQueue::has_room_for`] it.
    pub fn push(&self, order: FanoutOrder) {
        self.shared.open_fanouts.begin(order.position, order.sources[0]);
        if let Err(TrySendError::Full(_)) = self.orders.try_send((order, Instant::now())) {
            unreachable!("the scribe asks for room before it accepts a post");
        }
        if !self.bell.0.swap(true, Ordering::AcqRel) {
            // Refused only by a supervisor that has stopped.
            let _ = self.supervisor.try_send(Ring);
        }
    }
}

impl FanoutSupervisor {
    /// Takes up orders, and gives every shard what it may have, until neither can be.
    fn pump(&mut self) {
        loop {
            self.take_up();
            for shard in 0..self.couriers.len() {
                while let Some(turn) = self.schedule.turn(shard) {
                    self.serve(shard, turn);
                }
            }
            // Jobs that found nobody awake ended just now: their room is for orders that still wait.
            if self.schedule.jobs() == FANOUT_JOBS_MAX || self.orders.is_empty() {
                break;
            }
        }
    }

    fn take_up(&mut self) {
        while self.schedule.jobs() < FANOUT_JOBS_MAX {
            let Ok((order, handed_on)) = self.orders.try_recv() else { break };
            let FanoutOrder { position, sources, waiting } = order;
            let world = &self.shared.world;
            let shards = world.sharding.shards();
            let mut reached = vec![false; shards];
            let mut all_followers = 0;
            for source in &sources {
                let followers = world.sources.at(*source).followers();
                all_followers += followers.len();
                for (shard, reached) in reached.iter_mut().enumerate() {
                    *reached = *reached || followers.reaches(shard, world.sharding);
                }
            }
            let waiting =
                Waiting { position, author: sources[0], handed_on, followers: all_followers, caller: waiting };
            let done = self.schedule.add(position, sources, waiting, |shard| reached[shard]);
            self.end(done);
        }
    }

    fn serve(&mut self, shard: usize, turn: Turn) {
        let mut recipients = Vec::new();
        let end = {
            let active = self.shared.directory.active(shard);
            let world = &self.shared.world;
            world.sources.at(turn.source).followers().slice(
                Slice {
                    sharding: world.sharding,
                    shard,
                    from: turn.progress.from,
                    active: &active,
                    max: SLICE_RECIPIENTS_MAX,
                    scan_max: SLICE_SCAN_MAX,
                },
                &mut recipients,
            )
        };
        let cut = match end {
            SliceEnd::Done => Cut::SourceDone,
            SliceEnd::Resume(from) => Cut::Resume(from),
        };
        let done = self.schedule.cut(shard, turn.progress, cut, recipients.len());
        self.end(done);
        if !recipients.is_empty() {
            let slice = Deliver { job: turn.progress.job, position: turn.position, recipients };
            let sent = self.couriers[shard].try_send(slice);
            assert!(
                !matches!(sent, Err(actix::dev::SendError::Full(_))),
                "a courier's mailbox has room for every slice it has credit for"
            );
        }
    }

    /// Counts and times a post as delivered, if it is, and answers who waits for that.
    fn end(&self, done: Option<Waiting>) {
        let Some(Waiting { position, author, handed_on, followers, caller }) = done else { return };
        self.shared.open_fanouts.end(position, author);
        let now = Instant::now();
        self.shared.fanout_latency.lock().record(now, now.duration_since(handed_on), followers);
        if let Some((reply, published)) = caller {
            // A caller that went away needs no answer.
            let _ = reply.send(Ok(published));
        }
    }
}

impl Actor for FanoutSupervisor {
    type Context = Context<Self>;
}

impl Handler<Hire> for FanoutSupervisor {
    type Result = ();

    fn handle(&mut self, Hire(couriers): Hire, _: &mut Self::Context) {
        self.couriers = couriers;
        self.pump();
    }
}

impl Handler<Ring> for FanoutSupervisor {
    type Result = ();

    fn handle(&mut self, _: Ring, _: &mut Self::Context) {
        // Before looking at the queue: an order that comes while looking rings again.
        self.bell.0.store(false, Ordering::Release);
        self.pump();
    }
}

impl Handler<SliceDelivered> for FanoutSupervisor {
    type Result = ();

    fn handle(&mut self, SliceDelivered { shard, job, recipients }: SliceDelivered, _: &mut Self::Context) {
        let done = self.schedule.delivered(shard, job, recipients);
        self.end(done);
        self.pump();
    }
}

//! The fan-out supervisor: takes published posts and hands them to couriers, slice by slice, in turns.
//!
//! Responsible for:
//! - skipping inactive recipients: a slice is an intersection of followers and active readers, or, of what goes into no inbox,
//!   of followers and watched readers;
//! - telling who waits for a post that it is delivered.
//!
//! Not responsible for:
//! - the order of turns (`feed::schedule`), who is a celebrity (`state::world`), writing inboxes (`runtime::fanout::courier`).

pub mod courier;
pub mod latency;
pub mod open_fanouts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use actix::{Actor, Addr, Context, Handler};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use roaring::RoaringBitmap;

use crate::error::Error;
use crate::feed::graph::{Slice, SliceEnd};
use crate::feed::position::Position;
use crate::feed::schedule::{Cut, FanoutRoute, InFlight, Schedule, Turn};
use crate::feed::stream::Invalidation;
use crate::id::SourceSlot;
use crate::limits::{
    FANOUT_BACKLOG_AUTHORS, FANOUT_JOBS_MAX, FANOUT_QUEUE_MAX, FANOUTS_PER_AUTHOR_MAX, RECIPIENTS_IN_FLIGHT_MAX,
    SCRIBE_BATCH_MAX, SLICE_RECIPIENTS_MAX, SLICE_SCAN_MAX, SLICES_IN_FLIGHT_MAX,
};
use crate::live::watchers::Watchers;
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::fanout::latency::audience;
use crate::runtime::fanout::open_fanouts::{Backlog, OpenFanout};
use crate::runtime::message::{Deliver, FanoutOrder, Published, RegisterCouriers, Reply, Ring, SliceDelivered};
use crate::runtime::shared::Shared;

/// What a shard has in its hands at most, but for the slice that fills them.
const IN_FLIGHT_MAX: InFlight = InFlight { slices: SLICES_IN_FLIGHT_MAX, recipients: RECIPIENTS_IN_FLIGHT_MAX };

/// A post on its way into inboxes, if it is one, since when and to how many followers, who waits for its delivery, and the answer
/// then.
struct Waiting {
    open: Option<OpenFanout>,
    handed_on: Instant,
    followers: u64,
    caller: Option<(Reply<Published>, Published)>,
}

/// An order in the queue.
struct HandedOn {
    order: FanoutOrder,
    at: Instant,
    /// If it is a post that goes into inboxes.
    open: Option<OpenFanout>,
}

impl HandedOn {
    /// Goes into no inbox.
    fn invalidation(mail: Invalidation, fanout_routes: Box<[FanoutRoute]>) -> Self {
        Self {
            order: FanoutOrder { mail, author: SourceSlot::NONE, fanout_routes, accepted_at: None, waiting: None },
            at: Instant::now(),
            open: None,
        }
    }
}

/// The fan-out supervisor.
pub struct FanoutSupervisor {
    shared: Arc<Shared>,
    orders: Receiver<HandedOn>,
    bell: Arc<Bell>,
    couriers: Vec<Addr<Courier>>,
    schedule: Schedule<Invalidation, Waiting>,
    _abort_on_exit: AbortOnExit,
}

/// Set while a ring is on its way: one is enough, however many orders wait.
#[derive(Debug, Default)]
struct Bell(AtomicBool);

/// The scribe's end of the supervisor.
#[derive(Clone)]
pub struct FanoutQueue {
    orders: Sender<HandedOn>,
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
            _abort_on_exit: AbortOnExit("fan-out supervisor"),
        });
        (Self { orders, bell, supervisor: supervisor.clone(), shared: Arc::clone(shared) }, supervisor)
    }

    /// Whether so many more posts have room. Only the scribe adds any, so the answer stays true until it does.
    pub fn has_room_for(&self, more: usize) -> bool {
        self.orders.len() + more <= FANOUT_QUEUE_MAX
    }

    /// Who is watched.
    pub fn watchers(&self) -> &Watchers {
        &self.shared.watchers
    }

    /// The refusal of a post because fan-out is too far behind, in all or with its author's posts, counted. `accepted` are posts
    /// that are not handed on yet: all of them, and the author's.
    pub fn refusal_if_behind(&self, author: Option<SourceSlot>, accepted: [Backlog; 2]) -> Option<Error> {
        let [all, of_author] = accepted;
        if let Some(refusal) = self.shared.refusal_if_behind(all.deliveries) {
            return Some(refusal);
        }
        let of_author = author.map(|author| self.shared.open_fanouts.of(author)).unwrap_or_default() + of_author;
        let limit = self.shared.config.fanout_backlog_max();
        let (posts_max, deliveries_max) = (FANOUTS_PER_AUTHOR_MAX, limit.div_ceil(FANOUT_BACKLOG_AUTHORS));
        if of_author.posts >= posts_max {
            return Some(self.shared.overloaded("author_fanout", posts_max));
        }
        let is_full = of_author.deliveries >= deliveries_max;
        is_full.then(|| self.shared.overloaded("author_fanout_deliveries", deliveries_max))
    }

    /// Deliveries that a post of these sources needs, at most.
    pub fn deliveries(&self, sources: impl Iterator<Item = SourceSlot>) -> usize {
        let followers = |source| self.shared.world.sources.at(source).followers().len();
        let followers = sources.map(followers).fold(0, u64::saturating_add);
        usize::try_from(followers).unwrap_or(usize::MAX).min(self.shared.directory.len())
    }

    /// The refusal of a post while memory is full and the archive takes what is too old, counted.
    pub fn store_overloaded(&self, limit: usize) -> Error {
        self.shared.overloaded("post_bytes", limit)
    }

    /// The refusal of a post that has no room, counted.
    pub fn overloaded(&self) -> Error {
        self.shared.overloaded("fanout", FANOUT_QUEUE_MAX)
    }

    /// Counts a post as published, whether it is handed on or pulled.
    pub fn count_published(&self) {
        self.shared.counters.published.add(1);
    }

    /// Hands a post on. The caller made sure of [`FanoutQueue::has_room_for`] it.
    pub fn push(&self, order: FanoutOrder) {
        let open = into_inboxes(&order).map(|position| {
            let deliveries = self.deliveries(order.fanout_routes.iter().filter_map(FanoutRoute::into_inboxes));
            OpenFanout { position, author: order.author, deliveries, accepted_at: order.accepted_at }
        });
        open.into_iter().for_each(|open| self.shared.open_fanouts.begin(open));
        // Before anybody can answer that it is delivered.
        open.and_then(|open| open.accepted_at).into_iter().for_each(|at| self.shared.world.arrivals.begin(at));
        if let Err(TrySendError::Full(_)) = self.orders.try_send(HandedOn { order, at: Instant::now(), open }) {
            unreachable!("the scribe asks for room before it accepts a post");
        }
        self.ring();
    }

    /// Hands on what goes into no inbox. If there is no room beside that for the posts of a group, all who are watched are
    /// told that they missed something.
    pub fn notify(&self, mail: Invalidation, fanout_routes: Box<[FanoutRoute]>) {
        let handed_on = HandedOn::invalidation(mail, fanout_routes);
        if !self.has_room_for(SCRIBE_BATCH_MAX + 1) || self.orders.try_send(handed_on).is_err() {
            self.shared.watchers.miss();
        }
        self.ring();
    }

    fn ring(&self) {
        if !self.bell.0.swap(true, Ordering::AcqRel) {
            // Refused only by a supervisor that has stopped.
            let _ = self.supervisor.try_send(Ring);
        }
    }
}

/// The post of an order that goes into inboxes.
fn into_inboxes(order: &FanoutOrder) -> Option<Position> {
    match order.mail {
        Invalidation::Published(position) => order.fanout_routes[0].into_inboxes().map(|_| position),
        _ => None,
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
            let missed = || HandedOn::invalidation(Invalidation::Missed, [FanoutRoute::AllWatched].into());
            let missed = self.shared.watchers.take_missed().then(missed);
            let Some(HandedOn { order, at, open }) = missed.or_else(|| self.orders.try_recv().ok()) else { break };
            let (reached, followers) = self.reach(&order.fanout_routes);
            let waiting = Waiting { open, handed_on: at, followers, caller: order.waiting };
            let done = self.schedule.add(order.mail, order.fanout_routes, waiting, |shard| reached[shard]);
            self.end(done);
        }
    }

    /// In which shards anyone is to whom these routes may go, and how many followers have inboxes to put a post into.
    fn reach(&self, fanout_routes: &[FanoutRoute]) -> (Vec<bool>, u64) {
        let (world, watchers) = (&self.shared.world, &self.shared.watchers);
        let mut reached = vec![false; world.sharding.shards()];
        let mut all_followers = 0;
        for fanout_route in fanout_routes {
            let followers = match fanout_route {
                FanoutRoute::Inboxes(source) => Some(world.sources.at(*source).followers()),
                FanoutRoute::Watched(_)
                | FanoutRoute::Concerned(_)
                | FanoutRoute::Reader(_)
                | FanoutRoute::AllWatched => None,
            };
            all_followers += followers.as_ref().map_or(0, |followers| followers.len());
            for (shard, reached) in reached.iter_mut().enumerate().filter(|(_, reached)| !**reached) {
                *reached = match &followers {
                    Some(followers) => followers.reaches(shard, world.sharding),
                    None => !watchers.watched(shard).is_empty(),
                };
            }
        }
        (reached, all_followers)
    }

    fn serve(&mut self, shard: usize, turn: Turn<Invalidation>) {
        let mut recipients = Vec::new();
        let cut = self.slice(shard, &turn, &mut recipients);
        let done = self.schedule.cut(shard, turn.progress, cut, recipients.len());
        self.end(done);
        if !recipients.is_empty() {
            let into_inboxes = matches!(turn.fanout_route, FanoutRoute::Inboxes(_));
            let slice = Deliver { job: turn.progress.job, mail: turn.mail, into_inboxes, recipients };
            let sent = self.couriers[shard].try_send(slice);
            assert!(
                !matches!(sent, Err(actix::dev::SendError::Full(_))),
                "a courier's mailbox has room for every slice it has credit for"
            );
        }
    }

    /// Finds whose turn it is in a shard, from where the job stands.
    fn slice(&self, shard: usize, turn: &Turn<Invalidation>, recipients: &mut Vec<u32>) -> Cut {
        let (world, watchers) = (&self.shared.world, &self.shared.watchers);
        let of = |active: &RoaringBitmap, recipients: &mut Vec<u32>| {
            let (from, max, scan_max) = (turn.progress.from, SLICE_RECIPIENTS_MAX, SLICE_SCAN_MAX);
            let slice = Slice { sharding: world.sharding, shard, from, active, max, scan_max };
            world.sources.at(turn.fanout_route.source()).followers().slice(slice, recipients)
        };
        let end = match turn.fanout_route {
            FanoutRoute::Inboxes(_) => of(&self.shared.directory.active(shard), recipients),
            FanoutRoute::Watched(source) => {
                let end = of(&watchers.watched(shard), recipients);
                if matches!(end, SliceEnd::Done) {
                    watchers.concerned(source, shard, recipients);
                }
                end
            }
            FanoutRoute::Concerned(source) => {
                watchers.concerned(source, shard, recipients);
                SliceEnd::Done
            }
            FanoutRoute::Reader(reader) => {
                let is_here = world.sharding.shard_of(reader) == shard && watchers.is_watched(reader);
                recipients.extend(is_here.then(|| world.sharding.local(reader)));
                SliceEnd::Done
            }
            FanoutRoute::AllWatched => {
                let watched = watchers.watched(shard);
                let mut rest = watched.range(turn.progress.from..);
                recipients.extend(rest.by_ref().take(SLICE_RECIPIENTS_MAX));
                rest.next().map_or(SliceEnd::Done, SliceEnd::Resume)
            }
        };
        match end {
            SliceEnd::Done => Cut::RouteDone,
            SliceEnd::Resume(from) => Cut::Resume(from),
        }
    }

    /// Counts and times a post as delivered, if it is, and answers who waits for that.
    fn end(&self, done: Option<Waiting>) {
        let Some(Waiting { open, handed_on, followers, caller }) = done else { return };
        if let Some(open) = open {
            self.shared.open_fanouts.end(open);
            open.accepted_at.into_iter().for_each(|at| self.shared.world.arrivals.end(at));
            let now = Instant::now();
            let took = now.duration_since(handed_on);
            self.shared.fanout_latency.lock().record(now, took, followers);
            let audience = audience(followers).map(|nth| &self.shared.counters.fanout_latency[nth]);
            audience.into_iter().for_each(|latency| latency.record(took));
        }
        if let Some((reply, published)) = caller {
            // A caller that went away needs no answer.
            let _ = reply.send(Ok(published));
        }
    }
}

impl Actor for FanoutSupervisor {
    type Context = Context<Self>;
}

impl Handler<RegisterCouriers> for FanoutSupervisor {
    type Result = ();

    fn handle(&mut self, RegisterCouriers(couriers): RegisterCouriers, _: &mut Self::Context) {
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

//! The fan-out supervisor: passes published posts to couriers, slice by slice, in the order of the schedule.
//!
//! Responsible for:
//! - skipping inactive recipients: a slice is the intersection of followers and active readers, or, for an
//!   invalidation, of followers and watched readers;
//! - answering the callers that wait for a delivery.

mod admission;
pub mod courier;
pub mod latency;
pub mod open_fanouts;
pub mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use actix::{Actor, Addr, Context, Handler, Message};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use roaring::RoaringBitmap;

use crate::feed::followers::{Slice, SliceEnd};
use crate::feed::position::Position;
use crate::feed::schedule::{Cut, FanoutRoute, InFlight, JobId, NextSlice, Schedule};
use crate::feed::slice_queue::JobSize;
use crate::feed::stream::Invalidation;
use crate::id::SourceSlot;
use crate::limits::{COMMAND_BATCH_MAX, FANOUT_JOBS_MAX, FANOUT_QUEUE_MAX, SLICE_RECIPIENTS_MAX, SLICES_IN_FLIGHT_MAX};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::fanout::latency::audience;
use crate::runtime::fanout::open_fanouts::OpenFanout;
use crate::runtime::fanout::records::Progress;
use crate::runtime::message::{Deliver, DeliveredSlice, FanoutOrder, OrdersPending, Published, Reply, SlicesDelivered};
use crate::runtime::shared::Shared;

/// Number of recipients in flight at which a shard gets no further slice of jobs of one size: two full slices, so that it never waits for
/// the next one.
const RECIPIENTS_IN_FLIGHT_MAX: usize = 2 * SLICE_RECIPIENTS_MAX;

/// Maximum number of followers that are scanned for one slice, active or not.
const SLICE_SCAN_MAX: usize = 64 * 1024;

/// The maximum that a shard has in flight of jobs of one size. The last slice may exceed it.
const IN_FLIGHT_MAX: InFlight = InFlight { slices: SLICES_IN_FLIGHT_MAX, recipients: RECIPIENTS_IN_FLIGHT_MAX };

/// The data of a job that the schedule returns when the job is done: the post if it goes into inboxes, the time at
/// which it was queued, the number of its followers, its deliveries so far, and the caller that waits for the delivery.
struct Waiting {
    open: Option<OpenFanout>,
    queued_at: Instant,
    followers: u64,
    size: JobSize,
    progress: Option<Progress>,
    caller: Option<(Reply<Published>, Published)>,
}

/// The recipients that an order may have.
struct Reach {
    /// True for each shard in which it may have any.
    shards: Vec<bool>,
    /// The number of followers whose inboxes may get the post.
    followers: u64,
    size: JobSize,
}

/// An order in the queue to the supervisor.
struct QueuedOrder {
    order: FanoutOrder,
    queued_at: Instant,
    /// Set if it is a post that goes into inboxes.
    open: Option<OpenFanout>,
}

impl QueuedOrder {
    /// Creates an order that goes into no inbox.
    fn invalidation(invalidation: Invalidation, fanout_routes: Box<[FanoutRoute]>) -> Self {
        Self {
            order: FanoutOrder {
                invalidation,
                author: SourceSlot::NONE,
                fanout_routes,
                deliveries: 0,
                accepted_at: None,
                record: None,
                waiting: None,
            },
            queued_at: Instant::now(),
            open: None,
        }
    }
}

/// Gives the supervisor the addresses of the couriers, in the order of their shards.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct RegisterCouriers(pub Vec<Addr<Courier>>);

/// The actor that divides orders into slices for the couriers.
pub struct FanoutSupervisor {
    shared: Arc<Shared>,
    orders: Receiver<QueuedOrder>,
    wake_pending: Arc<WakePending>,
    couriers: Vec<Addr<Courier>>,
    schedule: Schedule<Invalidation, Waiting>,
    _abort_on_exit: AbortOnExit,
}

/// True while a wake message to the supervisor is in its mailbox. One message is enough for any number of orders.
#[derive(Debug, Default)]
struct WakePending(AtomicBool);

/// The sender of orders to the supervisor. Only the command processor adds orders while the engine runs.
#[derive(Clone)]
pub struct FanoutQueue {
    orders: Sender<QueuedOrder>,
    wake_pending: Arc<WakePending>,
    supervisor: Addr<FanoutSupervisor>,
    shared: Arc<Shared>,
}

/// Returns the capacity of the supervisor's mailbox: a confirmation for each slice in flight, and a few other
/// messages.
pub fn mailbox_max(shards: usize) -> usize {
    shards * JobSize::ALL.len() * SLICES_IN_FLIGHT_MAX + 8
}

/// Returns the capacity of a courier's mailbox: each slice in flight, and a few other messages.
pub fn courier_mailbox_max() -> usize {
    JobSize::ALL.len() * SLICES_IN_FLIGHT_MAX + 8
}

impl FanoutQueue {
    /// Creates a queue, and its receiver for the supervisor, which `start` turns into an actor.
    pub fn new(
        shared: &Arc<Shared>,
        start: impl FnOnce(FanoutSupervisor) -> Addr<FanoutSupervisor>,
    ) -> (Self, Addr<FanoutSupervisor>) {
        let (orders, receiver) = crossbeam_channel::bounded(FANOUT_QUEUE_MAX);
        let wake_pending = Arc::new(WakePending::default());
        let shards = shared.world.sharding.shards();
        let supervisor = start(FanoutSupervisor {
            shared: Arc::clone(shared),
            orders: receiver,
            wake_pending: Arc::clone(&wake_pending),
            couriers: Vec::new(),
            schedule: Schedule::new(shards, IN_FLIGHT_MAX),
            _abort_on_exit: AbortOnExit("fan-out supervisor"),
        });
        (Self { orders, wake_pending, supervisor: supervisor.clone(), shared: Arc::clone(shared) }, supervisor)
    }

    /// Returns true if the queue has capacity for this many more orders. Only the command processor adds orders, so the answer
    /// is valid until it does.
    pub fn has_capacity_for(&self, more: usize) -> bool {
        self.orders.len() + more <= FANOUT_QUEUE_MAX
    }

    /// Queues a post for fan-out. The caller has checked the capacity with [`FanoutQueue::has_capacity_for`].
    pub fn push(&self, order: FanoutOrder) {
        let FanoutOrder { author, deliveries, accepted_at, .. } = order;
        let open = into_inboxes(&order).map(|position| OpenFanout { position, author, deliveries, accepted_at });
        open.into_iter().for_each(|open| self.shared.open_fanouts.begin(open));
        // This precedes the queueing, so that it also precedes the end of the delivery.
        open.and_then(|open| open.accepted_at).into_iter().for_each(|at| self.shared.world.delivery.begin(at));
        if let Err(TrySendError::Full(_)) = self.orders.try_send(QueuedOrder { order, queued_at: Instant::now(), open })
        {
            unreachable!("the command processor checks the capacity before it accepts a post");
        }
        self.wake_supervisor();
    }

    /// Queues an invalidation. Capacity for the posts of a group stays reserved: if the rest is full, all
    /// watched readers are notified that they missed one.
    pub fn notify(&self, invalidation: Invalidation, fanout_routes: Box<[FanoutRoute]>) {
        let order = QueuedOrder::invalidation(invalidation, fanout_routes);
        if !self.has_capacity_for(COMMAND_BATCH_MAX + 1) || self.orders.try_send(order).is_err() {
            return self.notify_missed();
        }
        self.wake_supervisor();
    }

    /// Notifies all watched readers that they missed invalidations. Many such notices before the supervisor reads its
    /// queue are one, which takes no capacity of the queue.
    pub fn notify_missed(&self) {
        self.shared.watchers.note_missed();
        self.wake_supervisor();
    }

    fn wake_supervisor(&self) {
        if !self.wake_pending.0.swap(true, Ordering::AcqRel) {
            // This fails only if the supervisor has stopped.
            let _ = self.supervisor.try_send(OrdersPending);
        }
    }
}

/// Returns the position of the post if the order goes into inboxes.
fn into_inboxes(order: &FanoutOrder) -> Option<Position> {
    match order.invalidation {
        Invalidation::Published(position) => order.fanout_routes[0].into_inboxes().map(|_| position),
        _ => None,
    }
}

impl FanoutSupervisor {
    /// Takes orders from the queue, and gives every shard the slices it has credit for, until neither is possible.
    fn pump(&mut self) {
        loop {
            self.take_orders();
            for shard in 0..self.couriers.len() {
                while let Some(turn) = self.schedule.next_slice(shard) {
                    self.serve(shard, turn);
                }
            }
            // Jobs without awake recipients have ended at once. This leaves capacity for orders that still wait.
            if self.schedule.jobs() == FANOUT_JOBS_MAX || self.orders.is_empty() {
                break;
            }
        }
    }

    fn take_orders(&mut self) {
        while self.schedule.jobs() < FANOUT_JOBS_MAX {
            let missed = || QueuedOrder::invalidation(Invalidation::Missed, [FanoutRoute::AllWatched].into());
            let missed = self.shared.watchers.take_missed().then(missed);
            let Some(QueuedOrder { order, queued_at, open }) = missed.or_else(|| self.orders.try_recv().ok()) else {
                break;
            };
            let Reach { shards, followers, size } = self.reach(&order.fanout_routes);
            let progress = order.record.map(|record| Progress::new(record, queued_at));
            let waiting = Waiting { open, queued_at, followers, size, progress, caller: order.waiting };
            let done = self.schedule.add(order.invalidation, order.fanout_routes, size, waiting, |shard| shards[shard]);
            self.end(done);
        }
    }

    /// Returns the recipients that these routes may have.
    fn reach(&self, fanout_routes: &[FanoutRoute]) -> Reach {
        let (world, watchers) = (&self.shared.world, &self.shared.watchers);
        let mut shards = vec![false; world.sharding.shards()];
        let (mut followers, mut scanned) = (0, 0_u64);
        for fanout_route in fanout_routes {
            let of_source = |source| world.sources.at(source).followers();
            let into = match fanout_route {
                FanoutRoute::Inboxes(source) => Some(of_source(*source)),
                FanoutRoute::Watched(_)
                | FanoutRoute::Affected(_)
                | FanoutRoute::Reader(_)
                | FanoutRoute::AllWatched => None,
            };
            let len = into.as_ref().map_or(0, |followers| followers.len());
            followers += len;
            scanned = scanned.saturating_add(match fanout_route {
                FanoutRoute::Inboxes(_) => len,
                FanoutRoute::Watched(source) | FanoutRoute::Affected(source) => of_source(*source).len(),
                FanoutRoute::Reader(_) => 1,
                FanoutRoute::AllWatched => u64::MAX,
            });
            for (shard, reached) in shards.iter_mut().enumerate().filter(|(_, reached)| !**reached) {
                *reached = match &into {
                    Some(followers) => followers.reaches(shard, world.sharding),
                    None => !watchers.watched(shard).is_empty(),
                };
            }
        }
        Reach { shards, followers, size: JobSize::of(scanned) }
    }

    fn serve(&mut self, shard: usize, turn: NextSlice<Invalidation>) {
        let mut recipients = Vec::new();
        let cut = self.slice(shard, &turn, &mut recipients);
        let done = self.schedule.cut(shard, turn.progress, cut, recipients.len());
        self.end(done);
        if !recipients.is_empty() {
            let into_inboxes = matches!(turn.fanout_route, FanoutRoute::Inboxes(_));
            if into_inboxes && let Some(progress) = self.progress(turn.progress.job) {
                progress.note_cut(recipients.len());
            }
            let slice = Deliver {
                job: turn.progress.job,
                size: turn.size,
                invalidation: turn.payload,
                into_inboxes,
                recipients,
            };
            let sent = self.couriers[shard].try_send(slice);
            assert!(
                !matches!(sent, Err(actix::dev::SendError::Full(_))),
                "a courier's mailbox has capacity for every slice it has credit for"
            );
        }
    }

    /// Returns the deliveries so far of a job that is a post and is not complete.
    fn progress(&mut self, job: JobId) -> Option<&mut Progress> {
        self.schedule.token_mut(job)?.progress.as_mut()
    }

    /// Counts a delivered slice. The first slice of a large post is recorded at once, since the last one may come much
    /// later.
    fn note_delivered(&mut self, slice: DeliveredSlice) {
        let Some(Waiting { progress: Some(progress), size, .. }) = self.schedule.token_mut(slice.job) else { return };
        if slice.into_inboxes && progress.note_delivered(slice.added) && *size == JobSize::Large {
            progress.store(&self.shared.fanout_records);
        }
    }

    /// Collects the recipients of the next slice for a shard, from where the job stopped.
    fn slice(&self, shard: usize, turn: &NextSlice<Invalidation>, recipients: &mut Vec<u32>) -> Cut {
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
                    watchers.affected(source, shard, recipients);
                }
                end
            }
            FanoutRoute::Affected(source) => {
                watchers.affected(source, shard, recipients);
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

    /// Ends a job that is done: counts the post as delivered, records its latency, and answers the caller that waits
    /// for it.
    fn end(&self, done: Option<Waiting>) {
        let Some(Waiting { open, queued_at, followers, progress, caller, .. }) = done else { return };
        if let Some(open) = open {
            self.shared.open_fanouts.end(open);
            open.accepted_at.into_iter().for_each(|at| self.shared.world.delivery.end(at));
            let now = Instant::now();
            let took = now.duration_since(queued_at);
            self.shared.fanout_latency.lock().record(now, took, followers);
            let audience = audience(followers).map(|nth| &self.shared.counters.fanout_latency[nth]);
            audience.into_iter().for_each(|latency| latency.record(took));
            progress.into_iter().for_each(|progress| progress.finish(&self.shared.fanout_records, took));
        }
        if let Some((reply, published)) = caller {
            // The caller may have disconnected.
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

impl Handler<OrdersPending> for FanoutSupervisor {
    type Result = ();

    fn handle(&mut self, _: OrdersPending, _: &mut Self::Context) {
        // The flag is cleared before the queue is read, so that an order that arrives during the reading sends a new
        // message.
        self.wake_pending.0.store(false, Ordering::Release);
        self.pump();
    }
}

impl Handler<SlicesDelivered> for FanoutSupervisor {
    type Result = ();

    fn handle(&mut self, SlicesDelivered { shard, slices }: SlicesDelivered, _: &mut Self::Context) {
        for slice in slices {
            self.note_delivered(slice);
            let done = self.schedule.delivered(shard, slice.job, slice.recipients);
            self.end(done);
        }
        self.pump();
    }
}

//! The courier: delivers posts to the inboxes of its shard, and wakes only the actors of watched readers.
//!
//! A message through a mailbox costs several times as much as the delivery itself, so posts do not go through the
//! mailboxes of user actors: the courier runs on the same thread and writes into their inboxes while none of them
//! runs.

use std::cell::RefCell;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::{Actor, ActorFuture, Addr, AsyncContext, Context, Handler};

use crate::feed::slice_queue::{JobSize, SliceQueue};
use crate::feed::stream::Invalidation;
use crate::limits::{LIVE_NOTICES_MAX, SLICES_IN_FLIGHT_MAX};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::fanout::FanoutSupervisor;
use crate::runtime::message::{
    CollectStatistics, CopyInboxes, Deliver, DeliveredSlice, InvalidationsPending, SlicesDelivered,
};
use crate::runtime::reader::user::inbox_store::InboxStore;
use crate::runtime::shared::Shared;

/// Interval between two samples of a shard's inboxes.
const SAMPLE_PERIOD: Duration = Duration::from_secs(1);

/// Number of inboxes that a courier copies for a snapshot before it yields.
const INBOXES_PER_COPY: usize = 64;

/// Number of deliveries after which a courier yields to the other actors of its shard.
const DELIVERIES_PER_TURN_MAX: usize = 512;

/// Number of turns after which a courier wakes the actors of watched readers while it has more to deliver. So an actor handles several posts
/// at once.
const TURNS_PER_WAKE_MAX: usize = 4;

const _: () = assert!(
    TURNS_PER_WAKE_MAX * JobSize::ALL.len() * SLICES_IN_FLIGHT_MAX < LIVE_NOTICES_MAX,
    "the slices of these turns are fewer than the invalidations that may wait for an actor"
);

/// The courier of one shard.
pub struct Courier {
    shard: usize,
    shared: Arc<Shared>,
    inbox_store: Rc<RefCell<InboxStore>>,
    supervisor: Addr<FanoutSupervisor>,
    /// The slices to deliver. The supervisor's credit limits their number.
    slices: SliceQueue<Deliver>,
    /// The slice in delivery.
    current: Option<Current>,
    /// The number of turns since actors of watched readers were woken.
    turns: usize,
    /// The bytes of the shard's inboxes according to the last sample.
    sampled_bytes: u64,
    _abort_on_exit: AbortOnExit,
}

/// A slice in delivery.
struct Current {
    slice: Deliver,
    /// The index of the recipient with which it continues.
    next: usize,
    /// The number of inboxes to which its post was added so far.
    added: u64,
}

impl Current {
    fn new(slice: Deliver) -> Self {
        Self { slice, next: 0, added: 0 }
    }
}

impl Courier {
    /// Creates a courier for the inboxes in `inbox_store`.
    pub fn new(
        shard: usize,
        shared: Arc<Shared>,
        inbox_store: Rc<RefCell<InboxStore>>,
        supervisor: Addr<FanoutSupervisor>,
    ) -> Self {
        Self {
            shard,
            shared,
            inbox_store,
            supervisor,
            slices: SliceQueue::default(),
            current: None,
            turns: 0,
            sampled_bytes: 0,
            _abort_on_exit: AbortOnExit("courier"),
        }
    }

    /// Delivers up to [`DELIVERIES_PER_TURN_MAX`] recipients. Returns true if any slices are left.
    fn deliver_some(&mut self) -> bool {
        let (mut left, mut delivered) = (DELIVERIES_PER_TURN_MAX, Vec::new());
        while left > 0
            && let Some(Current { slice, next, added }) =
                self.current.take().or_else(|| self.slices.pop().map(Current::new))
        {
            if slice.size == JobSize::Large {
                // Confirmations of small posts do not wait for a large slice.
                self.confirm(std::mem::take(&mut delivered));
            }
            let end = slice.recipients.len().min(next + left);
            let added = added + self.deliver(&slice, next..end);
            left -= end - next;
            if end == slice.recipients.len() {
                let Deliver { job, into_inboxes, ref recipients, .. } = slice;
                delivered.push(DeliveredSlice { job, recipients: recipients.len(), added, into_inboxes });
            } else {
                self.current = Some(Current { slice, next: end, added });
            }
        }
        self.confirm(delivered);
        self.turns += 1;
        if self.turns == TURNS_PER_WAKE_MAX || !self.has_slices() {
            self.turns = 0;
            self.wake_users();
        }
        self.has_slices()
    }

    fn has_slices(&self) -> bool {
        self.current.is_some() || !self.slices.is_empty()
    }

    /// Delivers a slice to some of its recipients. Returns the number of inboxes to which its post was added.
    fn deliver(&self, slice: &Deliver, recipients: Range<usize>) -> u64 {
        let recipients = &slice.recipients[recipients];
        match slice.invalidation {
            Invalidation::Published(position) if slice.into_inboxes => {
                let delivery = &self.shared.world.delivery;
                // The post was accepted before this time, so a post that is late at its own time is late at this
                // one, too.
                let now = delivery.applied().through;
                let late_at = delivery.is_late(position, now).then_some(now);
                let delivered = self.inbox_store.borrow_mut().deliver(position, late_at, recipients);
                let counters = &self.shared.counters;
                counters.deliveries.add(delivered.added);
                counters.duplicates.add(delivered.duplicates);
                counters.below_floor.add(delivered.below_floor);
                delivered.added
            }
            invalidation => {
                self.inbox_store.borrow_mut().notify(invalidation, recipients);
                0
            }
        }
    }

    /// Wakes the actors of readers with new invalidations. Each has at most one such message in its mailbox, so the
    /// message may exceed the mailbox's capacity, and no invalidation is lost because of a full mailbox.
    #[expect(clippy::disallowed_methods, reason = "one message for each actor at a time, whatever its mailbox holds")]
    fn wake_users(&self) {
        self.inbox_store.borrow_mut().wake_users(|user| user.do_send(InvalidationsPending));
    }

    fn sample(&mut self) {
        let bytes = self.inbox_store.borrow_mut().sample() as u64;
        self.shared.counters.inboxes_bytes.change(std::mem::replace(&mut self.sampled_bytes, bytes), bytes);
    }

    /// Reports delivered slices together: each message costs as much as some deliveries.
    fn confirm(&self, slices: Vec<DeliveredSlice>) {
        if slices.is_empty() {
            return;
        }
        let confirmed = self.supervisor.try_send(SlicesDelivered { shard: self.shard, slices });
        assert!(
            !matches!(confirmed, Err(actix::dev::SendError::Full(_))),
            "the supervisor's mailbox has capacity for every slice it gave credit for"
        );
    }
}

impl Actor for Courier {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(SAMPLE_PERIOD, |courier, _| courier.sample());
    }
}

impl Handler<Deliver> for Courier {
    type Result = ();

    fn handle(&mut self, slice: Deliver, ctx: &mut Self::Context) {
        let is_idle = !self.has_slices();
        self.slices.push(slice.size, slice.recipients.len(), slice);
        if is_idle {
            ctx.spawn(DeliveryTask);
        }
    }
}

impl Handler<CollectStatistics> for Courier {
    type Result = ();

    fn handle(&mut self, CollectStatistics(reply): CollectStatistics, _: &mut Self::Context) {
        let _ = reply.send(self.inbox_store.borrow().inboxes().totals());
    }
}

impl Handler<CopyInboxes> for Courier {
    type Result = ();

    fn handle(&mut self, CopyInboxes { from, reply }: CopyInboxes, _: &mut Self::Context) {
        let sharding = self.shared.world.sharding;
        let (inboxes, next) = self
            .inbox_store
            .borrow()
            .inboxes()
            .copies(from, INBOXES_PER_COPY, |reader| sharding.source(self.shard, reader));
        // The snapshotter may have given up.
        let _ = reply.send((inboxes, next));
    }
}

/// The task that delivers a courier's slices. It yields to the other actors of the shard regularly. A mailbox does
/// not yield as long as messages arrive.
struct DeliveryTask;

impl ActorFuture<Courier> for DeliveryTask {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        courier: &mut Courier,
        _: &mut Context<Courier>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        if courier.deliver_some() {
            // If there are more threads than cores, the command processor and the supervisor need CPU time too: otherwise a
            // shard under load would keep its core until the operating system preempts it, milliseconds later.
            std::thread::yield_now();
            // A plain waker would schedule this task before requests from other threads: the thread's scheduler
            // checks those only once in 31 tasks as long as it has tasks of its own, so pages would wait for 31
            // rounds of delivery each.
            return pin!(tokio::task::yield_now()).poll(task);
        }
        Poll::Ready(())
    }
}

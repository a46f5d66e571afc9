//! The courier: drops mail into the inboxes of its shard, and rings only where somebody is watching.
//!
//! A mailbox hop costs several times the delivery itself, so bulk mail does not go through user actors' mailboxes: the
//! courier runs on the same thread as they do and writes into their inboxes while none of them runs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use actix::{Actor, ActorFuture, Addr, AsyncContext, Context, Handler};

use crate::feed::stream::Invalidation;
use crate::limits::{DELIVERIES_PER_TURN_MAX, INBOXES_PER_COPY, SAMPLE_PERIOD};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::fanout::FanoutSupervisor;
use crate::runtime::message::{Bell, CollectStatistics, CopyInboxes, Deliver, SliceDelivered};
use crate::runtime::reader::inbox_store::InboxStore;
use crate::runtime::shared::Shared;

/// The courier of one shard.
pub struct Courier {
    shard: usize,
    shared: Arc<Shared>,
    inbox_store: Rc<RefCell<InboxStore>>,
    supervisor: Addr<FanoutSupervisor>,
    /// Slices to deliver, the first of them from its `next`-th recipient on. As many as the supervisor gives credit for.
    slices: VecDeque<Deliver>,
    next: usize,
    /// What the last sample told.
    sampled_bytes: u64,
    _abort_on_exit: AbortOnExit,
}

impl Courier {
    /// A courier for the inboxes in `inbox_store`.
    pub fn new(
        shard: usize,
        shared: Arc<Shared>,
        inbox_store: Rc<RefCell<InboxStore>>,
        supervisor: Addr<FanoutSupervisor>,
    ) -> Self {
        let slices = VecDeque::new();
        Self {
            shard,
            shared,
            inbox_store,
            supervisor,
            slices,
            next: 0,
            sampled_bytes: 0,
            _abort_on_exit: AbortOnExit("courier"),
        }
    }

    /// Delivers for one turn. Returns whether anything is left for another.
    fn deliver_turn(&mut self) -> bool {
        let mut left = DELIVERIES_PER_TURN_MAX;
        while let Some(slice) = self.slices.front()
            && left > 0
        {
            let end = slice.recipients.len().min(self.next + left);
            let recipients = &slice.recipients[self.next..end];
            match slice.mail {
                Invalidation::Published(position) if slice.into_inboxes => {
                    let arrivals = &self.shared.world.arrivals;
                    // It was accepted by now, so that what is late by its own instant is late by this one.
                    let now = arrivals.applied().through;
                    let late_at = arrivals.is_late(position, now).then_some(now);
                    let delivered = self.inbox_store.borrow_mut().deliver(position, late_at, recipients);
                    let counters = &self.shared.counters;
                    counters.deliveries.add(delivered.added);
                    counters.duplicates.add(delivered.duplicates);
                    counters.below_floor.add(delivered.below_floor);
                }
                invalidation => self.inbox_store.borrow_mut().notify(invalidation, recipients),
            }
            left -= end - self.next;
            self.next = end;
            if end == slice.recipients.len() {
                self.confirm();
            }
        }
        self.ring();
        !self.slices.is_empty()
    }

    /// Rings for those who have notices. Each has at most one ring on its way, so that a full mailbox need not be asked for room,
    /// and no notice is lost to one.
    #[expect(clippy::disallowed_methods, reason = "one ring for each actor at a time, whatever its mailbox holds")]
    fn ring(&self) {
        self.inbox_store.borrow_mut().ring(|user| user.do_send(Bell));
    }

    fn sample(&mut self) {
        let bytes = self.inbox_store.borrow_mut().sample() as u64;
        self.shared.counters.inboxes_bytes.change(std::mem::replace(&mut self.sampled_bytes, bytes), bytes);
    }

    fn confirm(&mut self) {
        self.next = 0;
        let Some(slice) = self.slices.pop_front() else { return };
        let recipients = slice.recipients.len();
        let confirmed = self.supervisor.try_send(SliceDelivered { shard: self.shard, job: slice.job, recipients });
        assert!(
            !matches!(confirmed, Err(actix::dev::SendError::Full(_))),
            "the supervisor's mailbox has room for every slice it gave credit for"
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
        self.slices.push_back(slice);
        if self.slices.len() == 1 {
            ctx.spawn(Round);
        }
    }
}

impl Handler<CollectStatistics> for Courier {
    type Result = ();

    fn handle(&mut self, CollectStatistics(reply): CollectStatistics, _: &mut Self::Context) {
        let _ = reply.send(self.inbox_store.borrow().totals());
    }
}

impl Handler<CopyInboxes> for Courier {
    type Result = ();

    fn handle(&mut self, CopyInboxes { from, reply }: CopyInboxes, _: &mut Self::Context) {
        let sharding = self.shared.world.sharding;
        let (inboxes, next) =
            self.inbox_store.borrow().copies(from, INBOXES_PER_COPY, |reader| sharding.source(self.shard, reader));
        // A snapshotter that went away needs no answer.
        let _ = reply.send((inboxes, next));
    }
}

/// A courier's way through its slices: a turn at a time, and between turns the other actors of the shard run. A mailbox
/// alone would not yield while messages keep coming.
struct Round;

impl ActorFuture<Courier> for Round {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        courier: &mut Courier,
        _: &mut Context<Courier>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        if courier.deliver_turn() {
            // Where threads outnumber cores, the scribe and the supervisor need a turn too: a shard under load would
            // keep its core until the system's scheduler took it away, milliseconds later.
            std::thread::yield_now();
            // By its waker alone it would go before what other threads ask of this one: the thread's scheduler looks at that
            // once in 31 tasks as long as it has any of its own, so that pages would wait for 31 turns each.
            return pin!(tokio::task::yield_now()).poll(task);
        }
        Poll::Ready(())
    }
}

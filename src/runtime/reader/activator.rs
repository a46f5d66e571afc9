//! The activator: wakes the readers of its shard and puts the idle ones to sleep.
//!
//! All wake-ups of a shard pass through this one actor, so a reader is woken once, however many requests arrive at
//! the same time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::SendError;
use actix::{Actor, Addr, AsyncContext, Context, Handler};
use rustc_hash::FxHashSet;

use crate::clock::{Clock, UnixMicros};
use crate::error::Error;
use crate::feed::inbox::Inbox;
use crate::feed::stream::Invalidation;
use crate::id::SourceSlot;
use crate::limits::{CLOCK_STEP_MAX, USER_MAILBOX_MAX};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::message::{InvalidationsPending, Restore, Sleep, Wake, WakingRequest};
use crate::runtime::reader::user::UserActor;
use crate::runtime::reader::user::inbox_store::InboxStore;
use crate::runtime::shared::Shared;
use crate::state::sources::Source;

/// The activator of one shard.
pub struct Activator {
    shard: usize,
    shared: Arc<Shared>,
    inbox_store: Rc<RefCell<InboxStore>>,
    /// The awake readers, in the order in which the sweep checks them: the clock algorithm of page replacement.
    round: VecDeque<SourceSlot>,
    /// The members of `round`. Each reader is in it once, even after a crash and another wake-up.
    in_round: FxHashSet<SourceSlot>,
    idleness: Idleness,
    _abort_on_exit: AbortOnExit,
}

/// The reference for idle times. Time that the clock skipped by a jump does not count as idle.
struct Idleness {
    now: UnixMicros,
    monotonic: Duration,
    /// A reader that was last seen before this time counts as seen at this time.
    since: UnixMicros,
}

impl Idleness {
    fn begin(clock: &dyn Clock) -> Self {
        Self { now: clock.now(), monotonic: clock.monotonic(), since: UnixMicros(i64::MIN) }
    }

    /// Reads the clock, moves `since` after a jump ahead, and returns the current time.
    fn look(&mut self, clock: &dyn Clock) -> UnixMicros {
        let (now, monotonic) = (clock.now(), clock.monotonic());
        let expected = self.now.saturating_add(monotonic.saturating_sub(self.monotonic));
        if now > expected.saturating_add(CLOCK_STEP_MAX) {
            self.since = now;
        }
        // `since` is at most `now`, since the clock may be set back.
        (self.now, self.monotonic, self.since) = (now, monotonic, self.since.min(now));
        now
    }
}

/// The maximum number of readers checked in one sweep, so that a sweep does not delay the shard.
const SWEEP_MAX: usize = 4_096;

/// The number of readers compared when one of them has to be evicted.
const CANDIDATES: usize = 8;

/// The number of sweeps in one active window.
const SWEEPS_PER_WINDOW: u32 = 8;

impl Activator {
    /// Creates an activator for the readers whose inboxes are in `inbox_store`.
    pub fn new(shard: usize, shared: Arc<Shared>, inbox_store: Rc<RefCell<InboxStore>>) -> Self {
        let idleness = Idleness::begin(&*shared.clock);
        Self {
            shard,
            shared,
            inbox_store,
            round: VecDeque::new(),
            in_round: FxHashSet::default(),
            idleness,
            _abort_on_exit: AbortOnExit("activator"),
        }
    }

    fn ask(&mut self, reader: Arc<Source>, ask: WakingRequest) {
        match self.shared.directory.send(reader.slot, ask) {
            Ok(()) => {}
            Err(SendError::Full(ask)) => ask.refuse(self.shared.overloaded("user_mailbox", USER_MAILBOX_MAX)),
            Err(SendError::Closed(ask)) => self.wake(reader, ask),
        }
    }

    fn wake(&mut self, reader: Arc<Source>, ask: WakingRequest) {
        self.evict_if_full();
        // The reader counts as seen now. Otherwise the next sweep could put it to sleep directly after it was woken.
        reader.seen(self.shared.clock.now());
        let user = self.start(reader, None);
        if let Err(SendError::Full(ask) | SendError::Closed(ask)) = user.try_send(ask) {
            ask.refuse(Error::ShuttingDown);
        }
    }

    fn start(&mut self, reader: Arc<Source>, inbox: Option<Inbox>) -> Addr<UserActor> {
        let slot = reader.slot;
        let inbox_store = Rc::clone(&self.inbox_store);
        let (core, directory) = (Arc::clone(&self.shared.core), Arc::clone(&self.shared.directory));
        let user = UserActor::create(|ctx| {
            ctx.set_mailbox_capacity(USER_MAILBOX_MAX);
            UserActor::new(reader, inbox, inbox_store, core, directory)
        });
        self.shared.directory.list(slot, user.clone());
        self.join_round(slot);
        user
    }

    fn join_round(&mut self, slot: SourceSlot) {
        if self.in_round.insert(slot) {
            self.round.push_back(slot);
        }
    }

    fn leave_round(&mut self) -> Option<SourceSlot> {
        let slot = self.round.pop_front()?;
        self.in_round.remove(&slot);
        Some(slot)
    }

    /// If the limit of awake readers is reached, puts one reader to sleep: among a few at the front of the round, the
    /// one that was idle longest.
    fn evict_if_full(&mut self) {
        if self.shared.directory.active_len(self.shard) < self.shared.config.active_readers_max_per_shard() {
            return;
        }
        let few: Vec<SourceSlot> = (0..CANDIDATES).map_while(|_| self.leave_round()).collect();
        // Watched readers are chosen last, and `Sleep` does not end an actor with live connections.
        let last_seen = |slot: &SourceSlot| {
            let shared = &self.shared;
            (shared.watchers.is_watched(*slot), shared.world.sources.at(*slot).last_seen())
        };
        let idlest = few.iter().copied().min_by_key(last_seen);
        few.into_iter().filter(|slot| Some(*slot) != idlest).for_each(|slot| self.join_round(slot));
        if let Some(slot) = idlest {
            self.put_to_sleep(slot);
        }
    }

    fn sweep(&mut self) {
        let now = self.idleness.look(&*self.shared.clock);
        let window = self.shared.config.active_window;
        for slot in self.shared.watchers.take_mailbox_full(self.shard) {
            self.notify_missed(slot);
        }
        for slot in self.shared.watchers.take_kept_awake(self.shard) {
            self.join_round(slot);
        }
        for _ in 0..self.round.len().min(SWEEP_MAX) {
            let Some(slot) = self.leave_round() else { return };
            let reader = self.shared.world.sources.at(slot);
            let seen = reader.last_seen();
            if seen.is_some_and(|seen| seen > now) {
                // A clock that was ahead recorded this time. Without a correction the reader would not count as idle
                // until the clock reaches it.
                reader.seen(now);
            }
            if self.shared.watchers.is_watched(slot) {
                self.join_round(slot);
            } else if seen.is_none_or(|seen| seen.max(self.idleness.since).saturating_add(window) <= now) {
                self.put_to_sleep(slot);
            } else if self.shared.directory.is_active(slot) {
                self.join_round(slot);
            }
        }
    }

    /// Notifies a reader's actor that it missed an invalidation, since its mailbox was full.
    fn notify_missed(&self, reader: SourceSlot) {
        let local = self.shared.world.sharding.local(reader);
        self.inbox_store.borrow_mut().notify(Invalidation::Missed, &[local]);
        if let Err(SendError::Full(_)) = self.shared.directory.send(reader, InvalidationsPending) {
            self.shared.watchers.note_mailbox_full(reader);
        }
    }

    /// Asks a reader's actor to end. The actor removes itself from the directory when it handles the message, unless
    /// a live connection is attached by then.
    fn put_to_sleep(&mut self, slot: SourceSlot) {
        if let Err(SendError::Full(_)) = self.shared.directory.send(slot, Sleep) {
            // Its mailbox is full of requests, so the reader is not idle.
            self.join_round(slot);
        }
    }
}

impl Actor for Activator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let period = (self.shared.config.active_window / SWEEPS_PER_WINDOW).max(Duration::from_millis(10));
        ctx.run_interval(period.min(Duration::from_secs(1)), |activator, _| activator.sweep());
    }
}

impl Handler<Restore> for Activator {
    type Result = ();

    fn handle(&mut self, Restore { readers, reply }: Restore, _: &mut Self::Context) {
        let most = self.shared.config.active_readers_max_per_shard();
        for (reader, inbox) in readers {
            // If fewer awake readers are allowed than before the restart, the inboxes of the rest are rebuilt on
            // their next read.
            if self.shared.directory.active_len(self.shard) < most && !self.shared.directory.is_active(reader.slot) {
                self.start(reader, Some(inbox));
            }
        }
        let _ = reply.send(());
    }
}

impl Handler<Wake> for Activator {
    type Result = ();

    fn handle(&mut self, Wake { reader, ask, waking }: Wake, _: &mut Self::Context) {
        drop(waking);
        let now = self.shared.clock.now();
        match self.shared.directory.quarantined(reader.slot, now) {
            Some(crashes) => ask.refuse(Error::Quarantined { reader: reader.id.clone(), crashes }),
            None => self.ask(reader, ask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn clock_jumps_do_not_count_as_idle_time() {
        let clock = ManualClock::new(UnixMicros(1_000));
        let mut idleness = Idleness::begin(&clock);
        clock.advance(Duration::from_secs(3_600));
        assert_eq!((idleness.look(&clock), idleness.since), (clock.now(), UnixMicros(i64::MIN)));
        let before = clock.now();
        clock.set(before.saturating_add(Duration::from_secs(3_600)));
        assert_eq!((idleness.look(&clock), idleness.since), (clock.now(), clock.now()));
        clock.set(before);
        idleness.look(&clock);
        assert_eq!(idleness.since, before, "nobody was seen later than now");
        clock.advance(Duration::from_secs(60));
        assert_eq!((idleness.look(&clock), idleness.since), (clock.now(), before));
    }
}

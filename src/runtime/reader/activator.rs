//! The activator: wakes the readers of its shard and puts the idle ones to sleep.
//!
//! All wake-ups of a shard pass through one actor, so a reader is woken once, however many ask at the same time.

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
use crate::runtime::message::{Ask, Bell, Restore, Sleep, Wake};
use crate::runtime::reader::inbox_store::InboxStore;
use crate::runtime::reader::user::UserActor;
use crate::runtime::shared::Shared;
use crate::state::sources::Source;

/// The activator of one shard.
pub struct Activator {
    shard: usize,
    shared: Arc<Shared>,
    inbox_store: Rc<RefCell<InboxStore>>,
    /// Who was woken, in that order, since last looked at: the hand of a clock goes round it.
    round: VecDeque<SourceSlot>,
    /// Who is in it: each once, however often it crashed and was woken again.
    in_round: FxHashSet<SourceSlot>,
    idleness: Idleness,
    _abort_on_exit: AbortOnExit,
}

/// Since when readers may have been idle: time that a clock leaped over is no time.
struct Idleness {
    now: UnixMicros,
    monotonic: Duration,
    /// Whoever was seen before counts as seen here.
    since: UnixMicros,
}

impl Idleness {
    fn begin(clock: &dyn Clock) -> Self {
        Self { now: clock.now(), monotonic: clock.monotonic(), since: UnixMicros(i64::MIN) }
    }

    /// Looks at the clock, and returns what it shows.
    fn look(&mut self, clock: &dyn Clock) -> UnixMicros {
        let (now, monotonic) = (clock.now(), clock.monotonic());
        let expected = self.now.saturating_add(monotonic.saturating_sub(self.monotonic));
        if now > expected.saturating_add(CLOCK_STEP_MAX) {
            self.since = now;
        }
        // Not later than now: a clock may be set back.
        (self.now, self.monotonic, self.since) = (now, monotonic, self.since.min(now));
        now
    }
}

/// Readers looked at in one sweep, at most, so that a sweep does not hold up the shard.
const SWEEP_MAX: usize = 4_096;

/// Readers compared when one of them must make room.
const CANDIDATES: usize = 8;

/// Sweeps in one active window.
const SWEEPS_PER_WINDOW: u32 = 8;

impl Activator {
    /// A activator for the readers whose inboxes are in `inbox_store`.
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

    fn ask(&mut self, reader: Arc<Source>, ask: Ask) {
        match self.shared.directory.send(reader.slot, ask) {
            Ok(()) => {}
            Err(SendError::Full(ask)) => ask.refuse(self.shared.overloaded("user_mailbox", USER_MAILBOX_MAX)),
            Err(SendError::Closed(ask)) => self.wake(reader, ask),
        }
    }

    fn wake(&mut self, reader: Arc<Source>, ask: Ask) {
        self.make_room();
        // Asleep a moment longer than the window would be a sleep right after the wake.
        reader.seen(self.shared.clock.now());
        let user = self.start(reader, None);
        if let Err(SendError::Full(ask) | SendError::Closed(ask)) = user.try_send(ask) {
            ask.refuse(Error::ShuttingDown);
        }
    }

    fn start(&mut self, reader: Arc<Source>, inbox: Option<Inbox>) -> Addr<UserActor> {
        let slot = reader.slot;
        let (inbox_store, shared) = (Rc::clone(&self.inbox_store), Arc::clone(&self.shared));
        let user = UserActor::create(|ctx| {
            ctx.set_mailbox_capacity(USER_MAILBOX_MAX);
            UserActor::new(reader, inbox, inbox_store, shared)
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

    /// At the limit, puts one reader to sleep for each that wakes: of the few longest awake, the one idle for longest.
    fn make_room(&mut self) {
        if self.shared.directory.active_len(self.shard) < self.shared.config.active_readers_max_per_shard() {
            return;
        }
        let few: Vec<SourceSlot> = (0..CANDIDATES).map_while(|_| self.leave_round()).collect();
        // Who is watched last: whoever is connected stays awake, whatever it is told.
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
        for slot in self.shared.watchers.take_unsettled(self.shard) {
            self.settle(slot);
        }
        for slot in self.shared.watchers.take_sleepless(self.shard) {
            self.join_round(slot);
        }
        for _ in 0..self.round.len().min(SWEEP_MAX) {
            let Some(slot) = self.leave_round() else { return };
            let reader = self.shared.world.sources.at(slot);
            let seen = reader.last_seen();
            if seen.is_some_and(|seen| seen > now) {
                // By a clock that was ahead. It would not count as idle until the clock is there again.
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

    /// Tells a reader's actor that it missed something, since it had no room to be told what.
    fn settle(&self, reader: SourceSlot) {
        let local = self.shared.world.sharding.local(reader);
        self.inbox_store.borrow_mut().notify(Invalidation::Missed, &[local]);
        if let Err(SendError::Full(_)) = self.shared.directory.send(reader, Bell) {
            self.shared.watchers.unsettle(reader);
        }
    }

    /// Asks a reader's actor to end. It leaves the directory itself, when it comes to the message, unless somebody is connected
    /// by then.
    fn put_to_sleep(&mut self, slot: SourceSlot) {
        if let Err(SendError::Full(_)) = self.shared.directory.send(slot, Sleep) {
            // It is being asked a lot: far from idle.
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
            // With fewer allowed than before, the rest are rebuilt when they come.
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
    fn time_that_a_clock_leaps_over_makes_nobody_idle() {
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

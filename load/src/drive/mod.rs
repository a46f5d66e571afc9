//! Doing the work: clients on threads, in a closed loop or at intended times.
//!
//! Responsible for:
//! - so many clients at once, warmed up before anything counts;
//! - timing each operation, from when it was to be done;
//! - taking back what was followed, so that every run finds the same world, however much was done in the one before;
//! - the processor time that server and client took meanwhile.
//!
//! Not responsible for:
//! - which operations (`workload`), what the figures mean (`measure`).

mod clients;
pub mod pacer;
pub mod recorder;
mod tests;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use tokio::runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::LocalSet;

use crate::drive::clients::{Crew, Share, Timing};
use crate::drive::pacer::{Due, Pacer};
use crate::drive::recorder::{Record, histogram, record};
use crate::operation::{Operation, User};
use crate::target::process::processor_time;
use crate::target::{Failure, Target};
use crate::workload::Workload;

/// How the work is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Clients at once.
    pub clients: NonZeroUsize,
    /// Threads that clients are spread over.
    pub threads: NonZeroUsize,
    /// When operations are to be done.
    pub pace: Pace,
    /// Whether what is refused is tried again until it is done.
    pub retry_refused: bool,
    /// The number of the first client: others than those of earlier runs do other things.
    pub first_client: u64,
}

/// When operations are to be done.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Each as soon as the client's last one is done.
    Closed {
        /// What is done before it counts.
        warm_up: Duration,
        /// What counts.
        lasts: Duration,
    },
    /// At intended times.
    Open {
        /// When.
        pacer: Pacer,
        /// What is to be done before that time does not count.
        warm_up: Duration,
    },
}

/// Of what was recorded, the share at most that does not count.
const WARM_UP_SHARE: f64 = 0.1;

impl Pace {
    /// At intended times, warmed up by as much at the rate of the beginning. What was recorded begins as it did: then the
    /// first of it does not count.
    pub fn open(pacer: Pacer, warm_up: Duration) -> Self {
        let warm_up = match &pacer {
            Pacer::Stretches(_) => warm_up,
            Pacer::Recorded { .. } => warm_up.min(pacer.lasts().mul_f64(WARM_UP_SHARE)),
        };
        Self::Open { pacer: pacer.beginning_with(warm_up), warm_up }
    }
}

/// Clients of an open loop for each of a closed one: enough never to be what operations wait for.
pub const OPEN_CLIENTS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// What became of the operations that count.
    pub record: Record,
    /// How long these took.
    pub lasted: Duration,
    /// How long they were to take.
    pub planned: Duration,
    /// Cores that the server kept busy; 0 if it runs in this process.
    pub server_cores: f64,
    /// Cores that this process kept busy.
    pub client_cores: f64,
    /// How late operations were let go, by no fault of the server.
    pub lateness: Histogram<u64>,
}

/// Does the work, and waits until it is done. `tell` hears now and then how far it is, 0 to 1.
///
/// # Errors
/// When a client cannot be opened, or an operation is not answered. Operations that fail are counted instead.
pub fn run(
    target: &Arc<dyn Target>,
    workload: &Arc<Workload>,
    plan: &Plan,
    tell: &dyn Fn(f64),
) -> Result<Run, Failure> {
    let threads = plan.threads.min(plan.clients).get();
    let (begin, begun) = watch::channel(None);
    let (ready, readied) = mpsc::channel();
    let gate = Arc::new(Gate::default());
    let crews: Vec<_> = (0..threads)
        .map(|thread| {
            let crew = Crew {
                target: Arc::clone(target),
                workload: Arc::clone(workload),
                plan: plan.clone(),
                share: Share { thread, threads },
                gate: Arc::clone(&gate),
            };
            let (begun, ready) = (begun.clone(), ready.clone());
            thread::spawn(move || crew.work(begun, ready))
        })
        .collect();
    drop(ready);
    // Each says it once. After a failure the others end by themselves, since nobody tells them to begin.
    for opened in readied {
        opened?;
    }
    let timing = Timing::from_now(&plan.pace);
    begin.send_replace(Some(timing));
    let (lateness, cores) = watch_over(&**target, plan, timing, &gate, tell);
    let mut record = Record::default();
    for crew in crews {
        record.merge(crew.join().map_err(|_| Failure::Failed("a thread of clients crashed".to_owned()))?);
    }
    if let Some(what) = gate.silent.get() {
        return Err(Failure::Silent(what.clone()).of_what(target.name()));
    }
    // An open loop lasts until the last operation is done.
    let lasted = match plan.pace {
        Pace::Closed { lasts, .. } => lasts,
        Pace::Open { .. } => timing.measured.elapsed(),
    };
    let left: Vec<_> = workload.take_left().into_iter().collect();
    if let Err(cause) = take_back(&**target, &left) {
        record.add_failure(format!("taking back {} follows: {cause}", left.len()));
    }
    Ok(Run {
        record,
        lasted,
        planned: timing.end - timing.measured,
        server_cores: cores.0,
        client_cores: cores.1,
        lateness,
    })
}

/// Clients that take back follows.
const TAKING_BACK: usize = 16;

/// Ends edges that the clients of a run made and did not end.
fn take_back(target: &dyn Target, edges: &[(User, User)]) -> Result<(), Failure> {
    if edges.is_empty() {
        return Ok(());
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| Failure::of(&cause))?;
    let parts = edges.chunks(edges.len().div_ceil(TAKING_BACK)).map(async |part| {
        let mut client = target.open().await?;
        for (follower, source) in part {
            client.perform(&Operation::Unfollow { follower: *follower, source: *source }).await?;
        }
        Ok(())
    });
    // Some servers' clients leave tasks on the thread.
    LocalSet::new().block_on(&runtime, try_join_all(parts)).map(drop)
}

/// Lets operations of an open loop go, and tells which is next.
#[derive(Debug)]
struct Gate {
    /// A permit for each operation that is due.
    due: Semaphore,
    next: AtomicU64,
    /// What was not answered: nobody goes on then.
    silent: OnceLock<String>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { due: Semaphore::new(0), next: AtomicU64::new(0), silent: OnceLock::new() }
    }
}

/// While the crews work: lets operations go when they are due, and looks at processor times. Returns how late operations
/// were let go, and the cores kept busy by the server and by this process.
fn watch_over(
    target: &dyn Target,
    plan: &Plan,
    timing: Timing,
    gate: &Gate,
    tell: &dyn Fn(f64),
) -> (Histogram<u64>, (f64, f64)) {
    let mut clock = Clock { timing, tell, gate, told: timing.began };
    let mut open = match &plan.pace {
        Pace::Closed { .. } => None,
        Pace::Open { pacer, .. } => Some(LettingGo { pacer, gate, nth: 0, lateness: histogram() }),
    };
    if let Some(open) = &mut open {
        open.before(timing.measured - timing.began, &mut clock);
        open.lateness.reset();
    }
    clock.sleep_until(timing.measured);
    let times = || (target.process().map(processor_time).unwrap_or_default(), processor_time(std::process::id()));
    let (began, before) = (Instant::now(), times());
    let lateness = match open {
        None => {
            clock.sleep_until(timing.end);
            histogram()
        }
        Some(open) => open.finish(&mut clock),
    };
    let after = times();
    let lasted = began.elapsed().as_secs_f64().max(f64::EPSILON);
    let cores = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / lasted;
    (lateness, (cores(before.0, after.0), cores(before.1, after.1)))
}

/// Operations that are let go before any of those who wait for them hear of it.
const LET_GO_MAX: usize = 1_024;

/// Lets each operation of an open loop go when it is due, then the clients.
struct LettingGo<'a> {
    pacer: &'a Pacer,
    gate: &'a Gate,
    nth: u64,
    lateness: Histogram<u64>,
}

impl LettingGo<'_> {
    /// Those that are due before so much time has passed.
    fn before(&mut self, end: Duration, clock: &mut Clock<'_>) {
        let start = clock.timing.began;
        while let Some(due) = self.pacer.due(self.nth).filter(|due| due.at < end) {
            clock.sleep_until(start + due.at);
            if self.gate.is_over() {
                return;
            }
            let late_by = start.elapsed();
            let mut count = 0;
            let is_due = |due: &Due| due.at <= late_by && due.at < end;
            while let Some(due) = self.pacer.due(self.nth).filter(|due| count < LET_GO_MAX && is_due(due)) {
                record(&mut self.lateness, late_by - due.at);
                (self.nth, count) = (self.nth + 1, count + 1);
            }
            self.gate.due.add_permits(count);
        }
    }

    /// The others. Returns how late they were let go.
    fn finish(mut self, clock: &mut Clock<'_>) -> Histogram<u64> {
        self.before(Duration::MAX, clock);
        // Whoever finds no operation left ends, and all others after it.
        self.gate.due.add_permits(1);
        self.lateness
    }
}

/// How often it is told how far a run is, and looked whether anybody goes on.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Waits, unless nobody goes on, and tells meanwhile how far the run is.
struct Clock<'a> {
    timing: Timing,
    gate: &'a Gate,
    tell: &'a dyn Fn(f64),
    told: Instant,
}

impl Clock<'_> {
    fn sleep_until(&mut self, instant: Instant) {
        loop {
            let now = Instant::now();
            if now.duration_since(self.told) >= TELL_EVERY {
                self.told = now;
                let all = (self.timing.end - self.timing.began).as_secs_f64().max(f64::EPSILON);
                (self.tell)((now - self.timing.began).as_secs_f64() / all);
            }
            let left = instant.checked_duration_since(now).filter(|left| !left.is_zero() && !self.gate.is_over());
            let Some(left) = left else { return };
            thread::park_timeout(left.min(TELL_EVERY));
        }
    }
}

impl Gate {
    /// Whether something was not answered.
    fn is_over(&self) -> bool {
        self.silent.get().is_some()
    }

    /// The number of the next operation, once it is due.
    async fn next(&self) -> u64 {
        // The semaphore is never closed; if it were, there would be nothing left to wait for.
        if let Ok(permit) = self.due.acquire().await {
            permit.forget();
        }
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the next client find that there is nothing left.
    fn pass_on(&self) {
        self.due.add_permits(1);
    }
}

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
use crate::drive::pacer::Pacer;
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
    Open(Pacer),
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// What became of the operations that count.
    pub record: Record,
    /// How long these took.
    pub lasted: Duration,
    /// Cores that the server kept busy; 0 if it runs in this process.
    pub server_cores: f64,
    /// Cores that this process kept busy.
    pub client_cores: f64,
    /// How late operations were let go, by no fault of the server.
    pub lateness: Histogram<u64>,
}

/// Does the work, and waits until it is done.
///
/// # Errors
/// When a client cannot be opened, or an operation is not answered. Operations that fail are counted instead.
pub fn run(target: &Arc<dyn Target>, workload: &Arc<Workload>, plan: &Plan) -> Result<Run, Failure> {
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
    let (lateness, cores) = watch_over(&**target, plan, timing, &gate);
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
        Pace::Open(_) => timing.measured.elapsed(),
    };
    let left: Vec<_> = workload.take_left().into_iter().collect();
    if let Err(cause) = take_back(&**target, &left) {
        record.add_failure(format!("taking back {} follows: {cause}", left.len()));
    }
    Ok(Run { record, lasted, server_cores: cores.0, client_cores: cores.1, lateness })
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
fn watch_over(target: &dyn Target, plan: &Plan, timing: Timing, gate: &Gate) -> (Histogram<u64>, (f64, f64)) {
    gate.sleep_until(timing.measured);
    let times = || (target.process().map(processor_time).unwrap_or_default(), processor_time(std::process::id()));
    let (began, before) = (Instant::now(), times());
    let lateness = match &plan.pace {
        Pace::Closed { .. } => {
            gate.sleep_until(timing.end);
            histogram()
        }
        Pace::Open(pacer) => let_go(pacer, timing.measured, gate),
    };
    let after = times();
    let lasted = began.elapsed().as_secs_f64().max(f64::EPSILON);
    let cores = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / lasted;
    (lateness, (cores(before.0, after.0), cores(before.1, after.1)))
}

/// Operations that are let go before any of those who wait for them hear of it.
const LET_GO_MAX: usize = 1_024;

/// Lets each operation go when it is due, then the clients.
fn let_go(pacer: &Pacer, start: Instant, gate: &Gate) -> Histogram<u64> {
    let mut lateness = histogram();
    let mut nth = 0;
    while let Some(due) = pacer.due(nth) {
        gate.sleep_until(start + due.at);
        if gate.is_over() {
            break;
        }
        let late_by = start.elapsed();
        let mut count = 0;
        while let Some(due) = pacer.due(nth).filter(|due| due.at <= late_by && count < LET_GO_MAX) {
            record(&mut lateness, late_by - due.at);
            (nth, count) = (nth + 1, count + 1);
        }
        gate.due.add_permits(count);
    }
    // Whoever finds no operation left ends, and all others after it.
    gate.due.add_permits(1);
    lateness
}

/// How soon it is noticed that nobody goes on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Gate {
    /// Waits, unless nobody goes on.
    fn sleep_until(&self, instant: Instant) {
        let left = || instant.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        while let Some(left) = left().filter(|_| !self.is_over()) {
            thread::park_timeout(left.min(LOOK_AGAIN));
        }
    }

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

//! Runs the work: clients on threads, in a closed loop or at intended times.
//!
//! Responsible for:
//! - concurrent clients, with a warm-up that is not measured;
//! - measuring each operation from its intended time;
//! - removing the follow edges that a run created, so that every run starts with the same world;
//! - the processor time of server and client during the run.

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

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of concurrent clients.
    pub clients: NonZeroUsize,
    /// Number of threads that the clients are spread over.
    pub threads: NonZeroUsize,
    /// The intended times of the operations.
    pub pace: Pace,
    /// True if refused operations are retried until they succeed.
    pub retry_refused: bool,
    /// The number of the first client. It seeds the clients, so runs with different numbers do different operations.
    pub first_client: u64,
}

/// The intended times of the operations.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Closed loop: each operation starts when the client's previous one has ended.
    Closed {
        /// Duration of the warm-up, which is not measured.
        warm_up: Duration,
        /// Duration of the measurement.
        lasts: Duration,
    },
    /// Open loop: each operation has an intended time.
    Open {
        /// The schedule of the operations.
        pacer: Pacer,
        /// Operations that are due before this time are not measured.
        warm_up: Duration,
    },
}

/// Maximum share of a recorded activity that is used as the warm-up.
const WARM_UP_SHARE: f64 = 0.1;

impl Pace {
    /// Creates an open loop. The warm-up runs at the initial rate before the schedule. A recorded activity is not extended: its first
    /// part is the warm-up.
    pub fn open(pacer: Pacer, warm_up: Duration) -> Self {
        let warm_up = match &pacer {
            Pacer::Stretches(_) => warm_up,
            Pacer::Recorded { .. } => warm_up.min(pacer.lasts().mul_f64(WARM_UP_SHARE)),
        };
        Self::Open { pacer: pacer.beginning_with(warm_up), warm_up }
    }
}

/// Number of clients of an open loop for each client of a closed one: enough that operations never wait for a free client.
pub const OPEN_CLIENTS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The results of the measured operations.
    pub record: Record,
    /// Actual duration of the measurement.
    pub lasted: Duration,
    /// Planned duration of the measurement.
    pub planned: Duration,
    /// Average number of cores that the server used; 0 if it runs in this process.
    pub server_cores: f64,
    /// Average number of cores that this process used.
    pub client_cores: f64,
    /// Delay between the intended time of operations and their release, which is caused by the client and not by the server.
    pub lateness: Histogram<u64>,
}

/// Runs the workload and waits for its end. `on_progress` is called at intervals with the progress, 0 to 1.
///
/// # Errors
/// If a client cannot be opened, or an operation gets no answer. Operations that fail are counted instead.
pub fn run(
    target: &Arc<dyn Target>,
    workload: &Arc<Workload>,
    plan: &Plan,
    on_progress: &dyn Fn(f64),
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
    // Each thread reports once. After an error the other threads end, because `begin` is dropped.
    for opened in readied {
        opened?;
    }
    let timing = Timing::from_now(&plan.pace);
    begin.send_replace(Some(timing));
    let (lateness, cores) = supervise(&**target, plan, timing, &gate, on_progress);
    let mut record = Record::default();
    for crew in crews {
        record.merge(crew.join().map_err(|_| Failure::Failed("a thread of clients crashed".to_owned()))?);
    }
    if let Some(what) = gate.silent.get() {
        return Err(Failure::Silent(what.clone()).of_what(target.name()));
    }
    // An open loop lasts until its last operation has ended.
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

/// Number of clients that remove follow edges.
const TAKING_BACK: usize = 16;

/// Removes the edges that the clients of a run created and did not remove.
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
    // A local task set is needed, because the clients of some servers spawn tasks on the thread.
    LocalSet::new().block_on(&runtime, try_join_all(parts)).map(drop)
}

/// Releases the operations of an open loop, and hands out their numbers.
#[derive(Debug)]
struct Gate {
    /// One permit for each operation that is due.
    due: Semaphore,
    next: AtomicU64,
    /// The operation that got no answer, if any. All clients stop then.
    silent: OnceLock<String>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { due: Semaphore::new(0), next: AtomicU64::new(0), silent: OnceLock::new() }
    }
}

/// Runs while the clients work: releases due operations and measures processor times. Returns the release delays, and the cores used by
/// the server and by this process.
fn supervise(
    target: &dyn Target,
    plan: &Plan,
    timing: Timing,
    gate: &Gate,
    on_progress: &dyn Fn(f64),
) -> (Histogram<u64>, (f64, f64)) {
    let mut clock = Clock { timing, on_progress, gate, reported_at: timing.began };
    let mut open = match &plan.pace {
        Pace::Closed { .. } => None,
        Pace::Open { pacer, .. } => Some(Dispatcher { pacer, gate, nth: 0, lateness: histogram() }),
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

/// Maximum number of operations that are released at once.
const DISPATCH_MAX: usize = 1_024;

/// Releases each operation of an open loop when it is due, and lets the clients end after the last one.
struct Dispatcher<'a> {
    pacer: &'a Pacer,
    gate: &'a Gate,
    nth: u64,
    lateness: Histogram<u64>,
}

impl Dispatcher<'_> {
    /// Releases the operations that are due before `end`.
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
            while let Some(due) = self.pacer.due(self.nth).filter(|due| count < DISPATCH_MAX && is_due(due)) {
                record(&mut self.lateness, late_by - due.at);
                (self.nth, count) = (self.nth + 1, count + 1);
            }
            self.gate.due.add_permits(count);
        }
    }

    /// Releases all other operations. Returns the release delays.
    fn finish(mut self, clock: &mut Clock<'_>) -> Histogram<u64> {
        self.before(Duration::MAX, clock);
        // The client that finds no operation left ends, and wakes the next client.
        self.gate.due.add_permits(1);
        self.lateness
    }
}

/// Interval of the progress reports, and of the checks for an aborted run.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Sleeps until a time unless the run is aborted, and reports the progress while it sleeps.
struct Clock<'a> {
    timing: Timing,
    gate: &'a Gate,
    on_progress: &'a dyn Fn(f64),
    reported_at: Instant,
}

impl Clock<'_> {
    fn sleep_until(&mut self, instant: Instant) {
        loop {
            let now = Instant::now();
            if now.duration_since(self.reported_at) >= PROGRESS_EVERY {
                self.reported_at = now;
                let all = (self.timing.end - self.timing.began).as_secs_f64().max(f64::EPSILON);
                (self.on_progress)((now - self.timing.began).as_secs_f64() / all);
            }
            let left = instant.checked_duration_since(now).filter(|left| !left.is_zero() && !self.gate.is_over());
            let Some(left) = left else { return };
            thread::park_timeout(left.min(PROGRESS_EVERY));
        }
    }
}

impl Gate {
    /// Returns true if the run has been aborted because an operation got no answer.
    fn is_over(&self) -> bool {
        self.silent.get().is_some()
    }

    /// Waits until the next operation is due, and returns its number.
    async fn next(&self) -> u64 {
        // The semaphore is never closed. If it were closed, there would be nothing to wait for.
        if let Ok(permit) = self.due.acquire().await {
            permit.forget();
        }
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a permit, so that the next client finds that no operation is left.
    fn wake_next(&self) {
        self.due.add_permits(1);
    }
}

//! The clients that run on one thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::drive::recorder::{Done, Record};
use crate::drive::{Gate, Pace, Plan};
use crate::operation::Operation;
use crate::target::{Client, Failure, Target};
use crate::workload::{Operations, Workload};

/// Maximum time after its intended time for which a refused operation is retried.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Pause of a client before it retries a refused operation.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// The time limits of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Start of the run: the earliest time of the first operation.
    pub(super) began: Instant,
    /// Start of the measurement. A closed loop counts operations that end after it, an open loop those that are due after it.
    pub(super) measured: Instant,
    /// End of the measurement. Operations of a closed loop that end later do not count.
    pub(super) end: Instant,
    lasts: Duration,
}

impl Timing {
    pub(super) fn from_now(pace: &Pace) -> Self {
        let (warm_up, lasts) = match pace {
            Pace::Closed { warm_up, lasts } => (*warm_up, *lasts),
            Pace::Open { pacer, warm_up } => (*warm_up, pacer.lasts().saturating_sub(*warm_up)),
        };
        let began = Instant::now();
        let measured = began + warm_up;
        Self { began, measured, end: measured + lasts, lasts }
    }

    /// Returns the time of an event as a share of the measured time.
    fn share(&self, ended: Instant) -> f64 {
        ended.saturating_duration_since(self.measured).as_secs_f64() / self.lasts.as_secs_f64().max(f64::EPSILON)
    }
}

/// The part of all clients that one thread runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) thread: usize,
    pub(super) threads: usize,
}

/// The clients of one thread, before the run starts.
pub(super) struct Crew {
    pub(super) target: Arc<dyn Target>,
    pub(super) workload: Arc<Workload>,
    pub(super) plan: Plan,
    pub(super) share: Share,
    pub(super) gate: Arc<Gate>,
}

impl Crew {
    /// Opens the clients, reports that they are ready, and runs them once the run begins. Returns an empty record if it never begins.
    pub(super) fn work(self, mut begun: watch::Receiver<Option<Timing>>, ready: Sender<Result<(), Failure>>) -> Record {
        // A connection must stay on the runtime that opened it.
        let local = LocalSet::new();
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(cause) => {
                let _ = ready.send(Err(Failure::of(&cause)));
                return Record::default();
            }
        };
        local.block_on(&runtime, async move {
            let clients = match self.open().await {
                Ok(clients) => clients,
                Err(cause) => {
                    let _ = ready.send(Err(cause));
                    return Record::default();
                }
            };
            let _ = ready.send(Ok(()));
            drop(ready);
            let timing = begun.wait_for(Option::is_some).await.ok().and_then(|timing| *timing);
            match timing {
                Some(timing) => self.run(clients, timing).await,
                None => Record::default(),
            }
        })
    }

    async fn open(&self) -> Result<Vec<Worker>, Failure> {
        let mut workers = Vec::new();
        for number in (self.share.thread..self.plan.clients.get()).step_by(self.share.threads) {
            workers.push(Worker {
                client: self.target.open().await?,
                operations: self.workload.client(self.plan.first_client + number as u64),
            });
        }
        Ok(workers)
    }

    async fn run(self, workers: Vec<Worker>, timing: Timing) -> Record {
        let record = Rc::new(RefCell::new(Record::default()));
        let crew = Rc::new(self);
        let tasks: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let task = Task { crew: Rc::clone(&crew), record: Rc::clone(&record), timing };
                tokio::task::spawn_local(task.run(worker))
            })
            .collect();
        for task in tasks {
            if task.await.is_err() {
                record.borrow_mut().add_failure("a client crashed".to_owned());
            }
        }
        record.take()
    }
}

/// A client and its sequence of operations.
struct Worker {
    client: Box<dyn Client>,
    operations: Operations,
}

/// The running task of one client.
struct Task {
    crew: Rc<Crew>,
    record: Rc<RefCell<Record>>,
    timing: Timing,
}

impl Task {
    async fn run(self, mut worker: Worker) {
        match &self.crew.plan.pace {
            Pace::Closed { .. } => {
                while Instant::now() < self.timing.end && !self.crew.gate.is_over() {
                    let operation = worker.operations.next_operation();
                    self.perform(&mut *worker.client, &operation, Instant::now()).await;
                }
            }
            Pace::Open { pacer, .. } => {
                while let Some(due) = pacer.due(self.crew.gate.next().await).filter(|_| !self.crew.gate.is_over()) {
                    let operation = match due.publish_by {
                        Some(author) => worker.operations.publish_by(author),
                        None => worker.operations.next_operation(),
                    };
                    self.perform(&mut *worker.client, &operation, self.timing.began + due.at).await;
                }
                self.crew.gate.wake_next();
            }
        }
        worker.operations.end();
    }

    /// Performs an operation. Its latency is measured from its intended time.
    async fn perform(&self, client: &mut dyn Client, operation: &Operation, intended: Instant) {
        let answer = loop {
            let sent_at = Instant::now();
            match client.perform(operation).await {
                Err(Failure::Refused(message)) => {
                    let now = Instant::now();
                    if self.counts(intended, now) {
                        self.record.borrow_mut().add_refusal(self.timing.share(now), sent_at.elapsed());
                    }
                    let is_late = intended.elapsed() > RETRY_MAX || self.crew.gate.is_over();
                    if !self.crew.plan.retry_refused || is_late {
                        break Err(Failure::Refused(message));
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                answer => break answer,
            }
        };
        let ended = Instant::now();
        self.crew.workload.record_outcome(operation, &answer);
        match answer {
            Ok(_) if self.counts(intended, ended) => self.count(operation, intended, ended),
            Ok(_) => {}
            Err(Failure::Silent(to)) => {
                // Only the first error of this kind is stored.
                let _ = self.crew.gate.silent.set(format!("{}: {to}", operation.kind().label()));
            }
            Err(Failure::Refused(message) | Failure::Failed(message)) => self.record.borrow_mut().add_failure(message),
        }
    }

    /// Returns true if an operation with this intended time and end counts, that is, it is not part of the warm-up.
    fn counts(&self, intended: Instant, ended: Instant) -> bool {
        match self.crew.plan.pace {
            Pace::Closed { .. } => (self.timing.measured..self.timing.end).contains(&ended),
            Pace::Open { .. } => intended >= self.timing.measured,
        }
    }

    fn count(&self, operation: &Operation, intended: Instant, ended: Instant) {
        let deliveries = self.crew.workload.deliveries(operation);
        let latency = ended.saturating_duration_since(intended);
        let done = Done { kind: operation.kind(), at: self.timing.share(ended), latency, deliveries };
        self.record.borrow_mut().add(done);
    }
}

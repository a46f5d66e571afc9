//! The clients of one thread.

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
use crate::workload::{Doings, Workload};

/// How long after it was to be done something is tried again.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// How long a client waits before it tries again what was refused.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// When a run is what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// When the first operation may be done.
    pub(super) began: Instant,
    /// What ends from here on counts; in an open loop, what is to be done from here on.
    pub(super) measured: Instant,
    /// What ends later does not.
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

    /// When something ended, as a share of the run.
    fn share(&self, ended: Instant) -> f64 {
        ended.saturating_duration_since(self.measured).as_secs_f64() / self.lasts.as_secs_f64().max(f64::EPSILON)
    }
}

/// Which of all clients a thread has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) thread: usize,
    pub(super) threads: usize,
}

/// The clients of one thread, before they begin.
pub(super) struct Crew {
    pub(super) target: Arc<dyn Target>,
    pub(super) workload: Arc<Workload>,
    pub(super) plan: Plan,
    pub(super) share: Share,
    pub(super) gate: Arc<Gate>,
}

impl Crew {
    /// Opens the clients, says so, and has them work once it begins. Nothing is done if it never does.
    pub(super) fn work(self, mut begun: watch::Receiver<Option<Timing>>, ready: Sender<Result<(), Failure>>) -> Record {
        // Connections need the runtime they were opened on.
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
                doings: self.workload.client(self.plan.first_client + number as u64),
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

/// A client, and what it is to do.
struct Worker {
    client: Box<dyn Client>,
    doings: Doings,
}

/// One client at work.
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
                    let operation = worker.doings.next_operation();
                    self.perform(&mut *worker.client, &operation, Instant::now()).await;
                }
            }
            Pace::Open { pacer, .. } => {
                while let Some(due) = pacer.due(self.crew.gate.next().await).filter(|_| !self.crew.gate.is_over()) {
                    let operation = match due.publish_by {
                        Some(author) => worker.doings.publish_by(author),
                        None => worker.doings.next_operation(),
                    };
                    self.perform(&mut *worker.client, &operation, self.timing.began + due.at).await;
                }
                self.crew.gate.pass_on();
            }
        }
        worker.doings.end();
    }

    /// Does an operation, timed from when it was to be done.
    async fn perform(&self, client: &mut dyn Client, operation: &Operation, meant: Instant) {
        let answer = loop {
            let asked = Instant::now();
            match client.perform(operation).await {
                Err(Failure::Refused(message)) => {
                    let now = Instant::now();
                    if self.counts(meant, now) {
                        self.record.borrow_mut().add_refusal(self.timing.share(now), asked.elapsed());
                    }
                    let is_late = meant.elapsed() > RETRY_MAX || self.crew.gate.is_over();
                    if !self.crew.plan.retry_refused || is_late {
                        break Err(Failure::Refused(message));
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                answer => break answer,
            }
        };
        let ended = Instant::now();
        self.crew.workload.came_to(operation, &answer);
        match answer {
            Ok(_) if self.counts(meant, ended) => self.count(operation, meant, ended),
            Ok(_) => {}
            Err(Failure::Silent(to)) => {
                // The first is told.
                let _ = self.crew.gate.silent.set(format!("{}: {to}", operation.kind().label()));
            }
            Err(Failure::Refused(message) | Failure::Failed(message)) => self.record.borrow_mut().add_failure(message),
        }
    }

    /// Whether what ended then, and was to be done at `meant`, was no warming up.
    fn counts(&self, meant: Instant, ended: Instant) -> bool {
        match self.crew.plan.pace {
            Pace::Closed { .. } => (self.timing.measured..self.timing.end).contains(&ended),
            Pace::Open { .. } => meant >= self.timing.measured,
        }
    }

    fn count(&self, operation: &Operation, meant: Instant, ended: Instant) {
        let deliveries = self.crew.workload.deliveries(operation);
        let latency = ended.saturating_duration_since(meant);
        let done = Done { kind: operation.kind(), at: self.timing.share(ended), latency, deliveries };
        self.record.borrow_mut().add(done);
    }
}

//! `tidewire-load run`: runs one design at a given rate, at its maximum rate, or with a recorded activity.

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::options::{
    DesignOptions, ReportOptions, WorkOptions, WorldOptions, duration, judge, positive, report, world_settings,
};
use crate::drive::pacer::Pacer;
use crate::drive::{OPEN_CLIENTS, Pace, Plan, Run as Ran};
use crate::environment::Environment;
use crate::initial_load::Load;
use crate::measure::{self, Figure};
use crate::prepare::Prepared;
use crate::report::progress::Progress;
use crate::report::{Report, TargetReport, figure};
use crate::search;
use crate::target::kind::Kind;
use crate::turn::{self, Turn};
use crate::workload::{Mix, Workload};

/// Arguments of `tidewire-load run`.
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) on: OnOptions,

    /// Operations per second, each timed from its intended time [default: the maximum rate]
    #[arg(long, value_name = "OPERATIONS", value_parser = positive, conflicts_with_all = ["most", "activity"])]
    rate: Option<f64>,

    /// Search the maximum rate with an increasing number of clients
    #[arg(long, conflicts_with = "activity")]
    most: bool,

    /// Run the middle third of the time at this multiple of the rate
    #[arg(long, value_name = "TIMES", value_parser = positive, requires = "rate")]
    burst: Option<f64>,

    /// Replay a recorded activity: `author other unix_seconds …` in each line; needs --follows of the same users. The other operations of
    /// the mix run in between
    #[arg(long, value_name = "FILE", requires = "follows")]
    activity: Option<PathBuf>,

    /// Speed of the replay
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = positive)]
    speed: f64,

    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    lasts: Duration,

    #[command(flatten)]
    report: ReportOptions,
}

/// The design and its initial load.
#[derive(Debug, clap::Args)]
pub(super) struct OnOptions {
    /// Design to run
    #[arg(long, default_value = "tidewire_http")]
    target: Kind,

    /// Use a Tidewire server that is already running: it gets users named u0, u1 and so on
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "target")]
    server: Option<SocketAddr>,

    #[command(flatten)]
    pub(super) world: WorldOptions,

    #[command(flatten)]
    pub(super) work: WorkOptions,

    #[command(flatten)]
    designs: DesignOptions,
}

/// The default number of users.
const USERS: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// A loaded design and its workload.
pub(super) struct Loaded {
    pub(super) prepared: Prepared,
    pub(super) load: Load,
    mix: Mix,
    exponents: (f64, f64),
    seed: u64,
    runs: u64,
    /// Number of pages that were correct after runs.
    pages_checked: usize,
    pub(super) environment: Environment,
}

impl OnOptions {
    /// Loads the design. `activity` is a file with recorded activity.
    pub(super) fn prepare(&self, activity: Option<&PathBuf>, progress: &Progress) -> Result<Loaded, Box<dyn Error>> {
        let settings = self.designs.settings();
        let load = self.world.load(self.world.world(USERS, activity)?, settings.inbox_posts)?;
        if !load.online.is_empty() && !self.target.pushes_live() {
            return Err(format!("--online-share: {} does not push messages", self.target.name()).into());
        }
        let seed = self.world.seed;
        let prepared = match self.server {
            Some(address) => Prepared::running(address, &load, seed, progress)?,
            None => Prepared::start(self.target, &settings, &load, seed, progress)?,
        };
        let environment = Environment::new(load.client_cores(self.work.threads));
        let (mix, exponents) = (self.work.mix()?, self.world.exponents());
        Ok(Loaded { prepared, load, mix, exponents, seed, runs: 0, pages_checked: 0, environment })
    }

    /// Returns a plan for a closed loop.
    pub(super) fn closed(&self, clients: NonZeroUsize, lasts: Duration) -> Plan {
        let pace = Pace::Closed { warm_up: lasts / 10, lasts };
        Plan { clients, threads: self.work.threads, pace, retry_refused: false, first_client: 0 }
    }

    /// Returns a plan for an open loop.
    pub(super) fn open(&self, pacer: Pacer) -> Plan {
        let clients = self.work.clients.saturating_mul(OPEN_CLIENTS);
        let warm_up = (pacer.lasts() / 10).min(OPEN_WARM_UP_MAX);
        let pace = Pace::open(pacer, warm_up);
        Plan { clients, threads: self.work.threads, pace, retry_refused: false, first_client: 0 }
    }
}

/// Maximum duration of the warm-up of an open loop.
const OPEN_WARM_UP_MAX: Duration = Duration::from_secs(1);

impl Loaded {
    /// Runs a plan on the design.
    pub(super) fn run(&mut self, plan: &Plan, progress: &Progress) -> Outcome {
        self.runs += 1;
        let plan = Plan { first_client: self.runs << 16, ..plan.clone() };
        let (world, mint) = (Arc::clone(&self.load.world), Arc::clone(&self.load.mint));
        let workload = Workload::new(world, self.mix.clone(), self.exponents, mint, self.seed);
        let workload = Arc::new(workload.observed_by(self.prepared.verifier.clone()));
        let target = &self.prepared.target;
        let turn = turn::take(target, &[], &workload, &plan, (target.name(), progress));
        self.environment.stretches.push(turn.stretch.clone());
        let outcome = Outcome::of(turn);
        match outcome.ran.as_ref().filter(|_| !outcome.over).map(|ran| self.prepared.check_after(&self.mix, ran)) {
            Some(Ok(pages)) => {
                self.pages_checked += pages;
                outcome
            }
            Some(Err(cause)) => Outcome { wrong: outcome.wrong.or(Some(cause.to_string())), ..outcome },
            None => outcome,
        }
    }

    /// Measures the maximum rate. Returns the run, and a problem that does not end the program, if any.
    pub(super) fn most(&mut self, closed: &Plan, progress: &Progress) -> Result<(Ran, Option<String>), String> {
        progress.step(self.prepared.target.name(), "measuring the maximum rate");
        let Outcome { ran, wrong, over, .. } = self.run(closed, progress);
        let Some(ran) = ran.filter(|_| !over) else { return Err(wrong.unwrap_or_default()) };
        progress.done(&figure::rate(rate(&ran)));
        Ok((ran, wrong))
    }

    /// Adds the final results: the number of correct pages, and the results of readers online.
    pub(super) fn end(&mut self, target: &mut TargetReport) {
        target.pages_checked += self.pages_checked;
        if let Some(online) = self.prepared.online.take() {
            online.end_into(target);
        }
    }

    /// Returns the report of one design, without cases.
    pub(super) fn report(&self, title: &str, on: &OnOptions) -> Report {
        let mut settings = world_settings(&self.load, &on.world);
        settings.insert("mix".to_owned(), on.work.describe());
        settings.insert("clients".to_owned(), format!("{} on {} threads", on.work.clients, on.work.threads));
        let target = &self.prepared.target;
        let cases = self.prepared.memory.map(|memory| ("memory".to_owned(), memory.case()));
        let of_target = TargetReport {
            name: target.name().to_owned(),
            settings: target.settings(),
            pages_checked: self.prepared.pages_checked,
            cases: cases.into_iter().collect(),
            ..TargetReport::default()
        };
        let mut report = report(title, settings);
        report.targets.push(of_target);
        report
    }
}

/// The outcome of a run.
pub(super) struct Outcome {
    pub(super) ran: Option<Ran>,
    /// The problem, if there was one.
    pub(super) wrong: Option<String>,
    /// True if no further run is possible.
    pub(super) over: bool,
    /// Highest resident memory of the server, in bytes.
    pub(super) resident_most: Option<u64>,
}

impl Outcome {
    pub(super) fn of(Turn { ran, died, resident_most, .. }: Turn) -> Self {
        let ran = match ran {
            Ok(ran) => ran,
            Err(cause) => return Self { ran: None, wrong: Some(cause.to_string()), over: true, resident_most },
        };
        let first_failure = ran.record.first_failure.as_deref().unwrap_or("no message");
        // Refusals under overload are counted, and do not make the other results invalid.
        let failed = ran.record.failed.saturating_sub(ran.record.refused);
        let wrong = match failed {
            _ if died => Some(format!("the server ended; the first failed operation reported: {first_failure}")),
            0 => None,
            failed => Some(format!("{failed} operations failed, and the first of them reported: {first_failure}")),
        };
        Self { ran: Some(ran), wrong, over: died, resident_most }
    }
}

/// Returns an error for a run with a problem, after all results are reported.
pub(super) fn ended(name: &str, wrong: Option<String>) -> Result<(), Box<dyn Error>> {
    wrong.map_or(Ok(()), |wrong| Err(format!("{name}: {wrong}; the report has the results until then").into()))
}

pub(super) fn rate(ran: &Ran) -> f64 {
    ran.record.operations() as f64 / ran.lasted.as_secs_f64().max(f64::EPSILON)
}

impl Run {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.report.check()?;
        let progress = Progress::new();
        let mut loaded = self.on.prepare(self.activity.as_ref(), &progress)?;
        let mut report = loaded.report("One design under load", &self.on);
        let (runs, wrong) = self.measure(&mut loaded, &mut report, &progress);
        drop(progress);
        let case = measure::case(&runs, Figure::Operations("operations/s"));
        if let Some(target) = report.targets.first_mut() {
            let refused = || runs.iter().find_map(|run| run.record.first_failure.clone());
            target.failures.extend(wrong.clone().or_else(refused));
            loaded.end(target);
            if !runs.is_empty() {
                target.cases.insert(if self.most { "most" } else { "run" }.to_owned(), case);
            }
        }
        judge(&mut report, &loaded.environment);
        self.report.write(&report)?;
        ended(loaded.prepared.target.name(), wrong)
    }

    /// Runs the measurement. Returns the runs and the problem, if any.
    fn measure(&self, loaded: &mut Loaded, report: &mut Report, progress: &Progress) -> (Vec<Ran>, Option<String>) {
        if self.most {
            return self.search(loaded, report, progress);
        }
        let plan = match self.pacer(loaded) {
            Some(pacer) => self.on.open(pacer),
            None => self.on.closed(self.on.work.clients, self.lasts),
        };
        progress.step(loaded.prepared.target.name(), "under load");
        let Outcome { ran, wrong, .. } = loaded.run(&plan, progress);
        progress.done(&ran.as_ref().map_or_else(|| "not measured".to_owned(), |ran| figure::rate(rate(ran))));
        (ran.into_iter().collect(), wrong)
    }

    /// Searches the maximum rate. Returns the run with the highest rate, and the problem, if any.
    fn search(&self, loaded: &mut Loaded, report: &mut Report, progress: &Progress) -> (Vec<Ran>, Option<String>) {
        let (mut runs, mut first_wrong) = (Vec::new(), None);
        let (tried, ended) = search::most(|clients| {
            progress.step(loaded.prepared.target.name(), &format!("{clients} clients"));
            let Outcome { ran, wrong, over, .. } = loaded.run(&self.on.closed(clients, self.lasts), progress);
            first_wrong = first_wrong.take().or_else(|| wrong.clone());
            let Some(ran) = ran.filter(|_| !over) else {
                progress.done("not measured");
                return Err(wrong.unwrap_or_default());
            };
            let rate = rate(&ran);
            progress.done(&figure::rate(rate));
            runs.push(ran);
            Ok(rate)
        });
        let reported: Vec<String> =
            tried.iter().map(|(clients, rate)| format!("{clients}: {}", figure::rate(*rate))).collect();
        report.settings.insert("operations by clients".to_owned(), reported.join(", "));
        let best = tried.iter().enumerate().max_by(|(_, a), (_, b)| a.1.total_cmp(&b.1)).map(|(nth, _)| nth);
        (best.map(|nth| runs.swap_remove(nth)).into_iter().collect(), ended.or(first_wrong))
    }

    fn pacer(&self, loaded: &Loaded) -> Option<Pacer> {
        if self.activity.is_some() {
            return Some(Pacer::recorded(&loaded.load.world.activity, self.speed, loaded.mix.between_publishes()));
        }
        let rate = self.rate?;
        let third = self.lasts / 3;
        Some(match self.burst {
            Some(times) => Pacer::burst(rate, times, (third, third, third)),
            None => Pacer::steady(rate, self.lasts),
        })
    }
}

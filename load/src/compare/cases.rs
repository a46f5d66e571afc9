//! What is measured of each design.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::compare::{Settings, recovery};
use crate::drive::pacer::Pacer;
use crate::drive::{OPEN_CLIENTS, Pace, Plan, Run};
use crate::measure::{self, Figure};
use crate::prepare::{Load, Prepared};
use crate::report::TargetReport;
use crate::report::figure;
use crate::report::progress::Progress;
use crate::surroundings::Stretch;
use crate::target::Target;
use crate::target::kind::Kind;
use crate::turn::{self, Turn};
use crate::workload::{Mix, Workload};

/// A case that is measured in rounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timed {
    /// Publishing as fast as it goes: feeds that get a post.
    Deliveries,
    /// Reading feed pages as fast as it goes.
    Page,
    /// One reader after the other, alone.
    PageAlone,
    /// A mix of operations, as fast as it goes.
    Mix,
    /// Publishing at half of what was possible: how long until it shows.
    Visible,
    /// Publishing with a burst.
    Burst,
    /// As it was recorded, with the mix between.
    Recorded,
}

/// In this order, since the later ones need what the first found out.
pub(super) fn timed(settings: &Settings) -> impl Iterator<Item = Timed> {
    let always = [Timed::Deliveries, Timed::Page, Timed::PageAlone, Timed::Mix, Timed::Visible, Timed::Burst];
    always.into_iter().chain(settings.recorded.is_some().then_some(Timed::Recorded))
}

impl Timed {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries",
            Self::Page => "feed pages",
            Self::PageAlone => "feed pages, one client",
            Self::Mix => "mixed",
            Self::Visible => "publish to visible",
            Self::Burst => "burst",
            Self::Recorded => "as it was recorded",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries",
            Self::Page => "page",
            Self::PageAlone => "page_alone",
            Self::Mix => "mix",
            Self::Visible => "visible",
            Self::Burst => "burst",
            Self::Recorded => "recorded",
        }
    }

    fn figure(self) -> Figure {
        match self {
            Self::Deliveries => Figure::Deliveries,
            Self::Page | Self::PageAlone => Figure::Operations("pages/s"),
            Self::Mix => Figure::Operations("operations/s"),
            Self::Visible | Self::Burst | Self::Recorded => Figure::P99,
        }
    }

    fn mix(self, settings: &Settings) -> Mix {
        let weights = match self {
            Self::Deliveries | Self::Visible | Self::Burst => "publish",
            Self::Page | Self::PageAlone => "page",
            Self::Mix | Self::Recorded => return settings.mix.clone(),
        };
        Mix::named(weights).unwrap_or_else(|| settings.mix.clone())
    }
}

/// A design, and what was measured of it so far.
pub(super) struct Cases {
    prepared: Prepared,
    runs: BTreeMap<Timed, Vec<Run>>,
    /// What could not be measured, and why.
    failures: Vec<String>,
    /// Whether its server ended.
    died: bool,
}

/// What all cases are measured in alike.
pub(super) struct Circumstances<'a> {
    pub(super) settings: &'a Settings,
    pub(super) load: &'a Load,
    /// The designs whose turn it is not.
    pub(super) waiting: &'a [Arc<dyn Target>],
    pub(super) progress: &'a Progress,
}

impl Cases {
    pub(super) fn new(prepared: Prepared) -> Self {
        Self { prepared, runs: BTreeMap::new(), failures: Vec::new(), died: false }
    }

    pub(super) fn target(&self) -> Arc<dyn Target> {
        Arc::clone(&self.prepared.target)
    }

    pub(super) fn name(&self) -> &'static str {
        self.prepared.kind.name()
    }

    /// Measures a case once. Returns the figure as text, and what the machine did meanwhile; none if this design has no such
    /// case, or it failed.
    pub(super) fn measure(
        &mut self,
        case: Timed,
        round: usize,
        Circumstances { settings, load, waiting, progress }: &Circumstances<'_>,
    ) -> Option<(String, Stretch)> {
        let plan = self.plan(case, round, settings)?;
        let (mix, mint) = (case.mix(settings), Arc::clone(&load.mint));
        let workload = Workload::new(Arc::clone(&load.world), mix, settings.exponents, mint, settings.seed);
        let what = format!("{} of {}", case.label(), self.name());
        let Turn { ran, died, stretch } =
            turn::take(&self.prepared.target, waiting, &Arc::new(workload), &plan, (&what, progress));
        self.died = died;
        let failed = |cause: &str| format!("{}, round {}: {cause}", case.label(), round + 1);
        match ran {
            ran if died => {
                let said = ran.ok().and_then(|run| run.record.first_failure).map(|said| format!(": {said}"));
                let said = said.unwrap_or_default();
                self.failures.push(failed(&format!("the server ended, and nothing is measured from there on{said}")));
            }
            Ok(run) => {
                let told = measure::case(std::slice::from_ref(&run), case.figure());
                self.runs.entry(case).or_default().push(run);
                return Some((figure::median(&told), stretch));
            }
            Err(cause) => self.failures.push(failed(&cause.to_string())),
        }
        None
    }

    /// How a case is measured; none if this design has no such case, or its server ended.
    fn plan(&self, case: Timed, round: usize, settings: &Settings) -> Option<Plan> {
        if self.died {
            return None;
        }
        let kind = self.prepared.kind;
        let Settings { warm_up, lasts, .. } = *settings;
        let pace = match case {
            Timed::Deliveries | Timed::Visible if !kind.pushes() => return None,
            Timed::Deliveries | Timed::Page | Timed::Mix => Pace::Closed { warm_up, lasts },
            Timed::PageAlone => Pace::Closed { warm_up: warm_up / 2, lasts: lasts / 2 },
            Timed::Visible => Pace::open(Pacer::steady(self.publishes_max()? / 2.0, lasts), warm_up),
            Timed::Recorded if round + 1 < settings.rounds => return None,
            Timed::Recorded => Pace::open(settings.recorded.clone()?, warm_up),
            // Once, in the last round, of Tidewire.
            Timed::Burst if kind != Kind::TidewireHttp || round + 1 < settings.rounds => return None,
            Timed::Burst => {
                let (times, [before, burst, after]) = settings.burst;
                // At its height it is what was possible at most, and more.
                let average = self.publishes_max()? * BURST_SHARE / times;
                Pace::open(Pacer::burst(average, times, (before, burst, after)), warm_up)
            }
        };
        let clients = match case {
            Timed::PageAlone => NonZeroUsize::MIN,
            Timed::Visible | Timed::Burst | Timed::Recorded => settings.clients.saturating_mul(OPEN_CLIENTS),
            _ => settings.clients,
        };
        let first_client = (case as u64 + 1) << 32 | (round as u64) << 16;
        Some(Plan { clients, threads: settings.threads, pace, retry_refused: case == Timed::Burst, first_client })
    }

    /// Publishes a second that were possible, by the rounds so far.
    fn publishes_max(&self) -> Option<f64> {
        let runs = self.runs.get(&Timed::Deliveries)?;
        Some(measure::case(runs, Figure::Operations("publishes/s")).median).filter(|rate| *rate > 0.0)
    }

    /// Adds what was measured to the report.
    pub(super) fn tell(self, report: &mut TargetReport, settings: &Settings) {
        for (case, runs) in &self.runs {
            report.cases.insert(case.name().to_owned(), measure::case(runs, case.figure()));
            if let Some(said) = runs.iter().find_map(|run| run.record.first_failure.as_ref()) {
                report.failures.push(format!("{}: {said}", case.label()));
            }
        }
        if let Some(burst) = report.cases.get("burst") {
            let case = recovery::case(&burst.over_time, settings.burst.1);
            report.cases.insert("burst_recovery".to_owned(), case);
        }
        report.failures.extend(self.failures);
    }
}

/// The height of the burst, as a share of what was possible at most.
const BURST_SHARE: f64 = 1.2;

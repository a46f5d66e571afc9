//! The cases that are measured for each design.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::compare::Settings;
use crate::drive::pacer::Pacer;
use crate::drive::{OPEN_CLIENTS, Pace, Plan, Run};
use crate::environment::Stretch;
use crate::initial_load::Load;
use crate::measure::{self, Figure};
use crate::operation::{PAGES_PIPELINED, PAGES_TOGETHER};
use crate::prepare::Prepared;
use crate::recovery;
use crate::report::TargetReport;
use crate::report::figure;
use crate::report::progress::Progress;
use crate::target::kind::Kind;
use crate::target::{Failure, Target};
use crate::turn::{self, Turn};
use crate::workload::{Mix, Workload};

/// A case that is measured in rounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timed {
    /// Publishing at the maximum rate: deliveries to feeds.
    Deliveries,
    /// Reading feed pages at the maximum rate.
    Page,
    /// Reading feed pages with a single client.
    PageAlone,
    /// Reading the pages of many readers in one request, at the maximum rate.
    PagesTogether,
    /// Reading the pages of several readers in a pipeline of requests, at the maximum rate.
    PagePipelined,
    /// A mix of operations at the maximum rate.
    Mix,
    /// Publishing at half of the maximum rate: the time until a post is visible.
    Visible,
    /// Publishing with a burst.
    Burst,
    /// A recorded activity with the mix in between.
    Recorded,
}

/// Returns the cases in their order: later ones need the results of the first.
pub(super) fn timed(settings: &Settings) -> impl Iterator<Item = Timed> {
    let pages = [Timed::Page, Timed::PageAlone, Timed::PagesTogether, Timed::PagePipelined];
    let always = [Timed::Deliveries].into_iter().chain(pages).chain([Timed::Mix, Timed::Visible, Timed::Burst]);
    always.chain(settings.recorded.is_some().then_some(Timed::Recorded))
}

impl Timed {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries",
            Self::Page => "feed pages",
            Self::PageAlone => "feed pages, one client",
            Self::PagesTogether => "feed pages, 50 in a request",
            Self::PagePipelined => "feed pages, pipelined by 16",
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
            Self::PagesTogether => "pages_together",
            Self::PagePipelined => "page_pipelined",
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
            Self::PagesTogether => Figure::Pages(PAGES_TOGETHER),
            Self::PagePipelined => Figure::Pages(PAGES_PIPELINED),
            Self::Mix => Figure::Operations("operations/s"),
            Self::Visible | Self::Burst | Self::Recorded => Figure::P99,
        }
    }

    fn mix(self, settings: &Settings) -> Mix {
        let weights = match self {
            Self::Deliveries | Self::Visible | Self::Burst => "publish",
            Self::Page | Self::PageAlone => "page",
            Self::PagesTogether => "pages",
            Self::PagePipelined => "pages_pipelined",
            Self::Mix | Self::Recorded => return settings.mix.clone(),
        };
        Mix::named(weights).unwrap_or_else(|| settings.mix.clone())
    }
}

/// A design and its results so far.
pub(super) struct Cases {
    prepared: Prepared,
    runs: BTreeMap<Timed, Vec<Run>>,
    /// Cases that failed or had wrong answers.
    failures: Vec<String>,
    /// Number of pages that were correct after runs.
    pages_checked: usize,
    /// True if the server ended or did not answer. Waiting for it in every further case would take hours.
    is_given_up: bool,
}

/// The common parameters of all cases.
pub(super) struct Circumstances<'a> {
    pub(super) settings: &'a Settings,
    pub(super) load: &'a Load,
    /// The designs that are idle.
    pub(super) waiting: &'a [Arc<dyn Target>],
    pub(super) progress: &'a Progress,
}

impl Cases {
    pub(super) fn new(prepared: Prepared) -> Self {
        Self { prepared, runs: BTreeMap::new(), failures: Vec::new(), pages_checked: 0, is_given_up: false }
    }

    pub(super) fn target(&self) -> Arc<dyn Target> {
        Arc::clone(&self.prepared.target)
    }

    pub(super) fn name(&self) -> &'static str {
        self.prepared.kind.name()
    }

    /// Measures a case once. Returns the result as text, and the load of the machine; `None` if the design does not have this case, or it
    /// failed.
    pub(super) fn measure(
        &mut self,
        case: Timed,
        round: usize,
        Circumstances { settings, load, waiting, progress }: &Circumstances<'_>,
    ) -> Option<(String, Stretch)> {
        if self.is_given_up {
            return None;
        }
        let plan = plan(self.prepared.kind, case, round, settings, || self.publishes_max())?;
        let (mix, mint) = (case.mix(settings), Arc::clone(&load.mint));
        let workload = Workload::new(Arc::clone(&load.world), mix, settings.exponents, mint, settings.seed);
        let workload = workload.observed_by(self.prepared.verifier.clone());
        let what = format!("{} of {}", case.label(), self.name());
        let Turn { ran, died, stretch, .. } =
            turn::take(&self.prepared.target, waiting, &Arc::new(workload), &plan, (&what, progress));
        let failed = |cause: &str| format!("{}, round {}: {cause}", case.label(), round + 1);
        if died {
            self.is_given_up = true;
            let detail = ran.ok().and_then(|run| run.record.first_failure).map(|failure| format!(": {failure}"));
            let detail = detail.unwrap_or_default();
            self.failures.push(failed(&format!("the server ended, and nothing is measured from there on{detail}")));
            return None;
        }
        match ran.and_then(|run| Ok((self.prepared.check_after(&case.mix(settings), &run)?, run))) {
            Ok((checked, run)) => {
                self.pages_checked += checked;
                let reported = measure::case(std::slice::from_ref(&run), case.figure());
                self.runs.entry(case).or_default().push(run);
                Some((figure::median(&reported), stretch))
            }
            Err(cause) => {
                self.is_given_up = matches!(cause, Failure::Silent(_));
                self.failures.push(failed(&cause.to_string()));
                None
            }
        }
    }

    /// Returns the maximum rate of publishes in the rounds so far, per second.
    fn publishes_max(&self) -> Option<f64> {
        let runs = self.runs.get(&Timed::Deliveries)?;
        Some(measure::case(runs, Figure::Operations("publishes/s")).median).filter(|rate| *rate > 0.0)
    }

    /// Adds the results to the report.
    pub(super) fn add_to_report(self, report: &mut TargetReport, settings: &Settings) {
        for (case, runs) in &self.runs {
            report.cases.insert(case.name().to_owned(), measure::case(runs, case.figure()));
            if let Some(failure) = runs.iter().find_map(|run| run.record.first_failure.as_ref()) {
                report.failures.push(format!("{}: {failure}", case.label()));
            }
        }
        if let Some(burst) = report.cases.get("burst") {
            let case = recovery::case(&burst.over_time, settings.burst.1);
            report.cases.insert("burst_recovery".to_owned(), case);
        }
        report.pages_checked += self.pages_checked;
        if let Some(online) = self.prepared.online {
            online.end_into(report);
        }
        report.failures.extend(self.failures);
    }
}

/// Returns the plan of a case, or `None` if the design does not have it. `publishes_max` is the maximum rate per second so far.
fn plan(
    kind: Kind,
    case: Timed,
    round: usize,
    settings: &Settings,
    publishes_max: impl Fn() -> Option<f64>,
) -> Option<Plan> {
    let Settings { warm_up, lasts, .. } = *settings;
    let pace = match case {
        Timed::Deliveries | Timed::Visible if !kind.pushes() => return None,
        Timed::Deliveries | Timed::Page | Timed::Mix => Pace::Closed { warm_up, lasts },
        Timed::PagesTogether if !kind.reads_pages_together() => return None,
        Timed::PagePipelined if !kind.pipelines() => return None,
        Timed::PageAlone | Timed::PagesTogether | Timed::PagePipelined => {
            Pace::Closed { warm_up: warm_up / 2, lasts: lasts / 2 }
        }
        Timed::Visible => Pace::open(Pacer::steady(publishes_max()? / 2.0, lasts), warm_up),
        Timed::Recorded if round + 1 < settings.rounds => return None,
        Timed::Recorded => Pace::open(settings.recorded.clone()?, warm_up),
        // Only for Tidewire over HTTP, and only in the last round.
        Timed::Burst if kind != Kind::TidewireHttp || round + 1 < settings.rounds => return None,
        Timed::Burst => {
            let (times, [before, burst, after]) = settings.burst;
            // The peak of the burst is above the maximum rate.
            let average = publishes_max()? * BURST_SHARE / times;
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

/// The peak rate of the burst, as a share of the maximum rate.
const BURST_SHARE: f64 = 1.2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::kind::Settings as TargetSettings;
    use std::time::Duration;

    fn settings() -> Settings {
        let (some, second) = (|count| NonZeroUsize::new(count).unwrap(), Duration::from_secs(1));
        Settings {
            kinds: Vec::new(),
            target: TargetSettings::default(),
            rounds: 2,
            lasts: 4 * second,
            warm_up: second,
            clients: some(8),
            threads: some(2),
            mix: Mix::named("social").unwrap(),
            exponents: (0.0, 0.0),
            burst: (10.0, [second, second, second]),
            recorded: None,
            seed: 1,
        }
    }

    fn planned(kind: Kind, case: Timed, round: usize) -> Option<Plan> {
        plan(kind, case, round, &settings(), || Some(1_000.0))
    }

    #[test]
    fn each_design_is_measured_in_the_cases_that_it_has() {
        let cases_of = |kind, round| timed(&settings()).filter(|case| planned(kind, *case, round).is_some()).count();
        assert_eq!(cases_of(Kind::TidewireHttp, 0), 6);
        assert_eq!(cases_of(Kind::TidewireHttp, 1), 7);
        // A pipeline of pages in addition.
        assert_eq!(cases_of(Kind::RedisList, 1), 7);
        assert_eq!(cases_of(Kind::TidewireResp, 1), 7);
        // The engine runs in the client's process: the case of many pages in one request does not apply.
        assert_eq!(cases_of(Kind::TidewireInProcess, 1), 5);
        // This design delivers nothing when a post is published.
        assert_eq!(cases_of(Kind::MariadbPull, 1), 3);
    }

    #[test]
    fn open_loops_derive_their_rate_from_the_maximum_rate() {
        let visible = planned(Kind::RedisZset, Timed::Visible, 0).unwrap();
        let Pace::Open { pacer, .. } = &visible.pace else { unreachable!() };
        // Half of the maximum rate, for four seconds after one second of warm-up.
        assert!(pacer.due(2_499).is_some() && pacer.due(2_500).is_none());
        assert_eq!((visible.clients.get(), visible.retry_refused), (64, false));
        let burst = planned(Kind::TidewireHttp, Timed::Burst, 1).unwrap();
        let Pace::Open { pacer, .. } = &burst.pace else { unreachable!() };
        // 120 per second for two seconds, then 1,200, then 120.
        assert!(pacer.due(1_559).is_some() && pacer.due(1_560).is_none());
        assert!(burst.retry_refused);
        let unknown = || None;
        assert!(plan(Kind::RedisZset, Timed::Visible, 0, &settings(), unknown).is_none());
    }

    #[test]
    fn no_two_runs_have_the_same_clients() {
        let of = |case: Timed, round| planned(Kind::TidewireHttp, case, round).map(|plan| plan.first_client);
        let firsts: Vec<u64> = timed(&settings()).flat_map(|case| [of(case, 0), of(case, 1)]).flatten().collect();
        let mut sorted = firsts.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 1 << 16), "{firsts:?}");
        let alone = planned(Kind::TidewireHttp, Timed::PageAlone, 0).unwrap();
        assert_eq!(alone.clients, NonZeroUsize::MIN);
    }
}

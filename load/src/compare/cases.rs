//! What is measured of each design.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::compare::Settings;
use crate::drive::pacer::Pacer;
use crate::drive::{OPEN_CLIENTS, Pace, Plan, Run};
use crate::environment::Stretch;
use crate::measure::{self, Figure};
use crate::prepare::{Load, Prepared};
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
    /// What could not be measured, or was answered wrong.
    failures: Vec<String>,
    /// Pages that were right after runs.
    pages_checked: usize,
    /// Its server ended, or did not answer. To wait for it in every case would take hours.
    is_given_up: bool,
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
        Self { prepared, runs: BTreeMap::new(), failures: Vec::new(), pages_checked: 0, is_given_up: false }
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
        if self.is_given_up {
            return None;
        }
        let plan = plan(self.prepared.kind, case, round, settings, || self.publishes_max())?;
        let (mix, mint) = (case.mix(settings), Arc::clone(&load.mint));
        let workload = Workload::new(Arc::clone(&load.world), mix, settings.exponents, mint, settings.seed);
        let workload = workload.seen_by(self.prepared.verifier.clone());
        let what = format!("{} of {}", case.label(), self.name());
        let Turn { ran, died, stretch, .. } =
            turn::take(&self.prepared.target, waiting, &Arc::new(workload), &plan, (&what, progress));
        let failed = |cause: &str| format!("{}, round {}: {cause}", case.label(), round + 1);
        if died {
            self.is_given_up = true;
            let said = ran.ok().and_then(|run| run.record.first_failure).map(|said| format!(": {said}"));
            let said = said.unwrap_or_default();
            self.failures.push(failed(&format!("the server ended, and nothing is measured from there on{said}")));
            return None;
        }
        match ran.and_then(|run| Ok((self.prepared.check_after(&case.mix(settings), &run)?, run))) {
            Ok((checked, run)) => {
                self.pages_checked += checked;
                let told = measure::case(std::slice::from_ref(&run), case.figure());
                self.runs.entry(case).or_default().push(run);
                Some((figure::median(&told), stretch))
            }
            Err(cause) => {
                self.is_given_up = matches!(cause, Failure::Silent(_));
                self.failures.push(failed(&cause.to_string()));
                None
            }
        }
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
        report.pages_checked += self.pages_checked;
        report.add_online(self.prepared.online);
        report.failures.extend(self.failures);
    }
}

/// How a case is measured; none if this design has no such case. `publishes_max` is what was possible in a second so far.
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
        Timed::PageAlone => Pace::Closed { warm_up: warm_up / 2, lasts: lasts / 2 },
        Timed::Visible => Pace::open(Pacer::steady(publishes_max()? / 2.0, lasts), warm_up),
        Timed::Recorded if round + 1 < settings.rounds => return None,
        Timed::Recorded => Pace::open(settings.recorded.clone()?, warm_up),
        // Once, in the last round, of Tidewire.
        Timed::Burst if kind != Kind::TidewireHttp || round + 1 < settings.rounds => return None,
        Timed::Burst => {
            let (times, [before, burst, after]) = settings.burst;
            // At its height it is what was possible at most, and more.
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

/// The height of the burst, as a share of what was possible at most.
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
        assert_eq!(cases_of(Kind::TidewireHttp, 0), 5);
        assert_eq!(cases_of(Kind::TidewireHttp, 1), 6);
        assert_eq!(cases_of(Kind::RedisList, 1), 5);
        // Nothing is delivered when it publishes.
        assert_eq!(cases_of(Kind::MariadbPull, 1), 3);
    }

    #[test]
    fn open_loops_go_by_what_was_possible() {
        let visible = planned(Kind::RedisZset, Timed::Visible, 0).unwrap();
        let Pace::Open { pacer, .. } = &visible.pace else { unreachable!() };
        // Half of it, for four seconds after one to warm up.
        assert!(pacer.due(2_499).is_some() && pacer.due(2_500).is_none());
        assert_eq!((visible.clients.get(), visible.retry_refused), (64, false));
        let burst = planned(Kind::TidewireHttp, Timed::Burst, 1).unwrap();
        let Pace::Open { pacer, .. } = &burst.pace else { unreachable!() };
        // 120 a second for two, then 1,200, then 120.
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

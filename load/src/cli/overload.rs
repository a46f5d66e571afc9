//! `tidewire-load overload`: runs a design above its maximum rate.

use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::cli::options::{ReportOptions, duration, judge, positive};
use crate::cli::run::{Loaded, OnOptions, Outcome, ended, rate};
use crate::drive::Plan;
use crate::drive::pacer::Pacer;
use crate::operation::Kind;
use crate::overload;
use crate::report::figure;
use crate::report::progress::Progress;

/// Arguments of `tidewire-load overload`.
#[derive(Debug, clap::Args)]
pub(super) struct Overload {
    #[command(flatten)]
    on: OnOptions,

    /// Overload rates as multiples of the maximum rate, one after the other
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "2,5,10", value_parser = positive)]
    times: Vec<f64>,

    /// Duration of each overload, and of the normal load before and after it
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    lasts: Duration,

    #[command(flatten)]
    report: ReportOptions,
}

/// Number of clients in an overload for each client of the measurement of the maximum rate.
const CLIENTS_EACH: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// Rate of the normal load as a share of the maximum rate.
const CALM_SHARE: f64 = 0.5;

impl Overload {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.report.check()?;
        let progress = Progress::new();
        let mut loaded = self.on.prepare(None, &progress)?;
        let name = loaded.prepared.target.name();
        let (ran, mut wrong) = loaded.most(&self.on.closed(self.on.work.clients, self.lasts), &progress)?;
        let (peak, seconds) = (rate(&ran), ran.lasted.as_secs_f64());
        let most = ran.record.done.iter().map(|(kind, done)| (*kind, *done as f64 / seconds)).collect();
        // The maximum rate counts posts that are in all feeds. In the overload, publishes do not wait for that.
        loaded.prepared.target.wait_for_delivery(false);
        let mut cases = Vec::new();
        for times in &self.times {
            progress.step(name, &format!("{times} times as much"));
            let (overload, went_wrong) = self.overload(*times, (peak, &most), &mut loaded, &progress);
            wrong = wrong.or(went_wrong);
            let Some(overload) = overload else {
                progress.done("not measured");
                break;
            };
            progress.done(&overload.summary());
            cases.extend(overload.cases());
        }
        drop(progress);
        let mut report = loaded.report("Overload", &self.on);
        report.settings.insert("the most".to_owned(), figure::rate(peak));
        let calm = format!("{CALM_SHARE} of the maximum rate, before and after each overload");
        report.settings.insert("calm".to_owned(), calm);
        if let Some(target) = report.targets.first_mut() {
            target.failures.extend(wrong.clone());
            loaded.end(target);
            target.cases.extend(cases);
        }
        judge(&mut report, &loaded.environment);
        self.report.write(&report)?;
        ended(name, wrong)
    }

    /// Runs one overload. Returns its results, if any, and the problem, if any.
    fn overload(
        &self,
        times: f64,
        (peak, most): (f64, &BTreeMap<Kind, f64>),
        loaded: &mut Loaded,
        progress: &Progress,
    ) -> (Option<overload::Overload>, Option<String>) {
        let lasts = [self.lasts; 3];
        let pacer = Pacer::burst(peak * CALM_SHARE, times / CALM_SHARE, lasts.into());
        // More clients than the server admits at once, so that the server queues or refuses their requests.
        let clients = self.on.work.clients.saturating_mul(CLIENTS_EACH);
        let plan = Plan { clients, ..self.on.open(pacer) };
        let Outcome { ran, wrong, over, resident_most } = loaded.run(&plan, progress);
        let ran = ran.filter(|_| !over);
        (ran.map(|run| overload::Overload { times, most: most.clone(), lasts, run, resident_most }), wrong)
    }
}

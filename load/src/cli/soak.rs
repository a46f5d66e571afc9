//! `tidewire-load soak`: runs at a part of the maximum rate for hours and reports the drift.

use std::error::Error;
use std::time::Duration;

use crate::cli::options::{ReportOptions, duration, judge, positive};
use crate::cli::run::{Loaded, OnOptions, ended, rate};
use crate::drive::Run as Ran;
use crate::drive::pacer::Pacer;
use crate::measure::{self, Figure};
use crate::report::figure;
use crate::report::progress::Progress;
use crate::soak::{self, Window};
use crate::target::process::{descriptors, resident_bytes};

/// Arguments of `tidewire-load soak`.
#[derive(Debug, clap::Args)]
pub(super) struct Soak {
    #[command(flatten)]
    on: OnOptions,

    /// Duration of the run
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = duration)]
    lasts: Duration,

    /// Rate as a share of the maximum rate
    #[arg(long, value_name = "SHARE", default_value_t = 0.7, value_parser = crate::cli::options::some_share)]
    share: f64,

    /// Operations per second, instead of a share of the initial maximum rate: with more data a server may be slower later
    #[arg(long, value_name = "OPERATIONS", value_parser = positive, conflicts_with = "share")]
    rate: Option<f64>,

    /// Number of windows that the run is split into
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    windows: u32,

    #[command(flatten)]
    report: ReportOptions,
}

/// Maximum duration of the measurement of the maximum rate.
const MOST_LASTS_MAX: Duration = Duration::from_secs(20);

impl Soak {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.report.check()?;
        let progress = Progress::new();
        let mut loaded = self.on.prepare(None, &progress)?;
        let name = loaded.prepared.target.name();
        let (asked, reported, mut wrong) = self.rate(&mut loaded, &progress)?;
        let pacer = Pacer::steady(asked, self.lasts / self.windows);
        let (mut windows, mut last) = (Vec::new(), None);
        for nth in 0..self.windows {
            progress.step(name, &format!("stretch {} of {}", nth + 1, self.windows));
            let outcome = loaded.run(&self.on.open(pacer.clone()), &progress);
            wrong = wrong.or(outcome.wrong);
            let Some(ran) = outcome.ran.filter(|_| !outcome.over) else {
                progress.done("not measured");
                break;
            };
            let window = window(&ran, &loaded);
            progress.done(&of_window(&window));
            windows.push(window);
            last = Some(ran);
        }
        drop(progress);
        let mut report = loaded.report("Hours under load", &self.on);
        report.settings.insert("rate".to_owned(), reported);
        report.settings.insert("stretches".to_owned(), format!("{} of {}", windows.len(), self.windows));
        if let Some(target) = report.targets.first_mut() {
            target.failures.extend(wrong.clone());
            loaded.end(target);
            let last = last.map(|ran| measure::case(&[ran], Figure::Operations("operations/s"))).unwrap_or_default();
            target.cases.extend(soak::cases(&windows, self.lasts / self.windows, &last));
        }
        judge(&mut report, &loaded.environment);
        self.report.write(&report)?;
        ended(name, wrong)
    }

    /// Returns the operations per second, their description, and the problem of the measurement of the maximum rate, if any.
    fn rate(&self, loaded: &mut Loaded, progress: &Progress) -> Result<(f64, String, Option<String>), String> {
        if let Some(asked) = self.rate {
            return Ok((asked, figure::rate(asked), None));
        }
        let closed = self.on.closed(self.on.work.clients, (self.lasts / 10).min(MOST_LASTS_MAX));
        let (ran, wrong) = loaded.most(&closed, progress)?;
        let asked = rate(&ran) * self.share;
        Ok((asked, format!("{}, {} of the maximum rate", figure::rate(asked), self.share), wrong))
    }
}

fn window(ran: &Ran, loaded: &Loaded) -> Window {
    let process = loaded.prepared.target.process().unwrap_or_else(std::process::id);
    Window {
        per_second: rate(ran),
        p99_us: measure::p99_us(&ran.record),
        resident_bytes: resident_bytes(process),
        descriptors: descriptors(process),
        failed: ran.record.failed,
    }
}

fn of_window(window: &Window) -> String {
    let (rate, p99) = (figure::rate(window.per_second), figure::time_us(window.p99_us));
    format!("{rate}, p99 {p99}, {}, {} failed", figure::bytes(window.resident_bytes as f64), window.failed)
}

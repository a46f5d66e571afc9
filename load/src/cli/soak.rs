//! `tidewire-load soak`: hours at a part of what is possible, and what drifts meanwhile.

use std::error::Error;
use std::time::Duration;

use crate::cli::options::{ReportOptions, duration, judge};
use crate::cli::run::{Loaded, OnOptions};
use crate::drive::Run as Ran;
use crate::drive::pacer::Pacer;
use crate::measure::{self, Figure};
use crate::report::progress::Progress;
use crate::report::{Case, Interval, Latency, Report, figure};
use crate::soak::{Drift, Window};
use crate::target::process::{descriptors, resident_bytes};

/// What `tidewire-load soak` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Soak {
    #[command(flatten)]
    on: OnOptions,

    /// How long
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = duration)]
    lasts: Duration,

    /// Share of what is possible at most
    #[arg(long, value_name = "SHARE", default_value_t = 0.7, value_parser = crate::cli::options::some_share)]
    share: f64,

    /// What is compared: so many stretches of the whole
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    windows: u32,

    #[command(flatten)]
    report: ReportOptions,
}

/// How long it is measured what is possible, at most.
const MOST_LASTS_MAX: Duration = Duration::from_secs(20);

impl Soak {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.report.check()?;
        let progress = Progress::new();
        let mut loaded = self.on.prepare(None, &progress)?;
        let name = loaded.prepared.target.name();
        progress.step(name, "what is possible");
        let most = loaded.run(&self.on.closed(self.on.work.clients, (self.lasts / 10).min(MOST_LASTS_MAX)))?;
        let most = most.record.operations() as f64 / most.lasted.as_secs_f64();
        progress.done(&figure::rate(most));
        let plan = self.on.open(Pacer::steady(most * self.share, self.lasts / self.windows));
        let (mut windows, mut last) = (Vec::new(), None);
        for nth in 0..self.windows {
            progress.step(name, &format!("stretch {} of {}", nth + 1, self.windows));
            let ran = loaded.run(&plan)?;
            let window = window(&ran, &loaded);
            progress.done(&told(&window));
            windows.push(window);
            last = Some(ran);
        }
        drop(progress);
        let mut report = loaded.report("Hours under load", &self.on);
        let rate = format!("{}, {} of the most", figure::rate(most * self.share), self.share);
        report.settings.insert("rate".to_owned(), rate);
        self.add_cases(&mut report, &windows, last);
        judge(&mut report, &loaded.surroundings);
        self.report.tell(&report)
    }

    fn add_cases(&self, report: &mut Report, windows: &[Window], last: Option<Ran>) {
        let Some(target) = report.targets.first_mut() else { return };
        let last = last.map(|ran| measure::case(&[ran], Figure::Operations("operations/s"))).unwrap_or_default();
        let length_s = self.lasts.as_secs_f64() / f64::from(self.windows);
        let over_time = |figure: fn(&Window) -> f64| {
            let interval = |(nth, window): (usize, &Window)| Interval {
                at_s: (nth + 1) as f64 * length_s,
                per_second: figure(window),
                p99_us: window.p99_us,
            };
            windows.iter().enumerate().map(interval).collect::<Vec<_>>()
        };
        let rounds = windows.iter().map(|window| window.per_second).collect();
        let failed = windows.iter().map(|window| window.failed).sum();
        let soak = Case { over_time: over_time(|window| window.per_second), rounds, failed, ..last };
        let resident: Vec<f64> = windows.iter().map(|window| window.resident_bytes as f64).collect();
        let resident = Case {
            unit: "bytes".to_owned(),
            median: resident.last().copied().unwrap_or(0.0),
            over_time: over_time(|window| window.resident_bytes as f64),
            rounds: resident,
            ..Case::default()
        };
        target.cases.extend([("soak".to_owned(), soak), ("resident".to_owned(), resident)]);
        target.cases.extend(Drift::over(windows).into_iter().flat_map(Drift::cases));
    }
}

fn window(ran: &Ran, loaded: &Loaded) -> Window {
    let process = loaded.prepared.target.process().unwrap_or_else(std::process::id);
    let p99_us = ran.record.latencies.values().map(|latencies| Latency::of(latencies).p99_us).fold(0.0, f64::max);
    Window {
        per_second: ran.record.operations() as f64 / ran.lasted.as_secs_f64(),
        p99_us,
        resident_bytes: resident_bytes(process),
        descriptors: descriptors(process),
        failed: ran.record.failed,
    }
}

fn told(window: &Window) -> String {
    let (rate, p99) = (figure::rate(window.per_second), figure::time_us(window.p99_us));
    format!("{rate}, p99 {p99}, {}, {} failed", figure::bytes(window.resident_bytes as f64), window.failed)
}

//! Runs the same work on several designs in turns.
//!
//! Responsible for:
//! - starting each design, loading the same world and posts, and checking its answers before the measurement;
//! - rounds in which each case is measured on all designs one after the other, so that other load on the machine affects them equally.

mod cases;
mod tests;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::compare::cases::{Cases, Circumstances};
use crate::drive::pacer::Pacer;
use crate::environment::Environment;
use crate::initial_load::Load;
use crate::prepare::Prepared;
use crate::report::TargetReport;
use crate::report::progress::Progress;
use crate::target::kind::{Kind, Settings as TargetSettings};
use crate::target::{Failure, Target};
use crate::workload::Mix;

/// The parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The designs in order.
    pub kinds: Vec<Kind>,
    /// The settings of the designs.
    pub target: TargetSettings,
    /// Number of rounds of each case.
    pub rounds: usize,
    /// Duration of a case on a design in one round, without the warm-up.
    pub lasts: Duration,
    /// Duration of the warm-up.
    pub warm_up: Duration,
    /// Number of concurrent clients.
    pub clients: NonZeroUsize,
    /// Number of threads that clients are spread over.
    pub threads: NonZeroUsize,
    /// The mix of the mixed case.
    pub mix: Mix,
    /// Exponents of Zipf's law for the authors and the readers.
    pub exponents: (f64, f64),
    /// The burst: the peak as a multiple of the average, and the durations before, during and after it.
    pub burst: (f64, [Duration; 3]),
    /// A recorded activity, which is replayed once on each design, if given.
    pub recorded: Option<Pacer>,
    /// The seed of everything random.
    pub seed: u64,
}

/// Runs the comparison. Returns the results of each design and the load of the machine.
///
/// # Errors
/// Only if no design can take part. The report lists designs that cannot take part, with the reason.
pub fn compare(
    settings: &Settings,
    load: &Load,
    progress: &Progress,
) -> Result<(Vec<TargetReport>, Environment), Failure> {
    let mut reports = Vec::new();
    let mut ready = prepare(settings, load, progress, &mut reports)?;
    let environment = measure(&mut ready, settings, load, progress);
    for (nth, cases) in ready {
        cases.add_to_report(&mut reports[nth], settings);
    }
    Ok((reports, environment))
}

/// Starts all designs and adds a report for each. Returns those that are ready, with the indexes of their reports.
fn prepare(
    settings: &Settings,
    load: &Load,
    progress: &Progress,
    reports: &mut Vec<TargetReport>,
) -> Result<Vec<(usize, Cases)>, Failure> {
    let mut ready = Vec::new();
    for kind in &settings.kinds {
        let report = TargetReport { name: kind.name().to_owned(), ..TargetReport::default() };
        match Prepared::start(*kind, &settings.target, load, settings.seed, progress) {
            Ok(prepared) => {
                let case = prepared.memory.map(|memory| ("memory".to_owned(), memory.case()));
                reports.push(TargetReport {
                    settings: prepared.target.settings(),
                    pages_checked: prepared.pages_checked,
                    cases: case.into_iter().collect(),
                    ..report
                });
                ready.push((reports.len() - 1, Cases::new(prepared)));
            }
            Err(cause) => reports.push(TargetReport { left_out: Some(cause.to_string()), ..report }),
        }
    }
    if ready.is_empty() {
        let reasons = reports.iter().filter_map(|report| report.left_out.as_deref()).collect::<Vec<_>>();
        return Err(Failure::Failed(format!("no design can take part: {}", reasons.join("; "))));
    }
    Ok(ready)
}

/// Measures each case on each design, round by round.
fn measure(ready: &mut [(usize, Cases)], settings: &Settings, load: &Load, progress: &Progress) -> Environment {
    let mut environment = Environment::new(load.client_cores(settings.threads));
    let targets: Vec<Arc<dyn Target>> = ready.iter().map(|(_, cases)| cases.target()).collect();
    for round in 0..settings.rounds {
        for (at, case) in cases::timed(settings).enumerate() {
            for nth in turns(ready.len(), settings.seed, round * CASES_MAX + at) {
                let cases = &mut ready[nth].1;
                let what = format!("{}, round {} of {}", case.label(), round + 1, settings.rounds);
                progress.step(cases.name(), &what);
                let mut waiting = targets.clone();
                waiting.remove(nth);
                let circumstances = Circumstances { settings, load, waiting: &waiting, progress };
                match cases.measure(case, round, &circumstances) {
                    Some((figure, stretch)) => {
                        progress.done(&figure);
                        environment.stretches.push(stretch);
                    }
                    None => progress.done("not measured"),
                }
            }
        }
    }
    environment
}

/// Returns the order of the designs. It differs each time, because the design before another one may affect it, for example by background
/// writes.
pub(crate) fn turns(designs: usize, seed: u64, time: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..designs).collect();
    fastrand::Rng::with_seed(seed ^ (time as u64).wrapping_mul(TURN_STEP)).shuffle(&mut order);
    order
}

/// An upper bound of the cases in a round.
const CASES_MAX: usize = 16;

/// Spreads the seeds of successive calls: the golden ratio, as in SplitMix64.
const TURN_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

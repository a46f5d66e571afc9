//! What was measured, as it is told: on the terminal, as JSON, as a page.
//!
//! Responsible for:
//! - the shape of a report, which is also its JSON;
//! - telling it.
//!
//! Not responsible for:
//! - measuring (`measure`), or judging figures (`warning`).

pub mod compare;
pub mod figure;
pub mod file;
mod headline;
pub mod html;
pub mod json;
pub mod machine;
pub mod markdown;
pub mod plot;
pub mod progress;
pub(crate) mod sample;
pub mod terminal;

use serde::Serialize;
use std::collections::BTreeMap;

use crate::live::online::{Heard, Online};
use crate::operation::Kind;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the run compares, in a line.
    pub title: String,
    /// When it began, RFC 3339.
    pub when: String,
    /// The command that makes it again.
    pub command: String,
    /// What it ran on.
    pub machine: Machine,
    /// Name and value of everything that was set: seed, world, mix, durations.
    pub settings: BTreeMap<String, String>,
    /// A design each, Tidewire first.
    pub targets: Vec<TargetReport>,
    /// Tidewire's figure over the rival's: what is compared -> rival -> ratio. What is compared is a case; `page_p99` and the
    /// like are its p99, `page_in_process` and the like Tidewire embedded. Of rates, more than 1 speaks for Tidewire; of times
    /// and sizes, less.
    pub ratios: BTreeMap<String, BTreeMap<String, f64>>,
    /// Why figures may be wrong. Empty if nothing speaks against them.
    pub warnings: Vec<String>,
}

/// What a run ran on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model of its processor.
    pub processor: String,
    /// Cores.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel and its version.
    pub system: String,
}

/// What was measured of one design.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TargetReport {
    /// As in [`crate::target::Target::name`].
    pub name: String,
    /// Server version and settings, one in each line.
    pub settings: Vec<String>,
    /// Why it could not take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Answers that were checked against the naive model before anything was timed; all were right, or there is `left_out`.
    pub pages_checked: usize,
    /// What went wrong while it was measured: the first of each case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// What was measured, by name: `deliveries`, `page`, `memory`, …
    pub cases: BTreeMap<String, Case>,
}

impl TargetReport {
    /// Adds what readers who were online heard, if there were such, and ends their connections.
    pub fn add_online(&mut self, online: Option<Online>) {
        match online.map(Online::end) {
            None => {}
            Some(Ok(heard)) => {
                self.failures.extend(heard.wrong());
                self.cases.insert(Heard::CASE.to_owned(), heard.case());
            }
            Some(Err(cause)) => self.failures.push(cause.to_string()),
        }
    }
}

/// One thing that was measured of one design.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Case {
    /// What the figure counts: `deliveries/s`, `pages/s`, `bytes/inbox`, `us`.
    pub unit: String,
    /// The median of the rounds.
    pub median: f64,
    /// A figure for each round.
    pub rounds: Vec<f64>,
    /// Latencies of all rounds together, by kind of operation.
    pub latencies: BTreeMap<Kind, Latency>,
    /// How it went over time, in the last round.
    pub over_time: Vec<Interval>,
    /// Where each round's figure is a p99: the fewest samples that one of them rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_samples_min: Option<u64>,
    /// What is told in place of the figure, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Operations that failed, or were refused and not tried again, over all rounds.
    pub failed: u64,
    /// Of a core each, in the middle round: the server, and this program, which is the client.
    pub server_cores: f64,
    /// See `server_cores`.
    pub client_cores: f64,
    /// In an open loop: 99 in 100 operations were begun at most this late, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_p99_us: Option<f64>,
}

/// Latencies of one kind of operation, in microseconds, from when it was to be done until it was.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The median.
    pub p50_us: f64,
    /// 90 in 100 took at most this.
    pub p90_us: f64,
    /// 99 in 100 took at most this.
    pub p99_us: f64,
    /// 999 in 1,000 took at most this.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Share (0 to 1) and microseconds, for plots: dense towards 1.
    pub curve: Vec<(f64, f64)>,
}

/// A short stretch of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Interval {
    /// Seconds from when measuring began to its end.
    pub at_s: f64,
    /// In the unit of the case: what was done, a second, the p99 of what ended in it, or how large something was at its end.
    pub value: f64,
    /// 99 in 100 operations that ended in it took at most this.
    pub p99_us: f64,
}

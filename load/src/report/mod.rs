//! The report of a run: on the terminal, as JSON, as a page.
//!
//! Responsible for:
//! - the structure of a report, which is also its JSON;
//! - writing it in each format.

pub mod compare;
mod escape;
pub mod figure;
pub mod file;
pub mod headline;
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

use crate::operation::Kind;

/// The report of a whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The title, which names the comparison.
    pub title: String,
    /// Start of the run, RFC 3339.
    pub when: String,
    /// The command that repeats the run.
    pub command: String,
    /// The machine of the run.
    pub machine: Machine,
    /// Name and value of all settings: seed, world, mix, durations.
    pub settings: BTreeMap<String, String>,
    /// One report for each design, Tidewire first.
    pub targets: Vec<TargetReport>,
    /// Tidewire's result divided by that of the other design: name -> other design -> ratio. A name is a case, a case with the suffix
    /// `_p99` for its p99, one with `_in_process` for embedded Tidewire, or one with `_resp` for Tidewire over the Redis protocol. For
    /// rates, a ratio over 1 is better for Tidewire; for times and sizes, one under 1.
    pub ratios: BTreeMap<String, BTreeMap<String, f64>>,
    /// Reasons why results may be wrong. Empty if there are no problems.
    pub warnings: Vec<String>,
}

/// The machine of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The model of its processor.
    pub processor: String,
    /// Number of logical processors.
    pub cores: usize,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// The kernel and its version.
    pub system: String,
}

/// The results of one design.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TargetReport {
    /// The name, as in [`crate::target::Target::name`].
    pub name: String,
    /// Version and settings of the server, one per line.
    pub settings: Vec<String>,
    /// The reason why it could not take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Number of pages that were compared with the naive model and were correct. If one was wrong, `left_out` is set.
    pub pages_checked: usize,
    /// Failures during the measurement: the first one of each case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// The results by name: `deliveries`, `page`, `memory`, …
    pub cases: BTreeMap<String, Case>,
}

/// One measured case of one design.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Case {
    /// The unit of the result: `deliveries/s`, `pages/s`, `bytes/inbox`, `us`.
    pub unit: String,
    /// The median of the rounds.
    pub median: f64,
    /// The result of each round.
    pub rounds: Vec<f64>,
    /// Latencies of all rounds together, by kind of operation.
    pub latencies: BTreeMap<Kind, Latency>,
    /// The course over time, in the last round.
    pub over_time: Vec<Interval>,
    /// If the result of a round is a p99: the smallest number of samples of a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_samples_min: Option<u64>,
    /// The text that replaces a missing result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Number of operations that failed, or were refused and not retried, over all rounds.
    pub failed: u64,
    /// Average number of cores used in the median round by the server.
    pub server_cores: f64,
    /// Average number of cores used in the median round by this program, which is the client.
    pub client_cores: f64,
    /// In an open loop: the p99 of the delay with which operations started, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_p99_us: Option<f64>,
}

/// Latencies of one kind of operation in microseconds, measured from the intended time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// Number of operations.
    pub count: u64,
    /// The median latency.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The maximum latency.
    pub max_us: f64,
    /// Points of share (0 to 1) and microseconds, for plots. They are dense towards 1.
    pub curve: Vec<(f64, f64)>,
}

/// A short interval of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Interval {
    /// End of the interval in seconds since the start of the measurement.
    pub at_s: f64,
    /// The value in the unit of the case: a rate, a p99, or a size at the end of the interval.
    pub value: f64,
    /// The p99 latency of operations that ended in the interval.
    pub p99_us: f64,
}

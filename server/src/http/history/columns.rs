//! Encodes samples column by column, in the format of plotting libraries.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::http::history::sample::{CLASSES, CODES_MAX, Quantiles, Sample};
use crate::http::history::{Names, SAMPLES_MAX, Since};

/// The name of the column of all refusals whose codes have no column.
const OTHER: &str = "other";

/// The samples for a client.
pub(in crate::http) struct Columns {
    pub(super) period: Duration,
    pub(super) next: Since,
    /// True if the client has to discard its earlier samples.
    pub(super) reset: bool,
    pub(super) samples: Vec<Sample>,
    pub(super) names: Names,
}

/// The columns, and the node that they describe.
pub(in crate::http) struct OfNode<'a>(pub(in crate::http) Option<&'a str>, pub(in crate::http) &'a Columns);

/// A function that returns a value of a sample.
type Of<T> = fn(&Sample) -> T;

/// Returns one value of each sample.
fn column<T, F: Fn(&Sample) -> T>(samples: &[Sample], of: F) -> Column<'_, F> {
    Column(samples, of)
}

/// One value of each sample.
struct Column<'a, F>(&'a [Sample], F);

impl<T: Serialize, F: Fn(&Sample) -> T> Serialize for Column<'_, F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(&self.1))
    }
}

impl Serialize for OfNode<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(node, Columns { period, next, reset, samples, names }) = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("node", node)?;
        map.serialize_entry("interval_seconds", &period.as_secs_f64())?;
        map.serialize_entry("samples_max", &SAMPLES_MAX)?;
        map.serialize_entry("next", &next.to_string())?;
        map.serialize_entry("reset", reset)?;
        let seconds_to_the_millisecond = |sample: &Sample| (sample.at.0 / 1_000) as f64 / 1e3;
        map.serialize_entry("at_seconds", &column(samples, seconds_to_the_millisecond))?;
        let quantiles: [(&str, &str, Of<Quantiles>); 3] = [
            ("page_p50_us", "page_p99_us", |sample| sample.pages),
            ("publish_p50_us", "publish_p99_us", |sample| sample.publishes),
            ("fanout_p50_us", "fanout_p99_us", |sample| sample.fanouts),
        ];
        for (p50, p99, of) in quantiles {
            map.serialize_entry(p50, &column(samples, |sample| of(sample).p50_us.map(rounded)))?;
            map.serialize_entry(p99, &column(samples, |sample| of(sample).p99_us.map(rounded)))?;
        }
        let rates = [
            "pages_per_second",
            "posts_per_second",
            "deliveries_per_second",
            "wakes_per_second",
            "live_messages_per_second",
        ];
        for (nth, name) in rates.into_iter().enumerate() {
            map.serialize_entry(name, &column(samples, |sample| rounded(sample.rates[nth])))?;
        }
        map.serialize_entry("active", &column(samples, |sample| sample.levels.active))?;
        map.serialize_entry("live_connections", &column(samples, |sample| sample.levels.live_connections))?;
        map.serialize_entry("connections", &column(samples, |sample| sample.levels.connections))?;
        map.serialize_entry("requests_per_second", &Requests(samples))?;
        map.serialize_entry("refusals_per_second", &Refusals(samples, names))?;
        map.serialize_entry("memory_bytes", &Memory(samples))?;
        map.serialize_entry("queues", &Queues(samples, names))?;
        map.end()
    }
}

/// The requests by class.
struct Requests<'a>(&'a [Sample]);

impl Serialize for Requests<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(
            CLASSES
                .into_iter()
                .enumerate()
                .map(|(nth, class)| (class, column(self.0, move |sample: &Sample| rounded(sample.requests[nth])))),
        )
    }
}

/// The refusals by code, without codes that have no refusals.
struct Refusals<'a>(&'a [Sample], &'a Names);

impl Serialize for Refusals<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(samples, Names { codes, .. }) = self;
        let mut map = to.serialize_map(None)?;
        let others = std::iter::once((CODES_MAX - 1, OTHER));
        for (place, code) in codes.iter().copied().enumerate().chain(others) {
            if samples.iter().any(|sample| sample.refusals[place] > 0.0) {
                map.serialize_entry(code, &column(samples, |sample| rounded(sample.refusals[place])))?;
            }
        }
        map.end()
    }
}

struct Memory<'a>(&'a [Sample]);

impl Serialize for Memory<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let parts: [(&str, Of<Option<u64>>); 5] = [
            ("resident", |sample| sample.levels.resident_bytes),
            ("posts", |sample| Some(sample.levels.posts_bytes)),
            ("sources", |sample| Some(sample.levels.sources_bytes)),
            ("inboxes", |sample| Some(sample.levels.inboxes_bytes)),
            ("reposts", |sample| Some(sample.levels.reposts_bytes)),
        ];
        to.collect_map(parts.map(|(name, of)| (name, column(self.0, of))))
    }
}

struct Queues<'a>(&'a [Sample], &'a Names);

impl Serialize for Queues<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(samples, Names { queues, .. }) = self;
        to.collect_map(
            queues.iter().enumerate().map(|(nth, (name, limit))| (name, Queue { samples, nth, limit: *limit })),
        )
    }
}

struct Queue<'a> {
    samples: &'a [Sample],
    nth: usize,
    limit: usize,
}

impl Serialize for Queue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("limit", &self.limit)?;
        map.serialize_entry("depth", &column(self.samples, |sample| sample.levels.queues[self.nth]))?;
        map.end()
    }
}

/// Returns a value with one decimal place.
fn rounded(value: f32) -> f64 {
    (f64::from(value) * 10.0).round() / 10.0
}

//! One sample of the history: the changes between two readings of the server's counters, and the levels at the second one.

use std::time::{Duration, Instant};

use crate::http::history::Names;
use crate::http::operation::WorkKind;
use crate::http::process::resident_bytes;
use crate::http::request_metrics::RequestMetrics;
use tidewire::clock::UnixMicros;
use tidewire::engine::{Engine, QueueDepth};
use tidewire::latency::{BOUNDS_US, Latency, quantile_us};

/// Maximum number of codes whose refusals are counted separately. The last element counts all others.
pub(super) const CODES_MAX: usize = 32;

/// Maximum number of queues, as many as the engine has.
pub(super) const QUEUES_MAX: usize = 8;

/// The number of rates other than those of requests: pages, posts, deliveries, wakes, live messages.
const RATES: usize = 5;

/// The classes of requests, as columns name them: reads of users' data, changes of it, connections for live messages and changes, and all
/// others (requests of operators and for metrics).
pub(super) const CLASSES: [&str; 4] = ["reads", "writes", "live", "other"];

/// The operation whose latency the history contains.
const PUBLISH: &str = "publish";

type Buckets = [u64; BOUNDS_US.len() + 1];

/// Estimates in microseconds. Missing if there were no values.
#[derive(Clone, Copy, Default)]
pub(super) struct Quantiles {
    pub(super) p50_us: Option<f32>,
    pub(super) p99_us: Option<f32>,
}

/// The levels at one instant, in bytes or counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Levels {
    pub(super) active: u32,
    pub(super) live_connections: u32,
    pub(super) connections: u32,
    pub(super) resident_bytes: Option<u64>,
    pub(super) posts_bytes: u64,
    pub(super) sources_bytes: u64,
    pub(super) inboxes_bytes: u64,
    pub(super) reposts_bytes: u64,
    /// The depths of the queues, in the order of their names.
    pub(super) queues: [u64; QUEUES_MAX],
}

/// One sample of the history, 352 bytes.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) at: UnixMicros,
    pub(super) pages: Quantiles,
    /// The time from the head of a publish request to the head of its response.
    pub(super) publishes: Quantiles,
    pub(super) fanouts: Quantiles,
    /// Pages, posts, deliveries, wakes and live messages per second.
    pub(super) rates: [f32; RATES],
    /// Requests per second, by class.
    pub(super) requests: [f32; CLASSES.len()],
    /// Refusals per second, by the indices of their codes.
    pub(super) refusals: [f32; CODES_MAX],
    pub(super) levels: Levels,
}

/// A reading of the counters since the start, and of the levels.
pub(super) struct Counts {
    at: Instant,
    shown: UnixMicros,
    pages: Buckets,
    publishes: Buckets,
    fanouts: Buckets,
    totals: [u64; RATES],
    requests: [u64; CLASSES.len()],
    refusals: Vec<(&'static str, u64)>,
    queues: Vec<QueueDepth>,
    levels: Levels,
}

impl Counts {
    /// Reads the counters now. Memory figures are estimates from samples of at most 512 sources and 256 posts.
    pub(super) fn take(engine: &Engine, requests: &RequestMetrics, connections: usize) -> Self {
        let shared = engine.shared();
        let (figures, counters) = (engine.figures(), &shared.counters);
        let queues = engine.queues();
        let mut depths = [0; QUEUES_MAX];
        depths.iter_mut().zip(&queues).for_each(|(depth, queue)| *depth = queue.depth as u64);
        let levels = Levels {
            active: count(figures.active),
            live_connections: count(figures.live_connections),
            connections: count(connections),
            resident_bytes: resident_bytes(),
            posts_bytes: figures.posts_bytes,
            sources_bytes: figures.sources_bytes,
            inboxes_bytes: figures.inboxes_bytes,
            reposts_bytes: figures.reposts_bytes,
            queues: depths,
        };
        Self {
            at: Instant::now(),
            shown: shared.clock.now(),
            pages: counters.page_latency.counts(),
            publishes: requests.latency_of(PUBLISH).map(Latency::counts).unwrap_or_default(),
            fanouts: sum(&counters.fanout_latency),
            totals: [
                &counters.pages,
                &counters.published,
                &counters.deliveries,
                &counters.wakes,
                &counters.live_messages,
            ]
            .map(|count| count.get()),
            requests: by_class(requests),
            refusals: requests.refusals(),
            queues,
            levels,
        }
    }

    /// Returns the time since an earlier reading, independent of clock changes.
    pub(super) fn since(&self, before: &Self) -> Duration {
        self.at.duration_since(before.at)
    }

    /// Returns the sample between an earlier reading and this one. Adds new names to `names`.
    pub(super) fn sample(&self, before: &Self, names: &mut Names) -> Sample {
        let seconds = self.since(before).as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as f32;
        let mut refusals = [0.0; CODES_MAX];
        for (code, count) in &self.refusals {
            let earlier = before.refusals.iter().find(|(known, _)| known == code).map_or(0, |(_, count)| *count);
            if *count > earlier {
                refusals[names.place(code)] += rate(*count, earlier);
            }
        }
        names.queues = self.queues.iter().take(QUEUES_MAX).map(|queue| (queue.name, queue.limit)).collect();
        Sample {
            at: self.shown,
            pages: quantiles(&self.pages, &before.pages),
            publishes: quantiles(&self.publishes, &before.publishes),
            fanouts: quantiles(&self.fanouts, &before.fanouts),
            rates: std::array::from_fn(|nth| rate(self.totals[nth], before.totals[nth])),
            requests: std::array::from_fn(|nth| rate(self.requests[nth], before.requests[nth])),
            refusals,
            levels: self.levels,
        }
    }
}

impl Names {
    /// Returns the index of a code, or the last one if there are too many codes.
    fn place(&mut self, code: &'static str) -> usize {
        if let Some(known) = self.codes.iter().position(|known| *known == code) {
            return known;
        }
        if self.codes.len() < CODES_MAX - 1 {
            self.codes.push(code);
            return self.codes.len() - 1;
        }
        CODES_MAX - 1
    }
}

fn by_class(requests: &RequestMetrics) -> [u64; CLASSES.len()] {
    let mut counts = [0; CLASSES.len()];
    for (work, count) in requests.by_work() {
        let class = match work {
            WorkKind::Read | WorkKind::BulkRead | WorkKind::WakeUp => 0,
            WorkKind::Write | WorkKind::BulkWrite => 1,
            WorkKind::Live | WorkKind::Unauthenticated => 2,
            WorkKind::None | WorkKind::Operation | WorkKind::Metrics => 3,
        };
        counts[class] += count;
    }
    counts
}

fn quantiles(now: &Buckets, before: &Buckets) -> Quantiles {
    let between: Buckets = std::array::from_fn(|nth| now[nth].saturating_sub(before[nth]));
    let estimate = |quantile| quantile_us(&between, quantile).map(|us| us as f32);
    Quantiles { p50_us: estimate(0.5), p99_us: estimate(0.99) }
}

fn sum(latencies: &[Latency]) -> Buckets {
    let add = |mut sum: Buckets, latency: &Latency| {
        sum.iter_mut().zip(latency.counts()).for_each(|(sum, count)| *sum += count);
        sum
    };
    latencies.iter().fold(Buckets::default(), add)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns a sample of an idle server.
#[cfg(test)]
pub(super) fn sample_at(at: UnixMicros) -> Sample {
    let (pages, publishes, fanouts, levels) = Default::default();
    let (rates, requests, refusals) = ([0.0; RATES], [0.0; CLASSES.len()], [0.0; CODES_MAX]);
    Sample { at, pages, publishes, fanouts, rates, requests, refusals, levels }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::config::EngineConfig;

    #[test]
    fn a_sample_has_a_field_for_each_queue_of_the_engine() {
        let engine = Engine::start(EngineConfig::default());
        assert!(engine.queues().len() <= QUEUES_MAX, "{:?}", engine.queues());
        engine.shutdown();
        assert!(size_of::<Sample>() <= 352, "{} bytes", size_of::<Sample>());
    }

    #[test]
    fn a_code_keeps_its_slot_and_codes_beyond_the_limit_share_the_last_slot() {
        let mut names = Names::default();
        let codes: Vec<&'static str> = (0..CODES_MAX + 3).map(|nth| &*format!("code_{nth}").leak()).collect();
        let places = |names: &mut Names| codes.iter().map(|code| names.place(code)).collect::<Vec<_>>();
        let expected: Vec<usize> = (0..CODES_MAX + 3).map(|nth| nth.min(CODES_MAX - 1)).collect();
        assert_eq!((places(&mut names), places(&mut names)), (expected.clone(), expected));
    }
}

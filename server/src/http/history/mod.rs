//! The history: samples of the server's figures over the last hour and the last day, for the console.
//!
//! Responsible for:
//! - adding one sample per period, and answering with the samples that a client does not have yet;
//! - the memory limit: [`SAMPLES_MAX`] samples of 352 bytes for each span, 507 KB in total, and a copy of one span's samples for each
//!   answer in progress;
//! - ascending times of samples, even if the clock is set back.

mod columns;
mod sample;

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::clock::UnixMicros;
use tokio::time::{MissedTickBehavior, interval};

use crate::http::engine_cell::{EngineCell, WeakEngineCell};
pub(in crate::http) use crate::http::history::columns::{Columns, OfNode};
use crate::http::history::sample::{Counts, Sample};
use crate::http::request_metrics::RequestMetrics;
use crate::http::sockets::connection_slots::Connections;

/// Number of samples retained for a span: an hour, or a day, with the default period.
pub(in crate::http) const SAMPLES_MAX: usize = 720;

/// Time between two samples of the last hour.
pub const PERIOD: Duration = Duration::from_secs(5);

/// Number of samples of the last hour for one of the last day: two minutes with the default period.
pub(in crate::http) const PERIODS_OF_DAY: u32 = 24;

/// Minimum time between two samples, in microseconds: answers have a resolution of milliseconds.
const TIME_STEP_MIN_US: i64 = 1_000;

/// Maximum hexadecimal digits of an epoch in a [`Since`].
pub(in crate::http) const EPOCH_DIGITS_MAX: usize = 16;

/// Maximum decimal digits of the number of samples in a [`Since`].
pub(in crate::http) const TAKEN_DIGITS_MAX: usize = 19;

/// The time span of the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::http) enum Span {
    /// The last hour.
    #[default]
    Hour,
    /// The last day.
    Day,
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "hour" => Ok(Self::Hour),
            "day" => Ok(Self::Day),
            _ => Err("a span must be hour or day"),
        }
    }
}

/// The history of a server.
pub struct History {
    /// Time between two samples of the last hour.
    period: Duration,
    hour: Mutex<Ring>,
    day: Mutex<Ring>,
}

struct Ring {
    /// A random number that identifies this history; it changes with a restart of the process.
    epoch: u64,
    /// The oldest first.
    samples: VecDeque<Sample>,
    /// The number of samples since the start.
    taken: u64,
    names: Names,
}

/// The names of the columns that a sample stores as arrays, in the order of these arrays.
#[derive(Clone, Default)]
pub(in crate::http) struct Names {
    /// The codes of refusals, in the order in which they first occurred. The last element of a sample's array is for all others.
    codes: Vec<&'static str>,
    /// The queues with their limits.
    queues: Vec<(&'static str, usize)>,
}

/// The place up to which a client has the samples: those of this epoch before a number. Opaque for clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) struct Since {
    epoch: u64,
    taken: u64,
}

impl Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.taken)
    }
}

impl FromStr for Since {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "not the \"next\" of an earlier answer";
        let (epoch, taken) = text.split_once('-').ok_or(WRONG)?;
        let is_number =
            |text: &str, radix, max| (1..=max).contains(&text.len()) && text.chars().all(|digit| digit.is_digit(radix));
        if !is_number(epoch, 16, EPOCH_DIGITS_MAX) || !is_number(taken, 10, TAKEN_DIGITS_MAX) {
            return Err(WRONG);
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| WRONG)?;
        Ok(Self { epoch, taken: taken.parse().map_err(|_| WRONG)? })
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new(PERIOD)
    }
}

impl History {
    /// Creates an empty history with a sample for each `period`.
    pub fn new(period: Duration) -> Self {
        Self { period, hour: Mutex::default(), day: Mutex::default() }
    }

    /// Returns the samples of a span that a client lacks, if it has all samples before `since`.
    pub(in crate::http) fn since(&self, span: Span, since: Option<Since>) -> Columns {
        let (ring, period) = match span {
            Span::Hour => (&self.hour, self.period),
            Span::Day => (&self.day, self.period * PERIODS_OF_DAY),
        };
        let ring = ring.lock();
        let first = ring.taken - ring.samples.len() as u64;
        let known = since.filter(|since| since.epoch == ring.epoch && (first..=ring.taken).contains(&since.taken));
        let skipped = known.map_or(0, |known| (known.taken - first) as usize);
        Columns {
            period,
            next: Since { epoch: ring.epoch, taken: ring.taken },
            reset: known.is_none(),
            samples: ring.samples.range(skipped..).copied().collect(),
            names: ring.names.clone(),
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        // Growth by doubling would allocate a third more than needed.
        let samples = VecDeque::with_capacity(SAMPLES_MAX);
        Self { epoch: fastrand::u64(..), samples, taken: 0, names: Names::default() }
    }
}

impl Ring {
    fn add(&mut self, before: &Counts, now: &Counts) {
        let sample = now.sample(before, &mut self.names);
        self.follow_clock(sample.at, now.since(before));
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.taken += 1;
    }

    /// Moves all samples back by the amount that the clock was set back since the last one, so that their times still ascend. Clients
    /// then have samples with invalid times, so the new epoch makes them read all samples again.
    fn follow_clock(&mut self, now: UnixMicros, since_last: Duration) {
        let Some(last) = self.samples.back().map(|sample| sample.at) else { return };
        if now.0.saturating_sub(last.0) >= TIME_STEP_MIN_US {
            return;
        }
        let elapsed = i64::try_from(since_last.as_micros()).unwrap_or(i64::MAX).max(TIME_STEP_MIN_US);
        let set_back = last.0.saturating_add(elapsed).saturating_sub(now.0);
        self.samples.iter_mut().for_each(|sample| sample.at = UnixMicros(sample.at.0.saturating_sub(set_back)));
        self.epoch = fastrand::u64(..);
    }
}

/// Adds samples while the history exists and the engine runs. Each sample takes a few reads of counters.
async fn keep(
    history: Weak<History>,
    engine_cell: WeakEngineCell,
    requests: Weak<RequestMetrics>,
    connections: Weak<Connections>,
) {
    let Some(period) = history.upgrade().map(|history| history.period) else { return };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The last reading for the hour, and for the day.
    let mut before: Option<(Rc<Counts>, Rc<Counts>)> = None;
    for nth in (0..PERIODS_OF_DAY).cycle() {
        ticks.tick().await;
        let (Some(history), Some(requests), Some(connections)) =
            (history.upgrade(), requests.upgrade(), connections.upgrade())
        else {
            return;
        };
        let Some(engine_cell) = engine_cell.upgrade() else { return };
        let Some(engine) = engine_cell.engine() else { continue };
        let now = Rc::new(Counts::take(engine, &requests, connections.count()));
        let Some((of_hour, of_day)) = &mut before else {
            before = Some((Rc::clone(&now), now));
            continue;
        };
        history.hour.lock().add(of_hour, &now);
        *of_hour = Rc::clone(&now);
        if nth == 0 {
            history.day.lock().add(of_day, &now);
            *of_day = now;
        }
    }
}

/// Starts sampling for a server.
pub(super) fn start(
    history: &Arc<History>,
    engine_cell: &EngineCell,
    requests: &Arc<RequestMetrics>,
    connections: &Arc<Connections>,
) {
    let (history, requests) = (Arc::downgrade(history), Arc::downgrade(requests));
    actix_web::rt::spawn(keep(history, engine_cell.downgrade(), requests, Arc::downgrade(connections)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::history::sample::sample_at;

    #[test]
    fn times_ascend_and_clients_are_reset_when_the_clock_is_set_back() {
        let history = History::default();
        let add = |at: i64| {
            let mut ring = history.hour.lock();
            ring.follow_clock(UnixMicros(at), PERIOD);
            ring.samples.push_back(sample_at(UnixMicros(at)));
            ring.taken += 1;
        };
        let times = |columns: &Columns| columns.samples.iter().map(|sample| sample.at.0 / 1_000).collect::<Vec<_>>();
        for at in [3_600_000_000, 3_605_000_000, 3_610_000_000] {
            add(at);
        }
        let before = history.since(Span::Hour, None);
        assert_eq!(times(&before), [3_600_000, 3_605_000, 3_610_000]);
        add(3_620_000_000);
        assert!(!history.since(Span::Hour, Some(before.next)).reset, "the clock went forward");
        // The clock is set back by an hour, and the next sample comes five seconds later.
        add(25_000_000);
        let after = history.since(Span::Hour, Some(before.next));
        assert!(after.reset);
        assert_eq!(times(&after), [0, 5_000, 10_000, 20_000, 25_000]);
        add(25_000_100);
        assert!(times(&history.since(Span::Hour, None)).is_sorted_by(|earlier, later| earlier < later));
    }
}

//! Measures the load of the machine during a measurement.

use std::fs;
use std::time::Duration;

/// Duration of one tick of `/proc/stat`, in seconds (`USER_HZ` is 100).
const TICK_S: f64 = 0.01;

/// The conditions of a run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Number of cores that this program, the client, may use.
    pub client_cores_max: f64,
    /// The periods of the measurements.
    pub stretches: Vec<Stretch>,
    /// True if this program was built without optimisation.
    pub unoptimised: bool,
}

impl Environment {
    /// Creates an environment without periods, for a client that may use this many cores.
    pub fn new(client_cores_max: f64) -> Self {
        Self { client_cores_max, stretches: Vec::new(), unoptimised: cfg!(debug_assertions) }
    }
}

/// One period of measurement.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stretch {
    /// The name of the measurement, for people, such as `page of redis_list`.
    pub what: String,
    /// Share of the whole machine, 0 to 1, used by programs that are neither client nor server.
    pub others_share: f64,
    /// Share of the whole machine, 0 to 1, used by other virtual machines on the same hardware.
    pub steal_share: f64,
    /// Share of the whole machine, 0 to 1, used by idle designs, which are not being measured.
    pub waiting_share: f64,
    /// The idle design that used most; empty if none used anything.
    pub waiting_most: String,
}

/// Samples the processor counters at the start and the end of a period.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    began: Processors,
}

impl Sampler {
    /// Starts a period.
    pub fn start() -> Self {
        Self { began: Processors::now() }
    }

    /// Ends the period. `ours` is the processor time of client and server together.
    pub fn stop(self, what: &str, ours: Duration) -> Stretch {
        self.stop_beside(what, ours, &[])
    }

    /// Ends the period. `waiting` has the processor time of each idle design, which is not part of `ours`.
    pub fn stop_beside(self, what: &str, ours: Duration, waiting: &[(&str, Duration)]) -> Stretch {
        self.began.until(Processors::now(), what, ours, waiting)
    }
}

/// Processor time of the whole machine since it booted, in ticks, summed over all cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Processors {
    busy_ticks: u64,
    steal_ticks: u64,
    idle_ticks: u64,
}

impl Processors {
    fn now() -> Self {
        // Without this file the load of other programs is unknown, and all shares are 0.
        fs::read_to_string("/proc/stat").ok().and_then(|stat| Self::parse(&stat)).unwrap_or_default()
    }

    /// Parses `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. The later columns are included in user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
        let &[user, nice, system, idle, iowait, irq, softirq, ref rest @ ..] = ticks.as_slice() else { return None };
        let busy_ticks = user + nice + system + irq + softirq;
        Some(Self { busy_ticks, steal_ticks: rest.first().copied().unwrap_or(0), idle_ticks: idle + iowait })
    }

    fn until(self, later: Self, what: &str, ours: Duration, waiting: &[(&str, Duration)]) -> Stretch {
        let busy = later.busy_ticks.saturating_sub(self.busy_ticks) as f64;
        let steal = later.steal_ticks.saturating_sub(self.steal_ticks) as f64;
        let idle = later.idle_ticks.saturating_sub(self.idle_ticks) as f64;
        let all = (busy + steal + idle).max(1.0);
        let ticks = |time: Duration| time.as_secs_f64() / TICK_S;
        let waited = ticks(waiting.iter().map(|(_, took)| *took).sum());
        let most = waiting.iter().filter(|(_, took)| !took.is_zero()).max_by_key(|(_, took)| *took);
        // Ticks are coarse: the known part can be greater than the busy time.
        let others = (busy - ticks(ours) - waited).max(0.0);
        Stretch {
            what: what.to_owned(),
            others_share: others / all,
            steal_share: steal / all,
            waiting_share: (waited / all).min(1.0),
            waiting_most: most.map(|(name, _)| (*name).to_owned()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 4000 50 6 7 80 9 0\ncpu0 50 10 15 2000 25 3 3 40 4 0\nintr 1 2\n";

    #[test]
    fn the_line_of_all_processors_is_read() {
        let expected = Processors { busy_ticks: 163, steal_ticks: 80, idle_ticks: 4_050 };
        assert_eq!(Processors::parse(STAT), Some(expected));
    }

    #[test]
    fn old_kernels_report_no_steal_time() {
        let read = Processors::parse("cpu 1 2 3 4 5 6 7\n");
        assert_eq!(read, Some(Processors { busy_ticks: 19, steal_ticks: 0, idle_ticks: 9 }));
    }

    #[test]
    fn lines_of_another_form_are_rejected() {
        for text in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 three 4", "cpu "] {
            assert_eq!(Processors::parse(text), None, "{text}");
        }
    }

    #[test]
    fn shares_of_other_programs_exclude_client_and_server() {
        let before = Processors { busy_ticks: 100, steal_ticks: 10, idle_ticks: 1_000 };
        let after = Processors { busy_ticks: 260, steal_ticks: 14, idle_ticks: 1_036 };
        let stretch = before.until(after, "page of redis_list", Duration::from_millis(1_400), &[]);
        let expected = Stretch {
            what: "page of redis_list".to_owned(),
            others_share: 0.1,
            steal_share: 0.02,
            ..Stretch::default()
        };
        assert_eq!(stretch, expected);
    }

    #[test]
    fn waiting_designs_do_not_count_as_other_programs() {
        let before = Processors { busy_ticks: 0, steal_ticks: 0, idle_ticks: 0 };
        let after = Processors { busy_ticks: 100, steal_ticks: 0, idle_ticks: 100 };
        let ms = Duration::from_millis;
        let waiting = [("redis_list", ms(100)), ("mariadb_push", ms(300)), ("mariadb_pull", ms(0))];
        let stretch = before.until(after, "page", ms(500), &waiting);
        assert_eq!((stretch.others_share, stretch.waiting_share), (0.05, 0.2));
        assert_eq!(stretch.waiting_most, "mariadb_push");
    }

    #[test]
    fn shares_are_never_negative() {
        let same = Processors { busy_ticks: 5, steal_ticks: 0, idle_ticks: 0 };
        let stretch = same.until(same, "nothing", Duration::from_secs(1), &[]);
        assert_eq!((stretch.others_share, stretch.steal_share), (0.0, 0.0));
    }

    #[test]
    fn the_processors_of_this_machine_can_be_read() {
        let stretch = Sampler::start().stop("nothing", Duration::ZERO);
        assert!((0.0..=1.0).contains(&stretch.others_share) && (0.0..=1.0).contains(&stretch.steal_share));
    }
}

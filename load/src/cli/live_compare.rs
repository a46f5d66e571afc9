//! `tidewire-load live compare`: live delivery by several designs in turns.

use std::error::Error;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use tidewire::limits::POST_BODY_BYTES_MAX;

use crate::cli::options::{ReportOptions, duration, judge, report};
use crate::live::CONNECTIONS_MAX;
use crate::live::compare::{self, BODY_BYTES_MIN, Compared, Design, Settings};
use crate::report::progress::Progress;

/// The title of the report.
const TITLE: &str = "Live delivery over WebSockets";

/// Maximum number of posts ahead of the slowest follower.
const WINDOW_POSTS: usize = 256;

/// Number of concurrent publishers of Tidewire.
const PUBLISHERS: usize = 16;

/// The seed of the order of the turns.
const SEED: u64 = 1;

/// In each round, each design has one turn: with a server of its own, the same online followers and the same posts. `to_last_of_N` is the
/// time from a publish until the last of N followers has read the post, as the median of a round; `to_last_of_N_p99` is its p99. The
/// processor time of a message is the server's time for each delivered message: at the maximum rate, and (`_paced`) with one post at a time
/// to the largest audience. All connections are on one thread of this program.
#[derive(Debug, clap::Args)]
pub(super) struct LiveCompare {
    /// A small run that takes less than 40 seconds
    #[arg(long)]
    quick: bool,

    /// Designs to compare [default: all]
    #[arg(long, value_name = "DESIGNS", value_delimiter = ',')]
    targets: Vec<Design>,

    /// Turns of each design [default: 5, quick: 1]
    #[arg(long, value_name = "ROUNDS")]
    rounds: Option<NonZeroUsize>,

    /// Online followers of each author whose posts are timed, separated by commas [default: 10,1000,10000, quick: 10,200]
    #[arg(long, value_name = "CONNECTIONS", value_delimiter = ',', value_parser = connections())]
    followers: Vec<u64>,

    /// Time for which the posts of each of these authors are timed [default: 8s, quick: 0.5s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timed: Option<Duration>,

    /// Online followers of the author who publishes as fast as possible [default: 1000, quick: 100]
    #[arg(long, value_name = "CONNECTIONS", value_parser = connections())]
    audience: Option<u64>,

    /// Time for which this author publishes [default: 4s, quick: 0.5s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lasts: Option<Duration>,

    /// Size of the body of a post, as JSON [bytes]
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = RangedU64ValueParser::<u64>::new().range(BODY_BYTES_MIN as u64..=POST_BODY_BYTES_MAX as u64))]
    body_bytes: u64,

    /// Time for which a client is away, in the last round [default: 10s, quick: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    away: Option<Duration>,

    #[command(flatten)]
    report: ReportOptions,
}

/// The parameters that depend on `--quick`.
struct Size {
    rounds: usize,
    followers: &'static [usize],
    timed: Duration,
    audience: usize,
    lasts: Duration,
    settle: Duration,
    away: Duration,
}

impl Size {
    const FULL: Self = Self {
        rounds: 5,
        followers: &[10, 1_000, 10_000],
        timed: Duration::from_secs(8),
        audience: 1_000,
        lasts: Duration::from_secs(4),
        settle: Duration::from_secs(2),
        away: Duration::from_secs(10),
    };

    const QUICK: Self = Self {
        rounds: 1,
        followers: &[10, 200],
        timed: Duration::from_millis(500),
        audience: 100,
        lasts: Duration::from_millis(500),
        settle: Duration::from_millis(200),
        away: Duration::from_secs(1),
    };
}

fn connections() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=CONNECTIONS_MAX as u64)
}

impl LiveCompare {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.report.check()?;
        let settings = self.settings();
        let progress = Progress::new();
        let Compared { targets, environment, warnings } = compare::compare(&settings, &progress)?;
        drop(progress);
        let mut report = report(TITLE, settings.describe());
        report.targets = targets;
        judge(&mut report, &environment);
        report.warnings.extend(warnings);
        self.report.write(&report)?;
        let failed = report.targets.iter().filter(|target| !target.failures.is_empty());
        match failed.map(|target| target.name.as_str()).collect::<Vec<_>>()[..] {
            [] => Ok(()),
            ref these => Err(format!("there were failures on {}: see the report", these.join(", ")).into()),
        }
    }

    fn settings(&self) -> Settings {
        let size = if self.quick { Size::QUICK } else { Size::FULL };
        let mut followers: Vec<usize> = self.followers.iter().map(|followers| *followers as usize).collect();
        if followers.is_empty() {
            followers = size.followers.to_vec();
        }
        followers.sort_unstable();
        // Equal numbers would give the same case name.
        followers.dedup();
        Settings {
            designs: if self.targets.is_empty() { Design::ALL.to_vec() } else { self.targets.clone() },
            rounds: self.rounds.map_or(size.rounds, NonZeroUsize::get),
            followers,
            timed: self.timed.unwrap_or(size.timed),
            audience: self.audience.map_or(size.audience, |audience| audience as usize),
            lasts: self.lasts.unwrap_or(size.lasts),
            window: WINDOW_POSTS,
            publishers: PUBLISHERS,
            body_bytes: self.body_bytes as usize,
            settle: size.settle,
            away: self.away.unwrap_or(size.away),
            seed: SEED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        compare: LiveCompare,
    }

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let parsed = Only::try_parse_from([&["compare"], arguments].concat());
        parsed.map(|only| only.compare.settings()).map_err(|cause| cause.to_string())
    }

    #[test]
    fn defaults_compare_all_designs_and_quick_is_smaller() {
        let (full, quick) = (settings(&[]).unwrap(), settings(&["--quick"]).unwrap());
        assert_eq!((full.designs, full.rounds, full.followers), (Design::ALL.to_vec(), 5, vec![10, 1_000, 10_000]));
        assert_eq!((quick.designs, quick.rounds, quick.followers), (Design::ALL.to_vec(), 1, vec![10, 200]));
    }

    #[test]
    fn options_override_the_preset_size() {
        let settings = settings(&["--quick", "--targets=nats,mosquitto", "--followers=30,7,30", "--away=3s"]).unwrap();
        assert_eq!(settings.designs, [Design::Nats, Design::Mosquitto]);
        assert_eq!((settings.followers, settings.away), (vec![7, 30], Duration::from_secs(3)));
    }

    #[test]
    fn values_out_of_range_are_refused_by_option_name() {
        for refused in
            ["--rounds=0", "--followers=0", "--body-bytes=20", "--audience=200001", "--lasts=0", "--targets=x"]
        {
            let message = settings(&[refused]).unwrap_err();
            assert!(message.contains(refused.split_once('=').unwrap().0), "{refused}: {message}");
        }
    }
}

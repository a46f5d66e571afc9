//! `tidewire-load live`: measures live connections.

use std::error::Error;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use tidewire::limits::POST_BODY_BYTES_MAX;

use crate::cli::live_compare::LiveCompare;
use crate::cli::options::{ReportOptions, judge, report};
use crate::live::{self, BODY_BYTES_MIN, CONNECTIONS_MAX, Measure, Measured, Settings};
use crate::report::progress::Progress;

/// The title of the report.
const TITLE: &str = "Tidewire's live connections";

/// Upper limits of seconds, posts, rounds and publishers, so that a typing error does not cause an endless run.
const SECONDS_MAX: u64 = 3_600;
const POSTS_MAX: u64 = 100_000;
const ROUNDS_MAX: u64 = 100;
const PUBLISHERS_MAX: u64 = 1_000;

/// Without options it takes less than a minute. Times are from just before a post is sent until a follower has read all of it;
/// `live_N_followers` is the time of the last of N followers, `live_N_followers_first` that of the first. All connections are on one
/// thread of this program.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Live {
    #[command(subcommand)]
    command: Option<LiveCommand>,

    /// Measurements to run [default: all]
    #[arg(long, value_name = "MEASURES", value_delimiter = ',')]
    only: Vec<Measure>,

    /// Rounds of all timed measurements
    #[arg(long, default_value_t = 3, value_parser = within(1..=ROUNDS_MAX))]
    rounds: u64,

    /// latency: online followers of each author, separated by commas [connections]
    #[arg(long, value_name = "CONNECTIONS", value_delimiter = ',', default_value = "10,1000", value_parser = connections())]
    followers: Vec<u64>,

    /// latency, stalled: posts of each author in a round
    #[arg(long, default_value_t = 40, value_parser = within(1..=POSTS_MAX))]
    posts: u64,

    /// latency, throughput: size of the body of a post, as JSON [bytes]
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = body_bytes())]
    body_bytes: u64,

    /// throughput, stalled: followers online [connections]
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 1_000, value_parser = connections())]
    audience: u64,

    /// throughput: duration of a round of publishing at the maximum rate [seconds]
    #[arg(long, default_value_t = 2, value_parser = within(1..=SECONDS_MAX))]
    seconds: u64,

    /// throughput: concurrent publishers [connections]
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 16, value_parser = within(1..=PUBLISHERS_MAX))]
    publishers: u64,

    /// throughput: maximum number of posts ahead of the slowest follower; 0: no limit, so that the server disconnects slow clients [posts]
    #[arg(long, value_name = "POSTS", default_value_t = 256, value_parser = within(0..=POSTS_MAX))]
    window: u64,

    /// memory: idle connections
    #[arg(long, default_value_t = 2_000, value_parser = connections())]
    connections: u64,

    /// memory: time for which the connections stay open; after 60 the server closes connections that do not answer a ping [seconds]
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = within(0..=SECONDS_MAX))]
    hold_seconds: u64,

    /// stalled: clients that stop reading [connections]
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 100, value_parser = connections())]
    stalled: u64,

    /// stalled: size of the body of a post, as JSON [bytes]
    #[arg(long, value_name = "BYTES", default_value_t = 8_192, value_parser = body_bytes())]
    stalled_body_bytes: u64,

    /// stalled: timeout until the server disconnects clients in the last round; 0: do not wait for it [seconds]
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = within(0..=SECONDS_MAX))]
    cut_off_seconds: u64,

    /// Further flags of the server, in one argument: "--shards 2"
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    server_flags: Option<String>,

    #[command(flatten)]
    report: ReportOptions,
}

#[derive(Debug, clap::Subcommand)]
enum LiveCommand {
    /// Compare Tidewire with an MQTT broker, NATS and Socket.IO
    Compare(LiveCompare),
}

fn within(range: RangeInclusive<u64>) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(range)
}

fn connections() -> RangedU64ValueParser<u64> {
    within(1..=CONNECTIONS_MAX as u64)
}

fn body_bytes() -> RangedU64ValueParser<u64> {
    within(BODY_BYTES_MIN as u64..=POST_BODY_BYTES_MAX as u64)
}

impl Live {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        if let Some(LiveCommand::Compare(compare)) = self.command {
            return compare.run();
        }
        self.report.check()?;
        let settings = self.settings();
        let progress = Progress::new();
        let Measured { target, environment, warnings } = live::measure(&settings, &progress)?;
        drop(progress);
        let mut report = report(TITLE, settings.describe());
        report.targets = vec![target];
        judge(&mut report, &environment);
        report.warnings.extend(warnings);
        self.report.write(&report)
    }

    fn settings(&self) -> Settings {
        let seconds = Duration::from_secs;
        let mut followers: Vec<usize> = self.followers.iter().map(|followers| *followers as usize).collect();
        followers.sort_unstable();
        // Equal numbers would give the same case name.
        followers.dedup();
        // The server expects a flag and its value as two arguments.
        let flags = self.server_flags.iter().flat_map(|flags| flags.split_whitespace());
        Settings {
            measures: if self.only.is_empty() { Measure::ALL.to_vec() } else { self.only.clone() },
            rounds: self.rounds as usize,
            followers,
            posts: self.posts as usize,
            body_bytes: self.body_bytes as usize,
            audience: self.audience as usize,
            lasts: seconds(self.seconds),
            publishers: self.publishers as usize,
            window: (self.window > 0).then_some(self.window as usize),
            connections: self.connections as usize,
            hold: seconds(self.hold_seconds),
            stalled: self.stalled as usize,
            stalled_body_bytes: self.stalled_body_bytes as usize,
            cut_off: seconds(self.cut_off_seconds),
            server_flags: flags.map(str::to_owned).collect(),
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
        live: Live,
    }

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let parsed = Only::try_parse_from([&["live"], arguments].concat());
        parsed.map(|only| only.live.settings()).map_err(|cause| cause.to_string())
    }

    #[test]
    fn defaults_measure_everything_briefly() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.measures, Measure::ALL);
        assert_eq!((settings.rounds, settings.followers, settings.window), (3, vec![10, 1_000], Some(256)));
        assert!(settings.server_flags.is_empty());
    }

    #[test]
    fn options_with_several_values_accept_lists() {
        let settings =
            settings(&["--only=stalled,latency", "--followers=30,7,30", "--window=0", "--server-flags=--shards 2 --x"]);
        let settings = settings.unwrap();
        assert_eq!(settings.measures, [Measure::Stalled, Measure::Latency]);
        assert_eq!((settings.followers, settings.window), (vec![7, 30], None));
        assert_eq!(settings.server_flags, ["--shards", "2", "--x"]);
    }

    #[test]
    fn values_out_of_range_are_refused_by_option_name() {
        for refused in [
            "--rounds=0",
            "--followers=10,0",
            "--followers=",
            "--body-bytes=10",
            "--body-bytes=65537",
            "--connections=200001",
            "--seconds=3601",
            "--only=fanout",
        ] {
            let message = settings(&[refused]).unwrap_err();
            assert!(message.contains(refused.split_once('=').unwrap().0), "{refused}: {message}");
        }
    }
}

//! `tidewire-load scale`: prints what clusters of given sizes need.

use std::error::Error;
use std::fmt::Write as _;
use std::num::NonZeroU32;

use crate::cli::options::{positive, some_share};
use crate::scale::{Costs, Habits, Machine};

/// The costs that were measured on the machine of docs/scale.md.
pub(crate) const MEASURED: Costs = Costs {
    judge_us: 104.0,
    apply_us: 37.0,
    scribe_us: 4.0,
    delivery_us: 0.25,
    message_us: 12.8,
    page_us: 20.0,
    pass_us: 30.0,
    user_bytes: 236.0,
    edge_bytes: 30.0,
    post_bytes: 600.0,
    reader_bytes: 3_300.0,
    connection_bytes: 5_900.0,
    event_bytes: 269.0,
    page_bytes: 6_000.0,
    message_bytes: 400.0,
};

const USERS: [f64; 5] = [1e4, 1e5, 1e6, 1e7, 1e8];
const NODES: [f64; 6] = [1.0, 3.0, 6.0, 12.0, 32.0, 128.0];

/// Arithmetic with costs that were measured (docs/scale.md). Without options it prints a table of clusters up to 100,000,000 users and 128
/// nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Scale {
    /// Number of users, such as 1e8 [default: several]
    #[arg(long, value_parser = count)]
    users: Option<f64>,

    /// Number of nodes [default: several]
    #[arg(long)]
    nodes: Option<NonZeroU32>,

    /// Sources that each user follows
    #[arg(long, default_value_t = 100.0, value_parser = positive)]
    follows: f64,

    /// Posts of a user in a day
    #[arg(long, default_value_t = 0.5, value_parser = positive)]
    posts_per_day: f64,

    /// Pages that a user reads in a day
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    pages_per_day: f64,

    /// The most in a second as a multiple of the average
    #[arg(long, default_value_t = 5.0, value_parser = positive)]
    peak: f64,

    /// Share of the users who have read their feed in the last week
    #[arg(long, default_value_t = 0.3, value_parser = some_share)]
    active_share: f64,

    /// Share of the users with a live connection
    #[arg(long, default_value_t = 0.02, value_parser = some_share)]
    online_share: f64,

    /// Days for which posts stay in memory
    #[arg(long, default_value_t = 7.0, value_parser = positive)]
    kept_days: f64,

    /// Clients ask the owner of a user, in place of any node
    #[arg(long)]
    asks_owner: bool,

    /// Cores of a node
    #[arg(long, default_value_t = 16.0, value_parser = positive)]
    cores: f64,

    /// Memory of a node, in GB
    #[arg(long, default_value_t = 256.0, value_parser = positive)]
    memory: f64,

    /// Network of a node, in Gbit/s
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    network: f64,
}

impl Scale {
    #[allow(clippy::print_stdout, reason = "the result of the command")]
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        print!("{}", self.table());
        Ok(())
    }

    fn table(&self) -> String {
        let habits = Habits {
            follows: self.follows,
            posts_per_day: self.posts_per_day,
            pages_per_day: self.pages_per_day,
            peak: self.peak,
            active_share: self.active_share,
            online_share: self.online_share,
            kept_days: self.kept_days,
            asks_owner: self.asks_owner,
        };
        let machine =
            Machine { cores: self.cores, memory_bytes: self.memory * 1e9, network_bytes: self.network * 1e9 / 8.0 };
        let mut table =
            "| users | nodes | posts/s | pages/s | cores | scribe | memory | network | log a day | ends first |\n\
                         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n"
                .to_owned();
        let (users, nodes) = (
            self.users.map_or(USERS.to_vec(), |one| vec![one]),
            self.nodes.map_or(NODES.to_vec(), |one| vec![f64::from(one.get())]),
        );
        for users in users {
            for nodes in &nodes {
                let demand = habits.of(users);
                let need = demand.need(*nodes, &MEASURED);
                let (first, share) = need.shares(&machine)[0];
                // Writing to a `String` cannot fail.
                let _ = writeln!(
                    table,
                    "| {users:.0e} | {nodes} | {:.0} | {:.0} | {:.2} | {:.1} % | {} | {}/s | {} | {} ({:.0} %) |",
                    demand.posts,
                    demand.pages,
                    need.cores,
                    need.scribe * 100.0,
                    bytes(need.memory_bytes),
                    bytes(need.network_bytes),
                    bytes(need.log_bytes * 86_400.0 / self.peak),
                    first.name(),
                    share * 100.0,
                );
            }
        }
        table
    }
}

/// Parses a number of users.
fn count(text: &str) -> Result<f64, String> {
    let most = 1e12;
    let count = text.parse::<f64>().ok().filter(|count| (1.0..=most).contains(count));
    count.ok_or_else(|| format!("not between 1 and {most:e}"))
}

/// Returns bytes with a precision of two digits.
fn bytes(bytes: f64) -> String {
    let (unit, name) = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
        .unwrap_or((1.0, "B"));
    let count = bytes / unit;
    if count < 10.0 { format!("{count:.1} {name}") } else { format!("{count:.0} {name}") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        scale: Scale,
    }

    #[test]
    fn a_size_is_one_line_and_none_is_all() {
        let lines = |arguments: &str| {
            let cli = Cli::try_parse_from(["scale"].into_iter().chain(arguments.split_whitespace())).unwrap();
            cli.scale.table().lines().count() - 2
        };
        assert_eq!(lines("--users 1e8 --nodes 128"), 1);
        for nodes in ["0", "0.5", "-1"] {
            assert!(Cli::try_parse_from(["scale", &format!("--nodes={nodes}")]).is_err(), "{nodes}");
        }
        assert_eq!(lines(""), USERS.len() * NODES.len());
        assert_eq!([12.4, 1_250.0, 15.6e9].map(bytes), ["12 B", "1.2 KB", "16 GB"]);
    }
}

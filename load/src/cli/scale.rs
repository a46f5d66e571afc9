//! `tidewire-load scale`: prints the needs of clusters of given sizes.

use std::error::Error;
use std::num::NonZeroUsize;

use crate::cli::options::{exponent, positive, some_share};
use crate::report::Latency;
use crate::scale::{Demand, Habits, Machine, Need};
use crate::simulation::Outcome;
use crate::simulation::costs::MEASURED;

const USERS: [f64; 5] = [1e4, 1e5, 1e6, 1e7, 1e8];
const NODES: [usize; 6] = [1, 3, 6, 12, 32, 128];

/// Simulates clusters, with measured costs (docs/scale.md). Without options it prints a table of clusters up to 100,000,000 users and 128
/// nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Scale {
    /// Number of users, such as 1e8 [default: several]
    #[arg(long, value_parser = count)]
    users: Option<f64>,

    /// Number of nodes [default: several]
    #[arg(long)]
    nodes: Option<NonZeroUsize>,

    /// Sources that each user follows
    #[arg(long, default_value_t = 100.0, value_parser = positive)]
    follows: f64,

    /// Posts of a user in a day
    #[arg(long, default_value_t = 0.5, value_parser = positive)]
    posts_per_day: f64,

    /// Pages that a user reads in a day
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    pages_per_day: f64,

    /// Peak rate as a multiple of the average
    #[arg(long, default_value_t = 5.0, value_parser = positive)]
    peak: f64,

    /// Share of the users who have read their feed in the last week
    #[arg(long, default_value_t = 0.3, value_parser = some_share)]
    active_share: f64,

    /// Share of the users with a live connection
    #[arg(long, default_value_t = 0.02, value_parser = some_share)]
    online_share: f64,

    /// Spread of the number of followers between authors: the standard deviation of its logarithm
    #[arg(long, default_value_t = 1.5, value_parser = exponent)]
    spread: f64,

    /// Days for which posts stay in memory
    #[arg(long, default_value_t = 7.0, value_parser = positive)]
    kept_days: f64,

    /// Clients send requests to the owner of a user instead of any node
    #[arg(long)]
    asks_owner: bool,

    /// Cores of a node
    #[arg(long, default_value = "16")]
    cores: NonZeroUsize,

    /// Memory of a node, in GB
    #[arg(long, default_value_t = 256.0, value_parser = positive)]
    memory: f64,

    /// Disk of a node, in GB
    #[arg(long, default_value_t = 1_000.0, value_parser = positive)]
    disk: f64,

    /// Network of a node, in Gbit/s
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    network: f64,

    /// Print the maximum number of users instead of the needed resources: with the memory of a node, and without a limit of memory and disk
    #[arg(long, conflicts_with = "users")]
    most: bool,
}

/// The minimum and maximum number of users for `--most`, and the precision of the result.
const MOST_USERS: (f64, f64) = (1e3, 1e11);
const MOST_PRECISION: f64 = 1.05;

impl Scale {
    #[allow(clippy::print_stdout, reason = "the result of the command")]
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        if self.most {
            print!(
                "| nodes | most users | ends first | most users without a limit of memory and disk | ends first |\n|---:|---:|---|---:|---|\n"
            );
            self.sizes().into_iter().for_each(|nodes| println!("{}", self.most_users(nodes)));
        } else {
            println!(
                "| users | nodes | posts/s | pages/s | cores | command processor | memory | disk | network | log a day | publish p50, p99 | page p50, p99 | ends first |\n\
                 |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
            );
            for users in self.users.map_or(USERS.to_vec(), |one| vec![one]) {
                self.sizes().into_iter().for_each(|nodes| println!("{}", self.line(users, nodes)));
            }
        }
        Ok(())
    }

    fn sizes(&self) -> Vec<usize> {
        self.nodes.map_or(NODES.to_vec(), |one| vec![one.get()])
    }

    fn machine(&self) -> Machine {
        Machine {
            cores: self.cores.get(),
            memory_bytes: self.memory * 1e9,
            disk_bytes: self.disk * 1e9,
            network_bytes: self.network * 1e9 / 8.0,
        }
    }

    fn demand(&self, users: f64) -> Demand {
        let habits = Habits {
            follows: self.follows,
            posts_per_day: self.posts_per_day,
            pages_per_day: self.pages_per_day,
            peak: self.peak,
            active_share: self.active_share,
            online_share: self.online_share,
            spread: self.spread,
            kept_days: self.kept_days,
            asks_owner: self.asks_owner,
        };
        habits.of(users)
    }

    fn simulate(&self, users: f64, nodes: usize, machine: &Machine) -> (Demand, Outcome, Need) {
        let demand = self.demand(users);
        let outcome = demand.simulate(nodes, machine, &MEASURED);
        let need = Need::new(&demand, &outcome, &MEASURED);
        (demand, outcome, need)
    }

    fn line(&self, users: f64, nodes: usize) -> String {
        let machine = self.machine();
        let (demand, outcome, need) = self.simulate(users, nodes, &machine);
        let (first, share) = need.shares(&machine)[0];
        let times = |latency: &Latency| match outcome.keeps_up() {
            true => format!("{:.1}, {:.1} ms", latency.p50_us / 1e3, latency.p99_us / 1e3),
            false => "falls behind".to_owned(),
        };
        format!(
            "| {users:.0e} | {nodes} | {:.0} | {:.0} | {:.2} | {:.1} % | {} | {} | {}/s | {} | {} | {} | {} ({:.0} %) |",
            demand.posts,
            demand.pages,
            need.cores,
            need.processor * 100.0,
            bytes(need.memory_bytes),
            bytes(need.disk_bytes),
            bytes(need.network_bytes),
            bytes(need.log_bytes * 86_400.0 / self.peak),
            times(&outcome.publishes),
            times(&outcome.pages),
            first.name(),
            share * 100.0,
        )
    }

    /// Returns the maximum number of users of a cluster: with the memory and disk of a node, and without these limits.
    fn most_users(&self, nodes: usize) -> String {
        let machine = self.machine();
        let endless = Machine { memory_bytes: f64::INFINITY, disk_bytes: f64::INFINITY, ..machine };
        format!("| {nodes} | {} | {} |", self.most_users_of(nodes, &machine), self.most_users_of(nodes, &endless))
    }

    /// Finds the maximum number of users of a cluster by bisection, and the resource that limits it.
    fn most_users_of(&self, nodes: usize, machine: &Machine) -> String {
        let (mut enough, mut too_many) = MOST_USERS;
        while too_many / enough > MOST_PRECISION {
            let users = (enough * too_many).sqrt();
            // Skip the simulation if the memory is too small.
            let is_enough = self.demand(users).memory_bytes(0.0, &MEASURED) <= machine.memory_bytes && {
                // If a cluster falls behind, part of its work is after the measured time. It is above a limit.
                let (_, outcome, need) = self.simulate(users, nodes, machine);
                outcome.keeps_up() && need.shares(machine)[0].1 <= 1.0
            };
            *(if is_enough { &mut enough } else { &mut too_many }) = users;
        }
        let (.., need) = self.simulate(enough, nodes, machine);
        format!("{enough:.1e} | {}", need.shares(machine)[0].0.name())
    }
}

/// Parses a number of users.
fn count(text: &str) -> Result<f64, String> {
    let most = 1e11;
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
    fn the_scarcest_resource_limits_the_number_of_users() {
        let scale = Cli::try_parse_from(["scale", "--most", "--nodes", "1", "--memory", "0.01"]).unwrap().scale;
        let most = scale.most_users_of(1, &scale.machine());
        assert!(most.starts_with("1.") && most.ends_with("e3 | memory"), "{most}");
    }

    #[test]
    fn one_size_is_simulated_if_given_and_all_sizes_otherwise() {
        let parsed = |arguments: &str| {
            Cli::try_parse_from(["scale"].into_iter().chain(arguments.split_whitespace())).map(|cli| cli.scale)
        };
        let scale = parsed("--users 1e6 --nodes 3 --memory 2").unwrap();
        assert_eq!(scale.sizes(), [3]);
        let line = scale.line(1e6, 3);
        assert!(line.starts_with("| 1e6 | 3 | 29 | 1157 |") && line.contains("| memory ("), "{line}");
        for wrong in ["--nodes=0", "--nodes=0.5", "--nodes=-1", "--cores=0", "--most --users=1", "--spread=-1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parsed("").unwrap().sizes(), NODES);
        assert_eq!([12.4, 1_250.0, 15.6e9].map(bytes), ["12 B", "1.2 KB", "16 GB"]);
    }
}

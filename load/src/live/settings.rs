//! What is measured of live connections, and how much of it.
//!
//! Not responsible for:
//! - reading it (`cli`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::report::figure::count;

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Measure {
    /// From a publish to the first and to the last follower's last byte
    Latency,
    /// Messages a second, and that none is lost
    Throughput,
    /// The server's memory for each idle connection
    Memory,
    /// What clients that stop reading cost the others
    Stalled,
}

impl Measure {
    /// All of them, in the order they are measured.
    pub const ALL: [Self; 4] = [Self::Latency, Self::Throughput, Self::Memory, Self::Stalled];

    /// Its name, as in the option.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Memory => "memory",
            Self::Stalled => "stalled",
        }
    }
}

/// What is measured, and how much of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is measured.
    pub measures: Vec<Measure>,
    /// Rounds of all that is timed.
    pub rounds: usize,
    /// Online followers of each author whose posts are timed. Each author's followers are connections of its own.
    pub followers: Vec<usize>,
    /// Posts of each author in one round.
    pub posts: usize,
    /// Bytes of the body of a post.
    pub body_bytes: usize,
    /// Online followers while as much as possible is published, and beside those that stall.
    pub audience: usize,
    /// How long a round of publishing as much as possible lasts.
    pub lasts: Duration,
    /// Those who publish at the same time then.
    pub publishers: usize,
    /// Posts ahead of the slowest follower then. None: no limit, so that clients that fall behind are cut off.
    pub window: Option<usize>,
    /// Idle connections whose memory is measured.
    pub connections: usize,
    /// How long they are kept. After 60 s one that does not answer its ping would be closed.
    pub hold: Duration,
    /// Clients that stop reading.
    pub stalled: usize,
    /// Bytes of the body of a post that these do not read.
    pub stalled_body_bytes: usize,
    /// How long they may take to be cut off once posts go on; if zero, nobody waits for it.
    pub cut_off: Duration,
    /// Further flags of the server.
    pub server_flags: Vec<String>,
}

impl Settings {
    /// Whether this is asked for.
    pub fn wants(&self, measure: Measure) -> bool {
        self.measures.contains(&measure)
    }

    /// Connections at the same time, at most, and what needs these.
    pub fn connections_max(&self) -> (usize, Measure) {
        let of = |measure: Measure| match measure {
            Measure::Latency => self.followers.iter().sum(),
            Measure::Throughput => self.audience,
            Measure::Memory => self.connections,
            Measure::Stalled => self.audience + self.stalled,
        };
        let asked = Measure::ALL.into_iter().filter(|measure| self.wants(*measure));
        asked.map(|measure| (of(measure), measure)).max_by_key(|(count, _)| *count).unwrap_or((0, Measure::Latency))
    }

    /// Name and value of all that is set, for a report.
    pub fn told(&self) -> BTreeMap<String, String> {
        let number = |number: usize| count(number as u64);
        let time = |time: Duration| humantime::format_duration(time).to_string();
        let list = |texts: Vec<String>| texts.join("; ");
        let mut told = BTreeMap::from([
            ("measures", list(self.measures.iter().map(|measure| measure.name().to_owned()).collect())),
            ("rounds", number(self.rounds)),
        ]);
        if self.wants(Measure::Latency) {
            told.insert("followers online", list(self.followers.iter().map(|followers| number(*followers)).collect()));
        }
        if self.wants(Measure::Latency) || self.wants(Measure::Stalled) {
            told.insert("posts in a round", number(self.posts));
        }
        if self.wants(Measure::Throughput) || self.wants(Measure::Stalled) {
            told.insert("audience", format!("{} followers online", number(self.audience)));
        }
        if self.wants(Measure::Latency) || self.wants(Measure::Throughput) {
            told.insert("body", format!("{} bytes", number(self.body_bytes)));
        }
        if self.wants(Measure::Throughput) {
            told.insert("round of throughput", time(self.lasts));
            told.insert("publishers", number(self.publishers));
            told.insert("window", self.window.map_or("none".to_owned(), |posts| format!("{} posts", number(posts))));
        }
        if self.wants(Measure::Memory) {
            told.insert("idle connections", format!("{}, kept for {}", number(self.connections), time(self.hold)));
        }
        if self.wants(Measure::Stalled) {
            told.insert("stalled clients", number(self.stalled));
            told.insert("body that they do not read", format!("{} bytes", number(self.stalled_body_bytes)));
        }
        told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(measures: &[Measure]) -> Settings {
        Settings {
            measures: measures.to_vec(),
            rounds: 3,
            followers: vec![10, 1_000],
            posts: 40,
            body_bytes: 100,
            audience: 500,
            lasts: Duration::from_secs(2),
            publishers: 16,
            window: Some(256),
            connections: 2_000,
            hold: Duration::from_secs(5),
            stalled: 700,
            stalled_body_bytes: 8_192,
            cut_off: Duration::from_secs(60),
            server_flags: Vec::new(),
        }
    }

    #[test]
    fn only_what_is_measured_needs_connections() {
        use Measure::{Latency, Memory, Stalled, Throughput};
        assert_eq!(settings(&Measure::ALL).connections_max(), (2_000, Memory));
        assert_eq!(settings(&[Latency, Throughput]).connections_max(), (1_010, Latency));
        assert_eq!(settings(&[Stalled, Latency]).connections_max(), (1_200, Stalled));
        assert_eq!(settings(&[Throughput]).connections_max(), (500, Throughput));
    }

    #[test]
    fn only_what_is_measured_is_told() {
        let told = settings(&[Measure::Memory]).told();
        let names: Vec<&str> = told.keys().map(String::as_str).collect();
        assert_eq!(names, ["idle connections", "measures", "rounds"]);
        assert_eq!(told["idle connections"], "2,000, kept for 5s");
    }
}

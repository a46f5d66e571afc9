//! The settings of the measurements of live connections.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::report::figure::count;

/// A measurement of live connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Measure {
    /// Time from a publish until the first and the last follower have received all of it
    Latency,
    /// Messages per second, and a check that none is lost
    Throughput,
    /// Memory of the server for each idle connection
    Memory,
    /// Effect of clients that stop reading on the others
    Stalled,
}

impl Measure {
    /// All measurements, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::Latency, Self::Throughput, Self::Memory, Self::Stalled];

    /// Returns the name, as in the option.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Memory => "memory",
            Self::Stalled => "stalled",
        }
    }
}

/// The selected measurements and their parameters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The selected measurements.
    pub measures: Vec<Measure>,
    /// Number of rounds of each timed measurement.
    pub rounds: usize,
    /// Number of online followers, for each author whose posts are timed. Each author has its own connections.
    pub followers: Vec<usize>,
    /// Number of posts of each author in one round.
    pub posts: usize,
    /// Bytes of the body of a post.
    pub body_bytes: usize,
    /// Number of online followers in the throughput measurement, and besides the stalled clients.
    pub audience: usize,
    /// Duration of a round of the throughput measurement.
    pub lasts: Duration,
    /// Number of concurrent publishers in the throughput measurement.
    pub publishers: usize,
    /// Maximum number of posts ahead of the slowest follower in the throughput measurement. `None`: no limit, so the server cuts off slow
    /// clients.
    pub window: Option<usize>,
    /// Number of idle connections whose memory is measured.
    pub connections: usize,
    /// Time for which they stay open. After 60 s the server would close a connection that does not answer its ping.
    pub hold: Duration,
    /// Number of clients that stop reading.
    pub stalled: usize,
    /// Bytes of the body of the posts that they do not read.
    pub stalled_body_bytes: usize,
    /// Timeout until the server cuts them off while posts are published; zero skips this part.
    pub cut_off: Duration,
    /// Further flags of the server.
    pub server_flags: Vec<String>,
}

impl Settings {
    /// Returns true if this measurement is selected.
    pub fn wants(&self, measure: Measure) -> bool {
        self.measures.contains(&measure)
    }

    /// Returns the largest number of concurrent connections, and the measurement that needs them.
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

    /// Returns the name and value of each setting, for a report.
    pub fn describe(&self) -> BTreeMap<String, String> {
        let number = |number: usize| count(number as u64);
        let time = |time: Duration| humantime::format_duration(time).to_string();
        let list = |texts: Vec<String>| texts.join("; ");
        let mut values = BTreeMap::from([
            ("measures", list(self.measures.iter().map(|measure| measure.name().to_owned()).collect())),
            ("rounds", number(self.rounds)),
        ]);
        if self.wants(Measure::Latency) {
            values
                .insert("followers online", list(self.followers.iter().map(|followers| number(*followers)).collect()));
        }
        if self.wants(Measure::Latency) || self.wants(Measure::Stalled) {
            values.insert("posts in a round", number(self.posts));
        }
        if self.wants(Measure::Throughput) || self.wants(Measure::Stalled) {
            values.insert("audience", format!("{} followers online", number(self.audience)));
        }
        if self.wants(Measure::Latency) || self.wants(Measure::Throughput) {
            values.insert("body", format!("{} bytes", number(self.body_bytes)));
        }
        if self.wants(Measure::Throughput) {
            values.insert("round of throughput", time(self.lasts));
            values.insert("publishers", number(self.publishers));
            values.insert("window", self.window.map_or("none".to_owned(), |posts| format!("{} posts", number(posts))));
        }
        if self.wants(Measure::Memory) {
            values.insert("idle connections", format!("{}, kept for {}", number(self.connections), time(self.hold)));
        }
        if self.wants(Measure::Stalled) {
            values.insert("stalled clients", number(self.stalled));
            values.insert("body that they do not read", format!("{} bytes", number(self.stalled_body_bytes)));
        }
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
    fn only_selected_measures_need_connections() {
        use Measure::{Latency, Memory, Stalled, Throughput};
        assert_eq!(settings(&Measure::ALL).connections_max(), (2_000, Memory));
        assert_eq!(settings(&[Latency, Throughput]).connections_max(), (1_010, Latency));
        assert_eq!(settings(&[Stalled, Latency]).connections_max(), (1_200, Stalled));
        assert_eq!(settings(&[Throughput]).connections_max(), (500, Throughput));
    }

    #[test]
    fn only_settings_of_selected_measures_are_described() {
        let values = settings(&[Measure::Memory]).describe();
        let names: Vec<&str> = values.keys().map(String::as_str).collect();
        assert_eq!(names, ["idle connections", "measures", "rounds"]);
        assert_eq!(values["idle connections"], "2,000, kept for 5s");
    }
}

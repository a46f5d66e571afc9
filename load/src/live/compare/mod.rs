//! Measures live delivery by several designs in turns: Tidewire, an MQTT broker, NATS and Socket.IO, all over WebSockets.
//!
//! Responsible for:
//! - rounds in which each design has a turn with a server of its own, in a different order each time, so that other load on the machine
//!   affects all of them equally;
//! - the results of all rounds as cases of a report.

mod design;
mod mqtt;
mod nats;
mod posts;
mod socket_io;
mod turn;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::design::Design;
use self::turn::{Results, Turn};
use crate::compare::turns;
use crate::environment::Environment;
use crate::live::machine::raise_open_files;
use crate::live::pace::Rounds;
use crate::live::throughput;
use crate::live::{CLIENT_CORES_MAX, Error, until_signal};
use crate::measure::middle;
use crate::report::figure::count;
use crate::report::progress::Progress;
use crate::report::{Case, TargetReport};
use crate::target::Failure;

/// Minimum bytes of a body: it contains a number.
pub const BODY_BYTES_MIN: usize = posts::BODY_BYTES_MIN;

/// Names of the cases.
const IDLE: &str = "idle_connection";
const MESSAGES: &str = "messages";
const TIME_OF_A_MESSAGE: &str = "processor_time_of_a_message";
const PACED_TIME_OF_A_MESSAGE: &str = "processor_time_of_a_message_paced";
const AWAY: &str = "posts_after_absence";

/// The parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The designs, Tidewire first.
    pub designs: Vec<Design>,
    /// Number of turns of each design.
    pub rounds: usize,
    /// Number of online followers, for each author whose posts are timed. Each author has its own followers.
    pub followers: Vec<usize>,
    /// Duration for which the posts of each of these authors are timed.
    pub timed: Duration,
    /// Number of online followers of the author who publishes as fast as possible.
    pub audience: usize,
    /// Duration for which this author publishes.
    pub lasts: Duration,
    /// Maximum number of posts of this author ahead of the slowest follower.
    pub window: usize,
    /// Number of concurrent publishers of this author on Tidewire.
    pub publishers: usize,
    /// Bytes of the body of a post.
    pub body_bytes: usize,
    /// Time until the memory of idle connections is read.
    pub settle: Duration,
    /// Time for which a client is disconnected.
    pub away: Duration,
    /// The seed of the order of the turns.
    pub seed: u64,
}

impl Settings {
    /// Returns the number of connections of followers, all of which are open in a turn.
    pub fn connections(&self) -> usize {
        self.followers.iter().sum::<usize>() + self.audience
    }

    /// Returns the name and value of each setting, for a report.
    pub fn describe(&self) -> BTreeMap<String, String> {
        let number = |number: usize| count(number as u64);
        let time = |time: Duration| humantime::format_duration(time).to_string();
        let followers = self.followers.iter().map(|followers| number(*followers)).collect::<Vec<_>>();
        [
            ("rounds", number(self.rounds)),
            ("connections", format!("{}, one for each follower", number(self.connections()))),
            ("followers of an author", format!("{}, each timed for {}", followers.join("; "), time(self.timed))),
            ("messages", format!("to {} followers, for {}", number(self.audience), time(self.lasts))),
            ("window", format!("{} posts", number(self.window))),
            ("publishers", format!("{} of Tidewire, which wait for answers; 1 of the others", number(self.publishers))),
            ("body", format!("{} bytes", number(self.body_bytes))),
            ("idle connections", format!("read after {}", time(self.settle))),
            ("absence", time(self.away)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// The results of a design so far.
#[derive(Default)]
struct Collected {
    turns: Vec<Results>,
    left_out: Option<String>,
    failure: Option<String>,
}

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The results of each design.
    pub targets: Vec<TargetReport>,
    /// The load of the machine during the measurements.
    pub environment: Environment,
    /// Problems that cannot be seen in the results themselves.
    pub warnings: Vec<String>,
}

/// Runs the comparison.
///
/// # Errors
/// If the limit on open files is too low, a signal ends the run, or no design can take part. The report lists designs that cannot take
/// part, with the reason.
pub fn compare(settings: &Settings, progress: &Progress) -> Result<Compared, Error> {
    raise_open_files(settings.connections(), "live compare")?;
    until_signal(all(settings, progress))
}

async fn all(settings: &Settings, progress: &Progress) -> Result<Compared, Error> {
    let absent = |design: &Design| Collected { left_out: design.absence(), ..Collected::default() };
    let mut collected: Vec<Collected> = settings.designs.iter().map(absent).collect();
    let mut environment = Environment::new(CLIENT_CORES_MAX);
    for round in 0..settings.rounds {
        for nth in turns(collected.len(), settings.seed, round) {
            let design = &mut collected[nth];
            if design.left_out.is_some() || design.failure.is_some() {
                continue;
            }
            let turn = Turn {
                design: settings.designs[nth],
                settings,
                goes_away: round + 1 == settings.rounds,
                progress,
                round: format!("round {} of {}", round + 1, settings.rounds),
            };
            match turn.take().await {
                Ok(mut results) => {
                    environment.stretches.append(&mut results.stretches);
                    design.turns.push(results);
                }
                Err(cause) if design.turns.is_empty() => design.left_out = Some(cause.to_string()),
                Err(cause) => design.failure = Some(format!("round {}: {cause}", round + 1)),
            }
        }
    }
    let named = settings.designs.iter().zip(collected);
    let mut warnings = Vec::new();
    let targets: Vec<TargetReport> =
        named.map(|(design, collected)| collected.report(*design, settings, &mut warnings)).collect();
    if targets.iter().all(|target| target.left_out.is_some()) {
        let reasons = targets.iter().filter_map(|target| target.left_out.as_deref()).collect::<Vec<_>>();
        return Err(Failure::Failed(format!("no design can take part: {}", reasons.join("; "))).into());
    }
    Ok(Compared { targets, environment, warnings })
}

impl Collected {
    fn report(self, design: Design, settings: &Settings, warnings: &mut Vec<String>) -> TargetReport {
        let name = design.name().to_owned();
        let mut report = TargetReport { name, left_out: self.left_out, ..TargetReport::default() };
        report.failures.extend(self.failure);
        let Some(first) = self.turns.first() else { return report };
        report.settings.clone_from(&first.settings);
        let idle: Vec<f64> = self.turns.iter().map(|turn| turn.idle_bytes).collect();
        let paced: Vec<f64> = self.turns.iter().map(|turn| turn.paced_us).collect();
        let back: Vec<f64> = self.turns.iter().filter_map(|turn| turn.back).collect();
        let failed = self.turns.iter().map(|turn| turn.failed).sum();
        let mut timed: Vec<Rounds> = settings.followers.iter().map(|_| Rounds::default()).collect();
        let mut messages = Vec::new();
        for (nth, turn) in self.turns.into_iter().enumerate() {
            let round = nth + 1;
            report.failures.extend(turn.troubles.into_iter().map(|trouble| format!("round {round}: {trouble}")));
            timed.iter_mut().zip(turn.latencies).for_each(|(rounds, round)| rounds.push(round));
            messages.extend(turn.messages);
        }
        let mut add = |name: &str, case: Case| drop(report.cases.insert(name.to_owned(), case));
        for (rounds, followers) in timed.iter().zip(&settings.followers) {
            let case = followers_case(*followers);
            warnings.extend(rounds.warning().map(|warning| format!("{} {case}: {warning}", design.name())));
            let [last, _] = rounds.cases(0);
            add(&case, last);
            add(&format!("{case}_p99"), rounds.p99_case());
        }
        add(IDLE, sizes("bytes/connection", idle));
        add(AWAY, sizes("posts", back));
        add(PACED_TIME_OF_A_MESSAGE, sizes("us", paced));
        add(TIME_OF_A_MESSAGE, time_of_a_message(&messages));
        add(MESSAGES, throughput::case(&messages, failed));
        report
    }
}

/// Returns the name of a case of an author with this many followers.
fn followers_case(followers: usize) -> String {
    format!("to_last_of_{followers}")
}

fn sizes(unit: &str, rounds: Vec<f64>) -> Case {
    let median = middle(&rounds).and_then(|nth| rounds.get(nth)).copied().unwrap_or_default();
    Case { unit: unit.to_owned(), median, rounds, ..Case::default() }
}

/// Returns the case of the server's processor time for each delivered message.
fn time_of_a_message(rounds: &[throughput::Round]) -> Case {
    let times = rounds.iter().map(|round| round.cores.server / round.per_second.max(f64::EPSILON) * 1e6);
    sizes("us", times.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::machine::Cores;
    use crate::report::compare::ratios;

    fn settings() -> Settings {
        let seconds = Duration::from_secs;
        Settings {
            designs: Design::ALL.to_vec(),
            rounds: 3,
            followers: vec![10, 1_000],
            timed: seconds(1),
            audience: 500,
            lasts: seconds(2),
            window: 256,
            publishers: 16,
            body_bytes: 100,
            settle: seconds(2),
            away: seconds(10),
            seed: 1,
        }
    }

    fn turn(idle_bytes: f64, per_second: f64, back: Option<f64>) -> Results {
        let cores = Cores { server: 0.5, client: 0.4 };
        let messages = Some(throughput::Round { per_second, cores, all_heard: true });
        Results { idle_bytes, messages, back, ..Results::default() }
    }

    #[test]
    fn medians_of_all_turns_and_the_missing_last_delivery_are_reported() {
        let report = |design: Design, times: f64, back| {
            let turns = [(300.0, 1_000.0), (100.0, 4_000.0), (200.0, 2_000.0)];
            let mut turns: Vec<Results> =
                turns.iter().map(|(idle, rate)| turn(idle * times, rate / times, None)).collect();
            turns[2].back = Some(back);
            turns[1].troubles.push("2 messages lost".to_owned());
            turns[1].failed = 2;
            Collected { turns, ..Collected::default() }.report(design, &settings(), &mut Vec::new())
        };
        let targets = [report(Design::TidewireHttp, 1.0, 20.0), report(Design::Nats, 2.0, 0.0)];
        let own = &targets[0];
        let of = |name: &str| own.cases[name].median;
        assert_eq!((of(IDLE), of(MESSAGES), of(TIME_OF_A_MESSAGE).round(), of(AWAY)), (200.0, 2_000.0, 250.0, 20.0));
        assert_eq!((own.cases[AWAY].rounds.len(), own.cases[MESSAGES].failed), (1, 2));
        assert_eq!(own.failures, ["round 2: 2 messages lost"]);
        let ratios = ratios(&targets);
        let ratio = |name: &str| ratios.get(name).map(|of| of["nats"]);
        assert_eq!((ratio(IDLE), ratio(MESSAGES), ratio(TIME_OF_A_MESSAGE)), (Some(0.5), Some(2.0), Some(0.5)));
        assert_eq!(ratio(AWAY), None);
    }

    #[test]
    fn a_design_that_did_not_start_is_reported_as_left_out() {
        let collected = Collected { left_out: Some("no server".to_owned()), ..Collected::default() };
        let report = collected.report(Design::Mosquitto, &settings(), &mut Vec::new());
        assert_eq!((report.left_out.as_deref(), report.cases.len()), (Some("no server"), 0));
    }

    #[test]
    fn every_follower_has_a_connection() {
        assert_eq!(settings().connections(), 1_510);
        assert_eq!(settings().describe()["connections"], "1,510, one for each follower");
    }
}

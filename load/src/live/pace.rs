//! Publishes at a steady rate, and measures the time until the audience has received each post.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::time::sleep_until;

use crate::drive::recorder::{histogram, record};
use crate::live::api::Publish;
use crate::live::audience::{Audience, Receipt};
use crate::live::machine::Cores;
use crate::measure::middle;
use crate::operation::{Kind, User};
use crate::report::{Case, Latency, figure};
use crate::target::Failure;

/// Interval between two posts, without the time for the audience.
const INTERVAL: Duration = Duration::from_millis(20);

/// Additional interval for each reader of the audience.
const INTERVAL_EACH: Duration = Duration::from_micros(30);

/// Maximum share of late posts before there is a warning.
const LATE_SHARE_MAX: f64 = 0.01;

/// The results of one round.
pub(super) struct Round {
    /// Time until the first follower has read the whole message.
    first: Histogram<u64>,
    /// Time until the last follower has read it.
    last: Histogram<u64>,
    /// Number of posts that were published late, because the post before was still being received.
    late: u64,
    /// Number of posts that not all followers received.
    pub(super) unheard: u64,
    /// Cores used during the round.
    pub(super) cores: Cores,
}

/// The author and the body of the posts.
#[derive(Clone, Copy)]
pub(super) struct Posts<'a> {
    pub(super) author: User,
    pub(super) body: &'a str,
    pub(super) count: usize,
}

/// Publishes at an interval in which this audience should receive each post before the next one. Ends early after a post that not all
/// followers received.
pub(super) async fn publish(
    publisher: &mut impl Publish,
    posts: Posts<'_>,
    audience: &Audience,
    mut tick: impl FnMut(f64),
) -> Result<Round, Failure> {
    let mut round = Round { first: histogram(), last: histogram(), late: 0, unheard: 0, cores: Cores::default() };
    let interval = interval(audience.size());
    let mut due = Instant::now();
    for nth in 0..posts.count {
        tick(nth as f64 / posts.count as f64);
        let late = Instant::now().saturating_duration_since(due);
        // The first post is due immediately, so it cannot be late.
        round.late += u64::from(nth > 0 && !late.is_zero());
        due += late;
        sleep_until(due.into()).await;
        due += interval;
        let heard_before = audience.complete();
        let sent = Instant::now();
        publisher.publish(posts.author, posts.body).await?;
        let heard = audience.wait_until_complete(heard_before + 1).await;
        let Some(Receipt { first, last, .. }) = audience.receipt(heard_before).filter(|_| heard) else {
            round.unheard += 1;
            break;
        };
        record(&mut round.first, first - sent);
        record(&mut round.last, last - sent);
    }
    Ok(round)
}

/// Returns the interval between two posts for this many followers.
pub(super) fn interval(followers: usize) -> Duration {
    INTERVAL + INTERVAL_EACH * u32::try_from(followers).unwrap_or(u32::MAX)
}

/// Several rounds of the same measurement.
#[derive(Default)]
pub(super) struct Rounds(Vec<Round>);

impl Rounds {
    pub(super) fn push(&mut self, round: Round) {
        self.0.push(round);
    }

    /// Returns the number of posts that not all followers received.
    pub(super) fn unheard(&self) -> u64 {
        self.0.iter().map(|round| round.unheard).sum()
    }

    /// Returns a warning if too many posts waited for the one before: their latencies start when they were sent.
    pub(super) fn warning(&self) -> Option<String> {
        let late: u64 = self.0.iter().map(|round| round.late).sum();
        let posts: u64 = self.0.iter().map(|round| round.last.len()).sum();
        (late as f64 > posts as f64 * LATE_SHARE_MAX).then(|| {
            format!(
                "{} of {} posts were sent later than planned, since the previous one was still being delivered: at the \
                 planned rate, times would be longer.",
                figure::count(late),
                figure::count(posts)
            )
        })
    }

    /// Returns two cases: the time until the last follower has received a post, with all failures, and until the first has.
    pub(super) fn cases(&self, failed: u64) -> [Case; 2] {
        let last = self.case(|round| &round.last);
        [Case { failed: failed + self.unheard(), ..last }, self.case(|round| &round.first)]
    }

    /// Returns the case whose results are the p99s of the time until the last follower has received a post.
    pub(super) fn p99_case(&self) -> Case {
        let samples = self.0.iter().map(|round| round.last.len()).min();
        Case { round_samples_min: samples, ..self.case_of(|round| &round.last, |latency| latency.p99_us) }
    }

    /// Computes a case. The result of a round is its median.
    fn case(&self, of: impl Fn(&Round) -> &Histogram<u64>) -> Case {
        self.case_of(of, |latency| latency.p50_us)
    }

    fn case_of(&self, of: impl Fn(&Round) -> &Histogram<u64>, figure: impl Fn(&Latency) -> f64) -> Case {
        let rounds: Vec<f64> = self.0.iter().map(|round| figure(&Latency::of(of(round)))).collect();
        let Some(round) = middle(&rounds).and_then(|nth| self.0.get(nth)) else { return Case::default() };
        let mut all = histogram();
        for round in &self.0 {
            // Adding cannot fail: all histograms have the same bounds.
            let _ = all.add(of(round));
        }
        Case {
            unit: "us".to_owned(),
            median: figure(&Latency::of(of(round))),
            latencies: [(Kind::Publish, Latency::of(&all))].into(),
            server_cores: round.cores.server,
            client_cores: round.cores.client,
            rounds,
            ..Case::default()
        }
    }
}

impl Round {
    /// Returns a one-line summary.
    pub(super) fn describe(&self) -> String {
        let [first, last] = [&self.first, &self.last].map(|times| figure::time_us(Latency::of(times).p50_us));
        let unheard = if self.unheard > 0 { ", then one was not received by all" } else { "" };
        format!("{first} to the first, {last} to the last, median of {} posts{unheard}", self.last.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(firsts_us: &[u64], lasts_us: &[u64], unheard: u64) -> Round {
        let of = |times: &[u64]| {
            let mut into = histogram();
            times.iter().for_each(|time| record(&mut into, Duration::from_micros(*time)));
            into
        };
        let cores = Cores { server: lasts_us.len() as f64, client: 0.0 };
        Round { first: of(firsts_us), last: of(lasts_us), late: unheard, unheard, cores }
    }

    #[test]
    fn a_round_has_the_median_of_its_posts_and_latencies_are_of_all_posts() {
        let mut rounds = Rounds::default();
        rounds.push(round(&[10, 20, 30], &[100, 200, 300], 0));
        rounds.push(round(&[40], &[400], 1));
        rounds.push(round(&[5, 6], &[50, 60], 0));
        let [last, first] = rounds.cases(7);
        assert_eq!((last.unit.as_str(), last.median.round(), last.failed), ("us", 200.0, 8));
        assert_eq!(last.rounds.iter().map(|figure| figure.round()).collect::<Vec<_>>(), [200.0, 400.0, 50.0]);
        assert_eq!((last.latencies[&Kind::Publish].count, last.server_cores), (6, 3.0));
        assert_eq!((first.median.round(), first.failed), (20.0, 0));
    }

    #[test]
    fn late_posts_cause_a_warning() {
        let mut rounds = Rounds::default();
        rounds.push(round(&[10], &[100], 0));
        assert_eq!(rounds.warning(), None);
        rounds.push(round(&[10], &[100], 1));
        assert!(rounds.warning().unwrap().starts_with("1 of 2 posts were sent later than planned"));
    }

    #[test]
    fn a_round_is_described_in_one_line() {
        let reported = round(&[10, 20, 30], &[100, 200, 300], 1).describe();
        assert_eq!(
            reported,
            "20.0 µs to the first, 200 µs to the last, median of 3 posts, then one was not received by all"
        );
    }
}

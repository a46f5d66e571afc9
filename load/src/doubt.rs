//! Whether to believe a run's own figures.
//!
//! Responsible for:
//! - saying what speaks against a figure, where, and by how much, in a sentence each.
//!
//! Not responsible for:
//! - looking at the machine (`surroundings`), telling the doubts (`report`);
//! - answers that are wrong: designs that give such are left out before anything is timed (`check`).

use crate::operation::Kind;
use crate::report::figure::{count, time_us};
use crate::report::{Case, Report, compare};
use crate::surroundings::{Stretch, Surroundings};

/// How far apart rounds may lie, as a share of their median.
pub const SPREAD_MAX: f64 = 0.3;
/// Of the cores that the client may use, the share up to which it is not what holds the server up.
pub const CLIENT_SHARE_MAX: f64 = 0.9;
/// How many times the server's processor time a client may take, once it is busy at all.
pub const CLIENT_OVER_SERVER_MAX: f64 = 2.0;
/// Of the cores that the client may use, the share from which on it counts as busy.
const CLIENT_BUSY_SHARE: f64 = 0.5;
/// Of the whole machine, what other programs may take.
pub const OTHERS_SHARE_MAX: f64 = 0.1;
/// Of the whole machine, what other machines on the same hardware may take.
pub const STEAL_SHARE_MAX: f64 = 0.02;
/// Samples that a p99 needs.
pub const P99_SAMPLES_MIN: u64 = 1_000;
/// Samples that a p99.9 needs.
pub const P999_SAMPLES_MIN: u64 = 10_000;
/// How late operations of an open loop may begin, at the p99.
pub const LATE_P99_MAX_US: f64 = 1_000.0;
/// Rounds without which nothing is known of noise.
pub const ROUNDS_MIN: usize = 3;

/// All that speaks against the figures of a run, the gravest first. Empty if nothing does.
pub fn doubts(report: &Report, surroundings: &Surroundings) -> Vec<String> {
    let mut doubts = Vec::new();
    if surroundings.unoptimised {
        doubts.push("This program was built without optimisation, so no figure here means anything.".to_owned());
    }
    doubts.extend(others(&surroundings.stretches));
    doubts.extend(steal(&surroundings.stretches));
    for name in compare::cases(report) {
        doubts.extend(few_rounds(report, name));
        for target in compare::took_part(report) {
            let Some(case) = target.cases.get(name) else { continue };
            let place = format!("{} of {}", compare::label(name), target.name);
            let found = [
                failed(case),
                spread(case),
                client(case, surroundings.client_cores_max),
                late(case),
                samples(case, "p99", 0, P99_SAMPLES_MIN),
                samples(case, "p99.9", P99_SAMPLES_MIN, P999_SAMPLES_MIN),
            ];
            doubts.extend(found.into_iter().flatten().map(|doubt| format!("{place}: {doubt}")));
        }
    }
    doubts
}

fn others(stretches: &[Stretch]) -> Option<String> {
    let found = worst(stretches, OTHERS_SHARE_MAX, |stretch| stretch.others_share)?;
    Some(format!("Other programs took {found}, so figures are lower, and latencies higher, than they need be."))
}

fn steal(stretches: &[Stretch]) -> Option<String> {
    let found = worst(stretches, STEAL_SHARE_MAX, |stretch| stretch.steal_share)?;
    Some(format!("Other machines on the same hardware took {found}, so the slowest operations may be theirs."))
}

/// The worst of those over a limit, and how many more there are: every stretch by itself would bury the rest.
fn worst(stretches: &[Stretch], limit: f64, share: impl Fn(&Stretch) -> f64) -> Option<String> {
    let over = || stretches.iter().filter(|stretch| share(stretch) > limit);
    let worst = over().max_by(|one, other| share(one).total_cmp(&share(other)))?;
    let more = match over().count() - 1 {
        0 => String::new(),
        more => format!(", and too much during {more} more"),
    };
    Some(format!("{} of the machine during {} (limit {}){more}", percent(share(worst)), worst.what, percent(limit)))
}

/// All designs in one sentence, since it is the run that was too short. Sizes hardly vary, and are measured once.
fn few_rounds(report: &Report, name: &str) -> Option<String> {
    let few: Vec<String> = compare::took_part(report)
        .filter_map(|target| Some((target, target.cases.get(name)?)))
        .filter(|(_, case)| case.rounds.len() < ROUNDS_MIN && !case.unit.starts_with("bytes"))
        .map(|(target, case)| format!("{} ({})", target.name, case.rounds.len()))
        .collect();
    let label = compare::label(name);
    let doubt = || format!("{label}: fewer than {ROUNDS_MIN} rounds of {}, so nothing tells noise.", few.join(", "));
    (!few.is_empty()).then(doubt)
}

fn failed(case: &Case) -> Option<String> {
    let what = if case.failed == 1 { "operation was" } else { "operations were" };
    (case.failed > 0).then(|| format!("{} {what} refused or failed.", count(case.failed)))
}

fn spread(case: &Case) -> Option<String> {
    let mut rounds = case.rounds.clone();
    rounds.sort_by(f64::total_cmp);
    let (least, most, median) = (rounds.first()?, rounds.last()?, rounds.get(rounds.len() / 2)?);
    let spread = (most - least) / median;
    (spread > SPREAD_MAX).then(|| {
        format!("the rounds lie {} of their median apart (limit {}): noise.", percent(spread), percent(SPREAD_MAX))
    })
}

fn client(case: &Case, cores_max: f64) -> Option<String> {
    let (client, server) = (case.client_cores, case.server_cores);
    if client > cores_max * CLIENT_SHARE_MAX {
        return Some(format!(
            "the client took {client:.2} of the {cores_max:.2} cores it may use, so it was the bottleneck, \
             and the server may do more."
        ));
    }
    // What runs within this program has no server of its own to compare with.
    let busy = client > cores_max * CLIENT_BUSY_SHARE;
    let over = server > 0.0 && client > server * CLIENT_OVER_SERVER_MAX;
    (busy && over).then(|| {
        format!("the client took {client:.2} cores, the server only {server:.2}, so the server may well do more.")
    })
}

fn late(case: &Case) -> Option<String> {
    let late = case.late_p99_us.filter(|late| *late > LATE_P99_MAX_US)?;
    Some(format!(
        "1 in 100 operations began {} late or more (limit {}), since the client could not keep the rate up.",
        time_us(late),
        time_us(LATE_P99_MAX_US)
    ))
}

/// Kinds of operations with at least `from` samples, but fewer than `quantile` needs.
fn samples(case: &Case, quantile: &str, from: u64, needed: u64) -> Option<String> {
    let few: Vec<String> = case
        .latencies
        .iter()
        .filter(|(_, latency)| (from..needed).contains(&latency.count))
        .map(|(kind, latency)| format!("{} ({})", Kind::label(*kind), count(latency.count)))
        .collect();
    let needed = count(needed);
    (!few.is_empty()).then(|| format!("fewer than {needed} samples are behind the {quantile} of {}.", few.join(", ")))
}

/// A tenth of a percent matters where the limit is a few percent: 2.1 % must not read as the limit itself.
fn percent(share: f64) -> String {
    let text = format!("{:.1} %", share * 100.0);
    text.replace(".0 %", " %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Latency, TargetReport, sample};

    fn quiet() -> Surroundings {
        Surroundings { client_cores_max: 1.0, stretches: Vec::new(), unoptimised: false }
    }

    fn good() -> Case {
        let latency = Latency { count: P999_SAMPLES_MIN, ..Latency::default() };
        Case {
            unit: "pages/s".to_owned(),
            median: 100.0,
            rounds: vec![100.0; ROUNDS_MIN],
            latencies: [(Kind::Page, latency)].into(),
            server_cores: 0.9,
            client_cores: 0.4,
            ..Case::default()
        }
    }

    fn of(case: Case, surroundings: &Surroundings) -> Vec<String> {
        let target = TargetReport {
            name: "redis_list".to_owned(),
            cases: [("page".to_owned(), case)].into(),
            ..TargetReport::default()
        };
        doubts(&Report { targets: vec![target], ..sample::report() }, surroundings)
    }

    fn check(change: impl FnOnce(&mut Case, &mut Surroundings), expected: &[&str]) {
        let (mut case, mut surroundings) = (good(), quiet());
        change(&mut case, &mut surroundings);
        assert_eq!(of(case, &surroundings), expected);
    }

    fn stretch(what: &str, others_share: f64, steal_share: f64) -> Stretch {
        Stretch { what: what.to_owned(), others_share, steal_share }
    }

    #[test]
    fn a_quiet_run_is_believed() {
        check(|_, _| {}, &[]);
    }

    #[test]
    fn rounds_that_lie_three_tenths_apart_are_believed() {
        check(|case, _| case.rounds = vec![85.0, 100.0, 115.0], &[]);
    }

    #[test]
    fn rounds_that_lie_further_apart_are_noise() {
        let noise = "Feed pages of redis_list: the rounds lie 31 % of their median apart (limit 30 %): noise.";
        check(|case, _| case.rounds = vec![115.0, 84.0, 100.0], &[noise]);
    }

    #[test]
    fn a_client_that_takes_nine_tenths_of_its_cores_is_believed() {
        check(|case, _| case.client_cores = 0.9, &[]);
    }

    #[test]
    fn a_client_that_takes_more_was_the_bottleneck() {
        let bottleneck = "Feed pages of redis_list: the client took 0.91 of the 1.00 cores it may use, so it was the \
                          bottleneck, and the server may do more.";
        check(|case, _| case.client_cores = 0.91, &[bottleneck]);
    }

    #[test]
    fn a_client_that_takes_twice_what_the_server_does_is_believed() {
        check(|case, _| (case.client_cores, case.server_cores) = (0.8, 0.4), &[]);
    }

    #[test]
    fn a_client_that_takes_over_twice_what_the_server_does_is_doubted() {
        let doubt = "Feed pages of redis_list: the client took 0.80 cores, the server only 0.39, so the server may well \
                     do more.";
        check(|case, _| (case.client_cores, case.server_cores) = (0.8, 0.39), &[doubt]);
    }

    #[test]
    fn a_client_with_little_to_do_may_take_more_than_an_idle_server() {
        check(|case, _| (case.client_cores, case.server_cores) = (0.5, 0.1), &[]);
    }

    #[test]
    fn a_design_within_this_program_has_no_server_to_compare_with() {
        check(|case, _| (case.client_cores, case.server_cores) = (0.8, 0.0), &[]);
    }

    #[test]
    fn other_programs_may_take_a_tenth_of_the_machine_and_others_on_the_hardware_two_percent() {
        check(|_, around| around.stretches = vec![stretch("page of redis_list", 0.1, 0.02)], &[]);
    }

    #[test]
    fn other_programs_that_take_more_are_named_where_they_took_most() {
        let doubt = "Other programs took 14 % of the machine during memory (limit 10 %), and too much during 1 more, so \
                     figures are lower, and latencies higher, than they need be.";
        let stretches = vec![stretch("page", 0.11, 0.0), stretch("memory", 0.14, 0.0), stretch("mixed", 0.1, 0.0)];
        check(|_, around| around.stretches = stretches, &[doubt]);
    }

    #[test]
    fn time_that_is_stolen_is_told() {
        let doubt = "Other machines on the same hardware took 2.1 % of the machine during page (limit 2 %), so the \
                     slowest operations may be theirs.";
        check(|_, around| around.stretches = vec![stretch("page", 0.0, 0.021)], &[doubt]);
    }

    #[test]
    fn a_p99_needs_a_thousand_samples() {
        let few = "Feed pages of redis_list: fewer than 1,000 samples are behind the p99 of feed page (999).";
        check(|case, _| case.latencies.get_mut(&Kind::Page).unwrap().count = 999, &[few]);
    }

    #[test]
    fn a_p999_needs_ten_thousand_samples() {
        for few in [1_000, 9_999] {
            let told = format!(
                "Feed pages of redis_list: fewer than 10,000 samples are behind the p99.9 of feed page ({}).",
                count(few)
            );
            check(|case, _| case.latencies.get_mut(&Kind::Page).unwrap().count = few, &[&told]);
        }
        check(|case, _| case.latencies.get_mut(&Kind::Page).unwrap().count = 10_000, &[]);
    }

    #[test]
    fn operations_that_failed_are_counted() {
        check(|case, _| case.failed = 1, &["Feed pages of redis_list: 1 operation was refused or failed."]);
        check(|case, _| case.failed = 1_234, &["Feed pages of redis_list: 1,234 operations were refused or failed."]);
    }

    #[test]
    fn operations_may_begin_a_millisecond_late() {
        check(|case, _| case.late_p99_us = Some(1_000.0), &[]);
    }

    #[test]
    fn operations_that_begin_later_are_told() {
        let late = "Feed pages of redis_list: 1 in 100 operations began 1.1 ms late or more (limit 1.0 ms), since the \
                    client could not keep the rate up.";
        check(|case, _| case.late_p99_us = Some(1_100.0), &[late]);
    }

    #[test]
    fn three_rounds_are_enough_and_two_are_not() {
        let few = "Feed pages: fewer than 3 rounds of redis_list (2), so nothing tells noise.";
        check(|case, _| case.rounds = vec![1.0; 3], &[]);
        check(|case, _| case.rounds = vec![1.0; 2], &[few]);
    }

    #[test]
    fn a_size_may_be_measured_once() {
        check(|case, _| (case.unit, case.rounds) = ("bytes/inbox".to_owned(), vec![4_700.0]), &[]);
    }

    #[test]
    fn a_build_without_optimisation_is_told_first() {
        let worthless = "This program was built without optimisation, so no figure here means anything.";
        let failed = "Feed pages of redis_list: 2 operations were refused or failed.";
        check(|case, around| (case.failed, around.unoptimised) = (2, true), &[worthless, failed]);
    }

    #[test]
    fn designs_that_were_left_out_are_not_doubted() {
        let mut report = sample::report();
        for target in &mut report.targets {
            target.left_out = Some("not installed".to_owned());
        }
        assert!(doubts(&report, &quiet()).is_empty());
    }
}

//! Detects problems that make the results of a run unreliable.

use std::collections::BTreeSet;

use crate::environment::{Environment, Stretch};
use crate::operation::Kind;
use crate::report::figure::{count, time_us};
use crate::report::{Case, Report, TargetReport, compare};

/// Maximum spread of rounds, as a share of their median.
pub const SPREAD_MAX: f64 = 0.3;
/// Maximum share of its cores that the client may use without counting as the bottleneck.
pub const CLIENT_SHARE_MAX: f64 = 0.9;
/// Maximum ratio of the processor time of the client to that of the server, if the client is busy.
pub const CLIENT_OVER_SERVER_MAX: f64 = 2.0;
/// Share of its cores from which on the client counts as busy.
const CLIENT_BUSY_SHARE: f64 = 0.5;
/// Maximum share of the whole machine that other programs may use.
pub const OTHERS_SHARE_MAX: f64 = 0.1;
/// Maximum share of the whole machine that other virtual machines on the same hardware may use.
pub const STEAL_SHARE_MAX: f64 = 0.02;
/// Maximum share of the whole machine that idle designs may use.
pub const WAITING_SHARE_MAX: f64 = 0.02;
/// Minimum number of samples for a p99.
pub const P99_SAMPLES_MIN: u64 = 1_000;
/// Maximum delay of operations of an open loop at the p99, in microseconds.
pub const LATE_P99_MAX_US: f64 = 1_000.0;
/// Minimum number of rounds to estimate the noise.
pub const ROUNDS_MIN: usize = 3;

/// A check of one case. It returns a text if there is a problem.
type Rule<'a> = dyn Fn(&Case) -> Option<String> + 'a;

/// Returns all problems of a run, the most serious first.
pub fn warnings(report: &Report, environment: &Environment) -> Vec<String> {
    let mut warnings = Vec::new();
    if environment.unoptimised {
        warnings.push("This program was built without optimisation, so its figures are meaningless.".to_owned());
    }
    warnings.extend(others(&environment.stretches));
    warnings.extend(steal(&environment.stretches));
    warnings.extend(waiting(&environment.stretches));
    let cores_max = environment.client_cores_max;
    let rules: [(&str, &Rule); 7] = [
        ("Operations that were refused or failed", &failed),
        ("The client was the bottleneck, and the server may do more; cores used by the client", &|case| {
            bottleneck(case, cores_max)
        }),
        ("The client used far more cores than the server, which may do more; cores of each", &|case| {
            outweighed(case, cores_max)
        }),
        ("Operations began late, since the client could not keep up the rate; p99 of the delay", &late),
        ("Noise, since rounds lie far apart; as a share of their median", &spread),
        ("Too few rounds to estimate noise", &few_rounds),
        ("Too few samples behind a p99", &few_samples),
    ];
    warnings.extend(rules.iter().filter_map(|(what, rule)| everywhere(report, what, rule)));
    warnings
}

/// Returns one sentence for all places where a rule is broken: a warning for each place would hide the other rules.
fn everywhere(report: &Report, what: &str, rule: &Rule) -> Option<String> {
    let of_case = |name: &str| {
        let of_target = |target: &TargetReport| Some(format!("{} {}", target.name, rule(target.cases.get(name)?)?));
        let places: Vec<String> = compare::took_part(report).filter_map(of_target).collect();
        (!places.is_empty()).then(|| format!("{}: {}", compare::label(name), places.join(", ")))
    };
    let places: Vec<String> = compare::cases(report).into_iter().filter_map(of_case).collect();
    (!places.is_empty()).then(|| format!("{what}. {}.", places.join("; ")))
}

fn others(stretches: &[Stretch]) -> Option<String> {
    let found = worst(stretches, OTHERS_SHARE_MAX, |stretch| stretch.others_share)?;
    Some(format!("Other programs used {found}, so rates are lower, and latencies higher, than without them."))
}

fn steal(stretches: &[Stretch]) -> Option<String> {
    let found = worst(stretches, STEAL_SHARE_MAX, |stretch| stretch.steal_share)?;
    Some(format!("Other machines on the same hardware used {found}, so they may have caused the slowest operations."))
}

/// Returns the warning about idle designs. All servers run all the time, so background work of an idle one slows the measured one down.
fn waiting(stretches: &[Stretch]) -> Option<String> {
    let found = worst(stretches, WAITING_SHARE_MAX, |stretch| stretch.waiting_share)?;
    let over = stretches.iter().filter(|stretch| stretch.waiting_share > WAITING_SHARE_MAX);
    let names: BTreeSet<&str> = over.map(|stretch| stretch.waiting_most.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!("Outside their turns, designs used {found}. Most by: {names}."))
}

/// Describes the worst period over a limit and the number of others: a warning for each would hide the rest.
fn worst(stretches: &[Stretch], limit: f64, share: impl Fn(&Stretch) -> f64) -> Option<String> {
    let over = || stretches.iter().filter(|stretch| share(stretch) > limit);
    let worst = over().max_by(|one, other| share(one).total_cmp(&share(other)))?;
    let more = match over().count() - 1 {
        0 => String::new(),
        more => format!(", also exceeded during {more} more"),
    };
    Some(format!("{} of the machine during {} (limit {}){more}", percent(share(worst)), worst.what, percent(limit)))
}

/// Sizes hardly vary and are measured once. Cases without latencies are derived from another case, which has its own rounds.
fn few_rounds(case: &Case) -> Option<String> {
    let rounds = case.rounds.len();
    let once = case.unit.starts_with("bytes") || case.latencies.is_empty();
    (rounds < ROUNDS_MIN && !once).then(|| rounds.to_string())
}

fn failed(case: &Case) -> Option<String> {
    (case.failed > 0).then(|| count(case.failed))
}

fn spread(case: &Case) -> Option<String> {
    let mut rounds = case.rounds.clone();
    rounds.sort_by(f64::total_cmp);
    let (least, most, median) = (rounds.first()?, rounds.last()?, rounds.get(rounds.len() / 2)?);
    let spread = (most - least) / median;
    (spread > SPREAD_MAX).then(|| percent(spread))
}

/// A design within this program has no server process: its processor time is part of the client's.
fn bottleneck(case: &Case, cores_max: f64) -> Option<String> {
    let over = case.server_cores > 0.0 && case.client_cores > cores_max * CLIENT_SHARE_MAX;
    over.then(|| format!("{:.2} of {cores_max:.2}", case.client_cores))
}

fn outweighed(case: &Case, cores_max: f64) -> Option<String> {
    let (client, server) = (case.client_cores, case.server_cores);
    let busy = client > cores_max * CLIENT_BUSY_SHARE;
    let over = server > 0.0 && client > server * CLIENT_OVER_SERVER_MAX;
    (busy && over && bottleneck(case, cores_max).is_none()).then(|| format!("{client:.2} and {server:.2}"))
}

fn late(case: &Case) -> Option<String> {
    case.late_p99_us.filter(|late| *late > LATE_P99_MAX_US).map(time_us)
}

/// Lists the kinds of operations whose p99 has too few samples. If the p99 is the result itself, each round needs enough.
fn few_samples(case: &Case) -> Option<String> {
    if let Some(least) = case.round_samples_min {
        return (least < P99_SAMPLES_MIN).then(|| format!("{} in a round", count(least)));
    }
    let few = case.latencies.iter().filter(|(_, latency)| latency.count < P99_SAMPLES_MIN);
    let few: Vec<String> =
        few.map(|(kind, latency)| format!("{} ({})", Kind::label(*kind), count(latency.count))).collect();
    (!few.is_empty()).then(|| few.join(" and "))
}

/// Formats with one decimal place, because some limits are a few percent: 2.1 % must differ from a limit of 2 %.
fn percent(share: f64) -> String {
    let text = format!("{:.1} %", share * 100.0);
    text.replace(".0 %", " %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Latency, sample};

    fn quiet() -> Environment {
        Environment { client_cores_max: 1.0, stretches: Vec::new(), unoptimised: false }
    }

    fn good() -> Case {
        let latency = Latency { count: P99_SAMPLES_MIN, ..Latency::default() };
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

    fn of(case: Case, environment: &Environment) -> Vec<String> {
        let target = TargetReport {
            name: "redis_list".to_owned(),
            cases: [("page".to_owned(), case)].into(),
            ..TargetReport::default()
        };
        warnings(&Report { targets: vec![target], ..sample::report() }, environment)
    }

    fn check(change: impl FnOnce(&mut Case, &mut Environment), expected: &[&str]) {
        let (mut case, mut environment) = (good(), quiet());
        change(&mut case, &mut environment);
        assert_eq!(of(case, &environment), expected);
    }

    fn stretch(what: &str, others_share: f64, steal_share: f64) -> Stretch {
        Stretch { what: what.to_owned(), others_share, steal_share, ..Stretch::default() }
    }

    #[test]
    fn a_quiet_run_has_no_warnings() {
        check(|_, _| {}, &[]);
    }

    #[test]
    fn rounds_within_thirty_percent_are_accepted() {
        check(|case, _| case.rounds = vec![85.0, 100.0, 115.0], &[]);
    }

    #[test]
    fn rounds_further_apart_are_reported_as_noise() {
        let noise = "Noise, since rounds lie far apart; as a share of their median. Feed pages: redis_list 31 %.";
        check(|case, _| case.rounds = vec![115.0, 84.0, 100.0], &[noise]);
    }

    #[test]
    fn a_client_that_uses_nine_tenths_of_its_cores_is_accepted() {
        check(|case, _| case.client_cores = 0.9, &[]);
    }

    #[test]
    fn a_client_that_uses_more_cores_is_reported_as_the_bottleneck() {
        let bottleneck = "The client was the bottleneck, and the server may do more; cores used by the client. \
                          Feed pages: redis_list 0.91 of 1.00.";
        check(|case, _| case.client_cores = 0.91, &[bottleneck]);
    }

    #[test]
    fn a_client_that_uses_twice_the_server_cores_is_accepted() {
        check(|case, _| (case.client_cores, case.server_cores) = (0.8, 0.4), &[]);
    }

    #[test]
    fn a_client_that_uses_over_twice_the_server_cores_causes_a_warning() {
        let warning = "The client used far more cores than the server, which may do more; cores of each. \
                     Feed pages: redis_list 0.80 and 0.39.";
        check(|case, _| (case.client_cores, case.server_cores) = (0.8, 0.39), &[warning]);
    }

    #[test]
    fn a_client_with_little_load_may_use_more_than_an_idle_server() {
        check(|case, _| (case.client_cores, case.server_cores) = (0.5, 0.1), &[]);
    }

    #[test]
    fn a_design_within_this_program_has_no_server_to_compare_with() {
        check(|case, _| (case.client_cores, case.server_cores) = (1.8, 0.0), &[]);
    }

    #[test]
    fn other_programs_may_use_ten_percent_and_other_machines_two_percent() {
        check(|_, around| around.stretches = vec![stretch("page of redis_list", 0.1, 0.02)], &[]);
    }

    #[test]
    fn other_programs_above_the_limit_are_reported_with_the_worst_case() {
        let warning = "Other programs used 14 % of the machine during memory (limit 10 %), also exceeded during 1 more, so \
                     rates are lower, and latencies higher, than without them.";
        let stretches = vec![stretch("page", 0.11, 0.0), stretch("memory", 0.14, 0.0), stretch("mixed", 0.1, 0.0)];
        check(|_, around| around.stretches = stretches, &[warning]);
    }

    #[test]
    fn steal_time_is_reported() {
        let warning = "Other machines on the same hardware used 2.1 % of the machine during page (limit 2 %), so they may \
                     have caused the slowest operations.";
        check(|_, around| around.stretches = vec![stretch("page", 0.0, 0.021)], &[warning]);
    }

    #[test]
    fn waiting_designs_may_use_two_percent_and_are_named_above_that() {
        let waiting = |what: &str, waiting_share, most: &str| Stretch {
            waiting_share,
            waiting_most: most.to_owned(),
            ..stretch(what, 0.0, 0.0)
        };
        check(|_, around| around.stretches = vec![waiting("page", 0.02, "redis_list")], &[]);
        let warning = "Outside their turns, designs used 5 % of the machine during page (limit 2 %), also exceeded during 1 \
                     more. Most by: mariadb_push, redis_zset.";
        let stretches =
            vec![waiting("mix", 0.03, "redis_zset"), waiting("page", 0.05, "mariadb_push"), waiting("x", 0.01, "a")];
        check(|_, around| around.stretches = stretches, &[warning]);
    }

    #[test]
    fn a_p99_needs_a_thousand_samples() {
        let few = "Too few samples behind a p99. Feed pages: redis_list feed page (999).";
        check(|case, _| case.latencies.get_mut(&Kind::Page).unwrap().count = 999, &[few]);
    }

    #[test]
    fn a_p99_result_needs_a_thousand_samples_in_each_round() {
        let few = "Too few samples behind a p99. Feed pages: redis_list 999 in a round.";
        check(|case, _| case.round_samples_min = Some(999), &[few]);
        check(|case, _| case.round_samples_min = Some(1_000), &[]);
    }

    #[test]
    fn operations_that_failed_are_counted() {
        let reported = "Operations that were refused or failed. Feed pages: redis_list 1,234.";
        check(|case, _| case.failed = 1_234, &[reported]);
    }

    #[test]
    fn operations_may_begin_a_millisecond_late() {
        check(|case, _| case.late_p99_us = Some(1_000.0), &[]);
    }

    #[test]
    fn operations_that_begin_later_are_reported() {
        let late = "Operations began late, since the client could not keep up the rate; p99 of the delay. \
                    Feed pages: redis_list 1.1 ms.";
        check(|case, _| case.late_p99_us = Some(1_100.0), &[late]);
    }

    #[test]
    fn three_rounds_are_enough_and_two_are_not() {
        let few = "Too few rounds to estimate noise. Feed pages: redis_list 2.";
        check(|case, _| case.rounds = vec![1.0; 3], &[]);
        check(|case, _| case.rounds = vec![1.0; 2], &[few]);
    }

    #[test]
    fn a_warning_with_many_cases_is_reported_once() {
        let (mut report, one) = (sample::report(), Case { failed: 7, ..good() });
        let cases = [("page".to_owned(), one.clone()), ("mix".to_owned(), one)];
        let target =
            |name: &str| TargetReport { name: name.to_owned(), cases: cases.clone().into(), ..Default::default() };
        report.targets = vec![target("redis_list"), target("redis_zset")];
        let reported = "Operations that were refused or failed. Feed pages: redis_list 7, redis_zset 7; Mix: redis_list 7, \
                    redis_zset 7.";
        assert_eq!(warnings(&report, &quiet()), [reported]);
    }

    #[test]
    fn a_size_may_be_measured_once() {
        check(|case, _| (case.unit, case.rounds) = ("bytes/inbox".to_owned(), vec![4_700.0]), &[]);
    }

    #[test]
    fn an_unoptimised_build_is_reported_first() {
        let worthless = "This program was built without optimisation, so its figures are meaningless.";
        let failed = "Operations that were refused or failed. Feed pages: redis_list 2.";
        check(|case, around| (case.failed, around.unoptimised) = (2, true), &[worthless, failed]);
    }

    #[test]
    fn designs_that_were_left_out_cause_no_warning() {
        let mut report = sample::report();
        for target in &mut report.targets {
            target.left_out = Some("not installed".to_owned());
        }
        assert!(warnings(&report, &quiet()).is_empty());
    }
}

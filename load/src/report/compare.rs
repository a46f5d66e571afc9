//! What is set side by side: cases in their order, the best of each, ratios.
//!
//! Responsible for:
//! - the order and the names in which cases are told, and which of their latencies stands for them;
//! - ratios between designs, and saying them.
//!
//! Not responsible for:
//! - figures as text (`figure`), whether to believe them (`warning`).

use std::collections::{BTreeMap, BTreeSet};

use super::{Case, Latency, Report, TargetReport, figure};
use crate::operation::Kind;

/// What the names of this project's own designs begin with.
const OWN: &str = "tidewire";

/// Cases that are told before all others; `memory` is told after them.
const FIRST: [&str; 3] = ["deliveries", "page", "own_page"];

/// Whether a design is this project's own, and so no rival of another such.
pub fn is_own(target: &TargetReport) -> bool {
    target.name.starts_with(OWN)
}

/// The designs that took part.
pub fn took_part(report: &Report) -> impl Iterator<Item = &TargetReport> {
    report.targets.iter().filter(|target| target.left_out.is_none())
}

/// The names of all cases, in the order they are told.
pub fn cases(report: &Report) -> Vec<&str> {
    let names: BTreeSet<&str> = took_part(report).flat_map(|target| target.cases.keys().map(String::as_str)).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| {
        let place = match FIRST.iter().position(|first| first == name) {
            Some(place) => place,
            None if *name == "memory" => usize::MAX,
            None => FIRST.len(),
        };
        (place, counted(name))
    });
    names
}

/// The names of cases that were measured once while others had several rounds, in the order they are told.
fn once(report: &Report) -> Vec<&str> {
    let with = |name: &str| took_part(report).filter_map(|target| target.cases.get(name)).collect::<Vec<_>>();
    let rounds = |name: &str| with(name).iter().map(|case| case.rounds.len()).max().unwrap_or(0);
    // How many times one figure is another is computed, from as many rounds as these have.
    let is_measured = |name: &&str| with(name).iter().all(|case| case.unit != "times");
    let names: Vec<&str> = cases(report).into_iter().filter(is_measured).collect();
    let most = names.iter().map(|name| rounds(name)).max().unwrap_or(0);
    names.into_iter().filter(|name| most > 1 && rounds(name) <= 1).collect()
}

/// What is told of the cases that were measured once: a sentence, if there are such.
pub fn once_told(report: &Report) -> Option<String> {
    let labels: Vec<String> = once(report).into_iter().map(label).collect();
    (!labels.is_empty()).then(|| format!("Measured once, not in rounds: {}.", labels.join(", ")))
}

/// Words and numbers of a name, by which 10 comes before 1000.
fn counted(name: &str) -> Vec<(Option<u64>, &str)> {
    name.split('_').map(|part| (part.parse().ok(), part)).collect()
}

/// A case's name for people.
pub fn label(case: &str) -> String {
    match case {
        "deliveries" => "Deliveries".to_owned(),
        "page" => "Feed pages".to_owned(),
        "own_page" => "Own pages".to_owned(),
        "memory" => "Memory of an inbox".to_owned(),
        other => {
            let mut text = other.replace('_', " ");
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            text
        }
    }
}

/// The latency that stands for a case, if there is one such.
pub fn main_latency<'a>(name: &str, case: &'a Case) -> Option<&'a Latency> {
    let kind = match name {
        "deliveries" => Some(Kind::Publish),
        "page" => Some(Kind::Page),
        "own_page" => Some(Kind::OwnPage),
        _ => None,
    };
    let only = || case.latencies.values().next().filter(|_| case.latencies.len() == 1);
    kind.and_then(|kind| case.latencies.get(&kind)).or_else(only)
}

/// Kinds of operations that were timed in a case, by any design.
pub fn kinds(report: &Report, case: &str) -> BTreeSet<Kind> {
    let cases = took_part(report).filter_map(|target| target.cases.get(case));
    cases.flat_map(|case| case.latencies.keys().copied()).collect()
}

/// Whether more is better. Otherwise, of times and sizes, less is.
pub fn more_is_better(unit: &str) -> bool {
    unit.ends_with("/s")
}

/// The name of the design that did best in a case. Nobody is best alone.
pub fn best<'a>(report: &'a Report, case: &str) -> Option<&'a str> {
    let figures = || took_part(report).filter_map(|target| Some((target, target.cases.get(case)?)));
    let finite = figures().filter(|(_, case)| case.median.is_finite());
    let best = finite.max_by(|(_, one), (_, other)| {
        let order = one.median.total_cmp(&other.median);
        if more_is_better(&one.unit) { order } else { order.reverse() }
    })?;
    (figures().count() > 1).then_some(best.0.name.as_str())
}

/// What the names of ratios between p99s end with, behind the case's.
const P99: &str = "_p99";

/// What the names of ratios of Tidewire embedded end with.
const IN_PROCESS: &str = "_in_process";

/// The figures of the first design over those of its rivals: case -> rival -> ratio. What cannot be divided is left out.
///
/// Other designs of the same project are no rivals. `page_p99` and the like are ratios of the p99 of what is asked as fast as
/// it goes; `page_in_process` and the like have Tidewire embedded in place of the first design. Of rates, more than 1 speaks for
/// Tidewire; of times and sizes, less.
pub fn ratios(targets: &[TargetReport]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut ratios: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let mut add = |name: String, rival: &TargetReport, ratio: f64| {
        if ratio.is_finite() && ratio > 0.0 {
            ratios.entry(name).or_default().insert(rival.name.clone(), ratio);
        }
    };
    let took_part = || targets.iter().filter(|target| target.left_out.is_none());
    let Some(own) = took_part().find(|target| is_own(target) && !target.name.ends_with(IN_PROCESS)) else {
        return ratios;
    };
    let embedded = took_part().find(|target| target.name.ends_with(IN_PROCESS) && target.name != own.name);
    for rival in took_part().filter(|target| !is_own(target)) {
        for (name, case) in &rival.cases {
            if let Some(own) = own.cases.get(name) {
                add(name.clone(), rival, own.median / case.median);
                if let Some((own, other)) = p99_of_rate(name, own).zip(p99_of_rate(name, case)) {
                    add(format!("{name}{P99}"), rival, own / other);
                }
            }
            if let Some(own) = embedded.and_then(|embedded| embedded.cases.get(name)) {
                add(format!("{name}{IN_PROCESS}"), rival, own.median / case.median);
            }
        }
    }
    ratios
}

/// The p99 that stands for a case whose figure is a rate.
fn p99_of_rate(name: &str, case: &Case) -> Option<f64> {
    main_latency(name, case).filter(|_| more_is_better(&case.unit)).map(|latency| latency.p99_us)
}

/// How much longer a p99 may be and still be called equal: less than it differs by from run to run.
const EQUAL_P99: f64 = 1.05;

/// Whether the p99 of Tidewire's feed pages is equal to its rivals' or better, as a sentence; none if there is nothing to compare.
pub fn page_p99_told(report: &Report) -> Option<String> {
    let ratios = report.ratios.get("page_p99")?;
    let of_rivals = || took_part(report).filter_map(|target| Some((target, *ratios.get(&target.name)?)));
    let named = |is_worse: bool| {
        let these = of_rivals().filter(|(_, ratio)| (*ratio > EQUAL_P99) == is_worse);
        let told = these.map(|(target, ratio)| match is_worse {
            true => format!("{} ({})", target.name, figure::ratio(ratio)),
            false => target.name.clone(),
        });
        told.collect::<Vec<_>>().join(", ")
    };
    let (equal, worse) = (named(false), named(true));
    let told = match (equal.is_empty(), worse.is_empty()) {
        (true, true) => return None,
        (false, true) => format!("equal to or better than that of {equal}"),
        (true, false) => format!("worse than that of {worse}"),
        (false, false) => format!("equal to or better than that of {equal}, and worse than that of {worse}"),
    };
    Some(format!("The p99 of Tidewire's feed pages is {told} (equal: within 5 %)."))
}

/// A ratio, said so that it is plain which side is the better one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The rival's name.
    pub rival: String,
    /// How many times: `23.4x`.
    pub times: String,
    /// The sentence: `Tidewire is 23.4x redis_list`.
    pub sentence: String,
}

/// The ratios of a case, in the order of the designs.
///
/// Where less is better, what is told is how much more the rival takes, so that more than 1 speaks for Tidewire everywhere.
pub fn said(report: &Report, case: &str) -> Vec<Said> {
    let Some(ratios) = report.ratios.get(case) else { return Vec::new() };
    let unit = took_part(report).find_map(|target| target.cases.get(case)).map_or("", |case| case.unit.as_str());
    let say = |target: &TargetReport| {
        let ratio = ratios.get(&target.name).copied().filter(|ratio| ratio.is_finite())?;
        let rival = target.name.clone();
        let (times, sentence) = if more_is_better(unit) {
            let times = figure::ratio(ratio);
            (times.clone(), format!("Tidewire is {times} {rival}"))
        } else {
            let times = figure::ratio(ratio.recip());
            (times.clone(), format!("{rival} takes {times} what Tidewire does"))
        };
        Some(Said { rival, times, sentence })
    };
    report.targets.iter().filter_map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn target(name: &str, cases: &[(&str, &str, f64)]) -> TargetReport {
        let case = |&(name, unit, median): &(&str, &str, f64)| {
            (name.to_owned(), Case { unit: unit.to_owned(), median, ..Case::default() })
        };
        TargetReport { name: name.to_owned(), cases: cases.iter().map(case).collect(), ..TargetReport::default() }
    }

    #[test]
    fn cases_are_told_in_a_fixed_order() {
        assert_eq!(cases(&sample::report()), ["deliveries", "page", "own_page", "mixed", "memory"]);
    }

    #[test]
    fn what_was_measured_once_is_told_unless_everything_was() {
        let mut report = sample::report();
        assert_eq!(once_told(&report).as_deref(), Some("Measured once, not in rounds: Memory of an inbox."));
        let drift = Case { unit: "times".to_owned(), rounds: vec![1.0], ..Case::default() };
        report.targets[0].cases.insert("drift_of_rate".to_owned(), drift);
        assert_eq!(once(&report), ["memory"]);
        report.targets.iter_mut().for_each(|target| target.cases.retain(|name, _| name == "memory"));
        assert_eq!(once_told(&report), None);
    }

    #[test]
    fn cases_that_have_numbers_are_told_in_the_order_of_these() {
        let names = ["live_1000_followers", "live_10_followers", "live_10_followers_first", "live_messages", "key_9"];
        let cases = names.map(|name| (name, "us", 1.0));
        let report = Report { targets: vec![target("tidewire", &cases)], ..sample::report() };
        let expected =
            ["key_9", "live_messages", "live_10_followers", "live_10_followers_first", "live_1000_followers"];
        assert_eq!(super::cases(&report), expected);
    }

    #[test]
    fn names_of_cases_are_told_as_words() {
        assert_eq!(label("own_page"), "Own pages");
        assert_eq!(label("open_loop_mixed"), "Open loop mixed");
        assert_eq!(label(""), "");
        assert_eq!(label("überall"), "überall");
    }

    #[test]
    fn less_memory_is_best_and_more_pages_are() {
        let report = sample::report();
        assert_eq!(best(&report, "page"), Some("tidewire_http"));
        assert_eq!(best(&report, "memory"), Some("mariadb_pull"));
        assert_eq!(best(&report, "no such case"), None);
    }

    #[test]
    fn nobody_is_best_alone() {
        let mut report = sample::report();
        report.targets.truncate(1);
        assert_eq!(best(&report, "page"), None);
    }

    #[test]
    fn ratios_leave_out_what_cannot_be_divided() {
        let targets = [
            target("tidewire_http", &[("page", "pages/s", 600.0), ("memory", "bytes/inbox", 0.0), ("own", "us", 1.0)]),
            target("tidewire", &[("page", "pages/s", 6_000.0)]),
            target("redis_list", &[("page", "pages/s", 200.0), ("memory", "bytes/inbox", 5.0)]),
            target("redis_zset", &[("page", "pages/s", 0.0), ("memory", "bytes/inbox", f64::NAN)]),
        ];
        let expected = BTreeMap::from([("page".to_owned(), BTreeMap::from([("redis_list".to_owned(), 3.0)]))]);
        assert_eq!(ratios(&targets), expected);
    }

    #[test]
    fn ratios_of_tidewire_embedded_and_of_p99s_have_names_of_their_own() {
        let mut targets = [
            target("tidewire_http", &[("page", "pages/s", 600.0), ("visible", "us", 10.0)]),
            target("tidewire_in_process", &[("page", "pages/s", 6_000.0)]),
            target("redis_list", &[("page", "pages/s", 200.0), ("visible", "us", 40.0)]),
        ];
        for (at, p99_us) in [(0, 300.0), (1, 20.0), (2, 200.0)] {
            let latency = Latency { p99_us, ..Latency::default() };
            targets[at].cases.values_mut().for_each(|case| drop(case.latencies.insert(Kind::Page, latency.clone())));
        }
        let ratios = ratios(&targets).into_iter().map(|(name, of)| (name, of["redis_list"])).collect::<Vec<_>>();
        let expected = [("page", 3.0), ("page_in_process", 30.0), ("page_p99", 1.5), ("visible", 0.25)];
        assert_eq!(ratios, expected.map(|(name, ratio)| (name.to_owned(), ratio)));
    }

    #[test]
    fn it_is_told_whether_the_p99_of_pages_is_equal_or_better() {
        let mut report = sample::report();
        let better = "The p99 of Tidewire's feed pages is equal to or better than that of redis_list, redis_zset, mariadb_push, \
                      mariadb_pull (equal: within 5 %).";
        assert_eq!(page_p99_told(&report).as_deref(), Some(better));
        report
            .ratios
            .insert("page_p99".to_owned(), [("redis_list".to_owned(), 1.3), ("redis_zset".to_owned(), 1.04)].into());
        let worse = "The p99 of Tidewire's feed pages is equal to or better than that of redis_zset, and worse than that of \
                     redis_list (1.3x) (equal: within 5 %).";
        assert_eq!(page_p99_told(&report).as_deref(), Some(worse));
        report.ratios.clear();
        assert_eq!(page_p99_told(&report), None);
    }

    #[test]
    fn more_than_one_speaks_for_tidewire_whether_more_is_better_or_less() {
        let report = sample::report();
        let sentences = |case| said(&report, case).into_iter().map(|said| said.sentence).collect::<Vec<_>>();
        assert_eq!(sentences("deliveries")[0], "Tidewire is 23.4x redis_list");
        assert_eq!(sentences("memory")[0], "redis_list takes 2.8x what Tidewire does");
        assert!(sentences("no such case").is_empty());
    }

    #[test]
    fn the_latency_of_a_case_with_many_kinds_stands_for_none() {
        let report = sample::report();
        let cases = &report.targets[0].cases;
        assert!(main_latency("page", &cases["page"]).is_some());
        assert!(main_latency("mixed", &cases["mixed"]).is_none());
        assert!(main_latency("memory", &cases["memory"]).is_none());
    }
}

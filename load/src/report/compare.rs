//! Compares results: the order of the cases, the best design of each, ratios.

use std::collections::{BTreeMap, BTreeSet};

use super::{Case, Latency, Report, TargetReport, figure};
use crate::operation::Kind;

/// Prefix of the names of this project's own designs.
const OWN: &str = "tidewire";

/// Cases that are reported before all others; `memory` is the last one.
const FIRST: [&str; 3] = ["deliveries", "page", "own_page"];

/// Returns true if a design belongs to this project, so it is not compared with the other such designs.
pub fn is_own(target: &TargetReport) -> bool {
    target.name.starts_with(OWN)
}

/// Returns the designs that took part.
pub fn took_part(report: &Report) -> impl Iterator<Item = &TargetReport> {
    report.targets.iter().filter(|target| target.left_out.is_none())
}

/// Returns the names of all cases in the order of the report.
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

/// Returns the names of cases that were measured once while others had several rounds, in the order of the report.
fn once(report: &Report) -> Vec<&str> {
    let with = |name: &str| took_part(report).filter_map(|target| target.cases.get(name)).collect::<Vec<_>>();
    let rounds = |name: &str| with(name).iter().map(|case| case.rounds.len()).max().unwrap_or(0);
    // Cases in the unit `times` are computed from other cases, so they have the rounds of those.
    let is_measured = |name: &&str| with(name).iter().all(|case| case.unit != "times");
    let names: Vec<&str> = cases(report).into_iter().filter(is_measured).collect();
    let most = names.iter().map(|name| rounds(name)).max().unwrap_or(0);
    names.into_iter().filter(|name| most > 1 && rounds(name) <= 1).collect()
}

/// Returns a sentence about the cases that were measured once, if there are any.
pub fn once_note(report: &Report) -> Option<String> {
    let labels: Vec<String> = once(report).into_iter().map(label).collect();
    (!labels.is_empty()).then(|| format!("Measured once, not in rounds: {}.", labels.join(", ")))
}

/// Splits a name into words and numbers, so that 10 sorts before 1000.
fn counted(name: &str) -> Vec<(Option<u64>, &str)> {
    name.split('_').map(|part| (part.parse().ok(), part)).collect()
}

/// Returns the name of a case for people.
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

/// Returns the main latency of a case: that of the kind it is named after, or else of its only kind of operation.
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

/// Returns the kinds of operations that any design measured in a case.
pub fn kinds(report: &Report, case: &str) -> BTreeSet<Kind> {
    let cases = took_part(report).filter_map(|target| target.cases.get(case));
    cases.flat_map(|case| case.latencies.keys().copied()).collect()
}

/// Returns true if a higher value is better. For times and sizes, a lower one is.
pub fn more_is_better(unit: &str) -> bool {
    unit.ends_with("/s") || unit == "posts"
}

/// Returns the name of the best design in a case, if at least two took part.
pub fn best<'a>(report: &'a Report, case: &str) -> Option<&'a str> {
    let figures = || took_part(report).filter_map(|target| Some((target, target.cases.get(case)?)));
    let finite = figures().filter(|(_, case)| case.median.is_finite());
    let best = finite.max_by(|(_, one), (_, other)| {
        let order = one.median.total_cmp(&other.median);
        if more_is_better(&one.unit) { order } else { order.reverse() }
    })?;
    (figures().count() > 1).then_some(best.0.name.as_str())
}

/// Suffix of the names of p99 ratios.
const P99: &str = "_p99";

/// Suffix of the names of embedded Tidewire and of its ratios.
const IN_PROCESS: &str = "_in_process";

/// Suffix of the names of Tidewire over the Redis protocol and of its ratios.
const RESP: &str = "_resp";

/// Suffix of the names of Tidewire without batches of live messages and of its ratios.
const UNBATCHED: &str = "_unbatched";

/// The suffixes of all designs of Tidewire; the one over HTTP has none.
const OWN_SUFFIXES: [&str; 4] = ["", IN_PROCESS, RESP, UNBATCHED];

/// Returns the design of Tidewire with this suffix; the one over HTTP without a suffix.
fn own<'a>(targets: &'a [TargetReport], suffix: &str) -> Option<&'a TargetReport> {
    let suffix_of = |name: &str| OWN_SUFFIXES.into_iter().rfind(|suffix| name.ends_with(suffix));
    let took_part = targets.iter().filter(|target| target.left_out.is_none());
    took_part.filter(|own| is_own(own)).find(|own| suffix_of(&own.name) == Some(suffix))
}

/// Returns the results of Tidewire divided by those of the others: case -> other design -> ratio. Undefined ratios are left out.
///
/// Designs of the same project are not compared with each other. Names like `page_p99` are ratios of p99 latencies at the maximum rate;
/// names like `page_in_process` and `page_resp` use embedded Tidewire, or Tidewire over the Redis protocol, instead of Tidewire over HTTP;
/// names like `messages_unbatched` use Tidewire without batches of live messages.
/// For rates, a ratio over 1 is better for Tidewire; for times and sizes, one under 1.
pub fn ratios(targets: &[TargetReport]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut ratios: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let mut add = |name: String, rival: &TargetReport, ratio: f64| {
        if ratio.is_finite() && ratio > 0.0 {
            ratios.entry(name).or_default().insert(rival.name.clone(), ratio);
        }
    };
    let owns = OWN_SUFFIXES.map(|suffix| (suffix, own(targets, suffix)));
    for rival in targets.iter().filter(|target| target.left_out.is_none() && !is_own(target)) {
        for (name, case) in &rival.cases {
            for (suffix, own) in &owns {
                let Some(own) = own.and_then(|own| own.cases.get(name)) else { continue };
                add(format!("{name}{suffix}"), rival, own.median / case.median);
                let p99s = p99_of_rate(name, own).zip(p99_of_rate(name, case));
                if let Some((own, other)) = p99s.filter(|_| suffix.is_empty()) {
                    add(format!("{name}{P99}"), rival, own / other);
                }
            }
        }
    }
    ratios
}

/// Returns the p99 of the main latency of a case whose result is a rate.
fn p99_of_rate(name: &str, case: &Case) -> Option<f64> {
    main_latency(name, case).filter(|_| more_is_better(&case.unit)).map(|latency| latency.p99_us)
}

/// Up to this ratio two p99 latencies count as equal: the difference is within the variation between runs.
const EQUAL_P99: f64 = 1.05;

/// Returns a sentence about the p99 of Tidewire's feed pages if it is equal or better; `None` if there is nothing to compare.
pub fn page_p99_note(report: &Report) -> Option<String> {
    let ratios = report.ratios.get("page_p99")?;
    let of_rivals = || took_part(report).filter_map(|target| Some((target, *ratios.get(&target.name)?)));
    let named = |is_worse: bool| {
        let these = of_rivals().filter(|(_, ratio)| (*ratio > EQUAL_P99) == is_worse);
        let reported = these.map(|(target, ratio)| match is_worse {
            true => format!("{} ({})", target.name, figure::ratio(ratio)),
            false => target.name.clone(),
        });
        reported.collect::<Vec<_>>().join(", ")
    };
    let (equal, worse) = (named(false), named(true));
    let reported = match (equal.is_empty(), worse.is_empty()) {
        (true, true) => return None,
        (false, true) => format!("equal to or better than that of {equal}"),
        (true, false) => format!("worse than that of {worse}"),
        (false, false) => format!("equal to or better than that of {equal}, and worse than that of {worse}"),
    };
    Some(format!("The p99 of Tidewire's feed pages is {reported} (equal: within 5 %)."))
}

/// A ratio as text that states which side is better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RatioText {
    /// The name of the other design.
    pub rival: String,
    /// The ratio: `23.4x`.
    pub times: String,
    /// The sentence: `Tidewire is 23.4x redis_list`.
    pub sentence: String,
}

/// The designs of Tidewire whose ratios are shown, as a sentence names them, and the suffixes of their ratios.
const SHOWN: [(&str, &str); 2] = [("Tidewire", ""), ("Tidewire over the Redis protocol", RESP)];

/// Returns the ratios of a case in the order of the designs: those of Tidewire over HTTP, or over the Redis protocol if only it has the case.
pub fn ratio_texts(report: &Report, case: &str) -> Vec<RatioText> {
    all_ratio_texts(report, case).next().unwrap_or_default()
}

/// Returns the ratios of a case for each design of Tidewire that is shown and has the case, in the order of the other designs.
///
/// If lower is better, the ratio is inverted, so that more than 1 is better for Tidewire everywhere.
pub fn all_ratio_texts(report: &Report, case: &str) -> impl Iterator<Item = Vec<RatioText>> {
    let unit = took_part(report).find_map(|target| target.cases.get(case)).map_or("", |case| case.unit.as_str());
    let has_case = |suffix| own(&report.targets, suffix).is_some_and(|own| own.cases.contains_key(case));
    SHOWN.into_iter().filter(move |(_, suffix)| has_case(suffix)).map(move |(own, suffix)| {
        let ratios = report.ratios.get(&format!("{case}{suffix}"));
        let text_of = |target: &TargetReport| {
            let ratio = ratios?.get(&target.name).copied().filter(|ratio| ratio.is_finite())?;
            let rival = target.name.clone();
            let (times, sentence) = if more_is_better(unit) {
                let times = figure::ratio(ratio);
                (times.clone(), format!("{own} is {times} {rival}"))
            } else {
                let times = figure::ratio(ratio.recip());
                (times.clone(), format!("{rival} takes {times} as much as {own}"))
            };
            Some(RatioText { rival, times, sentence })
        };
        report.targets.iter().filter_map(text_of).collect()
    })
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
    fn cases_have_a_fixed_order() {
        assert_eq!(cases(&sample::report()), ["deliveries", "page", "own_page", "mixed", "memory"]);
    }

    #[test]
    fn cases_measured_once_are_noted_unless_all_cases_were() {
        let mut report = sample::report();
        assert_eq!(once_note(&report).as_deref(), Some("Measured once, not in rounds: Memory of an inbox."));
        let drift = Case { unit: "times".to_owned(), rounds: vec![1.0], ..Case::default() };
        report.targets[0].cases.insert("drift_of_rate".to_owned(), drift);
        assert_eq!(once(&report), ["memory"]);
        report.targets.iter_mut().for_each(|target| target.cases.retain(|name, _| name == "memory"));
        assert_eq!(once_note(&report), None);
    }

    #[test]
    fn cases_with_numbers_are_sorted_by_number() {
        let names = ["live_1000_followers", "live_10_followers", "live_10_followers_first", "live_messages", "key_9"];
        let cases = names.map(|name| (name, "us", 1.0));
        let report = Report { targets: vec![target("tidewire", &cases)], ..sample::report() };
        let expected =
            ["key_9", "live_messages", "live_10_followers", "live_10_followers_first", "live_1000_followers"];
        assert_eq!(super::cases(&report), expected);
    }

    #[test]
    fn case_names_become_words() {
        assert_eq!(label("own_page"), "Own pages");
        assert_eq!(label("open_loop_mixed"), "Open loop mixed");
        assert_eq!(label(""), "");
        assert_eq!(label("überall"), "überall");
    }

    #[test]
    fn the_best_case_has_the_least_memory_or_the_most_pages() {
        let report = sample::report();
        assert_eq!(best(&report, "page"), Some("tidewire_http"));
        assert_eq!(best(&report, "memory"), Some("mariadb_pull"));
        assert_eq!(best(&report, "no such case"), None);
    }

    #[test]
    fn a_single_target_is_not_marked_as_best() {
        let mut report = sample::report();
        report.targets.truncate(1);
        assert_eq!(best(&report, "page"), None);
    }

    #[test]
    fn ratios_omit_values_that_cannot_be_divided() {
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
    fn ratios_of_other_designs_of_tidewire_and_of_p99s_have_names_of_their_own() {
        let mut targets = [
            target("tidewire_http", &[("page", "pages/s", 600.0), ("visible", "us", 10.0)]),
            target("tidewire_resp", &[("page", "pages/s", 800.0), ("page_pipelined", "pages/s", 1_000.0)]),
            target("tidewire_in_process", &[("page", "pages/s", 6_000.0)]),
            target(
                "redis_list",
                &[("page", "pages/s", 200.0), ("page_pipelined", "pages/s", 500.0), ("visible", "us", 40.0)],
            ),
        ];
        for (at, p99_us) in [(0, 300.0), (1, 30.0), (2, 20.0), (3, 200.0)] {
            let latency = Latency { p99_us, ..Latency::default() };
            targets[at].cases.values_mut().for_each(|case| drop(case.latencies.insert(Kind::Page, latency.clone())));
        }
        let ratios = ratios(&targets).into_iter().map(|(name, of)| (name, of["redis_list"])).collect::<Vec<_>>();
        let expected = [
            ("page", 3.0),
            ("page_in_process", 30.0),
            ("page_p99", 1.5),
            ("page_pipelined_resp", 2.0),
            ("page_resp", 4.0),
            ("visible", 0.25),
        ];
        assert_eq!(ratios, expected.map(|(name, ratio)| (name.to_owned(), ratio)));
    }

    #[test]
    fn a_note_compares_the_p99_of_feed_pages_with_other_designs() {
        let mut report = sample::report();
        let better = "The p99 of Tidewire's feed pages is equal to or better than that of redis_list, redis_zset, mariadb_push, \
                      mariadb_pull (equal: within 5 %).";
        assert_eq!(page_p99_note(&report).as_deref(), Some(better));
        report
            .ratios
            .insert("page_p99".to_owned(), [("redis_list".to_owned(), 1.3), ("redis_zset".to_owned(), 1.04)].into());
        let worse = "The p99 of Tidewire's feed pages is equal to or better than that of redis_zset, and worse than that of \
                     redis_list (1.3x) (equal: within 5 %).";
        assert_eq!(page_p99_note(&report).as_deref(), Some(worse));
        report.ratios.clear();
        assert_eq!(page_p99_note(&report), None);
    }

    #[test]
    fn a_ratio_above_one_favours_tidewire_whether_more_or_less_is_better() {
        let report = sample::report();
        let sentences = |case| ratio_texts(&report, case).into_iter().map(|ratio| ratio.sentence).collect::<Vec<_>>();
        assert_eq!(sentences("deliveries")[0], "Tidewire is 23.4x redis_list");
        assert_eq!(sentences("memory")[0], "redis_list takes 2.8x as much as Tidewire");
        assert!(sentences("no such case").is_empty());
    }

    #[test]
    fn a_case_without_http_has_the_ratios_of_the_redis_protocol() {
        let mut report = sample::report();
        for (name, median) in [("tidewire_resp", 300.0), ("redis_list", 200.0)] {
            report.targets.retain(|target| target.name != name);
            report.targets.push(target(name, &[("page_pipelined", "pages/s", median)]));
        }
        report.ratios = ratios(&report.targets);
        let [ratio] = &ratio_texts(&report, "page_pipelined")[..] else { unreachable!() };
        assert_eq!(ratio.times, "1.5x");
        assert_eq!(ratio.sentence, "Tidewire over the Redis protocol is 1.5x redis_list");
        // A result of zero has no ratio, and no other one takes its place.
        report.targets[0].cases.insert("page_pipelined".to_owned(), Case::default());
        assert_eq!(ratio_texts(&report, "page_pipelined"), []);
    }

    #[test]
    fn a_case_with_several_kinds_of_operations_has_no_main_latency() {
        let report = sample::report();
        let cases = &report.targets[0].cases;
        assert!(main_latency("page", &cases["page"]).is_some());
        assert!(main_latency("mixed", &cases["mixed"]).is_none());
        assert!(main_latency("memory", &cases["memory"]).is_none());
    }
}

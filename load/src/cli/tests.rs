//! Tests of whole commands with the mock: no test waits for a server.
#![cfg(test)]

use clap::Parser as _;
use serde_json::Value;

use super::run::{Outcome, ended};
use super::{Cli, Command};
use crate::drive::Run;
use crate::drive::recorder::{Record, histogram};
use crate::environment::Stretch;
use crate::target::Failure;
use crate::turn::Turn;

/// Runs a command on a small world. Returns its report, and its error if there was one.
fn run_command(command: &str) -> (Value, Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let world = "--users 50 --authors 5 --mean-followers 10 --inbox-posts 60 --clients 2 --json";
    let words = ["tidewire-load"].into_iter().chain(command.split(' ')).chain(world.split(' ')).map(Into::into);
    let outcome = match Cli::try_parse_from(words.chain([json.as_os_str().to_owned()])).unwrap().command {
        Command::Soak(soak) => soak.run(),
        Command::Run(run) => run.run(),
        Command::Compare(compare) => compare.run(),
        Command::Overload(overload) => overload.run(),
        Command::Live(_) | Command::Cluster(_) | Command::Scale(_) => unreachable!("no test asks for it"),
    };
    let report = std::fs::read_to_string(&json).unwrap_or_else(|cause| panic!("{cause}: {outcome:?}"));
    let report = serde_json::from_str(&report).unwrap();
    (report, outcome.err().map(|cause| cause.to_string()))
}

#[test]
fn a_short_soak_reports_all_its_windows_and_the_drift() {
    let (report, failed) = run_command("soak --target mock --lasts 1s --windows 4");
    let cases = &report["targets"][0]["cases"];
    assert_eq!((failed, &report["settings"]["stretches"]), (None, &Value::from("4 of 4")));
    for (case, unit) in [("soak", "operations/s"), ("soak_p99", "us"), ("resident", "bytes")] {
        assert_eq!((&cases[case]["unit"], cases[case]["over_time"].as_array().unwrap().len()), (&Value::from(unit), 4));
        assert!(cases[case]["over_time"][3]["value"].as_f64().unwrap() > 0.0, "{case}: {}", cases[case]);
    }
    assert!(cases["drift_of_memory"]["median"].as_f64().unwrap() > 0.0, "{cases}");
}

#[test]
fn a_soak_with_a_rate_does_not_measure_the_maximum_rate() {
    let (report, failed) = run_command("soak --target mock --lasts 1s --windows 4 --rate 400");
    let rate = report["targets"][0]["cases"]["soak"]["median"].as_f64().unwrap();
    assert_eq!((failed, &report["settings"]["rate"]), (None, &Value::from("400/s")));
    assert!(rate > 0.0 && rate < 440.0, "{report}");
}

#[test]
fn recorded_activity_is_compared_too() {
    let directory = tempfile::tempdir().unwrap();
    let (follows, activity) = (directory.path().join("follows"), directory.path().join("activity"));
    std::fs::write(&follows, "a b\nc b\na c\n").unwrap();
    std::fs::write(&activity, "b a 100 RT\nc a 100 RE\nb c 101 MT\n").unwrap();
    let files = format!("--follows {} --activity {}", follows.display(), activity.display());
    let (report, failed) = run_command(&format!("compare --targets mock --rounds 1 --lasts 150ms --speed 20 {files}"));
    assert_eq!(failed, None);
    assert!(report["targets"][0]["cases"]["recorded"]["median"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["settings"]["activity"].as_str().unwrap().starts_with("3 posts from "), "{report}");
}

#[test]
fn the_maximum_rate_is_reported_with_all_tried_client_counts() {
    let (report, failed) = run_command("run --target mock --most --lasts 100ms");
    assert_eq!(failed, None);
    assert!(report["targets"][0]["cases"]["most"]["median"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["settings"]["operations by clients"].as_str().unwrap().starts_with("1: "), "{report}");
}

#[test]
fn an_overload_reports_completed_and_refused_operations() {
    let (report, failed) = run_command("overload --target mock --times 2,3 --lasts 200ms");
    let cases = &report["targets"][0]["cases"];
    assert_eq!(failed, None);
    let median = |name: &str| cases[name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {cases}"));
    assert!(median("overload_3x_asked_for") > 0.0);
    for name in ["overload_2x", "overload_3x_before", "overload_3x_of_most"] {
        // On a busy machine, nothing may be completed within this time.
        assert!(median(name) >= 0.0, "{name}");
    }
    // The mock refuses nothing and has no process of its own.
    assert_eq!(cases["overload_2x_refused"]["median"], 0.0);
    assert!(cases.get("overload_2x_refusal_p99").is_none() && cases.get("overload_2x_memory").is_none());
}

fn outcome(failed: u64, refused: u64, died: bool) -> Outcome {
    let first_failure = (failed > 0).then(|| "full".to_owned());
    let record = Record { failed, refused, first_failure, ..Record::default() };
    let second = std::time::Duration::from_secs(1);
    let run =
        Run { record, lasted: second, planned: second, server_cores: 0.0, client_cores: 0.0, lateness: histogram() };
    Outcome::of(Turn { ran: Ok(run), died, resident_most: None, stretch: Stretch::default() })
}

#[test]
fn failed_operations_fail_the_command_and_refused_operations_do_not() {
    let wrong = |failed, refused| outcome(failed, refused, false).wrong;
    assert_eq!((wrong(0, 0), wrong(7, 7)), (None, None));
    assert_eq!(wrong(7, 4).as_deref(), Some("3 operations failed, and the first of them reported: full"));
    let message = ended("redis_list", wrong(7, 4)).unwrap_err().to_string();
    assert!(
        message.starts_with("redis_list: 3 operations failed") && message.ends_with("has the results until then"),
        "{message}"
    );
    assert!(ended("redis_list", None).is_ok());
}

#[test]
fn a_run_stops_after_its_server_ended() {
    let ended = outcome(7, 0, true);
    assert!(ended.over && ended.ran.is_some());
    assert!(ended.wrong.unwrap().starts_with("the server ended"));
    let refused = Err(Failure::Failed("nobody listens".to_owned()));
    let unopened = Outcome::of(Turn { ran: refused, died: false, resident_most: None, stretch: Stretch::default() });
    assert!(unopened.over && unopened.ran.is_none());
    assert_eq!(unopened.wrong.as_deref(), Some("nobody listens"));
    assert!(!outcome(7, 0, false).over);
}

//! Tests of `tidewire-load run` and `compare` with the real server and small worlds.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

const SMALL: [&str; 5] = ["--users=60", "--authors=6", "--mean-followers=20", "--inbox-posts=60", "--clients=4"];

fn tidewire_load(arguments: &[&str]) -> (Output, Option<Value>) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire-load"));
    let output = testkit::output(command.args(arguments).args(SMALL).arg("--json").arg(&json));
    (output, fs::read_to_string(&json).ok().map(|report| serde_json::from_str(&report).unwrap()))
}

/// Runs a command with readers online.
fn readers_online(command: &str) {
    let arguments = format!("{command} --mix=social --undone=0 --lasts=500ms --online-share=0.5");
    let (output, report) = tidewire_load(&arguments.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report.unwrap();
    let target = &report["targets"][0];
    assert!(report["settings"]["users"].as_str().unwrap().ends_with(", 30 online"), "{report}");
    let heard = target["cases"]["heard_live"]["median"].as_f64().unwrap();
    assert!(heard > 30.0, "{target}");
    assert_eq!(target.get("failures"), None);
    // 120 pages are checked before the load, and 20 after each run.
    assert!(target["pages_checked"].as_u64().unwrap() > 120, "{target}");
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn online_readers_receive_posts_under_load() {
    readers_online("run");
}

#[test]
#[ignore = "takes 45 s"]
fn online_readers_receive_posts_in_a_comparison() {
    readers_online("compare --targets=tidewire_http --rounds=1");
}

#[test]
fn designs_without_push_have_no_online_readers() {
    let (output, report) = tidewire_load(&["run", "--target=tidewire_in_process", "--online-share=0.5"]);
    assert_eq!((output.status.code(), report), (Some(1), None));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("error: --online-share: tidewire_in_process does not push messages"), "{stderr}");
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn an_overload_of_a_server_is_reported_and_loses_nothing() {
    let arguments = "overload --mix=even --undone=0 --times=4 --lasts=400ms";
    let (output, report) = tidewire_load(&arguments.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report.unwrap();
    let target = &report["targets"][0];
    assert_eq!(target.get("failures"), None, "deliveries and pages are right once all is delivered");
    for case in ["overload_4x", "overload_4x_before", "overload_4x_of_most", "overload_4x_memory"] {
        assert!(target["cases"][case]["median"].as_f64().unwrap() > 0.0, "{case}: {target}");
    }
    assert!(target["cases"]["overload_4x_refused"]["median"].as_f64().is_some(), "{target}");
}

#[test]
fn pulled_posts_are_not_reported_as_missing_deliveries() {
    let (output, report) = tidewire_load(&["run", "--celebrity-followers=20", "--undone=0", "--lasts=300ms"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(report.unwrap()["targets"][0].get("failures"), None);
}

//! Tests of `tidewire-load live` with the real server and few connections.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

/// The smallest values that exercise every measurement.
const SMALL: [&str; 12] = [
    "--rounds=2",
    "--followers=3,40",
    "--posts=4",
    "--audience=30",
    "--seconds=1",
    "--publishers=3",
    "--window=16",
    "--connections=50",
    "--hold-seconds=0",
    "--stalled=5",
    "--cut-off-seconds=0",
    "--stalled-body-bytes=1024",
];

fn live(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire-load"));
    testkit::output(command.arg("live").args(arguments))
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn a_small_run_measures_everything_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let [json, html] = ["report.json", "report.html"].map(|name| directory.path().join(name));
    let files = [format!("--json={}", json.display()), format!("--html={}", html.display())];
    let output = live(&[&SMALL[..], &files.each_ref().map(String::as_str)].concat());
    assert!(output.status.success(), "{}", stderr_of(&output));

    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let target = &report["targets"][0];
    assert_eq!(target["name"], "tidewire_http");
    let cases = target["cases"].as_object().unwrap();
    let units: Vec<(&str, &str)> = cases.iter().map(|(name, case)| (&**name, case["unit"].as_str().unwrap())).collect();
    let expected = [
        ("live_3_followers", "us"),
        ("live_3_followers_first", "us"),
        ("live_40_followers", "us"),
        ("live_40_followers_first", "us"),
        ("live_alone", "us"),
        ("live_alone_first", "us"),
        ("live_beside_stalled", "us"),
        ("live_beside_stalled_first", "us"),
        ("live_idle_memory", "bytes/connection"),
        ("live_messages", "messages/s"),
        ("live_reader_memory", "bytes/reader"),
        ("live_stalled_memory", "bytes/client"),
    ];
    assert_eq!(units, expected);
    for (name, case) in cases.iter().filter(|(_, case)| case["unit"] == "us") {
        assert_eq!(case["latencies"]["publish"]["count"], 8, "{name}");
        assert!(case["median"].as_f64().unwrap() > 0.0, "{name}");
    }
    assert!(cases["live_messages"]["median"].as_f64().unwrap() > 0.0);
    let [last, first] = ["live_40_followers", "live_40_followers_first"].map(|name| &cases[name]["median"]);
    assert!(last.as_f64() >= first.as_f64(), "{last} and {first}");
    assert_eq!(target.get("failures"), None);

    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("tidewire_http") && text.contains("Live 40 followers"), "{text}");
    assert!(fs::read_to_string(&html).unwrap().contains("Live 40 followers first"));
}

#[test]
fn more_connections_than_open_files_are_refused_before_anything_begins() {
    // The limit is lowered in a separate shell, which is then replaced by the program.
    let program = env!("CARGO_BIN_EXE_tidewire-load");
    let script = format!("ulimit -n 300 && exec '{program}' live --only=memory --connections=1000");
    let output = testkit::output(Command::new("sh").args(["-c", &script]));
    if output.status.success() {
        // A privileged process may raise any limit, so nothing is refused.
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: the system allows 300 open files; 1,000 connections were requested: request at most 200 \
                    (memory), or raise the limit with ulimit -n\n";
    assert_eq!(stderr_of(&output), expected);
}

#[test]
fn a_server_that_does_not_start_is_reported_with_its_output() {
    let output = live(&["--only=memory", "--connections=1", "--server-flags=--no-such-flag"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr_of(&output);
    assert!(stderr.starts_with("error: the server ended") && stderr.contains("--no-such-flag"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_is_measured() {
    // With the default options a run takes most of a minute.
    let output = live(&["--json=/no/such/directory/report.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("cannot write /no/such/directory/report.json"), "{}", stderr_of(&output));
}

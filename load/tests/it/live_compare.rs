//! Tests of `tidewire-load live compare` with the real servers and few followers.

use std::process::Command;

use serde_json::Value;
use tidewire_load::live::compare::Design;

/// Runs a small comparison of some designs and returns its report.
fn compare(designs: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire-load"));
    command.args(["live", "compare", "--quick", "--rounds=2", "--followers=3,20", "--audience=10", "--body-bytes=300"]);
    command.args(["--timed=80ms", "--lasts=100ms", "--away=100ms"]).arg(format!("--targets={designs}"));
    let output = testkit::output(command.arg("--json").arg(&json));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap()
}

/// Checks that a design delivers all posts to all followers, and the number of posts that a client gets after an absence.
fn check(design: Design, version: &str, posts_after_absence: f64) {
    let report = compare(design.name());
    let target = &report["targets"][0];
    assert_eq!(
        (target["name"].as_str(), target.get("left_out"), target.get("failures")),
        (Some(design.name()), None, None)
    );
    assert!(target["settings"][0].as_str().unwrap().starts_with(version), "{target}");
    let cases = target["cases"].as_object().unwrap();
    let units: Vec<(&str, &str)> = cases.iter().map(|(name, case)| (&**name, case["unit"].as_str().unwrap())).collect();
    let expected = [
        ("idle_connection", "bytes/connection"),
        ("messages", "messages/s"),
        ("posts_after_absence", "posts"),
        ("processor_time_of_a_message", "us"),
        ("processor_time_of_a_message_paced", "us"),
        ("to_last_of_20", "us"),
        ("to_last_of_20_p99", "us"),
        ("to_last_of_3", "us"),
        ("to_last_of_3_p99", "us"),
    ];
    assert_eq!(units, expected);
    for name in ["to_last_of_3", "to_last_of_20_p99"] {
        // Posts of 80 ms, one every 20 ms and a little, in two rounds.
        assert_eq!(cases[name]["latencies"]["publish"]["count"], 2 * 4, "{name}");
    }
    for name in ["messages", "to_last_of_3", "to_last_of_20_p99"] {
        assert!(cases[name]["median"].as_f64().unwrap() > 0.0, "{name}");
        assert_eq!((cases[name]["failed"].as_u64(), cases[name]["rounds"].as_array().unwrap().len()), (Some(0), 2));
    }
    let after = &cases["posts_after_absence"];
    assert_eq!((after["median"].as_f64(), after["rounds"].as_array().unwrap().len()), (Some(posts_after_absence), 1));
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn tidewire_delivers_to_all_and_a_returning_client_receives_missed_posts() {
    for design in [Design::TidewireHttp, Design::TidewireUnbatched] {
        check(design, "Tidewire ", 20.0);
    }
}

#[test]
#[ignore = "needs mosquitto"]
fn mosquitto_delivers_to_all_connected_clients() {
    check(Design::Mosquitto, "Mosquitto 2.", 0.0);
}

#[test]
#[ignore = "needs nats-server"]
fn nats_delivers_to_all_connected_clients() {
    check(Design::Nats, "nats-server 2.", 0.0);
}

#[test]
#[ignore = "needs Node, and `npm ci` in load/rivals"]
fn socket_io_delivers_to_all_connected_clients() {
    check(Design::SocketIo, "Socket.IO 4.", 0.0);
}

#[test]
#[ignore = "needs nats-server"]
fn designs_are_compared_in_one_run() {
    let report = compare("tidewire_http,nats");
    assert_eq!(report["targets"][1].get("left_out"), None);
    let ratios = report["ratios"].as_object().unwrap();
    for case in ["messages", "idle_connection", "to_last_of_20"] {
        assert!(ratios[case]["nats"].as_f64().unwrap() > 0.0, "{case}");
    }
}

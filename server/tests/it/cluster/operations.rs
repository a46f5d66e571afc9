//! Every operation through a node that cannot handle it.

use std::collections::BTreeSet;

use serde_json::json;
use tidewire::config::EngineConfig;
use tidewire_server::http::auth::Access;
use tidewire_server::http::operations;

use crate::access::matrix;
use crate::access::tokens::access;
use crate::cli;
use crate::cluster::failures::NOBODY;
use crate::cluster::nodes::Nodes;
use crate::server::{Answer, Server};

/// The node that handles an operation, of those that the three nodes share: `a` has received the request, `b` owns all users, `c` is the
/// sequencer. Apart from the table that the server goes by.
fn answering(name: &str) -> &'static str {
    match name {
        "check_alive"
        | "check_ready"
        | "read_metrics"
        | "describe"
        | "read_stats"
        | "read_cluster"
        | "read_changes"
        | "list_change_consumers"
        | "set_change_consumer"
        | "remove_change_consumer"
        | "list_posts"
        | "list_users"
        | "read_user_data"
        | "take_snapshot"
        | "read_history"
        | "read_operations"
        | "find_sources"
        | "read_fanout" => "a",
        // The request is split, and the node that has received it puts the parts together.
        "read_feeds" => "a",
        // With a server's key any node has it; with a token its user's owner.
        "read_post" | "read_posts" | "read_replies" | "read_reposts" => "a or b",
        "read_feed" | "read_own_page" | "read_user" | "list_following" | "list_followers" | "list_mutes"
        | "list_blocks" | "read_rules" | "read_marker" | "explain" | "list_lists" | "read_list_feed"
        | "list_members" | "watch" | "stream_events" | "verify_feed" | "rebuild_feed" => "b",
        "publish" | "publish_many" | "edit_post" | "delete_post" | "follow_many" | "erase_user" | "follow"
        | "unfollow" | "revoke_tokens" | "mute" | "unmute" | "block" | "unblock" | "change_rules" | "mark"
        | "delete_list" | "add_member" | "remove_member" => "c",
        unknown => panic!("{unknown} is new: which node handles it?"),
    }
}

#[test]
fn every_forwarded_operation_is_answered_as_by_the_responsible_node() {
    let nodes = Nodes::of_one_world(access);
    let alone = Server::guarding(nodes.a().engine.clone(), access());
    for operation @ (name, ..) in operations().filter(|(name, ..)| *name != "read_cluster") {
        let call = matrix::call(name);
        for credential in matrix::credentials().into_iter().filter(|one| ["right", "server key"].contains(&one.name)) {
            let direct = matrix::send(&alone, operation, &call, &credential);
            let passed = matrix::send(nodes.a(), operation, &call, &credential);
            let is_refused = direct.status == 403;
            let told = format!("{name} with {}: {direct:?}, {passed:?}", credential.name);
            // The engine is shared, so the first erasure may still be under way or have ended when the second one is asked for.
            if name == "erase_user" && !is_refused {
                assert!([202, 204].contains(&passed.status), "{told}");
                continue;
            }
            assert_eq!(passed.status, direct.status, "{told}");
            let expected = answering(name);
            assert!(is_refused || expected.contains(passed.header("tidewire-node")), "{told}");
            let names = |answer: &Answer| {
                let names = answer.headers.keys().map(ToString::to_string);
                let may_differ = ["x-request-id", "content-length", "connection"];
                names.filter(|name| !may_differ.contains(&&**name)).collect()
            };
            let (of_direct, of_passed): (BTreeSet<String>, BTreeSet<String>) = (names(&direct), names(&passed));
            let more: Vec<_> = of_passed.symmetric_difference(&of_direct).map(String::as_str).collect();
            let of_writes = if expected == "c" && !is_refused {
                &["tidewire-node", "tidewire-sequence"][..]
            } else {
                &["tidewire-node"]
            };
            assert_eq!(more, of_writes, "{told}");
            let fields =
                |answer: &Answer| answer.json().as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
            assert_eq!(fields(&passed), fields(&direct), "{told}");
        }
    }
}

#[test]
fn diagnostics_name_the_node_that_they_are_about() {
    let nodes = Nodes::of_one_world(Access::default);
    let post = nodes.a().post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1})).json();
    let fanout = format!("/v1/posts/{}/fanout", post["id"].as_str().unwrap());
    for path in ["/v1/stats/history", "/v1/operations", "/v1/sources", &fanout] {
        let named = [nodes.a(), nodes.b()].map(|node| node.get(path).json()["node"].clone());
        assert_eq!(named, [json!("a"), json!("b")], "{path}");
    }
}

#[test]
fn statistics_of_a_node_can_be_requested_from_any_node_by_name() {
    let nodes = Nodes::of_one_world(Access::default);
    for path in ["/v1/stats/history?", "/v1/operations?", "/v1/stats?inboxes=count&"] {
        let told = ["a", "b", "c"].map(|name| {
            let answer = nodes.a().get(&format!("{path}node={name}"));
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            answer.header("tidewire-node").to_owned()
        });
        assert_eq!(told, ["a", "b", "c"], "{path}");
    }
    let refused = nodes.a().get("/v1/stats?node=nobody");
    assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("unknown_node")));
    assert_eq!(refused.json()["field"], "node");
}

#[test]
fn forwarded_requests_have_the_same_permissions() {
    let nodes = Nodes::of_one_world(access);
    matrix::check(nodes.a());
}

#[test]
fn forwarded_reads_equal_those_of_the_owner() {
    let nodes = Nodes::of_one_world(Access::default);
    nodes.a().json("PUT", "/v1/users/ann/following/bob", &json!({}));
    for nth in 0..60 {
        nodes.a().post(
            "/v1/posts?wait=delivered",
            &json!({"author": "bob", "body": "x".repeat(1_000), "id": format!("{}", nth + 1)}),
        );
    }
    let read = |server: &Server, method: &str, path: &str| {
        let mut answer = server.ask(method, path, &[], "");
        answer.headers.remove("date");
        answer.headers.remove("tidewire-node");
        let mut headers: Vec<_> = answer.headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        headers.sort();
        (answer.status, headers, answer.text)
    };
    for (method, path) in [
        ("GET", "/v1/users/ann/feed?limit=50"),
        ("HEAD", "/v1/users/ann/feed?limit=50"),
        ("GET", "/v1/users/ann/feed?limit=1&fields=ids"),
        ("GET", "/v1/users/%61nn/feed?limit=2"),
        ("GET", "/v1/users/bob/posts?limit=3"),
        ("GET", "/v1/users/tag:rust/posts"),
        ("GET", "/v1/users/ann/lists/none/feed"),
        ("GET", "/v1/users/ann/feed?before=nonsense"),
        ("GET", "/v1/users/ann/following"),
    ] {
        let (direct, passed) = (read(nodes.b(), method, path), read(nodes.a(), method, path));
        let without_id = |(status, headers, text): (u16, Vec<String>, String)| {
            (status, headers.into_iter().filter(|header| !header.starts_with("x-request-id")).collect::<Vec<_>>(), text)
        };
        assert_eq!(without_id(passed), without_id(direct), "{method} {path}");
    }
}

#[test]
fn reads_report_how_long_the_log_was_silent() {
    let nodes = Nodes::of_one_world(Access::default);
    // The last ones are of a cluster with long sessions, in which a beat that comes in time is nothing to mention.
    for (beats, silent, expected) in
        [(0, 0, ""), (0, 1, ""), (0, 2, "2"), (0, 5, "5"), (0, 0, ""), (5, 5, ""), (5, 9, ""), (5, 10, "10")]
    {
        nodes.roles.beat_every(beats);
        nodes.roles.silence_log(silent);
        for path in ["/v1/users/ann/feed", "/v1/users/ann/following", "/v1/users/ann/rules"] {
            let told = nodes.a().get(path);
            assert_eq!(told.header("tidewire-stale-seconds"), expected, "{path}, silent for {silent} s");
            // What may be out of date is not stored, and not confirmed to who has it.
            let has_tag = path.ends_with("/feed") && expected.is_empty();
            assert_eq!(told.header("etag").is_empty(), !has_tag, "{path}, silent for {silent} s");
            assert_eq!(told.header("cache-control"), if has_tag { "private, no-cache" } else { "no-store" });
            let again = nodes.a().ask("GET", path, &[("if-none-match", "*")], "");
            assert_eq!(again.status, if has_tag { 304 } else { 200 }, "{path}, silent for {silent} s");
        }
    }
}

#[test]
fn feeds_of_several_nodes_report_the_longest_silence_of_the_log() {
    let nodes = Nodes::of_one_world(Access::default);
    for (user, owner) in [("ann", 0), ("bob", 1), ("cas", 2)] {
        nodes.roles.own(user, Some(owner));
    }
    for (silent, expected) in [([0, 0, 0], ""), ([3, 0, 0], "3"), ([0, 4, 0], "4"), ([3, 4, 9], "9"), ([9, 4, 3], "9")]
    {
        silent.into_iter().enumerate().for_each(|(node, seconds)| nodes.roles.silence_log_of(node, seconds));
        let read = nodes.a().post("/v1/feeds", &serde_json::json!({"users": ["ann", "bob", "cas"]}));
        assert_eq!((read.status, read.header("tidewire-stale-seconds")), (200, expected), "silent for {silent:?} s");
    }
}

#[test]
fn a_known_etag_is_confirmed_through_another_node() {
    let nodes = Nodes::of_one_world(Access::default);
    nodes.roles.own("bob", Some(1));
    let post = serde_json::json!({"author": "bob", "body": "word ".repeat(1_000)});
    assert_eq!(nodes.a().post("/v1/posts?wait=delivered", &post).status, 201);
    let path = "/v1/users/bob/feed";
    let first = nodes.a().get(path);
    let (tag, node) = (first.header("etag"), first.header("tidewire-node"));
    assert!(tag.starts_with("W/") && node == "b", "{:?}", first.headers);
    for method in ["GET", "HEAD"] {
        let again = nodes.a().ask(method, path, &[("if-none-match", tag)], "");
        assert_eq!((again.status, again.header("etag"), again.header("tidewire-node")), (304, tag, "b"), "{method}");
        assert_eq!((again.header("cache-control"), &*again.text), ("private, no-cache", ""), "{method}");
    }
    // The connection between the nodes is good for more.
    assert_eq!(nodes.a().get(path).text, first.text);
    let other = nodes.a().ask("GET", path, &[("if-none-match", "\"another\"")], "");
    assert_eq!((other.status, other.text), (200, first.text.clone()));
}

#[test]
fn the_status_of_a_cluster_is_printed_for_people_and_for_programs() {
    let nodes = Nodes::of_own_worlds();
    let status = |words: &[&str]| cli::ran(cli::program(&nodes.a().url("")).args(["cluster", "status"]).args(words));
    let shown = status(&["--timeout", "60s"]);
    assert_eq!((shown.code, shown.out.lines().count()), (0, 4), "{}{}", shown.out, shown.err);
    assert!(shown.out.starts_with("epoch 7: c accepts writes; a has applied record 0\na  http://"), "{}", shown.out);
    assert!(shown.out.ends_with("  owns 1 of 3 partitions  last heartbeat 0.0 s ago\n"), "{}", shown.out);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&status(&["--json"]).out), nodes.a().get("/v1/cluster").json());
    // Killed, and a member for a session.
    nodes.roles.hear_last(2, 4_100);
    let (shown, for_programs) = (status(&[]), status(&["--json"]));
    let silent = "epoch 7: c accepted writes, last heartbeat 4.1 s ago; another node takes over after 6.0 s of silence; a has applied record 0\n";
    assert!(shown.code == 1 && shown.out.starts_with(silent), "{}", shown.out);
    assert!(shown.out.ends_with("  owns 1 of 3 partitions  last heartbeat 4.1 s ago\n"), "{}", shown.out);
    let answer = json(&for_programs.out);
    assert_eq!(
        (for_programs.code, &answer["nodes"][2]["heard_ms"], &answer["beat_ms"]),
        (1, &json!(4_100), &json!(500))
    );
    nodes.roles.sequence(None);
    let (shown, for_programs) = (status(&[]), status(&["--json"]));
    assert!(shown.code == 1 && shown.out.starts_with("epoch 7: no node accepts writes"), "{}", shown.out);
    assert_eq!((for_programs.code, &json(&for_programs.out)["sequencer"]), (1, &json!(null)));
    let alone = Server::start(EngineConfig::default());
    let dead = cli::ran(cli::program(NOBODY).args(["cluster", "status", "--timeout", "10s"]));
    let advice = "; is this node down? ask another node of the cluster: --server URL\n";
    assert!(dead.code == 3 && dead.err.ends_with(advice), "{} {}", dead.code, dead.err);
    let refused = cli::ran(cli::program(&alone.url("")).args(["cluster", "status", "--json"]));
    assert_eq!((refused.code, &json(&refused.err)["status"]), (4, &json!(404)), "{}", refused.err);
}

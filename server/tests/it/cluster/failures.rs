//! Nodes that are gone, hang, break off or are behind.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;
use testkit::{DEADLINE, eventually};

use serde_json::json;
use socket2::SockRef;
use tidewire::limits::REQUEST_BYTES_MAX;

use crate::cluster::nodes::Nodes;
use crate::cluster::peer::{Fault, Peer};
use crate::cluster::waits::wait_for_inside;
use crate::overload::wait_for;
use crate::server::{Answer, Server};

const IMPATIENT: Duration = Duration::from_millis(300);

fn code(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.status == 503, !answer.header("retry-after").is_empty(), "{answer:?}");
    (answer.status, answer.json()["code"].as_str().unwrap_or("").to_owned())
}

fn read(server: &Server) -> (u16, String) {
    code(&server.get("/v1/users/ann/feed"))
}

fn write(server: &Server) -> (u16, String) {
    code(&server.json("PUT", "/v1/users/ann/following/bob", &json!({})))
}

fn unavailable(what: &str) -> (u16, String) {
    (503, what.to_owned())
}

/// An address at which nothing listens: the port of tcpmux, which no system serves any more.
pub const NOBODY: &str = "http://127.0.0.1:1";

#[test]
fn without_an_owner_or_sequencer_only_requests_that_need_it_are_refused() {
    let nodes = Nodes::of_own_worlds();
    for gone in [true, false] {
        let (owner, sequencer) = if gone { (Some(1), Some(2)) } else { (None, None) };
        let addresses = [nodes.b().url(""), nodes.c().url("")];
        let leave =
            |node: usize| nodes.roles.move_to(node, if gone { NOBODY.to_owned() } else { addresses[node - 1].clone() });
        nodes.roles.sequence(sequencer);
        leave(2);
        assert_eq!(read(nodes.a()).0, 200);
        assert_eq!(write(nodes.a()), unavailable("sequencer_unavailable"));
        let bulk = nodes.a().post("/v1/follows", &json!({"follows": []}));
        assert_eq!(code(&bulk), unavailable("sequencer_unavailable"));
        nodes.roles.own_all(owner);
        leave(1);
        assert_eq!(read(nodes.a()), unavailable("owner_unavailable"));
        assert_eq!(write(nodes.a()), unavailable("owner_unavailable"));
        assert_eq!(code(&nodes.a().get("/v1/users/ann/events")), unavailable("owner_unavailable"));
        nodes.roles.own("cas", Some(0));
        let feeds = nodes.a().post("/v1/feeds", &json!({"users": ["ann", "cas"]})).json()["feeds"].clone();
        assert_eq!(feeds[0]["problem"]["code"], "owner_unavailable", "{feeds}");
        assert_eq!(feeds[1]["items"], json!([]), "{feeds}");
        assert_eq!(nodes.a().get("/v1/stats").status, 200);
        nodes.roles.own_all(Some(1));
        nodes.roles.sequence(Some(2));
        nodes.roles.move_to(1, addresses[0].clone());
        nodes.roles.move_to(2, addresses[1].clone());
        assert_eq!((read(nodes.a()).0, write(nodes.a()).0), (200, if gone { 201 } else { 200 }));
    }
}

#[test]
fn a_lost_read_is_unavailable_and_a_lost_write_has_an_unknown_outcome() {
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"items\":";
    for (fault, reads) in [(Fault::Hangs, 1), (Fault::Closes, 2), (Fault::Breaks("HTTP/1.1 20"), 2)] {
        // Only one that hangs is waited for.
        let patience = if matches!(fault, Fault::Hangs) { IMPATIENT } else { DEADLINE };
        let (nodes, peer) = (Nodes::impatient(patience), Peer::start(fault));
        nodes.roles.move_to(1, peer.url.clone());
        assert_eq!(read(nodes.a()), unavailable("owner_unavailable"), "{fault:?}");
        assert_eq!(peer.requests(), reads, "{fault:?}");
        assert_eq!(write(nodes.a()), unavailable("outcome_unknown"), "{fault:?}");
        assert_eq!(peer.requests(), reads + 1, "{fault:?}: no write is sent twice");
        let metrics = nodes.a().get("/metrics").text;
        for (labels, count) in [("unavailable", 1), ("unknown", 1), ("answered", 0)] {
            let line = format!("tidewire_passed_on_total{{to=\"owner\",outcome=\"{labels}\"}} {count}");
            assert!(metrics.contains(&line), "{line} in {metrics}");
        }
    }
    let nodes = Nodes::impatient(DEADLINE);
    nodes.roles.move_to(1, Peer::start(Fault::Breaks(HALF)).url);
    assert_eq!(write(nodes.a()), unavailable("outcome_unknown"), "the body is missing");
    assert_eq!(read(nodes.a()), unavailable("owner_unavailable"), "no torn answer is passed on");
    // Longer than a page of the longest posts, which also names who reposted them.
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8000000";
    let page = nodes.b().get("/v1/users/ann/feed").text;
    let long = format!("{head}\r\n\r\n{page}{}", " ".repeat(8_000_000 - page.len()));
    nodes.roles.move_to(1, Peer::start(Fault::Breaks(long.leak())).url);
    let answer = nodes.a().get("/v1/users/ann/feed");
    assert_eq!((answer.status, answer.text.len()), (200, 8_000_000));
    // The owner has the write, and its sequencer hangs.
    let (nodes, peer) = (Nodes::impatient(DEADLINE), Peer::start(Fault::Closes));
    nodes.roles.move_to(2, peer.url.clone());
    assert_eq!(write(nodes.a()), unavailable("outcome_unknown"));
    assert_eq!(peer.requests(), 1);
}

#[test]
fn a_write_response_reports_whether_the_owner_has_applied_it() {
    let nodes = Nodes::of_own_worlds();
    nodes.roles.apply(2, 7);
    let follow = |source: &str| nodes.a().json("PUT", &format!("/v1/users/ann/following/{source}"), &json!({}));
    let answer = follow("bob");
    assert_eq!((answer.status, answer.header("tidewire-sequence"), answer.header("tidewire-node")), (201, "7", "c"));
    assert_eq!(answer.header("tidewire-applied"), "0");
    nodes.roles.apply(1, 7);
    let answer = follow("cas");
    assert_eq!((answer.header("tidewire-sequence"), answer.header("tidewire-applied")), ("7", ""));
    let refused = nodes.a().json("PUT", "/v1/users/ann/following/ann", &json!({}));
    assert_eq!((refused.status, refused.header("tidewire-sequence")), (422, ""));
}

#[test]
fn a_read_can_wait_for_a_write() {
    let nodes = Nodes::of_own_worlds();
    nodes.roles.apply(1, 3);
    let after = |node: &Server, sequence: &str| {
        code(&node.ask("GET", "/v1/users/ann/feed", &[("tidewire-after", sequence)], ""))
    };
    for node in [nodes.a(), nodes.b()] {
        assert_eq!(after(node, "3").0, 200);
        assert_eq!(after(node, "4"), unavailable("not_applied_yet"));
        assert_eq!(after(node, "soon"), (400, "invalid_header".to_owned()));
        let two = [("tidewire-after", "3"), ("tidewire-after", "2")];
        assert_eq!(code(&node.ask("GET", "/v1/users/ann/feed", &two, "")), (400, "invalid_header".to_owned()));
    }
    // What any node answers as well.
    for path in ["/v1/users", "/v1/posts/all"] {
        let status = |sequence: &str| nodes.b().ask("GET", path, &[("tidewire-after", sequence)], "").status;
        assert_eq!(["3", "4"].map(status), [200, 503], "{path}");
    }
    let feeds = |sequence: &str| {
        let headers = [("tidewire-after", sequence), ("content-type", "application/json")];
        nodes.a().ask("POST", "/v1/feeds", &headers, r#"{"users":["ann"]}"#).json()["feeds"][0].clone()
    };
    nodes.roles.apply(0, 9);
    assert_eq!(feeds("3")["items"], json!([]));
    assert_eq!(feeds("5")["problem"]["code"], "not_applied_yet");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| after(nodes.a(), "5"));
        nodes.roles.apply(1, 5);
        assert_eq!(waiting.join().unwrap().0, 200);
    });
}

#[test]
fn a_read_that_waits_for_a_write_is_answered_by_the_new_owner() {
    let nodes = Nodes::of_own_worlds();
    nodes.roles.apply(0, u64::MAX);
    // Asked directly, and by another node.
    for (nth, node) in (1..).zip([nodes.b(), nodes.c()]) {
        nodes.roles.own_all(Some(1));
        let sequence = nth.to_string();
        let answer = thread::scope(|scope| {
            let headers = [("tidewire-after", sequence.as_str())];
            let waiting = scope.spawn(move || node.ask("GET", "/v1/users/ann/feed", &headers, ""));
            if nth == 1 {
                wait_for(nodes.b(), "waits", 1);
            } else {
                wait_for_inside(nodes.b(), "waits", 1);
            }
            nodes.roles.own_all(Some(0));
            (1..3).for_each(|node| nodes.roles.apply(node, nth));
            waiting.join().unwrap()
        });
        assert_eq!((answer.status, answer.header("tidewire-node")), (200, "a"), "{}", answer.text);
    }
}

#[test]
fn a_read_does_not_wait_for_a_record_that_is_far_ahead() {
    let nodes = Nodes::of_own_worlds();
    nodes.roles.apply(1, 3);
    let waits = |sequence: &str| {
        let before = nodes.roles.applied_waits(1);
        let answer = nodes.b().ask("GET", "/v1/users/ann/feed", &[("tidewire-after", sequence)], "");
        assert_eq!(code(&answer), unavailable("not_applied_yet"));
        nodes.roles.applied_waits(1) - before
    };
    assert_eq!((waits("1000003"), waits("1000004"), waits(&u64::MAX.to_string())), (1, 0, 0));
}

#[test]
fn a_body_is_forwarded_up_to_its_limit() {
    let nodes = Nodes::of_own_worlds();
    let publish = |bytes: usize| {
        let start = r#"{"author":"bob","body":"#;
        let body = format!("{start}1{}}}", " ".repeat(bytes - start.len() - 2));
        assert_eq!(body.len(), bytes);
        nodes.a().send("POST", "/v1/posts", Some("application/json"), body).status
    };
    assert_eq!((publish(REQUEST_BYTES_MAX), publish(REQUEST_BYTES_MAX + 1)), (201, 413));
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let nodes = Nodes::of_own_worlds();
    nodes.roles.own("cas", Some(0));
    let mut stream = testkit::connect(nodes.a().address());
    let request = |user: &str, more: &str| {
        format!("GET /v1/users/{user}/feed HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {user}{more}\r\n\r\n")
    };
    let users = ["ann", "cas", "dan", "cas", "eve"];
    let requests: Vec<String> = users
        .iter()
        .enumerate()
        .map(|(nth, user)| request(user, if nth == 4 { "\r\nConnection: close" } else { "" }))
        .collect();
    stream.write_all(requests.concat().as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let answered: Vec<&str> = answers.lines().filter_map(|line| line.strip_prefix("x-request-id: ")).collect();
    assert_eq!(answered, users, "{answers}");
    let nodes: Vec<&str> = answers.lines().filter_map(|line| line.strip_prefix("tidewire-node: ")).collect();
    assert_eq!(nodes, ["b", "a", "b", "a", "b"], "{answers}");
}

#[test]
fn a_reset_client_connection_cancels_its_forwarded_request() {
    let (nodes, peer) = (Nodes::impatient(DEADLINE), Peer::start(Fault::Hangs));
    nodes.roles.move_to(1, peer.url.clone());
    let mut stream = testkit::connect(nodes.a().address());
    write!(stream, "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    eventually("the request is passed on", || peer.requests() > 0);
    // Without this, the system says only that nothing more is sent.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert!(peer.is_left());
}

#[test]
fn each_node_performs_only_its_own_role() {
    let nodes = Nodes::of_own_worlds();
    let post = json!({"author": "bob", "body": 1, "id": "7"});
    assert_eq!(nodes.a().post("/v1/posts", &post).status, 201);
    let has = |node: &Server| node.engine.source(&tidewire::id::SourceId::new("bob").unwrap()).is_ok();
    assert_eq!([has(nodes.a()), has(nodes.b()), has(nodes.c())], [false, false, true]);
    let engine = [("ann", 1), ("cas", 2), ("dan", 0)];
    for (user, owner) in engine {
        nodes.roles.own(user, Some(owner));
        // Apart from the cluster: each world is to differ.
        nodes.roles.sequence(Some(owner));
        let node = [nodes.a(), nodes.b(), nodes.c()][owner];
        assert_eq!(node.json("PUT", &format!("/v1/users/{user}/following/u{owner}"), &json!({})).status, 201);
        let post = json!({"author": format!("u{owner}"), "body": owner, "id": (100 + owner).to_string()});
        nodes.roles.own(&format!("u{owner}"), Some(owner));
        assert_eq!(node.post("/v1/posts?wait=delivered", &post).status, 201);
    }
    nodes.roles.own("eve", None);
    for (more, query) in [
        (json!({}), ""),
        (json!({"fields": "ids", "limit": 3}), "?fields=ids&limit=3"),
        (json!({"fields": "counts"}), "?fields=counts"),
        (json!({"fields": "ids,counts"}), "?fields=ids,counts"),
    ] {
        let mut body = more;
        body["users"] = json!(["cas", "ann", "eve", "dan", "ann"]);
        let answer = nodes.a().post("/v1/feeds", &body);
        let parts = answer.json()["feeds"].clone();
        assert_eq!(parts[2]["problem"]["code"], "owner_unavailable");
        let entry = |user: &str| {
            let page = nodes.a().get(&format!("/v1/users/{user}/feed{query}")).text;
            format!(r#"{{"user":"{user}",{}"#, page.strip_prefix('{').unwrap())
        };
        for (nth, user) in [(0, "cas"), (1, "ann"), (3, "dan"), (4, "ann")] {
            assert_eq!(parts[nth]["items"].as_array().unwrap().len(), 1, "{parts}");
            assert!(answer.text.contains(&entry(user)), "{user}: {}", answer.text);
        }
        assert_eq!(answer.text.matches(&entry("ann")).count(), 2);
    }
}

//! Requests that wait keep no permit from requests that could go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use testkit::{eventually, reached};
use tidewire_server::http::admission::AdmissionLimits;

use crate::cluster::nodes::{KEY, Nodes};
use crate::cluster::peer::{Fault, Peer};
use crate::cluster::rights::ANYBODY;
use crate::overload::{under_way, unread_page, wait_for};
use crate::server::Server;

/// Fewer permits than requests that wait.
const LIMITS: AdmissionLimits =
    AdmissionLimits { reads: 2, wake_ups: 2, writes: 2, write_bytes: 1 << 20, response_bytes: 1 << 20, passes: 64 };

const WAITING: u64 = 8;

/// Asks again and again with so many clients until `and_then` has ended.
fn while_asked(clients: u64, ask: impl Fn() + Sync, and_then: impl FnOnce()) {
    let has_ended = AtomicBool::new(false);
    let until_ended = || {
        while !has_ended.load(Ordering::Relaxed) {
            ask();
        }
    };
    thread::scope(|scope| {
        (0..clients).for_each(|_| drop(scope.spawn(until_ended)));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(and_then));
        has_ended.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
}

fn read(node: &Server, user: &str, headers: &[(&str, &str)]) -> u16 {
    node.ask("GET", &format!("/v1/users/{user}/feed"), headers, "").status
}

#[test]
fn requests_that_wait_for_a_record_hold_no_permits_on_either_node() {
    let nodes = Nodes::limited(LIMITS);
    nodes.roles.own("cas", Some(0));
    // Asked directly, and by another node, which waits for the answer.
    for node in [nodes.b(), nodes.a()] {
        let wait = || {
            read(node, "ann", &[("tidewire-after", "1000")]);
        };
        while_asked(WAITING, wait, || {
            if node.address() == nodes.b().address() {
                wait_for(nodes.b(), "waits", WAITING);
            } else {
                wait_for_inside(nodes.b(), "waits", WAITING);
            }
            assert_eq!(read(nodes.b(), "ann", &[]), 200, "by a client of the owner");
            assert_eq!(read(nodes.a(), "ann", &[]), 200, "by another node");
            assert_eq!(read(nodes.a(), "cas", &[]), 200, "on the other node");
        });
    }
}

/// Waits until so much of other nodes is in progress.
pub fn wait_for_inside(node: &Server, gate: &str, expected: u64) {
    let line = format!("tidewire_inside_under_way{{gate=\"{gate}\"}} {expected}\n");
    eventually(&line, || node.get("/metrics").text.contains(&line));
}

#[test]
fn requests_to_a_hanging_node_hold_no_permits() {
    let (nodes, peer) = (Nodes::limited(LIMITS), Peer::start(Fault::Hangs));
    nodes.roles.own("cas", Some(0));
    nodes.roles.move_to(1, peer.url.clone());
    let hang = || {
        read(nodes.a(), "ann", &[]);
    };
    while_asked(WAITING, hang, || {
        eventually("all reads are passed on", || reached(&peer.requests(), &(WAITING as usize)));
        assert_eq!(read(nodes.a(), "cas", &[]), 200);
        nodes.roles.own_all(Some(0));
    });
}

#[test]
fn publishers_that_wait_for_delivery_hold_no_permits() {
    let nodes = Nodes::limited(LIMITS);
    // The other nodes have never delivered what the sequencer has applied.
    nodes.roles.apply(2, 7);
    nodes.roles.own_all(Some(2));
    let publish =
        |query: &str| nodes.c().post(&format!("/v1/posts{query}"), &json!({"author": "bob", "body": 1})).status;
    while_asked(
        1,
        || assert_eq!(publish("?wait=delivered"), 201),
        || {
            wait_for(nodes.c(), "delivery_waits", 1);
            wait_for(nodes.c(), "writes", 0);
            assert_eq!(publish(""), 201);
            (0..2).for_each(|node| nodes.roles.apply(node, 7));
        },
    );
}

#[test]
fn requests_that_wait_for_deliveries_of_a_node_hold_no_permit() {
    let nodes = Nodes::limited(LIMITS);
    while_asked(
        1,
        || drop(nodes.b().get("/v1/cluster?delivered=7")),
        || {
            eventually("one waits, and the request for these figures alone is an operation", || {
                let admission = nodes.b().get("/v1/stats").json()["admission"].clone();
                let under_way = |gate: &str| admission[gate]["under_way"].as_u64();
                reached(&(under_way("waits"), under_way("operations")), &(Some(1), Some(1)))
            });
            nodes.roles.apply(1, 7);
        },
    );
}

#[test]
fn requests_to_a_hanging_node_use_at_most_half_of_the_passes() {
    let (nodes, peer) =
        (Nodes::limited(AdmissionLimits { passes: 4, ..AdmissionLimits::default() }), Peer::start(Fault::Hangs));
    nodes.roles.own("ann", Some(0));
    nodes.roles.move_to(0, peer.url);
    let hang = || {
        read(nodes.b(), "ann", &[]);
    };
    while_asked(WAITING, hang, || {
        wait_for(nodes.b(), "passes_to_node", 2);
        let refused = nodes.b().get("/v1/users/ann/feed");
        assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("overloaded")), "{}", refused.text);
        assert!(refused.text.contains("at most 2") && refused.text.contains("for one node"), "{}", refused.text);
        let follow = nodes.b().ask("PUT", "/v1/users/bob/following/cas", &[], "");
        assert!(follow.status < 300, "{}", follow.text);
        nodes.roles.own("ann", Some(1));
    });
}

#[test]
fn clients_that_do_not_read_their_pages_hold_no_passes() {
    let nodes = Nodes::limited(AdmissionLimits { passes: 2, ..AdmissionLimits::default() });
    nodes.roles.own_all(Some(2));
    publish_large_page(nodes.c());
    let pages: Vec<_> = (0..4).map(|_| unread_page(nodes.a())).collect();
    assert!(pages.iter().all(|(status, _)| *status == 200));
    assert_eq!(under_way(nodes.a(), "passes"), 0);
    assert!(under_way(nodes.a(), "response_bytes") > 4 * 3_000_000, "they are here");
    drop(pages);
    wait_for(nodes.a(), "response_bytes", 0);
}

#[test]
fn feeds_that_wait_for_a_hanging_node_count_as_response_bytes() {
    let nodes = Nodes::limited(AdmissionLimits::default());
    publish_large_page(nodes.c());
    nodes.roles.own("bob", Some(2));
    nodes.roles.move_to(1, Peer::start(Fault::Hangs).url);
    let ask = || {
        let feeds = nodes.a().post("/v1/feeds", &json!({"users": ["bob", "ann"], "limit": 50})).json()["feeds"].clone();
        assert_eq!(
            (feeds[0]["items"].as_array().unwrap().len(), &feeds[1]["problem"]["code"]),
            (50, &json!("owner_unavailable"))
        );
    };
    while_asked(1, ask, || {
        eventually("bob's page is here and counts", || under_way(nodes.a(), "response_bytes") >= 3_000_000);
    });
}

/// Publishes a page of about 3 MB.
fn publish_large_page(node: &Server) {
    node.json("PUT", "/v1/users/bob/following/bob", &json!({}));
    for _ in 0..50 {
        let post = json!({"author": "bob", "body": "x".repeat(60_000)});
        assert_eq!(node.post("/v1/posts", &post).status, 201);
    }
}

#[test]
fn forwarded_requests_do_not_wait_for_permits_of_client_requests() {
    let nodes = Nodes::limited(AdmissionLimits { passes: 1, ..AdmissionLimits::default() });
    nodes.roles.own("ann", Some(0));
    nodes.roles.move_to(0, Peer::start(Fault::Hangs).url);
    let hang = || {
        read(nodes.b(), "ann", &[]);
    };
    // More than the workers of the node have permits, for reads of a user whose owner hangs.
    while_asked(64, hang, || {
        let follow = ("PUT", "/v1/users/bob/following/cas");
        let refused = eventually("there are no permits for requests of clients", || {
            Some(nodes.b().ask(follow.0, follow.1, &[], "")).filter(|answer| answer.status == 503)
        });
        assert_eq!(refused.json()["code"], "overloaded");
        let headers = [("tidewire-hop", "owner"), ("tidewire-caller", ANYBODY), ("tidewire-cluster-key", KEY)];
        let of_node = nodes.b().ask(follow.0, follow.1, &headers, "");
        assert!(of_node.status < 300, "{}", of_node.text);
        nodes.roles.own("ann", Some(1));
    });
}

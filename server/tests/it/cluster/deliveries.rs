//! `wait=delivered` through a cluster: the answer comes after all nodes have delivered, or after five seconds.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{eventually, reached};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;

use crate::cluster::nodes::Nodes;
use crate::requirements::delivery::{crowded_engine, while_held};

/// More than a node takes of other nodes at once.
const PUBLISHERS: usize = 100;

/// Node `b` owns everybody and has not applied what `c` has just accepted, so it has not delivered it.
fn held() -> Nodes {
    let nodes = Nodes::of_own_worlds();
    nodes.roles.apply(2, 7);
    nodes.roles.apply(0, 7);
    nodes
}

fn publish(nodes: &Nodes, id: usize) -> u16 {
    let post = json!({"id": id.to_string(), "author": "bob", "body": 1});
    nodes.c().post("/v1/posts?wait=delivered", &post).status
}

#[test]
fn any_number_of_publishers_wait_until_the_last_node_has_delivered() {
    for publishers in [1, PUBLISHERS] {
        let (nodes, answered) = (held(), AtomicUsize::new(0));
        nodes.roles.own_all(Some(2));
        thread::scope(|scope| {
            let one = |id: usize| {
                let status = publish(&nodes, id);
                answered.fetch_add(1, Ordering::SeqCst);
                status
            };
            let asked: Vec<_> = (1..=publishers).map(|id| scope.spawn(move || one(id))).collect();
            let published = || nodes.c().get("/v1/stats").json()["published"].as_u64().unwrap() as usize;
            eventually("all are published", || reached(&published(), &publishers));
            assert_eq!(answered.load(Ordering::SeqCst), 0, "none of {publishers} is answered before it is delivered");
            nodes.roles.apply(1, 7);
            let statuses: Vec<u16> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
            assert_eq!(statuses, vec![201; publishers]);
        });
    }
}

#[test]
#[ignore = "takes the 5 s that a publisher waits"]
fn a_publish_is_answered_after_a_timeout_if_a_node_never_delivers() {
    let nodes = held();
    nodes.roles.own_all(Some(2));
    let answer = nodes.b().get("/v1/cluster?delivered=7");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("not_applied_yet")));
    assert_eq!(nodes.b().get("/v1/cluster?delivered=0").status, 200);
    let began = Instant::now();
    assert_eq!(publish(&nodes, 1), 201);
    assert!(began.elapsed() >= Duration::from_secs(5), "it has waited for the node first");
}

#[test]
fn a_node_reports_delivery_when_its_readers_have_the_post_not_when_applied() {
    let (crowded, clock) = crowded_engine(10);
    let started = Cell::new(0);
    let engine = || match started.replace(started.get() + 1) {
        1 => crowded.clone(),
        _ => Engine::start(EngineConfig::default()),
    };
    let nodes = Nodes::with(engine, |state| state);
    nodes.roles.sequence(Some(1));
    let delivered = || nodes.b().get("/v1/cluster?delivered=0").status;
    assert_eq!(delivered(), 200);
    while_held(nodes.b(), &clock, || {
        assert_eq!(nodes.b().post("/v1/posts", &json!({"author": "big", "body": 1})).status, 201);
        assert_eq!(delivered(), 503);
    });
    assert_eq!(delivered(), 200);
}

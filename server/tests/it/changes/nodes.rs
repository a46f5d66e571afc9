//! The stream of changes of nodes that share a log.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::cluster::placement::{Place, Placement as _};
use tidewire::config::EngineConfig;
use tidewire::id::SourceId;
use tidewire_server::http::auth::Access;

use super::lines;
use crate::server::Server;
use crate::three_nodes;

#[test]
fn every_node_has_the_same_changes_and_names_its_own_readers_who_missed_a_post() {
    let (config, access) = (EngineConfig::default(), Arc::new(Access::default()));
    let (mut servers, mut views) = (Vec::new(), Vec::new());
    for three_nodes::Node { engine, state, listener, view, .. } in three_nodes::join(&config, &access) {
        servers.push(Server::on(listener, state, engine));
        views.push(view);
    }
    three_nodes::sequencer(&views);
    let readers: Vec<String> = (0..30).map(|nth| format!("reader-{nth}")).collect();
    for (nth, reader) in readers.iter().enumerate() {
        let server = &servers[nth % 3];
        let followed = server.json("PUT", &format!("/v1/users/{reader}/following/bob"), &json!({}));
        assert_eq!(followed.status, 201, "{}", followed.text);
        let rules = server.json("PATCH", &format!("/v1/users/{reader}/rules"), &json!({"notify": true}));
        assert_eq!(rules.status, 200, "{}", rules.text);
    }
    let batch: Vec<Value> =
        (0..20).map(|nth| json!({"author": "bob", "body": nth, "id": (nth + 1).to_string()})).collect();
    let batch = servers[0].post("/v1/posts/batch", &json!({"posts": batch}));
    assert_eq!(batch.status, 200, "{}", batch.text);
    let sequence: u64 = batch.header("tidewire-sequence").parse().unwrap();
    eventually("all nodes apply the batch", || views.iter().all(|view| view.applied().0 >= sequence));
    let all = lines(&servers[0], 0, 1_000, "");
    let count = |kind: &str| all.iter().filter(|event| event["type"] == kind).count();
    assert_eq!([count("followed"), count("rules_changed"), count("published")], [30, 30, 20]);
    let mut named = BTreeSet::new();
    for (server, view) in servers.iter().zip(&views) {
        assert_eq!(lines(server, 0, 7, ""), all);
        let missed = lines(server, 0, 10_000, "&types=missed");
        for message in missed.iter().filter(|message| message["type"] == "missed") {
            let reader = message["reader"].as_str().unwrap();
            assert_eq!(view.owner(&SourceId::new(reader).unwrap()), Place::Here, "{message}");
            assert!(named.insert((reader.to_owned(), message["post"]["id"].to_string())), "{message} came twice");
        }
    }
    assert_eq!(named.len(), 30 * 20);
}

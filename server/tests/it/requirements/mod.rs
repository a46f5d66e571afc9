//! Requirements over HTTP, and edge cases of them. `rows` compares the tests that are named after a requirement with docs/requirements.md.

pub mod delivery;
mod late;
mod live;
mod pages;
mod polling;
mod preferences;
mod rows;
#[cfg(feature = "cassandra")]
mod second_level;
mod trouble;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::storage::journal::MemoryJournal;

use crate::personal::status;
use crate::server::Server;

/// A server whose time stands still until a test moves it on.
fn timed(config: EngineConfig) -> (Server, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let journal = MemoryJournal::default();
    (Server::of(Engine::start_with(config, journal, Arc::clone(&clock) as Arc<dyn Clock>)), clock)
}

fn feed(reader: &str) -> String {
    format!("/v1/users/{reader}/feed")
}

/// Follows many at once.
fn follow_all<'a>(server: &Server, edges: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let edge = |(follower, source): (&str, &str)| json!({"follower": follower, "source": source});
    let follows: Vec<Value> = edges.into_iter().map(edge).collect();
    let answer = server.post("/v1/follows", &json!({"follows": follows}));
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn unfollow(server: &Server, follower: &str, source: &str) {
    assert_eq!(status(server, "DELETE", &format!("/v1/users/{follower}/following/{source}")), 204);
}

/// The publish time of a post.
fn at(time: UnixMicros) -> Value {
    json!({"published_at": time.to_string()})
}

fn figure(server: &Server, name: &str) -> u64 {
    let stats = server.get("/v1/stats?inboxes=count").json();
    stats.pointer(&format!("/{name}")).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name} in {stats}"))
}

/// All entries of a feed, read page by page down to its end. Each page is full and complete, and no entry comes twice.
fn walk(server: &Server, path: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut cursors, mut before) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let page = server.get(&format!("{path}?limit={limit}{before}")).json();
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page}"));
        assert_eq!(page["partial"], json!([]));
        for item in items {
            assert!(cursors.insert(item["cursor"].as_str().unwrap().to_owned()), "{item} comes twice");
        }
        all.extend(items.iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        assert_eq!(items.len(), limit, "a page is full while anything is left");
        before = format!("&before={next}");
    }
}

fn numbers(items: &[Value]) -> Vec<u64> {
    items.iter().map(|item| item["post"]["body"].as_u64().unwrap()).collect()
}

/// The bodies of all entries, read in pages of seven.
fn all(server: &Server, reader: &str) -> Vec<u64> {
    numbers(&walk(server, &feed(reader), 7))
}

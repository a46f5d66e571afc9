//! Nodes with data directories: they start from snapshots, their own and each other's, while the log loses its beginning.

use testkit::eventually;
use tidewire::storage::log::ReadLog as _;
use tidewire::storage::sequence::Sequence;
use tidewire_kafka::{KafkaLog, KafkaOptions};

use std::path::Path;
use std::process::Child;

use serde_json::{Value, json};

use super::client::{Client, Done, Outcome};
use super::{free_address, tidewire};
use testkit::kafka::Brokers;

/// A node that reaches the brokers directly.
pub struct Node {
    pub process: Child,
    pub url: String,
    client: Client,
}

impl Node {
    pub fn start(name: &str, brokers: &Brokers, directory: &Path, more: &[&str]) -> Self {
        let address = free_address();
        let url = format!("http://{address}");
        let mut command = tidewire();
        command.args(["serve", "--listen", &address, "--node", name, "--advertise", &url, "--cluster", "feeds"]);
        command.args(["--kafka", &brokers.addresses, "--member-timeout", "2s"]).args(more);
        let process = command.arg("--cluster-key-file").arg(directory.join("key")).spawn().unwrap();
        Self { process, url, client: Client::new() }
    }

    /// Starts a server that belongs to no cluster.
    pub fn start_alone(data: &str, more: &[&str]) -> Self {
        let address = free_address();
        let process = tidewire().args(["serve", "--listen", &address, "--data-dir", data]).args(more).spawn().unwrap();
        Self { process, url: format!("http://{address}"), client: Client::new() }
    }

    pub fn get(&self, path: &str) -> Option<(u16, Value)> {
        match self.client.get(&format!("{}{path}", self.url)) {
            Outcome::Done(Done { status, body, .. }) => Some((status, body)),
            Outcome::Unreached(_) | Outcome::Refused(_) | Outcome::Open(_) => None,
        }
    }

    pub fn send(&self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        match self.client.send(method, &format!("{}{path}", self.url), body) {
            Outcome::Done(Done { status, body, .. }) => Some((status, body)),
            Outcome::Unreached(_) | Outcome::Refused(_) | Outcome::Open(_) => None,
        }
    }

    /// Returns the number of nodes that this one knows, if one of them takes writes.
    fn members(&self) -> Option<usize> {
        let (_, state) = self.get("/v1/cluster").filter(|(status, _)| *status == 200)?;
        state["sequencer"].as_str()?;
        Some(state["nodes"].as_array()?.len())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const READERS: [&str; 3] = ["ann", "carl", "dora"];
const AUTHORS: [&str; 2] = ["bob", "eve"];

/// Starts a node on its data directory.
fn start(name: &str, brokers: &Brokers, directory: &Path) -> Node {
    let data = directory.join(name);
    Node::start(name, brokers, directory, &["--data-dir", data.to_str().unwrap()])
}

/// Returns everything that users see, as one node shows it.
pub fn world(node: &Node, posts: u64) -> Vec<Value> {
    let get = |path: &str| {
        let mut shown = Value::Null;
        eventually("a page is shown", || {
            let answer = node.get(path).filter(|(status, _)| matches!(status, 200 | 404));
            shown = answer.map_or(Value::Null, |(status, body)| json!({"status": status, "body": body}));
            !shown.is_null()
        });
        // A page names a token of the node that has built it.
        shown["body"].as_object_mut().into_iter().for_each(|page| {
            page.retain(|name, _| !matches!(name.as_str(), "resume" | "newest"));
        });
        shown
    };
    let feeds =
        READERS.iter().flat_map(|reader| ["feed?limit=100", "following"].map(|of| format!("/v1/users/{reader}/{of}")));
    let authors =
        AUTHORS.iter().flat_map(|author| ["posts?limit=100", "followers"].map(|of| format!("/v1/users/{author}/{of}")));
    let posts = (1..=posts).map(|id| format!("/v1/posts/{id}"));
    feeds.chain(authors).chain(posts).map(|path| get(&path)).collect()
}

/// Makes all readers follow all authors.
pub fn follow(node: &Node) {
    for (reader, author) in READERS.iter().flat_map(|reader| AUTHORS.map(|author| (reader, author))) {
        let path = format!("/v1/users/{reader}/following/{author}");
        eventually("an edge is accepted", || matches!(node.send("PUT", &path, &Value::Null), Some((200..=204, _))));
    }
}

/// Publishes posts through a node, and deletes every seventh one. Returns once all nodes show them: a feed that another node shows may be some
/// milliseconds behind otherwise.
pub fn write(node: &Node, ids: std::ops::RangeInclusive<u64>) {
    let done = |answer| matches!(answer, Some((200..=204, _)));
    for id in ids {
        let author = AUTHORS[id as usize % AUTHORS.len()];
        let post = json!({"id": id.to_string(), "author": author, "body": {"text": format!("post {id}")}});
        eventually("a post is accepted", || done(node.send("POST", "/v1/posts?wait=delivered", &post)));
        if id % 7 == 0 {
            eventually("a post is deleted", || {
                done(node.send("DELETE", &format!("/v1/posts/{}", id - 3), &Value::Null))
            });
        }
    }
}

pub fn members(nodes: &[&Node]) {
    let knows = |node: &&Node| node.members() == Some(nodes.len());
    eventually("all nodes are members", || nodes.iter().all(knows));
}

pub fn kill(mut node: Node) {
    node.process.kill().unwrap();
    node.process.wait().unwrap();
}

/// Returns the record of the snapshot from which a node has started, and the number of events that it read after it.
pub fn recovery(node: &Node) -> (Option<u64>, u64) {
    let mut recovery = Value::Null;
    eventually("a node is ready", || {
        let stats = node.get("/v1/stats").filter(|(status, _)| *status == 200);
        recovery = stats.map_or(Value::Null, |(_, stats)| stats["recovery"].clone());
        !recovery.is_null()
    });
    (recovery["snapshot"].as_u64(), recovery["events"].as_u64().unwrap())
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn nodes_start_from_own_or_peer_snapshots_when_the_log_is_truncated() {
    let brokers = Brokers::start(1);
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("key"), "0123456789abcdef0123456789abcdef").unwrap();
    let init = ["cluster", "init", "--cluster", "feeds", "--replicas", "1", "--log-retention", "7d", "--kafka"];
    assert!(tidewire().args(init).arg(&brokers.addresses).status().unwrap().success());
    let mut in_memory = Node::start("m", &brokers, directory, &[]);
    assert!(!in_memory.process.wait().unwrap().success(), "a log with limited retention needs a data directory");
    let (a, b) = (start("a", &brokers, directory), start("b", &brokers, directory));
    members(&[&a, &b]);
    follow(&a);
    write(&a, 1..=60);
    let (status, taken) = a.send("POST", "/v1/snapshots", &Value::Null).unwrap();
    assert_eq!(status, 201, "{taken}");
    let taken = taken["sequence"].as_u64().unwrap();
    write(&b, 61..=80);
    let expected = world(&a, 80);

    // Its own snapshot, and only what came after it.
    kill(a);
    let a = start("a", &brokers, directory);
    members(&[&a, &b]);
    let (snapshot, events) = recovery(&a);
    assert_eq!(snapshot, Some(taken));
    assert!((20..=23).contains(&events), "{events} events");

    // The log loses its beginning, and a new node comes.
    let log = KafkaLog::open(KafkaOptions::new(&brokers.addresses, "feeds")).unwrap();
    // Also records that the only snapshot does not contain.
    log.delete_before(Sequence(taken + 10)).unwrap();
    assert_eq!(log.range().unwrap().first, Sequence(taken + 10));
    let stranger = ureq::get(format!("{}/v1/cluster/snapshot", a.url)).header("tidewire-cluster-key", "x".repeat(32));
    let refused = stranger.config().http_status_as_error(false).build().call().unwrap();
    assert_eq!(refused.status().as_u16(), 403, "only nodes get snapshots");
    let c = start("c", &brokers, directory);
    members(&[&a, &b, &c]);
    assert!(recovery(&c).0 > Some(taken + 8), "{:?}", recovery(&c));

    // The new node shows the same world, alone.
    kill(a);
    kill(b);
    members(&[&c]);
    assert_eq!(world(&c, 80), expected);
    write(&c, 81..=90);
}

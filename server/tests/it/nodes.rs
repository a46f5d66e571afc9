//! Three nodes and a real Kafka: real processes, killed and started again.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test's own threads may sleep, and it lists its faults"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[path = "../../../tests/support/kafka_broker.rs"]
mod kafka_broker;

use kafka_broker::Brokers;

/// The time after which a silent node counts as dead.
const SESSION: &str = "2s";

/// The time for which a test waits for something that takes a few sessions at most.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    name: String,
    url: String,
    process: Child,
    agent: ureq::Agent,
}

struct Nodes {
    brokers: Brokers,
    directory: tempfile::TempDir,
    nodes: Vec<Node>,
}

fn tidewire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command.stdin(Stdio::null()).env("TIDEWIRE_LOG", "warn");
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Node {
    fn start(name: &str, brokers: &Brokers, directory: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let url = format!("http://{address}");
        let options = ["--cluster", "feeds", "--kafka", &brokers.addresses, "--cluster-session", SESSION];
        let key = directory.join("key");
        let process = tidewire()
            .args(["serve", "--listen", &address, "--node", name, "--advertise", &url, "--cluster-key-file"])
            .arg(key)
            .args(options)
            .spawn()
            .unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(3)))
            .build()
            .new_agent();
        Self { name: name.to_owned(), url, process, agent }
    }

    fn get(&self, path: &str) -> Option<(u16, Value)> {
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Option<u16> {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", "application/json").body(body).unwrap();
        let mut answer = self.agent.run(request).ok()?;
        let (status, text) = (answer.status().as_u16(), answer.body_mut().read_to_string().ok()?);
        // While the sequencer is gone, writes are refused.
        assert!(status < 400 || status == 503, "{method} {path} through {}: {status} {text}", self.name);
        Some(status)
    }

    /// Returns the name of the sequencer and the number of nodes, as this node knows them.
    fn cluster(&self) -> Option<(String, usize)> {
        let (_, state) = self.get("/v1/cluster").filter(|(status, _)| *status == 200)?;
        Some((state["sequencer"].as_str()?.to_owned(), state["nodes"].as_array()?.len()))
    }

    fn feed(&self, reader: &str) -> Option<Vec<String>> {
        let (status, page) = self.get(&format!("/v1/users/{reader}/feed?limit=100"))?;
        let ids =
            |items: &Vec<Value>| items.iter().map(|item| item["post"]["id"].as_str().unwrap().to_owned()).collect();
        (status == 200).then(|| page["items"].as_array().map_or(Vec::new(), ids))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nodes {
    /// Starts a broker and three nodes. Returns none if Kafka is not installed.
    fn start() -> Option<Self> {
        let (brokers, directory) = (Brokers::start(1)?, tempfile::tempdir().unwrap());
        std::fs::write(directory.path().join("key"), "0123456789abcdef0123456789abcdef").unwrap();
        let init = ["cluster", "init", "--cluster", "feeds", "--replicas", "1", "--kafka", &brokers.addresses];
        assert!(tidewire().args(init).status().unwrap().success());
        let nodes = ["a", "b", "c"].iter().map(|name| Node::start(name, &brokers, directory.path())).collect();
        let cluster = Self { brokers, directory, nodes };
        cluster.all_are_members();
        Some(cluster)
    }

    fn all_are_members(&self) {
        let count = self.nodes.len();
        let knows = |node: &Node| node.cluster().is_some_and(|(_, members)| members == count);
        until("all nodes are members", || self.nodes.iter().all(knows));
    }

    fn sequencer(&self) -> usize {
        let mut found = None;
        until("a sequencer is known", || {
            let name = self.nodes.iter().find_map(|node| node.cluster().map(|(name, _)| name));
            found = name.and_then(|name| self.nodes.iter().position(|node| node.name == name));
            found.is_some()
        });
        found.unwrap()
    }

    /// Publishes a post through a node, again until it is accepted: the id makes this safe.
    fn publish(&self, node: usize, id: u64) {
        let post = json!({"id": id.to_string(), "author": "bob", "body": {"text": "hello"}});
        let accepted = |status| matches!(status, Some(200 | 201));
        until("a post is accepted", || accepted(self.nodes[node].send("POST", "/v1/posts", &post)));
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} does not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_node_loses_nothing_and_the_others_go_on() {
    let Some(mut cluster) = Nodes::start() else { return };
    for reader in ["ann", "carl", "dora", "eve"] {
        let path = format!("/v1/users/{reader}/following/bob");
        until("an edge is accepted", || {
            matches!(cluster.nodes[0].send("PUT", &path, &Value::Null), Some(200 | 201 | 204))
        });
    }
    let mut published = 0..;
    let mut all = BTreeSet::new();
    for round in 0..3 {
        for node in 0..cluster.nodes.len() {
            let id = 100 + published.next().unwrap();
            cluster.publish(node, id);
            all.insert(id);
        }
        // The sequencer, then another node.
        let victim = (cluster.sequencer() + usize::from(round == 1)) % cluster.nodes.len();
        let mut killed = cluster.nodes.remove(victim);
        killed.process.kill().unwrap();
        killed.process.wait().unwrap();
        let id = 100 + published.next().unwrap();
        cluster.publish(0, id);
        all.insert(id);
        let again = Node::start(&killed.name, &cluster.brokers, cluster.directory.path());
        cluster.nodes.insert(victim, again);
        cluster.all_are_members();
    }
    let newest_first: Vec<String> = all.iter().rev().map(u64::to_string).collect();
    for node in &cluster.nodes {
        for reader in ["ann", "carl", "dora", "eve"] {
            until("a feed has all posts", || node.feed(reader).is_some_and(|feed| feed.len() >= newest_first.len()));
            let mut feed = node.feed(reader).unwrap();
            feed.sort_unstable_by(|one, other| other.cmp(one));
            assert_eq!(feed, newest_first, "of {reader} on node {}", node.name);
        }
    }
}

/// What has become of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Accepted,
    /// Refused, or without an answer: it may be there or not.
    Open,
}

/// A fault of a node or of Kafka, which ends when it is healed.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The process of a node is killed, and started again.
    Killed,
    /// The process of a node is stopped for two sessions.
    Paused,
    /// Kafka is killed, and started again.
    KafkaKilled,
    /// Kafka is stopped for two sessions.
    KafkaPaused,
}

#[test]
fn faults_of_nodes_and_of_kafka_lose_nothing_that_was_acknowledged() {
    let Some(mut cluster) = Nodes::start() else { return };
    until("an edge is accepted", || {
        matches!(cluster.nodes[0].send("PUT", "/v1/users/ann/following/bob", &Value::Null), Some(200 | 201 | 204))
    });
    let rounds = std::env::var("TIDEWIRE_CLUSTER_FAULTS").ok().and_then(|count| count.parse().ok()).unwrap_or(4);
    let faults = [Fault::Paused, Fault::KafkaKilled, Fault::Killed, Fault::KafkaPaused];
    let mut fates = BTreeMap::new();
    for (round, fault) in faults.into_iter().cycle().take(rounds).enumerate() {
        // The sequencer in every second round of a kind.
        let victim = (cluster.sequencer() + round / faults.len()) % cluster.nodes.len();
        let before = accepted(&fates);
        cluster.publish_for(&mut fates, Duration::from_millis(500), 4);
        cluster.inflict(fault, victim);
        cluster.publish_for(&mut fates, Duration::from_secs(5), 1);
        cluster.heal(fault, victim);
        cluster.publish_for(&mut fates, Duration::from_millis(500), 4);
        cluster.all_are_members();
        let more = accepted(&fates) - before;
        println!("fault {round}: {fault:?} of {}, {more} accepted", cluster.nodes[victim].name);
        assert!(more > 0, "a fault among no accepted writes proves nothing");
    }
    let last = 1_000_000;
    cluster.publish(0, last);
    fates.insert(last, Fate::Accepted);
    cluster.check(&fates);
}

fn accepted(fates: &BTreeMap<u64, Fate>) -> usize {
    fates.values().filter(|fate| **fate == Fate::Accepted).count()
}

impl Nodes {
    /// Publishes posts through all nodes in turn, each once.
    fn publish_for(&self, fates: &mut BTreeMap<u64, Fate>, lasts: Duration, at_once: usize) {
        let began = Instant::now();
        while began.elapsed() < lasts {
            let first = fates.len() as u64 + 1;
            let tried: Vec<(u64, Fate)> = thread::scope(|scope| {
                let publish = |nth: u64| {
                    let node = &self.nodes[(first + nth) as usize % self.nodes.len()];
                    let post = json!({"id": (first + nth).to_string(), "author": "bob", "body": {"text": "hello"}});
                    let is_accepted = matches!(node.send("POST", "/v1/posts", &post), Some(200 | 201));
                    (first + nth, if is_accepted { Fate::Accepted } else { Fate::Open })
                };
                let tries: Vec<_> = (0..at_once as u64).map(|nth| scope.spawn(move || publish(nth))).collect();
                tries.into_iter().map(|tried| tried.join().unwrap()).collect()
            });
            fates.extend(tried);
        }
    }

    fn signal(&self, node: usize, name: &str) {
        let process = self.nodes[node].process.id().to_string();
        assert!(Command::new("kill").args([format!("-{name}"), process]).status().unwrap().success());
    }

    fn inflict(&mut self, fault: Fault, victim: usize) {
        match fault {
            Fault::Killed => {
                self.nodes[victim].process.kill().unwrap();
                self.nodes[victim].process.wait().unwrap();
            }
            Fault::Paused => self.signal(victim, "STOP"),
            Fault::KafkaKilled => self.brokers.kill(1),
            Fault::KafkaPaused => self.brokers.pause(1),
        }
    }

    fn heal(&mut self, fault: Fault, victim: usize) {
        match fault {
            Fault::Killed => {
                let again = Node::start(&self.nodes[victim].name, &self.brokers, self.directory.path());
                self.nodes[victim] = again;
            }
            Fault::Paused => self.signal(victim, "CONT"),
            Fault::KafkaKilled | Fault::KafkaPaused => self.brokers.restore(),
        }
    }

    /// Checks that all nodes have the same posts, and all that were accepted.
    fn check(&self, fates: &BTreeMap<u64, Fate>) {
        let mut exist = BTreeMap::new();
        for node in &self.nodes {
            for (id, fate) in fates {
                let status = node.get(&format!("/v1/posts/{id}")).map(|(status, _)| status);
                let exists = status == Some(200);
                assert!(exists || status == Some(404), "post {id} on {}: {status:?}", node.name);
                assert!(exists || *fate == Fate::Open, "post {id}, which was accepted, is not on {}", node.name);
                assert_eq!(*exist.entry(*id).or_insert(exists), exists, "post {id} on {}", node.name);
            }
        }
    }
}

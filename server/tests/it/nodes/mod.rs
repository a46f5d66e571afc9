//! Several nodes and a real Kafka: real processes, killed and started again.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test's own threads may sleep, and it lists its faults"
)]

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[cfg(feature = "cassandra")]
mod archive;
#[cfg(feature = "backup")]
mod backups;
mod balancer;
mod client;
mod door;
mod faults;
mod nemesis;
mod oracle;
mod snapshots;
#[cfg(feature = "cluster-tls")]
mod tls;
mod watchers;
mod writers;

use balancer::Balancer;
use client::{Client, Done, Outcome};
use door::Door;
use testkit::eventually;
use testkit::kafka::Brokers;
use testkit::test_servers::Ports;

/// The time after which a silent node counts as dead.
const SESSION: Duration = Duration::from_secs(2);

/// The time for which a test waits for something that takes a few sessions at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes that there may be. The last ones join later.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A place for a node, with its own way to the brokers.
struct Slot {
    name: &'static str,
    door: Door,
    /// None if no process should run.
    process: Option<Child>,
    /// True if the process was started with the earlier version.
    is_before: bool,
}

struct Nodes {
    slots: Vec<Slot>,
    /// It has the addresses of all slots. Those of nodes that do not run answer nothing.
    balancer: Balancer,
    client: Client,
    brokers: Brokers,
    directory: tempfile::TempDir,
    /// Further options of each node.
    options: Vec<String>,
    /// The program of an earlier version, which nodes run if they start before the upgrade.
    program_before: Option<String>,
}

/// What a node knows of the cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Known {
    epoch: u64,
    sequencer: Option<String>,
    members: Vec<String>,
    applied: u64,
}

/// Runs a program that the kernel kills when the thread that started it ends, also if all of this process is killed.
const END_WITH_PARENT: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Returns true if this machine has `setpriv` of util-linux. Without it a test that is killed leaves its nodes behind.
fn can_end_with_its_parent() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let tried = Command::new(END_WITH_PARENT[0]).args(&END_WITH_PARENT[1..]).arg("true").output();
        tried.is_ok_and(|done| done.status.success())
    })
}

fn tidewire() -> Command {
    command(std::env::var("TIDEWIRE_CLUSTER_PROGRAM").unwrap_or(env!("CARGO_BIN_EXE_tidewire").to_owned()))
}

/// Runs an earlier version, or the present one.
fn version(program_before: &Option<String>) -> Command {
    program_before.clone().map_or_else(tidewire, command)
}

fn command(program: String) -> Command {
    let mut command = if can_end_with_its_parent() {
        let mut command = Command::new(END_WITH_PARENT[0]);
        command.args(&END_WITH_PARENT[1..]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).env("TIDEWIRE_LOG_LEVEL", "info");
    command
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn signal(process: &Child, name: &str) {
    assert!(Command::new("kill").args([format!("-{name}"), process.id().to_string()]).status().unwrap().success());
}

impl Nodes {
    /// Starts this many brokers, and three nodes.
    fn start(brokers: usize) -> Self {
        Self::start_with(brokers, &[], &[])
    }

    /// The same, with further options of `tidewire cluster init`, and of each node.
    fn start_with(brokers: usize, of_cluster: &[&str], of_node: &[&str]) -> Self {
        let (brokers, directory) = (Brokers::with_doors(brokers, NAMES.len()), tempfile::tempdir().unwrap());
        std::fs::write(directory.path().join("key"), "0123456789abcdef0123456789abcdef").unwrap();
        let replicas = brokers.count().to_string();
        let init = ["cluster", "init", "--cluster", "feeds", "--replicas", &replicas, "--kafka", &brokers.addresses];
        let program_before = std::env::var("TIDEWIRE_CLUSTER_PROGRAM_BEFORE").ok();
        assert!(version(&program_before).args(init).args(of_cluster).status().unwrap().success());
        let slot = |(nth, name): (usize, &&'static str)| Slot {
            name,
            door: Door::new(&brokers.door(nth + 1)),
            process: None,
            is_before: false,
        };
        let slots: Vec<Slot> = NAMES.iter().enumerate().map(slot).collect();
        let balancer = Balancer::start(slots.iter().map(|_| format!("http://{}", free_address())).collect());
        let options = of_node.iter().map(|option| (*option).to_owned()).collect();
        let mut cluster = Self { slots, balancer, client: Client::new(), brokers, directory, options, program_before };
        (0..3).for_each(|node| cluster.start_node(node));
        cluster.all_are_members();
        cluster
    }

    /// Starts a node, if it does not run.
    fn start_node(&mut self, node: usize) {
        let (slot, address) = (&mut self.slots[node], free_address());
        if slot.process.is_some() {
            return;
        }
        let url = format!("http://{address}");
        let log = |directory: &Path| {
            OpenOptions::new().create(true).append(true).open(directory.join(format!("{}.log", slot.name))).unwrap()
        };
        let mut command = version(&self.program_before);
        command.args(["serve", "--listen", &address, "--node", slot.name, "--advertise", &url, "--cluster", "feeds"]);
        command.args(["--kafka", &slot.door.addresses, "--member-timeout", &format!("{}ms", SESSION.as_millis())]);
        command.arg("--cluster-key-file").arg(self.directory.path().join("key")).args(&self.options);
        // Half of the nodes start from snapshots, of which each is soon followed by the next; the others read the whole log.
        if node % 2 == 1 {
            command.arg("--data-dir").arg(self.directory.path().join(slot.name));
            command.args(["--snapshot-interval", "2s", "--snapshot-journal-bytes", "65536"]);
        }
        slot.is_before = self.program_before.is_some();
        slot.process = Some(command.stderr(log(self.directory.path())).spawn().unwrap());
        self.balancer.set_url(node, url);
    }

    fn kill_node(&mut self, node: usize) {
        if let Some(mut process) = self.slots[node].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.slots.len()).filter(|node| self.slots[*node].process.is_some())
    }

    fn url(&self, node: usize, path: &str) -> String {
        format!("{}{path}", self.balancer.url(node))
    }

    fn known(&self, node: usize) -> Option<Known> {
        let Outcome::Done(Done { status: 200, body, .. }) = self.client.get(&self.url(node, "/v1/cluster")) else {
            return None;
        };
        Some(Known {
            epoch: body["epoch"].as_u64()?,
            sequencer: body["sequencer"].as_str().map(str::to_owned),
            members: body["nodes"]
                .as_array()?
                .iter()
                .filter_map(|node| Some(node["name"].as_str()?.to_owned()))
                .collect(),
            applied: body["applied"].as_u64()?,
        })
    }

    /// Waits until all nodes that should run know each other.
    fn all_are_members(&mut self) {
        let running: Vec<usize> = self.running().collect();
        let began = Instant::now();
        loop {
            let known: Vec<_> = running.iter().filter_map(|node| self.known(*node)).collect();
            let agree = |known: &Known| known.members.len() == running.len() && known.sequencer.is_some();
            let is_one = known.windows(2).all(|pair| pair[0].epoch == pair[1].epoch);
            if known.len() == running.len() && known.iter().all(agree) && is_one {
                return;
            }
            for node in &running {
                let ended = self.slots[*node].process.as_mut().unwrap().try_wait().unwrap();
                assert_eq!(ended, None, "node {} ended by itself: {}", self.slots[*node].name, self.logs());
            }
            assert!(began.elapsed() < PATIENCE, "of {running:?} all are members: {known:?} {}", self.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until another node shows that this one is silent, or that it is no member any more.
    fn shows_silent(&self, killed: usize) {
        let (url, name) = (self.url((killed + 1) % 3, "/v1/cluster"), self.slots[killed].name);
        eventually("a killed node is shown as silent", || {
            let Outcome::Done(Done { status: 200, body, .. }) = self.client.get(&url) else { return false };
            let killed = body["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name);
            killed.is_none_or(|node| node["heard_ms"].as_u64() > body["beat_ms"].as_u64().map(|beat| 3 * beat))
        });
    }

    /// Returns the last lines that each node has logged.
    fn logs(&self) -> String {
        let log = |slot: &Slot| {
            let log =
                std::fs::read_to_string(self.directory.path().join(format!("{}.log", slot.name))).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(15).collect();
            format!("\n{}:\n{}", slot.name, lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        self.slots.iter().map(log).collect()
    }

    /// Returns what that node knows which knows the latest epoch.
    fn latest(&self) -> Option<Known> {
        self.running().filter_map(|node| self.known(node)).max()
    }

    /// Returns the sequencer of the latest epoch that a node knows.
    fn sequencer(&self) -> Option<usize> {
        let latest = self.latest()?;
        self.slots.iter().position(|slot| Some(slot.name) == latest.sequencer.as_deref())
    }

    /// Repeats a write through a node until it is done.
    fn write(&self, node: usize, method: &str, path: &str, body: &Value) {
        eventually(path, || match self.client.send(method, &self.url(node, path), body) {
            Outcome::Done(done) => {
                assert!(done.status < 400, "{method} {path}: {done:?}");
                true
            }
            Outcome::Unreached(_) | Outcome::Refused(_) | Outcome::Open(_) => false,
        });
    }

    fn publish(&self, node: usize, id: u64) {
        self.write(
            node,
            "POST",
            "/v1/posts",
            &json!({"id": id.to_string(), "author": "bob", "body": {"text": "hello"}}),
        );
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.slots.len()).for_each(|node| self.kill_node(node));
        if thread::panicking() {
            self.directory.disable_cleanup(true);
            println!("the logs of the nodes are in {}", self.directory.path().display());
        }
    }
}

#[test]
fn no_two_tests_have_the_same_ports() {
    let (one, other) = (Ports::reserve(31), Ports::reserve(31));
    assert!(one.first.abs_diff(other.first) >= 31, "{} and {}", one.first, other.first);
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_node_with_the_name_of_another_exits_and_reports_the_cause() {
    let cluster = Nodes::start(1);
    let name = cluster.slots[0].name;
    let mut command = tidewire();
    command.args(["serve", "--listen", &free_address(), "--node", name, "--advertise", "http://127.0.0.1:1"]);
    command.args(["--cluster", "feeds", "--kafka", &cluster.brokers.addresses, "--member-timeout", "2s"]);
    command.arg("--cluster-key-file").arg(cluster.directory.path().join("key"));
    let ended = command.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("another process") && said.contains(name), "{said}");
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_node_that_starts_waits_until_kafka_answers() {
    let mut cluster = Nodes::start(1);
    cluster.kill_node(1);
    cluster.brokers.kill(1);
    cluster.start_node(1);
    eventually("the node waits", || cluster.logs().contains("waiting, for at most 300s: the log is unavailable"));
    let ready = cluster.client.get(&cluster.url(1, "/readyz"));
    assert!(matches!(&ready, Outcome::Refused(progress) if progress.contains("connecting to the log")), "{ready:?}");
    let alive = cluster.client.get(&cluster.url(1, "/healthz"));
    assert!(matches!(alive, Outcome::Done(Done { status: 200, .. })), "{alive:?}");
    cluster.brokers.restore();
    cluster.all_are_members();
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn p1_a_killed_node_loses_nothing_and_the_others_continue() {
    let mut cluster = Nodes::start(1);
    for reader in ["ann", "carl", "dora", "eve"] {
        cluster.write(0, "PUT", &format!("/v1/users/{reader}/following/bob"), &Value::Null);
    }
    let mut ids = 100..;
    for round in 0..3 {
        (0..3).zip(&mut ids).for_each(|(node, id)| cluster.publish(node, id));
        // The sequencer, then another node.
        let victim = (cluster.sequencer().unwrap() + usize::from(round == 1)) % 3;
        cluster.kill_node(victim);
        cluster.shows_silent(victim);
        cluster.publish((victim + 1) % 3, ids.next().unwrap());
        cluster.start_node(victim);
        cluster.all_are_members();
    }
    let newest_first: Vec<String> = (100..ids.next().unwrap()).rev().map(|id| id.to_string()).collect();
    for node in 0..3 {
        for reader in ["ann", "carl", "dora", "eve"] {
            let mut ids = Vec::new();
            eventually("a feed has all posts", || {
                let url = cluster.url(node, &format!("/v1/users/{reader}/feed?limit=100"));
                let Outcome::Done(Done { status: 200, body, .. }) = cluster.client.get(&url) else { return false };
                let items = body["items"].as_array().unwrap();
                ids = items.iter().map(|item| item["post"]["id"].as_str().unwrap().to_owned()).collect();
                ids.len() >= newest_first.len()
            });
            assert_eq!(ids, newest_first, "of {reader} on node {}", cluster.slots[node].name);
        }
    }
}

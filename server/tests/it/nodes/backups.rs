//! The drills of docs/backup.md for a cluster: all nodes are lost, and then the log as well. And a server that becomes a cluster.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use testkit::eventually;
use tidewire::storage::log::ReadLog as _;
use tidewire::storage::sequence::Sequence;
use tidewire_kafka::{KafkaLog, KafkaOptions};

use super::snapshots::{Node, follow, kill, members, recovery, world, write};
use super::tidewire;
use testkit::kafka::Brokers;

/// The number of posts.
const POSTS: u64 = 80;

struct Drill {
    directory: tempfile::TempDir,
}

impl Drill {
    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn store(&self, name: &str) -> String {
        format!("file://{}", self.path(name))
    }

    /// Starts a node with backups to a store.
    fn start(&self, name: &str, brokers: &Brokers, store: &str) -> Node {
        self.start_with(name, brokers, store, &[])
    }

    /// The same, with further options.
    fn start_with(&self, name: &str, brokers: &Brokers, store: &str, more: &[&str]) -> Node {
        let (data, store) = (self.path(name), self.store(store));
        let options = ["--data-dir", &data, "--backup-to", &store, "--backup-every", "500ms"];
        Node::start(name, brokers, self.directory.path(), &[&options, more].concat())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        tidewire().current_dir(self.directory.path()).args(arguments).output().unwrap()
    }

    /// Returns the last record that can be restored from a store.
    fn copied(&self, store: &str) -> u64 {
        let listed = self.run(&["restore", "--from", &self.store(store), "--list"]);
        let text = String::from_utf8(listed.stdout).unwrap();
        let last = |line: &str| line.strip_prefix("events ")?.split([' ', ',']).nth(2)?.parse::<u64>().ok();
        text.lines().filter_map(last).max().unwrap_or(0)
    }
}

fn init(brokers: &Brokers, more: &[&str]) -> Output {
    let init = ["cluster", "init", "--cluster", "feeds", "--replicas", "1", "--kafka", &brokers.addresses];
    tidewire().args(init).args(more).output().unwrap()
}

fn of(node: &Node, path: &str) -> Value {
    let mut shown = Value::Null;
    eventually("a node shows its state", || {
        shown = node.get(path).filter(|(status, _)| *status == 200).map_or(Value::Null, |(_, body)| body);
        !shown.is_null()
    });
    shown
}

/// Returns the digest of the state of a node. It is left out while events are applied.
fn digest(node: &Node) -> String {
    let mut digest = None;
    eventually("a node shows its digest", || {
        let shown = of(node, "/v1/cluster?digest=true");
        digest = shown["world"]["digest"].as_str().map(str::to_owned);
        digest.is_some()
    });
    digest.unwrap()
}

fn metric(node: &Node, name: &str) -> Option<u64> {
    let text = ureq::get(format!("{}/metrics", node.url)).call().ok()?.body_mut().read_to_string().ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_cluster_is_restored_from_its_store_after_losing_all_nodes_or_the_log() {
    let brokers = Brokers::start(1);
    let drill = Drill { directory: tempfile::tempdir().unwrap() };
    std::fs::write(drill.path("key"), "0123456789abcdef0123456789abcdef").unwrap();
    assert!(init(&brokers, &["--log-retention", "7d"]).status.success());
    let (a, b) = (drill.start("a", &brokers, "store"), drill.start("b", &brokers, "store"));
    members(&[&a, &b]);
    follow(&a);
    write(&a, 1..=60);
    eventually("a backup is made", || drill.copied("store") > 0);
    eventually("both nodes show that there is a backup", || {
        [&a, &b].into_iter().all(|node| metric(node, "tidewire_backups") == Some(1))
    });
    // Another node takes over, and continues the backups.
    let of_sequencer = of(&a, "/v1/cluster")["sequencer"] == "a";
    let (left, gone) = if of_sequencer { (b, a) } else { (a, b) };
    kill(gone);
    members(&[&left]);
    write(&left, 61..=POSTS);
    let (expected, state, written) =
        (world(&left, POSTS), digest(&left), of(&left, "/v1/cluster")["applied"].as_u64().unwrap());
    eventually("all is copied", || drill.copied("store") >= written);
    kill(left);

    // All nodes are lost, and the log has lost its beginning: a restored directory, or none at all.
    let restored = drill.run(&["restore", "--from", &drill.store("store"), "--data-dir", "restored"]);
    assert!(restored.status.success(), "{}", text(&restored));
    let log = KafkaLog::open(KafkaOptions::new(&brokers.addresses, "feeds")).unwrap();
    log.delete_before(Sequence(written)).unwrap();
    assert_eq!(log.range().unwrap().first, Sequence(written));
    drop(log);
    let c = Node::start("c", &brokers, Path::new(&drill.path("")), &["--data-dir", &drill.path("restored")]);
    members(&[&c]);
    assert!(recovery(&c).0 >= Some(written));
    assert_eq!((world(&c, POSTS), digest(&c)), (expected.clone(), state.clone()));
    kill(c);
    let d = drill.start("d", &brokers, "store");
    members(&[&d]);
    assert_eq!((world(&d, POSTS), digest(&d)), (expected.clone(), state.clone()));
    kill(d);
    drop(brokers);

    // The log is lost, too.
    let brokers = Brokers::start(1);
    let made = init(&brokers, &["--from-snapshot", &drill.path("restored"), "--data-dir", &drill.path("first")]);
    assert!(made.status.success() && text(&made).contains(&state), "{}", text(&made));
    let again = init(&brokers, &["--from-snapshot", &drill.path("restored"), "--data-dir", &drill.path("again")]);
    assert!(!again.status.success() && text(&again).contains("already has records"), "{}", text(&again));
    assert!(std::fs::read_dir(drill.path("again")).unwrap().all(|file| file.unwrap().file_name() == "LOCK"));
    let mut nobody = drill.start("nobody", &brokers, "new-store");
    assert!(!nobody.process.wait().unwrap().success(), "it has no snapshot, and nobody gives it one");
    let first = drill.start("first", &brokers, "new-store");
    members(&[&first]);
    assert_eq!((world(&first, POSTS), digest(&first)), (expected.clone(), state.clone()));
    let second = drill.start("second", &brokers, "new-store");
    members(&[&first, &second]);
    eventually("the new node has all posts", || digest(&second) == state);
    assert_eq!(world(&second, POSTS), expected);
    write(&second, POSTS + 1..=POSTS + 10);
    eventually("the new cluster is copied", || drill.copied("new-store") > 1);
    let state = digest(&second);
    eventually("both nodes have all", || digest(&first) == state);

    // The log is lost again, and a node lives: its snapshot has all.
    drop(brokers);
    eventually("a snapshot is taken", || matches!(second.send("POST", "/v1/snapshots", &Value::Null), Some((201, _))));
    kill(first);
    kill(second);
    let brokers = Brokers::start(1);
    let made = init(&brokers, &["--from-snapshot", &drill.path("second"), "--data-dir", &drill.path("third")]);
    assert!(made.status.success() && text(&made).contains(&state), "{}", text(&made));
    let third = drill.start("third", &brokers, "third-store");
    members(&[&third]);
    assert_eq!(digest(&third), state);
    kill(third);
}

#[test]
#[cfg(feature = "cassandra")]
#[ignore = "needs Kafka and Cassandra: scripts/kafka.sh install, scripts/cassandra.sh install"]
fn a_new_cluster_begins_with_a_node_and_the_old_posts_of_its_cluster_after_the_log_is_lost() {
    use testkit::cassandra::Nodes as Store;
    let (old, new) = (Store::shared().url(&Store::keyspace()), Store::shared().url(&Store::keyspace()));
    let drill = Drill { directory: tempfile::tempdir().unwrap() };
    std::fs::write(drill.path("key"), "0123456789abcdef0123456789abcdef").unwrap();
    let brokers = Brokers::start(1);
    assert!(init(&brokers, &["--archive", &old, "--archive-replicas", "1"]).status.success());
    let start = |name, brokers: &Brokers, archive| {
        drill.start_with(name, brokers, name, &["--archive", archive, "--outbox-posts", "10"])
    };
    let node = start("a", &brokers, &old);
    members(&[&node]);
    follow(&node);
    write(&node, 1..=POSTS);
    old_posts_leave_memory(&node);
    let expected = world(&node, POSTS);
    drop(brokers);
    eventually("a snapshot is taken", || matches!(node.send("POST", "/v1/snapshots", &Value::Null), Some((201, _))));
    kill(node);

    let brokers = Brokers::start(1);
    let of_new = ["--archive", &new, "--archive-replicas", "1"];
    let init_from = |name: &str| {
        let (from, to) = (drill.path("a"), drill.path(name));
        init(&brokers, &[&["--from-snapshot", &from, "--data-dir", &to][..], &of_new].concat())
    };
    let refused = init_from("refused");
    assert!(!refused.status.success() && text(&refused).contains("tidewire archive copy"), "{}", text(&refused));
    let copied = drill.run(&["archive", "copy", "--from", &old, "--to", &drill.path("a")]);
    assert!(copied.status.success(), "{}", text(&copied));
    let made = init_from("first");
    assert!(made.status.success() && text(&made).contains("the state of cluster"), "{}", text(&made));
    let first = start("first", &brokers, &new);
    members(&[&first]);
    assert_eq!(world(&first, POSTS), expected);
    old_posts_leave_memory(&first);
    eventually("old posts are shown", || world(&first, POSTS) == expected);
    kill(first);
}

/// Makes a server with old posts a cluster, with further options of `tidewire cluster init` and of each node. All nodes must show what the
/// server showed, and may leave old posts to an archive.
fn check_cluster_from_server(of_init: &[&str], of_node: &[&str]) {
    let brokers = Brokers::start(1);
    let drill = Drill { directory: tempfile::tempdir().unwrap() };
    std::fs::write(drill.path("key"), "0123456789abcdef0123456789abcdef").unwrap();
    let server = Node::start_alone(&drill.path("server"), &["--outbox-posts", "10"]);
    follow(&server);
    write(&server, 1..=POSTS);
    old_posts_leave_memory(&server);
    let expected = world(&server, POSTS);
    let init_from = |name: &str| {
        let (from, to) = (drill.path("server"), drill.path(name));
        init(&brokers, &[&["--from-snapshot", &from, "--data-dir", &to], of_init].concat())
    };
    let refused = init_from("first");
    assert!(!refused.status.success() && text(&refused).contains("is in use"), "{}", text(&refused));
    kill(server);
    let made = init_from("first");
    assert!(made.status.success() && text(&made).contains("the state of a server after event"), "{}", text(&made));
    let start = |name| drill.start_with(name, &brokers, "store", of_node);
    let mut nobody = start("nobody");
    assert!(!nobody.process.wait().unwrap().success(), "it has no snapshot, and nobody gives it one");
    let first = start("first");
    members(&[&first]);
    assert_eq!(world(&first, POSTS), expected);
    if !of_node.is_empty() {
        old_posts_leave_memory(&first);
    }
    let second = start("second");
    members(&[&first, &second]);
    eventually("the new node has all posts", || world(&second, POSTS) == expected);
    write(&second, POSTS + 1..=POSTS + 10);
    let expected = world(&second, POSTS + 10);
    eventually("both nodes have all", || world(&first, POSTS + 10) == expected);
    [first, second].into_iter().for_each(kill);
}

fn old_posts_leave_memory(node: &Node) {
    eventually("old posts leave memory", || metric(node, "tidewire_posts").is_some_and(|posts| posts <= POSTS / 2));
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn a_server_becomes_a_cluster_that_shows_the_same_archived_posts_included() {
    check_cluster_from_server(&[], &[]);
}

#[test]
#[cfg(feature = "cassandra")]
#[ignore = "needs Kafka and Cassandra: scripts/kafka.sh install, scripts/cassandra.sh install"]
fn a_server_becomes_a_cluster_that_leaves_old_posts_to_cassandra() {
    use testkit::cassandra::Nodes as Store;
    let url = Store::shared().url(&Store::keyspace());
    let of_init = ["--archive", &url, "--archive-replicas", "1"];
    check_cluster_from_server(&of_init, &["--archive", &url, "--outbox-posts", "10"]);
}

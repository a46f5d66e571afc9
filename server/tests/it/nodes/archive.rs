//! Old posts of a cluster in a real Cassandra, which all nodes share.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Done, Outcome};
use super::{Nodes, command, free_address};
use testkit::cassandra;
use testkit::{PageCount, eventually};

const AUTHORS: u64 = 3;

/// Readers, and whom they follow.
const READERS: [(&str, &[u64]); 4] = [("ann", &[0, 1, 2]), ("bob", &[0]), ("cas", &[1, 2]), ("dan", &[2])];

/// Few posts are left in memory once the outboxes have no more than their limit and its slack: those of the authors, and of who marks the end.
/// Besides, what was edited or deleted stays until the next round.
const POSTS_LEFT_MAX: u64 = (AUTHORS + 1) * 20 + 20;

/// What must be shown: the text of each post, by id. Later ones have larger ids.
#[derive(Default)]
struct Oracle {
    posts: BTreeMap<u64, String>,
    next: u64,
}

impl Oracle {
    /// Publishes posts through one node after the other. Each write is repeated until it is done.
    fn publish(&mut self, cluster: &Nodes, count: u64) {
        for _ in 0..count {
            self.next += 1;
            let (id, text) = (1_000 + self.next, format!("post {}", self.next));
            let running: Vec<usize> = cluster.running().collect();
            let post = json!({"id": id.to_string(), "author": author(id), "body": {"text": &text}});
            cluster.write(running[id as usize % running.len()], "POST", "/v1/posts", &post);
            self.posts.insert(id, text);
        }
    }

    fn edit(&mut self, cluster: &Nodes, node: usize, id: u64) {
        let text = format!("edited {id}");
        cluster.write(node, "PATCH", &format!("/v1/posts/{id}"), &json!({"body": {"text": &text}}));
        self.posts.insert(id, text);
    }

    fn delete(&mut self, cluster: &Nodes, node: usize, id: u64) {
        cluster.write(node, "DELETE", &format!("/v1/posts/{id}"), &Value::Null);
        self.posts.remove(&id);
    }

    /// The posts of some authors, newest first.
    fn of(&self, authors: &[u64]) -> Vec<(u64, String)> {
        let shown = self.posts.iter().rev().filter(|(id, _)| authors.contains(&(**id % AUTHORS)));
        shown.map(|(id, text)| (*id, text.clone())).collect()
    }

    /// Scrolls all feeds and all outboxes to the end, through every node.
    fn check(&self, cluster: &Nodes) {
        let end = cluster.mark_end();
        for node in cluster.running() {
            for (reader, follows) in READERS {
                assert_eq!(
                    scrolled(cluster, node, end, &format!("{reader}/feed")),
                    self.of(follows),
                    "{reader} by {node}"
                );
            }
            for nth in 0..AUTHORS {
                let found = scrolled(cluster, node, end, &format!("{}/posts", author(nth)));
                assert_eq!(found, self.of(&[nth]), "posts of author {nth} by {node}");
            }
        }
        cluster.check_digests();
    }
}

fn author(id: u64) -> String {
    format!("author-{}", id % AUTHORS)
}

fn scrolled(cluster: &Nodes, node: usize, after: u64, what: &str) -> Vec<(u64, String)> {
    let (mut all, mut before) = (Vec::new(), String::new());
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let path = format!("/v1/users/{what}?limit=50{before}");
        let Done { status, body: page, .. } = cluster.read(node, after, &path);
        assert_eq!((status, &page["unreadable"]), (200, &Value::Null), "{path}: {page}");
        all.extend(
            page["items"].as_array().unwrap().iter().map(super::writers::entry).map(|(id, text)| (id, text.to_owned())),
        );
        let Some(next) = page["next"].as_str() else { return all };
        before = format!("&before={next}");
    }
}

impl Nodes {
    fn posts_in_memory(&self, node: usize) -> u64 {
        let Outcome::Done(Done { status: 200, body, .. }) = self.client.get(&self.url(node, "/v1/stats")) else {
            return u64::MAX;
        };
        body["posts"].as_u64().unwrap()
    }

    /// Waits until no node has more than this number of posts in memory.
    pub(super) fn old_posts_leave_memory(&self, left_max: u64) {
        eventually("old posts leave the memory of all nodes", || {
            self.running().all(|node| self.posts_in_memory(node) <= left_max)
        });
        let in_memory: Vec<u64> = self.running().map(|node| self.posts_in_memory(node)).collect();
        println!("posts in the memory of the nodes: {in_memory:?}");
    }
}

#[test]
#[ignore = "needs Kafka and Cassandra: scripts/kafka.sh install, scripts/cassandra.sh install"]
fn r25_killing_the_writing_node_loses_or_duplicates_no_post_archived_in_cassandra() {
    let store = cassandra::Nodes::start(1);
    let url = store.url("feeds");
    let of_node = ["--archive", &url, "--outbox-posts", "10"];
    let of_cluster = ["--archive", &url, "--archive-replicas", "1"];
    let mut cluster = Nodes::start_with(1, &of_cluster, &of_node);
    for (reader, follows) in READERS {
        for nth in follows {
            cluster.write(0, "PUT", &format!("/v1/users/{reader}/following/{}", author(*nth)), &Value::Null);
        }
    }
    let mut oracle = Oracle::default();
    oracle.publish(&cluster, 300);
    cluster.old_posts_leave_memory(POSTS_LEFT_MAX);
    oracle.check(&cluster);
    for node in 0..3 {
        oracle.edit(&cluster, node, 1_010 + node as u64);
        oracle.delete(&cluster, node, 1_020 + node as u64);
    }
    oracle.check(&cluster);
    for round in 0..2 {
        let victim = cluster.sequencer().unwrap();
        // It is in the middle of copying when it is killed.
        store.pause(1);
        oracle.publish(&cluster, 100);
        cluster.kill_node(victim);
        store.resume();
        oracle.publish(&cluster, 50);
        let old = 1_030 + 10 * round;
        oracle.edit(&cluster, (victim + 1) % 3, old);
        oracle.delete(&cluster, (victim + 2) % 3, old + 1);
        cluster.old_posts_leave_memory(POSTS_LEFT_MAX);
        oracle.check(&cluster);
        cluster.start_node(victim);
        cluster.all_are_members();
        cluster.old_posts_leave_memory(POSTS_LEFT_MAX);
        oracle.check(&cluster);
    }
    // The store is gone: writes go on, and what only it has comes later.
    store.kill(1);
    oracle.publish(&cluster, 60);
    store.restore();
    cluster.old_posts_leave_memory(POSTS_LEFT_MAX);
    oracle.check(&cluster);
}

#[test]
#[ignore = "needs Kafka and Cassandra: scripts/kafka.sh install, scripts/cassandra.sh install"]
fn a_node_with_a_wrong_archive_exits_and_reports_the_cause() {
    let cluster = Nodes::start(1);
    let store = cassandra::Nodes::shared();
    let url = store.url(&cassandra::Nodes::keyspace());
    let refused = |archive: &str| {
        let mut command = command(env!("CARGO_BIN_EXE_tidewire").to_owned());
        command.args(["serve", "--listen", &free_address(), "--node", "d", "--advertise", "http://127.0.0.1:1"]);
        command.args(["--cluster", "feeds", "--kafka", &cluster.brokers.addresses, "--member-timeout", "2s"]);
        command.arg("--cluster-key-file").arg(cluster.directory.path().join("key")).args(["--archive", archive]);
        let ended = command.output().unwrap();
        assert!(!ended.status.success());
        String::from_utf8(ended.stderr).unwrap()
    };
    let file = refused("/var/lib/tidewire/archive.redb");
    assert!(file.contains("cassandra://HOST:PORT,…/KEYSPACE in a cluster, or left out"), "{file}");
    let missing = refused(&url);
    assert!(missing.contains("tidewire archive init"), "{missing}");
}

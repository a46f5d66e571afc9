//! Random writes while random nodes are cut off from the log.
#![allow(clippy::print_stdout, reason = "the seed and the faults of a failed run")]

use std::collections::BTreeMap;
use std::time::Instant;

use super::changes::change;
use super::faulty_log::{Cut, FaultyLog};
use super::*;
use testkit::{cases, eventually_async, seed};

const AUTHORS: u64 = 5;
const READERS: usize = 8;

/// What is known of the fate of each post, by its id.
#[derive(Default)]
struct Fates {
    acknowledged: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    deleted: BTreeSet<u64>,
}

/// Number of posts that are published at once, so that several are on their way.
const AT_ONCE: u64 = 30;

/// Number of other changes that are made meanwhile.
const CHANGES_AT_ONCE: u64 = 15;

impl Fates {
    /// Publishes posts from `first` on, at once, and deletes some earlier ones and makes other changes meanwhile.
    async fn publish(&mut self, node: &Node, first: u64, deleted: &[u64]) {
        let publish = |number: u64| {
            let (engine, draft) = (node.engine.clone(), post(&format!("author-{}", number % AUTHORS), number));
            tokio::spawn(async move { (number, engine.publish(draft, false).await.map(drop)) })
        };
        let published: Vec<_> = (first..first + AT_ONCE).map(publish).collect();
        let change_some = |seed| {
            let (engine, mut random) = (node.engine.clone(), fastrand::Rng::with_seed(seed));
            // A change may be refused for what it is, or be made: the comparison of all nodes shows which.
            tokio::spawn(async move { drop(change(&engine, &mut random, AUTHORS, first).await) })
        };
        let changed: Vec<_> = (first..first + CHANGES_AT_ONCE).map(change_some).collect();
        for number in deleted {
            self.delete(node, *number).await;
        }
        for changed in changed {
            changed.await.unwrap();
        }
        for published in published {
            let (number, outcome) = published.await.unwrap();
            match outcome {
                Ok(()) => self.acknowledged.insert(number),
                Err(Error::OutcomeUnknown) => self.unknown.insert(number),
                Err(Error::NotSequencer | Error::LogUnavailable(_) | Error::NodeBehind) => self.refused.insert(number),
                Err(other) => panic!("{other}"),
            };
        }
    }

    async fn delete(&mut self, node: &Node, post: u64) {
        if self.acknowledged.contains(&post) && node.engine.delete(PostId(post)).await != Err(Error::NotSequencer) {
            self.acknowledged.remove(&post);
            // Deleted or not, if the outcome is unknown.
            self.deleted.insert(post);
        }
    }
}

fn faulty_cluster() -> (Vec<FaultyLog>, Vec<Node>) {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let logs: Vec<FaultyLog> = (0..3).map(|_| FaultyLog::new(&log)).collect();
    let nodes = logs.iter().zip(["a", "b", "c"]).map(|(log, name)| join(log, name).unwrap()).collect();
    (logs, nodes)
}

#[tokio::test]
#[ignore = "takes several sessions of real time"]
async fn cut_off_nodes_lose_no_acknowledged_write_and_apply_no_refused_one() {
    let (logs, mut nodes) = faulty_cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let edges = |reader: usize| (0..=reader as u64 % AUTHORS).map(move |author| (reader, author));
    for (reader, author) in (0..READERS).flat_map(edges) {
        let edge = edge(&format!("reader-{reader}"), &format!("author-{author}"));
        sequencer(&nodes).await.engine.follow(vec![edge]).await.unwrap();
    }
    let mut random = fastrand::Rng::with_seed(seed());
    let (mut fates, mut number) = (Fates::default(), 1);
    for round in 0..cases(1) {
        let victim = random.usize(..nodes.len());
        let is_sequencer = nodes[victim].is_sequencer();
        let cut = [Cut::Delayed, Cut::Lost, Cut::Refused][random.usize(..3)];
        let written = fates.acknowledged.len();
        for phase in [Cut::No, cut, Cut::No] {
            logs[victim].set(phase);
            let ends = Instant::now() + SESSION.mul_f64(random.f64() * 3.0);
            while Instant::now() < ends {
                // Callers ask any node that takes itself for the sequencer, also one that was deposed.
                for node in nodes.iter().filter(|node| node.is_sequencer()) {
                    let deleted: Vec<u64> = (0..random.u64(..4)).map(|_| random.u64(1..=number)).collect();
                    fates.publish(node, number + 1, &deleted).await;
                    number += AT_ONCE;
                }
                // A pace that a busy machine keeps, too: at the end, each node is compared with all writes.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        eventually_async("a sequencer is there again", async || {
            nodes.iter().filter(|node| node.is_sequencer()).count() == 1
        })
        .await;
        let (more, kind) = (
            fates.acknowledged.len() - written.min(fates.acknowledged.len()),
            if is_sequencer { "sequencer" } else { "node" },
        );
        println!("fault {round}: {kind} {victim} {cut:?}, {more} acknowledged");
    }
    eventually_async("all are members again", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    fates.publish(sequencer(&nodes).await, number + 1, &[]).await;
    assert!(fates.acknowledged.contains(&(number + 1)), "the cluster takes writes after all faults");
    in_step(&nodes).await;
    // Another one that reads the same log from its start comes to the same world.
    nodes.push(join(&logs[0], "late").unwrap());
    in_step(&nodes).await;
    check(&nodes, &fates).await;
    nodes.iter().for_each(|node| node.engine.shutdown());
}

#[tokio::test]
#[ignore = "takes 24 sessions of real time"]
async fn writes_resume_after_a_long_outage_of_the_log() {
    let (logs, nodes) = faulty_cluster();
    for cut in [Cut::Lost, Cut::Refused, Cut::Delayed] {
        eventually_async("all are members", async || {
            nodes.iter().all(|node| node.state.membership().members().count() == 3)
        })
        .await;
        logs.iter().for_each(|log| log.set(cut));
        // Longer than the beats that a node remembers.
        tokio::time::sleep(8 * SESSION).await;
        assert!(nodes.iter().all(|node| !node.is_sequencer() && !node.state.is_leased()), "{cut:?}");
        logs.iter().for_each(|log| log.set(Cut::No));
        let mut fates = Fates::default();
        let mut number = 1 + 10_000 * cut as u64;
        // Publishing may be refused until the nodes have caught up.
        eventually_async("writes are taken again", async || {
            fates.publish(sequencer(&nodes).await, number, &[]).await;
            number += AT_ONCE;
            !fates.acknowledged.is_empty()
        })
        .await;
    }
    nodes.iter().for_each(|node| node.engine.shutdown());
}

async fn check(nodes: &[Node], fates: &Fates) {
    let mut exists = BTreeMap::new();
    for node in nodes {
        for post in fates.acknowledged.iter().chain(&fates.refused).chain(&fates.unknown).chain(&fates.deleted) {
            let is_there = node.engine.post(PostId(*post)).await.is_ok();
            assert_eq!(
                *exists.entry(*post).or_insert(is_there),
                is_there,
                "post {post} differs on {}",
                node.state.me()
            );
        }
    }
    fates.acknowledged.iter().for_each(|post| assert!(exists[post], "acknowledged post {post} is lost"));
    fates.refused.iter().for_each(|post| assert!(!exists[post], "refused post {post} is there"));
    for reader in 0..READERS {
        let follows = |post: &u64| post % AUTHORS <= reader as u64 % AUTHORS;
        let expected = exists.iter().rev().filter(|(post, is_there)| **is_there && follows(post));
        let expected: Vec<PostId> = expected.map(|(post, _)| PostId(*post)).take(100).collect();
        for node in nodes {
            assert_eq!(node.feed(&id(&format!("reader-{reader}"))).await, expected, "on {}", node.state.me());
        }
    }
    println!(
        "{} acknowledged, {} refused, {} unknown, {} deleted",
        fates.acknowledged.len(),
        fates.refused.len(),
        fates.unknown.len(),
        fates.deleted.len()
    );
    assert!(!fates.acknowledged.is_empty());
}

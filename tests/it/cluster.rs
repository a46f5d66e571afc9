//! Engines that share a log: one judges, all apply, and faults of the log and of nodes lose and double nothing.

mod faulty_log;
mod nemesis;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::cluster::journal::{JoinError, NodeOptions, found};
use tidewire::cluster::placement::{Place, Placement};
use tidewire::cluster::record::ClusterId;
use tidewire::cluster::view::ClusterView;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::state::reader::PageRequest;
use tidewire::storage::log::SharedLog;
use tidewire::storage::log::memory::MemoryLog;

use crate::world::{draft, edge, id, ids};

const SESSION: Duration = Duration::from_millis(600);

/// The time for which a test waits for something that takes a few sessions at most.
const PATIENCE: Duration = Duration::from_secs(30);

struct Node {
    engine: Engine,
    view: Arc<ClusterView>,
}

fn join(log: &dyn SharedLog, name: &str) -> Result<Node, JoinError> {
    let config = EngineConfig { celebrity: CelebrityPolicy::PushAll, ..EngineConfig::default() };
    let options = NodeOptions { name: name.parse().unwrap(), address: format!("http://{name}"), session: SESSION };
    Engine::join(config, log, options, Arc::new(SystemClock)).map(|(engine, view)| Node { engine, view })
}

fn cluster() -> (MemoryLog, Vec<Node>) {
    let log = MemoryLog::default();
    found(&log, 16, ClusterId(5)).unwrap();
    let nodes: Vec<Node> = ["a", "b", "c"].iter().map(|name| join(&log, name).unwrap()).collect();
    (log, nodes)
}

impl Node {
    fn is_sequencer(&self) -> bool {
        self.view.sequencer() == Place::Here
    }

    /// Returns the ids of a reader's newest posts.
    async fn feed(&self, reader: &SourceId) -> Vec<PostId> {
        let page = self.engine.feed(reader, PageRequest::newest(100)).await;
        page.as_ref().map_or(Vec::new(), ids)
    }
}

/// Creates a post whose number is its id and its time.
fn post(author: &str, number: u64) -> Draft {
    let published_at = Some(UnixMicros(number as i64));
    Draft { id: Some(PostId(number)), published_at, ..draft(author, "{}") }
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn sequencer(nodes: &[Node]) -> &Node {
    until("a sequencer is found", || nodes.iter().filter(|node| node.is_sequencer()).count() == 1).await;
    nodes.iter().find(|node| node.is_sequencer()).unwrap()
}

/// Waits until all nodes have applied what the first has, and returns this sequence.
async fn in_step(nodes: &[Node]) {
    let applied = nodes.iter().map(|node| node.view.applied()).max().unwrap();
    until("all nodes apply the log", || nodes.iter().all(|node| node.view.applied() >= applied)).await;
}

#[tokio::test]
async fn what_one_node_accepts_is_in_the_feeds_of_all() {
    let (_, nodes) = cluster();
    until("all are members", || nodes.iter().all(|node| node.view.membership().members().count() == 3)).await;
    let first = sequencer(&nodes).await;
    let (ann, bob) = (id("ann"), id("bob"));
    first.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let posts = [7, 8, 9].map(PostId);
    for number in 7..=9 {
        first.engine.publish(post("bob", number), true).await.unwrap();
    }
    first.engine.delete(posts[1]).await.unwrap();
    in_step(&nodes).await;
    for node in &nodes {
        assert_eq!(node.feed(&ann).await, [posts[2], posts[0]], "on node {}", node.view.me());
    }
    for node in &nodes {
        assert_eq!(node.engine.publish(post("bob", 1), false).await.is_ok(), node.is_sequencer());
    }
    let owners = nodes.iter().filter(|node| node.view.owner(&bob) == Place::Here).count();
    assert_eq!(owners, 1, "each user has one owner");
    nodes.iter().for_each(|node| node.engine.shutdown());
}

#[tokio::test]
async fn another_node_takes_writes_when_the_sequencer_has_left() {
    let (log, mut nodes) = cluster();
    until("all are members", || nodes.iter().all(|node| node.view.membership().members().count() == 3)).await;
    for number in 1..=3 {
        let first = sequencer(&nodes).await;
        let name = first.view.me().clone();
        first.engine.publish(post("bob", number), false).await.unwrap();
        first.engine.shutdown();
        nodes.retain(|node| *node.view.me() != name);
        nodes.push(join(&log, &format!("new-{number}")).unwrap());
        let all = |node: &Node| node.view.membership().members().count() == 3;
        until("the members have changed", || nodes.iter().all(all)).await;
    }
    let last = sequencer(&nodes).await;
    last.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    in_step(&nodes).await;
    for node in &nodes {
        assert_eq!(node.feed(&id("ann")).await, [3, 2, 1].map(PostId));
        node.engine.shutdown();
    }
}

#[tokio::test]
async fn logs_that_are_of_no_cluster_and_names_that_are_taken_are_refused() {
    let empty = MemoryLog::default();
    let found_in = |node: Result<Node, JoinError>| node.err().map(|refused| refused.to_string()).unwrap_or_default();
    let foreign = MemoryLog::default();
    foreign.writer().unwrap().append(b"\x01 something else".to_vec()).unwrap();
    let refused = found_in(join(&foreign, "a"));
    assert!(refused.contains("record 1 of memory"), "{refused}");
    assert!(found(&foreign, 16, ClusterId(1)).unwrap_err().to_string().contains("has records"));
    found(&empty, 16, ClusterId(1)).unwrap();
    let (log, nodes) = cluster();
    until("all are members", || nodes.iter().all(|node| node.view.membership().members().count() == 3)).await;
    let namesake = join(&log, "a").unwrap();
    until("the second process of a name gives up", || !namesake.view.is_ready() && !namesake.view.is_leased()).await;
    tokio::time::sleep(2 * SESSION).await;
    assert!(!namesake.view.is_leased() && nodes.iter().all(|node| node.view.is_leased() && node.view.is_ready()));
    let refused = namesake.engine.publish(post("bob", 1), false).await.unwrap_err();
    assert!(matches!(refused, Error::NotSequencer), "{refused}");
    nodes.iter().chain([&namesake]).for_each(|node| node.engine.shutdown());
}

//! Engines of one process that share a log in memory, as the nodes of a cluster do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::cluster::journal::{JoinError, NodeOptions, bootstrap_log};
use tidewire::cluster::placement::{Place, Placement};
use tidewire::cluster::record::ClusterId;
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::state::reader::PageRequest;
use tidewire::storage::log::SharedLog;
use tidewire::storage::log::memory::MemoryLog;

use crate::eventually_async;
use crate::world::{draft, ids, patient};

/// Longer than a busy machine delays a heartbeat of a node.
pub const SESSION: Duration = Duration::from_secs(3);

/// Number of heartbeats that a node writes in a session.
pub const BEATS_PER_SESSION: u64 = 12;

pub struct Node {
    pub engine: Engine,
    pub state: Arc<ClusterState>,
}

pub fn join(log: &dyn SharedLog, name: &str) -> Result<Node, JoinError> {
    let config = EngineConfig { celebrity: CelebrityPolicy::PushAll, ..patient() };
    let options = NodeOptions { name: name.parse().unwrap(), address: format!("http://{name}"), session: SESSION };
    Engine::join(config, log, options, Arc::new(SystemClock)).map(|(engine, state)| Node { engine, state })
}

pub fn cluster() -> (MemoryLog, Vec<Node>) {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let nodes: Vec<Node> = ["a", "b", "c"].iter().map(|name| join(&log, name).unwrap()).collect();
    (log, nodes)
}

impl Node {
    pub fn is_sequencer(&self) -> bool {
        self.state.sequencer() == Place::Here
    }

    /// Returns the ids of a reader's newest posts.
    pub async fn feed(&self, reader: &SourceId) -> Vec<PostId> {
        let page = self.engine.feed(reader, PageRequest::newest(100)).await;
        page.as_ref().map_or(Vec::new(), ids)
    }
}

/// Creates a post whose number is its id and its time.
pub fn post(author: &str, number: u64) -> Draft {
    let published_at = Some(UnixMicros(number as i64));
    Draft { id: Some(PostId(number)), published_at, ..draft(author, "{}") }
}

/// Waits until `holds` is true for a node, and returns the node. On a busy machine a node may have no lease for a moment.
pub async fn one_of<'n>(nodes: &'n [Node], what: &str, holds: impl Fn(&Node) -> bool) -> &'n Node {
    let mut found = None;
    eventually_async(what, async || {
        found = nodes.iter().find(|node| holds(node));
        found.is_some()
    })
    .await;
    found.unwrap()
}

pub async fn sequencer(nodes: &[Node]) -> &Node {
    one_of(nodes, "a node is the sequencer", Node::is_sequencer).await
}

pub async fn owner<'n>(nodes: &'n [Node], reader: &SourceId) -> &'n Node {
    one_of(nodes, "the reader has an owner", |node| node.state.owner(reader) == Place::Here).await
}

/// Waits until all nodes have applied the log to the same event, and compares their worlds.
pub async fn in_step(nodes: &[Node]) {
    // A write may be answered before all records of its batch are applied.
    let applied = nodes.iter().map(|node| node.state.applied().max(node.state.last_event())).max().unwrap();
    eventually_async("all nodes apply the log", async || nodes.iter().all(|node| node.state.applied() >= applied))
        .await;
    let mut worlds = BTreeSet::new();
    eventually_async("all nodes have applied the same events", async || {
        // A delayed write may still arrive, and some nodes may apply it first.
        let computed: Option<Vec<_>> = nodes.iter().map(|node| node.engine.digest(&*node.state)).collect();
        let computed = computed.unwrap_or_default();
        worlds = computed.iter().map(|(sequence, digest)| (*sequence, digest.to_string())).collect();
        let sequences: BTreeSet<_> = computed.iter().map(|(sequence, _)| *sequence).collect();
        sequences.len() == 1
    })
    .await;
    assert_eq!(worlds.len(), 1, "the worlds of nodes differ: {worlds:?}");
}

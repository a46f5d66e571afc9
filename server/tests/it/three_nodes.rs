//! The mode in which a test's server is three nodes of a cluster: with `TIDEWIRE_TEST_NODES=3`, each request goes to a random one. Their log
//! is in memory, or with `TIDEWIRE_TEST_LOG=kafka` in a real Kafka: a topic for each server, on a broker that all tests share.
//!
//! A test in [`ALONE`] has one server in this mode too. So has one that starts its engine itself, with a clock or files of its own.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire::clock::SystemClock;
use tidewire::cluster::journal::{NodeOptions, bootstrap_log};
use tidewire::cluster::placement::{Place, Placement as _};
use tidewire::cluster::record::ClusterId;
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::storage::log::SharedLog;
use tidewire::storage::log::memory::MemoryLog;
use tidewire_kafka::{KafkaLog, KafkaOptions};
use tidewire_server::http::auth::Access;
use tidewire_server::http::cluster::{Cluster, ClusterKey, ClusterOptions};
use tidewire_server::http::serve;
use tidewire_server::http::state::HttpState;

use crate::server::{Answer, Server};
use testkit::eventually;
use testkit::kafka::Brokers;

/// Tests that look into one process, by the beginning of their names, with the reason.
const ALONE: &[(&str, &str)] = &[
    ("access::matrix::refused_operations", "it compares the metrics of one process"),
    ("access::pages::without_keys_pages_of_other_origins", "the own origin of a page is the address of one server"),
    ("api::a_stopping_server", "one process stops"),
    ("live::limits::the_total_number_of_connections", "the limit is that of one process"),
    ("live::told::a_stopping_server", "one process stops"),
    ("many_feeds::each_feed_is_returned_only", "it reads the metrics of one process"),
    ("personal::explain::explanations_and_users_include_the_costs", "each process measures costs by itself"),
];

/// Long enough for a machine that is busy otherwise.
const SESSION: Duration = Duration::from_secs(3);

/// Number of parts of the readers: some for each node.
const PARTITIONS: u32 = 16;

/// One node that is about to be served.
pub struct Node {
    pub engine: Engine,
    pub state: HttpState,
    pub listener: TcpListener,
    pub view: Arc<ClusterState>,
    pub cluster: Arc<Cluster>,
}

/// Returns true if the server of the test that runs on this thread must be three nodes.
pub fn is_wanted() -> bool {
    let is_alone = |name: &str| ALONE.iter().any(|(alone, _)| name.starts_with(alone));
    is_mode_on() && !thread::current().name().is_some_and(is_alone)
}

fn is_mode_on() -> bool {
    match std::env::var("TIDEWIRE_TEST_NODES").as_deref() {
        Ok("3") => true,
        Ok(other) => panic!("TIDEWIRE_TEST_NODES is {other:?}, and only 3 nodes are possible"),
        Err(_) => false,
    }
}

#[test]
fn a_server_has_three_nodes_if_and_only_if_the_variable_is_set() {
    let server = Server::start(EngineConfig::default());
    let cluster = server.get("/v1/cluster");
    let nodes = cluster.json()["nodes"].as_array().map_or(0, Vec::len);
    assert_eq!(nodes, if is_mode_on() { 3 } else { 0 }, "{}", cluster.text);
}

/// Returns the log of a new cluster.
fn new_log() -> Box<dyn SharedLog> {
    /// It ends with this process, and its topics with it.
    static BROKER: OnceLock<Brokers> = OnceLock::new();
    static CLUSTERS: AtomicUsize = AtomicUsize::new(0);
    let broker = match std::env::var("TIDEWIRE_TEST_LOG").as_deref() {
        Ok("kafka") => BROKER.get_or_init(|| Brokers::start(1)),
        Ok("memory") | Err(_) => return Box::new(MemoryLog::default()),
        Ok(other) => panic!("TIDEWIRE_TEST_LOG is {other}, and can be memory or kafka"),
    };
    let name = format!("test{}", CLUSTERS.fetch_add(1, Ordering::Relaxed));
    Box::new(KafkaLog::create(KafkaOptions::new(&broker.addresses, name), 1).unwrap())
}

/// Creates three nodes that share a log.
pub fn join(config: &EngineConfig, access: &Arc<Access>) -> Vec<Node> {
    let log = new_log();
    bootstrap_log(&*log, PARTITIONS, ClusterId(fastrand::u64(..))).unwrap();
    let node = |name: &str| {
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let options = NodeOptions { name: name.parse().unwrap(), address, session: SESSION };
        let (engine, view) = Engine::join(config.clone(), &*log, options, Arc::new(SystemClock)).unwrap();
        let options = ClusterOptions::new(ClusterKey::new(&"k".repeat(40)).unwrap());
        let cluster = Arc::new(Cluster::new(Arc::clone(&view) as _, options).unwrap());
        let state = HttpState {
            access: Arc::clone(access),
            cluster: Some(Arc::clone(&cluster)),
            ..HttpState::from(engine.clone())
        };
        Node { engine, state, listener, view, cluster }
    };
    ["a", "b", "c"].map(node).into()
}

/// Waits until all nodes are members and agree who takes writes, and returns the place of that one.
pub fn sequencer(nodes: &[Arc<ClusterState>]) -> usize {
    eventually("three nodes are a cluster", || {
        let all = nodes.iter().all(|node| node.view().nodes.len() == nodes.len() && node.sequencer() != Place::Nowhere);
        let here: Vec<usize> = (0..nodes.len()).filter(|nth| nodes[*nth].sequencer() == Place::Here).collect();
        if let (true, [sequencer]) = (all, here.as_slice()) { Some(*sequencer) } else { None }
    })
}

/// Figures that all nodes have alike. All others are about the readers that a node owns.
const REPLICATED: &[&str] = &["users", "edges", "posts", "published", "uptime_seconds"];

/// Adds up the statistics of all nodes.
pub fn sum(answers: Vec<Answer>) -> Answer {
    let mut answers = answers.into_iter();
    let mut all = answers.next().unwrap();
    let mut total = all.json();
    answers.filter(|answer| answer.status == 200).for_each(|answer| add(&mut total, &answer.json()));
    if total.is_object() {
        all.text = total.to_string();
    }
    all
}

fn add(total: &mut Value, more: &Value) {
    match (&mut *total, more) {
        (Value::Object(total), Value::Object(more)) => {
            for (name, total) in total {
                match (REPLICATED.contains(&name.as_str()), total.as_u64().max(more[name].as_u64())) {
                    (true, most) => *total = json!(most),
                    (false, _) => add(total, &more[name]),
                }
            }
        }
        (Value::Number(number), Value::Number(more)) => {
            if let (Some(number), Some(more)) = (number.as_u64(), more.as_u64()) {
                *total = json!(number + more);
            }
        }
        _ => {}
    }
}

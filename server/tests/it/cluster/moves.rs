//! Nodes that join and leave in order while clients go on: no request is refused.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use serde_json::json;
use testkit::{OnDrop, eventually};
use tidewire::clock::SystemClock;
use tidewire::cluster::journal::{NodeOptions, bootstrap_log};
use tidewire::cluster::placement::{Place, Placement as _};
use tidewire::cluster::record::ClusterId;
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::storage::log::memory::MemoryLog;
use tidewire_server::http::cluster::{Cluster, ClusterKey, ClusterOptions};
use tidewire_server::http::serve;
use tidewire_server::http::state::HttpState;

use crate::browser;
use crate::cluster::nodes::KEY;
use crate::server::{Answer, Server};

/// Longer than a busy machine keeps a node from saying that it lives: none of them is to be taken for dead.
const SESSION: Duration = Duration::from_secs(20);

struct Node {
    server: Server,
    cluster: Arc<Cluster>,
    view: Arc<ClusterState>,
}

impl Node {
    fn join(log: &MemoryLog, name: &str) -> Self {
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let options = NodeOptions { name: name.parse().unwrap(), address, session: SESSION };
        let (engine, view) = Engine::join(EngineConfig::default(), log, options, Arc::new(SystemClock)).unwrap();
        let options = ClusterOptions::new(ClusterKey::new(KEY).unwrap());
        let cluster = Arc::new(Cluster::new(Arc::clone(&view) as _, options).unwrap());
        let state = HttpState { cluster: Some(Arc::clone(&cluster)), ..HttpState::from(engine.clone()) };
        let server = Server::on(listener, state, engine);
        Self { server, cluster, view }
    }
}

type Nodes = RwLock<Vec<Arc<Node>>>;

fn join(log: &MemoryLog, nodes: &Nodes, name: &str) {
    let node = Arc::new(Node::join(log, name));
    eventually("the node is ready", || node.server.get("/readyz").status == 200);
    nodes.write().unwrap().push(node);
}

/// Ends a node in order: it hands over while requests go on to arrive, then takes no more of them.
fn leave(nodes: &Nodes, which: usize) {
    let node = Arc::clone(&nodes.read().unwrap()[which]);
    actix_web::rt::System::new().block_on(node.cluster.hand_over(&node.server.engine));
    assert_eq!(node.server.get("/readyz").status, 503, "a load balancer learns of it before the listener closes");
    // Requests hold the list while they are under way, so none is when this goes on.
    nodes.write().unwrap().remove(which);
}

/// Sends requests of all kinds through all nodes until the end, none of which may be refused.
fn load(nodes: &Nodes, ends: &AtomicBool, answered: &AtomicU64) {
    let accepted = |answer: Answer, what: &str| {
        assert!(answer.status < 400, "{what}: {answer:?}");
        answered.fetch_add(1, Ordering::Relaxed);
    };
    for nth in 0_u64.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let nodes = nodes.read().unwrap();
        let server = &nodes[usize::try_from(nth).unwrap() % nodes.len()].server;
        let (user, all) = (format!("u{}", nth % 50), (0..50).map(|nth| format!("u{nth}")).collect::<Vec<_>>());
        match nth % 4 {
            0 => accepted(server.post("/v1/posts", &json!({"author": user, "body": nth})), "a post"),
            1 => accepted(server.get(&format!("/v1/users/{user}/feed")), "a page"),
            2 => accepted(server.json("PUT", &format!("/v1/users/{user}/following/u1"), &json!({})), "an edge"),
            _ => {
                let answer = server.post("/v1/feeds", &json!({"users": all}));
                assert!(!answer.text.contains("problem"), "many feeds: {answer:?}");
                accepted(answer, "many feeds");
            }
        }
    }
}

#[test]
#[ignore = "needs Chromium, and `npm ci` in server/tests/browser"]
fn the_console_of_a_node_shows_the_cluster_in_a_browser() {
    let (log, nodes) = (MemoryLog::default(), Nodes::default());
    bootstrap_log(&log, 64, ClusterId(5)).unwrap();
    join(&log, &nodes, "a");
    join(&log, &nodes, "b");
    let a = nodes.read().unwrap()[0].server.url("");
    browser::in_a_browser("cluster.test.js", &[("TIDEWIRE_NODE", &a)]);
}

#[test]
fn no_request_is_refused_while_nodes_join_and_leave_in_order() {
    let (log, nodes) = (MemoryLog::default(), Nodes::default());
    bootstrap_log(&log, 64, ClusterId(5)).unwrap();
    join(&log, &nodes, "a");
    join(&log, &nodes, "b");
    let (ends, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let loads: Vec<_> = (0..2).map(|_| scope.spawn(|| load(&nodes, &ends, &answered))).collect();
        let _ends = OnDrop(|| ends.store(true, Ordering::Relaxed));
        let goes_on = |what: &str| {
            let before = answered.load(Ordering::Relaxed);
            eventually(what, || {
                answered.load(Ordering::Relaxed) > before + 100 || loads.iter().any(|load| load.is_finished())
            });
        };
        for name in ["c", "d", "e"] {
            goes_on("requests are answered before a node joins");
            join(&log, &nodes, name);
            goes_on("requests are answered after a node has joined");
            // The sequencer each time, and so another one takes over each time.
            let sequencer =
                |nodes: &Nodes| nodes.read().unwrap().iter().position(|node| node.view.sequencer() == Place::Here);
            eventually("a node is the sequencer", || sequencer(&nodes).is_some());
            leave(&nodes, sequencer(&nodes).unwrap());
        }
        goes_on("requests are answered after all moves");
    });
    assert!(answered.into_inner() > 700);
}

//! A real server on a free port of its own, and a client that reports what came back.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use testkit::DEADLINE;
use testkit::world::patient;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::auth::Access;
use tidewire_server::http::serve::{self, Listeners};
use tidewire_server::http::state::HttpState;

use crate::description;
#[cfg(feature = "cluster")]
use crate::three_nodes;

pub struct Server {
    /// The engine that takes writes.
    pub engine: Engine,
    nodes: Vec<Node>,
    agent: ureq::Agent,
    /// The last sequence that an answer had: what is asked next must be answered from a state that has it.
    sequence: AtomicU64,
    #[cfg(feature = "cluster")]
    clusters: Vec<Arc<tidewire_server::http::cluster::Cluster>>,
}

/// One server. There are several in the mode of `three_nodes`.
struct Node {
    engine: Engine,
    address: SocketAddr,
    /// Where it speaks the Redis protocol.
    resp: SocketAddr,
    handle: actix_web::dev::ServerHandle,
    thread: Option<JoinHandle<()>>,
}

/// What a request was answered with.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Node {
    fn serve(state: HttpState, engine: Engine, listener: TcpListener) -> Self {
        let resp = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (address, of_resp) = (listener.local_addr().unwrap(), resp.local_addr().unwrap());
        let listeners = Listeners { http: listener, resp: Some(resp) };
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = serve::server(state, listeners, 2).unwrap();
                tell.send(server.handle()).unwrap();
                server.await.unwrap();
            });
        });
        Self { engine, address, resp: of_resp, handle: told.recv().unwrap(), thread: Some(thread) }
    }
}

impl Server {
    pub fn start(config: EngineConfig) -> Self {
        Self::guarded(config, Access::default())
    }

    /// Serves an engine, and shuts it down at the end.
    pub fn of(engine: Engine) -> Self {
        Self::serving(HttpState::from(engine.clone()), engine)
    }

    /// Serves those who may.
    pub fn guarded(mut config: EngineConfig, access: Access) -> Self {
        // Pages are whole, however busy the machine is.
        config.pull_budget = patient().pull_budget;
        #[cfg(feature = "cluster")]
        if three_nodes::is_wanted() {
            return Self::of_three(&config, &Arc::new(access));
        }
        Self::guarding(Engine::start(config), access)
    }

    /// Serves an engine to those who may.
    pub fn guarding(engine: Engine, access: Access) -> Self {
        Self::serving(HttpState { access: Arc::new(access), ..HttpState::from(engine.clone()) }, engine)
    }

    /// Serves this, and shuts the engine down at the end.
    pub fn serving(state: HttpState, engine: Engine) -> Self {
        Self::on(serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap(), state, engine)
    }

    /// Serves this at an address that is known before.
    pub fn on(listener: TcpListener, state: HttpState, engine: Engine) -> Self {
        let node = Node::serve(state, engine.clone(), listener);
        Self {
            engine,
            nodes: vec![node],
            agent: agent(),
            sequence: AtomicU64::new(0),
            #[cfg(feature = "cluster")]
            clusters: Vec::new(),
        }
    }

    #[cfg(feature = "cluster")]
    fn of_three(config: &EngineConfig, access: &Arc<Access>) -> Self {
        let (mut nodes, mut views, mut clusters) = (Vec::new(), Vec::new(), Vec::new());
        for three_nodes::Node { engine, state, listener, view, cluster } in three_nodes::join(config, access) {
            nodes.push(Node::serve(state, engine, listener));
            views.push(view);
            clusters.push(cluster);
        }
        let engine = nodes[three_nodes::sequencer(&views)].engine.clone();
        Self { engine, nodes, agent: agent(), sequence: AtomicU64::new(0), clusters }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// The address of any of its nodes.
    pub fn address(&self) -> SocketAddr {
        self.any_node().address
    }

    /// The address for clients of Redis of any of its nodes.
    pub fn resp(&self) -> SocketAddr {
        self.any_node().resp
    }

    fn any_node(&self) -> &Node {
        &self.nodes[fastrand::usize(..self.nodes.len())]
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, "")
    }

    pub fn post(&self, path: &str, json: &Value) -> Answer {
        self.json("POST", path, json)
    }

    pub fn json(&self, method: &str, path: &str, json: &Value) -> Answer {
        self.send(method, path, Some("application/json"), json.to_string())
    }

    /// Sends a request. The answer has to be one that the description knows.
    pub fn send(&self, method: &str, path: &str, content_type: Option<&str>, body: impl Into<Vec<u8>>) -> Answer {
        let headers: Vec<_> = content_type.map(|content_type| ("content-type", content_type)).into_iter().collect();
        self.ask(method, path, &headers, body)
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Answer {
        let body = body.into();
        #[cfg(feature = "cluster")]
        if self.nodes.len() > 1 && path.split('?').next() == Some("/v1/stats") {
            let answers = self.nodes.iter().map(|node| self.ask_node(node, method, path, headers, body.clone()));
            return three_nodes::sum(answers.collect());
        }
        self.ask_node(self.any_node(), method, path, headers, body)
    }

    fn ask_node(&self, node: &Node, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", node.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence > 0 {
            request = request.header("tidewire-after", sequence.to_string());
        }
        let sent = body.clone();
        let is_typed = headers.iter().any(|(name, _)| *name == "content-type");
        let response = if body.is_empty() && !is_typed {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let mut response = response.unwrap_or_else(|cause| panic!("{method} {path}: {cause}"));
        let text = response.body_mut().read_to_string().unwrap();
        let answer = Answer { status: response.status().as_u16(), headers: response.headers().clone(), text };
        if let Ok(sequence) = answer.header("tidewire-sequence").parse() {
            self.sequence.fetch_max(sequence, Ordering::Relaxed);
        }
        if answer.status != 405 {
            description::check(method, path, &sent, &answer);
        }
        answer
    }

    /// Ends the live connections of all nodes.
    pub fn stop_live(&self) {
        #[cfg(feature = "cluster")]
        self.clusters.iter().for_each(|cluster| cluster.stop_live());
        self.nodes.iter().for_each(|node| node.engine.stop_live());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_live();
        for node in &mut self.nodes {
            let handle = node.handle.clone();
            // On a thread of its own: this one may belong to another runtime.
            let stop = move || actix_web::rt::System::new().block_on(handle.stop(true));
            let _ = thread::spawn(stop).join();
            if let Some(thread) = node.thread.take() {
                let _ = thread.join();
            }
        }
        self.nodes.iter().for_each(|node| node.engine.shutdown());
    }
}

/// Asks servers. An answer that takes longer than [`DEADLINE`] is an error.
pub fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .timeout_recv_response(Some(DEADLINE))
        .timeout_recv_body(Some(DEADLINE))
        .build()
        .new_agent()
}

//! Real servers that are nodes of a cluster, with a placement that the test decides.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::cluster::figures::ClusterFigures;
use tidewire::cluster::placement::{ClusterInfo, NodeInfo, Place, Placement};
use tidewire::cluster::record::{Epoch, NodeName};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::id::SourceId;
use tidewire::storage::sequence::Sequence;
use tidewire_server::http::admission::{Admission, AdmissionLimits};
use tidewire_server::http::auth::Access;
use tidewire_server::http::cluster::{Cluster, ClusterKey, ClusterOptions};
use tidewire_server::http::state::HttpState;
use tidewire_server::http::tls::Certificate;
use tokio::sync::watch;

use crate::server::Server;

pub const KEY: &str = "0123456789abcdef0123456789abcdef";

pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Which node does what. Nodes are named by their place in [`NAMES`]; `None` is nobody.
pub struct Roles {
    owners: Mutex<HashMap<String, Option<usize>>>,
    owner: Mutex<Option<usize>>,
    sequencer: Mutex<Option<usize>>,
    addresses: Mutex<Vec<String>>,
    applied: [AtomicU64; NAMES.len()],
    applied_changes: [watch::Sender<()>; NAMES.len()],
    applied_waits: [AtomicU64; NAMES.len()],
    silent_seconds: [AtomicU64; NAMES.len()],
    heard_ms: [AtomicU64; NAMES.len()],
    beat_seconds: AtomicU64,
}

impl Roles {
    pub fn own(&self, user: &str, owner: Option<usize>) {
        self.owners.lock().unwrap().insert(user.to_owned(), owner);
    }

    pub fn own_all(&self, owner: Option<usize>) {
        *self.owner.lock().unwrap() = owner;
    }

    pub fn sequence(&self, sequencer: Option<usize>) {
        *self.sequencer.lock().unwrap() = sequencer;
    }

    pub fn move_to(&self, node: usize, address: String) {
        self.addresses.lock().unwrap()[node] = address;
    }

    pub fn silence_log(&self, seconds: u64) {
        (0..NAMES.len()).for_each(|node| self.silence_log_of(node, seconds));
    }

    pub fn silence_log_of(&self, node: usize, seconds: u64) {
        self.silent_seconds[node].store(seconds, Ordering::Relaxed);
    }

    /// All nodes have last heard from this one so long ago.
    pub fn hear_last(&self, node: usize, ago_ms: u64) {
        self.heard_ms[node].store(ago_ms, Ordering::Relaxed);
    }

    pub fn beat_every(&self, seconds: u64) {
        self.beat_seconds.store(seconds, Ordering::Relaxed);
    }

    pub fn apply(&self, node: usize, sequence: u64) {
        self.applied[node].store(sequence, Ordering::Relaxed);
        self.applied_changes[node].send_replace(());
    }

    /// The number of requests that have waited until a node applies a record.
    pub fn applied_waits(&self, node: usize) -> u64 {
        self.applied_waits[node].load(Ordering::Relaxed)
    }
}

/// What one node knows.
struct Seen {
    me: usize,
    name: NodeName,
    roles: Arc<Roles>,
    figures: ClusterFigures,
}

impl Seen {
    fn place(&self, node: Option<usize>) -> Place {
        match node {
            None => Place::Nowhere,
            Some(node) if node == self.me => Place::Here,
            Some(node) => {
                let address = self.roles.addresses.lock().unwrap()[node].as_str().into();
                Place::At { node: NAMES[node].parse().unwrap(), address }
            }
        }
    }
}

impl Placement for Seen {
    fn me(&self) -> &NodeName {
        &self.name
    }

    fn owner(&self, user: &SourceId) -> Place {
        let owner = self.roles.owners.lock().unwrap().get(user.as_str()).copied();
        self.place(owner.unwrap_or_else(|| *self.roles.owner.lock().unwrap()))
    }

    fn sequencer(&self) -> Place {
        self.place(*self.roles.sequencer.lock().unwrap())
    }

    fn applied(&self) -> Sequence {
        Sequence(self.roles.applied[self.me].load(Ordering::Relaxed))
    }

    fn applied_changes(&self) -> watch::Receiver<()> {
        self.roles.applied_waits[self.me].fetch_add(1, Ordering::Relaxed);
        self.roles.applied_changes[self.me].subscribe()
    }

    fn figures(&self) -> Option<&ClusterFigures> {
        Some(&self.figures)
    }

    fn heard_ago(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.roles.silent_seconds[self.me].load(Ordering::Relaxed)))
    }

    fn heartbeat_period(&self) -> Duration {
        Duration::from_secs(self.roles.beat_seconds.load(Ordering::Relaxed))
    }

    fn view(&self) -> ClusterInfo {
        let addresses = self.roles.addresses.lock().unwrap();
        let node = |nth: usize| NodeInfo {
            name: NAMES[nth].parse().unwrap(),
            address: addresses[nth].clone(),
            partitions: vec![nth as u32],
            heard_ago: Some(Duration::from_millis(self.roles.heard_ms[nth].load(Ordering::Relaxed))),
        };
        let sequencer = self.roles.sequencer.lock().unwrap().map(|nth| NAMES[nth].parse().unwrap());
        let (session, heartbeat) = (Duration::from_secs(6), Duration::from_millis(500));
        let nodes = (0..NAMES.len()).map(node).collect();
        ClusterInfo { epoch: Epoch(7), partitions: 3, sequencer, nodes, gone: Vec::new(), session, heartbeat }
    }
}

/// Three nodes: at first `b` owns all readers and `c` is the sequencer.
pub struct Nodes {
    pub roles: Arc<Roles>,
    clusters: Vec<Arc<Cluster>>,
    servers: Vec<Server>,
}

impl Nodes {
    /// Starts nodes that share an engine: what each of them would have, once all have applied the same log.
    pub fn of_one_world(access: impl Fn() -> Access) -> Self {
        let engine = Engine::start(EngineConfig::default());
        Self::start(|| engine.clone(), access, |options| options, |state| state)
    }

    /// Starts nodes each of which has a world of its own, so that it shows which one did something.
    pub fn of_own_worlds() -> Self {
        Self::impatient(Duration::from_secs(10))
    }

    /// Starts nodes with worlds of their own that wait for an answer no longer than this.
    pub fn impatient(answer_timeout: Duration) -> Self {
        let change = |options| ClusterOptions { answer_timeout, ..options };
        Self::start(|| Engine::start(EngineConfig::default()), Access::default, change, |state| state)
    }

    /// Starts nodes with worlds of their own and these limits on the work for clients, and on the work for other nodes. They wait for an answer
    /// of another node no longer than two seconds.
    pub fn limited(limits: AdmissionLimits) -> Self {
        let inside = |options| ClusterOptions { limits, answer_timeout: Duration::from_secs(2), ..options };
        let outside = |state| HttpState { admission: Admission::new(limits), ..state };
        Self::start(|| Engine::start(EngineConfig::default()), Access::default, inside, outside)
    }

    /// Starts nodes with these engines and changes of their state.
    pub fn with(engine: impl Fn() -> Engine, change: impl Fn(HttpState) -> HttpState) -> Self {
        Self::start(engine, Access::default, |options| options, change)
    }

    /// Starts nodes with this certificate that trust these authorities.
    pub fn over_tls(certificate: &Arc<Certificate>, authorities: &Path) -> Self {
        let engine = Engine::start(EngineConfig::default());
        let trusting = |options| ClusterOptions { authorities: Some(authorities.to_owned()), ..options };
        let certified = |state| HttpState { certificate: Some(Arc::clone(certificate)), ..state };
        let nodes = Self::start(|| engine.clone(), Access::default, trusting, certified);
        for (nth, server) in nodes.servers.iter().enumerate() {
            nodes.roles.move_to(nth, format!("https://localhost:{}", server.address().port()));
        }
        nodes
    }

    fn start(
        engine: impl Fn() -> Engine,
        access: impl Fn() -> Access,
        options: impl Fn(ClusterOptions) -> ClusterOptions,
        change: impl Fn(HttpState) -> HttpState,
    ) -> Self {
        let roles = Arc::new(Roles {
            owners: Mutex::default(),
            owner: Mutex::new(Some(1)),
            sequencer: Mutex::new(Some(2)),
            addresses: Mutex::new(vec![String::new(); NAMES.len()]),
            applied: Default::default(),
            applied_changes: Default::default(),
            applied_waits: Default::default(),
            silent_seconds: Default::default(),
            heard_ms: Default::default(),
            beat_seconds: AtomicU64::new(0),
        });
        let (mut clusters, mut servers) = (Vec::new(), Vec::new());
        for (me, name) in NAMES.iter().enumerate() {
            let seen = Arc::new(Seen {
                me,
                name: name.parse().unwrap(),
                roles: Arc::clone(&roles),
                figures: ClusterFigures::default(),
            });
            let options = options(ClusterOptions::new(ClusterKey::new(KEY).unwrap()));
            let cluster = Arc::new(Cluster::new(seen, options).unwrap());
            let (engine, access) = (engine(), Arc::new(access()));
            let state = HttpState { access, cluster: Some(Arc::clone(&cluster)), ..HttpState::from(engine.clone()) };
            let server = Server::serving(change(state), engine);
            roles.move_to(me, server.url(""));
            clusters.push(cluster);
            servers.push(server);
        }
        Self { roles, clusters, servers }
    }

    pub fn a(&self) -> &Server {
        &self.servers[0]
    }

    pub fn b(&self) -> &Server {
        &self.servers[1]
    }

    pub fn c(&self) -> &Server {
        &self.servers[2]
    }

    /// Ends the live connections that a node passes on, as its shutdown does.
    pub fn stop_live(&self, node: usize) {
        self.clusters[node].stop_live();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.clusters.iter().for_each(|cluster| cluster.stop_live());
    }
}

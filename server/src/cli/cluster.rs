//! The options of a node of a cluster, and `tidewire cluster`: creates the log of a cluster, and shows its nodes.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use serde::Deserialize;

use crate::cli::client::ServerResponse;
use crate::cli::settings::Span;
use crate::cli::{Outcome, import};
use crate::http::cluster::{Cluster, ClusterKey, ClusterOptions};
use tidewire::clock::SystemClock;
use tidewire::cluster::journal::{NodeOptions, SESSION, found};
use tidewire::cluster::membership::PARTITIONS;
use tidewire::cluster::record::{ClusterId, NodeName};
use tidewire::cluster::view::ClusterView;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::storage::log::kafka::{KafkaLog, KafkaOptions};

/// The shortest session: a beat every 50 ms.
const SESSION_MIN: Duration = Duration::from_millis(600);

/// The Kafka cluster that holds the log.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Kafka {
    /// Brokers of the Kafka cluster that holds the log, separated by commas
    #[arg(long, env = "TIDEWIRE_KAFKA", value_name = "HOST:PORT,…")]
    kafka: Option<String>,

    /// A property of the Kafka client (librdkafka), for TLS and SASL; may be repeated
    #[arg(
        long = "kafka-property",
        env = "TIDEWIRE_KAFKA_PROPERTIES",
        value_name = "NAME=VALUE",
        value_delimiter = ';'
    )]
    properties: Vec<String>,
}

impl Kafka {
    fn options(&self, cluster: &str) -> Result<KafkaOptions, String> {
        let brokers = self.kafka.as_deref().ok_or("--cluster needs --kafka HOST:PORT")?;
        let mut options = KafkaOptions::new(brokers, cluster);
        for property in &self.properties {
            let (name, value) = property
                .split_once('=')
                .ok_or(format!("--kafka-property {property} has no = between name and value"))?;
            options.properties.insert(name.to_owned(), value.to_owned());
        }
        Ok(options)
    }
}

/// The options by which a server takes part in a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Node {
    /// Take part in the cluster of this name; all state is in memory, and the log of the cluster keeps it
    #[arg(long, env = "TIDEWIRE_CLUSTER", value_name = "NAME", conflicts_with = "data_dir")]
    cluster: Option<String>,

    #[command(flatten)]
    kafka: Kafka,

    /// Name of this node, which no other node of the cluster has
    #[arg(long, env = "TIDEWIRE_NODE", value_name = "NAME", requires = "cluster")]
    node: Option<NodeName>,

    /// Address at which the other nodes reach this one
    #[arg(long, env = "TIDEWIRE_ADVERTISE", value_name = "URL", requires = "cluster")]
    advertise: Option<String>,

    /// File with the key that all nodes of the cluster share: at least 32 characters
    #[arg(long, env = "TIDEWIRE_CLUSTER_KEY_FILE", value_name = "FILE", requires = "cluster")]
    cluster_key_file: Option<PathBuf>,

    /// Certificates, as PEM, by which the certificates of nodes with https addresses are verified
    #[arg(long, env = "TIDEWIRE_CLUSTER_CA_FILE", value_name = "FILE", requires = "cluster")]
    cluster_ca_file: Option<PathBuf>,

    /// Time after which a silent node counts as dead; all nodes need the same [duration, default: 6s]
    #[arg(long, env = "TIDEWIRE_CLUSTER_SESSION", value_name = "DURATION", requires = "cluster")]
    cluster_session: Option<Span>,
}

/// A node that has joined its cluster.
pub(crate) struct Joined {
    pub(crate) engine: Engine,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) cluster: Cluster,
}

impl Node {
    /// Returns the options of passing requests on, if a cluster is named, and how many of these open files are left to clients.
    pub(crate) fn options(&self, open_files: u64) -> Result<(Option<ClusterOptions>, u64), Box<dyn std::error::Error>> {
        if self.cluster.is_none() {
            return Ok((None, open_files));
        }
        let key = self.cluster_key_file.as_deref().ok_or("--cluster needs --cluster-key-file FILE")?;
        let mut options = ClusterOptions::new(ClusterKey::read(key)?);
        options.authorities.clone_from(&self.cluster_ca_file);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let left = options.fit_into(open_files, workers);
        Ok((Some(options), left))
    }

    /// Joins the cluster, if one is named. Waits until the brokers have answered.
    pub(crate) fn join(
        &self,
        config: &EngineConfig,
        options: Option<ClusterOptions>,
    ) -> Result<Option<Joined>, Box<dyn std::error::Error>> {
        let (Some(name), Some(options)) = (&self.cluster, options) else { return Ok(None) };
        let node = self.node.clone().ok_or("--cluster needs --node NAME")?;
        let address = self.advertise.as_deref().ok_or("--cluster needs --advertise URL")?;
        let session = self.cluster_session.map_or(SESSION, |span| span.0);
        if session < SESSION_MIN {
            return Err(format!("--cluster-session must be at least {SESSION_MIN:?}").into());
        }
        let address = address.trim_end_matches('/').to_owned();
        if !(address.starts_with("http://") || address.starts_with("https://")) {
            return Err(format!("--advertise {address} must begin with http:// or https://").into());
        }
        let log = KafkaLog::open(self.kafka.options(name)?)?;
        if let Some(retention) = log.settings().retention() {
            // Otherwise no node could start once the first records are deleted.
            return Err(format!("the topic {name}.log deletes old records ({retention}): set both to -1").into());
        }
        let (engine, view) =
            Engine::join(config.clone(), &log, NodeOptions { name: node, address, session }, Arc::new(SystemClock))?;
        let cluster = Cluster::new(Arc::clone(&view) as _, options)?;
        Ok(Some(Joined { engine, view, cluster }))
    }
}

/// Subcommands of `tidewire cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterTool {
    /// Create the log of a new cluster in Kafka
    Init(Init),
    /// Show the nodes of a cluster, as one of them sees it
    Status(Status),
}

/// Arguments of `tidewire cluster init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Name of the cluster; its log is the topic NAME.log
    #[arg(long, env = "TIDEWIRE_CLUSTER", value_name = "NAME")]
    cluster: String,

    #[command(flatten)]
    kafka: Kafka,

    /// Copies of the log, each on another broker
    #[arg(long, value_name = "COPIES", default_value_t = 3)]
    replicas: u16,

    /// Partitions that readers are shared out by; cannot be changed later
    #[arg(long, value_name = "PARTITIONS", default_value_t = PARTITIONS)]
    partitions: u32,
}

/// Arguments of `tidewire cluster status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// A node of the cluster [env: TIDEWIRE_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// File with a key of that server, if the server requires one
    #[arg(long, env = "TIDEWIRE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// PEM file with the root certificates that are trusted for an https server [default: those of public authorities]
    #[arg(long, env = "TIDEWIRE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// The answer of `GET /v1/cluster`.
#[derive(Debug, Deserialize)]
struct Shown {
    node: String,
    epoch: u64,
    sequencer: Option<String>,
    applied: u64,
    partitions: u32,
    nodes: Vec<ShownNode>,
}

#[derive(Debug, Deserialize)]
struct ShownNode {
    name: String,
    address: String,
    partitions: Vec<u32>,
}

impl ClusterTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Init(init) => init.run(),
            Self::Status(status) => status.run(),
        }
    }
}

impl Init {
    fn run(self) -> Outcome {
        let log = KafkaLog::create(self.kafka.options(&self.cluster)?, self.replicas)?;
        let id = ClusterId(fastrand::u64(..));
        found(&log, self.partitions, id)?;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "created cluster {} ({id}): its log is the topic {0}.log, with {} copies",
            self.cluster, self.replicas
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Status {
    fn run(self) -> Outcome {
        let client = import::client(self.server, self.key_file, self.ca_file.as_deref())?;
        let text = match client.get("/v1/cluster")? {
            ServerResponse::Done(_, text) => text,
            ServerResponse::Refused(refused) => return Err(refused.detail.into()),
        };
        let shown: Shown =
            serde_json::from_str(&text).map_err(|cause| format!("not the state of a cluster: {cause}"))?;
        let mut out = std::io::stdout().lock();
        let sequencer = shown.sequencer.as_deref().unwrap_or("no node");
        writeln!(
            out,
            "epoch {}: {sequencer} takes writes; {} has applied record {}",
            shown.epoch, shown.node, shown.applied
        )?;
        for node in &shown.nodes {
            let owned = node.partitions.len();
            writeln!(out, "{}  {}  owns {owned} of {} partitions", node.name, node.address, shown.partitions)?;
        }
        // For scripts: a cluster that takes no writes is not well.
        Ok(if shown.sequencer.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

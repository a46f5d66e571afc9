//! The options of a cluster node, and `tidewire cluster init`, which creates the log of a cluster.

use std::env::VarError;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;

use crate::backup::BackupOptions;
#[cfg(feature = "cassandra")]
use crate::cli::archive::ClusterArchive;
use crate::cli::calls::cluster_status::ClusterStatus;
use crate::cli::node::{HttpPeers, NodeStart};
use crate::cli::node_log::NodeLog;
use crate::cli::settings::{DurationArg, OldPosts};
use crate::cli::{Outcome, terminal};
use crate::export::directory::load_into_memory;
use crate::http::cluster::{Cluster, ClusterKey, ClusterOptions};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::cluster::journal::{
    NodeOptions, SESSION, append_first, bootstrap_log, bootstrap_log_with_archive, refuse_used,
};
use tidewire::cluster::membership::PARTITIONS;
use tidewire::cluster::record::{ClusterId, NodeName};
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::StorageConfig;
use tidewire::feed::followers::Sharding;
use tidewire::recovery::rebuilt::{InitialState, Rebuilt};
use tidewire::state::world::World;
use tidewire::storage::archive;
use tidewire::storage::directory_identity;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::lock::DirectoryLock;
use tidewire::storage::log::{LogError, LogRecord};
use tidewire_kafka::{KafkaLog, KafkaOptions, TopicSettings};

/// Minimum session. It has a heartbeat every 50 ms.
const SESSION_MIN: Duration = Duration::from_millis(600);

/// Minimum retention of the log. Nodes take snapshots more often than this.
const RETENTION_MIN: Duration = Duration::from_secs(3600);

/// The entries that an empty directory may have.
const OF_EMPTY: [&str; 2] = ["LOCK", "lost+found"];

/// The Kafka cluster that holds the log.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Kafka {
    /// Brokers of the Kafka cluster that holds the log, separated by commas
    #[arg(long, env = "TIDEWIRE_KAFKA", value_name = "HOST:PORT,…")]
    kafka: Option<String>,

    /// Property of the Kafka client (librdkafka), for TLS and SASL; may be repeated. Further ones are in TIDEWIRE_KAFKA_PROPERTIES,
    /// separated by semicolons (\\; in a value): put passwords there, because other users can see the arguments of a process
    #[arg(long = "kafka-property", value_name = "NAME=VALUE")]
    properties: Vec<String>,
}

/// The variable with further properties of the Kafka client.
const PROPERTIES: &str = "TIDEWIRE_KAFKA_PROPERTIES";

impl Kafka {
    fn options(&self, cluster: &str) -> Result<KafkaOptions, String> {
        let brokers = self.kafka.as_deref().ok_or("--cluster needs --kafka HOST:PORT")?;
        let mut options = KafkaOptions::new(brokers, cluster);
        let environment = match std::env::var(PROPERTIES) {
            Err(VarError::NotUnicode(_)) => return Err(format!("{PROPERTIES} is not UTF-8")),
            given => split(&given.unwrap_or_default()),
        };
        // The command line is last, so that it takes precedence.
        let of_both = environment.iter().map(|property| (PROPERTIES, property.trim_start()));
        let of_both = of_both.chain(self.properties.iter().map(|property| ("--kafka-property", property.as_str())));
        for (place, property) in of_both {
            // Do not print the text, because it may be a password.
            let (name, value) = property
                .split_once('=')
                .ok_or_else(|| format!("{place}: a property has no = between name and value"))?;
            options.properties.insert(name.to_owned(), value.to_owned());
        }
        Ok(options)
    }
}

/// Splits properties at semicolons. A backslash before one makes it part of the property.
fn split(properties: &str) -> Vec<String> {
    let (mut all, mut current, mut escaped) = (Vec::new(), String::new(), false);
    for character in properties.chars() {
        match character {
            ';' if escaped => {
                current.pop();
                current.push(';');
            }
            ';' => all.push(std::mem::take(&mut current)),
            other => current.push(other),
        }
        escaped = character == '\\';
    }
    all.push(current);
    all.retain(|property| !property.trim().is_empty());
    all
}

/// The options of a server as a node of a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Node {
    /// Name of the cluster to join, whose log keeps all writes; a data directory has snapshots for a faster start
    #[arg(long, env = "TIDEWIRE_CLUSTER", value_name = "NAME")]
    cluster: Option<String>,

    #[command(flatten)]
    kafka: Kafka,

    /// Name of this node, unique in the cluster
    #[arg(long, env = "TIDEWIRE_NODE", value_name = "NAME", requires = "cluster")]
    node: Option<NodeName>,

    /// Address at which other nodes reach this one
    #[arg(long, env = "TIDEWIRE_ADVERTISE", value_name = "URL", requires = "cluster")]
    advertise: Option<String>,

    /// File with the key that all nodes of the cluster share, of at least 32 characters
    #[arg(long, env = "TIDEWIRE_CLUSTER_KEY_FILE", value_name = "FILE", requires = "cluster")]
    cluster_key_file: Option<PathBuf>,

    /// PEM file with the certificates to trust for nodes with https addresses: those of their authority, or their own if they are self-signed
    #[arg(long, hide_short_help = true, env = "TIDEWIRE_CLUSTER_CA_FILE", value_name = "FILE", requires = "cluster")]
    cluster_ca_file: Option<PathBuf>,

    /// Time after which a silent node counts as dead, the same on all nodes [duration, default: 6s]
    #[arg(
        long,
        hide_short_help = true,
        env = "TIDEWIRE_MEMBER_TIMEOUT",
        value_name = "DURATION",
        requires = "cluster"
    )]
    member_timeout: Option<DurationArg>,
}

impl Node {
    /// Returns the options of forwarding if a cluster is named, and the number of open files that remain for clients.
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

    /// Prepares to join the cluster, and locks the data directory.
    pub(crate) fn start(
        &self,
        storage: Option<&StorageConfig>,
        options: ClusterOptions,
        backups: Option<&BackupOptions>,
        old_posts: OldPosts,
    ) -> Result<(NodeStart, Cluster), Box<dyn std::error::Error>> {
        let cluster = self.cluster.as_deref().ok_or("a node needs --cluster NAME")?;
        let name = self.node.clone().ok_or("--cluster needs --node NAME")?;
        let address = self.advertise.as_deref().ok_or("--cluster needs --advertise URL")?;
        let session = self.member_timeout.map_or(SESSION, |span| span.0);
        if session < SESSION_MIN {
            return Err(format!("--member-timeout must be at least {SESSION_MIN:?}").into());
        }
        let address = address.trim_end_matches('/').to_owned();
        if !(address.starts_with("http://") || address.starts_with("https://")) {
            return Err(format!("--advertise {address} must begin with http:// or https://").into());
        }
        let log = NodeLog {
            cluster: cluster.to_owned(),
            brokers: self.kafka.options(cluster)?,
            snapshots_apart: storage.map(|storage| storage.snapshots.rarest()),
            backups_apart: backups.map(|backups| backups.every),
        };
        let claim = |storage: &StorageConfig| storage.claim().map(|claimed| claimed.for_node(storage.snapshots));
        let directory = storage.map(|storage| storage.directory.as_path());
        let storage = storage.map(claim).transpose()?;
        // The directory is locked now.
        directory.map_or(Ok(()), crate::backup::new_directory::remove_unfinished)?;
        let store = backups.map(|backups| &backups.to).zip(directory);
        let view = Arc::new(ClusterState::new(name.clone(), Arc::new(SystemClock), session));
        let peers = HttpPeers::new(&options.key, self.cluster_ca_file.as_deref())?.with_store(store);
        let cluster = Cluster::new(Arc::clone(&view) as _, options)?;
        let options = NodeOptions { name, address, session };
        Ok((NodeStart { log, options, view, storage, peers, old_posts }, cluster))
    }
}

/// Subcommands of `tidewire cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterTool {
    /// Create the log of a new cluster in Kafka
    Init(Init),
    /// Show the nodes of a cluster, as reported by one of them
    Status(ClusterStatus),
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

    /// Time for which the log keeps records; nodes then need data directories [duration, default: for ever]
    #[arg(long, value_name = "DURATION")]
    log_retention: Option<DurationArg>,

    /// Number of partitions of the readers; cannot be changed later
    #[arg(long, value_name = "PARTITIONS", default_value_t = PARTITIONS)]
    partitions: u32,

    #[cfg(feature = "cassandra")]
    #[command(flatten)]
    archive: ClusterArchive,

    /// Data directory with the initial state: of a server on one machine, of a node if the log is lost, or from `tidewire restore`. It
    /// must have all old posts: those of a node are copied into it from the archive of the cluster (`tidewire archive copy`)
    #[arg(long, value_name = "DIR", requires = "data_dir")]
    from_snapshot: Option<PathBuf>,

    /// Data directory to create for the first node, with --from-snapshot; it must be empty or not exist
    #[arg(long, value_name = "DIR", requires = "from_snapshot")]
    data_dir: Option<PathBuf>,
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
        let settings = TopicSettings::for_replicas(self.replicas);
        let settings = match self.log_retention {
            Some(kept) => settings.with_retention(long_enough(kept.0)?),
            None => settings,
        };
        // Create the archive first, because a repetition does not change it.
        #[cfg(feature = "cassandra")]
        let has_archive = self.archive.create()?;
        #[cfg(not(feature = "cassandra"))]
        let has_archive = false;
        let state = self.from_snapshot.as_deref().zip(self.data_dir.as_deref());
        let state = state.map(|(from, to)| FoundedState::load(from, to)).transpose()?;
        let log = KafkaLog::create_with(self.kafka.options(&self.cluster)?, &settings)?;
        // Check this before anything is written to the data directory.
        refuse_used(&log)?;
        let id = ClusterId(fastrand::u64(..));
        match &state {
            None if has_archive => bootstrap_log_with_archive(&log, self.partitions, id)?,
            None => bootstrap_log(&log, self.partitions, id)?,
            Some(state) => {
                let appended = append_first(&log, &state.write(id, self.partitions, has_archive)?);
                appended.map_err(|cause| with_advice(cause, self.data_dir.as_deref()))?;
            }
        }
        let created = format!("created cluster {} ({id}): its log is the topic {0}.log", self.cluster);
        terminal::print_line(&format!("{created}; replicas: {}", self.replicas));
        if let Some(state) = state {
            terminal::print_line(&state.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The initial state of a new cluster: a loaded state, and the directory for the first node of the new cluster. Both directories stay locked.
struct FoundedState {
    state: InitialState,
    directory: PathBuf,
    files: Arc<dyn Files>,
    _locks: [DirectoryLock; 2],
}

impl FoundedState {
    /// Loads the state from a directory, and prepares another one, which must be empty.
    fn load(from: &Path, directory: &Path) -> Result<Self, Box<dyn Error>> {
        // Check this first, because opening a directory creates it.
        if !from.is_dir() {
            return Err(format!("{} is not a directory", from.display()).into());
        }
        let open = |path: &Path| {
            DiskFiles::open(path).map_err(StorageError::io("use the directory", path.display().to_string()))
        };
        let files = open(directory)?;
        let lock_of_new = DirectoryLock::take(directory)?;
        let there = files.list().map_err(StorageError::io("read the directory", directory.display().to_string()))?;
        if let Some(file) = there.into_iter().find(|name| !OF_EMPTY.contains(&&**name)) {
            return Err(format!("the directory {} is not empty: it has {file}", directory.display()).into());
        }
        let source = open(from)?;
        let is_of_node = directory_identity::find(&source)?.is_some_and(|identity| identity.cluster().is_some());
        let (state, lock) = if is_of_node && !from.join(archive::FILE).exists() {
            let lock = DirectoryLock::take(from)?;
            let make_world = || World::create(EngineConfig::default().celebrity, Sharding::new(1));
            (InitialState::from(Rebuilt::from_snapshot(&source, &make_world)?), lock)
        } else {
            // It needs the new directory, on whose disk the state will be.
            load_into_memory(from, directory)?
        };
        Ok(Self { state, directory: directory.to_owned(), files: Arc::new(files), _locks: [lock, lock_of_new] })
    }

    /// Writes the data directory of the first node, and returns the first record of the log.
    fn write(&self, cluster: ClusterId, partitions: u32, archive: bool) -> Result<LogRecord, StorageError> {
        self.state.found(Arc::clone(&self.files), cluster, partitions, archive, SystemClock.now())
    }
}

impl fmt::Display for FoundedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, world, directory) = (self.state.first_state(), &self.state.world, self.directory.display());
        writeln!(f, "it begins with {first}")?;
        writeln!(f, "digest:   {}", first.digest)?;
        writeln!(f, "posts:    {}, edges: {}", world.posts.len(), world.edges())?;
        write!(f, "start the first node with --data-dir {directory}, then the others with empty directories")
    }
}

/// Adds advice about the data directory to an error after which the log may or may not have its first record.
fn with_advice(cause: LogError, directory: Option<&Path>) -> Box<dyn std::error::Error> {
    match (&cause, directory) {
        (LogError::Unavailable(_), Some(directory)) => format!(
            "{cause}. The log may store it later: keep the directory {}, and start the first node with it. If the node reports that the \
             log is empty, delete the topic and the directory, and repeat this command",
            directory.display()
        )
        .into(),
        _ => cause.into(),
    }
}

/// Refuses a retention that is too short for nodes to take snapshots before the log deletes records.
fn long_enough(kept: Duration) -> Result<Duration, String> {
    let refused = || {
        format!("--log-retention {kept:?} is too short: keep records for a day or more, at least for {RETENTION_MIN:?}")
    };
    if kept < RETENTION_MIN { Err(refused()) } else { Ok(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_separated_by_unescaped_semicolons() {
        for (text, expected) in [
            ("", &[][..]),
            (" ; ;", &[]),
            ("a=1;b=2;", &["a=1", "b=2"]),
            (r"sasl.password=x\;y ;b=\2", &["sasl.password=x;y ", r"b=\2"]),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }

    #[test]
    fn an_unconfirmed_first_record_advises_to_keep_the_data_directory() {
        let directory = Some(Path::new("/first"));
        let late = with_advice(LogError::Unavailable("no answer".to_owned()), directory).to_string();
        assert!(late.starts_with("no answer") || late.contains("no answer. The log may store it later"), "{late}");
        assert!(late.contains("keep the directory /first"), "{late}");
        let used = LogError::Setup("in use".to_owned());
        assert_eq!(with_advice(used.clone(), directory).to_string(), used.to_string());
    }

    #[test]
    fn a_log_that_would_lose_records_before_nodes_have_snapshots_is_not_created() {
        for (kept, is_accepted) in [(0, false), (1, false), (3_599_999, false), (3_600_000, true), (604_800_000, true)]
        {
            let kept = Duration::from_millis(kept);
            assert_eq!(long_enough(kept).is_ok(), is_accepted, "{kept:?}");
        }
        let refused = long_enough(Duration::ZERO).unwrap_err();
        assert!(refused.contains("--log-retention 0ns") && refused.contains("3600s"), "{refused}");
    }
}

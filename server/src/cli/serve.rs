//! `tidewire serve`: runs the server.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;

use actix_web::rt::System;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::backup::BackupOptions;
#[cfg(feature = "backup")]
use crate::backup::cluster::ClusterSource;
use crate::backup::figures::BackupFigures;
#[cfg(feature = "cluster")]
use crate::cli::node::{self, NodeStart};
use crate::cli::settings::{OldPosts, Settings, SettingsError};
use crate::cli::{Outcome, begin_log, recovering, terminal};
use crate::http::auth::Access;
use crate::http::engine_cell::EngineCell;
use crate::http::serve;
use crate::http::sockets::open_files;
use crate::http::state::HttpState;
use tidewire::clock::SystemClock;
use tidewire::cluster::view::ClusterView;
use tidewire::config::EngineConfig;
use tidewire::engine::{Claimed, Engine, StorageConfig};
#[cfg(feature = "cassandra")]
use tidewire::storage::archive::{Archive, cassandra::CassandraArchive};
use tidewire::storage::log::SharedLog;

/// Arguments of `tidewire serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,

    /// TOML file with the same options, for those that neither flags nor environment set
    #[arg(long, env = "TIDEWIRE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[cfg(feature = "cluster")]
    #[command(flatten)]
    node: crate::cli::cluster::Node,
}

/// The options of backups, and where their figures go.
pub(super) type Backups = (BackupOptions, Arc<BackupFigures>);

/// Where the state of the server is stored.
enum Source {
    /// A data directory of this machine, and where its old posts are.
    Directory(StorageConfig, Claimed, OldPosts),
    /// The log of a cluster, and perhaps a data directory.
    #[cfg(feature = "cluster")]
    Cluster(Box<NodeStart>),
}

impl Source {
    fn directory(storage: StorageConfig, settings: &Settings) -> Result<Self, Box<dyn Error>> {
        let old_posts = settings.old_posts()?;
        let claimed = storage.claim()?;
        Ok(Self::Directory(storage, claimed, old_posts))
    }

    /// Returns the options of backups, or none if there are no backups.
    fn backups(&self, settings: &Settings) -> Result<Option<BackupOptions>, SettingsError> {
        match self {
            Self::Directory(..) => settings.backups(),
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => settings.backups_of_node(),
        }
    }

    /// Puts the engine into the cell of the HTTP server, as soon as it has all that was acknowledged.
    fn open(
        self,
        config: EngineConfig,
        engine_cell: &EngineCell,
        backups: Option<Backups>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self {
            Self::Directory(storage, directory, old_posts) => {
                open(config, &storage, (directory, old_posts), engine_cell, backups)
            }
            #[cfg(feature = "cluster")]
            Self::Cluster(node) => node.run(config, engine_cell, backups),
        }
    }
}

impl Serve {
    /// Serves until SIGINT or SIGTERM.
    pub(crate) fn run(self) -> Outcome {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        #[cfg(feature = "cluster")]
        let of_node = self.node;
        let settings = self.settings.or(&file);
        begin_log(settings.log_format.unwrap_or_default());
        raise_open_files();
        let (mut config, storage) = (settings.engine()?, settings.storage()?);
        if let Some(refusal) = Access::refusal_to_listen(settings.listen(), settings.access.as_deref()) {
            return Ok(terminal::refuse(&refusal));
        }
        let access = Arc::new(Access::open(settings.access()?)?);
        #[cfg(feature = "cluster")]
        let (node_options, files) = of_node.options(open_files::limit())?;
        #[cfg(not(feature = "cluster"))]
        let files = open_files::limit();
        let (limits, wanted) = (settings.connections(files), config.live_max);
        config.live_max = wanted.min(limits.left_to_live());
        // Claim the directory before the listener is bound. Recovery runs later, while the server already answers that it is not ready.
        #[cfg(feature = "cluster")]
        let (source, cluster) = match node_options {
            Some(options) => {
                node::check(&settings)?;
                let storage = settings.data_dir.is_some().then_some(&storage);
                let (backups, old_posts) = (settings.backups_of_node()?, settings.old_posts()?);
                let (start, cluster) = of_node.start(storage, options, backups.as_ref(), old_posts)?;
                (Source::Cluster(Box::new(start)), Some(Arc::new(cluster)))
            }
            None => (Source::directory(storage, &settings)?, None),
        };
        #[cfg(not(feature = "cluster"))]
        let source = Source::directory(storage, &settings)?;
        let listener = serve::bind(settings.listen())?;
        let (live, per_address) = (config.live_max, limits.per_address);
        info!(connections = limits.all, per_address, live, "connection limits derived from the open files limit");
        if settings.live_max.is_some() && live < wanted {
            warn!(
                "--live-max {wanted} is more than open files allow: {live}; raise their limit (ulimit -n, LimitNOFILE)"
            );
        }
        let mut state = HttpState::new(EngineCell::default(), settings.admission()?).with_connections(limits);
        state.access = access;
        state.certificate = settings.certificate()?;
        #[cfg(feature = "cluster")]
        state.cluster.clone_from(&cluster);
        let (file, has_certificate) = (settings.access.as_deref(), state.certificate.is_some());
        if let Some(warning) = Access::warning_of_plaintext(settings.listen(), file, has_certificate) {
            warn!("{warning}");
        }
        state.slow = settings.slow_log.map_or(state.slow, |span| span.0);
        state.compress_from = settings.compress_from;
        #[cfg(feature = "otel")]
        let spans = crate::http::middleware::spans::Spans::by_environment()?;
        #[cfg(feature = "otel")]
        state.spans.clone_from(&spans);
        let ((fail, failed), (report, reported)) = (oneshot::channel(), mpsc::channel());
        // Recovery runs on its own thread, so that the server can report its progress.
        let opened = state.engine_cell.clone();
        let backups = source.backups(&settings)?.map(|options| (options, Arc::clone(&state.backups)));
        thread::spawn(move || {
            if let Err(cause) = source.open(config, &opened, backups) {
                // Send the cause first: the main thread reads it as soon as it is notified. Sending fails only if nobody waits any more.
                let _ = report.send(cause);
                let _ = fail.send(());
            }
        });
        System::new().block_on(serve::run_on(state, listener, None, failed))?;
        #[cfg(feature = "otel")]
        spans.iter().for_each(crate::http::middleware::spans::Spans::shutdown);
        match reported.try_recv() {
            Ok(cause) => Err(cause),
            // The server ran until its end, or it was stopped during recovery.
            Err(_) => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Raises the soft limit on open files to the hard limit.
pub(crate) fn raise_open_files() {
    if let Err(cause) = open_files::raise() {
        info!("the limit on open files stays at {}: {cause}", open_files::limit());
    }
}

/// Recovers the state and puts the engine into the cell of the HTTP server.
fn open(
    config: EngineConfig,
    storage: &StorageConfig,
    (directory, old_posts): (Claimed, OldPosts),
    engine_cell: &EngineCell,
    backups: Option<Backups>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let clock = Arc::new(SystemClock);
    let open = || match old_posts {
        OldPosts::Directory => Engine::open_claimed(config, storage, directory, clock, engine_cell.progress()),
        #[cfg(feature = "cassandra")]
        OldPosts::Cassandra(options) => {
            let archive: Arc<dyn Archive> = Arc::new(CassandraArchive::open(&options)?);
            Engine::open_claimed_with(config, storage, directory, &archive, clock, engine_cell.progress())
        }
    };
    let (engine, report) = recovering::reported(engine_cell, open)??;
    if let Some((options, figures)) = backups
        && let Err(cause) = start_backups(&engine, None, options, &figures)
    {
        engine.shutdown();
        return Err(cause);
    }
    engine_cell.set_recovered(engine, report);
    Ok(())
}

/// The log of a cluster and the view of its node. None on one machine.
pub(super) type OfCluster = Option<(Arc<dyn SharedLog>, Arc<ClusterView>)>;

/// Starts the thread that makes backups.
#[cfg(feature = "backup")]
pub(super) fn start_backups(
    engine: &Engine,
    cluster: OfCluster,
    options: BackupOptions,
    figures: &Arc<BackupFigures>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let cluster = cluster.map(|(log, view)| ClusterSource { log, view });
    let thread = crate::backup::schedule::BackupThread::start(engine, cluster, options, figures)?;
    figures.keep_until_stopped(Box::new(thread));
    Ok(())
}

/// Never called: without the feature, the settings of backups are refused.
#[cfg(not(feature = "backup"))]
pub(super) fn start_backups(
    _: &Engine,
    _: OfCluster,
    _: BackupOptions,
    _: &Arc<BackupFigures>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    Ok(())
}

//! `tidewire serve`: runs the server.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;

use actix_web::rt::System;
use tokio::sync::oneshot;
use tracing::{Level, enabled, error, info, warn};

use crate::backup::BackupOptions;
use crate::backup::url::BackupUrl;
use crate::build_info::{COMMIT, FEATURES, VERSION};
use crate::cli::log::Log;
#[cfg(feature = "cluster")]
use crate::cli::node::{self, NodeStart};
use crate::cli::scheduled_backups::{Backups, check_store, reason, start_backups};
use crate::cli::settings::{LogFormat, LogLevel, OldPosts, Settings, SettingsError};
use crate::cli::{Outcome, exit, memory, opening, recovering, terminal};
use crate::http::admission::AdmissionLimits;
use crate::http::auth::Access;
use crate::http::engine_cell::EngineCell;
use crate::http::serve::{self, Listeners};
use crate::http::sockets::open_files;
use crate::http::state::{HttpState, ReloadLogLevel};
use tidewire::config::EngineConfig;
use tidewire::engine::{LockedDataDir, StorageConfig};

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

/// The place of the server's state.
enum Source {
    /// A local data directory, and the place of its old posts.
    Directory(StorageConfig, LockedDataDir, OldPosts),
    /// The log of a cluster, with an optional data directory.
    #[cfg(feature = "cluster")]
    Cluster(Box<NodeStart>),
}

impl Source {
    fn directory(storage: StorageConfig, settings: &Settings) -> Result<Self, Box<dyn Error>> {
        let old_posts = settings.old_posts()?;
        let claimed = storage.claim()?;
        #[cfg(feature = "backup")]
        crate::backup::new_directory::refuse_unfinished(&storage.directory)?;
        if matches!(old_posts, OldPosts::Directory) {
            claimed.refuse_foreign()?;
        }
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

    /// Puts the engine into the cell of the HTTP server, as soon as it has applied all acknowledged writes.
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
        // If the file cannot be used, its log settings are unknown. Flags and environment determine the format of the error.
        let (file, unusable) = match self.config.as_deref().map(Settings::read).transpose() {
            Ok(file) => (file.unwrap_or_default(), None),
            Err(cause) => (Settings::default(), Some(cause)),
        };
        // A flag or a variable takes precedence over the level in the file, even when the file changes.
        let reloaded = self.config.clone().filter(|_| self.settings.log_level.is_none());
        let this = Self { settings: self.settings.or(&file), ..self };
        let format = this.settings.log_format.unwrap_or_default();
        let log = Log::begin(format, this.settings.log_level.as_ref());
        let reload_log_level = reloaded.map(|file| reload_log_level(log, file));
        let outcome = unusable.map_or_else(|| this.serve(reload_log_level), |cause| Err(cause.into()));
        match (format, outcome) {
            // Log the error too, because collectors of JSON logs read only the log.
            (LogFormat::Json, Err(cause)) => {
                error!("{}", terminal::message_of(&*cause));
                Ok(exit::code_of(&*cause))
            }
            (_, outcome) => outcome,
        }
    }

    fn serve(self, reload_log_level: Option<ReloadLogLevel>) -> Outcome {
        let settings = memory::fitted(self.settings);
        #[cfg(feature = "cluster")]
        let of_node = self.node;
        raise_open_files();
        let (mut config, storage) = (settings.engine()?, settings.storage()?);
        memory::warning(&config).iter().for_each(|warning| warn!("{warning}"));
        if let Some(refusal) = settings.refusal_to_listen() {
            return Ok(refuse(settings.log_format.unwrap_or_default(), &refusal));
        }
        let access = Arc::new(Access::open(settings.access()?)?);
        #[cfg(feature = "cluster")]
        let (node_options, files) = of_node.options(open_files::limit())?;
        #[cfg(not(feature = "cluster"))]
        let files = open_files::limit();
        let admission = settings.admission()?;
        #[cfg(feature = "cluster")]
        let admission = node_options.as_ref().map_or(admission, |options| options.limit_passes(admission));
        let (limits, wanted) = (settings.connections(files), config.live_max);
        config.live_max = wanted.min(limits.left_to_live());
        #[cfg(feature = "cluster")]
        let is_node = node_options.is_some();
        #[cfg(not(feature = "cluster"))]
        let is_node = false;
        say_what_starts(&settings, (!is_node).then_some(&storage), &access);
        // Listen before anything is written: a server that cannot listen must not leave a directory behind.
        let http = serve::bind(settings.listen())?;
        let listeners = Listeners { http, resp: settings.resp.map(serve::bind).transpose()? };
        // Lock the directory now, so that a directory in use is an immediate error. Recovery runs later, while the server answers that it
        // is not ready.
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
        let (live, per_address) = (config.live_max, limits.per_address);
        info!(connections = limits.all, per_address, live, "connection limits derived from the open files limit");
        if settings.live_max.is_some() && live < wanted {
            warn!(
                "--live-max {wanted} exceeds the {live} that open files allow; raise their limit (ulimit -n, LimitNOFILE)"
            );
        }
        let state = HttpState { reload_log_level, ..state(&settings, access, admission)?.with_connections(limits) };
        #[cfg(feature = "cluster")]
        let state = HttpState { cluster, ..state };
        #[cfg(feature = "otel")]
        let spans = crate::http::middleware::spans::Spans::by_environment()?;
        #[cfg(feature = "otel")]
        let state = HttpState { spans: spans.clone(), ..state };
        let ((fail, failed), (report, reported)) = (oneshot::channel(), mpsc::channel());
        // Recovery runs on its own thread, so that the server can report its progress.
        let opened = state.engine_cell.clone();
        let backups = source.backups(&settings)?.map(|options| (options, Arc::clone(&state.backups)));
        thread::spawn(move || {
            if let Err(cause) = source.open(config, &opened, backups) {
                let reason = reason(&*cause);
                // Send the cause first, because the main thread reads it as soon as it is notified. Sending fails only if the main thread
                // has ended.
                let _ = report.send(cause);
                let _ = fail.send(reason);
            }
        });
        System::new().block_on(serve::run_on(state, listeners, None, failed))?;
        #[cfg(feature = "otel")]
        spans.iter().for_each(crate::http::middleware::spans::Spans::shutdown);
        match reported.try_recv() {
            Ok(cause) => Err(cause),
            // The server has ended normally, or it was stopped during recovery.
            Err(_) => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Logs the version and the main settings. `alone`: the storage settings, or none for a node of a cluster.
fn say_what_starts(settings: &Settings, alone: Option<&StorageConfig>, access: &Access) {
    let keys = access.key_figures();
    let keys = keys.map_or_else(|| "none: every request is allowed".to_owned(), |keys| keys.len().to_string());
    let directory = alone.map(|alone| &alone.directory).or(settings.data_dir.as_ref());
    let backup_to = settings.backup_to.as_ref().map_or_else(|| "none".to_owned(), BackupUrl::to_string);
    info!(
        commit = COMMIT,
        features = FEATURES.as_str(),
        data_dir = directory.map_or_else(|| "none".to_owned(), |directory| directory.display().to_string()),
        durability =
            alone.map_or_else(|| "as the log of the cluster".to_owned(), |alone| alone.journal.durability.to_string()),
        keys,
        backup_to,
        "tidewire {VERSION} starts"
    );
}

/// Returns a function that sets the log level from a settings file that may have changed.
fn reload_log_level(log: Log, file: PathBuf) -> ReloadLogLevel {
    Arc::new(move || match Settings::read(&file) {
        Ok(Settings { log_level, .. }) => {
            let shown = log_level.as_ref().map_or_else(|| "the default".to_owned(), LogLevel::to_string);
            let tell = || info!("the log level is now {shown}");
            // Log this once: before the change if the old level shows it, otherwise after it.
            let is_told = enabled!(Level::INFO);
            is_told.then(tell);
            log.set(log_level.as_ref());
            (!is_told).then(tell);
        }
        Err(cause) => warn!("keeping the current log level: {cause}"),
    })
}

/// Returns the state of a server without an engine. Logs a warning if keys may be sent in plain text.
fn state(settings: &Settings, access: Arc<Access>, limits: AdmissionLimits) -> Result<HttpState, SettingsError> {
    let mut state = HttpState::new(EngineCell::default(), limits);
    state.access = access;
    state.certificate = settings.certificate()?;
    let (file, has_certificate) = (settings.access.as_deref(), state.certificate.is_some());
    let warning = |(_, address)| Access::warning_of_plaintext(address, file, has_certificate);
    settings.addresses().filter_map(warning).for_each(|warning| warn!("{warning}"));
    state.slow = settings.slow_log.map_or(state.slow, |span| span.0);
    state.compress_min_bytes = settings.compress_min_bytes.and_then(|bytes| NonZeroUsize::new(bytes.in_memory()));
    Ok(state)
}

/// Reports in the format of the log that the server must not start with these settings. Returns exit code 2.
fn refuse(format: LogFormat, why: &str) -> ExitCode {
    match format {
        LogFormat::Text => terminal::refuse(why),
        LogFormat::Json => {
            error!("{why}");
            ExitCode::from(2)
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
    (directory, old_posts): (LockedDataDir, OldPosts),
    engine_cell: &EngineCell,
    backups: Option<Backups>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    if let Some((options, _)) = &backups {
        check_store(&options.to, &storage.directory)?;
    }
    let progress = engine_cell.progress();
    let open = || {
        let archive = opening::awaited_archive(&old_posts, progress)?;
        opening::engine(config, storage, directory, archive, progress)
    };
    let (engine, report) = recovering::reported(engine_cell, open)??;
    if let Some((options, figures)) = backups
        && let Err(cause) = start_backups(&engine, None, options, &figures)
    {
        engine.shutdown();
        return Err(cause.into());
    }
    engine_cell.set_recovered(engine, report);
    Ok(())
}

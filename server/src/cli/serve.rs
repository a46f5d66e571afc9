//! `tidewire serve`: runs the server.

use std::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;

use actix_web::rt::System;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::cli::settings::Settings;
use crate::cli::{Outcome, begin_log, recovering, terminal};
use crate::http::auth::Access;
use crate::http::engine_cell::EngineCell;
use crate::http::serve;
use crate::http::sockets::open_files;
use crate::http::state::HttpState;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Claimed, Engine, StorageConfig};

/// Arguments of `tidewire serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,

    /// TOML file with the same options, for those that neither flags nor environment set
    #[arg(long, env = "TIDEWIRE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Serve {
    /// Serves until SIGINT or SIGTERM.
    pub(crate) fn run(self) -> Outcome {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let settings = self.settings.or(&file);
        begin_log(settings.log_format.unwrap_or_default());
        raise_open_files();
        let (mut config, storage) = (settings.engine()?, settings.storage()?);
        if let Some(refusal) = Access::refusal_to_listen(settings.listen(), settings.access.as_deref()) {
            return Ok(terminal::refuse(&refusal));
        }
        let access = Arc::new(Access::open(settings.access()?)?);
        // Claim the directory before the listener is bound. Recovery runs later, while the server already answers that it is not ready.
        let directory = storage.claim()?;
        let listener = serve::bind(settings.listen())?;
        let limits = settings.connections(open_files::limit());
        let wanted = config.live_max;
        config.live_max = wanted.min(limits.left_to_live());
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
        let (file, has_certificate) = (settings.access.as_deref(), state.certificate.is_some());
        if let Some(warning) = Access::warning_of_plaintext(settings.listen(), file, has_certificate) {
            warn!("{warning}");
        }
        state.slow = settings.slow_log.map_or(state.slow, |span| span.0);
        #[cfg(feature = "otel")]
        let spans = crate::http::middleware::spans::Spans::by_environment()?;
        #[cfg(feature = "otel")]
        state.spans.clone_from(&spans);
        let ((fail, failed), (report, reported)) = (oneshot::channel(), mpsc::channel());
        // Recovery runs on its own thread, so that the server can report its progress.
        let opened = state.engine_cell.clone();
        thread::spawn(move || {
            if let Err(cause) = open(config, &storage, directory, &opened) {
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
    directory: Claimed,
    engine_cell: &EngineCell,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (recovering, ended) = crossbeam_channel::bounded(0);
    let waiting = engine_cell.clone();
    let reporting = thread::spawn(move || recovering::report(waiting.progress(), &ended));
    let open = || Engine::open_claimed(config, storage, directory, Arc::new(SystemClock), engine_cell.progress());
    let opened = panic::catch_unwind(AssertUnwindSafe(open));
    drop(recovering);
    // Wait until the progress line is removed before anything else is printed.
    let _ = reporting.join();
    let (engine, report) = opened.map_err(|_| "recovery crashed")??;
    engine_cell.set_recovered(engine, report);
    Ok(())
}

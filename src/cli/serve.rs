//! `tidewire serve`: the server.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use actix_web::rt::System;
use tokio::sync::oneshot;

use crate::api::serve;
use crate::api::slot::Slot;
use crate::cli::Outcome;
use crate::cli::settings::Settings;
use crate::clock::SystemClock;
use crate::engine::Engine;

/// What `tidewire serve` takes.
#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,

    /// TOML file with the same options, for what neither flags nor environment say
    #[arg(long, env = "TIDEWIRE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Serve {
    /// Serves until told to stop by SIGINT or SIGTERM.
    pub(crate) fn run(self) -> Outcome {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let settings = self.settings.or(&file);
        let (config, storage) = (settings.engine()?, settings.storage()?);
        let listener = serve::bind(settings.listen())?;
        let slot = Slot::default();
        let (fail, failed) = oneshot::channel();
        // Recovery has a thread of its own, so that the server can say how far it is.
        let opened = slot.clone();
        let opening = thread::spawn(move || {
            match Engine::open(config, &storage, Arc::new(SystemClock), opened.progress()) {
                Ok((engine, _)) => opened.fill(engine),
                Err(cause) => {
                    let _ = fail.send(());
                    return Err(cause);
                }
            }
            Ok(())
        });
        System::new().block_on(serve::run_on(slot.clone(), listener, None, failed))?;
        if slot.engine().is_none() && opening.is_finished() {
            opening.join().map_err(|_| "recovery crashed")??;
        }
        Ok(ExitCode::SUCCESS)
    }
}

//! `tidewire serve`: the server.

use std::path::PathBuf;
use std::process::ExitCode;

use actix_web::rt::System;

use crate::api::serve;
use crate::cli::Outcome;
use crate::cli::settings::Settings;
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
        let config = settings.engine()?;
        let listener = serve::bind(settings.listen())?;
        System::new().block_on(serve::run_on(Engine::start(config), listener, None))?;
        Ok(ExitCode::SUCCESS)
    }
}

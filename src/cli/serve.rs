//! `tidewire serve`: the server.

use std::path::PathBuf;

use actix_web::rt::System;

use crate::api;
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
    ///
    /// # Errors
    /// When the settings make no sense or the address cannot be taken.
    pub fn run(self) -> Result<(), Box<dyn std::error::Error>> {
        let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let settings = self.settings.or(file);
        let config = settings.engine()?;
        System::new().block_on(api::serve::run(Engine::start(config), settings.listen()))?;
        Ok(())
    }
}

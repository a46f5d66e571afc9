//! `tidewire backup`: one backup of a data directory that no server uses.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::backup::run::Backups;
use crate::backup::{BackupOptions, url::BackupUrl};
use crate::cli::{Outcome, terminal};
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;

/// Arguments of `tidewire backup`.
#[derive(Debug, clap::Args)]
pub(crate) struct Backup {
    /// Data directory; no server may use it meanwhile
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Store for the backup; the environment has the credentials of S3
    #[arg(long, value_name = "URL")]
    to: BackupUrl,
}

impl Backup {
    pub(crate) fn run(self) -> Outcome {
        if !self.data_dir.is_dir() {
            return Ok(terminal::refuse(&format!("{} is no directory", self.data_dir.display())));
        }
        let storage = StorageConfig { directory: self.data_dir, ..StorageConfig::default() };
        let (config, clock) = (EngineConfig::default(), Arc::new(SystemClock));
        let (engine, _) = Engine::open(config, &storage, clock, &RecoveryProgress::default())?;
        // Nothing is removed: old backups are the business of the server that makes them.
        let options =
            BackupOptions { to: self.to, every: Duration::MAX, keep: Duration::MAX, begin_every: Duration::ZERO };
        let backed_up =
            Backups::new(engine.clone(), options, Arc::default(), Arc::default()).and_then(|mut backups| backups.run());
        engine.shutdown();
        backed_up?;
        Ok(ExitCode::SUCCESS)
    }
}

//! `tidewire backup`: one backup of a data directory that no server uses.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::backup::run::Backups;
use crate::backup::{BackupOptions, url::BackupUrl};
use crate::cli::Outcome;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::directory_identity;

/// Arguments of `tidewire backup`.
#[derive(Debug, clap::Args)]
pub(crate) struct Backup {
    /// Data directory; no server may use it at the same time
    #[arg(value_name = "DIR", required_unless_present = "data_dir")]
    dir: Option<PathBuf>,
    /// The same directory, as an option like that of `serve`
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    data_dir: Option<PathBuf>,
    /// Store for the backup; the credentials of S3 come from the environment
    #[arg(long, value_name = "URL")]
    to: BackupUrl,
}

impl Backup {
    pub(crate) fn run(self) -> Outcome {
        let directory = self.dir.or(self.data_dir).unwrap_or_default();
        // Each data directory has an identity from its creation. Without this check, a wrong path would become an empty data directory.
        if !directory.join(directory_identity::FILE).is_file() {
            return Err(format!(
                "{} is not a data directory: it has no file {}",
                directory.display(),
                directory_identity::FILE
            )
            .into());
        }
        let storage = StorageConfig { directory, ..StorageConfig::default() };
        let (config, clock) = (EngineConfig::default(), Arc::new(SystemClock));
        let (engine, _) = Engine::open(config, &storage, clock, &RecoveryProgress::default())?;
        // Retain all backups: only the server that makes backups removes old ones.
        let options =
            BackupOptions { to: self.to, every: Duration::MAX, keep: Duration::MAX, begin_every: Duration::ZERO };
        let backed_up =
            Backups::new(engine.clone(), options, Arc::default(), Arc::default()).and_then(|mut backups| backups.run());
        engine.shutdown();
        backed_up?;
        Ok(ExitCode::SUCCESS)
    }
}

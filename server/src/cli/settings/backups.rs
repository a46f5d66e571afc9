//! The settings of backups.

use std::time::Duration;

use super::{Settings, SettingsError};
use crate::backup::BackupOptions;

/// Default time between two runs.
const EVERY: Duration = Duration::from_secs(3_600);

/// Default time between two runs on a node of a cluster. If Kafka loses all copies of the log, no disk has the events after the last run.
#[cfg(feature = "cluster")]
const EVERY_OF_NODE: Duration = Duration::from_secs(300);

/// Default time for which every moment can be restored.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3_600);

impl Settings {
    /// Returns the options of backups of a node of a cluster.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Self::backups`].
    #[cfg(feature = "cluster")]
    pub fn backups_of_node(&self) -> Result<Option<BackupOptions>, SettingsError> {
        let every = self.backup_every.map_or(EVERY_OF_NODE, |span| span.0);
        Ok(self.backups()?.map(|options| BackupOptions { every, ..options }))
    }

    /// Returns the options of backups, or none if there are no backups.
    ///
    /// # Errors
    /// Fails if a time is zero, or if this program was built without backups.
    pub fn backups(&self) -> Result<Option<BackupOptions>, SettingsError> {
        let Some(to) = self.backup_to.clone() else { return Ok(None) };
        let refuse = |option, what: &str| Err(SettingsError::Nonsense { option, what: what.to_owned() });
        if !cfg!(feature = "backup") {
            return refuse("backup-to", "this program was built without the feature backup");
        }
        let (every, keep) =
            (self.backup_every.map_or(EVERY, |span| span.0), self.backup_keep.map_or(KEEP, |span| span.0));
        match [("backup-every", every), ("backup-keep", keep)].iter().find(|(_, span)| span.is_zero()) {
            Some((option, _)) => refuse(option, "must be longer than zero"),
            // More frequent backups would only store more copies of the archive, because the journal already covers every moment.
            None => Ok(Some(BackupOptions { to, every, keep, begin_every: keep })),
        }
    }
}

//! Backups of a running server.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "backup")]
use crate::backup::BackupError;
use crate::backup::BackupOptions;
#[cfg(feature = "backup")]
use crate::backup::cluster::ClusterSource;
use crate::backup::figures::BackupFigures;
use crate::backup::url::BackupUrl;
use tidewire::cluster::state::ClusterState;
use tidewire::engine::Engine;
use tidewire::storage::log::SharedLog;

/// The options of backups, and the figures that they update.
pub(super) type Backups = (BackupOptions, Arc<BackupFigures>);

/// The log of a cluster and the cluster state of its node. None on one machine.
pub(super) type LogAndState = Option<(Arc<dyn SharedLog>, Arc<ClusterState>)>;

/// The store cannot be used, so the server does not start.
#[derive(Debug, thiserror::Error)]
#[error("the backup store {store} (--backup-to) cannot be used")]
pub(super) struct StoreUnusable {
    store: BackupUrl,
    source: Box<dyn Error + Send + Sync>,
}

/// Returns the reason why the engine did not start, for the log.
pub(super) fn reason(cause: &(dyn Error + Send + Sync + 'static)) -> String {
    match cause.downcast_ref::<StoreUnusable>() {
        Some(unusable) => unusable.to_string(),
        None => "the state cannot be recovered".to_owned(),
    }
}

/// Starts backups of an engine.
pub(super) fn start_backups(
    engine: &Engine,
    cluster: LogAndState,
    options: BackupOptions,
    figures: &Arc<BackupFigures>,
) -> Result<(), StoreUnusable> {
    let store = options.to.clone();
    start_thread(engine, cluster, options, figures).map_err(|source| StoreUnusable { store, source })
}

/// Fails if the store of the backups cannot be used, or has backups of another data directory. Does not write to `directory`.
#[cfg(feature = "backup")]
pub(super) fn check_store(store: &BackupUrl, directory: &Path) -> Result<(), StoreUnusable> {
    let unusable = |cause: BackupError| StoreUnusable { store: store.clone(), source: cause.into() };
    crate::backup::start::check(store, directory).map_err(unusable)
}

/// Never called, because the settings of backups are refused without the feature.
#[cfg(not(feature = "backup"))]
pub(super) fn check_store(_: &BackupUrl, _: &Path) -> Result<(), StoreUnusable> {
    Ok(())
}

/// Starts the thread that makes backups.
#[cfg(feature = "backup")]
fn start_thread(
    engine: &Engine,
    cluster: LogAndState,
    options: BackupOptions,
    figures: &Arc<BackupFigures>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let cluster = cluster.map(|(log, view)| ClusterSource { log, view });
    let thread = crate::backup::schedule::BackupThread::start(engine, cluster, options, figures)?;
    figures.keep_until_stopped(Box::new(thread));
    Ok(())
}

/// Never called, because the settings of backups are refused without the feature.
#[cfg(not(feature = "backup"))]
fn start_thread(
    _: &Engine,
    _: LogAndState,
    _: BackupOptions,
    _: &Arc<BackupFigures>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    Ok(())
}

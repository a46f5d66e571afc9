//! `tidewire restore`: lists backups, and restores a data directory from one.
//!
//! Responsible for:
//! - arguments, and the report of what was restored.
//!
//! Not responsible for:
//! - backups and their files (`backup`).

use std::path::PathBuf;
use std::process::ExitCode;

use crate::backup::manifest::read_all;
use crate::backup::restore::{Moment, Restored, restore};
use crate::backup::store::Store;
use crate::backup::url::BackupUrl;
use crate::cli::{Outcome, terminal};
use tidewire::clock::UnixMicros;

/// Arguments of `tidewire restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Store with the backups; the environment has the credentials of S3
    #[arg(long, value_name = "URL")]
    from: BackupUrl,
    /// Data directory to create; it must be empty or not exist
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    data_dir: Option<PathBuf>,
    /// Restore the state after this event [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "to_time")]
    to_sequence: Option<u64>,
    /// Restore the state at this time, in UTC as 2026-11-20T10:00:00Z
    #[arg(long, value_name = "TIME")]
    to_time: Option<UnixMicros>,
    /// List the backups and what can be restored from them, and restore nothing
    #[arg(long)]
    list: bool,
}

impl Restore {
    pub(crate) fn run(self) -> Outcome {
        let store = Store::open(&self.from, false)?;
        let Some(directory) = self.data_dir.filter(|_| !self.list) else { return list(&store) };
        let moment = match (self.to_sequence, self.to_time) {
            (Some(event), _) => Moment::Event(event),
            (None, Some(time)) => Moment::Time(time),
            (None, None) => Moment::Newest,
        };
        let Restored { event, at, cluster, posts, archived, edges, visible_again, in_files } =
            restore(&store, moment, &directory)?;
        terminal::print_line(&format!("restored: {}, verified by loading it", directory.display()));
        terminal::print_line(&format!("event:    {event}"));
        terminal::print_line(&format!("time:     {at}"));
        terminal::print_line(&format!("posts:    {posts} in memory, {archived} in the archive, tombstones included"));
        terminal::print_line(&format!("edges:    {edges}"));
        if let Some(cluster) = cluster {
            let (own, new) =
                ("a node of this cluster reads the log after this record", "tidewire cluster init --from-snapshot");
            terminal::print_line(&format!("cluster:  {cluster}; {own}. If the log is lost, or must end here: {new}"));
        }
        for user in visible_again.iter().map(|user| user.escape_debug()) {
            terminal::warn(&format!(
                "warning: {user} was erased after this event and is visible again: erase this user"
            ));
        }
        for user in in_files.iter().map(|user| user.escape_debug()) {
            terminal::warn(&format!(
                "warning: {user} was erased before this event, but the restored files still contain data of this user"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(store: &Store) -> Outcome {
    let manifests = read_all(store)?;
    for manifest in &manifests {
        let (from, to) = (manifest.begins(), manifest.copied_at());
        let (first, last, bytes) = (manifest.through, manifest.last(), manifest.bytes());
        terminal::print_line(&format!("events {first} to {last}, {from} to {to}: {bytes} bytes"));
    }
    if manifests.is_empty() {
        terminal::print_line(&format!("{} has no complete backup", store.place("")));
    }
    Ok(ExitCode::SUCCESS)
}

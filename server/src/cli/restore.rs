//! `tidewire restore`: lists backups, and restores a data directory from one.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::backup::manifest::{Manifest, read_readable};
use crate::backup::parts;
use crate::backup::restore::{LeftOut, Moment, Restored, Wanted, restore};
use crate::backup::store::Store;
use crate::backup::url::BackupUrl;
use crate::cli::{Outcome, terminal};
use tidewire::clock::UnixMicros;

/// Arguments of `tidewire restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Store with the backups; the credentials of S3 come from the environment
    #[arg(long, value_name = "URL")]
    from: BackupUrl,
    /// Data directory to create; it must be empty or not exist
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    data_dir: Option<PathBuf>,
    /// Restore the state after this event [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "to_time")]
    to_sequence: Option<u64>,
    /// Restore the state at this time, in UTC as 2026-11-20T10:00:00Z; deletes after the last event with a time are left out and reported
    #[arg(long, value_name = "TIME")]
    to_time: Option<UnixMicros>,
    /// Restore from the backup of this name, which --list shows [default: the newest one that has the event or time]
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// List the backups with their names and the ranges that can be restored, and restore nothing
    #[arg(long, conflicts_with_all = ["data_dir", "to_sequence", "to_time", "backup"])]
    list: bool,
}

impl Restore {
    pub(crate) fn run(self) -> Outcome {
        let store = Store::open(&self.from, false)?;
        let found = read_readable(&store)?;
        for (_, cause) in &found.unreadable {
            terminal::warn(&format!("warning: {cause}"));
        }
        let Some(directory) = self.data_dir else { return list(&store, &found.manifests) };
        let moment = match (self.to_sequence, self.to_time) {
            (Some(event), _) => Moment::Event(event),
            (None, Some(time)) => Moment::Time(time),
            (None, None) => Moment::Newest,
        };
        let restored = restore(&store, found, &Wanted { moment, backup: self.backup }, &directory)?;
        let Restored { event, at, cluster, posts, archived, edges, visible_again, in_files, .. } = &restored;
        terminal::print_line(&format!("restored: {}, verified by loading it", directory.display()));
        terminal::print_line(&format!("event:    {event}"));
        terminal::print_line(&format!("time:     {at}"));
        let old_posts = match (archived, cluster) {
            (Some(archived), _) => format!(", {archived} in the archive, tombstones included"),
            (None, Some(_)) => "; older ones are in Cassandra, which must have everything up to this record".to_owned(),
            (None, None) => "; older ones are in Cassandra, which must have nothing from after this event".to_owned(),
        };
        terminal::print_line(&format!("posts:    {posts} in memory{old_posts}"));
        terminal::print_line(&format!("edges:    {edges}"));
        if let Some(cluster) = cluster {
            let own = "a node of this cluster reads the log after this record";
            let first = match archived {
                Some(_) => "",
                None => "copy the archive into the directory (tidewire archive copy), then ",
            };
            let new = format!("If the log is lost, or must end here: {first}tidewire cluster init --from-snapshot");
            terminal::print_line(&format!("cluster:  {cluster}; {own}. {new}"));
        }
        warn_of_untimed(&restored);
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

/// Reports the events without a time that a restore to a time has left out, or may wrongly include.
fn warn_of_untimed(restored: &Restored) {
    if let Some(LeftOut { first, last }) = restored.left_out {
        let what = match last - first {
            0 => format!("event {first} has no time and is left out; --to-sequence {last} restores it, too"),
            _ => format!(
                "events {first} to {last} have no time and are left out; --to-sequence {last} restores them, too"
            ),
        };
        terminal::warn(&format!("warning: {what}"));
    }
    if let Some(begun_at) = restored.snapshot_begun_at {
        terminal::warn(&format!(
            "warning: the snapshot was begun at {begun_at}, so deletes and unfollows until then may be in the restored state"
        ));
    }
}

fn list(store: &Store, manifests: &[Manifest]) -> Outcome {
    let stored = parts::stored(store)?;
    for manifest in manifests {
        let (from, to) = (manifest.begins(), manifest.copied_at());
        let (first, last, bytes) = (manifest.through, manifest.last(), manifest.bytes());
        let state = match manifest.missing(&stored) {
            0 => String::new(),
            missing => format!(", incomplete: {missing} of its objects are missing or have another size"),
        };
        let name = manifest.name();
        terminal::print_line(&format!("events {first} to {last}, {from} to {to}: {bytes} bytes, backup {name}{state}"));
    }
    if manifests.is_empty() {
        terminal::print_line(&format!("{} has no complete backup", store.place("")));
    }
    Ok(ExitCode::SUCCESS)
}

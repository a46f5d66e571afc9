//! The command line interface of `tidewire`.
//!
//! Responsible for:
//! - parsing arguments and settings, printing to the terminal, exit codes (`exit`).

pub(crate) mod archive;
#[cfg(feature = "backup")]
pub(crate) mod backup;
mod calls;
pub mod client;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod config;
pub mod demo;
mod demo_load;
pub mod demo_world;
mod exit;
#[cfg(feature = "backup")]
mod export;
mod follow_line;
pub(crate) mod health;
pub mod import;
pub mod import_follows;
pub mod import_posts;
#[cfg(feature = "backup")]
mod import_state;
mod in_order;
pub(crate) mod init;
pub(crate) mod journal;
pub(crate) mod keys;
pub mod lines;
mod log;
mod manual;
mod memory;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "cluster")]
mod node_log;
mod opening;
pub(crate) mod post_line;
pub(crate) mod read_only;
mod recovering;
pub mod report;
mod resolver;
#[cfg(feature = "backup")]
pub(crate) mod restore;
mod scheduled_backups;
mod sent_mark;
pub mod serve;
pub mod server_access;
pub mod settings;
pub(crate) mod snapshot;
pub mod terminal;
mod tls_connector;
mod waiting;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::build_info;
use crate::cli::log::Log;
use crate::cli::settings::{LogFormat, names};
use tidewire::storage::error::StorageError;

/// A feed engine in one process.
#[derive(Debug, Parser)]
#[command(name = "tidewire", version, long_version = build_info::LONG_VERSION.as_str())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve feeds over HTTP
    Serve(Box<serve::Serve>),
    /// Serve a small generated world that keeps publishing
    Demo(demo::Demo),
    /// Write a first configuration with keys; never replaces files
    Init(init::Init),
    /// Check that a server is ready; exits with 0 if it is
    Health(health::Health),
    /// Print the newest entries of a feed
    Feed(calls::feed::Feed),
    /// Publish a post
    Publish(calls::publish::Publish),
    /// Follow users, tags, topics and replies to posts
    Follow(calls::follow::Follow),
    /// Stop following users, tags, topics and replies to posts
    Unfollow(calls::follow::Unfollow),
    /// Explain why a post is, or is not, in a feed
    Explain(calls::explain::Explain),
    /// Print the changes of a feed as they happen
    Watch(calls::watch::Watch),
    /// Print the figures of a server
    Stats(calls::stats::Stats),
    /// Import data into a running server or a data directory
    #[command(subcommand)]
    Import(Import),
    /// Write all data of a data directory or a backup as lines of JSON, for `import state`
    #[cfg(feature = "backup")]
    Export(export::Export),
    /// Check the settings of a server
    #[command(subcommand)]
    Config(config::ConfigTool),
    /// Create a token that gives access to the data of one user
    Token(keys::Token),
    /// Create a server key; its scope defaults to full access
    Key(keys::Key),
    /// Inspect, verify or export a snapshot file
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotTool),
    /// Inspect or verify the journal of a data directory
    #[command(subcommand)]
    Journal(journal::JournalTool),
    /// Inspect, verify or copy the archive of a data directory, or prepare one in Cassandra
    #[command(subcommand)]
    Archive(archive::ArchiveTool),
    /// Back up a data directory that no server uses
    #[cfg(feature = "backup")]
    Backup(backup::Backup),
    /// Restore a data directory from a backup: its newest state, or the state after an earlier event
    #[cfg(feature = "backup")]
    Restore(restore::Restore),
    /// Create the log of a cluster, or show its nodes
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(cluster::ClusterTool),
    /// Print the script that completes commands in a shell
    Completions(manual::Completions),
    /// Write the manual pages into a directory
    Man(manual::Man),
}

#[derive(Debug, Subcommand)]
enum Import {
    /// Follow edges: `follower source` in each line
    Follows(import_follows::ImportFollows),
    /// Posts: one JSON object per line, as accepted by POST /v1/posts
    Posts(import_posts::ImportPosts),
    /// A whole state from the output of `export`, into a new data directory
    #[cfg(feature = "backup")]
    State(import_state::ImportState),
}

/// The result of a command: an exit code if the command printed its own messages, or an error to print.
pub(crate) type Outcome = Result<ExitCode, Box<dyn Error>>;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    run_with(std::env::args_os())
}

/// Runs a command line. The first argument is the name of the program.
pub fn run_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = names::with_earlier_names(Cli::command()).get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|cause| cause.exit());
    // `serve` starts the log itself, because its settings determine the format and the level.
    if !matches!(cli.command, Command::Serve(_)) {
        Log::begin(LogFormat::Text, log::level_of_environment().as_ref());
    }
    let outcome = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Demo(demo) => demo.run(),
        Command::Init(init) => init.run(),
        Command::Health(health) => health.run(),
        Command::Feed(feed) => feed.run(),
        Command::Publish(publish) => publish.run(),
        Command::Follow(follow) => follow.run(),
        Command::Unfollow(unfollow) => unfollow.run(),
        Command::Explain(explain) => explain.run(),
        Command::Watch(watch) => watch.run(),
        Command::Stats(stats) => stats.run(),
        Command::Import(Import::Follows(import)) => import.run(),
        Command::Import(Import::Posts(import)) => import.run(),
        #[cfg(feature = "backup")]
        Command::Import(Import::State(import)) => import.run(),
        #[cfg(feature = "backup")]
        Command::Export(export) => export.run(),
        Command::Config(tool) => tool.run(&matches),
        Command::Token(token) => token.run(),
        Command::Key(key) => key.run(),
        Command::Snapshot(tool) => reword_foreign_file(tool.run()),
        Command::Journal(tool) => reword_foreign_file(tool.run()),
        Command::Archive(tool) => tool.run(),
        #[cfg(feature = "backup")]
        Command::Backup(backup) => backup.run(),
        #[cfg(feature = "backup")]
        Command::Restore(restore) => restore.run(),
        #[cfg(feature = "cluster")]
        Command::Cluster(tool) => tool.run(),
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Man(man) => man.run(Cli::command()),
    };
    outcome.unwrap_or_else(|cause| {
        terminal::fail(&*cause);
        exit::code_of(&*cause)
    })
}

/// Rewords the error for a file that does not belong in a data directory: the tools accept any path, so they only report the wrong
/// format.
fn reword_foreign_file(outcome: Outcome) -> Outcome {
    outcome.map_err(|cause| match cause.downcast_ref::<StorageError>() {
        Some(StorageError::Foreign { place, what }) => {
            format!("{place} is not a Tidewire {what} (bad magic bytes)").into()
        }
        _ => cause,
    })
}

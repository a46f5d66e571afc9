//! The command line interface of `tidewire`.
//!
//! Responsible for:
//! - parsing arguments and settings, printing to the terminal, exit codes: 0 for success, 1 for a failure, 2 for a usage error.
//!
//! Not responsible for:
//! - anything that a program which embeds the engine also needs.

pub(crate) mod archive;
#[cfg(feature = "backup")]
pub(crate) mod backup;
pub mod client;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub mod demo;
pub mod demo_world;
#[cfg(feature = "cluster")]
mod founded_state;
pub mod import;
pub mod import_follows;
pub mod import_posts;
pub(crate) mod journal;
pub(crate) mod keys;
pub mod lines;
#[cfg(feature = "cluster")]
mod node;
pub(crate) mod post_line;
pub(crate) mod progress;
pub(crate) mod read_only;
mod recovering;
pub mod report;
#[cfg(feature = "backup")]
pub(crate) mod restore;
pub mod serve;
pub mod settings;
pub(crate) mod snapshot;
pub mod terminal;

use std::error::Error;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::settings::LogFormat;
use crate::peer_error_log::WithoutPeerErrors;
use tidewire::storage::error::StorageError;

/// A feed engine in one process.
#[derive(Debug, Parser)]
#[command(name = "tidewire", version)]
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
    /// Import data into a running server or a data directory
    #[command(subcommand)]
    Import(Import),
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
    /// Restore a data directory from a backup, as it is or as it was after an earlier event
    #[cfg(feature = "backup")]
    Restore(restore::Restore),
    /// Create the log of a cluster, or show its nodes
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(cluster::ClusterTool),
}

#[derive(Debug, Subcommand)]
enum Import {
    /// Follow edges: `follower source` in each line
    Follows(import_follows::ImportFollows),
    /// Posts: a JSON object in each line, as POST /v1/posts takes it
    Posts(import_posts::ImportPosts),
}

/// The result of a command: an exit code if the command printed its own messages, or an error that is still to be printed.
pub(crate) type Outcome = Result<ExitCode, Box<dyn Error>>;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    run_with(std::env::args_os())
}

/// Runs a command line, the program's name first.
pub fn run_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::parse_from(arguments);
    // `serve` starts the log itself, because its settings choose the log format.
    if !matches!(cli.command, Command::Serve(_)) {
        begin_log(LogFormat::Text);
    }
    let outcome = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Demo(demo) => demo.run(),
        Command::Import(Import::Follows(import)) => import.run(),
        Command::Import(Import::Posts(import)) => import.run(),
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
    };
    outcome.unwrap_or_else(|cause| {
        terminal::fail(&*cause);
        ExitCode::FAILURE
    })
}

/// Starts logging to standard error. The variable `TIDEWIRE_LOG` sets the filter.
fn begin_log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("TIDEWIRE_LOG").unwrap_or_else(|_| EnvFilter::new("warn,tidewire=info"));
    // Use colours only on a terminal, and only if `NO_COLOR` is not set: in a file they are noise.
    let is_coloured = std::io::stderr().is_terminal() && !anstyle_query::no_color();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(is_coloured);
    let (log, filter) = (tracing_subscriber::registry(), WithoutPeerErrors(filter));
    match format {
        LogFormat::Text => log.with(lines.with_filter(filter)).init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true).with_filter(filter)).init(),
    }
}

/// Rewords the error for a file that does not belong in a data directory: the tools accept any path, so they only report the wrong
/// format.
fn reword_foreign_file(outcome: Outcome) -> Outcome {
    outcome.map_err(|cause| match cause.downcast_ref::<StorageError>() {
        Some(StorageError::Foreign { place, what }) => {
            format!("{place} is no Tidewire {what}: it does not begin as one").into()
        }
        _ => cause,
    })
}

//! The command line.
//!
//! Responsible for:
//! - reading arguments and settings, talking to the person at the terminal, exit codes: 0 done, 1 failed, 2 usage.
//!
//! Not responsible for:
//! - anything a program embedding the engine would need as well.

pub(crate) mod archive;
pub mod client;
pub mod demo;
pub mod demo_world;
pub mod import;
pub mod import_follows;
pub mod import_posts;
pub(crate) mod journal;
pub(crate) mod keys;
pub mod lines;
pub(crate) mod post_line;
pub(crate) mod progress;
pub(crate) mod read_only;
mod recovering;
pub mod report;
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
    /// Bring data into a running server, or into a data directory
    #[command(subcommand)]
    Import(Import),
    /// Make a token, by which a user gets at what is the user's own
    Token(keys::Token),
    /// Make a key of the server, by which everything can be done
    Key(keys::Key),
    /// Look into a snapshot file
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotTool),
    /// Look into the journal of a data directory
    #[command(subcommand)]
    Journal(journal::JournalTool),
    /// Look into the archive of a data directory
    #[command(subcommand)]
    Archive(archive::ArchiveTool),
}

#[derive(Debug, Subcommand)]
enum Import {
    /// Follow edges: `follower source` in each line
    Follows(import_follows::ImportFollows),
    /// Posts: a JSON object in each line, as POST /v1/posts takes it
    Posts(import_posts::ImportPosts),
}

/// How a command failed: with a message, or with one already told.
pub(crate) type Outcome = Result<ExitCode, Box<dyn Error>>;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    run_with(std::env::args_os())
}

/// Runs a command line, the program's name first.
pub fn run_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::parse_from(arguments);
    // The server's settings say how it logs.
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
        Command::Snapshot(tool) => told_of_any_file(tool.run()),
        Command::Journal(tool) => told_of_any_file(tool.run()),
        Command::Archive(tool) => tool.run(),
    };
    outcome.unwrap_or_else(|cause| {
        terminal::fail(&*cause);
        ExitCode::FAILURE
    })
}

/// Writes the log to standard error from now on, as far as `TIDEWIRE_LOG` lets it.
fn begin_log(format: LogFormat) {
    let filter = EnvFilter::try_from_env("TIDEWIRE_LOG").unwrap_or_else(|_| EnvFilter::new("warn,tidewire=info"));
    // Colours are for people: in a file they are noise. And not for all people.
    let is_coloured = std::io::stderr().is_terminal() && !anstyle_query::no_color();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(is_coloured);
    let (log, filter) = (tracing_subscriber::registry(), WithoutPeerErrors(filter));
    match format {
        LogFormat::Text => log.with(lines.with_filter(filter)).init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true).with_filter(filter)).init(),
    }
}

/// The tools look at whatever file they are given: what a data directory should not have in it is no matter there.
fn told_of_any_file(outcome: Outcome) -> Outcome {
    outcome.map_err(|cause| match cause.downcast_ref::<StorageError>() {
        Some(StorageError::Foreign { place, what }) => {
            format!("{place} is no Tidewire {what}: it does not begin as one").into()
        }
        _ => cause,
    })
}

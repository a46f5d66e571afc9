//! The command line.
//!
//! Responsible for:
//! - reading arguments, telling a report, exit codes: 0 done, 1 failed, 2 usage.
//!
//! Not responsible for:
//! - measuring, and what a report looks like.

mod compare;
mod live;
mod options;
mod overload;
mod run;
mod soak;
mod tests;

use std::fs;
use std::process::ExitCode;
use std::thread;

use clap::{Parser, Subcommand};
use futures_util::future::select_all;
use tidewire_server::cli::terminal;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::target::process::{GUARDED, become_guarded, end_everything};
use crate::target::tidewire::http::SERVER;

/// Loads Tidewire, and the designs that people use in its place.
#[derive(Debug, Parser)]
#[command(name = "tidewire-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The same work on several designs, in turns
    Compare(compare::Compare),
    /// One design: at a rate, as fast as it goes, or as it was recorded
    Run(run::Run),
    /// One design for hours, and what drifts meanwhile
    Soak(soak::Soak),
    /// One design that is asked for more than it can do, and how soon all is well again
    Overload(overload::Overload),
    /// WebSockets that are told what is published: latency, throughput, memory, and clients that stall
    Live(live::Live),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // Two names that are no commands for people: by these this program starts servers.
    match arguments.get(1).map(String::as_str) {
        Some(GUARDED) => {
            terminal::fail(&become_guarded(&arguments[2..]));
            return ExitCode::FAILURE;
        }
        Some(SERVER) => return tidewire_server::cli::run_with(arguments.into_iter().skip(1).map(Into::into)),
        _ => {}
    }
    let command = Cli::parse().command;
    // Live connections end by themselves when they are told to.
    if !matches!(command, Command::Live(_)) {
        thread::spawn(end_when_told);
    }
    let outcome = match command {
        Command::Compare(compare) => compare.run(),
        Command::Run(run) => run.run(),
        Command::Soak(soak) => soak.run(),
        Command::Overload(overload) => overload.run(),
        Command::Live(live) => live.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            terminal::fail(&*cause);
            ExitCode::FAILURE
        }
    }
}

/// Waits for an interrupt from the terminal, the end of that, or a request to end, and leaves nothing behind then.
fn end_when_told() {
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        // Whoever started it by `nohup` wants it to go on.
        let hangup = (!hangup_is_ignored()).then(SignalKind::hangup);
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup);
        let Ok(mut signals) = kinds.map(signal).collect::<Result<Vec<_>, _>>() else { return };
        select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
        terminal::warn("interrupted: servers are ended, their directories removed");
        end_everything();
    });
}

/// Whether this process was started to ignore that its terminal ends.
fn hangup_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // A bit for each signal, the first for number 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

//! The command line interface of `tidewire-load`.
//!
//! Responsible for:
//! - parsing arguments, printing the report, exit codes: 0 for success, 1 for a failure, 2 for a usage error.

mod cluster;
mod compare;
mod live;
mod live_compare;
mod options;
mod overload;
mod run;
mod scale;
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

/// Measures Tidewire and alternative feed designs.
#[derive(Debug, Parser)]
#[command(name = "tidewire-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the same work on several designs in turns
    Compare(compare::Compare),
    /// Run one design: at a given rate, at its maximum rate, or with a recorded activity
    Run(run::Run),
    /// Run one design for hours and report the drift
    Soak(soak::Soak),
    /// Run one design above its maximum rate and measure its recovery time
    Overload(overload::Overload),
    /// Measure a cluster and compare it with one node: writes, pages, faults
    Cluster(cluster::Cluster),
    /// Calculate the resources that the nodes of a cluster need, and the first bottleneck
    Scale(scale::Scale),
    /// Measure live connections: latency, throughput, memory, and clients that stall
    Live(live::Live),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // Two hidden commands, which this program uses to start servers.
    match arguments.get(1).map(String::as_str) {
        Some(GUARDED) => {
            terminal::fail(&become_guarded(&arguments[2..]));
            return ExitCode::FAILURE;
        }
        Some(SERVER) => return tidewire_server::cli::run_with(arguments.into_iter().skip(1).map(Into::into)),
        _ => {}
    }
    let command = Cli::parse().command;
    // `live` handles these signals itself.
    if !matches!(command, Command::Live(_)) {
        thread::spawn(end_on_signal);
    }
    let outcome = match command {
        Command::Compare(compare) => compare.run(),
        Command::Run(run) => run.run(),
        Command::Soak(soak) => soak.run(),
        Command::Overload(overload) => overload.run(),
        Command::Cluster(cluster) => cluster.run(),
        Command::Scale(scale) => scale.run(),
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

/// Waits for SIGINT, SIGHUP or SIGTERM, then stops all servers, removes their directories and ends this process.
fn end_on_signal() {
    let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        // A program started by `nohup` must continue.
        let hangup = (!hangup_is_ignored()).then(SignalKind::hangup);
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup);
        let Ok(mut signals) = kinds.map(signal).collect::<Result<Vec<_>, _>>() else { return };
        select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
        terminal::warn("interrupted: servers are ended, their directories removed");
        end_everything();
    });
}

/// Returns true if this process was started with SIGHUP ignored.
fn hangup_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The mask has one bit per signal; the first is signal number 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

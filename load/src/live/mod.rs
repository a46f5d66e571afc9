//! Live push, seen from outside: the real server as a process of its own, and thousands of connections to it.
//!
//! `cargo bench --bench live`. Variables that begin with `TIDEWIRE_LIVE_` change what is measured (`settings.rs`). Everything
//! has an end, and the server is stopped on any exit but a `kill -9`.
//!
//! | file | measures |
//! |---|---|
//! | `latency.rs` | from a publish to the last follower's last byte |
//! | `throughput.rs` | messages a second, and that none is lost |
//! | `memory.rs` | the server's memory for each idle connection |
//! | `stalled.rs` | what clients that stop reading cost the others |
//!
//! The connections take turns on one thread (`audience.rs`, `socket.rs`), so that as little as can be of the machine is spent
//! on this side. Figures include the time in which it reads; how much that is, is told beside them as processor time.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod audience;
#[path = "../common/mod.rs"]
mod common;
mod figures;
mod http;
mod latency;
mod memory;
mod pace;
mod server;
mod settings;
mod socket;
mod stalled;
mod throughput;

use std::process::ExitCode;

use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

fn main() -> ExitCode {
    let mut settings = Settings::read();
    settings.fit(server::raise_descriptors(settings.descriptors()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Whoever is told to stop lets go of the server first: it would go on alone.
    runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt()).unwrap(), signal(SignalKind::terminate()).unwrap());
        let local = LocalSet::new();
        tokio::select! {
            // First: an interrupt from the terminal ends the server too, which is no failure of a measure.
            biased;
            _ = interrupt.recv() => ExitCode::FAILURE,
            _ = terminate.recv() => ExitCode::FAILURE,
            () = local.run_until(measure(&settings)) => ExitCode::SUCCESS,
        }
    })
}

async fn measure(settings: &Settings) {
    if settings.wants("latency") {
        latency::measure(settings).await;
    }
    if settings.wants("throughput") {
        throughput::measure(settings).await;
    }
    if settings.wants("memory") {
        memory::measure(settings).await;
    }
    if settings.wants("stalled") {
        stalled::measure(settings).await;
    }
}

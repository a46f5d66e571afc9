//! The integration tests of the load tool, in one binary.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod contract;
mod live;
mod live_compare;
mod mariadb;
mod redis;
mod run;

/// Sets the program that starts servers, as `tidewire-load` itself does.
fn harnessed() {
    tidewire_load::target::process::set_harness(std::path::Path::new(env!("CARGO_BIN_EXE_tidewire-load")));
}

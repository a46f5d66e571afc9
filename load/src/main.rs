//! The `tidewire-load` command.

use std::process::ExitCode;

/// As the server has it, which this program becomes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidewire_load::cli::run()
}

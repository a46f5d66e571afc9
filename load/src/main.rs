//! The `tidewire-load` command.

use std::process::ExitCode;

/// The same allocator as in the server: the engine also runs inside this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidewire_load::cli::run()
}

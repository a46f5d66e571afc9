//! The program `tidewire-load`.

use std::io::Write;
use std::process::ExitCode;

use tidewire_load::target::process::{GUARDED, become_guarded};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((command, rest)) if command == GUARDED => {
            // If nobody reads what goes wrong, nothing is left to do.
            let _ = writeln!(std::io::stderr(), "{}", become_guarded(rest));
            ExitCode::FAILURE
        }
        _ => ExitCode::FAILURE,
    }
}

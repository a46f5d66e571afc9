//! The program. For now, only what servers are started through.

use std::process::ExitCode;

use tidewire_load::target::process::{GUARDED, become_guarded};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((command, program)) if command == GUARDED => {
            let cause = become_guarded(program);
            // To the log of the server that is not started.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{cause}\n"));
        }
        _ => {}
    }
    ExitCode::FAILURE
}

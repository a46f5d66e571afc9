//! What tests need that start servers of others.

use std::io::Write;

use tidewire_load::target::process::{find_program, set_harness};

/// Whether a program that a test needs is missing here. Then it says so in a line.
///
/// # Panics
/// If it is missing where `TIDEWIRE_REQUIRE_SERVERS` is 1.
pub fn absent(program: &str) -> bool {
    set_harness(env!("CARGO_BIN_EXE_tidewire-load").into());
    if find_program(program).is_some() {
        return false;
    }
    assert!(std::env::var_os("TIDEWIRE_REQUIRE_SERVERS").is_none_or(|set| set != "1"), "there is no {program}");
    let _ = writeln!(std::io::stderr(), "skipped, as there is no {program}: {:?}", std::thread::current().name());
    true
}

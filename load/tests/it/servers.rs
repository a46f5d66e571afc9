//! What tests of designs that need a server have in common.
#![allow(clippy::print_stderr, reason = "tests say what they skip")]

use std::path::Path;

use tidewire_load::target::process::{find_program, set_harness};

/// Lets servers be started as the program itself does.
pub fn harnessed() {
    set_harness(Path::new(env!("CARGO_BIN_EXE_tidewire-load")));
}

/// Whether a server is not installed, so that its test is skipped. Where all are meant to be, that is a failure.
pub fn absent(program: &str) -> bool {
    harnessed();
    if find_program(program).is_some() {
        return false;
    }
    let must = std::env::var("TIDEWIRE_REQUIRE_SERVERS").is_ok_and(|value| value == "1");
    assert!(!must, "{program} is not installed, and TIDEWIRE_REQUIRE_SERVERS=1");
    eprintln!("skipped: {program} is not installed");
    true
}

//! Helpers for tests of designs that need a server.
#![allow(clippy::print_stderr, reason = "tests say what they skip")]

use std::path::Path;

use tidewire_load::live::compare::Design;
use tidewire_load::target::process::{find_program, set_harness};

/// Sets the program that starts servers, as `tidewire-load` itself does.
pub fn harnessed() {
    set_harness(Path::new(env!("CARGO_BIN_EXE_tidewire-load")));
}

/// Returns true if a server is not installed, so that its test is skipped. It fails where all servers are required.
pub fn absent(program: &str) -> bool {
    harnessed();
    skips(find_program(program).is_none().then(|| format!("{program} is not installed")))
}

/// Returns true if the server of a live design is not installed, in the same way.
pub fn absent_design(design: Design) -> bool {
    skips(design.absence())
}

fn skips(absence: Option<String>) -> bool {
    let Some(absence) = absence else { return false };
    let must = std::env::var("TIDEWIRE_REQUIRE_SERVERS").is_ok_and(|value| value == "1");
    assert!(!must, "{absence}, and TIDEWIRE_REQUIRE_SERVERS=1");
    eprintln!("skipped: {absence}");
    true
}

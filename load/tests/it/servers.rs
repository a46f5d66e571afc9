//! Helpers for tests of designs that need a server.

use std::path::Path;

use tidewire_load::live::compare::Design;
use tidewire_load::target::process::{find_program, set_harness};

use testkit::test_servers::can_run;

/// Sets the program that starts servers, as `tidewire-load` itself does.
pub fn harnessed() {
    set_harness(Path::new(env!("CARGO_BIN_EXE_tidewire-load")));
}

/// Returns true if the calling test can use a server.
pub fn has_server(program: &str) -> bool {
    harnessed();
    can_run(|| find_program(program).map(|_| ()).ok_or(program))
}

/// Returns true if the calling test can use the server of a live design.
pub fn has_design(design: Design) -> bool {
    can_run(|| design.absence().map_or(Ok(()), Err))
}

//! What servers for tests share: scripts that run them, and ports that no other test has.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Number of attempts to start a server, each on other ports.
pub const ATTEMPTS: u32 = 5;

/// Number of ports in a row, more than any servers of a test need.
const ROW: u16 = 64;

/// Ports of rows, below those that the kernel gives to connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns the path of a script of the repository.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name)
}

/// The variable that decides about tests that need other programs: `skip` skips them although the programs are installed, `require` fails
/// those that lack a program. Without it, these are skipped.
const OTHER_PROGRAMS: &str = "TIDEWIRE_OTHER_PROGRAMS";

/// Returns true if the calling test, which needs another program, can run. `find` looks for the program and returns what to install otherwise.
///
/// A skipped test is reported past the test harness, which captures the output of tests that pass: `.ci/run_tests` counts these lines.
pub fn can_run<E: std::fmt::Display>(find: impl FnOnce() -> Result<(), E>) -> bool {
    let choice = std::env::var(OTHER_PROGRAMS).unwrap_or_default();
    assert!(["", "skip", "require"].contains(&choice.as_str()), "{OTHER_PROGRAMS} is skip or require, not {choice}");
    let reason = match find_unless_skipped(&choice, find) {
        Ok(()) => return true,
        Err(reason) => reason,
    };
    assert!(choice != "require", "required by {OTHER_PROGRAMS}, but missing: {reason}");
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    false
}

fn find_unless_skipped<E: std::fmt::Display>(choice: &str, find: impl FnOnce() -> Result<(), E>) -> Result<(), String> {
    if choice == "skip" { Err(format!("{OTHER_PROGRAMS}=skip")) } else { find().map_err(|missing| missing.to_string()) }
}

/// Returns true if the calling test can use a program, which prints its version if it is installed.
pub fn has_program(name: &str) -> bool {
    can_run(|| {
        let mut command = Command::new(name);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().map(|_| ()).map_err(|_| name)
    })
}

/// Returns true if a server is installed, by `check` of its script.
pub fn is_installed(server: &str, name: &str) -> bool {
    can_run(|| {
        let installed = Command::new(script(name)).arg("check").output();
        let is_installed = installed.is_ok_and(|done| done.status.success());
        if is_installed { Ok(()) } else { Err(format!("{server} (scripts/{name} install)")) }
    })
}

/// Ports in a row, reserved for one test.
pub struct Ports {
    pub first: u16,
    /// A socket on the first port. The servers listen for TCP only, so it is not in their way, and no two tests can have it at once, also if
    /// they are of different processes.
    _reservation: UdpSocket,
}

impl Ports {
    /// Reserves ports that nobody uses.
    pub fn reserve(count: usize) -> Self {
        assert!(count <= usize::from(ROW), "{count} ports do not fit into a row");
        let rows = usize::from((PORTS.end - PORTS.start) / ROW);
        let firsts = PORTS.step_by(usize::from(ROW)).take(rows).cycle();
        // Different processes begin with different rows, since ports that were just in use may be held for a moment.
        let mut firsts = firsts.skip(std::process::id() as usize % rows).take(rows);
        firsts.find_map(|first| Self::reserve_at(first, count)).expect("some ports are free")
    }

    fn reserve_at(first: u16, count: usize) -> Option<Self> {
        let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, first)).ok()?;
        let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        (first..first + count as u16).all(is_free).then_some(Self { first, _reservation: reservation })
    }
}

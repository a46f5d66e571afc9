//! What servers for tests share: scripts that run them, and ports that no other test has.
#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code, missing_docs, unreachable_pub, reason = "for tests")]

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of attempts to start a server, each on other ports.
pub const ATTEMPTS: u32 = 5;

/// Number of ports in a row, more than any servers of a test need.
const ROW: u16 = 64;

/// Ports of rows, below those that the kernel gives to connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns the path of a script of the repository, for tests of any of its crates.
pub fn script(name: &str) -> PathBuf {
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = of_crate.ancestors().find(|directory| directory.join("scripts/test_servers.sh").exists());
    root.unwrap_or(of_crate).join("scripts").join(name)
}

/// Returns true if a server is installed, by `check` of its script. Prints a line if not, and fails where all servers are required.
pub fn is_installed(server: &str, name: &str) -> bool {
    let installed = Command::new(script(name)).arg("check").output();
    if installed.is_ok_and(|done| done.status.success()) {
        return true;
    }
    let absence = format!("{server} is not installed (scripts/{name} install)");
    let must = std::env::var("TIDEWIRE_REQUIRE_SERVERS").is_ok_and(|value| value == "1");
    assert!(!must, "{absence}, and TIDEWIRE_REQUIRE_SERVERS=1");
    eprintln!("skipped: {absence}");
    false
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

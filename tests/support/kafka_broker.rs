//! Kafka brokers for tests and benchmarks, on ports and in a directory of their own. They end with the process that started them.
#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code, missing_docs, unreachable_pub, reason = "for tests")]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Number of attempts to find free ports.
const ATTEMPTS: u32 = 5;

/// Running brokers.
pub struct Brokers {
    /// Runs the brokers until its standard input is closed, which happens also if this process is killed.
    run: Child,
    directory: PathBuf,
    port: u16,
    count: usize,
    /// Addresses of all brokers, `HOST:PORT`, separated by commas.
    pub addresses: String,
}

impl Brokers {
    /// Starts brokers. Returns none, and prints a line, if Kafka is not installed; fails where all servers are required.
    pub fn start(count: usize) -> Option<Self> {
        if let Some(absence) = absence() {
            let must = std::env::var("TIDEWIRE_REQUIRE_SERVERS").is_ok_and(|value| value == "1");
            assert!(!must, "{absence}, and TIDEWIRE_REQUIRE_SERVERS=1");
            eprintln!("skipped: {absence}");
            return None;
        }
        Some((1..=ATTEMPTS).find_map(|_| Self::start_at(free_ports(2 * count), count)).expect("Kafka starts"))
    }

    fn start_at(port: u16, count: usize) -> Option<Self> {
        // The script removes it.
        let directory = tempfile::Builder::new().prefix("tidewire-kafka").tempdir().unwrap().keep();
        let mut run = script(&directory, port, &["run", &count.to_string()]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut addresses = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut addresses).unwrap();
        if addresses.is_empty() {
            run.wait().unwrap();
            return None;
        }
        Some(Self { run, directory, port, count, addresses: addresses.trim().to_owned() })
    }

    /// Kills a broker. The first has number 1.
    pub fn kill(&self, broker: usize) {
        self.command(&["kill", &broker.to_string()]);
    }

    /// Stops a broker where it is. Its connections remain.
    pub fn pause(&self, broker: usize) {
        self.command(&["pause", &broker.to_string()]);
    }

    /// Continues all paused brokers, and starts all that were killed.
    pub fn restore(&self) {
        self.command(&["resume"]);
        self.command(&["start", &self.count.to_string()]);
    }

    fn command(&self, arguments: &[&str]) {
        let done = script(&self.directory, self.port, arguments).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

/// Returns the root of the repository, for tests of any of its crates.
fn root() -> &'static Path {
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    of_crate.ancestors().find(|directory| directory.join("scripts/kafka.sh").exists()).unwrap_or(of_crate)
}

/// Returns why Kafka cannot be started, if it cannot.
fn absence() -> Option<String> {
    let installed = Command::new(root().join("scripts/kafka.sh")).arg("check").output();
    let installed = installed.is_ok_and(|done| done.status.success());
    (!installed).then(|| "Kafka is not installed (scripts/kafka.sh install)".to_owned())
}

fn script(directory: &Path, port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(root().join("scripts/kafka.sh"));
    command.arg(arguments[0]).arg(directory).args(&arguments[1..]).env("KAFKA_PORT", port.to_string());
    command
}

/// Returns the first of some ports in a row that nobody uses.
fn free_ports(count: usize) -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    // Below the ports that the kernel gives to connections.
    let mut port = 20_000 + (std::process::id() % 10_000) as u16;
    loop {
        let row = port..port + count as u16;
        if row.clone().all(is_free) {
            return port;
        }
        port = if port > 32_000 { 20_000 } else { row.end };
    }
}

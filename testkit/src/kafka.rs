//! Kafka brokers for tests and benchmarks, on ports and in a directory of their own. They end with the process that started them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::test_servers::{self, ATTEMPTS, Ports};

/// Running brokers.
pub struct Brokers {
    /// Runs the brokers until its standard input is closed, which happens also if this process is killed.
    run: Child,
    directory: PathBuf,
    ports: Ports,
    count: usize,
    doors: usize,
    /// Addresses of all brokers, `HOST:PORT`, separated by commas.
    pub addresses: String,
}

impl Brokers {
    /// Starts brokers. Returns none, and prints a line, if Kafka is not installed; fails where all servers are required.
    pub fn start(count: usize) -> Option<Self> {
        Self::with_doors(count, 0)
    }

    /// The same, and each broker has this many doors: ways to it that lead through proxies.
    pub fn with_doors(count: usize, doors: usize) -> Option<Self> {
        is_installed().then(|| (1..=ATTEMPTS).find_map(|_| Self::start_at(count, doors, None)).expect("Kafka starts"))
    }

    /// Starts one broker with an address for TLS and passwords. `certificate` is a file with a key and its certificate for `localhost`.
    pub fn secure(certificate: &Path) -> Option<Self> {
        is_installed()
            .then(|| (1..=ATTEMPTS).find_map(|_| Self::start_at(1, 0, Some(certificate))).expect("Kafka starts"))
    }

    fn start_at(count: usize, doors: usize, certificate: Option<&Path>) -> Option<Self> {
        let plain = 2 * count * (1 + doors);
        let ports = Ports::reserve(plain + 1);
        let port = ports.first;
        // The script removes it.
        let directory = tempfile::Builder::new().prefix("tidewire-kafka").tempdir().unwrap().keep();
        let mut run = script(&directory, port, doors, &["run", &count.to_string()]);
        run.envs(certificate.map(|file| ("KAFKA_SECURE", file)));
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut addresses = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut addresses).unwrap();
        if addresses.is_empty() {
            run.wait().unwrap();
            return None;
        }
        if certificate.is_some() {
            addresses = format!("localhost:{}", usize::from(port) + plain);
        }
        Some(Self { run, directory, ports, count, doors, addresses: addresses.trim().to_owned() })
    }

    /// Returns the number of brokers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the ports of a door, the first of which has number 1: for each broker, where the proxy must listen, and where the broker does.
    pub fn door(&self, door: usize) -> Vec<(u16, u16)> {
        let listens = |broker: usize| self.ports.first + 2 * (self.count * door + broker) as u16;
        (0..self.count).map(|broker| (listens(broker) + 1, listens(broker))).collect()
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
        let done =
            script(&self.directory, self.ports.first, self.doors, arguments).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

fn is_installed() -> bool {
    test_servers::is_installed("Kafka", "kafka.sh")
}

fn script(directory: &Path, port: u16, doors: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(test_servers::script("kafka.sh"));
    command.arg(arguments[0]).arg(directory).args(&arguments[1..]);
    command.env("KAFKA_PORT", port.to_string()).env("KAFKA_DOORS", doors.to_string());
    command
}

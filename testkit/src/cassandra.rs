//! Cassandra nodes for tests and benchmarks, on ports and in a directory of their own. They end with the process that started them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::test_servers::{ATTEMPTS, Ports, is_installed, script};

const SCRIPT: &str = "cassandra.sh";

/// Running nodes.
pub struct Nodes {
    /// Runs the nodes until its standard input is closed, which happens also if this process is killed.
    run: Child,
    directory: PathBuf,
    ports: Ports,
    count: usize,
    /// Addresses of all nodes, `HOST:PORT`, separated by commas.
    pub addresses: String,
}

impl Nodes {
    /// Starts nodes. Returns none, and prints a line, if Cassandra is not installed; fails where all servers are required.
    pub fn start(count: usize) -> Option<Self> {
        Self::installed(count, &[])
    }

    /// Starts one node that demands TLS, and the user `cassandra` with the password `cassandra`. `certificate` is a file with a key and its
    /// certificate for 127.0.0.1.
    pub fn secure(certificate: &Path) -> Option<Self> {
        Self::installed(1, &[("CASSANDRA_SECURE", certificate.as_os_str())])
    }

    /// Starts nodes in as many datacentres: the first is in dc1, the second in dc2, and so on.
    pub fn in_datacentres(count: usize) -> Option<Self> {
        Self::installed(count, &[("CASSANDRA_DATACENTRES", OsStr::new(&count.to_string()))])
    }

    /// Returns what all tests of this process share: each uses a keyspace of its own, and none disturbs the nodes. It is one node, or as many
    /// as `TIDEWIRE_CASSANDRA_NODES` says.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Nodes>> = OnceLock::new();
        let count = || std::env::var("TIDEWIRE_CASSANDRA_NODES").map_or(1, |count| count.parse().unwrap());
        SHARED.get_or_init(|| Self::start(count())).as_ref()
    }

    fn installed(count: usize, variables: &[(&str, &OsStr)]) -> Option<Self> {
        is_installed("Cassandra", SCRIPT)
            .then(|| (1..=ATTEMPTS).find_map(|_| Self::start_at(count, variables)).expect("Cassandra starts"))
    }

    fn start_at(count: usize, variables: &[(&str, &OsStr)]) -> Option<Self> {
        let ports = Ports::reserve(2);
        // The script removes it.
        let directory = tempfile::Builder::new().prefix("tidewire-cassandra").tempdir().unwrap().keep();
        let mut run = command(&directory, ports.first, &["run", &count.to_string()]);
        run.envs(variables.iter().copied());
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut addresses = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut addresses).unwrap();
        if addresses.is_empty() {
            run.wait().unwrap();
            return None;
        }
        Some(Self { run, directory, ports, count, addresses: addresses.trim().to_owned() })
    }

    /// Returns the name of a keyspace that no other test of this process uses.
    pub fn keyspace() -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("tidewire_{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the URL of a keyspace, as the server takes it.
    pub fn url(&self, keyspace: &str) -> String {
        format!("cassandra://{}/{keyspace}", self.addresses)
    }

    /// Returns the number of copies of each row: one on every node.
    pub fn copies(&self) -> u8 {
        self.count.try_into().unwrap()
    }

    /// Kills a node. The first has number 1.
    pub fn kill(&self, node: usize) {
        self.command(&["kill", &node.to_string()]);
    }

    /// Stops a node where it is. Its connections remain.
    pub fn pause(&self, node: usize) {
        self.command(&["pause", &node.to_string()]);
    }

    /// Continues all paused nodes.
    pub fn resume(&self) {
        self.command(&["resume"]);
    }

    /// Continues all paused nodes, and starts all that were killed. They take requests then.
    pub fn restore(&self) {
        self.resume();
        self.command(&["start", &self.count.to_string()]);
    }

    /// Returns the directory of a node's data.
    pub fn data(&self, node: usize) -> PathBuf {
        self.directory.join(node.to_string()).join("data")
    }

    fn command(&self, arguments: &[&str]) {
        let done = command(&self.directory, self.ports.first, arguments).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

fn command(directory: &Path, port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(script(SCRIPT));
    command.arg(arguments[0]).arg(directory).args(&arguments[1..]).env("CASSANDRA_PORT", port.to_string());
    command
}

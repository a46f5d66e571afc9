//! Programs that tests start: their paths, and servers that a script runs, on ports that no other test has.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Number of attempts to start servers, each on other ports.
const ATTEMPTS: u32 = 5;

/// Number of ports in a row, more than any servers of a test need.
const ROW: u16 = 64;

/// Ports of these rows, below the ephemeral ports of the kernel.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns the path of a program. If it is missing, fails the calling test and names the package to install.
#[track_caller]
pub fn program(name: &str, install: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    // Servers are often only in the `PATH` of root.
    let mut paths = env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join(name));
    let Some(found) = paths.find(|path| path.is_file()) else { panic!("{name} is missing: install {install}") };
    found
}

/// Servers that a script of the repository runs, on ports and in a directory of their own. They end with the process that started them.
pub struct Servers {
    script: Script,
    /// Runs the servers until its standard input is closed, which also happens if this process is killed.
    run: Child,
    ports: Ports,
    count: usize,
    /// Addresses of all servers, `HOST:PORT`, separated by commas.
    pub addresses: String,
}

impl Servers {
    /// Starts servers by the script `scripts/NAME.sh`, with these variables and that of the first port. Fails the calling test if the
    /// servers are not installed.
    pub fn start(name: &'static str, count: usize, ports: usize, variables: &[(&str, &str)]) -> Self {
        let check = script(name).arg("check").output().unwrap();
        assert!(check.status.success(), "{name} is missing: install Java, and run scripts/{name}.sh install");
        let start = |_| Self::start_at(name, count, Ports::reserve(ports), variables);
        (1..=ATTEMPTS).find_map(start).unwrap_or_else(|| panic!("{name} does not start"))
    }

    fn start_at(name: &'static str, count: usize, ports: Ports, variables: &[(&str, &str)]) -> Option<Self> {
        let port = (format!("{}_PORT", name.to_uppercase()), ports.first.to_string());
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        // The script removes the directory.
        let directory = tempfile::Builder::new().prefix(&format!("tidewire-{name}")).tempdir().unwrap().keep();
        let script = Script { name, directory, variables: variables.chain([port]).collect() };
        let mut run = script.command(&["run", &count.to_string()]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut addresses = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut addresses).unwrap();
        if addresses.is_empty() {
            run.wait().unwrap();
            return None;
        }
        Some(Self { script, run, ports, count, addresses: addresses.trim().to_owned() })
    }

    /// Returns the number of servers.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the first port.
    pub fn port(&self) -> u16 {
        self.ports.first
    }

    /// Returns the directory with all files of the servers.
    pub fn directory(&self) -> &Path {
        &self.script.directory
    }

    /// Kills a server. The first has number 1.
    pub fn kill(&self, server: usize) {
        self.command(&["kill", &server.to_string()]);
    }

    /// Pauses a server. Its connections remain open.
    pub fn pause(&self, server: usize) {
        self.command(&["pause", &server.to_string()]);
    }

    /// Continues all paused servers.
    pub fn resume(&self) {
        self.command(&["resume"]);
    }

    /// Continues all paused servers, and starts all killed ones. They accept requests when this returns.
    pub fn restore(&self) {
        self.resume();
        self.command(&["start", &self.count.to_string()]);
    }

    fn command(&self, arguments: &[&str]) {
        let done = self.script.command(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

/// A script of servers, and the arguments of its commands.
struct Script {
    name: &'static str,
    directory: PathBuf,
    variables: Vec<(String, String)>,
}

impl Script {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = script(self.name);
        command.arg(arguments[0]).arg(&self.directory).args(&arguments[1..]).envs(self.variables.iter().cloned());
        command
    }
}

/// Returns a command of the script of servers with this name.
fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scripts/{name}.sh")))
}

/// Ports in a row, reserved for one test.
pub struct Ports {
    pub first: u16,
    /// A UDP socket on the first port, which no two tests can have at once, even of different processes. It does not conflict with the
    /// servers, since they listen for TCP only.
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

//! The real program, started on a port that the system chooses.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use testkit::{DEADLINE, eventually};

use crate::server::agent;

pub struct Program {
    child: Child,
    /// What it has said on standard error so far.
    log: Arc<Mutex<String>>,
    /// Ends when it has said all.
    reading: Option<JoinHandle<()>>,
    pub address: SocketAddr,
    /// Of a server without TLS.
    pub url: String,
    pub agent: ureq::Agent,
}

/// The command that serves a directory on any free port.
pub fn serve(directory: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command.arg("serve").arg("--data-dir").arg(directory).args(["--listen", "127.0.0.1:0"]);
    command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Program {
    /// Starts it, and waits until it has its state.
    pub fn start(directory: &Path, flags: &[&str]) -> Self {
        Self::spawn(directory, flags).ready()
    }

    /// The same, with so many files that it may have open.
    pub fn with_files(directory: &Path, files: usize, flags: &[&str]) -> Self {
        let program = serve(directory, flags);
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""));
        limited.arg(program.get_program()).args(program.get_args());
        limited.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self::run(limited).ready()
    }

    /// Waits until it has its state.
    pub fn ready(mut self) -> Self {
        eventually("the server starts", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                let log = self.whole_log();
                panic!("the server ended by {status} in place of starting: {log}");
            }
            self.get("/readyz").is_some_and(|(status, _)| status == 200)
        });
        self
    }

    /// Starts it with nothing but a settings file.
    pub fn with_settings(file: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
        command.args(["serve", "--config"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self::run(command).ready()
    }

    /// Starts it, and waits until it serves, or has ended.
    pub fn spawn(directory: &Path, flags: &[&str]) -> Self {
        Self::run(serve(directory, flags))
    }

    /// The same, with a variable of its environment.
    pub fn spawn_with(directory: &Path, (name, value): (&str, &Path)) -> Self {
        let mut command = serve(directory, &[]);
        command.env(name, value);
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, serves) = channel();
        let log = Arc::<Mutex<String>>::default();
        let into = Arc::clone(&log);
        let reading = thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                into.lock().unwrap().push_str(&format!("{line}\n"));
                // Only the first is waited for.
                let _ = address_in(&line).map(|address| tell.send(address));
            }
        });
        let address = address_of(&serves);
        let agent = agent();
        Self { child, log, reading: Some(reading), address, url: format!("http://{address}"), agent }
    }

    pub fn get(&self, path: &str) -> Option<(u16, Value)> {
        let mut answer = self.agent.get(format!("{}{path}", self.url)).call().ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// Sends a signal, by the name that `kill` has for it.
    pub fn signal(&self, name: &str) {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().unwrap().success());
    }

    /// Returns the id of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns how often it has said this so far.
    pub fn said(&self, text: &str) -> usize {
        self.log.lock().unwrap().matches(text).count()
    }

    fn whole_log(&mut self) -> String {
        self.reading.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Waits until it has ended by itself, and returns how, and what it had said.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let status = testkit::ended(&mut self.child);
        (status, self.whole_log())
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends the program if the test fails, so that those end as well who write until it is gone.
pub struct EndsOnFailure<'a>(pub &'a Program);

impl Drop for EndsOnFailure<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.signal("KILL");
        }
    }
}

/// The address that a line of the log says is served.
fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, url) = line.split_once("serving on http")?;
    url.trim_start_matches('s').strip_prefix("://")?.split(',').next()?.parse().ok()
}

/// Waits until the program says where it serves. One that ends in place of it serves nowhere.
fn address_of(serves: &Receiver<SocketAddr>) -> SocketAddr {
    match serves.recv_timeout(DEADLINE) {
        Ok(address) => address,
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => SocketAddr::from(([127, 0, 0, 1], 0)),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the server does not say where it serves"),
    }
}

#[test]
fn the_address_is_parsed_from_the_startup_log_line() {
    let line = |url: &str| format!("INFO tidewire: serving on {url}, the console on {url}/console");
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 7_000)));
    for (line, expected) in [
        (line("http://127.0.0.1:7000"), address),
        (line("https://127.0.0.1:7000"), address),
        (line("ftp://127.0.0.1:7000"), None),
        ("INFO tidewire: stopped".to_owned(), None),
    ] {
        assert_eq!(address_in(&line), expected, "{line}");
    }
}

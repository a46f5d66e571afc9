//! A1 and A14: the real program, killed under load, and started twice on one directory.
#![allow(clippy::disallowed_methods, reason = "a test's own threads may sleep")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::eventually;

use serde_json::{Value, json};

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

fn serve(directory: &Path, port: u16, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    command.arg("serve").arg("--data-dir").arg(directory).arg("--listen").arg(format!("127.0.0.1:{port}"));
    command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Program {
    /// Starts it, and waits until it has its state.
    pub fn start(directory: &Path, flags: &[&str]) -> Self {
        Self::spawn(directory, flags).ready()
    }

    /// The same, with so many files that it may have open.
    pub fn with_files(directory: &Path, files: usize, flags: &[&str]) -> Self {
        let port = free_port();
        let program = serve(directory, port, flags);
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""));
        limited.arg(program.get_program()).args(program.get_args());
        limited.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self::run(limited, port).ready()
    }

    fn ready(mut self) -> Self {
        let began = Instant::now();
        while self.get("/readyz").is_none_or(|(status, _)| status != 200) {
            if let Ok(Some(status)) = self.child.try_wait() {
                let log = self.whole_log();
                panic!("the server ended by {status} in place of starting: {log}");
            }
            assert!(began.elapsed() < Duration::from_secs(60), "the server starts");
            thread::sleep(Duration::from_millis(5));
        }
        self
    }

    /// Starts it with nothing but a settings file, which names this port of loopback.
    pub fn with_settings(file: &Path, port: u16) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
        command.args(["serve", "--config"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self::run(command, port).ready()
    }

    /// Starts it, and waits for nothing.
    pub fn spawn(directory: &Path, flags: &[&str]) -> Self {
        let port = free_port();
        Self::run(serve(directory, port, flags), port)
    }

    /// The same, with a variable of its environment.
    pub fn spawn_with(directory: &Path, (name, value): (&str, &Path)) -> Self {
        let port = free_port();
        let mut command = serve(directory, port, &[]);
        command.env(name, value);
        Self::run(command, port)
    }

    fn run(mut command: Command, port: u16) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::<Mutex<String>>::default();
        let into = Arc::clone(&log);
        let reading = thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                let mut log = into.lock().unwrap();
                log.push_str(&String::from_utf8_lossy(&line));
                log.push('\n');
            }
        });
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
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
        let status = eventually("the server ends", || self.child.try_wait().unwrap());
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

/// Kills of the normal run; `TIDEWIRE_KILLS` asks for more.
fn kills() -> u64 {
    std::env::var("TIDEWIRE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5)
}

const CLIENTS: u64 = 4;

/// Fewer answered writes before a kill prove nothing.
const WRITES_MIN: u64 = 20;

#[test]
fn what_was_acknowledged_survives_kills_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--snapshot-journal-bytes", "20000", "--outbox-posts", "10"];
    // The next id of each client, and how many of the last ones were not acknowledged.
    let next: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let mut acknowledged = vec![0; CLIENTS as usize];
    let mut counted = 0;
    while counted < kills() {
        let program = Program::start(directory.path(), &flags);
        check(&program, &acknowledged, &next);
        let before: u64 = acknowledged.iter().sum();
        thread::scope(|scope| {
            let publish = |client: u64| {
                let (program, next) = (&program, &next[client as usize]);
                move || publish_until_refused(program, client, next)
            };
            let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(publish(client))).collect();
            thread::sleep(Duration::from_millis(120 + 40 * (counted % 5)));
            program.signal("KILL");
            for (client, ended) in clients.into_iter().enumerate() {
                acknowledged[client] = acknowledged[client].max(ended.join().unwrap());
            }
        });
        program.kill();
        counted += u64::from(acknowledged.iter().sum::<u64>() - before >= WRITES_MIN);
    }
    let program = Program::start(directory.path(), &flags);
    check(&program, &acknowledged, &next);
    program.kill();
}

/// Publishes one post after the other until the server is gone. Returns how many of all were acknowledged, counted from 0.
pub fn publish_until_refused(program: &Program, client: u64, next: &AtomicU64) -> u64 {
    loop {
        let nth = next.load(Ordering::Relaxed);
        let post = json!({"id": (client * 1_000_000 + nth).to_string(), "author": format!("a{client}"), "body": nth});
        let sent = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json");
        match sent.send(post.to_string()) {
            // Of the last one of a life nobody knows: publishing it again is fine either way.
            Ok(answer) => assert!([200, 201].contains(&answer.status().as_u16()), "{answer:?}"),
            Err(_) => return nth,
        }
        next.store(nth + 1, Ordering::Relaxed);
    }
}

/// All that was acknowledged is there: of each client the first so many, and nothing that it did not send.
pub fn check(program: &Program, acknowledged: &[u64], next: &[AtomicU64]) {
    for (client, acknowledged) in acknowledged.iter().enumerate() {
        let (mut shown, mut cursor) = (Vec::new(), String::new());
        loop {
            let (status, page) = program.get(&format!("/v1/users/a{client}/posts?limit=100{cursor}")).unwrap();
            assert_eq!(status, 200, "{page}");
            shown.extend(page["items"].as_array().unwrap().iter().map(|item| item["post"]["body"].as_u64().unwrap()));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&before={next}");
        }
        shown.reverse();
        let most = next[client].load(Ordering::Relaxed) + 1;
        let complete = shown.iter().copied().eq(0..shown.len() as u64);
        assert!(complete, "client {client}: each post once, in order, none missing: {shown:?}");
        assert!(shown.len() as u64 >= *acknowledged && shown.len() as u64 <= most, "client {client}: {}", shown.len());
    }
}

#[test]
fn a_second_process_on_the_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let mut second = serve(directory.path(), free_port(), &[]).spawn().unwrap();
    let status = second.wait().unwrap();
    let mut said = String::new();
    second.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    for expected in ["in use", &program.child.id().to_string(), "--data-dir", directory.path().to_str().unwrap()] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    program.kill();
}

#[test]
fn an_unusable_directory_is_named_at_every_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    // Recovery fails while the server is still starting, sooner or later than that learns of it.
    for nth in 0..20 {
        let output = serve(&file, free_port(), &[]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "start {nth}: {said}");
        assert!(said.contains("cannot use the data directory") && said.contains(file.to_str().unwrap()), "{said}");
    }
}

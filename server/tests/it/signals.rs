//! The signals to stop, sent to the real program while it has work: what is under way ends, and what was acknowledged is there
//! after the next start.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::access::tokens::{self, SERVER_KEY, bearer};
use crate::kill;
use crate::live::client::{Client, Next};
use crate::program::{EndsOnFailure, Program};
use testkit::{DEADLINE, eventually};

const SIGNALS: [&str; 2] = ["TERM", "INT"];

const PUBLISHERS: u64 = 3;

/// Fewer answered writes before a signal prove nothing.
const WRITES_MIN: u64 = 20;

/// The post that comes in two halves, one before the signal and one after it. Large, so that it has time to come.
const HELD: &str = "9000000";
const HELD_BYTES: usize = 60_000;

/// A request that its client does not go on with for now.
struct Held {
    socket: TcpStream,
    rest: String,
}

impl Held {
    /// Sends the first half of it, and waits until the server reads it.
    fn begin(program: &Program) -> Self {
        let body = json!({"author": "held", "id": HELD, "body": "x".repeat(HELD_BYTES)}).to_string();
        let (first, rest) = body.split_at(body.len() / 2);
        let mut socket = testkit::connect(program.address);
        let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        write!(socket, "{head}\r\nContent-Length: {}\r\n\r\n{first}", body.len()).unwrap();
        eventually("a request is under way", || {
            let bytes = &stats(program)["admission"]["write_bytes"]["under_way"];
            bytes.as_u64() >= Some(HELD_BYTES as u64)
        });
        Self { socket, rest: rest.to_owned() }
    }

    /// Sends the other half, and takes the answer: its status, and what is in it.
    fn end(mut self) -> (String, Value) {
        self.socket.write_all(self.rest.as_bytes()).unwrap();
        let mut answer = String::new();
        // Until the server ends the connection, which it would else keep for the next request.
        self.socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        let status = head.lines().next().unwrap_or_default().to_owned();
        (status, serde_json::from_str(body).unwrap())
    }
}

fn stats(program: &Program) -> Value {
    program.get("/v1/stats").map_or(Value::Null, |(_, stats)| stats)
}

/// The code that a live connection is closed with. Says so when it is there.
fn close_code(address: SocketAddr, connected: &mpsc::Sender<()>) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::watch(address, "ann").await;
        connected.send(()).unwrap();
        loop {
            if let Next::Closed(code) = client.next().await {
                return code;
            }
        }
    })
}

/// Sends a signal while posts are published, one is half sent, and somebody watches a feed. Returns how many posts of each
/// publisher were acknowledged.
fn stop_under_load(program: &Program, signal: &str, next: &[AtomicU64]) -> Vec<u64> {
    let (connected, is_connected) = mpsc::channel();
    thread::scope(|scope| {
        let _ends = EndsOnFailure(program);
        let publish = |(client, next)| scope.spawn(move || kill::publish_until_refused(program, client, next));
        let publishers: Vec<_> = (0..).zip(next).map(publish).collect();
        let written = || next.iter().map(|next| next.load(Ordering::Relaxed)).sum::<u64>();
        eventually("posts are acknowledged", || written() >= WRITES_MIN);
        let live = scope.spawn(move || close_code(program.address, &connected));
        is_connected.recv_timeout(DEADLINE).expect("somebody watches");
        let held = Held::begin(program);

        program.signal(signal);
        assert_eq!(live.join().unwrap(), 1012, "{signal}: who watches is to come back");
        let (status, post) = held.end();
        assert!(status.starts_with("HTTP/1.1 201 ") && post["id"] == HELD, "{signal}: {status}: {post}");
        publishers.into_iter().map(|publisher| publisher.join().unwrap()).collect()
    })
}

/// Stops a server under load with a signal, and starts it again.
fn assert_a_stop_loses_nothing(signal: &str) {
    let directory = tempfile::tempdir().unwrap();
    let next: Vec<AtomicU64> = (0..PUBLISHERS).map(|_| AtomicU64::new(0)).collect();
    let program = Program::start(directory.path(), &[]);
    let acknowledged = stop_under_load(&program, signal, &next);
    let (status, log) = program.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    let said = format!("SIG{signal}: finishing requests in progress");
    assert!(log.contains(&said) && log.contains("stopped"), "{log}");

    let program = Program::start(directory.path(), &[]);
    kill::check(&program, &acknowledged, &next);
    let (status, post) = program.get(&format!("/v1/posts/{HELD}")).unwrap();
    assert_eq!((status, post["body"].as_str().map(str::len)), (200, Some(HELD_BYTES)));
    let recovery = &stats(&program)["recovery"];
    let is_whole = recovery["cut"].is_null() && recovery["lost"] == json!([]) && recovery["skipped"] == json!([]);
    assert!(is_whole, "{recovery}");
    program.kill();
}

#[test]
fn sigterm_completes_requests_and_loses_no_acknowledged_write() {
    assert_a_stop_loses_nothing("TERM");
}

#[test]
fn sigint_completes_requests_and_loses_no_acknowledged_write() {
    assert_a_stop_loses_nothing("INT");
}

/// The snapshots of a data directory that have their name.
fn snapshots(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("snapshot-") && name.ends_with(".tide")).collect()
}

/// Publishes a few posts.
fn publish(program: &Program) {
    for id in 1..=WRITES_MIN {
        let post = json!({"author": "bob", "id": id.to_string(), "body": id}).to_string();
        let sent = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json");
        assert_eq!(sent.send(post).unwrap().status(), 201);
    }
}

fn has_the_last_post(program: &Program) -> bool {
    let (status, post) = program.get(&format!("/v1/posts/{WRITES_MIN}")).unwrap();
    status == 200 && post["body"] == WRITES_MIN
}

#[test]
fn a_stop_signal_takes_a_snapshot_that_needs_no_replay() {
    for signal in SIGNALS {
        let directory = tempfile::tempdir().unwrap();
        let program = Program::start(directory.path(), &[]);
        publish(&program);
        program.signal(signal);
        let (status, log) = program.ended();
        let taken = snapshots(directory.path());
        assert_eq!((status.code(), taken.len()), (Some(0), 1), "{signal}: {log}");

        let program = Program::start(directory.path(), &[]);
        let recovery = &stats(&program)["recovery"];
        let covers = recovery["snapshot"].as_u64() >= Some(WRITES_MIN);
        assert!(covers && recovery["events"] == 0, "{signal}: {recovery}");
        assert!(has_the_last_post(&program));
        program.signal(signal);
        let (status, log) = program.ended();
        assert_eq!((status.code(), snapshots(directory.path())), (Some(0), taken), "nothing was written: {log}");
        assert!(!log.contains("taking a snapshot"), "{log}");
    }
}

#[test]
fn a_second_stop_signal_skips_the_snapshot_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    publish(&program);
    // Both come before a snapshot would be begun.
    let held = Held::begin(&program);
    SIGNALS.iter().for_each(|signal| program.signal(signal));
    let (status, _) = held.end();
    assert!(status.starts_with("HTTP/1.1 201 "), "{status}");
    let (status, log) = program.ended();
    assert_eq!((status.code(), snapshots(directory.path())), (Some(0), vec![]), "{log}");

    let program = Program::start(directory.path(), &[]);
    assert_eq!(stats(&program)["recovery"]["snapshot"], Value::Null);
    assert!(has_the_last_post(&program));
    program.kill();
}

#[test]
fn sighup_applies_the_log_level_of_the_settings_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidewire.toml");
    let choose = |level: &str| fs::write(&file, format!("log-level = \"{level}\"\n")).unwrap();
    choose("info");
    let program = Program::start(&directory.path().join("data"), &["--config", file.to_str().unwrap()]);
    let hangup = |expected: &str, times: usize| {
        program.signal("HUP");
        eventually(expected, || program.said(expected) == times);
    };
    choose("loud");
    hangup("keeping the current log level", 1);
    assert_eq!(program.said("SIGHUP: reloading the log level"), 1);
    for (times, quiet) in (1..).zip(["error", "warn", "off"]) {
        choose(quiet);
        hangup(&format!("the log level is now {quiet}"), 1);
        choose("tidewire=info");
        hangup("the log level is now tidewire=info", times);
        let is_told = program.said("SIGHUP: reloading the log level");
        assert_eq!(is_told, 1 + times, "the signal to leave {quiet} is not told");
    }
    program.signal("TERM");
    assert!(program.ended().0.success());
}

#[test]
fn sighup_reloads_the_access_file_and_does_not_stop_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("access.toml"));
    let no_key = format!("[[server-key]]\nname = \"nobody\"\nsha256 = \"{}\"\n", "0".repeat(64));
    fs::write(&file, no_key).unwrap();
    let program = Program::start(&data, &["--access", file.to_str().unwrap()]);
    let said = |text: &'static str, times| eventually(text, || program.said(text) == times);
    // The file is as it was.
    program.signal("HUP");
    said("SIGHUP: reloading the access file", 1);
    said("loaded new keys from", 1);
    let status_with_key = || {
        let request = program.agent.get(format!("{}/v1/stats", program.url));
        request.header("authorization", bearer(SERVER_KEY)).call().unwrap().status().as_u16()
    };
    assert_eq!(status_with_key(), 401);
    fs::write(&file, tokens::file()).unwrap();
    program.signal("HUP");
    eventually("the new key is accepted", || status_with_key() == 200);
    // What cannot be used changes nothing, and is reported each time.
    fs::write(&file, "no keys").unwrap();
    for nth in 0..2 {
        program.signal("HUP");
        said("SIGHUP: reloading the access file", 3 + nth);
        assert_eq!(status_with_key(), 200);
    }
    eventually("the wrong file is reported", || program.said("the previous keys remain valid") >= 2);
    program.signal("TERM");
    let (status, log) = program.ended();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn sighup_without_files_to_reload_does_not_stop_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    program.signal("HUP");
    eventually("it says so", || program.said("SIGHUP: nothing to reload") == 1);
    assert_eq!(program.get("/healthz").unwrap().0, 200);
    program.signal("TERM");
    let (status, log) = program.ended();
    assert!(status.success(), "{log}");
}

#[test]
fn the_service_manager_is_notified_of_recovery_and_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let (data, path) = (directory.path().join("data"), directory.path().join("notify"));
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let told = || {
        let mut buffer = [0; 512];
        let bytes = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    };
    let start = || Program::spawn_with(&data, ("NOTIFY_SOCKET", &path));

    let program = start();
    assert_eq!(told(), "READY=1\nSTATUS=serving");
    assert_eq!(program.get("/readyz").unwrap().0, 200);
    program.signal("TERM");
    assert_eq!(told(), "STOPPING=1\nSTATUS=stopping: SIGTERM");
    assert!(program.ended().0.success());

    // Who cannot recover is never ready.
    let journal = data.join("journal-00000000000000000001.log");
    assert!(journal.exists());
    fs::write(journal, "damaged").unwrap();
    let (status, log) = start().ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert_eq!(told(), "STOPPING=1\nSTATUS=stopping: the state cannot be recovered", "{log}");
}

#[test]
fn an_unresponsive_service_manager_delays_neither_start_nor_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let _manager = UnixDatagram::bind(&path).unwrap();
    // So many that the socket takes no more.
    let others = UnixDatagram::unbound().unwrap();
    others.set_nonblocking(true).unwrap();
    while others.send_to(b"STATUS=of another", &path).is_ok() {}

    let program = Program::spawn_with(&directory.path().join("data"), ("NOTIFY_SOCKET", &path));
    eventually("it is ready", || program.get("/readyz").is_some_and(|(status, _)| status == 200));
    program.signal("TERM");
    assert!(program.ended().0.success());
}

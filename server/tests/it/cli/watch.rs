//! `tidewire watch`: prints what happens, goes on after a connection ends, and ends when it is told to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;
use testkit::{DEADLINE, eventually};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::serve;
use tidewire_server::http::state::HttpState;

use super::{good, program, ran, server};
use crate::server::Server;
use crate::wire::Wire;

struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(server: &Server, words: &[&str]) -> Self {
        let mut command = program(&server.url(""));
        let mut child = command.arg("watch").args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line comes")
    }

    fn next_of(&self, kind: &str) -> Value {
        eventually(kind, || {
            let message: Value = serde_json::from_str(&self.next()).unwrap();
            Some(message).filter(|message| message["type"] == kind)
        })
    }

    fn ended(mut self) -> Option<i32> {
        testkit::ended(&mut self.child).code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(out: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

#[test]
fn changes_are_printed_live_until_an_interrupt_exits_with_success() {
    let server = server();
    good(&server, &["follow", "ann", "bob"]);
    let watching = Watching::start(&server, &["ann", "--json"]);
    watching.next_of("hello");
    good(&server, &["publish", "bob", "hello", "--id", "7"]);
    assert_eq!(watching.next_of("post")["item"]["post"]["id"], "7");
    assert_eq!(server.send("DELETE", "/v1/posts/7", None, "").status, 204);
    assert_eq!(watching.next_of("remove")["post"], "7");
    let pid = watching.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(watching.ended(), Some(0));
}

#[test]
fn watch_prints_entries_as_text_and_ends_after_the_requested_count() {
    let server = server();
    good(&server, &["follow", "ann", "bob"]);
    let watching = Watching::start(&server, &["ann", "--count", "2"]);
    eventually("it connects", || server.engine.shared().watchers.connections() > 0);
    good(&server, &["publish", "bob", "hello", "--id", "7"]);
    let head = watching.next();
    // Between them is the age, which depends on the machine.
    assert!(head.starts_with("bob · ") && head.ends_with("  7"), "{head}");
    assert_eq!(watching.next(), "  hello");
    assert_eq!(server.send("DELETE", "/v1/posts/7", None, "").status, 204);
    assert_eq!(watching.next(), "post 7 is no longer in the feed");
    assert_eq!(watching.ended(), Some(0));
}

#[test]
fn watch_resumes_after_a_lost_connection() {
    // The engine stays, and its server goes away and comes back at the same address, so that nothing is lost in between.
    let engine = Engine::start(EngineConfig::default());
    let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let proxied = Wire::to(address);
    let server = Server::on(listener, HttpState::from(engine.clone()), engine);
    good(&server, &["follow", "ann", "bob"]);
    let mut command = program(&format!("http://{}", proxied.address));
    let mut child =
        command.args(["watch", "ann", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = lines_of(child.stdout.take().unwrap());
    let watching = Watching { child, lines };
    watching.next_of("hello");
    for id in ["1", "2", "3"] {
        good(&server, &["publish", "bob", "hello", "--id", id]);
        assert_eq!(watching.next_of("post")["item"]["post"]["id"], id);
        proxied.cut();
        good(&server, &["publish", "bob", "hello", "--id", &format!("{id}0")]);
        assert_eq!(watching.next_of("hello")["recovered"], true);
        assert_eq!(watching.next_of("post")["item"]["post"]["id"], format!("{id}0"));
    }
}

/// Starts a server that gives these answers, the last one again and again, and keeps its connections open.
pub(super) fn scripted(answers: Vec<String>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for (number, mut stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let request = BufReader::new(stream.try_clone().unwrap()).lines();
            request.map_while(Result::ok).find(|line| line.is_empty());
            let _ = stream.write_all(answers[number.min(answers.len() - 1)].as_bytes());
            open.push(stream);
        }
    });
    format!("http://{address}")
}

#[test]
fn watch_fails_if_the_response_is_not_an_event_stream_or_does_not_begin() {
    const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    const HELLO: &str = "data: {\"type\":\"hello\",\"recovered\":false}\nid: 1:1\n\n";
    const STALE: &str = "data: {\"type\":\"stale\"}\n\n";
    let busy = "HTTP/1.1 503 x\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 37\r\n\r\n{\"code\":\"overloaded\",\"detail\":\"full\"}";
    let endless = format!("{STREAM}{HELLO}{}", "data: 12345678\n".repeat(700_000));
    for (answers, timeout, code, said) in [
        (
            vec!["HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>".to_owned()],
            "5s",
            1,
            "not a stream of events",
        ),
        (vec![STREAM.to_owned()], "200ms", 3, "timeout, no event for"),
        (vec![busy.to_owned()], "200ms", 3, "overloaded"),
        (vec![busy.to_owned(), format!("{STREAM}{HELLO}{STALE}")], "5s", 0, "watching"),
        (vec![endless], "5s", 1, "larger than 4 MiB"),
    ] {
        let mut command = program(&scripted(answers));
        let ran = ran(command.args(["watch", "ann", "--count", "1", "--timeout", timeout]));
        assert!(ran.code == code && ran.err.contains(said), "{code}, {said}: {}", ran.err);
    }
}

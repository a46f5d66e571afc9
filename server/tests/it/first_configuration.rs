//! `tidewire init` and `tidewire health`: the real program, from an empty directory to a server that answers to a key.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use testkit::eventually;

use serde_json::{Value, json};

use crate::access::tokens::bearer;
use crate::program::Program;
use crate::tls;
use testkit::test_servers::Ports;

const FILES: [&str; 3] = ["access.toml", "metrics.key", "tidewire.toml"];

fn run(arguments: &[&str]) -> Output {
    run_with(&[], arguments)
}

fn run_with(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEWIRE_")) {
        command.env_remove(name);
    }
    // A health check never asks a proxy.
    command.env("HTTP_PROXY", "http://127.0.0.1:1").env("HTTPS_PROXY", "http://127.0.0.1:1");
    testkit::output(command.envs(variables.iter().copied()).args(arguments))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn init(directory: &Path, port: u16) -> Output {
    run(&["init", directory.to_str().unwrap(), "--listen", &format!("127.0.0.1:{port}")])
}

fn health(settings: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["health", "--config", settings.to_str().unwrap()];
    arguments.extend(more);
    run(&arguments)
}

fn status(program: &Program, path: &str, key: &str) -> u16 {
    let request = program.agent.get(format!("{}{path}", program.url));
    request.header("authorization", bearer(key)).call().unwrap().status().as_u16()
}

#[test]
fn init_creates_a_configuration_that_serves_only_holders_of_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("etc/tide \"wire\"");
    let ports = Ports::reserve(1);
    let output = init(&made, ports.first);
    assert!(output.status.success(), "{}", said(&output));
    let key = String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned();
    assert_eq!(said(&output).matches(&key).count(), 1, "the key is shown once");
    for (name, mode) in FILES.into_iter().zip([0o600, 0o640, 0o644]) {
        let path = made.join(name);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{name}");
        assert!(!fs::read_to_string(&path).unwrap().contains(&key), "{name} has the key");
        assert!(said(&output).contains(&format!("wrote {}", path.display())), "{}", said(&output));
    }
    let settings = made.join("tidewire.toml");
    let down = health(&settings, &[]);
    assert_eq!(down.status.code(), Some(1), "{}", said(&down));

    let program = Program::with_settings(&settings);
    let metrics_key = fs::read_to_string(made.join("metrics.key")).unwrap();
    let cases = [
        ("/v1/stats", key.as_str(), 200),
        ("/v1/stats", "guessed", 401),
        ("/metrics", metrics_key.trim(), 200),
        ("/v1/stats", metrics_key.trim(), 403),
    ];
    for (path, key, expected) in cases {
        assert_eq!(status(&program, path, key), expected, "{path}");
    }
    for more in [&[][..], &["--live"]] {
        let up = health(&settings, more);
        assert_eq!(up.status.code(), Some(0), "{}", said(&up));
    }
    let port = program.url.rsplit(':').next().unwrap();
    for server in [format!("{}/", program.url), format!(":{port}"), format!("127.0.0.1:{port}")] {
        assert_eq!(run(&["health", "--server", &server]).status.code(), Some(0), "{server}");
    }
    assert_eq!(run(&["health", "--server", "feeds.example"]).status.code(), Some(2));
    program.kill();
    assert!(made.join("data").is_dir(), "the settings name the data directory");
    assert_eq!(health(&settings, &["--live"]).status.code(), Some(1));
}

#[test]
fn init_replaces_no_existing_file_and_leaves_no_partial_configuration() {
    for there in FILES {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(there), "mine").unwrap();
        let output = init(directory.path(), 8080);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{}", said(&output));
        assert!(said(&output).contains(there), "{}", said(&output));
        let names: BTreeSet<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, BTreeSet::from([there.into()]), "nothing else is left");
        assert_eq!(fs::read_to_string(directory.path().join(there)).unwrap(), "mine");
    }
}

#[test]
fn a_server_with_a_certificate_of_another_name_is_healthy() {
    let directory = tempfile::tempdir().unwrap();
    tls::issue(directory.path());
    let at = |name: &str| directory.path().join(name).display().to_string();
    let ports = Ports::reserve(1);
    let port = ports.first;
    assert!(init(directory.path(), port).status.success());
    let settings = directory.path().join("tidewire.toml");
    let text = fs::read_to_string(&settings).unwrap().replace("# tls-", "tls-");
    assert!(text.contains(&format!("\ntls-cert = \"{}\"", at("cert.pem"))), "{text}");
    fs::write(&settings, text).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    let mut server = program.args(["serve", "--config"]).arg(&settings).spawn().unwrap();
    let answer =
        eventually("the server is healthy", || Some(health(&settings, &[])).filter(|answer| answer.status.success()));
    // By its URL the certificate counts, and nobody has signed this one.
    let by_url = run(&["health", "--server", &format!("https://127.0.0.1:{port}")]);
    let named = format!("https://localhost:{port}");
    let by_file = run(&["health", "--server", &named, "--ca-file", &at("cert.pem")]);
    let by_variable = run_with(&[("TIDEWIRE_CA_FILE", at("cert.pem").as_str())], &["health", "--server", &named]);
    // The certificate is good, the address is not one of its names.
    let misnamed = run(&["health", "--server", &format!("https://127.0.0.1:{port}"), "--ca-file", &at("cert.pem")]);
    let without_server = run(&["health", "--ca-file", &at("cert.pem")]);
    let of_plaintext = run(&["health", "--server", "http://localhost:1", "--ca-file", &at("cert.pem")]);
    // A variable that is meant for other commands changes nothing on this machine.
    let of_others = run_with(&[("TIDEWIRE_CA_FILE", "missing")], &["health", "--config", settings.to_str().unwrap()]);
    server.kill().unwrap();
    server.wait().unwrap();
    for good in [by_file, by_variable, of_others] {
        assert_eq!(good.status.code(), Some(0), "{}", said(&good));
    }
    for (bad, code, reason) in [
        (misnamed, 1, "certificate"),
        (without_server, 2, "--ca-file needs --server"),
        (of_plaintext, 1, "--ca-file is for https"),
    ] {
        assert_eq!(bad.status.code(), Some(code), "{}", said(&bad));
        assert!(said(&bad).contains(reason), "{}", said(&bad));
    }
    assert!(answer.status.success(), "{}", said(&answer));
    assert_eq!(by_url.status.code(), Some(1), "{}", said(&by_url));
}

#[test]
fn a_server_that_reports_not_ready_is_unhealthy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let answers = thread::spawn(move || {
        // One that refuses all writes is not healthy either.
        let ready = "GET /readyz?for=writes ";
        for (asked, answer, body) in [
            (ready, "503 x", "{}"),
            ("GET /healthz ", "200 x", "{}"),
            (ready, "503 x", r#"{"writes":false}"#),
            (ready, "200 x", "{}"),
            (ready, "502 x", "<html>"),
            (ready, "", ""),
        ] {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1_024];
            let read = socket.read(&mut request).unwrap();
            assert!(request[..read].starts_with(asked.as_bytes()), "{asked}");
            // The last one is accepted, and closed without an answer.
            if answer.is_empty() {
                return;
            }
            let length = body.len();
            write!(socket, "HTTP/1.1 {answer}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
        }
    });
    let no_answer = |line: &str| {
        let document: Value = serde_json::from_str(line).unwrap();
        assert!(document["error"].as_str().unwrap().contains(&server), "{line}");
        (document["healthy"].clone(), document["status"].clone(), document["answer"].clone())
    };
    for (more, code, expected) in [
        ("", 1, "503 {}"),
        ("--live", 0, "200 {}"),
        ("--json", 1, r#"{"answer":{"writes":false},"healthy":false,"status":503}"#),
        ("--json", 0, r#"{"answer":{},"healthy":true,"status":200}"#),
        ("--json", 1, r#"{"answer":"<html>","healthy":false,"status":502}"#),
        ("--json", 1, "no answer"),
    ] {
        let arguments: Vec<_> =
            ["health", "--server", &server, more].into_iter().filter(|word| !word.is_empty()).collect();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{more}: {}", said(&output));
        let printed = String::from_utf8(output.stdout).unwrap();
        match expected {
            "no answer" => assert_eq!(no_answer(&printed), (json!(false), Value::Null, Value::Null)),
            _ => assert_eq!(printed.trim_end(), expected),
        }
    }
    answers.join().unwrap();
}

#[test]
#[ignore = "takes the 4 s that a health check waits for an answer"]
fn an_unresponsive_server_is_unhealthy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let output = run(&["health", "--server", &server]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("timeout"), "{}", said(&output));
}

//! Served over TLS: by real sockets, with a certificate that is renewed while the server runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use testkit::world::draft;
use testkit::{DEADLINE, eventually};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::middleware::pace::Pace;
use tidewire_server::http::state::HttpState;
use tidewire_server::http::tls::{Certificate, CertificateError};

use crate::cli;
use crate::program::Program;
use crate::server::Server;

/// Writes a new certificate for "localhost" and its key, and returns it.
pub fn issue(directory: &Path) -> CertificateDer<'static> {
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    // The key first: a server that looks in between keeps what it has.
    fs::write(directory.join("key.pem"), issued.signing_key.serialize_pem()).unwrap();
    fs::write(directory.join("cert.pem"), issued.cert.pem()).unwrap();
    issued.cert.der().clone()
}

pub fn read(directory: &Path) -> Result<Arc<Certificate>, CertificateError> {
    Certificate::read(directory.join("cert.pem"), directory.join("key.pem"))
}

/// A server with nothing but this certificate.
fn serving(certificate: Arc<Certificate>) -> Server {
    let engine = Engine::start(EngineConfig::default());
    let mut state = HttpState::from(engine.clone());
    state.certificate = Some(certificate);
    Server::serving(state, engine)
}

/// A connection of a client that trusts nothing but this certificate, or why there is none.
pub fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let mut client = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut socket = testkit::connect(address);
    client.complete_io(&mut socket).map_err(|cause| cause.to_string())?;
    Ok(StreamOwned::new(client, socket))
}

/// Sends a request, and returns the answer up to where it has this text.
pub fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>, request: &str, until: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut bytes = [0; 4_096];
    while !answer.contains(until) {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    answer
}

#[test]
fn pages_and_live_feeds_are_served_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let issued = issue(directory.path());
    let server = serving(read(directory.path()).unwrap());

    let mut stream = connect(server.address(), &issued).unwrap();
    let body = json!({"author": "ann", "body": "by TLS"}).to_string();
    let head = "POST /v1/posts?wait=delivered HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert!(ask(&mut stream, &request, "\"hidden\"").starts_with("HTTP/1.1 201 "));
    let page = ask(&mut stream, "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\n\r\n", "\"partial\"");
    assert!(page.contains("by TLS"), "{page}");
    let upgrade = "GET /v1/users/ann/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let hello = ask(&mut stream, upgrade, "\"hello\"");
    assert!(hello.starts_with("HTTP/1.1 101 "), "{hello}");
    assert!(ask(&mut connect(server.address(), &issued).unwrap(), "nonsense\r\n\r\n", "HTTP").contains(" 400 "));
}

#[test]
fn a_client_that_closes_its_sending_side_receives_its_answer_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let issued = issue(directory.path());
    let server = serving(read(directory.path()).unwrap());
    // Not every client says in TLS that it has ended.
    for has_close_notify in [true, false] {
        let mut stream = connect(server.address(), &issued).unwrap();
        let request = "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        if has_close_notify {
            stream.conn.send_close_notify();
        }
        stream.flush().unwrap();
        stream.sock.shutdown(Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        let of_each = ["HTTP/1.1 200 ", "\"items\":[]"].map(|text| answers.matches(text).count());
        assert_eq!(of_each, [2, 2], "close_notify: {has_close_notify}: {answers}");
    }
}

#[test]
fn a_request_truncated_over_tls_has_no_effect() {
    let directory = tempfile::tempdir().unwrap();
    let issued = issue(directory.path());
    let server = serving(read(directory.path()).unwrap());
    let edge = "PUT /v1/users/ann/following/bob HTTP/1.1\r\nHost: localhost\r\n";
    let body = format!("{edge}Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{{}}");
    for cut in [&edge[..30], edge, &body] {
        for before in ["", "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
            let mut stream = connect(server.address(), &issued).unwrap();
            stream.write_all(format!("{before}{cut}").as_bytes()).unwrap();
            stream.sock.shutdown(Shutdown::Write).unwrap();
            let mut answers = String::new();
            let _ = stream.read_to_string(&mut answers);
            assert_eq!(server.engine.shared().world.edges(), 0, "{before}{cut}: {answers}");
        }
    }
}

#[test]
fn an_import_over_tls_needs_a_trusted_certificate() {
    let directory = tempfile::tempdir().unwrap();
    issue(directory.path());
    let server = serving(read(directory.path()).unwrap());
    let follows = directory.path().join("follows.txt");
    fs::write(&follows, "ann bob\n").unwrap();
    let import = |ca_file: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
        command.arg("import").arg("follows").arg(&follows).env("NO_PROXY", "localhost");
        command.args(["--server", &format!("https://localhost:{}", server.address().port())]);
        if let Some(file) = ca_file {
            command.arg("--ca-file").arg(file);
        }
        let output = testkit::output(&mut command);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = import(None);
    assert!(code == Some(3) && said.contains("UnknownIssuer"), "{said}");
    let (code, said) = import(Some(&directory.path().join("key.pem")));
    assert!(code == Some(1) && said.contains("key.pem: no certificate in it"), "{said}");
    assert_eq!(server.engine.shared().world.edges(), 0);
    let (code, said) = import(Some(&directory.path().join("cert.pem")));
    assert_eq!((code, server.engine.shared().world.edges()), (Some(0), 1), "{said}");
}

#[test]
fn a_command_with_an_http_url_of_a_tls_server_is_advised_to_use_https() {
    let directory = tempfile::tempdir().unwrap();
    issue(directory.path());
    let server = serving(read(directory.path()).unwrap());
    let address = format!("localhost:{}", server.address().port());
    for (scheme, words, code) in [
        ("http", "feed ann", 1),
        ("http", "watch ann", 1),
        ("http", "health", 1),
        ("https", "feed ann", 3),
        ("https", "health", 1),
    ] {
        let url = format!("{scheme}://{address}");
        let ran = cli::ran(cli::program(&url).args(words.split(' ')).args(["--server", &url]));
        assert_eq!(ran.code, code, "{words}: {}", ran.err);
        // `health` prints the answer.
        let is_advised =
            format!("{}{}", ran.out, ran.err).contains("this port speaks HTTPS: begin the URL with https://");
        assert_eq!(is_advised, scheme == "http", "{words} by {scheme}: {}", ran.err);
    }
}

#[test]
fn plain_http_on_the_tls_port_is_answered_without_affecting_others() {
    let directory = tempfile::tempdir().unwrap();
    let issued = issue(directory.path());
    let server = serving(read(directory.path()).unwrap());
    let large =
        format!("POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{}", "x".repeat(60_000));
    for request in ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET", &large] {
        let mut socket = testkit::connect(server.address());
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&problem["code"], &problem["status"]), (&"https_only".into(), &400.into()), "{head}");
    }
    // One that begins with nothing of either keeps no other from its answer.
    let _silent = testkit::connect(server.address());
    let mut stream = connect(server.address(), &issued).unwrap();
    ask(&mut stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK");
}

#[test]
fn a_client_with_an_https_url_of_a_plain_server_is_advised_to_use_http() {
    let server = Server::start(EngineConfig::default());
    let url = format!("https://localhost:{}", server.address().port());
    for (words, code) in [("feed ann", 3), ("health", 1)] {
        let ran = cli::ran(cli::program(&url).args(words.split(' ')).args(["--server", &url]));
        assert_eq!(ran.code, code, "{words}: {}", ran.err);
        assert!(ran.err.contains("; does it serve without TLS? then use http://"), "{words}: {}", ran.err);
    }
}

#[test]
fn a_valid_new_certificate_is_used_and_an_invalid_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let first = issue(directory.path());
    let certificate = read(directory.path()).unwrap();
    let server = serving(Arc::clone(&certificate));
    assert!(connect(server.address(), &first).is_ok());

    fs::write(directory.path().join("key.pem"), "nothing").unwrap();
    look_twice(&certificate);
    assert!(connect(server.address(), &first).is_ok(), "what works stays");

    let second = issue(directory.path());
    certificate.renew();
    assert!(connect(server.address(), &first).is_ok(), "somebody may be writing");
    // Files may be written twice within one tick of the clock that stamps them.
    eventually("the new certificate is shown", || {
        issue_again(directory.path());
        look_twice(&certificate);
        connect(server.address(), &second).is_ok()
    });
    assert!(connect(server.address(), &first).unwrap_err().contains("certificate"));
}

#[test]
fn a_key_repaired_with_equal_time_and_length_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pem");
    issue(directory.path());
    let certificate = read(directory.path()).unwrap();
    let server = serving(Arc::clone(&certificate));

    let renewed = issue(directory.path());
    let (good, bad) = (fs::read(&key).unwrap(), "x".repeat(fs::metadata(&key).unwrap().len() as usize));
    fs::write(&key, bad).unwrap();
    look_twice(&certificate);
    assert!(connect(server.address(), &renewed).is_err());
    let modified = fs::metadata(&key).unwrap().modified().unwrap();
    fs::write(&key, good).unwrap();
    fs::File::options().write(true).open(&key).unwrap().set_modified(modified).unwrap();
    certificate.renew();
    assert!(connect(server.address(), &renewed).is_ok());
}

/// Replaces the certificate of the program while it runs, and asks it to load the new one, or leaves it to find it.
fn assert_a_new_certificate_is_shown(is_asked: bool) {
    let directory = tempfile::tempdir().unwrap();
    let first = issue(directory.path());
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name).display().to_string());
    let program = Program::spawn(&directory.path().join("data"), &["--tls-cert", &cert, "--tls-key", &key]);
    eventually("the server listens", || TcpStream::connect(program.address));
    let lives = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut before = eventually("the first certificate is served", || connect(program.address, &first));
    assert!(ask(&mut before, lives, "\"alive\":true").starts_with("HTTP/1.1 200 "));

    let second = issue(directory.path());
    if is_asked {
        program.signal("HUP");
    }
    let mut after = eventually("the second certificate is served", || connect(program.address, &second));
    assert!(connect(program.address, &first).unwrap_err().contains("certificate"));
    for stream in [&mut before, &mut after] {
        assert!(ask(stream, lives, "\"alive\":true").starts_with("HTTP/1.1 200 "), "who is connected stays so");
    }
    program.kill();
}

#[test]
fn sighup_reloads_a_replaced_certificate() {
    assert_a_new_certificate_is_shown(true);
}

#[test]
#[ignore = "takes the 2 s in which the program looks at its files twice"]
fn a_replaced_certificate_is_detected_at_run_time() {
    assert_a_new_certificate_is_shown(false);
}

/// Files that have changed are read once they are as they were at the look before.
fn look_twice(certificate: &Certificate) {
    certificate.renew();
    certificate.renew();
}

/// Touches the files.
fn issue_again(directory: &Path) {
    for name in ["key.pem", "cert.pem"] {
        let file = directory.join(name);
        fs::write(&file, fs::read(&file).unwrap()).unwrap();
    }
}

#[test]
fn unusable_tls_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let says = |what: &str| {
        let cause = read(directory.path()).unwrap_err().to_string();
        assert!(cause.contains(what), "{cause}");
    };
    says("cert.pem");
    issue(directory.path());
    let others = tempfile::tempdir().unwrap();
    issue(others.path());
    fs::copy(others.path().join("key.pem"), directory.path().join("key.pem")).unwrap();
    says("key.pem: ");
    fs::write(directory.path().join("key.pem"), "no key").unwrap();
    says("key.pem: ");
    fs::write(directory.path().join("cert.pem"), "no certificate").unwrap();
    says("cert.pem: no certificate in it");
}

#[test]
fn a_client_that_does_not_read_its_response_is_cut_off_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let issued = issue(directory.path());
    let engine = Engine::start(EngineConfig::default());
    let mut state = HttpState::from(engine.clone());
    state.certificate = Some(read(directory.path()).unwrap());
    // Only `stall_max` ends this connection: the rate of pieces allows hours, and the system waits longer than the test.
    let (stall_max, unacknowledged_max) = (Duration::from_millis(50), 2 * DEADLINE);
    state.pace = Pace { stall_max, unacknowledged_max, response_bytes_per_second: 1, ..Pace::default() };
    let body = format!("\"{}\"", "x".repeat(60_000));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for _ in 0..50 {
            engine.publish(draft("ann", &body), false).await.unwrap();
        }
    });
    let (admission, server) = (Arc::clone(&state.admission), Server::serving(state, engine));
    let mut stream = connect(server.address(), &issued).unwrap();
    ask(&mut stream, "GET /v1/users/ann/posts?limit=50 HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 ");
    let under_way = || format!("{admission:?}");
    eventually("no bytes of responses are taken", || {
        under_way().contains("name: \"response_bytes\", limit: 268435456, taken: 0")
    });
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 3_000_000, "{} bytes came", rest.len());
}

//! Event streams that are requested while the state is recovered.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use testkit::{DEADLINE, eventually, reached};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::id::SourceId;
use tidewire_server::http::auth::{Access, AccessOptions};
use tidewire_server::http::engine_cell::EngineCell;
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, METRICS_KEY, SERVER_KEY, access, bearer};
use crate::server::Server;

/// A server that recovers, in this phase.
fn recovering(phase: &'static str, wait_max: Duration, engine: &Engine) -> (Server, EngineCell) {
    let engine_cell = EngineCell::default();
    engine_cell.progress().enter(phase);
    let access = Arc::new(access());
    let state = HttpState { access, recovery_wait_max: wait_max, ..HttpState::from(engine_cell.clone()) };
    (Server::serving(state, engine.clone()), engine_cell)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_that_waited_for_recovery_is_counted_once() {
    const BURST: usize = 2;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    std::fs::write(&file, tokens::file()).unwrap();
    for (file, credential) in [(None, "none"), (Some(file), &*tokens::token("ann"))] {
        let (engine, engine_cell) = (Engine::start(EngineConfig::default()), EngineCell::default());
        engine_cell.progress().enter("replaying the journal");
        let rate = Some((BURST / 2).to_string().parse().unwrap());
        let access = Arc::new(Access::open(AccessOptions { file, rate, ..AccessOptions::default() }).unwrap());
        let state = HttpState { access, recovery_wait_max: DEADLINE, ..HttpState::from(engine_cell.clone()) };
        let admission = Arc::clone(&state.admission);
        let server = Server::serving(state, engine.clone());
        // One after the other: of two at once, whose clocks are read in one order and counted in the other, the second is too early by as much.
        let mut held = Vec::new();
        for nth in 1..=BURST {
            held.push(events(&server, "/v1/users/ann/events", credential));
            let are_held = format!("name: \"live_starting\", limit: 1024, taken: {nth}");
            eventually(&are_held, || format!("{admission:?}").contains(&are_held));
        }
        engine_cell.set(engine);
        for stream in held {
            let (status, text) = answer(stream, "\"hello\"");
            assert_eq!(status, 200, "{credential}: {text}");
        }
    }
}

/// Requests an event stream.
fn events(server: &Server, path: &str, credential: &str) -> BufReader<TcpStream> {
    let mut stream = testkit::connect(server.address());
    let headers = format!("Host: localhost\r\nAccept: text/event-stream\r\nAuthorization: {}", bearer(credential));
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// Reads the status and what follows it: the body of a refusal, or an event stream up to a line with this text.
fn answer(mut stream: BufReader<TcpStream>, until: &str) -> (u16, String) {
    let mut text = String::new();
    eventually(until, || {
        let read = stream.read_line(&mut text);
        assert!(matches!(read, Ok(1..)), "{read:?}: no {until} in {text}");
        let length = text.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if let Some(length) = length.filter(|_| text.ends_with("\r\n\r\n")) {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            text.push_str(&String::from_utf8(body).unwrap());
            return true;
        }
        text.lines().last().is_some_and(|line| line.contains(until))
    });
    assert!(text.contains(until), "no {until} in {text}");
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// The gates in which something is in progress, except for that of this request.
fn occupied(server: &Server) -> Vec<String> {
    let metrics = server.ask("GET", "/metrics", &[("authorization", &bearer(METRICS_KEY))], "").text;
    let gates = metrics.lines().filter_map(|line| line.strip_prefix("tidewire_admission_under_way{gate=\""));
    gates.filter(|gate| !gate.ends_with(" 0") && !gate.starts_with("metrics")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_requested_late_in_recovery_begins_after_it() {
    for phase in ["replaying the journal", "waking readers"] {
        let engine = Engine::start(EngineConfig::default());
        engine.revoke_tokens(SourceId::new("bob").unwrap(), SystemClock.now(), None).await.unwrap();
        let (server, engine_cell) = recovering(phase, DEADLINE, &engine);
        let path = "/v1/users/ann/events";
        let waiting = [
            (events(&server, path, &tokens::made("ann", 0.0, 600.0)), 200, "\"hello\""),
            (events(&server, path, SERVER_KEY), 200, "\"hello\""),
            (events(&server, "/v1/users/bob/events", &tokens::made("bob", 60.0, 600.0)), 401, "token_revoked"),
            (events(&server, "/v1/changes", SERVER_KEY), 409, "no_data_directory"),
        ];
        let expected = vec!["live_starting\"} 4".to_owned()];
        eventually("all event streams wait", || reached(&occupied(&server), &expected));
        engine_cell.set(engine.clone());
        for (stream, status, text) in waiting {
            let (answered, head) = answer(stream, text);
            assert_eq!(answered, status, "{head}");
        }
        assert_eq!(occupied(&server), [""; 0]);
    }
}

#[test]
fn during_recovery_only_event_stream_requests_wait() {
    let engine = Engine::start(EngineConfig::default());
    let (early, _cell) = recovering("loading the snapshot", Duration::MAX, &engine);
    let (late, _cell) = recovering("replaying the journal", Duration::MAX, &engine);
    let token = tokens::token("ann");
    for (server, path, credential, status, code) in [
        (&early, "/v1/users/ann/events", &*token, 503, "recovering"),
        (&early, "/v1/changes", SERVER_KEY, 503, "recovering"),
        (&late, "/v1/users/ann/events", "guess", 401, "invalid_token"),
        (&late, "/v1/users/bob/events", &token, 403, "forbidden"),
        (&late, "/v1/users/ann/feed", &token, 503, "recovering"),
        (&late, "/v1/users/ann/feed", SERVER_KEY, 503, "recovering"),
    ] {
        let (answered, text) = answer(events(server, path, credential), code);
        assert_eq!(answered, status, "{path}: {text}");
    }
}

#[test]
fn an_event_stream_does_not_wait_longer_than_its_client_does() {
    let engine = Engine::start(EngineConfig::default());
    let (server, _cell) = recovering("replaying the journal", Duration::from_millis(20), &engine);
    for credential in [&*tokens::token("ann"), SERVER_KEY] {
        let (status, text) = answer(events(&server, "/v1/users/ann/events", credential), "\"recovering\"");
        assert!(status == 503 && text.to_lowercase().contains("retry-after: "), "{text}");
    }
}

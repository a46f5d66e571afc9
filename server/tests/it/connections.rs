//! Places of connections, and rates of those who come without credentials.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::sync::Arc;

use testkit::eventually;
use testkit::world::{draft, edge};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::limits::OPEN_REQUESTS_PER_SECOND;
use tidewire_server::http::middleware::open_paths::OpenPaths;
use tidewire_server::http::sockets::connection_slots::ConnectionLimits;
use tidewire_server::http::state::HttpState;

use crate::server::Server;

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
const EVENTS: &str = "GET /v1/users/ann/events HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A server with so many places, and more than that for each address. Nobody comes for many.
fn server(places: usize) -> Server {
    let engine = Engine::start(EngineConfig::default());
    Server::serving(HttpState::from(engine.clone()).with_connections(limits(places)), engine)
}

fn limits(places: usize) -> ConnectionLimits {
    ConnectionLimits { all: places, per_address: 2 * places, proxies: "none".parse().unwrap() }
}

/// A connection that has sent this and was answered, if it was.
fn ask(server: &Server, request: &str) -> Option<TcpStream> {
    let mut socket = testkit::connect(server.address());
    socket.write_all(request.as_bytes()).ok()?;
    let mut status = [0; 12];
    socket.read_exact(&mut status).ok()?;
    assert_eq!(&status, b"HTTP/1.1 200");
    Some(socket)
}

/// Such a connection, as soon as there is room for it: until the server has noticed that it has answered another one, that one is at work.
fn come(server: &Server, request: &str) -> TcpStream {
    eventually("there is room", || ask(server, request))
}

/// Whether the server closes it.
fn is_closed(socket: &mut TcpStream) -> bool {
    let mut bytes = [0; 1_024];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(cause) => {
                return !matches!(cause.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            }
        }
    }
}

/// Reads until this has come.
fn read_until(socket: &mut TcpStream, text: &str) {
    let (mut read, mut bytes) = (Vec::new(), [0; 1_024]);
    eventually(text, || {
        let come = socket.read(&mut bytes);
        assert!(matches!(come, Ok(1..)), "{come:?} after {:?}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&bytes[..come.unwrap()]);
        String::from_utf8_lossy(&read).contains(text)
    });
}

#[test]
fn a_new_connection_evicts_an_idle_one_but_not_an_event_stream() {
    let server = server(8);
    let mut idle: Vec<_> = (0..8).map(|_| ask(&server, GET).unwrap()).collect();
    let mut events: Vec<_> = (0..8).map(|_| come(&server, EVENTS)).collect();
    assert!(idle.iter_mut().all(is_closed));
    assert!(ask(&server, GET).is_none(), "none is idle");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        server.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        server.engine.publish(draft("bob", "1"), true).await.unwrap();
    });
    events.iter_mut().for_each(|socket| read_until(socket, "event: post"));
    drop(events.pop());
    drop((come(&server, GET), events));
    let ended = |metrics: &str, reason: &str| {
        let name = format!("tidewire_connections_ended_total{{reason=\"{reason}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap()
    };
    eventually("all others are gone", || {
        let metrics = server.get("/metrics").text;
        assert!(ended(&metrics, "made_room") >= 8 && ended(&metrics, "refused") >= 1, "{metrics}");
        if metrics.contains("tidewire_connections 1\n") { Ok(()) } else { Err(metrics) }
    });
}

#[test]
fn connections_with_half_a_request_are_evicted_too() {
    let server = server(8);
    let half: Vec<_> = (0..8)
        .map(|_| {
            let mut socket = ask(&server, GET).unwrap();
            socket.write_all(b"GET /healthz HTT").unwrap();
            socket
        })
        .collect();
    let _streams: Vec<_> = (0..8).map(|_| come(&server, EVENTS)).collect();
    assert!(half.into_iter().all(|mut socket| is_closed(&mut socket)));
}

#[test]
fn connections_that_do_not_read_public_responses_are_evicted_too() {
    let server = server(8);
    let description = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // More than its socket takes.
    let slow: Vec<_> = (0..8).map(|_| ask(&server, &description.repeat(20)).unwrap()).collect();
    // They end for no other.
    let _streams: Vec<_> = (0..8).map(|_| come(&server, EVENTS)).collect();
    assert!(slow.into_iter().all(|mut socket| is_closed(&mut socket)));
}

#[test]
fn public_paths_have_a_rate_limit_per_address() {
    // More places than clients: one that has just been answered may still be at work for the server when it comes again.
    let engine = Engine::start(EngineConfig::default());
    // One a second: on a busy machine, clients may stay below the rate that servers have.
    let open_paths = Arc::new(OpenPaths::new(NonZeroU32::MIN, "none".parse().unwrap()));
    let state = HttpState { open_paths, ..HttpState::from(engine.clone()).with_connections(limits(64)) };
    let server = Server::serving(state, engine);
    for path in ["/healthz", "/openapi.json", "/docs", "/nowhere", "/v1/follows"] {
        let refused = eventually(&format!("{path}: many in a row are too many"), || {
            Some(server.get(path)).filter(|answer| answer.status == 429)
        });
        assert_eq!((refused.json()["code"].as_str(), refused.header("retry-after")), (Some("rate_limited"), "1"));
    }
    assert_eq!(server.get("/v1/users/ann/feed").status, 200, "what needs credentials has its own");
    let others = Server::start(EngineConfig::default());
    let most = 20 * OPEN_REQUESTS_PER_SECOND.get() as usize;
    assert!((0..most).all(|_| others.get("/healthz").status == 200), "who comes from this machine comes for many");
}

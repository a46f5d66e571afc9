//! Live connections through another node.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use serde_json::json;
use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::limits::LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX;
use tidewire_server::http::auth::Access;
use tidewire_server::http::state::HttpState;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::access::tokens::{SERVER_KEY, access, bearer, token};
use crate::cluster::nodes::Nodes;
use crate::live::client::{Client, Next};
use crate::server::Server;
use crate::wire::Wire;

fn publish(nodes: &Nodes, id: u64) {
    let post = json!({"author": "bob", "body": id, "id": id.to_string()});
    assert_eq!(nodes.a().post("/v1/posts?wait=delivered", &post).status, 201);
}

fn connections(server: &Server) -> u64 {
    server.get("/v1/stats").json()["live"]["connections"].as_u64().unwrap()
}

fn nobody_is_connected_soon(server: &Server) {
    eventually("all connections end", || connections(server) == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_has_the_sequence_to_read_pages_after() {
    let nodes = Nodes::of_one_world(Access::default);
    nodes.roles.apply(1, 41);
    let client = Client::watch(nodes.a().address(), "ann").await;
    assert_eq!(client.hello["after_sequence"], 41, "as the owner has it, {}", client.hello);
    let (_, hello) = events(nodes.a().address(), "");
    let hello: serde_json::Value = serde_json::from_str(&hello).unwrap();
    assert_eq!(hello["after_sequence"], 41, "{hello}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_websocket_receives_events_and_ends_with_its_client() {
    let nodes = Nodes::of_one_world(Access::default);
    nodes.a().json("PUT", "/v1/users/ann/following/bob", &json!({}));
    let mut client = Client::watch(nodes.a().address(), "ann").await;
    for id in 1..=3 {
        publish(&nodes, id);
        assert_eq!(client.told().await, format!("post {id}"));
    }
    let (epoch, seq) = (client.hello["epoch"].clone(), 2);
    let mut resumed = Client::resume(nodes.a().address(), "ann", &epoch, seq).await;
    assert_eq!(resumed.hello["recovered"], true);
    assert_eq!(resumed.told().await, "post 3");
    let metrics = nodes.a().get("/metrics").text;
    assert!(metrics.contains("tidewire_passed_on_live 2"), "{metrics}");
    client.send(Message::Close(None)).await;
    assert_eq!(client.next().await, Next::Closed(1000));
    drop(resumed);
    nobody_is_connected_soon(nodes.b());
    let metrics = || nodes.a().get("/metrics").text;
    eventually("nothing is passed on", || metrics().contains("tidewire_passed_on_live 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_websocket_closes_with_1012_when_either_node_stops() {
    let nodes = Nodes::of_one_world(Access::default);
    let wire = Wire::to(nodes.b().address());
    nodes.roles.move_to(1, format!("http://{}", wire.address));
    let mut client = Client::watch(nodes.a().address(), "ann").await;
    wire.cut();
    assert_eq!(client.next().await, Next::Closed(1012), "the owner is gone");
    let mut client = Client::watch(nodes.a().address(), "ann").await;
    nodes.stop_live(0);
    assert_eq!(client.next().await, Next::Closed(1012), "the node between stops");
    let nodes = Nodes::of_one_world(Access::default);
    let mut client = Client::watch(nodes.a().address(), "ann").await;
    nodes.b().engine.stop_live();
    assert_eq!(client.next().await, Next::Closed(1012), "the owner stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_websocket_authenticates_in_each_way() {
    let nodes = Nodes::of_one_world(access);
    let address = nodes.a().address();
    let (good, other) = (token("ann"), token("dan"));
    for (header, message, expected) in [
        (Some(("authorization", bearer(&good))), None, Ok("")),
        (Some(("authorization", bearer(SERVER_KEY))), None, Ok("")),
        (Some(("sec-websocket-protocol", format!("tidewire, bearer.{good}"))), None, Ok("tidewire")),
        (None, Some(good.clone()), Ok("")),
        (None, Some(other.clone()), Err(4001)),
        (Some(("sec-websocket-protocol", format!("tidewire, bearer.{other}"))), None, Err(4001)),
    ] {
        let mut request = format!("ws://{address}/v1/users/ann/live").into_client_request().unwrap();
        if let Some((name, value)) = &header {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (socket, answer) = client_async(request, stream).await.unwrap();
        let mut client = Client { socket, hello: json!(null) };
        if let Some(token) = &message {
            client.send(Message::text(json!({"type": "auth", "token": token}).to_string())).await;
        }
        match (client.next().await, expected) {
            (Next::Message(hello), Ok(protocol)) => {
                assert_eq!(hello["type"], "hello");
                assert!(hello["after_sequence"].is_u64(), "{header:?}: {hello}");
                let given = answer.headers().get("sec-websocket-protocol").map_or("", |value| value.to_str().unwrap());
                assert_eq!(given, protocol, "{header:?}");
            }
            (Next::Closed(code), Err(expected)) => assert_eq!(code, expected, "{header:?}"),
            (next, _) => panic!("{header:?} {message:?}: {next:?}"),
        }
    }
}

/// Opens an event stream, and returns it after its first event.
#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_evict_each_other_on_the_forwarding_node() {
    let is_first = Cell::new(true);
    let counting = |state| {
        // For the other nodes, including the owner, all come from a proxy.
        let proxies = if is_first.take() { "none" } else { "loopback" }.parse().unwrap();
        HttpState { access: Arc::new(access().with_proxies(proxies)), ..state }
    };
    let engine = Engine::start(EngineConfig::default());
    let nodes = Nodes::with(|| engine.clone(), counting);
    let address = nodes.a().address();
    let stranger = async || {
        let request = format!("ws://{address}/v1/users/ann/live").into_client_request().unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        Client { socket: client_async(request, stream).await.unwrap().0, hello: json!(null) }
    };
    let mut known = stranger().await;
    known.send(Message::text(json!({"type": "auth", "token": token("ann")}).to_string())).await;
    assert!(matches!(known.next().await, Next::Message(hello) if hello["type"] == "hello"));
    let mut strangers = Vec::new();
    for _ in 0..=LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX {
        strangers.push(stranger().await);
    }
    assert_eq!(strangers[0].next().await, Next::Closed(1013), "the longest silent one goes");
    let authorization = bearer(SERVER_KEY);
    let server = [("authorization", authorization.as_str())];
    let stats = nodes.a().ask("GET", "/v1/stats", &server, "").json();
    assert_eq!(
        stats["admission"]["live_unauthenticated"]["under_way"], LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX,
        "{stats}"
    );
    let publish = |id: u64| {
        let post = json!({"author": "bob", "body": id, "id": id.to_string()}).to_string();
        let headers = [server[0], ("content-type", "application/json")];
        assert_eq!(nodes.a().ask("POST", "/v1/posts?wait=delivered", &headers, post).status, 201);
    };
    nodes.a().ask("PUT", "/v1/users/ann/following/bob", &server, "");
    publish(1);
    assert_eq!(known.told().await, "post 1", "who has authenticated stays");
}

fn events(address: SocketAddr, more: &str) -> (BufReader<TcpStream>, String) {
    let mut stream = testkit::connect(address);
    write!(stream, "GET /v1/users/ann/events HTTP/1.1\r\nHost: {address}\r\n{more}\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        lines.read_line(&mut head).unwrap();
    }
    assert!(head.to_lowercase().contains("text/event-stream"), "{head}");
    let hello = data(&mut lines).unwrap();
    (lines, hello)
}

/// The data of the next event; none if the stream has ended.
fn data(lines: &mut BufReader<TcpStream>) -> Option<String> {
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 || line == "0\r\n" {
            return None;
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(data.to_owned());
        }
    }
}

#[test]
fn a_forwarded_event_stream_receives_events_and_ends_with_either_side() {
    let nodes = Nodes::of_one_world(Access::default);
    nodes.a().json("PUT", "/v1/users/ann/following/bob", &json!({}));
    let (mut stream, hello) = events(nodes.a().address(), "");
    let hello: serde_json::Value = serde_json::from_str(&hello).unwrap();
    for id in 1..=2 {
        publish(&nodes, id);
        assert!(data(&mut stream).unwrap().contains(&format!("\"id\":\"{id}\"")));
    }
    let last = format!("Last-Event-ID: {}:1\r\n", hello["epoch"].as_str().unwrap());
    let (mut resumed, hello) = events(nodes.a().address(), &last);
    assert!(hello.contains("\"recovered\":true"), "{hello}");
    assert!(data(&mut resumed).unwrap().contains("\"id\":\"2\""));
    drop((stream, resumed));
    nobody_is_connected_soon(nodes.b());
    let wire = Wire::to(nodes.b().address());
    nodes.roles.move_to(1, format!("http://{}", wire.address));
    let (mut stream, _) = events(nodes.a().address(), "");
    wire.cut();
    assert_eq!(data(&mut stream), None, "the owner is gone");
    let (mut stream, _) = events(nodes.a().address(), "");
    nodes.stop_live(0);
    assert_eq!(data(&mut stream), None, "the node between stops");
}

#[test]
fn a_forwarded_handshake_is_refused_as_by_the_owner() {
    let nodes = Nodes::of_one_world(Access::default);
    let handshake = "GET /v1/users/ann/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (connection, expected) in [("", 426), ("Connection: keep-alive\r\n", 426), ("Connection: Upgrade\r\n", 101)] {
        for node in [nodes.a(), nodes.b()] {
            let mut stream = testkit::connect(node.address());
            write!(stream, "{handshake}{connection}\r\n").unwrap();
            let mut status = String::new();
            BufReader::new(stream).read_line(&mut status).unwrap();
            assert!(status.starts_with(&format!("HTTP/1.1 {expected} ")), "{connection:?}: {status}");
        }
    }
}

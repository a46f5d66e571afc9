//! What happens on sockets below the messages.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{eventually, reached};
use tidewire::config::EngineConfig;
use tokio::io::AsyncWriteExt;

use crate::live::client::{Client, Next};
use crate::server::Server;
use testkit::world::{above, config};

/// A server that never beats: what is noticed is noticed without a beat.
fn server(shards: usize) -> Server {
    Server::start(EngineConfig { live_heartbeat: Duration::from_secs(24 * 3_600), ..config(shards, above(5)) })
}

/// A plain connection, which has sent this request.
fn request(address: SocketAddr, line: &str, headers: &str) -> TcpStream {
    let mut stream = testkit::connect(address);
    write!(stream, "{line} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n").unwrap();
    stream
}

/// Reads until what has come ends with `end`.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let mut byte = [0];
        let come = stream.read(&mut byte);
        assert!(matches!(come, Ok(1)), "{come:?} after {:?}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

/// Opens server-sent events, and takes the first message.
fn events(address: SocketAddr, path: &str, headers: &str) -> (TcpStream, Value) {
    let mut stream = request(address, &format!("GET {path}"), headers);
    let text = read_until(&mut stream, "\n\n");
    let data = text.split("data: ").nth(1).unwrap();
    (stream, serde_json::from_str(data).unwrap())
}

fn live(server: &Server, what: &str) -> Value {
    server.get("/v1/stats").json()["live"][what].clone()
}

fn nobody_is_connected_soon(server: &Server) {
    eventually("all are noticed to be gone", || reached(&live(server, "connections"), &json!(0)));
}

#[test]
fn a_closed_idle_event_stream_is_detected_at_once() {
    let server = server(2);
    let open = || (0..8).map(|nth| events(server.address(), &format!("/v1/users/r{nth}/events"), "").0);
    let opened: Vec<TcpStream> = open().collect();
    assert_eq!(live(&server, "connections"), 8);
    drop(opened);
    nobody_is_connected_soon(&server);
    // As a process that is killed leaves it while there was something to read.
    let opened: Vec<TcpStream> = open().collect();
    opened.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    nobody_is_connected_soon(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_websocket_dropped_without_close_frame_is_detected_at_once() {
    let server = server(2);
    let mut clients = Vec::new();
    for reader in ["ann", "ann", "bob"] {
        clients.push(Client::watch(server.address(), reader).await);
    }
    drop(clients);
    tokio::task::spawn_blocking(move || nobody_is_connected_soon(&server)).await.unwrap();
}

#[test]
fn a_head_request_for_an_event_stream_keeps_the_connection() {
    let server = server(2);
    let mut stream = request(server.address(), "HEAD /v1/users/ann/events", "");
    let head = read_until(&mut stream, "\r\n\r\n").to_lowercase();
    assert!(head.starts_with("http/1.1 200 ") && head.contains("text/event-stream"), "{head}");
    nobody_is_connected_soon(&server);
    write!(stream, "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"items\":[]"), "{answer}");
    assert_eq!(live(&server, "connections"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_frame_is_refused_by_its_header() {
    let server = server(1);
    for length in [1_u64 << 40, 1 << 62, u64::MAX] {
        let mut client = Client::watch(server.address(), "ann").await;
        // Final, binary, masked, and the length in 64 bits; then some of what it claims to have.
        let frame = [&[0x82, 0xff][..], &length.to_be_bytes(), &[1, 2, 3, 4], &[0; 64 * 1024]].concat();
        client.socket.get_mut().write_all(&frame).await.unwrap();
        assert_eq!(client.next().await, Next::Closed(1002), "{length}");
    }
}

#[test]
fn last_event_id_takes_precedence_over_the_position_in_the_url() {
    let server = server(2);
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    let (_first, hello) = events(server.address(), "/v1/users/ann/events", "");
    let epoch = hello["epoch"].as_str().unwrap();
    for id in 1..=3 {
        let post = json!({"author": "bob", "id": id.to_string(), "body": id});
        assert_eq!(server.post("/v1/posts?wait=delivered", &post).status, 201);
    }
    for stale in [format!("epoch={epoch}&seq=1"), "epoch=0123456789abcdef&seq=1".to_owned()] {
        let header = format!("Last-Event-ID: {epoch}:2\r\n");
        let parameter = format!("&lastEventId={epoch}%3A2");
        // An empty header is that of a client that has no event yet.
        for (more, header) in [("", &*header), (&*parameter, ""), (&*parameter, "Last-Event-ID:\r\n")] {
            let (_stream, hello) = events(server.address(), &format!("/v1/users/ann/events?{stale}{more}"), header);
            assert_eq!((&hello["recovered"], &hello["seq"]), (&json!(true), &json!(2)), "{stale}{more} {header}");
        }
    }
}

#[test]
fn an_http_1_0_client_receives_an_unchunked_stream_ended_by_close() {
    let server = server(2);
    let mut stream = testkit::connect(server.address());
    write!(stream, "GET /v1/users/ann/events HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").to_lowercase();
    assert!(head.contains("200 ok") && !head.contains("transfer-encoding"), "{head}");
    assert!(!head.contains("keep-alive"), "{head}");
    let first = read_until(&mut stream, "\n\n");
    assert!(first.starts_with("event: hello\n"), "{first}");
    server.stop_live();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("\r\n0\r\n"), "{rest}");
}

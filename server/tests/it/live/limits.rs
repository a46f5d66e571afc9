//! Limits of live connections, and what clients may not say.

use futures_util::{SinkExt as _, StreamExt};
use serde_json::json;
use tidewire::config::EngineConfig;
use tidewire::limits::{LIVE_CONNECTIONS_PER_READER_MAX, LIVE_FRAME_BYTES_MAX};
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::live::client::{Client, Next, open};
use crate::server::Server;
use testkit::world::{above, config};
use testkit::{eventually_async, in_time};

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_connections_of_a_reader_is_limited_without_affecting_others() {
    let server = Server::start(config(2, above(5)));
    let mut clients = Vec::new();
    for _ in 0..LIVE_CONNECTIONS_PER_READER_MAX {
        clients.push(Client::watch(server.address(), "ann").await);
    }
    let mut refused =
        Client { socket: open(server.address(), "/v1/users/ann/live").await.unwrap(), hello: json!(null) };
    assert_eq!(refused.next().await, Next::Closed(4029));
    let events = server.get("/v1/users/ann/events");
    assert_eq!((events.status, events.json()["code"].clone()), (429, json!("too_many_connections")));
    assert_ne!(events.header("retry-after"), "");
    Client::watch(server.address(), "bob").await;
    drop(clients.pop());
    // The server notices in its own time.
    eventually_async("there is room for another one", async || {
        let socket = open(server.address(), "/v1/users/ann/live").await.unwrap();
        matches!((Client { socket, hello: json!(null) }).next().await, Next::Message(_))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_total_number_of_connections_is_limited() {
    let server = Server::start(EngineConfig { live_max: 3, ..config(2, above(5)) });
    let mut clients = Vec::new();
    for reader in ["ann", "bob", "cas"] {
        clients.push(Client::watch(server.address(), reader).await);
    }
    let refused = open(server.address(), "/v1/users/dan/live").await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
    let events = server.get("/v1/users/dan/events");
    assert_eq!((events.status, events.json()["code"].clone()), (503, json!("overloaded")));
    assert_ne!(events.header("retry-after"), "");
}

#[test]
fn invalid_live_requests_are_refused() {
    let server = Server::start(config(1, above(5)));
    let both = |tail: &str| [format!("/v1/users/ann/live{tail}"), format!("/v1/users/ann/events{tail}")];
    for (tail, code) in [
        ("?epoch=x", "missing_parameter"),
        ("?seq=3", "missing_parameter"),
        ("?epoch=x&seq=-1", "invalid_parameter"),
        ("?since=3", "unknown_parameter"),
    ] {
        for path in both(tail) {
            let answer = server.get(&path);
            assert_eq!((answer.status, &answer.json()["code"]), (400, &json!(code)), "{path}");
        }
    }
    let plain = server.get("/v1/users/ann/live");
    assert_eq!((plain.status, plain.json()["code"].clone()), (426, json!("upgrade_required")));
    assert_eq!(plain.header("upgrade"), "websocket");
    assert_eq!(server.get("/v1/users/a%20b/events").status, 400);
    assert_eq!(server.get("/v1/users/tag:tea/events").json()["code"], "not_a_user");
    assert_eq!(server.post("/v1/users/ann/live", &json!({})).status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_answered_and_messages_ignored() {
    let server = Server::start(config(1, above(5)));
    let mut client = Client::watch(server.address(), "ann").await;
    client.send(Message::text("hello?")).await;
    client.send(Message::binary(vec![0; 9])).await;
    client.send(Message::Ping(Bytes::from_static(b"there?"))).await;
    assert_eq!(
        in_time("the next frame", client.socket.next()).await.unwrap().unwrap(),
        Message::Pong(Bytes::from_static(b"there?"))
    );
    client.send(Message::Close(None)).await;
    assert!(matches!(client.next().await, Next::Closed(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_floods_the_server_is_disconnected() {
    let server = Server::start(config(1, above(5)));
    let mut client = Client::watch(server.address(), "ann").await;
    client.send(Message::binary(vec![0; LIVE_FRAME_BYTES_MAX + 1])).await;
    assert_eq!(client.next().await, Next::Closed(1002));
    // Many times the pings that one may send, and never a look at what comes back.
    let mut flooding = Client::watch(server.address(), "bob").await;
    let ping = Message::Ping(Bytes::from_static(&[b'x'; 125]));
    let address = server.address();
    let mut other = None;
    for nth in 0..100_000 {
        // It may be closed by now. The server takes what comes until then, and for a second after that.
        if in_time("a ping is taken", flooding.socket.send(ping.clone())).await.is_err() {
            break;
        }
        if nth == 100 {
            other = Some(tokio::spawn(async move {
                let mut other = Client::watch(address, "cas").await;
                other.send(Message::Close(None)).await;
                assert!(matches!(other.next().await, Next::Closed(_)));
            }));
        }
    }
    other.expect("a hundred pings are taken").await.expect("nobody else is kept waiting");
    assert_eq!(flooding.next().await, Next::Closed(1008));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_frames_close_the_connection_with_the_matching_code() {
    let server = Server::start(config(1, above(5)));
    // Masked by nothing.
    let frame = |first: u8, payload: &[u8]| [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat();
    for (what, frames, code) in [
        ("a ping in pieces", frame(0x09, b""), 1002),
        ("a close in pieces", frame(0x08, b"\x03\xe8"), 1002),
        ("a piece of nothing", frame(0x80, b"a"), 1002),
        ("a message within another", [frame(0x01, b"a"), frame(0x81, b"b")].concat(), 1002),
        ("half a close code", frame(0x88, b"\x03"), 1002),
        ("a close code that is none", frame(0x88, b"\x03\xed"), 1002),
        ("a reason that is no text", frame(0x88, b"\x03\xe8\xff"), 1007),
        ("text that is none", frame(0x81, b"\xff"), 1007),
        ("text that is none in its second piece", [frame(0x01, b"\xc3"), frame(0x80, b"(")].concat(), 1007),
        (
            "nothing wrong",
            [frame(0x01, b"\xc3"), frame(0x89, b""), frame(0x80, b"\xa9"), frame(0x88, b"")].concat(),
            1000,
        ),
    ] {
        let mut client = Client::watch(server.address(), "ann").await;
        client.socket.get_mut().write_all(&frames).await.unwrap();
        // The answer to a ping comes first.
        let mut next = in_time("the next frame", client.socket.next()).await;
        while matches!(next, Some(Ok(Message::Pong(_)))) {
            next = in_time("the next frame", client.socket.next()).await;
        }
        let Some(Ok(Message::Close(Some(end)))) = next else { panic!("{what}: {next:?}") };
        assert_eq!(u16::from(end.code), code, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_endless_messages_is_disconnected() {
    let server = Server::start(config(1, above(5)));
    for frame in [Message::binary(vec![]), Message::text("?".repeat(4_000))] {
        let mut client = Client::watch(server.address(), "ann").await;
        for _ in 0..5_000 {
            // It may be closed by now.
            if client.socket.send(frame.clone()).await.is_err() {
                break;
            }
        }
        assert_eq!(client.next().await, Next::Closed(1008));
    }
}

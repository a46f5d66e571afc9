//! Live connections of those who may watch.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use testkit::{eventually_async, in_time};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::auth::Access;
use tidewire_server::http::auth::keys::{Keys, TokenKey};
use tidewire_server::http::state::HttpState;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::live::client::{Client, Next};
use crate::server::{Server, agent};

fn server() -> Server {
    Server::guarded(EngineConfig::default(), access())
}

/// Opens a WebSocket with these headers; the status if that is refused.
async fn open(address: SocketAddr, headers: &[(&'static str, &str)]) -> Result<(Client, String), u16> {
    let mut request = format!("ws://{address}/v1/users/ann/live").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(address).await.unwrap();
    match in_time("an answer to the handshake", client_async(request, stream)).await {
        Ok((socket, answer)) => {
            let protocol = answer.headers().get("sec-websocket-protocol").map_or("", |value| value.to_str().unwrap());
            Ok((Client { socket, hello: Value::Null }, protocol.to_owned()))
        }
        Err(Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

async fn is_greeted(client: &mut Client) {
    assert_eq!(client.message().await["type"], "hello");
}

fn auth(token: &str) -> Message {
    Message::text(json!({"type": "auth", "token": token}).to_string())
}

fn publish(server: &Server) {
    let headers = [("authorization", &*bearer(SERVER_KEY)), ("content-type", "application/json")];
    assert_eq!(server.ask("POST", "/v1/posts", &headers, r#"{"author":"ann","body":1}"#).status, 201);
}

fn connections(server: &Server) -> Value {
    server.ask("GET", "/v1/stats", &[("authorization", &bearer(SERVER_KEY))], "").json()["live"]["connections"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_accepted_by_header_protocol_or_first_message() {
    let server = server();
    for credential in [tokens::token("ann"), tokens::reading("ann"), SERVER_KEY.to_owned()] {
        let (mut client, protocol) = open(server.address(), &[("authorization", &bearer(&credential))]).await.unwrap();
        assert_eq!(protocol, "");
        is_greeted(&mut client).await;

        let offered = format!("tidewire, bearer.{credential}");
        let (mut client, protocol) = open(server.address(), &[("sec-websocket-protocol", &offered)]).await.unwrap();
        assert_eq!(protocol, "tidewire");
        is_greeted(&mut client).await;

        let (mut client, _) = open(server.address(), &[]).await.unwrap();
        client.send(auth(&credential)).await;
        is_greeted(&mut client).await;
        publish(&server);
        assert_eq!(client.message().await["type"], "post");
    }
}

/// A text or binary frame of a client, or the continuation of one. The mask is zero, which changes nothing.
fn frame(op: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    [&[op | u8::from(is_last) << 7, 0x80 | 126][..], &length.to_be_bytes(), &[0; 4], payload].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fragmented_first_message_is_accepted_and_a_binary_one_refused() {
    const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
    let server = server();
    let good = auth(&tokens::token("ann")).into_data();
    for cuts in [vec![1], vec![0, 0, 7], vec![good.len()], (1..20).collect()] {
        let (mut client, _) = open(server.address(), &[]).await.unwrap();
        let (mut frames, mut from) = (Vec::new(), 0);
        for (nth, to) in cuts.into_iter().enumerate() {
            frames.extend(frame(if nth == 0 { 1 } else { 0 }, false, &good[from..to]));
            // Control frames may be between fragments.
            frames.extend(PING);
            from = to;
        }
        frames.extend(frame(0, true, &good[from..]));
        client.socket.get_mut().write_all(&frames).await.unwrap();
        is_greeted(&mut client).await;
    }
    for (frames, code) in [
        (frame(2, true, &good), 4001),
        (frame(2, false, &good), 4001),
        ([frame(1, false, b"{\"type\":"), frame(0, true, b"\"auth\"}")].concat(), 4001),
        ([frame(1, false, &[b' '; 4_000]), frame(0, false, &[b' '; 97])].concat(), 1002),
        ([frame(1, false, &good), frame(1, true, &good)].concat(), 1002),
    ] {
        let (mut client, _) = open(server.address(), &[]).await.unwrap();
        client.socket.get_mut().write_all(&frames).await.unwrap();
        assert_eq!(client.next().await, Next::Closed(code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_proxy_do_not_replace_those_of_the_client() {
    let server = server();
    let proxy = ("authorization", "Basic dXNlcjpwYXNzd29yZA==");
    let (good, bad) = (tokens::token("ann"), tokens::expired("ann"));
    let [good_header, bad_header] = [&good, &bad].map(|token| bearer(token));
    let [good_protocol, bad_protocol] = [&good, &bad].map(|token| format!("tidewire, bearer.{token}"));
    for headers in [
        [proxy, ("sec-websocket-protocol", &*good_protocol)],
        [proxy, ("authorization", &*good_header)],
        [("authorization", &*good_header), proxy],
        [("authorization", &*bad_header), ("sec-websocket-protocol", &*good_protocol)],
    ] {
        let (mut client, _) = open(server.address(), &headers).await.unwrap();
        is_greeted(&mut client).await;
    }
    let (mut client, _) = open(server.address(), &[proxy, ("sec-websocket-protocol", &*bad_protocol)]).await.unwrap();
    assert_eq!(client.next().await, Next::Closed(4001), "a page learns the reason only from the code");
    assert_eq!(open(server.address(), &[proxy, ("authorization", &*bad_header)]).await.err(), Some(401));
    let (mut client, _) = open(server.address(), &[proxy]).await.unwrap();
    client.send(auth(&good)).await;
    is_greeted(&mut client).await;
    // The same for requests.
    let ask = |headers: &[(&str, &str)]| server.ask("GET", "/v1/users/ann/feed", headers, "");
    assert_eq!(ask(&[proxy, ("authorization", &*good_header)]).status, 200);
    assert_eq!(ask(&[("authorization", &*good_header), proxy]).status, 200);
    let refused = ask(&[proxy]);
    assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("invalid_token")));
    assert!(refused.json()["detail"].as_str().unwrap().contains("is not Bearer"), "{}", refused.text);
    let two = ask(&[("authorization", &*good_header), ("authorization", &*good_header)]);
    assert!(two.json()["detail"].as_str().unwrap().contains("more than one Bearer"), "{}", two.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn insufficient_credentials_are_refused_in_each_form() {
    let server = server();
    for (credential, status) in [
        (tokens::expired("ann"), 401),
        (tokens::early("ann"), 401),
        (tokens::unsigned("ann"), 401),
        (tokens::of_another_key("ann"), 401),
        ("nonsense".to_owned(), 401),
        (tokens::token("bob"), 403),
    ] {
        let by_header = open(server.address(), &[("authorization", &bearer(&credential))]).await;
        assert_eq!(by_header.err(), Some(status), "{credential}");
        let offered = format!("tidewire, bearer.{credential}");
        let (mut client, _) = open(server.address(), &[("sec-websocket-protocol", &offered)]).await.unwrap();
        assert_eq!(client.next().await, Next::Closed(4001), "{credential}");
        let (mut client, _) = open(server.address(), &[]).await.unwrap();
        client.send(auth(&credential)).await;
        assert_eq!(client.next().await, Next::Closed(4001), "{credential}");
    }
    let good = tokens::token("ann");
    for said in [
        json!({"type": "hello"}).to_string(),
        json!({"type": "auth"}).to_string(),
        json!({"type": "auth", "token": good, "more": 1}).to_string(),
        format!("{good} "),
        String::new(),
    ] {
        let (mut client, _) = open(server.address(), &[]).await.unwrap();
        client.send(Message::text(said.clone())).await;
        assert_eq!(client.next().await, Next::Closed(4001), "{said}");
    }
    let (mut client, _) = open(server.address(), &[]).await.unwrap();
    client.send(auth(&"x".repeat(5_000))).await;
    assert_eq!(client.next().await, Next::Closed(1002), "larger than a frame may be");
    assert_eq!(connections(&server), 0);
}

/// Reads until the connection is closed, and returns its code and reason.
async fn close_of(client: &mut Client) -> (u16, String) {
    let close = async {
        loop {
            match client.socket.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return (frame.code.into(), frame.reason.to_string()),
                Some(Ok(_)) => {}
                other => panic!("not closed: {other:?}"),
            }
        }
    };
    in_time("the connection is closed", close).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_reason_equals_the_refusal_code_of_a_request() {
    let server = server();
    for (credential, reason) in [
        (tokens::expired("ann"), "token_expired"),
        (tokens::early("ann"), "token_not_yet_valid"),
        (tokens::of_another_key("ann"), "invalid_token"),
        ("nonsense".to_owned(), "invalid_token"),
        (tokens::token("bob"), "forbidden"),
    ] {
        let headers = [("authorization", &*bearer(&credential))];
        assert_eq!(server.ask("GET", "/v1/users/ann/feed", &headers, "").json()["code"], reason, "{credential}");
        let offered = format!("tidewire, bearer.{credential}");
        let (mut client, _) = open(server.address(), &[("sec-websocket-protocol", &offered)]).await.unwrap();
        assert_eq!(close_of(&mut client).await, (4001, reason.to_owned()), "{credential}");
        let (mut client, _) = open(server.address(), &[]).await.unwrap();
        client.send(auth(&credential)).await;
        assert_eq!(close_of(&mut client).await, (4001, reason.to_owned()), "{credential}");
    }
    let (mut client, _) = open(server.address(), &[]).await.unwrap();
    client.send(Message::text("hello")).await;
    let (code, reason) = close_of(&mut client).await;
    assert!(code == 4001 && reason.starts_with("unauthenticated: "), "{code} {reason}");
    let old = bearer(&tokens::made("ann", 60.0, 600.0));
    let (mut revoked, _) = open(server.address(), &[("authorization", &old)]).await.unwrap();
    is_greeted(&mut revoked).await;
    let (key, body) = (bearer(SERVER_KEY), json!({}).to_string());
    let headers = [("authorization", &*key), ("content-type", "application/json")];
    assert_eq!(server.ask("POST", "/v1/users/ann/revoke", &headers, body).status, 200);
    assert_eq!(close_of(&mut revoked).await, (4001, "token_revoked".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes the 10 s that a stranger has"]
async fn an_unauthenticated_client_receives_no_data_uses_no_slot_and_times_out() {
    let server = Server::guarded(
        EngineConfig { live_max: 1, live_heartbeat: Duration::from_millis(50), ..EngineConfig::default() },
        access(),
    );
    let (mut client, _) = open(server.address(), &[]).await.unwrap();
    assert_eq!(connections(&server), 0);
    let (mut second, _) = open(server.address(), &[("authorization", &bearer(SERVER_KEY))]).await.unwrap();
    is_greeted(&mut second).await;
    drop(second);
    publish(&server);
    client.send(Message::Ping(Vec::new().into())).await;
    let began = Instant::now();
    let mut heard = Vec::new();
    while let Some(Ok(message)) = client.socket.next().await {
        heard.push(message);
    }
    let [Message::Pong(_), Message::Close(Some(end))] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(u16::from(end.code), 4001);
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(8) && waited < Duration::from_secs(15), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes the 5 s that its tokens last"]
async fn a_connection_ends_with_its_token() {
    let (server, token) = (server(), || tokens::token_for("ann", Duration::from_secs(5)));
    let (mut by_header, _) = open(server.address(), &[("authorization", &bearer(&token()))]).await.unwrap();
    let (mut by_message, _) = open(server.address(), &[]).await.unwrap();
    by_message.send(auth(&token())).await;
    let (events, token) = (server.url("/v1/users/ann/events"), bearer(&token()));
    let stream = tokio::task::spawn_blocking(move || {
        agent().get(events).header("authorization", token).call().unwrap().into_body().read_to_string().unwrap()
    });
    for client in [&mut by_header, &mut by_message] {
        is_greeted(client).await;
        assert_eq!(close_of(client).await, (4001, "token_expired".to_owned()));
    }
    assert!(stream.await.unwrap().contains("event: hello"), "it ended in order");
    assert_eq!(connections(&server), 0);
}

/// The time between two beats, after which it is looked whether a client may still have its connection.
const BEAT: Duration = Duration::from_millis(250);

/// Returns what comes next, unless the client was let go: on a busy machine it may not have answered a beat in time. Then the test begins again.
async fn next(client: &mut Client) -> Result<Next, String> {
    match client.next().await {
        Next::Closed(1001) => Err("the client was let go".to_owned()),
        next => Ok(next),
    }
}

/// Waits until the connection ends, since its client may not have it any more.
async fn is_ended(client: &mut Client) -> Result<(), String> {
    loop {
        match next(client).await? {
            Next::Message(message) if message["type"] == "beat" => {}
            other => {
                assert_eq!(other, Next::Closed(4001));
                return Ok(());
            }
        }
    }
}

async fn is_beating(client: &mut Client) -> Result<(), String> {
    match next(client).await? {
        Next::Message(message) => assert_eq!(message["type"], "beat"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn beating(access: &Arc<Access>) -> Server {
    let engine = Engine::start(EngineConfig { live_heartbeat: BEAT, ..EngineConfig::default() });
    Server::serving(HttpState { access: Arc::clone(access), ..HttpState::from(engine.clone()) }, engine)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_when_its_key_is_removed() {
    let by_header = bearer(&tokens::token("ann"));
    eventually_async("the connection whose key is still there goes on", async || {
        let access = Arc::new(access());
        let server = beating(&access);
        let (mut of_token, _) = open(server.address(), &[("authorization", &by_header)]).await.unwrap();
        is_greeted(&mut of_token).await;
        let (mut of_server, _) = open(server.address(), &[("authorization", &bearer(SERVER_KEY))]).await.unwrap();
        is_greeted(&mut of_server).await;
        let mut others = Keys::default();
        others.add_token(TokenKey::hs256(&tokens::SECRET, None));
        access.replace(others);
        // Both answer beats meanwhile.
        let (ended, told) = tokio::join!(is_ended(&mut of_server), is_beating(&mut of_token));
        ended.and(told)?;
        access.replace(Keys::default());
        is_ended(&mut of_token).await?;
        assert_eq!(open(server.address(), &[("authorization", &by_header)]).await.err(), Some(401));
        Ok::<_, String>(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_when_its_key_no_longer_accepts_its_token() {
    let named = || TokenKey::hs256(&tokens::SECRET, None).called("2027");
    let changed: [&dyn Fn() -> TokenKey; 3] =
        [&|| TokenKey::hs256(&tokens::SECRET, Some("another")), &named, &|| named().named("of the app")];
    for changed in changed {
        eventually_async("the connection goes on under another name of its key", async || {
            let access = Arc::new(access());
            let server = beating(&access);
            let (mut client, _) =
                open(server.address(), &[("authorization", &bearer(&tokens::token("ann")))]).await.unwrap();
            is_greeted(&mut client).await;
            let mut same = Keys::default();
            same.add_token(TokenKey::hs256(&tokens::SECRET, None).named("of the app"));
            access.replace(same);
            is_beating(&mut client).await?;
            is_beating(&mut client).await?;
            let mut others = Keys::default();
            others.add_token(changed());
            access.replace(others);
            is_ended(&mut client).await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_at_once_when_their_tokens_are_revoked() {
    // No beat comes meanwhile.
    let hour = Duration::from_secs(3_600);
    let engine = Engine::start(EngineConfig { live_heartbeat: hour, ..EngineConfig::default() });
    let server = Server::guarding(engine, access());
    let (old, new) = (tokens::made("ann", 60.0, 600.0), tokens::made("ann", 10.0, 600.0));
    let old_header = bearer(&old);
    let (mut by_header, _) = open(server.address(), &[("authorization", &old_header)]).await.unwrap();
    let offered = format!("tidewire, bearer.{old}");
    let (mut by_protocol, _) = open(server.address(), &[("sec-websocket-protocol", &offered)]).await.unwrap();
    let (mut by_message, _) = open(server.address(), &[]).await.unwrap();
    by_message.send(auth(&old)).await;
    let (mut without_iat, _) =
        open(server.address(), &[("authorization", &bearer(&tokens::token("ann")))]).await.unwrap();
    let (mut newer, _) = open(server.address(), &[("authorization", &bearer(&new))]).await.unwrap();
    let (mut of_server, _) = open(server.address(), &[("authorization", &bearer(SERVER_KEY))]).await.unwrap();
    let events = server.url("/v1/users/ann/events");
    let stream_header = old_header.clone();
    let (greeted, is_streaming) = tokio::sync::oneshot::channel();
    let stream = tokio::task::spawn_blocking(move || {
        let answer = agent().get(events).header("authorization", stream_header).call().unwrap();
        greeted.send(()).unwrap();
        answer.into_body().read_to_string().unwrap()
    });
    in_time("the stream begins", is_streaming).await.unwrap();
    for client in [&mut by_header, &mut by_protocol, &mut by_message, &mut without_iat, &mut newer, &mut of_server] {
        is_greeted(client).await;
    }
    let body = json!({"not_before": SystemClock.now().saturating_sub(Duration::from_secs(30)).to_string()});
    let headers = [("authorization", &*bearer(SERVER_KEY)), ("content-type", "application/json")];
    let revoked = server.ask("POST", "/v1/users/ann/revoke", &headers, body.to_string());
    assert_eq!(revoked.status, 200, "{}", revoked.text);
    for client in [&mut by_header, &mut by_protocol, &mut by_message, &mut without_iat] {
        assert_eq!(client.next().await, Next::Closed(4001));
    }
    assert!(in_time("the stream ends", stream).await.unwrap().contains("event: hello"), "it ended in order");
    publish(&server);
    for client in [&mut newer, &mut of_server] {
        assert_eq!(client.message().await["type"], "post", "its token was not revoked");
    }
    assert_eq!(connections(&server), 2);
    assert_eq!(open(server.address(), &[("authorization", &old_header)]).await.err(), Some(401));
    let (mut client, _) = open(server.address(), &[("sec-websocket-protocol", &offered)]).await.unwrap();
    assert_eq!(client.next().await, Next::Closed(4001));
    let (mut client, _) = open(server.address(), &[]).await.unwrap();
    client.send(auth(&old)).await;
    assert_eq!(client.next().await, Next::Closed(4001));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_ignored_when_access_control_is_off() {
    let server = Server::start(EngineConfig::default());
    let offered = "tidewire, bearer.whatever";
    let (mut client, protocol) = open(server.address(), &[("sec-websocket-protocol", offered)]).await.unwrap();
    assert_eq!(protocol, "tidewire");
    is_greeted(&mut client).await;
    let (mut client, _) = open(server.address(), &[]).await.unwrap();
    is_greeted(&mut client).await;
}

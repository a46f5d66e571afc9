//! Those who should not come in: who guesses, who takes room, who looks for what is not theirs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use serde_json::json;
use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::limits::{LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX, NEW_SOURCES_OF_USER_MAX, UNKNOWN_CREDENTIALS_PER_SECOND};
use tidewire::storage::files::faulty::{FaultyFiles, Plan};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire_server::http::sockets::connection_slots::ConnectionLimits;
use tidewire_server::http::state::HttpState;
use tokio::net::TcpSocket;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::live::client::{Client, Next};
use crate::server::{Answer, Server};
use testkit::histories;

fn server() -> Server {
    Server::guarded(EngineConfig::default(), access())
}

fn ask(server: &Server, path: &str, credential: &str) -> Answer {
    server.ask("GET", path, &[("authorization", &bearer(credential))], "")
}

/// Has the server's owner publish ann's post 7: tokens choose no ids.
fn publish_7(server: &Server) -> u16 {
    let headers = [("authorization", &*bearer(SERVER_KEY)), ("content-type", "application/json")];
    server.ask("POST", "/v1/posts", &headers, r#"{"author":"ann","id":"7","body":1}"#).status
}

#[test]
fn clients_that_guess_credentials_are_rate_limited_and_others_are_not() {
    let access = access().with_proxies("none".parse().unwrap());
    let server = Server::guarded(EngineConfig::default(), access);
    // Several at once: on a busy machine one alone may be too slow to be refused.
    let guess = |guesser: usize| {
        let ask = |nth: usize| ask(&server, "/v1/users/ann/feed", &format!("guess{guesser}-{nth}"));
        (0..100).map(ask).collect::<Vec<_>>()
    };
    let (mut guesses, mut refused) = (0, Vec::new());
    eventually("so many are too many", || {
        let answers = thread::scope(|scope| {
            let guessers: Vec<_> = (0..4).map(|guesser| scope.spawn(move || guess(guesser))).collect();
            guessers.into_iter().flat_map(|guesser| guesser.join().unwrap()).collect::<Vec<_>>()
        });
        let (slowed, denied): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 429);
        let is_denied = |answer: &Answer| (answer.status, &answer.json()["code"]) == (401, &json!("invalid_token"));
        assert!(denied.iter().all(is_denied), "{denied:?}");
        guesses += denied.len();
        refused = slowed;
        !refused.is_empty()
    });
    let slowed = &refused[0];
    assert_eq!((slowed.header("retry-after"), &slowed.json()["code"]), ("1", &json!("too_many_denials")));
    for good in [SERVER_KEY.to_owned(), tokens::token("ann")] {
        assert_eq!(ask(&server, "/v1/users/ann/feed", &good).status, 200, "from the same address");
    }
    // Who has none is told so, and who had one, that it has expired: a client renews it then.
    assert_eq!(server.get("/v1/users/ann/feed").status, 401);
    assert_eq!(ask(&server, "/v1/users/ann/feed", &tokens::expired("ann")).status, 401);
    assert_eq!(ask(&server, "/v1/users/bob/feed", &tokens::token("ann")).status, 403);
    let metrics = ask(&server, "/metrics", SERVER_KEY).text;
    let counts = [
        ("invalid_token", guesses),
        ("too_many_denials", refused.len()),
        ("unauthenticated", 1),
        ("token_expired", 1),
        ("forbidden", 1),
        ("read_only", 0),
    ];
    for (reason, count) in counts {
        let line = format!("tidewire_denied_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn guesses_behind_a_proxy_are_answered_as_unknown_tokens_and_not_rate_limited() {
    let server = server();
    for nth in 0..5 * UNKNOWN_CREDENTIALS_PER_SECOND.get() {
        let answer = ask(&server, "/v1/users/ann/feed", &format!("guess{nth}"));
        assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("invalid_token")), "{nth}");
    }
}

/// A server whose journal has failed.
async fn broken() -> Server {
    // The first sync that does not keep it from starting is one of a write.
    for nth in 1.. {
        let files = FaultyFiles::new(MemoryFiles::default(), Plan { fail_sync: Some(nth), ..Plan::default() });
        let Ok((engine, _)) = histories::open(files, &histories::storage(Durability::Always, 1 << 20)) else {
            continue;
        };
        assert!(engine.publish(testkit::world::draft("ann", "1"), false).await.is_err());
        return Server::guarding(engine, access());
    }
    unreachable!("it starts at last");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_server_keys_see_the_cause_of_a_failure() {
    let server = broken().await;
    let cause = server.engine.journal().unwrap().failure().unwrap();
    let body = r#"{"author":"ann","body":1}"#;
    let publish = |credential: &str| {
        let headers = [("authorization", &*bearer(credential)), ("content-type", "application/json")];
        server.ask("POST", "/v1/posts", &headers, body)
    };
    for (answer, is_told) in [
        (server.get("/readyz"), false),
        (ask(&server, "/readyz", "guess"), false),
        (publish(&tokens::token("ann")), false),
        (publish(SERVER_KEY), true),
    ] {
        assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("journal_failed")));
        assert_eq!(answer.text.contains(&cause), is_told, "{cause}: {}", answer.text);
    }
}

/// A WebSocket from this address, one of this machine's, if it is let in.
async fn socket(
    from: [u8; 4],
    server: SocketAddr,
    credential: Option<&str>,
) -> Option<WebSocketStream<tokio::net::TcpStream>> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let stream = socket.connect(server).await.unwrap();
    let mut request = format!("ws://{server}/v1/users/ann/live").into_client_request().unwrap();
    if let Some(credential) = credential {
        request.headers_mut().insert("authorization", bearer(credential).parse().unwrap());
    }
    client_async(request, stream).await.ok().map(|(socket, _)| socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_of_an_address_evict_only_each_other() {
    let engine = Engine::start(EngineConfig { live_max: 1, ..EngineConfig::default() });
    let access = Arc::new(access().with_proxies("none".parse().unwrap()));
    let state = HttpState { access, ..HttpState::from(engine.clone()) }.with_connections(ConnectionLimits::of(4_096));
    let server = Server::serving(state, engine);
    let (address, here, elsewhere) = (server.address(), [127, 0, 0, 1], [127, 0, 0, 2]);
    let mut strangers = Vec::new();
    for nth in 0..LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX {
        strangers.push(socket(here, address, None).await.unwrap_or_else(|| panic!("the {nth}th")));
    }
    let connections = || ask(&server, "/v1/stats", SERVER_KEY).json()["live"]["connections"].clone();
    assert_eq!(connections(), 0, "who has not said who it is takes no place");
    strangers.push(socket(here, address, None).await.expect("one more"));
    let mut oldest = Client { socket: strangers.remove(0), hello: json!(null) };
    assert_eq!(oldest.next().await, Next::Closed(1013), "the longest silent one goes");
    let gate = ask(&server, "/v1/stats", SERVER_KEY).json()["admission"]["live_unauthenticated"].clone();
    assert_eq!((&gate["under_way"], &gate["refused"]), (&json!(LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX), &json!(0)));
    let other = socket(elsewhere, address, None).await;
    assert!(other.is_some(), "those of another address have room");
    let known = socket(here, address, Some(&tokens::token("ann"))).await;
    assert!(known.is_some() && connections() == 1, "who is known comes in");
    // There is a place for one alone, which is taken.
    let mut late = Client { socket: other.unwrap(), hello: json!(null) };
    late.send(Message::text(json!({"type": "auth", "token": tokens::token("bob")}).to_string())).await;
    assert_eq!(late.next().await, Next::Closed(4001), "ann's feed is not bob's");
    let mut late = Client { socket: socket(elsewhere, address, None).await.unwrap(), hello: json!(null) };
    late.send(Message::text(json!({"type": "auth", "token": tokens::token("ann")}).to_string())).await;
    assert_eq!(late.next().await, Next::Closed(1013));
    server.engine.stop_live();
    let mut first = Client { socket: strangers.swap_remove(0), hello: json!(null) };
    assert_eq!(first.next().await, Next::Closed(1012), "strangers hear of a shutdown as well");
}

#[test]
fn posts_of_another_author_look_missing_to_a_user() {
    let server = server();
    let ask = |user: &str, method: &str, path: &str, body: &str| {
        let token = bearer(&tokens::token(user));
        let mut headers = vec![("authorization", token.as_str())];
        headers.extend((!body.is_empty()).then_some(("content-type", "application/json")));
        server.ask(method, path, &headers, body)
    };
    assert_eq!(publish_7(&server), 201);
    for (method, body) in [("GET", ""), ("PATCH", r#"{"hidden":true}"#), ("PATCH", "nonsense"), ("DELETE", "")] {
        let (there, not) = (ask("dan", method, "/v1/posts/7", body), ask("dan", method, "/v1/posts/8", body));
        assert_eq!((there.status, there.text), (not.status, not.text.replace('8', "7")), "{method} {body}");
    }
    assert_eq!(ask("ann", "GET", "/v1/posts/7", "").json()["hidden"], false, "and nothing was done");
}

#[test]
fn only_a_server_key_can_unhide_a_post() {
    let server = server();
    let change = |credential: &str, body: &str| {
        let headers = [("authorization", &*bearer(credential)), ("content-type", "application/json")];
        server.ask("PATCH", "/v1/posts/7", &headers, body)
    };
    let token = tokens::token("ann");
    assert_eq!(publish_7(&server), 201);
    for (credential, body, status, hidden) in [
        (&*token, r#"{"hidden":false}"#, 200, false),
        (&*token, r#"{"hidden":false,"body":2}"#, 200, false),
        (SERVER_KEY, r#"{"hidden":true}"#, 200, true),
        (&*token, r#"{"hidden":false}"#, 403, true),
        (&*token, r#"{"hidden":false,"body":3}"#, 403, true),
        (&*token, r#"{"body":4}"#, 200, true),
        (&*token, r#"{"hidden":true}"#, 200, true),
        (SERVER_KEY, r#"{"hidden":false}"#, 200, false),
        (&*token, r#"{"hidden":true}"#, 200, true),
    ] {
        assert_eq!(change(credential, body).status, status, "{body}");
        let post = ask(&server, "/v1/posts/7", SERVER_KEY).json();
        assert_eq!(post["hidden"], hidden, "{body}");
        assert_ne!(post["body"], 3, "nothing of what was refused was done");
    }
}

#[test]
fn a_user_may_create_a_limited_number_of_sources_and_others_are_unaffected() {
    let server = server();
    let publish = |credential: &str, author: &str, nth: u32| {
        let tags: Vec<_> = (0..15).map(|tag| format!("{author}{nth}.{tag}")).collect();
        let reply_to = format!("{}{nth:05}", author.len());
        let headers = [("authorization", &*bearer(credential)), ("content-type", "application/json")];
        server.ask(
            "POST",
            "/v1/posts",
            &headers,
            json!({"author": author, "body": 1, "tags": tags, "reply_to": reply_to}).to_string(),
        )
    };
    let put = |credential: &str, path: &str| server.ask("PUT", path, &[("authorization", &bearer(credential))], "");
    let token = tokens::token("ann");
    let posts = NEW_SOURCES_OF_USER_MAX.get() / 16;
    let granted = (0..).take_while(|nth| publish(&token, "ann", *nth).status == 201).count();
    // The author is one as well, and so are the replies to each post. Some come back meanwhile: one in 8 s.
    assert!((posts as usize - 1..=posts as usize + 2).contains(&granted), "{granted} of {posts}");
    let refused = publish(&token, "ann", posts + 9);
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("too_many_sources")));
    assert_ne!(refused.header("retry-after"), "");
    for (path, known) in [
        ("/v1/users/ann/following/", "tag:ann0.0"),
        ("/v1/users/ann/mutes/", "tag:ann0.1"),
        ("/v1/users/ann/blocks/", "ann2"),
        ("/v1/users/ann/lists/near/members/", "replies:300000"),
    ] {
        put(SERVER_KEY, &format!("/v1/users/bob/following/{known}"));
        assert_eq!(put(&token, &format!("{path}{known}")).status, 201, "{path}{known}");
        // Of those that came back some are left.
        let refused = (0..20).find(|nth| put(&token, &format!("{path}new{nth}")).status == 429);
        assert!(refused.is_some(), "{path}");
    }
    assert_eq!(publish(&tokens::token("bob"), "bob", 0).status, 201);
    assert_eq!(publish(SERVER_KEY, "ann", posts + 10).status, 201);
}

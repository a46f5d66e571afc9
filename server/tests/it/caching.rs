//! Which answers may be stored and by whom, and what a client is answered that has one already.

use std::collections::HashMap;

use serde_json::{Value, json};
use testkit::seed;
use tidewire::config::EngineConfig;
use tidewire::feed::cursor;
use tidewire::feed::resume::Resume;
use tidewire_server::http::operations;

use crate::access::matrix;
use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server, agent};

/// The operations whose answers the caller may store.
const TAGGED: [&str; 6] = ["read_feed", "read_own_page", "read_list_feed", "read_post", "read_replies", "read_reposts"];

fn check_stored(answer: &Answer, expected: &str, what: &str) {
    let told = format!("{what}: {} {:?} {}", answer.status, answer.headers, answer.text);
    let controls: Vec<_> = answer.headers.get_all("cache-control").iter().collect();
    assert_eq!(controls, [expected], "{told}");
    assert_eq!(answer.header("etag").starts_with("W/\""), expected != "no-store", "{told}");
    let varies = answer.headers.get_all("vary").iter().any(|vary| vary == "Authorization");
    assert_eq!(varies, expected == "private, no-cache", "{told}");
}

#[test]
fn every_answer_of_every_operation_has_a_cache_control_header() {
    let server = Server::guarded(EngineConfig::default(), access());
    for operation @ (name, _, _) in operations() {
        let call = matrix::call(name);
        for credential in matrix::credentials() {
            let answer = matrix::send(&server, operation, &call, &credential);
            let expected = match (name, answer.status) {
                (name, 200) if TAGGED.contains(&name) => "private, no-cache",
                ("describe", _) => "no-cache",
                _ => "no-store",
            };
            check_stored(&answer, expected, &format!("{name} with {}", credential.name));
        }
    }
    for asset in tidewire_server::console::ASSETS {
        check_stored(&server.get(asset.path), "no-cache", asset.path);
    }
    for (method, path, status) in [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/posts/7", 401),
        ("PUT", "/v1/users/ann/feed", 405),
        ("POST", "/tidewire.js", 405),
        ("OPTIONS", "/v1/posts", 405),
        ("GET", "/openapi.json?what=1", 400),
        ("GET", "/v1/users/a%20b/feed", 401),
    ] {
        let answer = server.send(method, path, None, "");
        assert_eq!(answer.status, status, "{method} {path}");
        check_stored(&answer, "no-store", path);
    }
    let key = bearer(SERVER_KEY);
    for (path, status) in [("/v1/posts/7", 404), ("/v1/users/a%20b/feed", 400), ("/v1/users/ann/lists/none/feed", 404)]
    {
        let answer = server.ask("GET", path, &[("authorization", &key)], "");
        assert_eq!(answer.status, status, "{path}");
        check_stored(&answer, "no-store", path);
    }
}

/// A path with what it answered: its tag, and its text.
fn read(server: &Server, path: &str) -> (String, String) {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    (answer.header("etag").to_owned(), answer.text)
}

/// The minute of the token of a page, which its tag has a part of.
fn minute(text: &str) -> Option<i64> {
    let page: Value = serde_json::from_str(text).unwrap();
    Some(cursor::decode_resume(page.get("newest")?.as_str()?).unwrap().since()?.0.div_euclid(60_000_000))
}

/// Asks again with tags that the client has.
fn again(server: &Server, method: &str, path: &str, known: &str) -> Answer {
    let mut request = ureq::http::Request::builder().method(method).uri(server.url(path));
    request = request.header("if-none-match", known);
    let mut response = agent().run(request.body(()).unwrap()).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    Answer { status: response.status().as_u16(), headers: response.headers().clone(), text }
}

fn publish(server: &Server, author: &str, body: &Value) -> String {
    let answer = server.post("/v1/posts?wait=delivered", &json!({"author": author, "body": body, "tags": ["rust"]}));
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_known_etag_is_confirmed_until_the_answer_changes() {
    let server = Server::start(EngineConfig::default());
    for path in ["/v1/users/ann/following/bob", "/v1/users/ann/lists/pals/members/bob"] {
        assert_eq!(server.json("PUT", path, &json!({})).status, 201);
    }
    let post = publish(&server, "bob", &json!("first"));
    let paths = [
        "/v1/users/ann/feed".to_owned(),
        "/v1/users/ann/feed?limit=1".to_owned(),
        "/v1/users/ann/feed?fields=ids".to_owned(),
        "/v1/users/ann/lists/pals/feed".to_owned(),
        "/v1/users/bob/posts".to_owned(),
        format!("/v1/posts/{post}"),
        "/v1/users/nobody/feed".to_owned(),
    ];
    let patch = |path: &str, body: Value| assert_eq!(server.json("PATCH", path, &body).status, 200);
    let of_post = format!("/v1/posts/{post}");
    // What happens, and which of the paths answer otherwise from then on.
    let steps: [(&dyn Fn(), &[usize]); 6] = [
        (&|| drop(publish(&server, "stranger", &json!("elsewhere"))), &[]),
        (&|| patch(&of_post, json!({"body": "edited"})), &[0, 1, 2, 3, 4, 5]),
        (&|| drop(publish(&server, "bob", &json!("second"))), &[0, 1, 2, 3, 4]),
        (&|| patch("/v1/users/ann/rules", json!({"replies": "none"})), &[0, 1, 2, 3]),
        (&|| patch(&of_post, json!({"hidden": true})), &[0, 1, 2, 3, 4, 5]),
        (&|| assert_eq!(server.json("PUT", "/v1/users/ann/mutes/bob", &json!({})).status, 201), &[0, 1, 2, 3]),
    ];
    let mut before: Vec<_> = paths.iter().map(|path| read(&server, path)).collect();
    for (nth, (step, changed)) in steps.into_iter().enumerate() {
        step();
        for (of_path, path) in paths.iter().enumerate() {
            let ((tag, text), (old, old_text)) = (read(&server, path), &before[of_path]);
            let told = format!("step {nth}: {path}");
            // An edit changes no field that pages of ids have, and its own token says nothing of it.
            let is_later = minute(&text) != minute(old_text);
            let is_changed = is_later || changed.contains(&of_path) && !(nth == 1 && of_path == 2);
            assert_eq!(tag != *old, is_changed, "{told}");
            for method in ["GET", "HEAD"] {
                let answer = again(&server, method, path, old);
                assert_eq!(
                    (answer.status, answer.header("etag")),
                    (if is_changed { 200 } else { 304 }, &*tag),
                    "{told}"
                );
                let has_text = is_changed && method == "GET";
                assert_eq!(!answer.text.is_empty(), has_text, "{told}");
                check_stored(&answer, "private, no-cache", &told);
            }
            before[of_path] = read(&server, path);
        }
    }
    let (tag, _) = &before[0];
    let opaque = tag.strip_prefix("W/").unwrap();
    for (known, status) in
        [("*", 304), (&format!("\"a\", {tag}"), 304), (opaque, 304), ("\"a\"", 200), ("", 200), ("nonsense", 200)]
    {
        assert_eq!(again(&server, "GET", &paths[0], known).status, status, "{known}");
    }
    assert_eq!(again(&server, "GET", "/v1/posts/77", "*").status, 404);
}

#[test]
fn polling_with_the_token_of_a_cached_page_returns_newer_posts() {
    let server = Server::start(EngineConfig::default());
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    publish(&server, "bob", &json!("first"));
    // The tag is another one in another minute.
    let (tag, stored, now) = loop {
        let (tag, stored) = read(&server, "/v1/users/ann/feed");
        publish(&server, "stranger", &json!("elsewhere"));
        let (_, now) = read(&server, "/v1/users/ann/feed");
        if minute(&stored) == minute(&now) {
            break (tag, stored, now);
        }
    };
    assert_ne!(stored, now, "the token of the newest page is a later one");
    assert_eq!(again(&server, "GET", "/v1/users/ann/feed", &tag).status, 304);
    let late = json!({"author": "bob", "body": "late", "published_at": "2020-01-01T00:00:00Z"});
    assert_eq!(server.post("/v1/posts?wait=delivered", &late).status, 201);
    let second = publish(&server, "bob", &json!("second"));
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let polled = server.get(&format!("/v1/users/ann/feed?after={}", stored["newest"].as_str().unwrap())).json();
    let items = polled["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["post"]["id"], polled.get("gap")), (2, &json!(second), None), "{polled}");
}

/// Reads the feed of ann as a browser does: with the page that it has stored.
fn read_again(server: &Server, stored: &mut (String, String)) -> Value {
    let answer = again(server, "GET", "/v1/users/ann/feed", &stored.0);
    if answer.status == 200 {
        *stored = (answer.header("etag").to_owned(), answer.text);
    }
    serde_json::from_str(&stored.1).unwrap()
}

#[test]
fn after_a_gap_every_cached_page_can_be_revalidated_to_a_valid_token() {
    let server = Server::start(EngineConfig::default());
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    publish(&server, "bob", &json!("first"));
    let post = publish(&server, "bob", &json!("second"));
    let mut stored = read(&server, "/v1/users/ann/feed");
    let follow = |source: &str| {
        let path = format!("/v1/users/ann/following/{source}");
        assert_eq!(server.json("PUT", &path, &json!({})).status, 201);
    };
    let unfollow = |source: &str| {
        assert_eq!(server.send("DELETE", &format!("/v1/users/ann/following/{source}"), None, "").status, 204);
    };
    let patch = |body: Value| assert_eq!(server.json("PATCH", &format!("/v1/posts/{post}"), &body).status, 200);
    let steps: [(&str, &dyn Fn()); 5] = [
        ("nothing", &|| {}),
        ("a follow of a source without posts", &|| follow("quiet")),
        ("its end", &|| unfollow("quiet")),
        ("a post is shown again", &|| {
            patch(json!({"hidden": true}));
            patch(json!({"hidden": false}));
        }),
        ("another follow", &|| follow("silent")),
    ];
    let mut gaps = 0;
    for (told, step) in steps {
        step();
        let poll = |page: &Value| {
            let polled = server.get(&format!("/v1/users/ann/feed?after={}", page["newest"].as_str().unwrap())).json();
            polled.get("gap") == Some(&json!(true))
        };
        let old: Value = serde_json::from_str(&stored.1).unwrap();
        gaps += usize::from(poll(&old));
        let page = read_again(&server, &mut stored);
        assert!(!poll(&page), "{told}: {page}");
    }
    assert!(gaps >= 2, "each follow makes the token invalid: {gaps}");
}

#[test]
fn an_etag_is_not_confirmed_to_callers_who_may_not_read_the_answer() {
    let server = Server::guarded(EngineConfig::default(), access());
    let ask = |path: &str, token: &str, known: &str| {
        server.ask("GET", path, &[("authorization", &bearer(token)), ("if-none-match", known)], "")
    };
    let key = [("authorization", &*bearer(SERVER_KEY)), ("content-type", "application/json")];
    let post = server.ask("POST", "/v1/posts?wait=delivered", &key, r#"{"author":"ann","body":"marvel"}"#).json();
    let (ann, dan) = (tokens::token("ann"), tokens::token("dan"));
    for path in ["/v1/users/ann/feed".to_owned(), format!("/v1/posts/{}", post["id"].as_str().unwrap())] {
        let tag = ask(&path, &ann, "\"none\"").header("etag").to_owned();
        for known in [&*tag, "*", "\"none\""] {
            let refused = ask(&path, &dan, known);
            let expected = if path.ends_with("feed") { 403 } else { 404 };
            assert_eq!((refused.status, refused.header("etag")), (expected, ""), "{path} {known}");
            let stranger = server.ask("GET", &path, &[("if-none-match", known)], "");
            assert_eq!((stranger.status, stranger.header("etag")), (401, ""), "{path} {known}");
        }
        let of_dan = ask("/v1/users/dan/feed", &dan, &tag);
        assert_eq!((of_dan.status, &of_dan.json()["items"]), (200, &json!([])));
    }
}

/// The text of a page without the instants of its token.
fn without_instants(text: &str) -> String {
    let mut page: Value = serde_json::from_str(text).unwrap();
    if let Some(newest) = page["newest"].as_str() {
        let Resume { above, below, .. } = cursor::decode_resume(newest).unwrap();
        let mut token = cursor::decode_resume(newest).unwrap();
        (token.above, token.below) = (None, None);
        page["newest"] = json!(format!("{token:?} {} {}", above.is_some(), below.is_some()));
    }
    page.to_string()
}

#[test]
fn answers_with_equal_etags_are_equal_in_any_history() {
    let server = Server::start(EngineConfig::default());
    let mut texts = HashMap::<String, String>::new();
    let (mut posts, seed): (Vec<String>, u64) = (Vec::new(), seed());
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..150 {
        let user = |random: &mut fastrand::Rng| format!("u{}", random.u8(..3));
        let (one, other) = (user(&mut random), user(&mut random));
        let post = posts.get(random.usize(..posts.len().max(1))).cloned().unwrap_or_else(|| "1".to_owned());
        let edge = |kind: &str| format!("/v1/users/{one}/{kind}/{other}");
        match random.u8(..9) {
            0..3 => posts.push(publish(&server, &one, &json!(random.u8(..3)))),
            3 => drop(server.json("PATCH", &format!("/v1/posts/{post}"), &json!({"body": random.u8(..3)}))),
            4 => drop(server.json("PATCH", &format!("/v1/posts/{post}"), &json!({"hidden": random.bool()}))),
            5 => drop(server.send("DELETE", &format!("/v1/posts/{post}"), None, "")),
            6 => drop(server.json("PUT", &edge("following"), &json!({}))),
            7 => drop(server.send("DELETE", &edge("following"), None, "")),
            _ => drop(server.send(if random.bool() { "PUT" } else { "DELETE" }, &edge("mutes"), None, "")),
        }
        for path in ["u0/feed", "u1/feed?limit=2", "u2/feed?fields=ids", "u0/posts"] {
            let (tag, text) = read(&server, &format!("/v1/users/{path}"));
            let text = without_instants(&text);
            let told = format!("seed {seed}, step {step}, {path}: {text}");
            assert_eq!(*texts.entry(tag).or_insert_with(|| text.clone()), text, "{told}");
        }
    }
    assert!(texts.len() > 20, "{}", texts.len());
}

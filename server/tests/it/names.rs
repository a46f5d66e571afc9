//! Tags and topics with names in any script, over HTTP.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;

use crate::server::{Answer, Server};

fn put(server: &Server, path: &str) -> Answer {
    server.send("PUT", path, None, "")
}

/// Bytes other than letters and digits are encoded, as clients do.
fn encoded(text: &str) -> String {
    let part = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(part).collect()
}

fn publish(server: &Server, author: &str, tags: &[&str], topic: Option<&str>) -> Value {
    let mut post = json!({"author": author, "body": 1, "tags": tags});
    topic.into_iter().for_each(|topic| post["topic"] = json!(topic));
    let answer = server.post("/v1/posts?wait=delivered", &post);
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

fn ids(server: &Server, path: &str) -> Vec<String> {
    let page = server.get(path).json();
    page["items"]
        .as_array()
        .unwrap_or_else(|| panic!("{path}: {page}"))
        .iter()
        .map(|item| item["post"]["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn followers_of_one_spelling_of_a_tag_receive_posts_of_all_spellings() {
    let server = Server::start(EngineConfig::default());
    for (nth, spellings) in [
        &["Größe", "GRÖSSE", "gro\u{308}sse", "ＧＲÖＳＳＥ"][..],
        &["C++", "c++"],
        &["東京"],
        &["50%2f", "50%2F"],
        &["a+b c&d=e#f?g"],
        &["العربية"],
        &["👩\u{200d}💻", "👩💻"],
    ]
    .iter()
    .enumerate()
    {
        for (follows, spelling) in spellings.iter().enumerate() {
            let reader = format!("reader{nth}-{follows}");
            let tag = encoded(&format!("tag:{spelling}"));
            assert_eq!(put(&server, &format!("/v1/users/{reader}/following/{tag}")).status, 201, "{spelling}");
            let posts: Vec<String> = spellings
                .iter()
                .rev()
                .map(|name| publish(&server, "bob", &[name], None)["id"].as_str().unwrap().to_owned())
                .collect();
            let newest_first: Vec<String> = posts.into_iter().rev().collect();
            assert_eq!(ids(&server, &format!("/v1/users/{reader}/feed?limit={}", spellings.len())), newest_first);
            assert_eq!(ids(&server, &format!("/v1/users/{tag}/posts?limit={}", spellings.len())), newest_first);
        }
    }
}

#[test]
fn responses_have_the_canonical_form_and_two_spellings_are_one_tag() {
    let server = Server::start(EngineConfig::default());
    let post = publish(&server, "bob", &["Rust", "ＲＵＳＴ", "Größe"], Some("cafe\u{301} Rust"));
    assert_eq!((&post["tags"], &post["topic"]), (&json!(["rust", "grösse"]), &json!("caf\u{e9} Rust")));
    let id = post["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/posts/{id}")).json(), post);
    // The same again, in other spellings.
    let again = json!({"id": id, "author": "bob", "body": 1, "tags": ["RUST", "GRÖSSE"], "topic": "caf\u{e9} Rust"});
    assert_eq!(server.post("/v1/posts", &again).status, 200);
    let found = server.get(&format!("/v1/sources?prefix={}", encoded("tag:GRÖSS"))).json();
    assert_eq!(found["items"][0]["id"], "tag:grösse");
    put(&server, &format!("/v1/users/ann/following/{}", encoded("topic:cafe\u{301} Rust")));
    assert_eq!(server.get("/v1/users/ann/following").json()["items"][0]["id"], "topic:caf\u{e9} Rust");
    let page = server.get("/v1/users/ann/feed").json();
    assert_eq!(page["items"][0]["via"], json!(["topic:caf\u{e9} Rust"]));
    assert_eq!(ids(&server, &format!("/v1/users/{}/posts", encoded("topic:café rust"))), [""; 0], "topics have case");
}

#[test]
fn a_muted_tag_is_muted_in_every_spelling() {
    let server = Server::start(EngineConfig::default());
    put(&server, "/v1/users/ann/following/bob");
    assert_eq!(put(&server, &format!("/v1/users/ann/mutes/{}", encoded("tag:Größe"))).status, 201);
    for spelling in ["größe", "GRÖSSE", "gro\u{308}\u{200d}ße", "ｇｒößｅ"] {
        publish(&server, "bob", &[spelling], None);
    }
    assert_eq!(ids(&server, "/v1/users/ann/feed"), [""; 0]);
    assert_eq!(server.get("/v1/users/ann/mutes").json()["items"][0]["id"], "tag:grösse");
    assert_eq!(server.send("DELETE", &format!("/v1/users/ann/mutes/{}", encoded("tag:GRÖSSE")), None, "").status, 204);
    assert_eq!(ids(&server, "/v1/users/ann/feed").len(), 4);
}

#[test]
fn invalid_names_are_refused_with_the_cause() {
    let server = Server::start(EngineConfig::default());
    for (name, detail) in [
        ("a/b", "a name may not contain '/', which is syntax of paths or JSON"),
        ("a\"b", "a name may not contain '\"', which is syntax of paths or JSON"),
        ("a\u{202e}b", "a name may not contain '\\u{202e}', which is invisible"),
        ("a\nb", "a name may not contain '\\n', which is a control character"),
        (" a", "a name may have only single spaces, between other characters"),
        ("\u{301}a", "a name may not begin with the combining mark '\\u{301}'"),
        ("", "a name must have at least 1 character"),
    ] {
        let in_body = server.post("/v1/posts", &json!({"author": "bob", "body": 1, "tags": ["ok", name]}));
        assert_eq!(
            (in_body.status, in_body.json()["detail"].clone()),
            (400, json!(format!("tags[1]: {detail}"))),
            "{name:?}"
        );
        let in_path = put(&server, &format!("/v1/users/ann/following/{}", encoded(&format!("tag:{name}"))));
        assert_eq!(
            (in_path.status, in_path.json()["detail"].clone()),
            (400, json!(format!("source: {detail}"))),
            "{name:?}"
        );
    }
    // What is not UTF-8 in a path names nothing.
    for bad in ["tag:%FF", "tag:%C3", "tag:a%C0%AFb", "tag:50%", "tag:%zz", "tag:%2%35", "tag:%2"] {
        assert_eq!(put(&server, &format!("/v1/users/ann/following/{bad}")).status, 400, "{bad}");
    }
    assert_eq!(server.get("/v1/sources?kind=tag").json()["items"], json!([]), "nothing was made");
}

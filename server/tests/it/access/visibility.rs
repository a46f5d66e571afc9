//! Who sees what, by which way: the table of `docs/security.md`, each cell of it.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::auth::TokenPostIds;

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};

/// Posts of bob, each of which comes to ann by one way alone: a tag that she follows, cas whom she follows and who reposts it, her list, her
/// own repost.
const BY_TAG: &str = "1";
const BY_CAS: &str = "2";
const BY_LIST: &str = "3";
const BY_ANN: &str = "4";
/// One that nothing brings.
const UNBROUGHT: &str = "5";
/// One of eve, and bob's reply to it, which nothing brings either.
const OF_EVE: &str = "100";
const REPLY: &str = "101";
/// One that never was.
const UNKNOWN: &str = "6";
const ALL: [&str; 6] = [BY_TAG, BY_CAS, BY_LIST, BY_ANN, UNBROUGHT, UNKNOWN];

struct World(Server);

impl World {
    fn new() -> Self {
        let world = Self(Server::guarded(EngineConfig::default(), access()));
        for path in ["following/tag:tea", "following/cas", "lists/pals/members/bob"] {
            world.by_server("PUT", &format!("/v1/users/ann/{path}"), None);
        }
        for (id, tags) in [
            (BY_TAG, json!(["tea"])),
            (BY_CAS, json!([])),
            (BY_LIST, json!([])),
            (BY_ANN, json!([])),
            (UNBROUGHT, json!([])),
        ] {
            world.publish(&json!({"author": "bob", "id": id, "body": 1, "tags": tags}));
        }
        world.publish(&json!({"author": "eve", "id": OF_EVE, "body": 0}));
        world.publish(&json!({"author": "bob", "id": REPLY, "body": 0, "reply_to": OF_EVE}));
        world.publish(&json!({"author": "cas", "id": "22", "body": 0, "repost_of": BY_CAS}));
        world.publish(&json!({"author": "ann", "id": "44", "body": 0, "repost_of": BY_ANN}));
        world
    }

    fn ask(&self, credential: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let bearer = bearer(credential);
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(body.map(|_| ("content-type", "application/json")));
        self.0.ask(method, path, &headers, body.map_or(String::new(), Value::to_string))
    }

    fn by_server(&self, method: &str, path: &str, body: Option<&Value>) {
        let answer = self.ask(SERVER_KEY, method, path, body);
        assert!(answer.status < 300, "{method} {path}: {}", answer.text);
    }

    fn publish(&self, post: &Value) {
        self.by_server("POST", "/v1/posts?wait=delivered", Some(post));
    }

    /// Which of bob's posts a page shows, in the order of their ids.
    fn shown(&self, credential: &str, path: &str) -> Vec<String> {
        let page = self.ask(credential, "GET", path, None).json();
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page}"));
        let mut shown: Vec<String> = items.iter().map(|item| item["post"]["id"].as_str().unwrap().to_owned()).collect();
        shown.sort();
        shown
    }

    /// What an explanation says of each of bob's posts: `shown`, or what keeps it out.
    fn explained(&self, credential: &str) -> Vec<String> {
        let explained = |id: &str| {
            let said = self.ask(credential, "GET", &format!("/v1/users/ann/feed/explain/{id}"), None).json();
            match said["blockers"].as_array().unwrap().first() {
                _ if said["shown"] == true => "shown".to_owned(),
                Some(blocker) => blocker["kind"].as_str().unwrap().to_owned(),
                None => "nothing".to_owned(),
            }
        };
        ALL.iter().map(|id| explained(id)).collect()
    }

    /// By id, with ann's token: nothing of bob's.
    fn by_id(&self, credential: &str) -> usize {
        ALL.iter().filter(|id| self.ask(credential, "GET", &format!("/v1/posts/{id}"), None).status == 200).count()
    }
}

/// What stands between ann and bob, and what she sees then.
struct Row {
    name: &'static str,
    requests: &'static [(&'static str, &'static str)],
    home: &'static [&'static str],
    list: &'static [&'static str],
    own_page: &'static [&'static str],
    own_page_by_server: &'static [&'static str],
    replies: &'static [&'static str],
    explained: [&'static str; 6],
    explained_to_server: [&'static str; 6],
    by_id_to_server: usize,
}

const LISTED: &[&str] = &[BY_TAG, BY_CAS, BY_LIST, BY_ANN, UNBROUGHT];

const ROWS: &[Row] = &[
    Row {
        name: "nothing",
        requests: &[],
        home: &[BY_TAG, BY_CAS, BY_ANN],
        list: LISTED,
        own_page: &[BY_ANN],
        own_page_by_server: &[BY_ANN],
        replies: &[REPLY],
        explained: ["shown", "shown", "unknown", "shown", "unknown", "unknown"],
        explained_to_server: ["shown", "shown", "nothing", "shown", "nothing", "unknown"],
        by_id_to_server: 5,
    },
    Row {
        name: "ann mutes bob",
        requests: &[("PUT", "/v1/users/ann/mutes/bob")],
        home: &[],
        list: &[],
        own_page: &[BY_ANN],
        own_page_by_server: &[BY_ANN],
        replies: &[],
        explained: ["muted", "muted", "unknown", "muted", "unknown", "unknown"],
        explained_to_server: ["muted", "muted", "muted", "muted", "muted", "unknown"],
        by_id_to_server: 5,
    },
    Row {
        name: "ann blocks bob",
        requests: &[("PUT", "/v1/users/ann/blocks/bob")],
        home: &[],
        list: &[],
        own_page: &[],
        own_page_by_server: &[BY_ANN],
        replies: &[],
        explained: ["blocked", "blocked", "unknown", "blocked", "unknown", "unknown"],
        explained_to_server: ["blocked", "blocked", "blocked", "blocked", "blocked", "unknown"],
        by_id_to_server: 5,
    },
    Row {
        name: "bob blocks ann",
        requests: &[("PUT", "/v1/users/bob/blocks/ann")],
        home: &[],
        list: &[],
        own_page: &[],
        own_page_by_server: &[BY_ANN],
        replies: &[],
        explained: ["unknown"; 6],
        explained_to_server: ["blocked_by", "blocked_by", "blocked_by", "blocked_by", "blocked_by", "unknown"],
        by_id_to_server: 5,
    },
    Row {
        name: "bob blocks ann no more",
        requests: &[("PUT", "/v1/users/bob/blocks/ann"), ("DELETE", "/v1/users/bob/blocks/ann")],
        home: &[BY_TAG, BY_CAS, BY_ANN],
        list: LISTED,
        own_page: &[BY_ANN],
        own_page_by_server: &[BY_ANN],
        replies: &[REPLY],
        explained: ["shown", "shown", "unknown", "shown", "unknown", "unknown"],
        explained_to_server: ["shown", "shown", "nothing", "shown", "nothing", "unknown"],
        by_id_to_server: 5,
    },
    Row {
        name: "bob is erased",
        requests: &[("DELETE", "/v1/users/bob")],
        home: &[],
        list: &[],
        own_page: &[],
        own_page_by_server: &[],
        replies: &[],
        explained: ["unknown"; 6],
        explained_to_server: ["deleted", "deleted", "deleted", "deleted", "deleted", "unknown"],
        by_id_to_server: 0,
    },
    Row {
        name: "cas blocks ann, who follows her by a tag",
        requests: &[("PUT", "/v1/users/cas/blocks/ann")],
        home: &[BY_TAG, BY_ANN],
        list: LISTED,
        own_page: &[BY_ANN],
        own_page_by_server: &[BY_ANN],
        replies: &[REPLY],
        explained: ["shown", "unknown", "unknown", "shown", "unknown", "unknown"],
        explained_to_server: ["shown", "nothing", "nothing", "shown", "nothing", "unknown"],
        by_id_to_server: 5,
    },
];

#[test]
fn each_path_shows_each_caller_the_posts_in_the_table() {
    for row in ROWS {
        let (world, ann) = (World::new(), tokens::token("ann"));
        for (method, path) in row.requests {
            world.by_server(method, path, None);
        }
        let name = row.name;
        assert_eq!(world.shown(&ann, "/v1/users/ann/feed"), row.home, "{name}: home");
        assert_eq!(world.shown(SERVER_KEY, "/v1/users/ann/feed"), row.home, "{name}: home, asked for by the server");
        assert_eq!(world.shown(&ann, "/v1/users/ann/lists/pals/feed"), row.list, "{name}: list");
        assert_eq!(world.shown(&ann, "/v1/users/ann/posts"), row.own_page, "{name}: own page");
        assert_eq!(
            world.shown(SERVER_KEY, "/v1/users/ann/posts"),
            row.own_page_by_server,
            "{name}: own page, in public"
        );
        let replies = format!("/v1/posts/{OF_EVE}/replies");
        assert_eq!(world.shown(&ann, &replies), row.replies, "{name}: replies to a post");
        assert_eq!(
            world.shown(SERVER_KEY, &format!("{replies}?reader=ann")),
            row.replies,
            "{name}: asked for by the server"
        );
        assert_eq!(world.explained(&ann), row.explained, "{name}: explained");
        assert_eq!(world.explained(SERVER_KEY), row.explained_to_server, "{name}: explained to the server");
        assert_eq!((world.by_id(&ann), world.by_id(SERVER_KEY)), (0, row.by_id_to_server), "{name}: by id");
    }
}

#[test]
fn hidden_and_deleted_posts_look_unknown_to_users() {
    let (world, ann) = (World::new(), tokens::token("ann"));
    for id in ALL[..5].iter().chain([&REPLY]) {
        world.by_server("PATCH", &format!("/v1/posts/{id}"), Some(&json!({"hidden": true})));
    }
    world.by_server("DELETE", &format!("/v1/posts/{BY_CAS}"), None);
    let replies = format!("/v1/posts/{OF_EVE}/replies");
    for path in ["/v1/users/ann/feed", "/v1/users/ann/lists/pals/feed", "/v1/users/ann/posts", &replies] {
        assert_eq!(world.shown(&ann, path), Vec::<String>::new(), "{path}");
    }
    assert_eq!(world.explained(&ann), ["unknown"; 6]);
    assert_eq!(world.explained(SERVER_KEY), ["hidden", "deleted", "hidden", "hidden", "hidden", "unknown"]);
    let answers: Vec<String> =
        ALL[..5].iter().map(|id| world.ask(&ann, "GET", &format!("/v1/posts/{id}"), None).text).collect();
    let of_unknown = world.ask(&ann, "GET", &format!("/v1/posts/{UNKNOWN}"), None).text;
    for (id, answer) in ALL.iter().zip(answers) {
        assert_eq!(answer, of_unknown.replace(UNKNOWN, id), "nothing gives away that it was there");
    }
}

/// cas reposts bob's post as this one.
const REPOST: &str = "22";

#[test]
fn reposting_an_invisible_repost_does_not_reveal_its_original() {
    let hidden = |id: &str| ("PATCH".to_owned(), format!("/v1/posts/{id}"), Some(json!({"hidden": true})));
    let block = |by: &str, of: &str| ("PUT".to_owned(), format!("/v1/users/{by}/blocks/{of}"), None);
    let deleted = |id: &str| ("DELETE".to_owned(), format!("/v1/posts/{id}"), None);
    for (name, changes, repeated) in [
        ("nothing between them", vec![], BY_CAS),
        ("the repost is hidden", vec![hidden(REPOST)], REPOST),
        ("its author blocks the caller", vec![block("cas", "ann")], REPOST),
        ("the caller blocks its author", vec![block("ann", "cas")], REPOST),
        ("what it repeats is hidden", vec![hidden(BY_CAS)], BY_CAS),
        ("the author of that blocks the caller", vec![block("bob", "ann")], BY_CAS),
        ("the caller blocks the author of that", vec![block("ann", "bob")], BY_CAS),
        ("the repost is deleted", vec![deleted(REPOST)], REPOST),
        ("others block each other", vec![block("bob", "cas")], BY_CAS),
    ] {
        let (world, ann) = (World::new(), tokens::token("ann"));
        for (method, path, body) in changes {
            world.by_server(&method, &path, body.as_ref());
        }
        let publish = |of: &str, credential: &str| {
            let post = json!({"author": "ann", "body": 1, "repost_of": of});
            let answer = world.ask(credential, "POST", "/v1/posts", Some(&post));
            assert_eq!(answer.status, 201, "{name}: {}", answer.text);
            let mut answer = answer.json();
            answer["id"].take();
            answer["published_at"].take();
            answer
        };
        for credential in [&*ann, SERVER_KEY] {
            let of_unknown = publish(UNKNOWN, credential).to_string();
            let expected = of_unknown.replace(&format!("\"{UNKNOWN}\""), &format!("\"{repeated}\""));
            assert_eq!(publish(REPOST, credential).to_string(), expected, "{name}");
        }
    }
    let (world, ann) = (World::new(), tokens::token("ann"));
    world.publish(&json!({"author": "ann", "id": "45", "body": 0, "repost_of": BY_CAS}));
    world.by_server("PATCH", "/v1/posts/45", Some(&json!({"hidden": true})));
    let own = world.ask(&ann, "POST", "/v1/posts", Some(&json!({"author": "ann", "body": 1, "repost_of": "45"})));
    assert_eq!(own.json()["repost_of"], BY_CAS, "who hid a post of theirs knows it");
}

#[test]
fn tokens_can_neither_choose_nor_probe_ids_unless_configured() {
    let post = |id: &str| json!({"author": "ann", "id": id, "body": 1});
    let external = |id: &str| json!({"author": "ann", "external_id": id, "body": 1});
    let world = World::new();
    world.publish(&json!({"author": "bob", "external_id": "taken", "body": 1}));
    for id in ["taken", "free"] {
        let refused = world.ask(&tokens::token("ann"), "POST", "/v1/posts", Some(&external(id)));
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")), "{id}");
    }
    for id in [BY_TAG, UNKNOWN] {
        let refused = world.ask(&tokens::token("ann"), "POST", "/v1/posts", Some(&post(id)));
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")), "{id}");
    }
    assert_eq!(world.ask(SERVER_KEY, "POST", "/v1/posts", Some(&post(UNKNOWN))).status, 201);
    let minted = world.ask(&tokens::token("ann"), "POST", "/v1/posts", Some(&json!({"author": "ann", "body": 1})));
    assert_eq!(minted.status, 201);

    let engine = Engine::start(EngineConfig::default());
    let lenient = World(Server::guarding(engine, access().with_token_post_ids(TokenPostIds::User)));
    for chosen in [post("7"), external("urn:7")] {
        for status in [201, 200] {
            assert_eq!(lenient.ask(&tokens::token("ann"), "POST", "/v1/posts", Some(&chosen)).status, status);
        }
    }
}

#[test]
fn only_the_source_and_server_keys_see_the_cost_of_a_source() {
    let world = World::new();
    world.publish(&json!({"author": "ann", "id": "45", "body": 0}));
    let cost = |credential: &str, reader: &str, id: &str| {
        world.ask(credential, "GET", &format!("/v1/users/{reader}/feed/explain/{id}"), None).json()["cost"].clone()
    };
    assert!(cost(SERVER_KEY, "ann", BY_TAG).is_object());
    assert!(cost(&tokens::token("ann"), "ann", BY_TAG).is_null());
    assert!(cost(&tokens::token("ann"), "ann", "45").is_object());
}

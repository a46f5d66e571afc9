//! What operators and the console see of a server: the figures of the last hour, sources by their ids, the fan-out of one post, slow
//! requests, and the use of keys.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::limits::{FANOUT_RECORDS_MAX, REPOSTS_LISTED_MAX};
use tidewire_server::http::auth::Access;
use tidewire_server::http::auth::key::{KeyScope, hash};
use tidewire_server::http::auth::keys::{Keys, TokenKey};
use tidewire_server::http::history::History;
use tidewire_server::http::noted_requests::NOTED_REQUESTS_MAX;
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, METRICS_KEY, SERVER_KEY, bearer};
use crate::server::Server;
use testkit::world::{above, config};

/// A server whose history has a sample for each `period`.
fn with_history(period: Duration) -> Server {
    let engine = Engine::start(config(2, above(100)));
    Server::serving(HttpState { history: Arc::new(History::new(period)), ..HttpState::from(engine.clone()) }, engine)
}

fn follow(server: &Server, reader: &str, source: &str) {
    let answer = server.send("PUT", &format!("/v1/users/{reader}/following/{source}"), None, "");
    assert_eq!(answer.status, 201, "{}", answer.text);
}

/// Publishes a post and waits for its delivery. Returns its id.
fn publish(server: &Server, post: &Value) -> String {
    let answer = server.post("/v1/posts?wait=delivered", post);
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn wake(server: &Server, reader: &str) {
    assert_eq!(server.get(&format!("/v1/users/{reader}/feed")).status, 200);
}

/// The lengths of all columns.
fn lengths(value: &Value, found: &mut Vec<usize>) {
    match value {
        Value::Array(column) => found.push(column.len()),
        Value::Object(members) => members.values().for_each(|member| lengths(member, found)),
        _ => {}
    }
}

/// The number of samples of an answer. All of its columns have to have as many.
fn samples(answer: &Value) -> usize {
    let mut found = Vec::new();
    lengths(answer, &mut found);
    assert!(found.len() >= 24 && found.iter().all(|length| *length == found[0]), "{answer}");
    found[0]
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value > 0.0)
}

#[test]
fn the_history_has_figures_per_interval_and_later_answers_only_new_samples() {
    let server = with_history(Duration::from_millis(50));
    follow(&server, "ann", "bob");
    wake(&server, "ann");
    let first = server.get("/v1/stats/history").json();
    assert_eq!(
        (&first["reset"], &first["node"], &first["interval_seconds"]),
        (&json!(true), &Value::Null, &json!(0.05))
    );
    let mut known = samples(&first);
    let mut next = first["next"].as_str().unwrap().to_owned();
    let columns = ["pages_per_second", "posts_per_second", "deliveries_per_second", "page_p50_us", "page_p99_us"];
    let more = ["fanout_p50_us", "fanout_p99_us", "publish_p50_us", "publish_p99_us", "active", "connections"];
    let mut missing: Vec<&str> = columns.into_iter().chain(more).collect();
    let (mut has_refusal, mut has_requests) = (false, false);
    eventually("the history has everything that happened", || {
        publish(&server, &json!({"author": "bob", "body": 1}));
        wake(&server, "ann");
        assert_eq!(server.get("/v1/users/ann/feed?limit=0").json()["code"], "invalid_parameter");
        let newer = server.get(&format!("/v1/stats/history?since={next}")).json();
        assert_eq!(newer["reset"], json!(false), "{newer}");
        known += samples(&newer);
        next = newer["next"].as_str().unwrap().to_owned();
        let values = |name: &str| newer[name].as_array().unwrap().clone();
        missing.retain(|name| !values(name).iter().any(is_positive));
        let refused = &newer["refusals_per_second"]["invalid_parameter"];
        has_refusal |= refused.as_array().is_some_and(|values| values.iter().any(is_positive));
        let of_class = |class: &str| newer["requests_per_second"][class].as_array().unwrap().iter().any(is_positive);
        has_requests |= ["reads", "writes", "other"].into_iter().all(of_class);
        for (p50, p99) in values("page_p50_us").iter().zip(values("page_p99_us")) {
            assert!(p50.as_f64() <= p99.as_f64() && p50.is_null() == p99.is_null(), "{newer}");
        }
        let has_all = missing.is_empty() && has_refusal && has_requests;
        if has_all { Ok(()) } else { Err(format!("{missing:?} {has_refusal} {has_requests}")) }
    });
    let all = server.get("/v1/stats/history").json();
    assert!(samples(&all) >= known && known > 0, "{} of {known}", samples(&all));
    assert!(all["at_seconds"].as_array().unwrap().is_sorted_by(|a, b| a.as_f64() < b.as_f64()), "{all}");
    let stats = server.get("/v1/stats").json();
    let (shown, queues) = (all["queues"].as_object().unwrap(), stats["queues"].as_object().unwrap());
    assert!(shown.keys().eq(queues.keys()), "{shown:?}");
    let last = |part: &str| all["memory_bytes"][part].as_array().unwrap().last().unwrap().clone();
    assert!(is_positive(&last("resident")) && is_positive(&last("posts")) && is_positive(&last("sources")), "{all}");
    // Nothing happens any more: no percentile is left over from before.
    eventually("a time without pages has no percentiles", || {
        let newest = server.get("/v1/stats/history").json();
        let last = |column: &str| newest[column].as_array().unwrap().last().unwrap().clone();
        (last("pages_per_second") == json!(0.0) && last("page_p99_us").is_null() && last("fanout_p50_us").is_null())
            .then_some(())
    });
}

#[test]
fn the_history_covers_an_hour_and_reports_a_reset() {
    let server = with_history(Duration::from_millis(1));
    let early = eventually("a first sample", || {
        let answer = server.get("/v1/stats/history").json();
        (samples(&answer) > 0).then(|| answer["next"].as_str().unwrap().to_owned())
    });
    let taken = |next: &str| next.split_once('-').unwrap().1.parse::<usize>().unwrap();
    let full = eventually("more samples than are kept", || {
        let answer = server.get("/v1/stats/history").json();
        (taken(answer["next"].as_str().unwrap()) > 720 + taken(&early)).then_some(answer)
    });
    assert_eq!((samples(&full), &full["samples_max"]), (720, &json!(720)));
    let (epoch, _) = early.split_once('-').unwrap();
    for (since, resets) in [(early.as_str(), true), ("0-7", true), (&format!("{epoch}-9999999999"), true)] {
        let answer = server.get(&format!("/v1/stats/history?since={since}")).json();
        assert_eq!((&answer["reset"], samples(&answer)), (&json!(resets), 720), "{since}");
    }
    for wrong in ["", "-", "7", "x-1", "1-x", "1--1", "+1-1", "11111111111111111-1", "1-11111111111111111111", "1-1-1"]
    {
        let refused = server.get(&format!("/v1/stats/history?since={}", wrong.replace('+', "%2B")));
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_parameter")), "{wrong:?}");
    }
}

#[test]
fn the_day_history_has_one_sample_per_24_and_its_own_positions() {
    let server = with_history(Duration::from_millis(2));
    let ask = |query: &str| server.get(&format!("/v1/stats/history{query}")).json();
    let day = eventually("two samples of the day", || {
        let day = ask("?span=day");
        (samples(&day) >= 2).then_some(day)
    });
    assert_eq!((&day["interval_seconds"], &day["reset"]), (&json!(0.048), &json!(true)));
    let times = day["at_seconds"].as_array().unwrap();
    let apart = times[1].as_f64().unwrap() - times[0].as_f64().unwrap();
    assert!(apart >= 0.040, "{apart} s: the sum of 24 periods");
    let next = day["next"].as_str().unwrap();
    assert_eq!(ask(&format!("?span=day&since={next}"))["reset"], json!(false));
    assert_eq!(ask(&format!("?span=hour&since={next}"))["reset"], json!(true), "it is not of the hour");
    assert_eq!(ask("?span=hour")["interval_seconds"], ask("")["interval_seconds"]);
    assert_eq!(ask("?span=week")["code"], "invalid_parameter");
}

#[test]
fn the_last_refused_requests_are_listed_without_user_data() {
    let server = Server::of(Engine::start(EngineConfig::default()));
    server.ask("GET", "/v1/users/secret-name/feed?limit=0", &[("x-request-id", "my-id-8")], "");
    server.get("/v1/secret-name");
    server.get("/v1/users/secret-name/feed");
    assert_eq!(server.get("/readyz?for=reads").status, 400, "a probe takes the place of no other");
    let refused = server.get("/v1/operations").json()["refused_requests"].clone();
    assert_eq!(refused["count"], json!(2), "{refused}");
    let shown =
        |nth: usize| ["operation", "route", "method", "code", "status"].map(|name| refused["items"][nth][name].clone());
    assert_eq!(json!(shown(0)), json!([null, null, null, "not_found", 404]));
    assert_eq!(json!(shown(1)), json!(["read_feed", "/v1/users/{user}/feed", "GET", "invalid_parameter", 400]));
    assert_eq!(refused["items"][1]["request_id"], "my-id-8");
    assert!(!refused.to_string().contains("secret-name"), "{refused}");
    for _ in 0..NOTED_REQUESTS_MAX {
        server.get("/v1/nowhere");
    }
    let refused = server.get("/v1/operations").json()["refused_requests"].clone();
    assert_eq!(refused["count"], json!(NOTED_REQUESTS_MAX + 2));
    assert_eq!(refused["items"].as_array().unwrap().len(), NOTED_REQUESTS_MAX);
}

#[test]
fn a_single_server_refuses_requests_for_other_nodes() {
    let server = Server::of(Engine::start(EngineConfig::default()));
    for path in ["/v1/stats?node=a", "/v1/stats/history?node=a", "/v1/operations?node=a"] {
        let refused = server.get(path);
        assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("no_cluster")), "{path}");
    }
}

#[test]
fn sources_are_found_by_id_prefix_with_the_most_followed_first() {
    let server = Server::of(Engine::start(config(2, above(100))));
    let find = |query: &str| {
        let answer = server.get(&format!("/v1/sources{query}"));
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        answer.json()
    };
    let ids = |found: &Value| {
        let items = found["items"].as_array().unwrap().iter();
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&find("")), [""; 0], "an empty server has nobody");
    for reader in ["fay", "gus", "hal"] {
        follow(&server, reader, "anton");
    }
    follow(&server, "fay", "anna");
    follow(&server, "ANDY", "tag:anything");
    follow(&server, "an", "topic:ann");
    // Nobody is awake: those who follow somebody, in the order of their ids.
    assert_eq!(ids(&find("")), ["ANDY", "an", "fay", "gus", "hal"]);
    assert_eq!(ids(&find("?prefix=an")), ["an", "anton", "anna", "ANDY"]);
    wake(&server, "ANDY");
    let found = find("?prefix=An");
    assert_eq!(ids(&found), ["ANDY", "anton", "anna", "an"], "those awake first, and no id is the same");
    assert_eq!((&found["complete"], &found["examined"]), (&json!(true), &json!(9)));
    let first = &found["items"][0];
    assert_eq!((&first["kind"], &first["active"], &first["following"]), (&json!("user"), &json!(true), &json!(1)));
    assert!(first["last_seen"].is_string() && found["items"][1]["last_seen"].is_null(), "{found}");
    assert_eq!(ids(&find("?prefix=an&limit=2")), ["an", "ANDY"]);
    assert_eq!(ids(&find("?prefix=tag:an")), ["tag:anything"]);
    assert_eq!(ids(&find("?prefix=topic")), ["topic:ann"]);
    assert_eq!(ids(&find("?kind=tag")), ["tag:anything"]);
    assert_eq!(ids(&find("?prefix=an&kind=topic")), [""; 0]);
    assert_eq!(ids(&find("?prefix=%C3%A4")), [""; 0], "no id has that");
    assert_eq!(ids(&find("")), ["ANDY"], "who is awake is suggested");
    wake(&server, "fay");
    assert_eq!(ids(&find("?kind=user")), ["fay", "ANDY"], "who read last is first");
    for wrong in ["limit=0", "limit=51", "limit=x", "kind=users", &format!("prefix={}", "x".repeat(135))] {
        let refused = server.get(&format!("/v1/sources?{wrong}"));
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_parameter")), "{wrong}");
    }
    assert_eq!(server.send("DELETE", "/v1/users/anton", None, "").status, 202);
    assert_eq!(ids(&find("?prefix=anton")), [""; 0], "who is erased is not found");
}

#[test]
fn among_many_sources_those_with_the_most_followers_are_kept() {
    let server = Server::of(Engine::start(config(1, above(100))));
    let edges = (0..3_000).flat_map(|source| (0..source % 7).map(move |reader| (reader, source)));
    let edges: Vec<Value> = edges
        .map(|(reader, source)| json!({"follower": format!("r{reader}"), "source": format!("s{source:04}")}))
        .collect();
    assert_eq!(server.post("/v1/follows", &json!({"follows": edges})).status, 200);
    let found = server.get("/v1/sources?prefix=s&limit=50").json();
    let found: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    let expected: Vec<String> =
        (0..3_000).filter(|source| source % 7 == 6).take(50).map(|source| format!("s{source:04}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_fanout_of_a_post_counts_pushed_sleeping_and_pulling_readers() {
    let server = Server::of(Engine::start(config(2, above(5))));
    for reader in ["ann", "cas", "dan", "eve"] {
        follow(&server, reader, "bob");
    }
    for nth in 0..7 {
        follow(&server, &format!("fan{nth}"), "tag:tea");
    }
    follow(&server, "ann", "topic:42");
    wake(&server, "ann");
    wake(&server, "cas");
    let post = publish(&server, &json!({"author": "bob", "body": 1, "tags": ["tea"], "topic": "42"}));
    let fanout = |post: &str| server.get(&format!("/v1/posts/{post}/fanout"));
    let answer = fanout(&post).json();
    let source = |id: &str, route: &str, followers: usize| json!({"id": id, "route": route, "followers": followers, "decided_by": "followers"});
    let expected = json!({
        "state": "delivered", "author": "bob", "post": post,
        "sources": [source("bob", "push", 4), source("tag:tea", "pull", 7), source("topic:42", "push", 1)],
        "followers": 12, "pulled": 7, "awake": 3, "pushed": 2, "already_there": 1, "asleep": 2,
        "reposts": {"count": 0, "complete": true, "items": []},
    });
    for (name, expected) in expected.as_object().unwrap() {
        assert_eq!(&answer[name], expected, "{name}: {answer}");
    }
    let after = ["started_after_us", "first_delivery_after_us", "finished_after_us"].map(|name| answer[name].as_u64());
    assert!(after.is_sorted() && after[0].is_some(), "{answer}");
    // A follower that comes later changes nothing of it.
    follow(&server, "zoe", "bob");
    assert_eq!(fanout(&post).json()["followers"], json!(12));

    let asleep = publish(&server, &json!({"author": "dan", "body": 2}));
    let answer = fanout(&asleep).json();
    assert_eq!(
        (&answer["state"], &answer["followers"], &answer["pushed"]),
        (&json!("delivered"), &json!(0), &json!(0))
    );
    assert!(answer["first_delivery_after_us"].is_null() && answer["finished_after_us"].is_u64(), "{answer}");
    for code in ["7", "18446744073709551615"] {
        assert_eq!((fanout(code).status, &fanout(code).json()["code"]), (404, &json!("unknown_post")));
    }
    assert_eq!(server.send("DELETE", &format!("/v1/posts/{asleep}"), None, "").status, 204);
    assert_eq!(fanout(&asleep).status, 404, "a deleted post has no record");
    assert_eq!(fanout("x").json()["code"], json!("invalid_path"));
}

#[test]
fn a_post_that_no_source_pushes_is_pulled_by_all() {
    let pulls =
        EngineConfig { celebrity: tidewire::feed::celebrity::CelebrityPolicy::PullAll, ..EngineConfig::default() };
    let server = Server::of(Engine::start(pulls));
    follow(&server, "ann", "bob");
    wake(&server, "ann");
    let post = publish(&server, &json!({"author": "bob", "body": 1}));
    let answer = server.get(&format!("/v1/posts/{post}/fanout")).json();
    let figures = ["state", "followers", "pulled", "awake", "pushed", "asleep"].map(|name| answer[name].clone());
    assert_eq!(json!(figures), json!(["pulled", 1, 1, 0, 0, 0]), "{answer}");
    assert_eq!(answer["sources"][0]["decided_by"], json!("setting"));
}

#[test]
fn reposts_of_a_post_are_listed_newest_first_up_to_the_page_limit() {
    let server = Server::of(Engine::start(config(2, above(100))));
    let post = publish(&server, &json!({"author": "bob", "body": 1}));
    let count = REPOSTS_LISTED_MAX + 5;
    let reposts: Vec<String> = (0..count)
        .map(|nth| {
            publish(&server, &json!({"author": format!("u{nth}"), "body": 1, "repost_of": post, "tags": ["a", "b"]}))
        })
        .collect();
    let hidden = reposts.last().unwrap();
    let answer = server.json("PATCH", &format!("/v1/posts/{hidden}"), &json!({"hidden": true}));
    assert_eq!(answer.status, 200);
    let listed = || server.get(&format!("/v1/posts/{post}/fanout")).json()["reposts"].clone();
    let told = listed();
    assert_eq!((&told["count"], &told["complete"]), (&json!(count), &json!(true)), "a repost with tags counts once");
    let items = told["items"].as_array().unwrap();
    let ids: Vec<_> = items.iter().map(|item| item["post"].as_str().unwrap()).collect();
    assert!(ids.iter().eq(reposts.iter().rev().take(REPOSTS_LISTED_MAX)), "{told}");
    assert_eq!((&items[0]["hidden"], &items[1]["hidden"]), (&json!(true), &json!(false)));
    assert_eq!(items[0]["user"], json!(format!("u{}", count - 1)));
    assert_eq!(server.send("DELETE", &format!("/v1/users/u{}", count - 1), None, "").status, 202);
    eventually("who is erased is not named", || {
        (listed()["items"][0]["user"] == json!(format!("u{}", count - 2))).then_some(())
    });
}

#[test]
fn only_the_last_posts_have_a_fanout_record() {
    let server = Server::of(Engine::start(config(2, above(100))));
    follow(&server, "ann", "bob");
    let old = publish(&server, &json!({"author": "bob", "body": 1}));
    let kept = publish(&server, &json!({"author": "bob", "body": 2}));
    let posts: Vec<Value> = (1..FANOUT_RECORDS_MAX).map(|nth| json!({"author": "bob", "body": nth})).collect();
    for batch in posts.chunks(500) {
        assert_eq!(server.post("/v1/posts/batch", &json!({"posts": batch})).status, 200);
    }
    assert_eq!(server.get(&format!("/v1/posts/{kept}/fanout")).json()["state"], json!("delivered"));
    let answer = server.get(&format!("/v1/posts/{old}/fanout")).json();
    assert_eq!((&answer["state"], &answer["sources"]), (&json!("gone"), &json!([])));
    for unknown in ["followers", "pulled", "awake", "pushed", "already_there", "asleep", "finished_after_us"] {
        assert!(answer[unknown].is_null(), "{unknown}: {answer}");
    }
    assert!(answer["accepted_at"].is_string() && answer["reposts"]["count"] == json!(0), "{answer}");
}

#[test]
fn the_last_slow_requests_are_listed_without_user_data() {
    let engine = Engine::start(EngineConfig::default());
    let state = HttpState { slow: Duration::ZERO, ..HttpState::from(engine.clone()) };
    let server = Server::serving(state, engine);
    server.ask("GET", "/v1/users/secret-name/feed?limit=7", &[("x-request-id", "my-id-7")], "");
    assert_eq!(server.get("/v1/users/secret-name/feed?limit=0").status, 400);
    // A request for a stream may be held before it is answered.
    assert_eq!(server.get("/v1/changes").status, 409);
    let answer = server.get("/v1/operations");
    assert!(!answer.text.contains("secret-name") && !answer.text.contains("limit"), "{}", answer.text);
    let answer = answer.json();
    let slow = &answer["slow_requests"];
    assert_eq!((&slow["threshold_ms"], &slow["count"]), (&json!(0), &json!(2)));
    let route = "/v1/users/{user}/feed";
    for (item, (status, id)) in slow["items"].as_array().unwrap().iter().zip([(400, None), (200, Some("my-id-7"))]) {
        assert_eq!(item["operation"], json!("read_feed"));
        assert_eq!((&item["method"], &item["route"], &item["status"]), (&json!("GET"), &json!(route), &json!(status)));
        assert!(id.is_none_or(|id| item["request_id"] == id), "{item}");
    }
    for _ in 0..NOTED_REQUESTS_MAX + 5 {
        server.get("/v1/users/ann/feed");
    }
    let answer = server.get("/v1/operations").json();
    assert_eq!(answer["slow_requests"]["items"].as_array().unwrap().len(), NOTED_REQUESTS_MAX);
    assert!(answer["slow_requests"]["count"].as_u64().unwrap() > NOTED_REQUESTS_MAX as u64, "{answer}");
    assert!(answer["keys"].is_null(), "a server without keys has none to show");
}

fn keys(of: &[(&str, &str)]) -> Keys {
    let mut keys = Keys::default();
    for (name, key) in of {
        keys.add_server_named(Some(name), hash(key), KeyScope::All);
    }
    keys.add_token(TokenKey::hs256(&tokens::SECRET, None).named("sign-in"));
    keys
}

#[test]
fn each_key_has_a_usage_count_that_survives_a_reload() {
    let engine = Engine::start(EngineConfig::default());
    let access = Arc::new(Access::by(keys(&[("app", SERVER_KEY), ("other", METRICS_KEY)])));
    let server = Server::serving(HttpState { access: Arc::clone(&access), ..HttpState::from(engine.clone()) }, engine);
    let ask = |path: &str, credential: &str| server.ask("GET", path, &[("authorization", &bearer(credential))], "");
    let told = || {
        let answer = ask("/v1/operations", SERVER_KEY);
        assert!(!answer.text.contains(SERVER_KEY) && !answer.text.contains(METRICS_KEY), "{}", answer.text);
        answer.json()["keys"].as_array().unwrap().clone()
    };
    let used = |keys: &[Value]| {
        let figures = |key: &Value| (key["name"].as_str().unwrap().to_owned(), key["requests"].as_u64().unwrap());
        keys.iter().map(figures).collect::<Vec<_>>()
    };
    let named =
        |figures: &[(&str, u64)]| figures.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>();
    assert_eq!(used(&told()), named(&[("app", 1), ("other", 0), ("sign-in", 0)]));
    for _ in 0..3 {
        assert_eq!(ask("/v1/users/ann/feed", &tokens::token("ann")).status, 200);
    }
    assert_eq!(ask("/v1/users/ann/feed", &tokens::expired("ann")).status, 401, "this is no use of the key");
    let keys_now = told();
    assert_eq!(used(&keys_now), named(&[("app", 2), ("other", 0), ("sign-in", 3)]));
    assert_eq!((&keys_now[0]["kind"], &keys_now[0]["scope"]), (&json!("server"), &json!("all")));
    assert_eq!((&keys_now[2]["kind"], &keys_now[2]["scope"]), (&json!("token"), &Value::Null));
    assert!(keys_now[2]["last_used"].is_string() && keys_now[1]["last_used"].is_null(), "{keys_now:?}");
    access.replace(keys(&[("new", "tidewire_a-new-key"), ("app", SERVER_KEY)]));
    assert_eq!(used(&told()), named(&[("new", 0), ("app", 3), ("sign-in", 3)]));
}

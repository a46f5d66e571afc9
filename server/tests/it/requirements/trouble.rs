//! What holds in every mode, under load, after a crash and for operators.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::recovery::RecoveryProgress;
use tidewire_server::http::admission::AdmissionLimits;

use super::{all, feed, figure, follow_all, numbers, walk};
use crate::overload::{begun_publish, is_refused, status as answered, stuck, wait_for};
use crate::personal::{bodies, follow, posts, publish};
use crate::program::Program;
use crate::server::Server;
use testkit::world::{above, config, some};

#[test]
fn r19_push_pull_and_hybrid_are_chosen_by_configuration_and_show_the_same_feed() {
    let table: [(&str, CelebrityPolicy, u64, [bool; 2]); 3] = [
        // Deliveries of four posts by someone with three followers and four by someone with one; who of them is a celebrity.
        ("push only", CelebrityPolicy::PushAll, 4 * 3 + 4, [false, false]),
        ("hybrid", above(2), 4, [true, false]),
        ("pull only", CelebrityPolicy::PullAll, 0, [true, true]),
    ];
    for (mode, policy, deliveries, celebrities) in table {
        let server = Server::start(config(2, policy));
        follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
        ["ann", "eve", "fay"].iter().for_each(|reader| assert_eq!(bodies(&server, &feed(reader)), [0; 0]));
        for body in 0..8 {
            publish(&server, ["star", "bob"][body as usize % 2], body, &json!({}));
        }
        assert_eq!(figure(&server, "deliveries"), deliveries, "{mode}");
        assert_eq!(all(&server, "ann"), [7, 6, 5, 4, 3, 2, 1, 0], "{mode}");
        assert_eq!(all(&server, "eve"), [6, 4, 2, 0], "{mode}");
        let is_celebrity = |source| server.get(&format!("/v1/users/{source}")).json()["celebrity"] == json!(true);
        assert_eq!(["star", "bob"].map(is_celebrity), celebrities, "{mode}");
    }
}

#[test]
fn r21_an_overloaded_server_refuses_the_excess_and_serves_the_rest() {
    let (server, let_go) = stuck(AdmissionLimits { writes: 4, ..AdmissionLimits::default() });
    let accepted = [(); 4].map(|()| begun_publish(&server));
    wait_for(&server, "writes", 4);
    let excess = || server.post("/v1/posts", &json!({"id": "7", "author": "bob", "body": 1}));
    for _ in 0..50 {
        let refused = excess();
        assert!(is_refused(&refused), "{refused:?}");
    }
    assert_eq!(server.get("/v1/posts/7").status, 404, "nothing of what was refused was done");
    assert_eq!(server.get(&feed("ann")).status, 200, "reads go on");
    assert_eq!(server.get("/readyz").status, 200);
    drop(let_go);
    assert_eq!(accepted.map(|socket| answered(&socket)), [201; 4], "what was let in is served");
    wait_for(&server, "writes", 0);
    assert_eq!(excess().status, 201, "what comes again is served as well");
    assert_eq!(bodies(&server, "/v1/users/ann/posts"), [1; 4]);
    assert_eq!(server.get("/v1/stats").json()["admission"]["writes"]["refused"], json!(50));
}

fn send(program: &Program, method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", program.url));
    let mut answer = if body.is_empty() {
        program.agent.run(request.body(()).unwrap()).unwrap()
    } else {
        program.agent.run(request.header("content-type", "application/json").body(body.to_owned()).unwrap()).unwrap()
    };
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
}

#[test]
fn r22_acknowledged_posts_deletes_and_follow_edits_survive_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    let ask = |program: &Program, method: &str, path: &str| send(program, method, path, "").0;
    for source in ["bob", "cas", "dan"] {
        assert_eq!(ask(&program, "PUT", &format!("/v1/users/ann/following/{source}")), 201);
    }
    for body in 1..=9 {
        let post = json!({"id": body.to_string(), "author": (["bob", "cas", "dan"][body % 3]), "body": body});
        assert_eq!(send(&program, "POST", "/v1/posts", &post.to_string()).0, 201);
    }
    // Between here and there an inbox was built, which is not what survives.
    assert_eq!(program.get(&feed("ann")).unwrap().0, 200);
    assert_eq!(ask(&program, "DELETE", "/v1/posts/9"), 204);
    assert_eq!(ask(&program, "DELETE", "/v1/users/ann/following/cas"), 204);
    assert_eq!(send(&program, "PATCH", "/v1/posts/8", r#"{"body":80}"#).0, 200);
    let read = |program: &Program| numbers(program.get(&feed("ann")).unwrap().1["items"].as_array().unwrap());
    let expected = [80, 6, 5, 3, 2];
    assert_eq!(read(&program), expected);
    program.kill();
    let program = Program::start(directory.path(), &[]);
    assert_eq!(read(&program), expected);
    assert_eq!(program.get("/v1/posts/9").unwrap().0, 404);
    let following = program.get("/v1/users/ann/following").unwrap().1;
    assert_eq!(crate::personal::ids(&following), ["dan", "bob"]);
    let verdict = send(&program, "POST", "/v1/users/ann/feed/verify", "").1;
    assert_eq!(verdict["good"], json!(true), "inboxes can always be rebuilt: {verdict}");
    program.kill();
}

fn kept_in(directory: &Path) -> Server {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    let small = EngineConfig { outbox_posts: some(4), inbox_posts: some(5), ..config(2, above(2)) };
    // A process that another test is just starting has a copy of the lock until it has begun.
    let open = || Engine::open(small.clone(), &storage, Arc::new(SystemClock), &RecoveryProgress::default());
    Server::of(eventually("the directory is free", open).0)
}

#[test]
fn r24_posts_too_old_for_memory_are_read_from_a_second_level_by_the_same_api() {
    let directory = tempfile::tempdir().unwrap();
    let server = kept_in(directory.path());
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
    let mut published = Vec::new();
    for body in 0..60 {
        published.push(publish(&server, ["star", "bob"][body as usize % 2], body, &json!({})));
    }
    eventually("old posts leave memory", || figure(&server, "posts") <= 16);
    let expected: Vec<u64> = (0..60).rev().collect();
    let check = |server: &Server, expected: &[u64]| {
        assert_eq!(numbers(&walk(server, &feed("ann"), 9)), expected);
        let own: Vec<u64> = expected.iter().copied().filter(|body| body % 2 == 1).collect();
        assert_eq!(numbers(&walk(server, "/v1/users/bob/posts", 9)), own);
    };
    check(&server, &expected);
    let metrics = server.get("/metrics").text;
    let archived = metrics.lines().find_map(|line| line.strip_prefix("tidewire_archive_pages_total "));
    assert!(archived.unwrap().parse::<f64>().unwrap() > 0.0, "pages came from there");
    let old = format!("/v1/posts/{}", published[1]);
    assert_eq!(server.get(&old).json()["body"], json!(1));
    assert_eq!(server.json("PATCH", &old, &json!({"body": 61})).status, 200);
    assert_eq!(server.send("DELETE", &format!("/v1/posts/{}", published[3]), None, "").status, 204);
    let mut expected: Vec<u64> = expected.into_iter().filter(|body| *body != 3).collect();
    expected[57] = 61;
    check(&server, &expected);
    drop(server);
    check(&kept_in(directory.path()), &expected);
}

#[test]
fn n12_operators_inspect_verify_and_rebuild_a_feed_and_see_memory_and_latency() {
    let server = Server::start(config(2, CelebrityPolicy::PushAll));
    follow(&server, "ann", "bob");
    server.get(&feed("ann"));
    posts(&server, "bob", 1..=5);
    for what in ["verify", "rebuild", "verify"] {
        let verdict = server.send("POST", &format!("/v1/users/ann/feed/{what}"), None, "").json();
        let figures = ["good", "entries", "rebuilt"].map(|name| verdict[name].clone());
        assert_eq!(figures, [json!(true), json!(5), json!(5)], "{what}");
    }
    assert_eq!(bodies(&server, &feed("ann")), [5, 4, 3, 2, 1]);
    let stats = server.get("/v1/stats").json();
    assert!(stats["memory"]["resident_bytes"].as_u64() > Some(0));
    let latency = &stats["fanout_latency"][0];
    assert_eq!((&latency["followers"], &latency["count"]), (&json!("1-9"), &json!(5)), "{stats}");
}

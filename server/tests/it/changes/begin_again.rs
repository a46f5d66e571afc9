//! A consumer begins again as `docs/changes.md` says, while others write. Its copy is then equal to what the server has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use testkit::{OnDrop, eventually};

use super::{server, with};
use crate::server::Server;
use tidewire::config::EngineConfig;

const USERS: [&str; 6] = ["ann", "bob", "cas", "dan", "eve", "fay"];

/// Posts with their bodies, and who follows whom.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Copy {
    posts: BTreeMap<String, Value>,
    follows: BTreeSet<(String, String)>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Reads all pages of a list. Each page names the place of the next one.
fn pages(server: &Server, path: &str, next: &str, items: &str, mut each: impl FnMut(&Value)) {
    let mut place = String::new();
    loop {
        let page = server.get(&format!("{path}limit=3{place}"));
        assert_eq!(page.status, 200, "{}", page.text);
        let page = page.json();
        page[items].as_array().unwrap().iter().for_each(&mut each);
        match page["next"].as_str() {
            Some(found) => place = format!("&{next}={found}"),
            None => return,
        }
    }
}

impl Copy {
    /// Reads what there is.
    fn read(server: &Server) -> Self {
        let mut copy = Self::default();
        pages(server, "/v1/posts/all?", "after", "posts", |post| {
            copy.posts.insert(text(&post["id"]), post.clone());
        });
        let mut users = Vec::new();
        pages(server, "/v1/users?", "cursor", "items", |user| users.push(text(&user["id"])));
        for user in users {
            for hidden in ["", "hidden=true&"] {
                pages(server, &format!("/v1/users/{user}/following?{hidden}"), "cursor", "items", |source| {
                    copy.follows.insert((user.clone(), text(&source["id"])));
                });
            }
        }
        copy
    }

    /// Processes a change, as the documents say.
    fn process(&mut self, server: &Server, change: &Value) {
        let edge = |edge: &Value| (text(&edge["follower"]), text(&edge["source"]));
        match change["type"].as_str().unwrap() {
            "published" => drop(self.posts.insert(text(&change["post"]["id"]), change["post"].clone())),
            "edited" => {
                let post = server.get(&format!("/v1/posts/{}", text(&change["id"])));
                if post.status == 200 {
                    self.posts.insert(text(&change["id"]), post.json());
                }
            }
            "deleted" => drop(self.posts.remove(change["id"].as_str().unwrap())),
            "followed" => self.follows.extend(change["follows"].as_array().unwrap().iter().map(edge)),
            "unfollowed" => drop(self.follows.remove(&edge(change))),
            "erased" => {
                let user = change["user"].as_str().unwrap();
                self.posts.retain(|_, post| post["author"] != user);
                self.follows.retain(|(follower, source)| follower != user && source != user);
            }
            _ => {}
        }
    }
}

/// Writes until it is over.
fn write(server: &Server, is_over: &AtomicBool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut posts: Vec<String> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let (one, other) = (random.choice(USERS).unwrap(), random.choice(USERS).unwrap());
        let post = random.choice(posts.iter()).cloned().unwrap_or_default();
        let edge = format!("/v1/users/{one}/following/{other}");
        match random.u8(0..12) {
            0..=3 => {
                let answer = server.post("/v1/posts", &json!({"author": one, "body": random.u32(..)}));
                posts.extend(answer.json()["id"].as_str().map(str::to_owned));
            }
            4 | 5 => drop(server.json("PATCH", &format!("/v1/posts/{post}"), &json!({"body": random.u32(..)}))),
            6 => drop(server.ask("DELETE", &format!("/v1/posts/{post}"), &[], "")),
            7 | 8 => drop(server.json("PUT", &edge, &json!({"hidden": random.bool()}))),
            9 | 10 => drop(server.ask("DELETE", &edge, &[], "")),
            _ if random.u8(0..8) == 0 => drop(server.ask("DELETE", &format!("/v1/users/{one}"), &[], "")),
            _ => drop(server.post("/v1/snapshots", &json!({}))),
        }
    }
}

#[test]
fn a_copy_read_during_writes_is_exact_after_applying_later_changes() {
    let server = with(EngineConfig { changes_retention_bytes: 1 << 30, ..EngineConfig::default() });
    let is_over = AtomicBool::new(false);
    let (place, mut copy) = thread::scope(|scope| {
        let writers = [1, 2].map(|seed| {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || write(server, is_over, seed))
        });
        let ends = OnDrop(|| is_over.store(true, Ordering::Relaxed));
        let many = || Copy::read(&server).posts.len() > 40;
        eventually("there is much to read", many);
        let registered = server.json("PUT", "/v1/changes/consumers/copy", &json!({}));
        assert_eq!(registered.status, 200, "{}", registered.text);
        let place = registered.json()["sequence"].as_u64().unwrap();
        let copy = Copy::read(&server);
        // One line for each change that has come meanwhile.
        let last = || {
            let changes = server.get("/v1/changes").text;
            let last: Value = serde_json::from_str(changes.lines().last()?).unwrap();
            last["sequence"].as_u64()
        };
        eventually("much is written afterwards", || last() > Some(place + 100));
        drop(ends);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        (place, copy)
    });
    eventually("the erasures end", || server.engine.erasures().count == 0);
    let changes = server.get(&format!("/v1/changes?after={place}&limit=100000")).text;
    for change in changes.lines() {
        copy.process(&server, &serde_json::from_str(change).unwrap());
    }
    let there = Copy::read(&server);
    assert_eq!(copy.follows, there.follows);
    assert_eq!(copy.posts, there.posts);
}

#[test]
fn the_first_page_of_users_includes_every_user_who_exists_at_that_time() {
    let server = server();
    for user in USERS {
        assert_eq!(server.json("PUT", &format!("/v1/users/{user}/following/zed"), &json!({})).status, 201);
        let mut users = Vec::new();
        pages(&server, "/v1/users?", "cursor", "items", |found| users.push(text(&found["id"])));
        assert!(users.contains(&user.to_owned()), "{user} in {users:?}");
    }
}

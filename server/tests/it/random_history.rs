//! The server against the naive oracle, by random histories over HTTP: all feeds are what a naive computation says.
#![allow(clippy::print_stdout, reason = "the seed of a failed run")]

use testkit::{PageCount, eventually, seed};

use fastrand::Rng;
use serde_json::{Value, json};
use tidewire::clock::UnixMicros;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::rules::{Replies, RulesPatch};

use crate::server::Server;
use testkit::oracle::{NaivePost, Oracle};
use testkit::world::{above, config};

const PEOPLE: [&str; 6] = ["ann", "bob", "cas", "dan", "eve", "fay"];

/// Changes in one history, and after how many of them all feeds are compared.
const CHANGES: usize = 160;
const CHANGES_BETWEEN_CHECKS: usize = 20;

/// The first publish time, in microseconds. Posts are published at random times after it, so many are late.
const FIRST: u64 = 1_700_000_000_000_000;

struct History {
    server: Server,
    oracle: Oracle,
    random: Rng,
}

impl History {
    fn any(&mut self, of: &[&'static str]) -> &'static str {
        of[self.random.usize(..of.len())]
    }

    /// Sends a change, which must be done.
    fn send(&self, method: &str, path: &str, body: &Value) {
        let answer = if body.is_null() {
            self.server.send(method, path, None, "")
        } else {
            self.server.json(method, path, body)
        };
        assert!((200..300).contains(&answer.status), "{method} {path} {body}: {} {}", answer.status, answer.text);
    }

    /// Returns the id of a post that is not deleted.
    fn any_post(&mut self) -> Option<u64> {
        let posts: Vec<u64> = self.oracle.posts.iter().filter(|post| !post.deleted).map(|post| post.id).collect();
        (!posts.is_empty()).then(|| posts[self.random.usize(..posts.len())])
    }

    fn publish(&mut self) {
        let author = self.any(&PEOPLE);
        let (id, published_at) = (self.oracle.posts.len() as u64 + 1, FIRST + self.random.u64(..1_000_000_000));
        let body = id.to_string();
        let time = UnixMicros(published_at as i64).to_string();
        let mut post = json!({"author": author, "id": body, "body": id, "published_at": time});
        let mut sources = vec![author.to_owned()];
        if self.random.bool() {
            post["tags"] = json!(["tea"]);
            sources.push("tag:tea".to_owned());
        }
        let (mut repost_of, mut reply_to, mut answered) = (None, None, None);
        if let Some(other) = self.any_post().filter(|_| self.random.u8(..3) == 0) {
            if self.random.bool() {
                post["repost_of"] = json!(other.to_string());
                repost_of = Some(self.oracle.repeated_by(author, other).unwrap_or(other));
            } else {
                post["reply_to"] = json!(other.to_string());
                (reply_to, answered) = (Some(other), self.oracle.post(other).map(|post| post.author.clone()));
            }
        }
        self.send("POST", "/v1/posts?wait=delivered", &post);
        let (author, published_at) = (author.to_owned(), published_at as i64);
        let post = NaivePost {
            id,
            published_at,
            author,
            sources,
            body,
            repost_of,
            reply_to,
            answered,
            ..NaivePost::default()
        };
        self.oracle.posts.push(post);
    }

    fn change_post(&mut self) {
        let Some(id) = self.any_post() else { return };
        let (path, kind) = (format!("/v1/posts/{id}"), self.random.u8(..3));
        let hidden = self.random.bool();
        match kind {
            0 => self.send("DELETE", &path, &Value::Null),
            1 => self.send("PATCH", &path, &json!({"hidden": hidden})),
            _ => self.send("PATCH", &path, &json!({"body": id + 1_000_000})),
        }
        let post = self.oracle.posts.iter_mut().find(|post| post.id == id).unwrap();
        match kind {
            0 => post.deleted = true,
            1 => post.hidden = hidden,
            _ => post.body = (id + 1_000_000).to_string(),
        }
    }

    fn decide(&mut self) {
        let (reader, source) = (self.any(&PEOPLE), self.any(&PEOPLE));
        let pair = (reader.to_owned(), source.to_owned());
        if reader == source {
            return;
        }
        match self.random.u8(..4) {
            0 => {
                self.send("PUT", &format!("/v1/users/{reader}/mutes/{source}"), &Value::Null);
                self.oracle.mutes.insert(pair);
            }
            1 => {
                self.send("DELETE", &format!("/v1/users/{reader}/mutes/{source}"), &Value::Null);
                self.oracle.mutes.remove(&pair);
            }
            2 if self.random.u8(..3) == 0 => {
                self.send("PUT", &format!("/v1/users/{reader}/blocks/{source}"), &Value::Null);
                self.oracle.block(reader, source);
            }
            2 => {
                self.send("DELETE", &format!("/v1/users/{reader}/blocks/{source}"), &Value::Null);
                self.oracle.blocks.remove(&pair);
            }
            _ => {
                let (show_own, reposts) = (self.random.bool(), self.random.bool());
                let rules = json!({"show_own": show_own, "reposts": reposts, "replies": "all"});
                self.send("PATCH", &format!("/v1/users/{reader}/rules"), &rules);
                let (show_own, reposts) = (Some(show_own), Some(reposts));
                let patch = RulesPatch { show_own, reposts, replies: Some(Replies::All), ..RulesPatch::default() };
                self.oracle.change_rules(reader, patch);
            }
        }
    }

    fn follow(&mut self) {
        let follower = self.any(&PEOPLE);
        let source = if self.random.u8(..5) == 0 { "tag:tea" } else { self.any(&PEOPLE) };
        if follower == source || self.oracle.has_block(follower, source) {
            return;
        }
        let path = format!("/v1/users/{follower}/following/{source}");
        if self.random.u8(..3) > 0 {
            self.send("PUT", &path, &Value::Null);
            self.oracle.follow(follower, source);
        } else {
            self.send("DELETE", &path, &Value::Null);
            self.oracle.unfollow(follower, source);
        }
    }

    /// Erases a user, and waits until that has ended.
    fn erase(&mut self) {
        let user = self.any(&PEOPLE);
        self.oracle.erase(user);
        let erase = || self.server.send("DELETE", &format!("/v1/users/{user}"), None, "").status == 204;
        eventually("the erasure ends", erase);
    }

    fn feed(&self, reader: &str) -> Vec<(u64, String)> {
        let (mut all, mut before) = (Vec::new(), String::new());
        let mut pages = PageCount::default();
        loop {
            pages.count();
            let answer = self.server.get(&format!("/v1/users/{reader}/feed?limit=7{before}"));
            let page = answer.json();
            let items = page["items"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
            let post = |item: &Value| {
                (item["post"]["id"].as_str().unwrap().parse().unwrap(), item["post"]["body"].to_string())
            };
            all.extend(items.iter().map(post));
            let Some(next) = page["next"].as_str() else { return all };
            before = format!("&before={next}");
        }
    }

    fn check(&self, done: usize) {
        for reader in PEOPLE {
            let expected: Vec<_> =
                self.oracle.feed(reader).into_iter().map(|entry| (entry.post.0, entry.body)).collect();
            assert_eq!(self.feed(reader), expected, "feed of {reader} after {done} changes");
        }
    }
}

#[test]
fn feeds_agree_with_a_naive_computation_after_random_histories() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(2)] {
        let seed = seed();
        println!("seed {seed}, {policy:?}");
        let (server, random) = (Server::start(config(2, policy)), Rng::with_seed(seed));
        let mut history = History { server, oracle: Oracle::default(), random };
        for done in 1..=CHANGES {
            match history.random.u8(..40) {
                0..15 => history.publish(),
                15..23 => history.change_post(),
                23..31 => history.follow(),
                31..39 => history.decide(),
                _ => history.erase(),
            }
            if done % CHANGES_BETWEEN_CHECKS == 0 {
                history.check(done);
            }
        }
    }
}

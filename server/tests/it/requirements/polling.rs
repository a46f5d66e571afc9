//! Clients that ask again: what came in meanwhile, how much of it is unread, and that nothing is lost without a word.

use std::collections::BTreeSet;
use std::ops::Range;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tidewire::clock::{Clock, SystemClock};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::limits::LATE_POSTS_PER_SOURCE_MAX;

use super::{all, at, feed, follow_all, numbers, unfollow};
use crate::personal::{posts, publish, status};
use crate::server::Server;
use testkit::world::{above, config};

/// A client that follows the contract: it asks for what came after the `newest` it was given.
struct Poller {
    newest: String,
    given: BTreeSet<u64>,
}

impl Poller {
    fn start(server: &Server) -> Self {
        let page = server.get(&format!("{}?limit=100", feed("ann"))).json();
        let newest = page["newest"].as_str().unwrap().to_owned();
        Self { newest, given: numbers(page["items"].as_array().unwrap()).into_iter().collect() }
    }

    /// One poll: what came, and whether the feed has to be read again.
    fn poll(&mut self, server: &Server) -> (Vec<u64>, bool) {
        let page = server.get(&format!("{}?limit=100&after={}", feed("ann"), self.newest)).json();
        let came = numbers(page["items"].as_array().unwrap());
        page["newest"].as_str().unwrap().clone_into(&mut self.newest);
        self.given.extend(&came);
        (came, page["gap"] == json!(true))
    }
}

#[test]
fn n7_a_marker_counts_unread_posts_and_later_arrivals_of_any_time() {
    let server = Server::start(config(2, above(2)));
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob"), ("ann", "cas")]);
    let unread = || server.get("/v1/users/ann/marker").json()["unread"].clone();
    let mark = |cursor: &Value| {
        let answer = server.json("PUT", "/v1/users/ann/marker", &json!({"cursor": cursor}));
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.json()["complete"], json!(true));
        answer.json()["unread"].clone()
    };
    let delete = |post: &str| assert_eq!(status(&server, "DELETE", &format!("/v1/posts/{post}")), 204);
    let of_bob = posts(&server, "bob", 1..=6);
    let of_star = posts(&server, "star", 7..=9);
    posts(&server, "cas", 10..=12);
    assert_eq!(unread(), json!(12), "nothing was marked");
    let page = server.get(&feed("ann")).json();
    assert_eq!(mark(&page["items"][5]["cursor"]), json!(5));
    delete(&of_bob[0]);
    assert_eq!(unread(), json!(5), "what is below does not count");
    delete(&of_star[2]);
    assert_eq!(unread(), json!(4));
    assert_eq!(server.json("PATCH", "/v1/users/ann/rules", &json!({"per_source_max": 1})).status, 200);
    assert_eq!(unread(), json!(4), "a page would show two of them");
    unfollow(&server, "ann", "cas");
    assert_eq!(unread(), json!(1));
    let newest = server.get(&feed("ann")).json()["newest"].clone();
    let back = SystemClock.now().saturating_sub(Duration::from_secs(3_600));
    publish(&server, "bob", 13, &at(back));
    assert_eq!(mark(&newest), json!(1), "a late post came after that page");
    publish(&server, "star", 14, &json!({}));
    assert_eq!(unread(), json!(2));
    let newest = server.get(&feed("ann")).json()["newest"].clone();
    assert_eq!(mark(&newest), json!(0));
    posts(&server, "bob", 100..=219);
    let marker = server.get("/v1/users/ann/marker").json();
    assert_eq!((&marker["unread"], &marker["capped"]), (&json!(99), &json!(true)));
}

#[test]
fn p9_a_polling_client_receives_posts_in_any_arrival_order_or_a_gap() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(2)] {
        let server = Server::start(config(2, policy));
        follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
        publish(&server, "bob", 0, &json!({}));
        let mut client = Poller::start(&server);
        let seconds = [0, 1, 3_600, 60, 5, 86_400];
        for (body, seconds) in (1..).zip(seconds.iter().cycle().take(24)) {
            let time = SystemClock.now().saturating_sub(Duration::from_secs(*seconds));
            publish(&server, ["bob", "star", "ann"][body as usize % 3], body, &at(time));
            let (came, gap) = client.poll(&server);
            assert!(came.contains(&body) && !gap, "post {body}, {seconds} s back, {policy:?}: {came:?}");
        }
        assert_eq!(client.given, (0..25).collect::<BTreeSet<u64>>());
        // Three publish at once: a post may show while one from before it is still on its way.
        thread::scope(|scope| {
            let publish = |author: &'static str, bodies: Range<u64>| {
                let server = &server;
                scope.spawn(move || bodies.for_each(|body| drop(publish(server, author, body, &json!({})))))
            };
            let publishers =
                [publish("bob", 1_000..1_050), publish("star", 1_050..1_100), publish("ann", 1_100..1_150)];
            loop {
                let is_over = publishers.iter().all(ScopedJoinHandle::is_finished);
                let (came, gap) = client.poll(&server);
                assert!(!gap, "nothing is late");
                if is_over && came.is_empty() {
                    break;
                }
            }
        });
        assert_eq!(client.given, (0..25).chain(1_000..1_150).collect::<BTreeSet<u64>>(), "{policy:?}");
        // More of them than are remembered.
        let back = SystemClock.now().saturating_sub(Duration::from_secs(7_200));
        for body in 100..=100 + LATE_POSTS_PER_SOURCE_MAX as u64 {
            publish(&server, "bob", body, &at(back));
        }
        assert!(client.poll(&server).1, "it has to read the feed again, and does not miss that");
        client.given.extend(all(&server, "ann"));
        assert_eq!(client.given.len(), 175 + LATE_POSTS_PER_SOURCE_MAX + 1);
        let (came, gap) = client.poll(&server);
        assert!(came.is_empty() && !gap, "once: {came:?}");
    }
}

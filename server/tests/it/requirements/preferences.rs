//! What readers and authors decide about feeds, and that it is taken back exactly.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::feed::celebrity::CelebrityPolicy;

use super::{all, feed, follow_all, unfollow};
use crate::personal::{bodies, follow, ids, posts, publish, status};
use crate::server::Server;
use testkit::world::{above, config};

/// A source with three followers is pulled.
fn server() -> Server {
    Server::start(config(2, above(2)))
}

fn delete(server: &Server, post: &str) {
    assert_eq!(status(server, "DELETE", &format!("/v1/posts/{post}")), 204);
}

fn hide(server: &Server, post: &str, hidden: bool) {
    assert_eq!(server.json("PATCH", &format!("/v1/posts/{post}"), &json!({"hidden": hidden})).status, 200);
}

fn rule(server: &Server, rules: &Value) {
    assert_eq!(server.json("PATCH", "/v1/users/ann/rules", rules).status, 200);
}

fn silence(server: &Server, how: &str, source: &str, on: bool) {
    let (method, expected) = if on { ("PUT", 201) } else { ("DELETE", 204) };
    assert_eq!(status(server, method, &format!("/v1/users/ann/{how}/{source}")), expected);
}

fn first(server: &Server) -> Value {
    server.get(&feed("ann")).json()["items"][0].clone()
}

/// Who reposted the first entry of ann's feed.
fn reposters(server: &Server) -> Vec<String> {
    let reposts = first(server)["reposts"].clone();
    reposts.as_array().unwrap().iter().map(|repost| repost["user"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn r13_a_deleted_or_hidden_post_leaves_every_feed_at_once_and_pages_stay_full() {
    let server = server();
    follow_all(&server, [("ann", "bob"), ("eve", "bob"), ("ann", "star"), ("eve", "star"), ("fay", "star")]);
    let pushed = posts(&server, "bob", 1..=6);
    let pulled = posts(&server, "star", 7..=9);
    ["ann", "eve"].iter().for_each(|reader| assert_eq!(all(&server, reader), [9, 8, 7, 6, 5, 4, 3, 2, 1]));
    delete(&server, &pulled[2]);
    hide(&server, &pulled[1], true);
    delete(&server, &pushed[5]);
    for reader in ["ann", "eve"] {
        let page = server.get(&format!("{}?limit=4", feed(reader))).json();
        assert_eq!(page["items"].as_array().unwrap().len(), 4, "what is filtered is replaced");
        let last = server.get(&format!("{}?limit=6", feed(reader))).json();
        assert_eq!((last["items"].as_array().unwrap().len(), &last["next"]), (6, &Value::Null), "and nothing is older");
        assert_eq!(all(&server, reader), [7, 5, 4, 3, 2, 1]);
    }
    assert_eq!(bodies(&server, "/v1/users/star/posts"), [7]);
    assert_eq!(server.get(&format!("/v1/posts/{}", pushed[5])).status, 404);
    hide(&server, &pulled[1], false);
    assert_eq!(all(&server, "ann"), [8, 7, 5, 4, 3, 2, 1]);
    let stored = server.get("/v1/stats").json()["posts"].clone();
    assert_eq!(stored, json!(7), "deleted posts have left the store");
}

#[test]
fn r14_follows_add_and_unfollows_remove_posts_at_once() {
    let server = server();
    follow_all(&server, [("eve", "star"), ("fay", "star"), ("gus", "star"), ("ann", "cas")]);
    for body in 0..9 {
        publish(&server, ["bob", "star", "cas"][body as usize % 3], body, &json!({}));
    }
    assert_eq!(all(&server, "ann"), [8, 5, 2]);
    for (source, with) in [("bob", [8, 6, 5, 3, 2, 0]), ("star", [8, 7, 5, 4, 2, 1])] {
        follow(&server, "ann", source);
        assert_eq!(all(&server, "ann"), with, "{source}");
        unfollow(&server, "ann", source);
        assert_eq!(all(&server, "ann"), [8, 5, 2], "{source}");
    }
    let bob = "/v1/users/ann/following/bob";
    let follow_from = |backfill: u64| server.json("PUT", bob, &json!({"backfill": backfill})).status;
    assert_eq!((follow_from(1), all(&server, "ann")), (201, vec![8, 6, 5, 2]));
    assert_eq!(status(&server, "DELETE", &format!("{bob}?keep=true")), 204);
    publish(&server, "bob", 9, &json!({}));
    assert_eq!(all(&server, "ann"), [8, 6, 5, 2], "an unfollow can keep what the follow brought");
    assert_eq!(follow_from(0), 201);
    publish(&server, "bob", 10, &json!({}));
    assert_eq!(all(&server, "ann"), [10, 8, 6, 5, 2]);
}

#[test]
fn r15_reposts_of_one_post_are_one_entry_until_the_last_reason_is_removed() {
    let server = server();
    follow_all(&server, ["cas", "dan", "eve"].map(|source| ("ann", source)));
    let origin = publish(&server, "bob", 1, &json!({}));
    publish(&server, "cas", 2, &json!({}));
    let repost = |user: &str, of: &str| publish(&server, user, 3, &json!({"repost_of": of}));
    let by_cas = repost("cas", &origin);
    let by_dan = repost("dan", &by_cas);
    let by_eve = repost("eve", &origin);
    for post in [&by_cas, &by_dan] {
        assert_eq!(server.get(&format!("/v1/posts/{post}")).json()["repost_of"], origin.as_str());
    }
    assert_eq!((all(&server, "ann"), reposters(&server)), (vec![1, 2], ["eve", "dan", "cas"].map(String::from).into()));
    delete(&server, &by_eve);
    assert_eq!(reposters(&server), ["dan", "cas"]);
    unfollow(&server, "ann", "dan");
    assert_eq!(reposters(&server), ["cas"]);
    hide(&server, &origin, true);
    assert_eq!(all(&server, "ann"), [2]);
    hide(&server, &origin, false);
    assert_eq!((all(&server, "ann"), reposters(&server)), (vec![1, 2], vec!["cas".to_owned()]));
    delete(&server, &by_cas);
    assert_eq!(all(&server, "ann"), [2], "the last reason is gone");
    follow(&server, "ann", "dan");
    assert_eq!((all(&server, "ann"), reposters(&server)), (vec![1, 2], vec!["dan".to_owned()]), "and back");
}

#[test]
fn r16_ads_and_recommendations_arrive_by_hidden_follows() {
    let server = server();
    assert_eq!(server.json("PUT", "/v1/users/ann/following/shop", &json!({"hidden": true})).status, 201);
    follow(&server, "ann", "bob");
    for (author, body, kind) in [("bob", 1, "post"), ("shop", 2, "ad"), ("shop", 3, "user")] {
        publish(&server, author, body, &json!({"kind": kind}));
    }
    let by_cas = publish(&server, "cas", 4, &json!({}));
    publish(&server, "shop", 5, &json!({"repost_of": by_cas}));
    let page = server.get(&feed("ann")).json();
    let shown: Vec<_> =
        page["items"].as_array().unwrap().iter().map(|item| (&item["post"]["kind"], &item["via"])).collect();
    let (none, bob) = (json!([]), json!(["bob"]));
    let [post, user, ad] = ["post", "user", "ad"].map(|kind| json!(kind));
    assert_eq!(shown, [(&post, &none), (&user, &none), (&ad, &none), (&post, &bob)]);
    assert_eq!((bodies(&server, &feed("ann")), reposters(&server)), (vec![4, 3, 2, 1], vec![]), "nor does a repost");
    assert_eq!(ids(&server.get("/v1/users/ann/following").json()), ["bob"]);
    assert_eq!(ids(&server.get("/v1/users/shop/followers").json()), [""; 0]);
    let (ann, shop) = (server.get("/v1/users/ann").json(), server.get("/v1/users/shop").json());
    assert_eq!((&ann["following"], &shop["followers"]), (&json!(1), &json!(0)));
    unfollow(&server, "ann", "shop");
    assert_eq!(all(&server, "ann"), [1]);
}

#[test]
fn r17_rules_filter_own_posts_replies_reposts_and_muted_or_blocked_sources() {
    let server = server();
    follow_all(&server, [("ann", "bob"), ("ann", "dan")]);
    let by_cas = publish(&server, "cas", 1, &json!({}));
    publish(&server, "ann", 2, &json!({}));
    publish(&server, "bob", 3, &json!({"reply_to": by_cas}));
    publish(&server, "bob", 4, &json!({"tags": ["tea"]}));
    publish(&server, "bob", 5, &json!({"topic": "42"}));
    publish(&server, "dan", 6, &json!({}));
    publish(&server, "bob", 7, &json!({"repost_of": by_cas}));
    assert_eq!(all(&server, "ann"), [1, 6, 5, 4, 2], "she does not follow cas, whom bob answers");
    for (rules, shown) in [
        (json!({"replies": "all"}), &[1, 6, 5, 4, 3, 2][..]),
        (json!({"show_own": false, "replies": "none"}), &[1, 6, 5, 4]),
        (json!({"reposts": false}), &[6, 5, 4]),
        (json!({"replies": "followed"}), &[6, 5, 4]),
    ] {
        rule(&server, &rules);
        assert_eq!(all(&server, "ann"), shown, "{rules}");
    }
    follow(&server, "ann", "cas");
    assert_eq!(all(&server, "ann"), [6, 5, 4, 3, 1], "now she follows cas");
    for (source, left) in
        [("tag:tea", &[6, 5, 3, 1][..]), ("topic:42", &[6, 4, 3, 1]), ("dan", &[5, 4, 3, 1]), ("bob", &[6, 1])]
    {
        silence(&server, "mutes", source, true);
        assert_eq!(all(&server, "ann"), left, "{source}");
        silence(&server, "mutes", source, false);
    }
    silence(&server, "blocks", "bob", true);
    assert_eq!(all(&server, "ann"), [6, 1]);
    assert_eq!(ids(&server.get("/v1/users/ann/following").json()), ["cas", "dan"]);
    let refused = server.send("PUT", "/v1/users/ann/following/bob", None, "");
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("blocked")));
}

#[test]
fn r18_tags_and_topics_can_be_followed_and_a_post_by_several_routes_appears_once() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let server = Server::start(config(2, policy));
        follow_all(&server, ["topic:42", "tag:tea", "bob", "dan"].map(|source| ("ann", source)));
        server.get(&feed("ann"));
        let origin = publish(&server, "bob", 1, &json!({"tags": ["tea", "milk"], "topic": "42"}));
        publish(&server, "dan", 9, &json!({"repost_of": origin}));
        assert_eq!(all(&server, "ann"), [1], "{policy:?}");
        assert_eq!(first(&server)["via"], json!(["bob", "tag:tea", "topic:42", "dan"]));
        for (gone, left) in [("bob", json!(["tag:tea", "topic:42", "dan"])), ("tag:tea", json!(["topic:42", "dan"]))] {
            unfollow(&server, "ann", gone);
            assert_eq!(first(&server)["via"], left, "without {gone}");
        }
        unfollow(&server, "ann", "topic:42");
        unfollow(&server, "ann", "dan");
        assert_eq!(all(&server, "ann"), [0; 0]);
        assert_eq!(bodies(&server, "/v1/users/tag:milk/posts"), [1], "a tag has a page of its own");
    }
}

#[test]
fn r23_follows_above_the_limit_are_refused_with_the_limit() {
    let server = Server::start(EngineConfig { following_max: 3, ..config(1, CelebrityPolicy::PushAll) });
    follow_all(&server, ["bob", "cas", "dan"].map(|source| ("ann", source)));
    let one_more = || server.send("PUT", "/v1/users/ann/following/eve", None, "");
    let refused = one_more();
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("following_limit")));
    assert!(refused.json()["detail"].as_str().unwrap().contains('3'), "{}", refused.text);
    let again = server.send("PUT", "/v1/users/ann/following/bob", None, "");
    assert_eq!(again.status, 200, "whom she follows already counts once");
    follow(&server, "bob", "eve");
    unfollow(&server, "ann", "dan");
    assert_eq!(one_more().status, 201);
    assert_eq!(EngineConfig::default().following_max, 5_000);
}

#[test]
fn n5_unfollow_mute_and_block_hide_existing_posts_until_undone() {
    let server = server();
    follow_all(&server, [("ann", "bob"), ("ann", "star"), ("eve", "star"), ("fay", "star"), ("bob", "ann")]);
    for body in 0..8 {
        publish(&server, ["bob", "star"][body as usize % 2], body, &json!({"tags": ["tea"]}));
    }
    let before = all(&server, "ann");
    assert_eq!(before, [7, 6, 5, 4, 3, 2, 1, 0]);
    for (source, left) in [("bob", [7, 5, 3, 1]), ("star", [6, 4, 2, 0])] {
        unfollow(&server, "ann", source);
        assert_eq!(all(&server, "ann"), left, "{source} unfollowed");
        follow(&server, "ann", source);
        assert_eq!(all(&server, "ann"), before, "{source} followed again");
        silence(&server, "mutes", source, true);
        assert_eq!(all(&server, "ann"), left, "{source} muted");
        silence(&server, "mutes", source, false);
        assert_eq!(all(&server, "ann"), before, "{source} not muted any more");
        silence(&server, "blocks", source, true);
        assert_eq!(all(&server, "ann"), left, "{source} blocked");
        silence(&server, "blocks", source, false);
        // A block ended the edges.
        follow(&server, "ann", source);
        assert_eq!(all(&server, "ann"), before, "{source} not blocked any more");
    }
    silence(&server, "mutes", "tag:tea", true);
    assert_eq!(all(&server, "ann"), [0; 0]);
    silence(&server, "mutes", "tag:tea", false);
    assert_eq!(all(&server, "ann"), before);
}

#[test]
fn n8_an_explanation_names_why_a_post_is_or_is_not_in_the_feed() {
    let server = server();
    follow_all(&server, [("ann", "bob"), ("ann", "tag:tea"), ("ann", "star"), ("eve", "star"), ("fay", "star")]);
    let posts = ["bob", "star", "cas"].map(|author| publish(&server, author, 1, &json!({})));
    let tagged = publish(&server, "bob", 2, &json!({"tags": ["tea"]}));
    let explain = |post: &str| {
        let mut explanation = server.get(&format!("/v1/users/ann/feed/explain/{post}")).json();
        let cost = explanation.as_object_mut().unwrap().remove("cost").unwrap();
        assert_eq!(json!(cost["decided_by"] == "followers"), explanation["shown"], "{cost}");
        explanation
    };
    for (post, sources, route) in
        [(&posts[0], &["bob"][..], "push"), (&posts[1], &["star"], "pull"), (&tagged, &["bob", "tag:tea"], "push")]
    {
        let reasons: Vec<Value> = sources.iter().map(|source| json!({"kind": "follow", "source": source})).collect();
        assert_eq!(explain(post), json!({"shown": true, "reasons": reasons, "blockers": [], "route": route}));
    }
    let not_shown = |blockers: Value| json!({"shown": false, "reasons": [], "blockers": blockers, "route": null});
    assert_eq!(explain(&posts[2]), not_shown(json!([])), "nothing brings it");
    for (source, post) in [("tag:tea", &tagged), ("bob", &posts[0])] {
        silence(&server, "mutes", source, true);
        let why = explain(post);
        assert_eq!((&why["shown"], &why["route"]), (&json!(false), &Value::Null));
        assert_eq!(why["blockers"], json!([{"kind": "muted", "source": source}]));
    }
    for post in &posts[1..] {
        delete(&server, post);
        assert_eq!(explain(post)["blockers"], json!([{"kind": "deleted", "post": post}]));
    }
    assert_eq!(explain("7")["blockers"], json!([{"kind": "unknown", "post": "7"}]));
    for (post, nth) in posts.iter().zip(0..) {
        let page = server.get(&feed("ann")).json();
        let is_there = page["items"].as_array().unwrap().iter().any(|item| item["post"]["id"] == post.as_str());
        assert_eq!(explain(post)["shown"], json!(is_there), "explanation and page agree about post {nth}");
    }
}

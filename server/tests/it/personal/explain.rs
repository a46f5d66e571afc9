//! Explanations.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};

use super::{follow, publish, server, status};
use crate::server::Server;

#[test]
fn an_explanation_lists_every_reason_and_every_blocker() {
    let server = server();
    let explain = |post: &str| {
        let answer = server.get(&format!("/v1/users/ann/feed/explain/{post}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let mut explanation = answer.json();
        let cost = explanation.as_object_mut().unwrap().remove("cost").unwrap();
        assert_eq!(json!(cost.is_object()), explanation["shown"], "{cost}");
        explanation
    };
    let not_shown = |blockers: Value| json!({"shown": false, "reasons": [], "blockers": blockers, "route": null});
    assert_eq!(explain("7"), not_shown(json!([{"kind": "unknown", "post": "7"}])));
    ["bob", "tag:rust"].iter().for_each(|source| follow(&server, "ann", source));
    server.get("/v1/users/ann/feed");

    let own = publish(&server, "ann", 1, &json!({}));
    let shown = |reasons: Value| json!({"shown": true, "reasons": reasons, "blockers": [], "route": "push"});
    assert_eq!(explain(&own)["reasons"], json!([{"kind": "own"}]));
    let both = publish(&server, "bob", 2, &json!({"tags": ["rust"]}));
    let reasons = json!([{"kind": "follow", "source": "bob"}, {"kind": "follow", "source": "tag:rust"}]);
    assert_eq!(explain(&both), shown(reasons));
    let strange = publish(&server, "cas", 3, &json!({}));
    assert_eq!(explain(&strange), not_shown(json!([])), "nothing brings it");
    let repost = publish(&server, "bob", 4, &json!({"repost_of": strange}));
    let at = server.get(&format!("/v1/posts/{repost}")).json()["published_at"].clone();
    let by_bob = json!([{"kind": "repost", "user": "bob", "at": at, "post": repost, "source": "bob"}]);
    assert_eq!(explain(&strange), shown(by_bob.clone()));
    assert_eq!(explain(&repost), shown(by_bob));
    let reply = publish(&server, "bob", 5, &json!({"reply_to": strange}));
    assert_eq!(explain(&reply), not_shown(json!([{"kind": "reply", "source": "cas"}])));
    let unclear = publish(&server, "bob", 6, &json!({"reply_to": "9"}));
    assert_eq!(explain(&unclear), not_shown(json!([{"kind": "reply"}])));

    let rules = json!({"show_own": false, "reposts": false});
    assert_eq!(server.json("PATCH", "/v1/users/ann/rules", &rules).status, 200);
    assert_eq!(explain(&own), not_shown(json!([{"kind": "own_posts_off"}])));
    assert_eq!(explain(&strange), not_shown(json!([{"kind": "reposts_off"}])));
    assert_eq!(status(&server, "DELETE", "/v1/users/ann/following/bob?keep=true"), 204);
    let kept = json!([{"kind": "kept", "source": "bob"}, {"kind": "follow", "source": "tag:rust"}]);
    assert_eq!(explain(&both), shown(kept));
    assert_eq!(status(&server, "PUT", "/v1/users/ann/mutes/tag:rust"), 201);
    assert_eq!(server.json("PATCH", &format!("/v1/posts/{both}"), &json!({"hidden": true})).status, 200);
    let blockers = explain(&both)["blockers"].clone();
    assert_eq!(blockers, json!([{"kind": "hidden", "post": both}, {"kind": "muted", "source": "tag:rust"}]));
    assert_eq!(status(&server, "PUT", "/v1/users/ann/blocks/cas"), 201);
    assert_eq!(explain(&strange)["blockers"][0], json!({"kind": "blocked", "source": "cas"}));
    assert_eq!(status(&server, "DELETE", &format!("/v1/posts/{own}")), 204);
    assert_eq!(explain(&own), not_shown(json!([{"kind": "deleted", "post": own}])));
}

#[test]
fn an_explanation_names_the_route_of_a_post() {
    let pull = EngineConfig { celebrity: CelebrityPolicy::PullAll, ..EngineConfig::default() };
    let server = Server::start(pull);
    follow(&server, "ann", "bob");
    let post = publish(&server, "bob", 1, &json!({}));
    let explanation = server.get(&format!("/v1/users/ann/feed/explain/{post}")).json();
    assert_eq!((&explanation["route"], &explanation["cost"]["decided_by"]), (&json!("pull"), &json!("setting")));
}

#[test]
fn explanations_and_users_include_the_costs_of_both_routes() {
    let celebrity = CelebrityPolicy::ByCost(CostModel::default());
    let server = Server::start(EngineConfig { celebrity, ..EngineConfig::default() });
    follow(&server, "ann", "bob");
    let edge = json!({"follower": "cas", "source": "bob", "hidden": true});
    assert_eq!(server.json("POST", "/v1/follows", &json!({"follows": [edge]})).status, 200);
    server.get("/v1/users/ann/feed");
    let post = publish(&server, "bob", 1, &json!({}));
    let cost = server.get("/v1/users/bob").json()["cost"].clone();
    let us = |route: &str| cost[route].as_f64().unwrap();
    // A post to one reader, and a page of that reader, as counts that halve each day.
    let CostModel { delivery_ns, fanout_ns, pull_ns, .. } = CostModel::default();
    for (us, ns) in [(us("push_us_per_hour"), delivery_ns + fanout_ns), (us("pull_us_per_hour"), pull_ns)] {
        let expected = ns as f64 / 1_000.0 * std::f64::consts::LN_2 / 24.0;
        assert!((us - expected).abs() < 0.001, "{us} is not {expected}");
    }
    assert_eq!(cost["decided_by"], "cost");
    assert_eq!(server.get(&format!("/v1/users/ann/feed/explain/{post}")).json()["cost"], cost);
    let of_virtual = server.get(&format!("/v1/users/cas/feed/explain/{post}")).json();
    assert_eq!((&of_virtual["route"], &of_virtual["cost"]), (&json!("push"), &json!(null)), "its source is not named");
}

//! Requirements on the engine without a server around it, beside those over HTTP.

use std::num::NonZeroUsize;

use tidewire::clock::UnixMicros;
use tidewire::engine::{Engine, FeedPage};
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::outbox::Route;
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Draft, Kind};
use tidewire::feed::rules::{Replies, RulesPatch};
use tidewire::id::{ListName, PostId, SourceId};
use tidewire::state::explain::{Bar, Reason};
use tidewire::state::reader::PageRequest;

use testkit::world::{NEWEST, above, config, draft, edge, id};

/// A source with three followers is pulled.
fn engine() -> Engine {
    Engine::start(config(2, above(2)))
}

async fn follow(engine: &Engine, follower: &str, sources: &[&str]) {
    engine.follow(sources.iter().map(|source| edge(follower, source)).collect()).await.unwrap();
}

async fn publish(engine: &Engine, draft: Draft) -> PostId {
    engine.publish(draft, true).await.unwrap().post.id()
}

async fn post(engine: &Engine, author: &str, body: &str) -> PostId {
    publish(engine, draft(author, body)).await
}

async fn repost(engine: &Engine, author: &str, of: PostId) -> PostId {
    publish(engine, Draft { repost_of: Some(of), ..draft(author, "\"again\"") }).await
}

fn tagged(author: &str, body: &str, tag: &str) -> Draft {
    Draft { tags: vec![SourceId::tag(tag).unwrap()], ..draft(author, body) }
}

async fn feed(engine: &Engine, reader: &str) -> FeedPage {
    engine.feed(&id(reader), NEWEST).await.unwrap()
}

async fn bodies(engine: &Engine, reader: &str) -> Vec<String> {
    feed(engine, reader).await.page.items.iter().map(|(_, entry)| entry.post.body().to_owned()).collect()
}

/// Who reposted the first entry, and what brought it.
async fn first(engine: &Engine, reader: &str) -> (Vec<String>, Vec<String>) {
    let page = feed(engine, reader).await;
    let entry = &page.page.items[0].1;
    let users = entry.reposts().iter().map(|repost| repost.user.to_string()).collect();
    (users, entry.via().map(SourceId::to_string).collect())
}

async fn change(engine: &Engine, reader: &str, patch: RulesPatch) {
    engine.change_rules(id(reader), patch).await.unwrap();
}

async fn silence(engine: &Engine, reader: &str, source: &str, how: MuteOrBlock, on: bool) {
    assert!(engine.silence(id(reader), id(source), how, on).await.unwrap());
}

#[tokio::test]
async fn r13_deleted_and_hidden_posts_are_gone_at_once_and_pages_stay_full() {
    let engine = engine();
    follow(&engine, "ann", &["bob"]).await;
    let mut posts = Vec::new();
    for body in ["1", "2", "3", "4", "5"] {
        posts.push(post(&engine, "bob", body).await);
    }
    engine.delete(posts[4]).await.unwrap();
    engine.edit(posts[3], None, Some(true)).await.unwrap();
    let three = PageRequest { range: Range::Newest, limit: 3 };
    let page = engine.feed(&id("ann"), three).await.unwrap().page;
    assert_eq!((page.items.len(), page.next), (3, None));
    engine.edit(posts[3], None, Some(false)).await.unwrap();
    assert_eq!(bodies(&engine, "ann").await, ["4", "3", "2", "1"]);
    engine.shutdown();
}

#[tokio::test]
async fn r14_following_brings_what_is_there_and_unfollowing_takes_it_unless_it_is_kept() {
    let engine = engine();
    for body in ["1", "2", "3"] {
        post(&engine, "bob", body).await;
    }
    follow(&engine, "ann", &["bob"]).await;
    assert_eq!(bodies(&engine, "ann").await, ["3", "2", "1"]);
    engine.unfollow(id("ann"), id("bob")).await.unwrap();
    assert!(bodies(&engine, "ann").await.is_empty());
    engine.follow(vec![NewEdge { backfill: Some(2), ..edge("ann", "bob") }]).await.unwrap();
    assert_eq!(bodies(&engine, "ann").await, ["3", "2"]);
    engine.unfollow_but_keep(id("ann"), id("bob")).await.unwrap();
    post(&engine, "bob", "4").await;
    assert_eq!(bodies(&engine, "ann").await, ["3", "2"]);
    engine.follow(vec![NewEdge { backfill: Some(0), ..edge("ann", "bob") }]).await.unwrap();
    post(&engine, "bob", "5").await;
    assert_eq!(bodies(&engine, "ann").await, ["5", "3", "2"]);
    engine.shutdown();
}

#[tokio::test]
async fn r15_reposts_of_one_post_are_one_entry_until_the_last_reason_is_gone() {
    let engine = engine();
    follow(&engine, "ann", &["cas", "dan", "eve"]).await;
    let origin = post(&engine, "bob", "1").await;
    post(&engine, "cas", "2").await;
    let by_cas = repost(&engine, "cas", origin).await;
    repost(&engine, "dan", by_cas).await;
    let by_eve = repost(&engine, "eve", origin).await;
    assert_eq!(engine.post(by_cas).await.unwrap().repost_of, Some(origin));
    assert_eq!(bodies(&engine, "ann").await, ["1", "2"]);
    assert_eq!(first(&engine, "ann").await.0, ["eve", "dan", "cas"]);
    engine.delete(by_eve).await.unwrap();
    assert_eq!(first(&engine, "ann").await.0, ["dan", "cas"]);
    engine.unfollow(id("ann"), id("dan")).await.unwrap();
    assert_eq!(first(&engine, "ann").await.0, ["cas"]);
    engine.edit(origin, None, Some(true)).await.unwrap();
    assert_eq!(bodies(&engine, "ann").await, ["2"]);
    engine.edit(origin, None, Some(false)).await.unwrap();
    engine.delete(by_cas).await.unwrap();
    assert_eq!(bodies(&engine, "ann").await, ["2"], "the last reason is gone");
    engine.shutdown();
}

#[tokio::test]
async fn r16_ads_come_by_edges_that_no_list_and_no_count_shows() {
    let engine = engine();
    engine.follow(vec![NewEdge { hidden: true, ..edge("ann", "shop") }]).await.unwrap();
    publish(&engine, Draft { kind: Kind::Ad, ..draft("shop", "1") }).await;
    let page = feed(&engine, "ann").await.page;
    assert_eq!((page.items.len(), page.items[0].1.post.kind), (1, Kind::Ad));
    assert_eq!(first(&engine, "ann").await, (vec![], vec![]), "nothing names the edge");
    let newest = UnixMicros(i64::MAX);
    assert!(engine.following(&id("ann"), newest, 9).is_empty() && engine.followers(&id("shop"), newest, 9).is_empty());
    let (ann, shop) = (engine.source(&id("ann")).unwrap(), engine.source(&id("shop")).unwrap());
    assert_eq!((ann.following, shop.followers), (0, 0));
    let other = post(&engine, "bob", "2").await;
    repost(&engine, "shop", other).await;
    assert_eq!(bodies(&engine, "ann").await, ["2", "1"]);
    assert_eq!(first(&engine, "ann").await, (vec![], vec![]), "nor does a repost");
    engine.shutdown();
}

#[tokio::test]
async fn r17_rules_decide_about_own_posts_answers_reposts_and_what_is_muted() {
    let engine = engine();
    follow(&engine, "ann", &["bob"]).await;
    let by_cas = post(&engine, "cas", "1").await;
    post(&engine, "ann", "2").await;
    publish(&engine, Draft { reply_to: Some(by_cas), ..draft("bob", "3") }).await;
    repost(&engine, "bob", by_cas).await;
    assert_eq!(bodies(&engine, "ann").await, ["1", "2"], "ann does not follow cas, whom bob answers");
    change(&engine, "ann", RulesPatch { replies: Some(Replies::All), ..RulesPatch::default() }).await;
    assert_eq!(bodies(&engine, "ann").await, ["1", "3", "2"]);
    change(&engine, "ann", RulesPatch { show_own: Some(false), ..RulesPatch::default() }).await;
    assert_eq!(bodies(&engine, "ann").await, ["1", "3"]);
    change(&engine, "ann", RulesPatch { reposts: Some(false), ..RulesPatch::default() }).await;
    assert_eq!(bodies(&engine, "ann").await, ["3"]);
    change(&engine, "ann", RulesPatch { replies: Some(Replies::Followed), ..RulesPatch::default() }).await;
    assert!(bodies(&engine, "ann").await.is_empty());
    follow(&engine, "ann", &["cas"]).await;
    assert_eq!(bodies(&engine, "ann").await, ["3", "1"], "now she does");
    publish(&engine, tagged("bob", "4", "tea")).await;
    silence(&engine, "ann", "tag:tea", MuteOrBlock::Mute, true).await;
    assert_eq!(bodies(&engine, "ann").await, ["3", "1"]);
    engine.shutdown();
}

#[tokio::test]
async fn r18_a_post_that_comes_by_several_routes_is_one_entry_that_names_them() {
    let engine = engine();
    follow(&engine, "ann", &["topic:42", "tag:tea", "bob", "dan"]).await;
    let topic = Some(SourceId::topic("42").unwrap());
    let origin = publish(&engine, Draft { topic, ..tagged("bob", "1", "tea") }).await;
    repost(&engine, "dan", origin).await;
    assert_eq!(bodies(&engine, "ann").await, ["1"]);
    assert_eq!(first(&engine, "ann").await.1, ["bob", "tag:tea", "topic:42", "dan"], "its own first");
    for (gone, left) in [("bob", &["tag:tea", "topic:42", "dan"][..]), ("tag:tea", &["topic:42", "dan"])] {
        engine.unfollow(id("ann"), id(gone)).await.unwrap();
        assert_eq!(first(&engine, "ann").await.1, left);
    }
    for gone in ["topic:42", "dan"] {
        engine.unfollow(id("ann"), id(gone)).await.unwrap();
    }
    assert!(bodies(&engine, "ann").await.is_empty());
    engine.shutdown();
}

#[tokio::test]
async fn n4_a_late_post_stands_where_its_time_says() {
    let engine = engine();
    follow(&engine, "ann", &["bob", "cas"]).await;
    let dated = |author, body, time| Draft { published_at: Some(UnixMicros(time)), ..draft(author, body) };
    for (author, body, time) in [("bob", "3", 30), ("cas", "1", 10), ("bob", "2", 20), ("cas", "4", 40)] {
        publish(&engine, dated(author, body, time)).await;
        feed(&engine, "ann").await;
    }
    assert_eq!(bodies(&engine, "ann").await, ["4", "3", "2", "1"]);
    let late = publish(&engine, Draft { repost_of: None, ..dated("bob", "0", 5) }).await;
    engine.edit(late, Some(tidewire::feed::post::Body::new("\"edited\"").unwrap()), None).await.unwrap();
    assert_eq!(bodies(&engine, "ann").await.last().unwrap(), "\"edited\"", "an edit keeps the place");
    engine.shutdown();
}

#[tokio::test]
async fn n5_mutes_blocks_and_unfollows_act_on_what_is_there_and_are_undone() {
    let engine = engine();
    follow(&engine, "ann", &["bob", "cas", "tag:tea"]).await;
    follow(&engine, "bob", &["ann"]).await;
    post(&engine, "cas", "1").await;
    let by_bob = publish(&engine, tagged("bob", "2", "tea")).await;
    repost(&engine, "cas", by_bob).await;
    let before = bodies(&engine, "ann").await;
    assert_eq!(before, ["2", "1"]);
    for source in ["bob", "tag:tea"] {
        silence(&engine, "ann", source, MuteOrBlock::Mute, true).await;
        assert_eq!(bodies(&engine, "ann").await, ["1"], "also what others repeat of {source}");
        silence(&engine, "ann", source, MuteOrBlock::Mute, false).await;
        assert_eq!(bodies(&engine, "ann").await, before);
    }
    engine.unfollow(id("ann"), id("cas")).await.unwrap();
    assert_eq!(bodies(&engine, "ann").await, ["2"]);
    follow(&engine, "ann", &["cas"]).await;
    assert_eq!(bodies(&engine, "ann").await, before);
    silence(&engine, "ann", "bob", MuteOrBlock::Block, true).await;
    assert_eq!(bodies(&engine, "ann").await, ["1"]);
    for (follower, source) in [("ann", "bob"), ("bob", "ann")] {
        let refused = engine.follow(vec![edge(follower, source)]).await.unwrap_err();
        assert_eq!(refused.code(), "blocked", "and the edges are gone");
    }
    silence(&engine, "ann", "bob", MuteOrBlock::Block, false).await;
    assert_eq!(first(&engine, "ann").await, (vec!["cas".to_owned()], vec!["tag:tea".to_owned(), "cas".to_owned()]));
    engine.shutdown();
}

#[tokio::test]
async fn n6_a_list_is_complete_from_its_first_read_on() {
    let engine = engine();
    for body in ["1", "2", "3"] {
        post(&engine, "bob", body).await;
        publish(&engine, tagged("cas", body, "tea")).await;
        post(&engine, "ann", "\"own\"").await;
    }
    let list: ListName = "near".parse().unwrap();
    let read = async || {
        let page = engine.list_feed(&id("ann"), &list, NEWEST).await.unwrap().page;
        page.items.iter().map(|(_, entry)| entry.post.body().to_owned()).collect::<Vec<_>>()
    };
    for member in ["bob", "tag:tea"] {
        assert!(engine.set_listed(id("ann"), list.clone(), id(member), true).await.unwrap());
    }
    assert_eq!(read().await, ["3", "3", "2", "2", "1", "1"], "without following, and without own posts");
    assert!(bodies(&engine, "ann").await.iter().all(|body| body == "\"own\""));
    silence(&engine, "ann", "cas", MuteOrBlock::Mute, true).await;
    assert_eq!(read().await, ["3", "2", "1"], "under the rules of the home feed");
    assert!(engine.drop_list(id("ann"), list.clone()).await.unwrap());
    assert_eq!(engine.list_feed(&id("ann"), &list, NEWEST).await.unwrap_err().code(), "unknown_list");
    engine.shutdown();
}

#[tokio::test]
async fn n7_the_unread_count_is_exact_up_to_its_cap_right_after_every_change() {
    let engine = engine();
    follow(&engine, "ann", &["bob", "cas"]).await;
    let unread = async || {
        let unread = engine.unread(&id("ann")).await.unwrap();
        (unread.entries, unread.capped)
    };
    let mut posts = Vec::new();
    for nth in 0..60 {
        posts.push(post(&engine, "bob", &nth.to_string()).await);
        post(&engine, "cas", &nth.to_string()).await;
    }
    assert_eq!(unread().await, (99, true));
    let at = |id: PostId| Position { published_at: UnixMicros((id.0 >> 12) as i64), id };
    engine.mark(id("ann"), at(posts[50])).await.unwrap();
    assert_eq!(unread().await, (19, false));
    engine.delete(posts[59]).await.unwrap();
    assert_eq!(unread().await, (18, false));
    change(&engine, "ann", RulesPatch { per_source_max: Some(NonZeroUsize::new(1)), ..RulesPatch::default() }).await;
    assert_eq!(unread().await, (18, false), "a page would show two of them");
    engine.unfollow(id("ann"), id("cas")).await.unwrap();
    assert_eq!(unread().await, (8, false));
    engine.shutdown();
}

#[tokio::test]
async fn n8_an_explanation_names_every_reason_every_blocker_and_the_route() {
    let engine = engine();
    follow(&engine, "ann", &["bob", "tag:tea"]).await;
    let known = publish(&engine, tagged("bob", "1", "tea")).await;
    let explain = async |post| engine.explain(&id("ann"), post).await.unwrap();
    let why = explain(known).await;
    let expected = [Reason::Follows(id("bob")), Reason::Follows(id("tag:tea"))];
    assert_eq!((why.shown, &why.reasons[..], why.route), (true, &expected[..], Some(Route::Push)));
    silence(&engine, "ann", "tag:tea", MuteOrBlock::Mute, true).await;
    let why = explain(known).await;
    assert_eq!((why.shown, why.blockers, why.route), (false, vec![Bar::Muted(id("tag:tea"))], None));
    let strange = post(&engine, "cas", "2").await;
    let why = explain(strange).await;
    assert_eq!((why.shown, why.reasons.len(), why.blockers.len()), (false, 0, 0), "nothing brings it");
    engine.delete(strange).await.unwrap();
    assert_eq!(explain(strange).await.blockers, [Bar::Deleted(strange)]);
    assert_eq!(explain(PostId(7)).await.blockers, [Bar::Unknown(PostId(7))]);
    for follower in ["ann", "eve", "fay"] {
        follow(&engine, follower, &["dan"]).await;
    }
    let pulled = post(&engine, "dan", "3").await;
    assert_eq!(explain(pulled).await.route, Some(Route::Pull));
    engine.shutdown();
}

#[tokio::test]
async fn n10_a_page_has_no_more_entries_of_one_source_than_the_reader_wants() {
    let engine = engine();
    follow(&engine, "ann", &["bob", "cas"]).await;
    post(&engine, "cas", "\"quiet\"").await;
    for nth in 0..9 {
        post(&engine, "bob", &nth.to_string()).await;
    }
    change(&engine, "ann", RulesPatch { per_source_max: Some(NonZeroUsize::new(2)), ..RulesPatch::default() }).await;
    assert_eq!(bodies(&engine, "ann").await, ["8", "7", "\"quiet\""]);
    let page = engine.feed(&id("ann"), PageRequest { range: Range::Newest, limit: 2 }).await.unwrap().page;
    assert_eq!(page.items.len(), 2);
    let range = Range::Before(page.next.unwrap());
    let page = engine.feed(&id("ann"), PageRequest { range, limit: 2 }).await.unwrap().page;
    let bodies: Vec<&str> = page.items.iter().map(|(_, entry)| entry.post.body()).collect();
    assert_eq!(bodies, ["6", "5"], "every page counts anew");
    engine.shutdown();
}

//! What can be asked for while an erasure is under way, and after it has ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use testkit::{eventually, eventually_async, in_time};
use tidewire::clock::{ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Erasing, StorageConfig, Watcher};
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::post::Draft;
use tidewire::id::SourceId;
use tidewire::limits::ERASURES_MAX;
use tidewire::live::event::EventKind;
use tidewire::live::subscriber_queue::Closing;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::Files as _;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::sequence::Sequence;

use crate::erasure::{Town, ZOE, run, small};
use crate::server::{Answer, Server};
use testkit::histories::open_before;
use testkit::world::{NEWEST, draft, edge, id, ids, whole_feed};

type Faulty = Arc<FaultyArchive<MemoryArchive>>;

/// An engine whose archive is not rewritten until its plan allows that: erasures do not end.
fn held_up() -> (Faulty, MemoryFiles, Engine) {
    let plan = Plan { fail_rewrites: 1..u64::MAX, ..Plan::default() };
    let (archive, files) = (Arc::new(FaultyArchive::new(MemoryArchive::default(), plan)), MemoryFiles::default());
    let engine = open(&archive, &files);
    (archive, files, engine)
}

fn open(archive: &Faulty, files: &MemoryFiles) -> Engine {
    let archive = Arc::clone(archive) as Arc<dyn Archive>;
    let clock = Arc::new(SystemClock);
    open_before(small(), files.clone(), Some(&archive), &StorageConfig::default(), clock).unwrap().0
}

#[test]
fn commands_that_name_a_user_are_refused_during_its_erasure_and_the_id_restarts_empty() {
    run(async {
        let (archive, files, engine) = held_up();
        let mut town = Town::new(engine);
        town.settle(3).await;
        let of_zoe = town.publish(ZOE, |draft| draft).await;
        town.erase().await;
        for _ in 0..2 {
            assert_eq!(town.engine.erase(id(ZOE)).await, Ok(Erasing::UnderWay));
            let engine = &town.engine;
            let refused = [
                engine.publish(draft(ZOE, "1"), false).await.err(),
                engine.follow(vec![edge("ann", "cas"), edge("ann", ZOE)]).await.err(),
                engine.follow(vec![edge(ZOE, "ann")]).await.err(),
                engine.unfollow(id("ann"), id(ZOE)).await.err(),
                engine.unfollow_but_keep(id(ZOE), id("ann")).await.err(),
                engine.silence(id(ZOE), id("ann"), MuteOrBlock::Mute, true).await.err(),
                engine.silence(id("ann"), id(ZOE), MuteOrBlock::Block, true).await.err(),
                engine.set_listed(id("ann"), "near".parse().unwrap(), id(ZOE), true).await.err(),
                engine.drop_list(id(ZOE), "near".parse().unwrap()).await.err(),
                engine.watch(&id(ZOE), None).await.err(),
            ];
            for refused in refused {
                assert_eq!(refused.map(|refused| refused.code()), Some("being_erased"));
            }
            assert!(
                !engine
                    .following(&id("ann"), tidewire::clock::UnixMicros(i64::MAX), 9)
                    .iter()
                    .any(|of| of.id == id("cas"))
            );
            town.check().await;
            // It goes on to be so after a start.
            town.engine.shutdown();
            town.engine = open(&archive, &files);
            assert_eq!(town.engine.erasures().count, 1);
        }
        // Others answer and repeat what is about to go as if it was gone.
        town.publish("bob", |draft| Draft { reply_to: Some(of_zoe), ..draft }).await;
        town.publish("cas", |draft| Draft { repost_of: Some(of_zoe), ..draft }).await;
        town.check().await;
        archive.set_plan(Plan::default());
        town.ended().await;
        assert_eq!(town.engine.erase(id(ZOE)).await, Ok(Erasing::Unknown));
        town.check().await;
        // The id again, and again an erasure.
        for _ in 0..2 {
            assert_eq!(town.engine.rules(&id(ZOE)), tidewire::feed::rules::Rules::default());
            town.settle(2).await;
            town.check().await;
            town.engine.shutdown();
            town.engine = open(&archive, &files);
            town.check().await;
            town.erase().await;
            town.check().await;
            town.ended().await;
        }
        town.check().await;
        town.engine.shutdown();
    });
}

async fn next(watcher: &mut Watcher) -> Result<EventKind, Closing> {
    in_time("the next live event", watcher.next()).await.map(|event| event.kind)
}

#[test]
fn an_erasure_removes_posts_from_live_feeds_and_closes_connections_of_the_user() {
    run(async {
        let engine = Engine::start(small());
        engine.follow(vec![edge("ann", ZOE), edge("bob", "tag:tea"), edge("cas", "dan")]).await.unwrap();
        let tags = vec![SourceId::tag("tea").unwrap()];
        let post = engine.publish(Draft { tags, ..draft(ZOE, "1") }, true).await.unwrap().post.id();
        let repost = Draft { repost_of: Some(post), ..draft("dan", "2") };
        engine.publish(repost, true).await.unwrap();
        let mut others = Vec::new();
        for reader in ["ann", "bob", "cas"] {
            assert_eq!(whole_feed(&engine, reader, 5).await.len(), 1, "{reader}");
            let mut watcher = engine.watch(&id(reader), None).await.unwrap();
            assert!(matches!(next(&mut watcher).await, Ok(EventKind::Hello { .. })));
            others.push(watcher);
        }
        let mut own = engine.watch(&id(ZOE), None).await.unwrap();
        engine.erase(id(ZOE)).await.unwrap();
        for reader in ["ann", "bob", "cas"] {
            assert!(ids(&engine.feed(&id(reader), NEWEST).await.unwrap()).is_empty(), "{reader}");
        }
        for watcher in &mut others {
            let told = next(watcher).await.unwrap();
            let is_told =
                matches!(told, EventKind::Stale(_)) || matches!(told, EventKind::Remove(removed) if removed == post);
            assert!(is_told, "it is gone, or the feed is to be read again: {told:?}");
        }
        while next(&mut own).await.is_ok() {}
        eventually_async("the erasure ends", async || engine.erasures().count == 0).await;
        engine.shutdown();
    });
}

#[test]
fn concurrent_erasures_are_limited_and_share_one_archive_pass() {
    run(async {
        let (archive, _, engine) = held_up();
        for nth in 0..=ERASURES_MAX {
            engine.publish(draft(&format!("u{nth}"), "1"), false).await.unwrap();
        }
        for nth in 0..ERASURES_MAX {
            assert_eq!(engine.erase(id(&format!("u{nth}"))).await, Ok(Erasing::UnderWay));
        }
        let one_over = engine.erase(id(&format!("u{ERASURES_MAX}"))).await;
        assert_eq!(one_over.unwrap_err().code(), "overloaded");
        let shed: Vec<_> = engine.shared().counters.shed.by_queue().filter(|(_, count)| *count > 0).collect();
        assert_eq!(shed, [("erasures", 1)]);
        archive.set_plan(Plan::default());
        eventually_async("the erasure ends", async || engine.erasures().count == 0).await;
        // One may have been under way with only some of them.
        assert!(archive.counts().rewrites <= 2, "{:?}", archive.counts());
        assert_eq!(engine.erase(id(&format!("u{ERASURES_MAX}"))).await, Ok(Erasing::UnderWay));
        engine.shutdown();
    });
}

fn delete(server: &Server, path: &str) -> Answer {
    server.send("DELETE", path, None, "")
}

#[test]
fn an_operator_erases_a_user_and_polls_until_the_erasure_has_ended() {
    let (archive, _, engine) = held_up();
    let server = Server::of(engine);
    let user = format!("/v1/users/{ZOE}");
    assert_eq!(delete(&server, &user).status, 204, "nothing is known of such a user");
    let post = json!({"author": ZOE, "id": "7", "body": "x"});
    assert_eq!(server.post("/v1/posts", &post).status, 201);
    for _ in 0..2 {
        let erased = delete(&server, &user);
        assert_eq!((erased.status, erased.json()), (202, json!({"erased": "under_way"})));
    }
    assert_eq!(server.get("/v1/stats").json()["erasures"]["under_way"], json!(1));
    assert!(server.get("/metrics").text.contains("tidewire_erasures_under_way 1\n"));
    let refused = server.post("/v1/posts", &post);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("being_erased")));
    // Nothing of a refused request is done.
    let edges = json!({
        "follows": [{"follower": "ann", "source": "cas"}],
        "unfollows": [{"follower": "ann", "source": "bob"}, {"follower": "ann", "source": ZOE}],
    });
    let refused = server.post("/v1/follows", &edges);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("being_erased")));
    assert_eq!(server.get("/v1/users/ann/following").json()["items"], json!([]));
    for path in [user.clone(), "/v1/posts/7".to_owned()] {
        assert_eq!(server.get(&path).status, 404, "{path}");
    }
    assert_eq!(delete(&server, "/v1/users/tag:tea").json()["code"], json!("not_a_user"));
    archive.set_plan(Plan::default());
    eventually("the erasure ends", || delete(&server, &user).status == 204);
    let erasures = json!({"under_way": 0, "oldest_seconds": null});
    assert_eq!(server.get("/v1/stats").json()["erasures"], erasures);
    assert_eq!(server.post("/v1/posts", &post).status, 409, "the id of a post is taken for good");
    assert_eq!(server.post("/v1/posts", &json!({"author": ZOE, "body": "x"})).status, 201);
}

#[test]
fn an_erasure_that_fails_after_its_grace_time_is_retried_without_a_second_one() {
    run(async {
        const GRACE: Duration = Duration::from_secs(24 * 3_600);
        let (archive, files) = (Faulty::default(), MemoryFiles::default());
        let (of_engine, clock) = (Arc::clone(&archive) as Arc<dyn Archive>, Arc::new(ManualClock::new(UnixMicros(1))));
        let (config, storage) = (EngineConfig { erasure_grace: GRACE, ..small() }, StorageConfig::default());
        let engine = open_before(config, files.clone(), Some(&of_engine), &storage, clock.clone()).unwrap().0;
        for author in [ZOE, "ann", ZOE, "ann"] {
            engine.publish(draft(author, "1"), true).await.unwrap();
        }
        let segments = || files.list().unwrap().iter().filter(|name| name.starts_with("journal-")).count();
        let (before, _reader) = (segments(), engine.changes(Sequence(0)).unwrap());
        engine.erase(id(ZOE)).await.unwrap();
        eventually_async("the erasure comes to its new segment", async || segments() > before).await;
        engine.erase(id("ann")).await.unwrap();
        // The grace time passes, and the snapshot after it fails.
        archive.set_plan(Plan { fail_persists: 1..3, ..Plan::default() });
        eventually_async("the snapshot fails", async || {
            let has_failed = archive.counts().persists > 0;
            clock.advance(if has_failed { Duration::ZERO } else { GRACE });
            has_failed
        })
        .await;
        // From here on the clock stands. What was requested meanwhile has its own grace time, for which the first one does not wait.
        eventually_async("the first erasure ends", async || engine.erasures().count == 1).await;
        assert!(archive.counts().persists > 2, "{:?}", archive.counts());
        assert_eq!(engine.erase(id(ZOE)).await, Ok(Erasing::Unknown));
        assert_eq!(engine.erase(id("ann")).await, Ok(Erasing::UnderWay));
        eventually_async("the second erasure ends", async || {
            clock.advance(GRACE);
            engine.erasures().count == 0
        })
        .await;
        engine.shutdown();
    });
}

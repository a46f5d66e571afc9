//! What readers have decided, after restarts.

use std::num::NonZeroUsize;

use tidewire::clock::UnixMicros;
use tidewire::engine::{Engine, Unread};
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::position::Position;
use tidewire::feed::rules::{Replies, RulesPatch};
use tidewire::feed::work::Work;
use tidewire::id::{ListName, PostId, SourceId};

use crate::export::open;
use testkit::world::{NEWEST, draft, edge, id};

fn list(name: &str) -> ListName {
    name.parse().unwrap()
}

async fn decide(engine: &Engine) {
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    for (author, body) in [("bob", "1"), ("cas", "2"), ("dan", "3"), ("dan", "4"), ("eve", "5")] {
        engine.publish(draft(author, body), true).await.unwrap();
    }
    let first = NewEdge { backfill: Some(1), ..edge("ann", "dan") };
    let hidden = NewEdge { hidden: true, ..edge("ann", "eve") };
    engine.follow(vec![first, hidden]).await.unwrap();
    engine.unfollow_but_keep(id("ann"), id("cas")).await.unwrap();
    engine.publish(draft("cas", "6"), true).await.unwrap();
    for (source, how) in [("zoe", MuteOrBlock::Mute), ("tag:tea", MuteOrBlock::Mute), ("yan", MuteOrBlock::Block)] {
        assert!(engine.silence(id("ann"), id(source), how, true).await.unwrap());
    }
    let patch =
        RulesPatch { replies: Some(Replies::None), per_source_max: Some(NonZeroUsize::new(3)), ..Default::default() };
    engine.change_rules(id("ann"), patch).await.unwrap();
    engine.mark(id("ann"), Position { published_at: UnixMicros(7), id: PostId(8) }).await.unwrap();
    for source in ["bob", "topic:sea"] {
        assert!(engine.set_listed(id("ann"), list("full"), id(source), true).await.unwrap());
    }
    for on in [true, false] {
        assert!(engine.set_listed(id("ann"), list("empty"), id("bob"), on).await.unwrap());
    }
    assert!(engine.set_listed(id("ann"), list("gone"), id("bob"), true).await.unwrap());
    assert!(engine.drop_list(id("ann"), list("gone")).await.unwrap());
}

/// All that can be asked about a reader, as text.
async fn seen(engine: &Engine, reader: &SourceId) -> String {
    let all = UnixMicros(i64::MAX);
    let silenced = [MuteOrBlock::Mute, MuteOrBlock::Block].map(|how| engine.silenced(reader, how, all, 9));
    let edges = (engine.following(reader, all, 9), engine.hidden_following(reader, all, 9));
    let lists = engine.lists(reader, None, 9);
    let members: Vec<_> = lists.iter().map(|(list, _)| engine.members(reader, list, all, 9)).collect();
    let feed = engine.feed(reader, NEWEST).await.unwrap();
    let bodies: Vec<_> = feed.page.items.iter().map(|(_, entry)| entry.post.body().to_owned()).collect();
    let (rules, unread) = (engine.rules(reader), engine.unread(reader).await.unwrap());
    // After a restart late posts are looked for once, which is work and nothing else.
    let unread = Unread { work: Work::default(), ..unread };
    format!("{silenced:?}\n{edges:?}\n{lists:?}\n{members:?}\n{bodies:?}\n{rules:?}\n{unread:?}")
}

#[tokio::test]
async fn preferences_survive_restarts_with_and_without_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    decide(&engine).await;
    let expected = seen(&engine, &id("ann")).await;
    assert!(expected.contains(r#"["5", "4", "2", "1"]"#), "{expected}");
    assert!(expected.contains(r#"[(ListName(empty), 0), (ListName(full), 2)]"#), "{expected}");
    engine.shutdown();
    for with_snapshot in [false, true] {
        let engine = open(directory.path());
        assert_eq!(seen(&engine, &id("ann")).await, expected, "with a snapshot: {with_snapshot}");
        if !with_snapshot {
            engine.snapshot().await.unwrap();
        }
        engine.shutdown();
    }
}

//! Live clients that come back where they were.

use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::stream::StreamPosition;
use tidewire::id::PostId;
use tidewire::live::event::{EventKind, LiveEvent};

use testkit::world::{above, config, draft, edge, id, next_event};

/// An event as a line: its number, and what it says.
fn line(event: &LiveEvent) -> (u64, String) {
    let text = match &event.kind {
        EventKind::Post(item) => format!("post {} {}", item.at.id, item.entry.post.body().to_owned()),
        EventKind::Update(post) => format!("update {} {}", post.id(), post.body().to_owned()),
        EventKind::Remove(post) => format!("remove {post}"),
        other => format!("{other:?}"),
    };
    (event.place.last, text)
}

async fn publish(engine: &Engine, id: u64, author: &str) {
    let draft = Draft { id: Some(PostId(id)), published_at: Some(UnixMicros(id as i64)), ..draft(author, "0") };
    engine.publish(draft, true).await.unwrap();
}

#[tokio::test]
async fn a_resumed_client_receives_each_missed_event_once_in_order() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(1)] {
        let engine = Engine::start(config(1, policy));
        engine.follow(vec![edge("ann", "bob"), edge("ann", "star"), edge("cas", "star")]).await.unwrap();
        publish(&engine, 1, "bob").await;
        publish(&engine, 2, "star").await;
        let mut stayed = engine.watch(&id("ann"), None).await.unwrap();
        let mut places = vec![next_event(&mut stayed).await.place];
        let mut told = Vec::new();
        for step in 0..6 {
            match step {
                0 => publish(&engine, 10, "bob").await,
                1 => drop(engine.edit(PostId(1), Some(Body::new("1").unwrap()), None).await.unwrap()),
                2 => publish(&engine, 11, "star").await,
                3 => engine.delete(PostId(2)).await.unwrap(),
                4 => publish(&engine, 12, "bob").await,
                _ => engine.mark(id("ann"), Position { published_at: UnixMicros(11), id: PostId(11) }).await.unwrap(),
            }
            let event = next_event(&mut stayed).await;
            places.push(event.place);
            told.push(line(&event));
        }
        let mut watchers = vec![stayed];
        for (missed, place) in places.iter().rev().enumerate() {
            let mut back = engine.watch(&id("ann"), Some(*place)).await.unwrap();
            let hello = next_event(&mut back).await;
            assert!(matches!(hello.kind, EventKind::Hello { recovered: true, .. }), "{policy:?}: {hello:?}");
            assert_eq!(hello.place, *place, "{policy:?}");
            for expected in &told[told.len() - missed..] {
                assert_eq!(line(&next_event(&mut back).await), *expected, "{policy:?}, {missed} missed");
            }
            watchers.push(back);
        }
        // All go on as one.
        publish(&engine, 20, "bob").await;
        for watcher in &mut watchers {
            assert_eq!(
                line(&next_event(watcher).await),
                (places.last().unwrap().last + 1, "post 20 0".to_owned()),
                "{policy:?}"
            );
        }
        engine.shutdown();
    }
}

#[tokio::test]
async fn a_client_of_another_stream_or_from_the_future_must_reload_the_feed() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    let here = next_event(&mut engine.watch(&id("ann"), None).await.unwrap()).await.place;
    let mut other = here.epoch;
    other.0 ^= 1;
    for from in [StreamPosition { epoch: other, ..here }, StreamPosition { last: here.last + 1, ..here }] {
        let hello = next_event(&mut engine.watch(&id("ann"), Some(from)).await.unwrap()).await;
        assert!(matches!(hello.kind, EventKind::Hello { recovered: false, .. }), "{from:?}: {hello:?}");
        assert_eq!(hello.place, here);
    }
    engine.shutdown();
}

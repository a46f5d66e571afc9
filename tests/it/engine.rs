//! The engine through its own type: publish, fan-out, read.

use std::num::NonZeroUsize;

use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, FeedPage};
use tidewire::feed::event::NewEdge;
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;

fn id(text: &str) -> SourceId {
    SourceId::new(text).unwrap()
}

fn edge(follower: &str, source: &str) -> NewEdge {
    NewEdge { follower: id(follower), source: id(source), hidden: false }
}

fn bodies(page: &FeedPage) -> Vec<&str> {
    page.page.items.iter().map(|(_, entry)| entry.post.body()).collect()
}

#[tokio::test]
async fn a_post_reaches_its_followers_newest_first() {
    let engine = Engine::start(EngineConfig { shards: NonZeroUsize::new(2).unwrap(), ..EngineConfig::default() });
    let newest = PageRequest { range: Range::Newest, limit: 20 };
    engine.follow(vec![edge("ann", "bob"), edge("ann", "tag:rust"), edge("cas", "bob")]).await.unwrap();
    for (author, body) in [("bob", "1"), ("bob", "2"), ("dan", "3"), ("ann", "4")] {
        let mut draft = Draft::new(id(author), Body::new(body).unwrap());
        if author == "dan" {
            draft.tags = vec![SourceId::tag("rust").unwrap()];
        }
        assert!(engine.publish(draft, true).await.unwrap().created);
    }
    assert_eq!(bodies(&engine.feed(&id("ann"), newest).await.unwrap()), ["4", "3", "2", "1"]);
    assert_eq!(bodies(&engine.feed(&id("cas"), newest).await.unwrap()), ["2", "1"]);
    engine.publish(Draft::new(id("bob"), Body::new("5").unwrap()), true).await.unwrap();
    assert_eq!(bodies(&engine.feed(&id("ann"), newest).await.unwrap()), ["5", "4", "3", "2", "1"]);
    assert_eq!(engine.shared().counters.deliveries.get(), 2);
    engine.shutdown();
}

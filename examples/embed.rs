//! An engine in memory: follows, publishes, reads a page, and the page below it.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use tidewire::{Body, Draft, Engine, EngineConfig, NewEdge, PageRequest, SourceId};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::start(EngineConfig::default());
    let (ann, bob) = (SourceId::new("ann")?, SourceId::new("bob")?);
    engine.follow(vec![NewEdge::new(ann.clone(), bob.clone())]).await?;
    for text in [r#"{"text":"one"}"#, r#"{"text":"two"}"#, r#"{"text":"three"}"#] {
        // With `true`, the call returns once the post is in every inbox.
        engine.publish(Draft::new(bob.clone(), Body::new(text)?), true).await?;
    }
    let first = engine.feed(&ann, PageRequest::newest(2)).await?.page;
    let bodies: Vec<&str> = first.items.iter().map(|(_, entry)| entry.post.body()).collect();
    assert_eq!(bodies, [r#"{"text":"three"}"#, r#"{"text":"two"}"#]);
    first.items.iter().for_each(|(_, entry)| println!("{}", entry.post.body()));
    let second = engine.feed(&ann, PageRequest::before(first.next.ok_or("there is more")?, 2)).await?.page;
    assert_eq!((second.items.len(), second.next), (1, None));
    engine.shutdown();
    Ok(())
}

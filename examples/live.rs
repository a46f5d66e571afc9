//! A live watcher: receives the changes of a reader's feed as they happen.

use tidewire::{Body, Draft, Engine, EngineConfig, EventKind, NewEdge, SourceId};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::start(EngineConfig::default());
    let (ann, bob) = (SourceId::new("ann")?, SourceId::new("bob")?);
    engine.follow(vec![NewEdge::new(ann.clone(), bob.clone())]).await?;

    let mut watcher = engine.watch(&ann, None).await?;
    // The first event shows whether the client has to read the feed first. A new client has to.
    let hello = watcher.next().await.map_err(|closing| format!("{closing:?}"))?;
    assert!(matches!(hello.kind, EventKind::Hello { recovered: false, .. }));

    engine.publish(Draft::new(bob, Body::new(r#"{"text":"now"}"#)?), false).await?;
    let event = watcher.next().await.map_err(|closing| format!("{closing:?}"))?;
    let EventKind::Post(item) = event.kind else { return Err(format!("{event:?} is no post").into()) };
    assert_eq!(item.entry.post.body(), r#"{"text":"now"}"#);
    engine.shutdown();
    Ok(())
}

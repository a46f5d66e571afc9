//! A durable engine: acknowledged changes survive a restart.

use tidewire::{Body, Draft, Engine, EngineConfig, NewEdge, PageRequest, SourceId};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let (ann, bob) = (SourceId::new("ann")?, SourceId::new("bob")?);

    let engine = Engine::open_directory(EngineConfig::default(), directory.path())?;
    engine.follow(vec![NewEdge::new(ann.clone(), bob.clone())]).await?;
    engine.publish(Draft::new(bob, Body::new(r#"{"text":"kept"}"#)?), false).await?;
    engine.shutdown();
    drop(engine);

    let engine = Engine::open_directory(EngineConfig::default(), directory.path())?;
    let page = engine.feed(&ann, PageRequest::newest(20)).await?.page;
    assert_eq!(page.items.len(), 1);
    engine.shutdown();
    Ok(())
}

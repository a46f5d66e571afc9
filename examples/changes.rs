//! Reads the change stream: another system applies all accepted events, and continues at its stored position.

use std::time::Duration;

use tidewire::{Body, Changes, ChangesError, Draft, Engine, EngineConfig, Event, LogError, Sequence, SourceId};

/// Reads events until none is left, and returns the texts of published posts. `place` is the position to continue from.
fn follow(changes: &mut Changes, place: &mut Sequence) -> Result<Vec<String>, ChangesError> {
    let mut texts = Vec::new();
    loop {
        // This call blocks, so a program runs it on its own thread with short timeouts.
        let events = changes.next(Duration::from_millis(200))?;
        if events.is_empty() {
            return Ok(texts);
        }
        for (_, event) in events {
            if let Event::Published { draft, .. } = event {
                texts.push(format!("{}: {}", draft.author, draft.body.as_str()));
            }
        }
        *place = changes.sequence();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let engine = Engine::open_directory(EngineConfig::default(), directory.path())?;
    let bob = SourceId::new("bob")?;
    let mut place = Sequence(0);

    engine.publish(Draft::new(bob.clone(), Body::new("1")?), false).await?;
    assert_eq!(follow(&mut engine.changes(place)?, &mut place)?, ["bob: 1"]);

    // Later, the system continues from the position that it has stored.
    engine.publish(Draft::new(bob, Body::new("2")?), false).await?;
    assert_eq!(follow(&mut engine.changes(place)?, &mut place)?, ["bob: 2"]);

    // The engine refuses a position that the journal does not have, instead of leaving out events.
    let refused = engine.changes(Sequence(1_000)).err();
    assert!(matches!(refused, Some(ChangesError::Log(LogError::Shorter { .. }))));
    engine.shutdown();
    Ok(())
}

//! Edits of old posts while the archive accepts no writes: they wait in memory, up to a limit.

use tidewire::limits::{PENDING_EDITS_BYTES_MAX, POST_BODY_BYTES_MAX};

use super::*;

/// Needs some thousand writes, so it runs only with a store in memory.
pub async fn the_sequencer_refuses_edits_of_old_posts_when_too_many_are_pending(store: Store) {
    let mut cluster = TestCluster::empty(store);
    cluster.add_with("a", CelebrityPolicy::PullAll);
    cluster.all_are_members().await;
    // More posts than the limit has room for: edits of the newest posts do not count until these have left memory.
    let count = (PENDING_EDITS_BYTES_MAX / POST_BODY_BYTES_MAX) as u64 * 3 / 2;
    cluster.publish_up_to(count).await;
    cluster.settle().await;
    let Member { node, connection, .. } = &cluster.members[0];
    connection.set(Answers::Late);
    let longest = Body::new(&format!("\"{}\"", "x".repeat(POST_BODY_BYTES_MAX - 2))).unwrap();
    let edit = |number: u64, body: &Body| node.engine.edit(PostId(number), Some(body.clone()), None);
    let mut accepted = 0;
    let refused = loop {
        match edit(accepted + 1, &longest).await {
            Ok(_) => accepted += 1,
            Err(cause) => break cause,
        }
        assert!(accepted < count, "nothing is refused");
    };
    assert_eq!((refused.code(), refused.is_temporary()), ("archive_unavailable", true), "{refused}");
    assert!(accepted > count / 2, "{accepted} of {count}");
    // Posts with pending edits can be edited again, and new posts can be published and edited.
    let short = Body::new("[1]").unwrap();
    edit(1, &short).await.unwrap();
    node.engine.publish(post(&author(1), count + 1), false).await.unwrap();
    edit(count + 1, &longest).await.unwrap();
    connection.set(Answers::Always);
    // Accepted as soon as the archive has stored some edits.
    cluster.edit(accepted + 1, longest.as_str()).await;
    cluster.settle().await;
    let engine = &cluster.members[0].node.engine;
    for (number, body) in [(1, &short), (accepted, &longest), (accepted + 1, &longest)] {
        assert_eq!(engine.post(PostId(number)).await.unwrap().body(), body.as_str(), "{number}");
    }
    cluster.shutdown();
}

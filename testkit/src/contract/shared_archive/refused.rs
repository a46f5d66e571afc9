//! Archives that do not match the log, and nodes that do not match the archive.

use super::*;
use crate::eventually_async;

/// Nodes that judged edits and deletions without an archive lack the data that the others need of these posts.
pub async fn a_cluster_has_an_archive_on_all_nodes_from_its_beginning_or_never(store: Store) {
    let cluster = TestCluster::new(store).await;
    let without = start(&cluster.log, "d", &MemoryFiles::default(), None, CelebrityPolicy::PushAll);
    let refused = without.map(|_| ()).unwrap_err();
    assert!(matches!(refused, JoinError::NoArchive { cluster: ClusterId(5) }), "{refused}");
    cluster.shutdown();
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let first = start(&log, "a", &MemoryFiles::default(), None, CelebrityPolicy::PushAll).unwrap();
    eventually_async("it is the sequencer", async || first.is_sequencer()).await;
    let later = start(&log, "b", &MemoryFiles::default(), Some(&cluster.connection()), CelebrityPolicy::PushAll);
    let refused = later.map(|_| ()).unwrap_err();
    assert!(matches!(refused, JoinError::NewArchive { .. }), "{refused}");
    first.engine.shutdown();
}

pub async fn a_log_that_ends_before_the_archived_events_is_refused(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(30).await;
    cluster.check_archive().await;
    cluster.shutdown();
    let log = MemoryLog::default();
    bootstrap_log_with_archive(&log, 16, ClusterId(5)).unwrap();
    let refused = start(&log, "a", &MemoryFiles::default(), Some(&cluster.connection()), CelebrityPolicy::PushAll);
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(matches!(refused, JoinError::BehindArchive { last: Sequence(1), .. }), "{refused}");
}

pub async fn the_archive_of_another_cluster_is_refused(store: Store) {
    let cluster = TestCluster::new(store).await;
    cluster.shutdown();
    let log = MemoryLog::default();
    bootstrap_log_with_archive(&log, 16, ClusterId(6)).unwrap();
    let connection = Arc::clone(&cluster.members[0].connection);
    let refused =
        start(&log, "a", &MemoryFiles::default(), Some(&connection), CelebrityPolicy::PushAll).map(|_| ()).unwrap_err();
    assert!(matches!(refused, JoinError::OtherArchive { .. }), "{refused}");
}

//! Engines that share a log: one judges, all apply, and faults of the log and of nodes lose and double nothing.

mod changes;
mod edges;
mod faulty_log;
mod nemesis;
mod snapshots;
mod tail;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use testkit::cluster_nodes::{BEATS_PER_SESSION, Node, SESSION, cluster, in_step, join, owner, post, sequencer};
use testkit::{DEADLINE, eventually_async, in_time};
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::cluster::journal::{ClusterJournal, JoinError, NodeOptions, bootstrap_log};
use tidewire::cluster::log_checkpoint::{LogCheckpoint, first_after};
use tidewire::cluster::placement::{Place, Placement};
use tidewire::cluster::record::{
    ClusterId, Content, Epoch, Header, Incarnation, decode_content, decode_header, encode, encode_packed,
};
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Erasing};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::storage::journal::{Journal as _, LogOutcome, SharedJournal as _};
use tidewire::storage::log::memory::MemoryLog;
use tidewire::storage::log::{ReadLog as _, SharedLog};
use tidewire::storage::sequence::Sequence;

use testkit::world::{draft, edge, id, next_event};

#[tokio::test]
async fn a_post_accepted_by_one_node_is_in_the_feeds_of_all_nodes() {
    let (_, nodes) = cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let first = sequencer(&nodes).await;
    let (ann, bob) = (id("ann"), id("bob"));
    first.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let posts = [7, 8, 9].map(PostId);
    for number in 7..=9 {
        first.engine.publish(post("bob", number), true).await.unwrap();
    }
    first.engine.delete(posts[1]).await.unwrap();
    in_step(&nodes).await;
    for node in &nodes {
        assert_eq!(node.feed(&ann).await, [posts[2], posts[0]], "on node {}", node.state.me());
    }
    for node in &nodes {
        assert_eq!(node.engine.publish(post("bob", 1), false).await.is_ok(), node.is_sequencer());
    }
    let owners = nodes.iter().filter(|node| node.state.owner(&bob) == Place::Here).count();
    assert_eq!(owners, 1, "each user has one owner");
    nodes.iter().for_each(|node| node.engine.shutdown());
}

#[tokio::test]
async fn a_write_is_answered_after_its_sequence_is_visible() {
    let (log, nodes) = cluster();
    let first = sequencer(&nodes).await;
    for number in 1..=300 {
        // Beats may follow. The others of the group are read back with it.
        let before = log.range().unwrap().last;
        let others: Vec<_> = (1..=4).map(|nth| post("bob", 1_000 * nth + number)).collect();
        let others = others.into_iter().map(|post| first.engine.publish(post, false));
        let (published, _) = tokio::join!(first.engine.publish(post("bob", number), false), join_all(others));
        published.unwrap();
        assert!(first.state.last_event() > before, "post {number} is answered at {}", first.state.last_event());
    }
    nodes.iter().for_each(|node| node.engine.shutdown());
}

#[tokio::test]
async fn another_node_becomes_sequencer_when_the_sequencer_has_left() {
    let (log, mut nodes) = cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    for number in 1..=3 {
        let first = sequencer(&nodes).await;
        let name = first.state.me().clone();
        first.engine.publish(post("bob", number), false).await.unwrap();
        first.engine.shutdown();
        nodes.retain(|node| *node.state.me() != name);
        nodes.push(join(&log, &format!("new-{number}")).unwrap());
        let all = |node: &Node| node.state.membership().members().count() == 3;
        eventually_async("the members have changed", async || nodes.iter().all(all)).await;
    }
    let last = sequencer(&nodes).await;
    last.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    in_step(&nodes).await;
    for node in &nodes {
        assert_eq!(node.feed(&id("ann")).await, [3, 2, 1].map(PostId));
        node.engine.shutdown();
    }
}

#[tokio::test]
async fn a_reader_that_moves_to_another_node_loses_only_its_own_live_connections() {
    let (log, mut nodes) = cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let readers: Vec<SourceId> = (0..20).map(|nth| id(&format!("reader-{nth}"))).collect();
    let mut watchers = Vec::new();
    for reader in &readers {
        let owner = owner(&nodes, reader).await;
        watchers.push((reader, owner.state.me().clone(), owner.engine.watch(reader, None).await.unwrap()));
    }
    nodes.push(join(&log, "d").unwrap());
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 4)
    })
    .await;
    nodes.iter().for_each(|node| node.engine.end_live_elsewhere(&node.state));
    let (mut moved, mut stayed) = (0, 0);
    for (reader, before, mut watcher) in watchers {
        let owner = owner(&nodes, reader).await;
        let is_moved = *owner.state.me() != before;
        *(if is_moved { &mut moved } else { &mut stayed }) += 1;
        // The first event greets the client, unless the connection has ended before it was taken.
        let end = async { while watcher.next().await.is_ok() {} };
        let told = format!("{reader} was at {before}, and is at {}", owner.state.me());
        if is_moved {
            in_time(&told, end).await;
        } else {
            // Those that end are told so before the call returns.
            assert!(tokio::time::timeout(Duration::ZERO, end).await.is_err(), "{told}");
        }
    }
    assert!(moved > 0 && stayed > 0, "{moved} have moved, {stayed} have not");
    nodes.iter().for_each(|node| node.engine.shutdown());
}

#[tokio::test]
async fn foreign_logs_and_duplicate_node_names_are_refused() {
    let empty = MemoryLog::default();
    let found_in = |node: Result<Node, JoinError>| node.err().map(|refused| refused.to_string()).unwrap_or_default();
    let foreign = MemoryLog::default();
    foreign.writer().unwrap().append(b"\x01 something else".to_vec()).unwrap();
    let refused = found_in(join(&foreign, "a"));
    assert!(refused.contains("record 1 of memory"), "{refused}");
    assert!(bootstrap_log(&foreign, 16, ClusterId(1)).unwrap_err().to_string().contains("has records"));
    bootstrap_log(&empty, 16, ClusterId(1)).unwrap();
    let (log, nodes) = cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let namesake = join(&log, "a").unwrap();
    eventually_async("the second process of a name gives up", async || {
        !namesake.state.is_ready() && !namesake.state.is_leased()
    })
    .await;
    let record = log.range().unwrap().last.0;
    let two_sessions_later = record + 2 * BEATS_PER_SESSION * nodes.len() as u64;
    eventually_async("the others beat for two sessions", async || log.range().unwrap().last.0 > two_sessions_later)
        .await;
    assert!(!namesake.state.is_leased() && nodes.iter().all(|node| node.state.is_leased() && node.state.is_ready()));
    let refused = namesake.engine.publish(post("bob", 1), false).await.unwrap_err();
    assert!(matches!(refused, Error::NotSequencer), "{refused}");
    nodes.iter().chain([&namesake]).for_each(|node| node.engine.shutdown());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_erased_on_all_nodes_even_if_the_sequencer_leaves_meanwhile() {
    let (log, mut nodes) = cluster();
    eventually_async("all are members", async || {
        nodes.iter().all(|node| node.state.membership().members().count() == 3)
    })
    .await;
    let first = sequencer(&nodes).await;
    let (name, zoe) = (first.state.me().clone(), id("zoe"));
    first.engine.follow(vec![edge("ann", "zoe"), edge("ann", "bob"), edge("zoe", "bob")]).await.unwrap();
    first.engine.silence(id("bob"), zoe.clone(), MuteOrBlock::Mute, true).await.unwrap();
    first.engine.publish(post("bob", 1), false).await.unwrap();
    for number in 2..=600 {
        first.engine.publish(post("zoe", number), false).await.unwrap();
    }
    in_step(&nodes).await;
    let mut watchers = Vec::new();
    for node in &nodes {
        let mut watcher = node.engine.watch(&zoe, None).await.unwrap();
        next_event(&mut watcher).await;
        watchers.push(watcher);
    }
    assert_eq!(first.engine.erase(zoe.clone()).await, Ok(Erasing::UnderWay));
    assert_eq!(
        first.engine.erase(zoe.clone()).await,
        Ok(Erasing::UnderWay),
        "it is not over when the sequencer leaves"
    );
    first.engine.shutdown();
    nodes.retain(|node| *node.state.me() != name);
    nodes.push(join(&log, "new").unwrap());
    for mut watcher in watchers {
        let closed = async { while watcher.next().await.is_ok() {} };
        in_time("the live connections of zoe end on each node", closed).await;
    }
    for node in &nodes[..2] {
        assert_eq!(node.feed(&id("ann")).await, [PostId(1)], "nothing of zoe is shown on {}", node.state.me());
    }
    eventually_async("the erasure ends", async || {
        nodes.iter().all(|node| node.state.is_ready() && node.engine.erasures().count == 0)
    })
    .await;
    in_step(&nodes).await;
    for node in &nodes {
        assert_eq!(node.feed(&id("ann")).await, [PostId(1)]);
        assert!(node.engine.silenced(&id("bob"), MuteOrBlock::Mute, UnixMicros(i64::MAX), 9).is_empty());
    }
    let next = sequencer(&nodes).await;
    assert_eq!(next.engine.erase(zoe.clone()).await, Ok(Erasing::Unknown));
    next.engine.publish(post("zoe", 1_000), false).await.unwrap();
    in_step(&nodes).await;
    nodes.iter().for_each(|node| node.engine.shutdown());
}

#[test]
fn an_event_of_unknown_kind_stops_the_node_with_an_error_that_names_it() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let by = Incarnation { node: "newer".parse().unwrap(), run: 1 };
    let header = |nth| Header { cluster: ClusterId(5), by: by.clone(), epoch: Epoch(1), nth };
    let mut writer = log.writer().unwrap();
    writer.append(encode(&header(0), &Content::Claim)).unwrap();
    writer.append(encode_packed(&header(1), b"\x81\xa5event\x81\xa5split\x01")).unwrap();
    let options = NodeOptions { name: "older".parse().unwrap(), address: "http://older".to_owned(), session: SESSION };
    let followed = LogCheckpoint::founded(&first_after(&log, Sequence(0)).unwrap().unwrap()).unwrap();
    let clock = Arc::new(SystemClock);
    let view = Arc::new(ClusterState::new(options.name.clone(), clock.clone(), SESSION));
    let mut journal = ClusterJournal::open(&log, followed, options, view, clock).unwrap();
    let mut failed = None;
    while failed.is_none() {
        let records = journal.incoming().recv_timeout(DEADLINE).expect("the node goes on").unwrap();
        failed = records.into_iter().find_map(|record| match journal.read(record) {
            Some(LogOutcome::Failed(cause)) => Some(cause),
            _ => None,
        });
    }
    let cause = failed.unwrap();
    assert_eq!(journal.last(), Sequence(2), "nothing after the unknown record counts");
    assert!(cause.contains("record 3") && cause.contains("`split`") && cause.contains("upgrade this node"), "{cause}");
    let refused = join(&log, "another").err().unwrap().to_string();
    assert!(refused.contains("record 3") && refused.contains("`split`"), "{refused}");
}

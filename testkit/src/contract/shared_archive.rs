//! The contract of an archive that the nodes of a cluster share. One node copies to it behind the log, and all nodes drop archived posts
//! from memory. Takeovers in the middle of a batch, restarts and replays lose and duplicate nothing.

mod damage;
mod live_events;
mod pending_edits;
mod refused;
mod store_connection;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use tidewire::clock::SystemClock;
use tidewire::cluster::journal::{JoinError, NodeOptions, bootstrap_log, bootstrap_log_with_archive};
use tidewire::cluster::placement::Placement as _;
use tidewire::cluster::record::ClusterId;
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Joining, NodeStorage, SnapshotOptions};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::outbox::{OutboxQuery, Part};
use tidewire::feed::page::Range;
use tidewire::feed::position::{Direction, PositionRange};
use tidewire::feed::post::Body;
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::recovery::node::NoPeers;
use tidewire::state::reader::PageRequest;
use tidewire::state::tiering::decode;
use tidewire::storage::archive::{ArchivedRecord, RemoteArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::identity::Identity;
use tidewire::storage::log::ReadLog as _;
use tidewire::storage::log::memory::MemoryLog;
use tidewire::storage::sequence::Sequence;

use crate::cluster_nodes::{Node, SESSION, post};
use crate::world::{above, edge, id, insist, patient, some};
use crate::{DEADLINE, PageCount, eventually_async, seed};

pub use damage::a_damaged_outbox_keeps_posts_of_its_source_in_memory_and_delays_no_other;
pub use live_events::{
    a_reused_name_of_an_erased_user_is_not_the_parent_of_old_replies,
    archived_reposts_are_hidden_shown_and_deleted_on_all_nodes,
    edits_of_a_partly_written_batch_survive_a_concurrent_erasure,
    live_readers_on_all_nodes_receive_changes_of_archived_posts,
    old_posts_are_archived_while_an_erasure_rewrites_the_archive,
};
pub use pending_edits::the_sequencer_refuses_edits_of_old_posts_when_too_many_are_pending;
pub use refused::{
    a_cluster_has_an_archive_on_all_nodes_from_its_beginning_or_never,
    a_log_that_ends_before_the_archived_events_is_refused, the_archive_of_another_cluster_is_refused,
};
use store_connection::{Answers, StoreConnection};

/// Generates a test of nodes for each case, beside a new [`Store`] that `$new` creates; attributes apply to each test.
#[macro_export]
macro_rules! shared_archive_contract {
    ($(#[$attribute:meta])* $new:path) => {
        $crate::shared_archive_contract! { @cases [$(#[$attribute])*] $new:
            old_posts_leave_the_memory_of_all_nodes_and_are_shown_by_all,
            edits_and_deletions_show_on_all_nodes_while_the_archive_delays_writes,
            a_takeover_during_a_batch_and_late_writes_of_a_deposed_node_are_harmless,
            nodes_start_from_snapshots_and_replay_archived_events,
            a_cluster_has_an_archive_on_all_nodes_from_its_beginning_or_never,
            a_log_that_ends_before_the_archived_events_is_refused,
            the_archive_of_another_cluster_is_refused,
            an_erasure_removes_the_user_from_every_record_of_the_archive,
            all_nodes_agree_with_the_log_despite_faults_of_nodes_and_store_connections,
            live_readers_on_all_nodes_receive_changes_of_archived_posts,
            archived_reposts_are_hidden_shown_and_deleted_on_all_nodes,
            a_reused_name_of_an_erased_user_is_not_the_parent_of_old_replies,
            old_posts_are_archived_while_an_erasure_rewrites_the_archive,
            edits_of_a_partly_written_batch_survive_a_concurrent_erasure,
            a_damaged_outbox_keeps_posts_of_its_source_in_memory_and_delays_no_other,
        }
    };
    (@cases $attributes:tt $new:path: $($case:ident,)*) => {
        $($crate::shared_archive_contract! { @case $attributes $new, $case })*
    };
    (@case [$($attributes:tt)*] $new:path, $case:ident) => {
        #[tokio::test]
        $($attributes)*
        async fn $case() {
            $crate::contract::shared_archive::$case($new()).await;
        }
    };
}

/// A store that the nodes of a test share.
pub struct Store {
    /// Returns a connection of one more machine to the store.
    pub open: Box<dyn Fn() -> Arc<dyn RemoteArchive> + Send + Sync>,
    /// True if the store is in memory. Then the connections of the nodes must cache their reads, as those to a real store do.
    pub is_in_memory: bool,
}

const AUTHORS: u64 = 3;

/// Reads all of an outbox, newest first.
const ALL: OutboxQuery =
    OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Older, max: usize::MAX };

struct Member {
    node: Node,
    files: MemoryFiles,
    connection: Arc<StoreConnection>,
    celebrity: CelebrityPolicy,
}

/// Three nodes with one archive, and the expected body of each post; none if it was deleted.
struct TestCluster {
    log: MemoryLog,
    store: Store,
    /// The connection of the test to the archive.
    archive: Arc<dyn RemoteArchive>,
    identity: Arc<Mutex<Option<Identity>>>,
    /// The source whose outbox is damaged in the archive.
    damaged: Arc<Mutex<Option<SourceId>>>,
    members: Vec<Member>,
    expected: BTreeMap<u64, Option<String>>,
}

fn start(
    log: &MemoryLog,
    name: &str,
    files: &MemoryFiles,
    connection: Option<&Arc<StoreConnection>>,
    celebrity: CelebrityPolicy,
) -> Result<Node, JoinError> {
    let clock = Arc::new(SystemClock);
    let view = Arc::new(ClusterState::new(name.parse().unwrap(), clock.clone(), SESSION));
    let snapshots = SnapshotOptions::default();
    let storage = Some(NodeStorage { files: Arc::new(files.clone()), lock: None, snapshots });
    let config = EngineConfig { celebrity, outbox_posts: some(4), inbox_posts: some(10), ..patient() };
    let options = NodeOptions { name: name.parse().unwrap(), address: format!("http://{name}"), session: SESSION };
    let (progress, joined, peers) = (&RecoveryProgress::default(), Arc::clone(&view), &NoPeers);
    let archive = connection.map(|connection| Arc::clone(connection) as Arc<dyn RemoteArchive>);
    let (engine, _) = Joining { config, log, options, view, storage, archive, peers, clock, progress }.run()?;
    Ok(Node { engine, state: joined })
}

fn author(number: u64) -> String {
    format!("author-{}", number % AUTHORS)
}

impl TestCluster {
    fn empty(store: Store) -> Self {
        let log = MemoryLog::default();
        bootstrap_log_with_archive(&log, 16, ClusterId(5)).unwrap();
        let (archive, identity, damaged) = ((store.open)(), Arc::default(), Arc::default());
        Self { log, store, archive, identity, damaged, members: Vec::new(), expected: BTreeMap::new() }
    }

    async fn new(store: Store) -> Self {
        let mut cluster = Self::empty(store);
        // Each node chooses other routes for the same posts.
        for (name, celebrity) in [("a", CelebrityPolicy::PushAll), ("b", CelebrityPolicy::PullAll), ("c", above(1))] {
            cluster.add_with(name, celebrity);
        }
        cluster.all_are_members().await;
        cluster.follow_all().await;
        cluster
    }

    async fn follow_all(&self) {
        let edges: Vec<_> = (0..AUTHORS).map(|nth| edge("ann", &author(nth))).collect();
        self.done(async |engine| engine.follow(edges.clone()).await).await;
    }

    /// Returns a connection of one more machine to the store.
    fn connection(&self) -> Arc<StoreConnection> {
        let (store, identity) = ((self.store.open)(), Arc::clone(&self.identity));
        let cached = self.store.is_in_memory.then(Mutex::default);
        let (answers, changed, damaged) = (Mutex::default(), Condvar::new(), Arc::clone(&self.damaged));
        let (halves, rewrites_begun, rewrites) = Default::default();
        Arc::new(StoreConnection {
            cached,
            store,
            identity,
            answers,
            damaged,
            changed,
            halves,
            rewrites_begun,
            rewrites,
        })
    }

    fn add_with(&mut self, name: &str, celebrity: CelebrityPolicy) {
        let connection = self.connection();
        let files = MemoryFiles::default();
        let node = start(&self.log, name, &files, Some(&connection), celebrity).unwrap();
        self.members.push(Member { node, files, connection, celebrity });
    }

    async fn all_are_members(&self) {
        let count = self.members.len();
        let sees_all = |member: &Member| member.node.state.membership().members().count() == count;
        eventually_async("all are members", async || self.members.iter().all(sees_all)).await;
    }

    fn sequencer_index(&self) -> Option<usize> {
        self.members.iter().position(|member| member.node.is_sequencer())
    }

    async fn sequencer(&self) -> &Member {
        eventually_async("a node is the sequencer", async || self.sequencer_index().is_some()).await;
        let first = self.sequencer_index().unwrap_or_default();
        &self.members[first]
    }

    /// Runs an operation on the sequencer, and retries it until it succeeds.
    async fn done<T>(&self, what: impl AsyncFn(&Engine) -> Result<T, Error>) {
        insist(async || what(&self.sequencer().await.node.engine).await).await.unwrap();
    }

    async fn publish(&mut self, number: u64) {
        self.done(async |engine| engine.publish(post(&author(number), number), false).await).await;
        self.expected.insert(number, Some("{}".to_owned()));
    }

    async fn publish_up_to(&mut self, number: u64) {
        let first = self.expected.keys().last().map_or(1, |last| last + 1);
        for number in first..=number {
            self.publish(number).await;
        }
    }

    async fn edit(&mut self, number: u64, body: &str) {
        let new = Body::new(body).unwrap();
        self.done(async |engine| engine.edit(PostId(number), Some(new.clone()), None).await).await;
        self.expected.insert(number, Some(body.to_owned()));
    }

    async fn delete(&mut self, number: u64) {
        self.done(async |engine| engine.delete(PostId(number)).await).await;
        self.expected.insert(number, None);
    }

    /// Shuts a node down, and starts it again from its directory.
    fn restart(&mut self, nth: usize) {
        let Member { node, files, celebrity, .. } = self.members.remove(nth);
        let name = node.state.me().to_string();
        node.engine.shutdown();
        let connection = self.connection();
        let node = start(&self.log, &name, &files, Some(&connection), celebrity).unwrap();
        self.members.insert(nth, Member { node, files, connection, celebrity });
    }

    async fn in_step(&self) {
        let applied = self.log.range().unwrap().last;
        let is_there = |member: &Member| member.node.state.applied() >= applied;
        eventually_async("all nodes apply the log", async || self.members.iter().all(is_there)).await;
        let is_delivered = |member: &Member| member.node.engine.shared().open_fanouts.is_empty();
        eventually_async("all posts are delivered", async || self.members.iter().all(is_delivered)).await;
    }

    fn in_memory(&self) -> usize {
        let of = |member: &Member| {
            member.node.engine.shared().world.sources.iter().map(|source| source.outbox().in_memory()).max()
        };
        self.members.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Waits until old posts have left memory everywhere.
    async fn settle(&self) {
        self.in_step().await;
        eventually_async("old posts leave memory", async || self.in_memory() <= 8).await;
    }

    fn live(&self) -> Vec<(u64, &str)> {
        self.expected.iter().rev().filter_map(|(number, body)| Some((*number, body.as_deref()?))).collect()
    }

    /// Compares the feeds, pages and posts of every node with the expected ones.
    async fn check(&self) {
        self.in_step().await;
        for member in &self.members {
            let name = member.node.state.me();
            assert_eq!(read_down(&member.node, None).await, self.live(), "the feed on node {name}");
            for nth in 0..AUTHORS {
                let of_author: Vec<_> = self.live().into_iter().filter(|(number, _)| number % AUTHORS == nth).collect();
                assert_eq!(read_down(&member.node, Some(&author(nth))).await, of_author, "{nth} on node {name}");
            }
            for (number, body) in &self.expected {
                let found = member.node.engine.post(PostId(*number)).await;
                assert_eq!(found.ok().map(|post| post.body().to_owned()), *body, "post {number} on node {name}");
            }
        }
    }

    /// Waits until the archive has everything, and compares all of it with the expected posts.
    async fn check_archive(&self) {
        let last = self.log.range().unwrap().last;
        eventually_async("the archive catches up", async || self.archive.through().unwrap() >= last).await;
        self.archive.invalidate_all();
        self.archive.refresh_ids().unwrap();
        for (number, body) in &self.expected {
            let record = match self.archive.post(PostId(*number)).unwrap() {
                Some(ArchivedRecord::Post(bytes)) => Some(decode(&bytes).unwrap().body.as_str().to_owned()),
                Some(ArchivedRecord::Deleted) => None,
                None => panic!("{number} is not in the archive"),
            };
            assert_eq!(record, *body, "post {number}");
        }
        for nth in 0..AUTHORS {
            let mut entries = Vec::new();
            let pulled = OutboxQuery { part: Part::Pulled, ..ALL };
            self.archive.positions(&id(&author(nth)), pulled, &mut entries).unwrap();
            entries.retain(|entry| self.expected[&entry.id.0].is_some());
            let of_author = self.live().into_iter().map(|(number, _)| number).filter(|number| number % AUTHORS == nth);
            assert_eq!(entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), of_author.collect::<Vec<_>>());
        }
    }

    fn shutdown(&self) {
        self.members.iter().for_each(|member| {
            member.connection.set(Answers::Always);
            member.node.engine.shutdown();
        });
    }
}

/// Reads the feed of ann, or the page of an author, down to its end.
async fn read_down(node: &Node, author: Option<&str>) -> Vec<(u64, &'static str)> {
    let (mut all, mut range) = (Vec::new(), Range::Newest);
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let request = PageRequest { range, limit: 7 };
        let page = match author {
            Some(author) => node.engine.own_page(&id(author), request).await.unwrap(),
            None => node.engine.feed(&id("ann"), request).await.unwrap(),
        };
        assert!(page.partial.is_empty() && page.page.unreadable.is_empty());
        // Leaked, since only few bodies are in use.
        all.extend(page.page.items.iter().map(|(at, entry)| (at.id.0, &*entry.post.body().to_owned().leak())));
        let Some(next) = page.page.next else { return all };
        range = Range::Before(next);
    }
}

pub async fn old_posts_leave_the_memory_of_all_nodes_and_are_shown_by_all(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(60).await;
    cluster.settle().await;
    cluster.check().await;
    // Only the archive has these posts, for all nodes except the one that judges the commands.
    cluster.edit(5, "[5]").await;
    cluster.edit(6, "[6]").await;
    cluster.edit(6, "[66]").await;
    cluster.delete(7).await;
    cluster.check().await;
    cluster.publish_up_to(90).await;
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    let (mut entries, of) = (Vec::new(), id(&author(7)));
    cluster.archive.positions(&of, ALL, &mut entries).unwrap();
    assert!(!entries.is_empty() && entries.iter().all(|entry| entry.id != PostId(7)), "a deleted post has no entry");
    cluster.shutdown();
}

pub async fn edits_and_deletions_show_on_all_nodes_while_the_archive_delays_writes(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(60).await;
    cluster.settle().await;
    cluster.members.iter().for_each(|member| member.connection.set(Answers::Late));
    cluster.edit(5, "[5]").await;
    cluster.delete(7).await;
    cluster.edit(6, "[6]").await;
    cluster.publish_up_to(80).await;
    cluster.check().await;
    assert!(cluster.in_memory() > 8);
    cluster.members.iter().for_each(|member| member.connection.set(Answers::Always));
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

pub async fn a_takeover_during_a_batch_and_late_writes_of_a_deposed_node_are_harmless(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(30).await;
    cluster.settle().await;
    for round in 1..=4 {
        let first = cluster.sequencer_index().unwrap_or_default();
        let connection = Arc::clone(&cluster.members[first].connection);
        let halves = || connection.halves.load(Ordering::Relaxed);
        let before = halves();
        connection.set(Answers::Late);
        cluster.edit(round, "[\"early\"]").await;
        cluster.publish_up_to(30 + 30 * round).await;
        eventually_async("it has begun a batch", async || halves() > before).await;
        cluster.members[first].node.engine.leave();
        let is_deposed = || !cluster.members[first].node.is_sequencer() && cluster.sequencer_index().is_some();
        eventually_async("another node is the sequencer", async || is_deposed()).await;
        cluster.edit(round, &format!("[{round}]")).await;
        cluster.delete(30 * round + 1).await;
        cluster.delete(30 * round + 30).await;
        cluster.publish_up_to(30 + 30 * round + 5).await;
        let last = cluster.log.range().unwrap().last;
        eventually_async("the archive goes on", async || cluster.archive.through().unwrap() >= last).await;
        cluster.members[first].connection.set(Answers::Always);
        cluster.restart(first);
        cluster.all_are_members().await;
        cluster.check().await;
    }
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

pub async fn nodes_start_from_snapshots_and_replay_archived_events(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(40).await;
    cluster.settle().await;
    for member in &cluster.members {
        member.node.engine.snapshot().await.unwrap();
    }
    cluster.edit(3, "[3]").await;
    cluster.edit(3, "[33]").await;
    cluster.delete(4).await;
    cluster.publish_up_to(80).await;
    cluster.edit(41, "[41]").await;
    cluster.delete(42).await;
    cluster.settle().await;
    cluster.check_archive().await;
    for nth in 0..3 {
        cluster.restart(nth);
        cluster.all_are_members().await;
        cluster.check().await;
    }
    // A node without a directory reads all of the log.
    cluster.add_with("d", CelebrityPolicy::PushAll);
    cluster.all_are_members().await;
    cluster.settle().await;
    cluster.check().await;
    // All nodes restart at once.
    for member in &cluster.members {
        member.node.engine.shutdown();
    }
    (0..4).for_each(|nth| cluster.restart(nth));
    cluster.publish_up_to(100).await;
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

pub async fn an_erasure_removes_the_user_from_every_record_of_the_archive(store: Store) {
    let mut cluster = TestCluster::new(store).await;
    cluster.publish_up_to(60).await;
    cluster.settle().await;
    // All nodes have cached the data that is erased next.
    cluster.check().await;
    let erased = id(&author(1));
    cluster.done(async |engine| engine.erase(erased.clone()).await).await;
    let is_done = |member: &Member| member.node.engine.erasures().count == 0;
    eventually_async("the erasure ends", async || cluster.members.iter().all(is_done)).await;
    let gone = |(number, _): &(&u64, &mut Option<String>)| **number % AUTHORS == 1;
    cluster.expected.iter_mut().filter(gone).for_each(|(_, body)| *body = None);
    // Another user may take the name now.
    cluster.follow_all().await;
    cluster.publish_up_to(65).await;
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    let mut entries = Vec::new();
    cluster.archive.positions(&erased, ALL, &mut entries).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), [64, 61]);
    cluster.shutdown();
}

/// Random writes, edits and deletions of posts of any age, while nodes leave, restart and are cut off from the store.
pub async fn all_nodes_agree_with_the_log_despite_faults_of_nodes_and_store_connections(store: Store) {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut cluster = TestCluster::new(store).await;
    for _ in 0..6 {
        let victim = random.usize(..cluster.members.len());
        let answers = [Answers::Always, Answers::Never, Answers::Late][random.usize(..3)];
        cluster.members[victim].connection.set(answers);
        for _ in 0..random.usize(20..60) {
            let last = cluster.expected.keys().last().copied().unwrap_or(0);
            match random.u8(..10) {
                0 if last > 0 && answers != Answers::Never => {
                    let old = random.u64(1..=last);
                    if cluster.expected[&old].is_some() {
                        cluster.edit(old, ["[1]", "[2]", "[3]"][random.usize(..3)]).await;
                    }
                }
                1 if last > 0 && answers != Answers::Never => cluster.delete(random.u64(1..=last)).await,
                _ => cluster.publish(last + 1).await,
            }
        }
        match random.u8(..4) {
            0 => cluster.members[victim].node.engine.leave(),
            1 if answers != Answers::Never => {
                let _ = cluster.members[random.usize(..3)].node.engine.snapshot().await;
            }
            _ => {}
        }
        cluster.members[victim].connection.set(Answers::Always);
        if cluster.members[victim].node.state.membership().members().count() < 3 || random.bool() {
            cluster.restart(victim);
        }
        cluster.check().await;
    }
    cluster.settle().await;
    cluster.check().await;
    cluster.check_archive().await;
    cluster.shutdown();
}

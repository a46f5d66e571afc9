//! Backups of a cluster: who copies, what is restored, and how nodes start without a log, without a peer, or without both.

use std::io::Read;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use testkit::{DEADLINE, eventually_async};
use tidewire::clock::{Clock, UnixMicros};
use tidewire::cluster::journal::{JoinError, NodeOptions, append_first, bootstrap_log, first_record};
use tidewire::cluster::log_checkpoint::LogCheckpoint;
use tidewire::cluster::placement::{Place as Placed, Placement as _};
use tidewire::cluster::record::{ClusterId, Content};
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::Joining;
use tidewire::error::Error;
use tidewire::feed::followers::Sharding;
use tidewire::recovery::node::{NoPeers, NoSnapshot, SnapshotPeers};
use tidewire::recovery::rebuilt::{InitialState, NotRebuilt, Rebuilt};
use tidewire::state::world::World;
use tidewire::storage::archive::RemoteArchive;
use tidewire::storage::directory_identity::Identified;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::identity::Identity;
use tidewire::storage::log::memory::MemoryLog;
use tidewire::storage::log::{LogError, LogRange, LogReader, LogWriter, ReadLog, SharedLog};
use tidewire::storage::snapshot::{Section, SnapshotHeader, SnapshotWriter};
use tidewire_server::backup::cluster::{ClusterSource, newest_snapshot};
use tidewire_server::backup::store::Store;

use super::*;
use testkit::world::{draft, edge, id};

const SESSION: Duration = Duration::from_secs(1);

pub(super) struct Node {
    pub(super) engine: Engine,
    view: Arc<ClusterState>,
}

/// Starts a node on its data directory.
pub(super) fn start(
    log: &dyn SharedLog,
    name: &str,
    directory: &Path,
    peers: &dyn SnapshotPeers,
) -> Result<Node, JoinError> {
    start_with(Arc::new(SystemClock), None, log, name, directory, peers)
}

/// Starts a node with this clock and this archive.
pub(super) fn start_with(
    clock: Arc<dyn Clock>,
    archive: Option<Arc<dyn RemoteArchive>>,
    log: &dyn SharedLog,
    name: &str,
    directory: &Path,
    peers: &dyn SnapshotPeers,
) -> Result<Node, JoinError> {
    let view = Arc::new(ClusterState::new(name.parse().unwrap(), clock.clone(), SESSION));
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    let storage = Some(storage.claim().unwrap().for_node(storage.snapshots));
    let options = NodeOptions { name: name.parse().unwrap(), address: format!("http://{name}"), session: SESSION };
    let (config, progress, joined) = (few_in_memory(), &RecoveryProgress::default(), Arc::clone(&view));
    let (engine, _) = Joining { config, log, options, view, storage, archive, peers, clock, progress }.run()?;
    Ok(Node { engine, view: joined })
}

impl Node {
    /// Returns the last record that the node has applied.
    pub(super) fn applied(&self) -> Sequence {
        self.view.applied()
    }

    async fn takes_writes(&self) {
        eventually_async("the node takes writes", async || {
            self.view.sequencer() == Placed::Here && self.view.is_leased()
        })
        .await;
    }

    /// Returns the last event, and the digest of the state after it. A backup has this event from then on.
    pub(super) async fn state(&self) -> (u64, String) {
        let mut state = None;
        eventually_async("a digest is computed", async || {
            state = self.engine.digest(&*self.view);
            state.is_some_and(|(event, _)| self.view.applied() >= event)
        })
        .await;
        state.map(|(event, digest)| (event.0, digest.to_string())).unwrap()
    }

    /// Changes of all kinds. Posts have the numbers from `first` on.
    pub(super) async fn write(&self, first: u64) {
        self.takes_writes().await;
        for number in first..first + 20 {
            let post = Draft {
                id: Some(PostId(number)),
                published_at: None,
                ..draft(["bob", "eve"][number as usize % 2], "{}")
            };
            retried(|| self.engine.publish(post.clone(), false)).await;
        }
        retried(|| self.engine.follow(vec![edge("ann", "bob"), edge("carl", "eve")])).await;
        retried(|| self.engine.delete(PostId(first + 3))).await;
        retried(|| self.engine.unfollow(id("carl"), id("eve"))).await;
        retried(|| self.engine.edit(PostId(first + 5), Some(Body::new("\"new\"").unwrap()), None)).await;
    }

    pub(super) fn backups(&self, place: &Place, log: Arc<dyn SharedLog>) -> Backups {
        self.backups_with(place, log, place.options())
    }

    pub(super) fn backups_with(&self, place: &Place, log: Arc<dyn SharedLog>, options: BackupOptions) -> Backups {
        let cluster = ClusterSource { log, view: Arc::clone(&self.view) };
        place.backups(&self.engine, options).of_cluster(cluster)
    }
}

/// Repeats a change while the node has no lease for a moment, as on a busy machine.
pub(super) async fn retried<T, F: Future<Output = Result<T, Error>>>(mut change: impl FnMut() -> F) {
    eventually_async("the change is made", async || match change().await {
        Ok(_) => Ok(()),
        Err(refused @ (Error::NotSequencer | Error::OutcomeUnknown)) => Err(refused),
        Err(other) => panic!("{other}"),
    })
    .await;
}

/// With an archive, few posts stay in memory.
pub(super) fn few_in_memory() -> EngineConfig {
    EngineConfig { outbox_posts: NonZeroUsize::MIN, ..EngineConfig::default() }
}

pub(super) fn make_world() -> (Arc<World>, tidewire::state::world::StateMachine) {
    World::create(EngineConfig::default().celebrity, Sharding::new(1))
}

/// Loads the snapshot of a directory, and returns its record and the digest of its state.
pub(super) fn loaded(directory: &Path) -> (u64, String) {
    let rebuilt = Rebuilt::from_snapshot(&DiskFiles::open(directory).unwrap(), &make_world).unwrap();
    (rebuilt.followed.sequence.0, rebuilt.state.world.digest().to_string())
}

pub(super) fn founded(cluster: u64) -> MemoryLog {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(cluster)).unwrap();
    log
}

/// No other node lives, and there is a store.
struct StoreOnly<'a>(&'a Place, &'static str);

impl SnapshotPeers for StoreOnly<'_> {
    fn open(&self, _: &str, _: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot> {
        Err(NoSnapshot::Refused("nobody is there".to_owned()))
    }

    fn open_stored(&self, from: Sequence) -> Option<Result<Box<dyn Read + Send>, String>> {
        let Self(place, directory) = self;
        let store = Store::open(&place.options().to, false).unwrap();
        Some(newest_snapshot(store, from, &place.path(directory)).map_err(|cause| cause.to_string()))
    }
}

#[test]
fn every_copied_event_of_a_cluster_is_restored_with_the_digest_of_a_node() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        let (mut states, mut times) = (Vec::new(), Vec::new());
        for round in 1..4 {
            node.write(round * 100).await;
            states.push(node.state().await);
            times.push(SystemClock.now());
            if round != 2 {
                back_up(&mut backups).unwrap();
            }
        }
        assert_eq!(place.objects("backups").len(), 1, "the log is the increment");
        for (event, digest) in &states {
            let ran = place.restore(&format!("to-{event}"), &format!("--to-sequence {event}"));
            assert_eq!(ran.code, 0, "{}", ran.err);
            assert_eq!(loaded(&place.path(&format!("to-{event}"))), (*event, digest.clone()), "{}", ran.out);
        }
        let refused = place.restore("early", "--to-sequence 2");
        assert!(refused.code == 1 && refused.err.contains("event 2 cannot be restored"), "{}", refused.err);
        // Records without a time may follow the last event of a round.
        let ran = place.restore("time", &format!("--to-time {}", times[1]));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let restored = loaded(&place.path("time"));
        assert!(
            (states[1].0..states[2].0).contains(&restored.0) && restored.1 == states[1].1,
            "{restored:?} {states:?}"
        );

        // A node of this cluster continues from there.
        assert_eq!(place.restore("newest", "").code, 0);
        let (last, digest) = states.pop().unwrap();
        let restored = loaded(&place.path("newest"));
        assert!(restored.0 >= last && restored.1 == digest, "{restored:?}");
        node.write(500).await;
        let expected = node.state().await;
        node.engine.shutdown();
        let again = start(&log, "b", &place.path("newest"), &NoPeers).unwrap();
        assert_eq!(again.state().await, expected);
        again.engine.shutdown();
    });
}

#[test]
fn the_store_of_another_cluster_or_of_one_machine_is_refused() {
    run(async {
        let (place, log, other) = (Place::new(), founded(5), founded(6));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        back_up(&mut node.backups(&place, Arc::new(log.clone()))).unwrap();
        let stranger = start(&other, "a", &place.path("other"), &NoPeers).unwrap();
        // Also before it takes writes, when it only looks.
        let mut backups = stranger.backups(&place, Arc::new(other.clone()));
        let refused = back_up(&mut backups).unwrap_err().to_string();
        let names = "has backups of cluster 0000000000000005, and this is cluster 0000000000000006";
        assert!(refused.contains(names), "{refused}");
        stranger.takes_writes().await;
        let refused = back_up(&mut backups).unwrap_err().to_string();
        assert!(refused.contains(names), "{refused}");
        let alone = open(&place.path("alone"));
        let refused = back_up(&mut place.backups(&alone, place.options())).unwrap_err().to_string();
        assert!(refused.contains("cluster 0000000000000005, and this is data directory"), "{refused}");
        [alone, stranger.engine, node.engine].iter().for_each(Engine::shutdown);
    });
}

/// A log that reports when it is read, and lets nobody go on before it is released.
struct Held {
    log: MemoryLog,
    read: Sender<()>,
    released: Mutex<Receiver<()>>,
}

impl SharedLog for Held {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        self.log.writer()
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        self.log.to_read()
    }
}

impl ReadLog for Held {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        let _ = self.read.send(());
        let _ = self.released.lock().unwrap().recv();
        self.log.reader(after)
    }

    fn range(&self) -> Result<LogRange, LogError> {
        self.log.range()
    }

    fn place(&self) -> String {
        self.log.place()
    }
}

#[test]
fn only_the_sequencer_backs_up_and_a_node_replaced_during_a_run_is_harmless() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let a = start(&log, "a", &place.path("a"), &NoPeers).unwrap();
        a.write(1).await;
        let b = start(&log, "b", &place.path("b"), &NoPeers).unwrap();
        let mut of_a = a.backups(&place, Arc::new(log.clone()));
        let mut of_b = b.backups(&place, Arc::new(log.clone()));
        back_up(&mut of_b).unwrap();
        assert_eq!(place.objects("backups").len(), 0, "it takes no writes");
        back_up(&mut of_a).unwrap();
        a.write(50).await;
        back_up(&mut of_a).unwrap();
        assert_eq!(place.objects("backups").len(), 1);

        // Another run of the first node stands still in the middle: it has read what is in the store.
        let (read, is_read) = channel();
        let (release, released) = channel();
        let held = Held { log: log.clone(), read, released: Mutex::new(released) };
        let mut of_a = a.backups(&place, Arc::new(held));
        a.write(100).await;
        let running = thread::spawn(move || {
            let ran = of_a.run();
            (of_a, ran)
        });
        is_read.recv_timeout(DEADLINE).unwrap();
        a.engine.leave();
        b.write(200).await;
        let copied = place.objects("objects").len();
        back_up(&mut of_b).unwrap();
        let sent = place.objects("objects").len() - copied;
        assert_eq!((place.objects("backups").len(), sent), (2, 1), "it continues the backup, and sends no snapshot");
        b.write(300).await;
        let manifests = || -> Vec<_> {
            place.objects("backups").into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect()
        };
        let before = manifests();
        drop(release);
        let (_, ran) = running.join().unwrap();
        ran.unwrap();
        assert!(
            manifests() == before,
            "it has not copied what the other one has committed, so it claims no later time"
        );
        let (last, digest) = b.state().await;
        back_up(&mut of_b).unwrap();
        let ran = place.restore("newest", "");
        assert_eq!(ran.code, 0, "{}", ran.err);
        let restored = loaded(&place.path("newest"));
        assert!(restored.0 >= last && restored.1 == digest, "{restored:?} {last} {digest}");
        // As an export it becomes the state of one machine.
        let directory = place.export_and_import("--data-dir newest", "alone");
        let storage = StorageConfig { directory, ..StorageConfig::default() };
        let (clock, progress) = (Arc::new(SystemClock), &RecoveryProgress::default());
        let (alone, _) = Engine::open(EngineConfig::default(), &storage, clock, progress).unwrap();
        assert_eq!((last_event(&alone), alone.shared().world.digest().to_string()), (restored.0, digest));
        alone.shutdown();
        // All of the manifests can be restored, those of the first node, too.
        let parts = place.objects("objects");
        for manifest in place.objects("backups") {
            let text = std::fs::read_to_string(&manifest).unwrap();
            for named in text.split("\"sha256\":\"").skip(1).map(|rest| &rest[..64]) {
                assert!(parts.iter().any(|part| part.ends_with(named)), "{} names {named}", manifest.display());
            }
        }
        b.engine.shutdown();
        a.engine.shutdown();
    });
}

#[test]
#[ignore = "listens for other nodes for 15 s"]
fn a_node_starts_from_the_store_when_the_log_is_truncated_and_no_node_runs() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        let snapshot = node.engine.snapshots()[0].sequence;
        node.write(100).await;
        let copied = node.state().await.0;
        back_up(&mut backups).unwrap();
        node.write(200).await;
        let expected = node.state().await;
        node.engine.shutdown();
        // The store opens a runtime of its own, so the test's cannot call it.
        let start_of = |name: &'static str, store: bool| {
            let only = StoreOnly(&place, name);
            let peers: &dyn SnapshotPeers = if store { &only } else { &NoPeers };
            thread::scope(|scope| scope.spawn(|| start(&log, name, &place.path(name), peers)).join().unwrap())
        };
        // The snapshot; then one that is made of the copied records, too.
        for (name, first) in [("b", snapshot.0), ("c", copied)] {
            log.delete_before(Sequence(first));
            let refused = start_of("nobody", false).err().unwrap().to_string();
            assert!(refused.contains("this node has no snapshot") && !refused.contains("store"), "{refused}");
            let again = start_of(name, true).unwrap();
            assert_eq!(again.state().await, expected, "{name}");
            again.engine.shutdown();
            assert!(!place.path(name).join("restore.unfinished").exists());
        }
        // The store has nothing from there on.
        let last = log.range().unwrap().last;
        log.delete_before(last);
        let refused = start_of("d", true).err().unwrap().to_string();
        let named = format!("the store of backups: record {last} cannot be restored from");
        assert!(refused.contains(&named) && refused.contains("which has records up to"), "{refused}");
    });
}

#[test]
fn a_new_cluster_starts_from_the_backup_of_a_cluster_whose_log_is_lost() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        node.write(100).await;
        let (_, digest) = node.state().await;
        back_up(&mut backups).unwrap();
        node.engine.shutdown();
        assert_eq!(place.restore("restored", "").code, 0);
        let state = Rebuilt::from_snapshot(&DiskFiles::open(&place.path("restored")).unwrap(), &make_world).unwrap();
        let state = InitialState::from(state);
        let found = |directory: &str| {
            let files = Arc::new(DiskFiles::open(&place.path(directory)).unwrap());
            state.found(files, ClusterId(9), 16, false, UnixMicros(1)).unwrap()
        };
        let new = MemoryLog::default();
        append_first(&new, &found("first")).unwrap();

        let refused = start(&new, "z", &place.path("z"), &NoPeers).err().unwrap().to_string();
        for part in ["begins with the state of cluster 0000000000000005 after record", "no snapshot", "--from-snapshot"]
        {
            assert!(refused.contains(part), "{refused}");
        }
        // That of the lost cluster is refused, whatever it has.
        let refused = start(&new, "z", &place.path("restored"), &NoPeers).err().unwrap().to_string();
        assert!(refused.contains("0000000000000005") && refused.contains("0000000000000009"), "{refused}");
        let first = start(&new, "a", &place.path("first"), &NoPeers).unwrap();
        assert_eq!(first.state().await, (1, digest.clone()));
        first.write(1_000).await;
        let expected = first.state().await;
        assert_ne!(expected.1, digest);
        // Its own backups need a place of their own.
        let refused = back_up(&mut first.backups(&place, Arc::new(new.clone()))).unwrap_err();
        assert!(matches!(refused, BackupError::OtherIdentity { .. }), "{refused}");
        first.engine.shutdown();
        let again = start(&new, "a", &place.path("first"), &NoPeers).unwrap();
        assert_eq!(again.state().await, expected);
        again.engine.shutdown();

        // A log of another state.
        let other = MemoryLog::default();
        let record = found("second");
        let mut bytes = record.bytes.clone();
        let at = bytes.windows(32).position(|part| part == digest.as_bytes()).unwrap();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        append_first(&other, &tidewire::storage::log::LogRecord { bytes, ..record }).unwrap();
        let refused = start(&other, "a", &place.path("second"), &NoPeers).err().unwrap();
        assert!(matches!(refused, JoinError::OtherFirstState { .. }), "{refused}");
    });
}

#[test]
fn a_backup_begins_after_an_erasure_and_earlier_restores_name_the_user() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        let post = draft("zoe-the-erased", "{}");
        retried(|| node.engine.publish(post.clone(), false)).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        node.write(100).await;
        let before = node.state().await;
        retried(|| node.engine.erase(id("zoe-the-erased"))).await;
        eventually_async("the erasure ends", async || node.engine.erasures().count == 0).await;
        node.state().await;
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("backups").len(), 2, "the first one has the user");
        let ran = place.restore("before", &format!("--to-sequence {}", before.0));
        assert!(ran.code == 0 && ran.err.contains("zoe-the-erased was erased after this event"), "{}", ran.err);
        assert_eq!(loaded(&place.path("before")), before);
        let ran = place.restore("after", "");
        assert_eq!((ran.code, &*ran.err), (0, ""));
        let has_user = |name| {
            let files = DiskFiles::open(&place.path(name)).unwrap();
            let rebuilt = Rebuilt::from_snapshot(&files, &make_world).unwrap();
            rebuilt.state.world.sources.iter().any(|source| source.id == id("zoe-the-erased") && !source.is_erased())
        };
        assert!(has_user("before") && !has_user("after"));
        node.engine.shutdown();
    });
}

#[test]
fn a_snapshot_that_needs_log_records_cannot_start_a_cluster() {
    let first = first_record(ClusterId(5), &Content::Founded { partitions: 16, archive: false });
    let followed = LogCheckpoint::founded(&first).unwrap();
    let header = SnapshotHeader { sequence: Sequence(1), taken_at: UnixMicros(0) };
    // The last record that was applied before the snapshot was complete.
    for through in [1, 4] {
        let files = Identified::new(Arc::new(MemoryFiles::default()), Identity::of_cluster(5));
        let state = || Rebuilt::from_snapshot(&files, &make_world);
        assert!(matches!(state(), Err(NotRebuilt::NoSnapshot(_))));
        let mut writer = SnapshotWriter::begin(&files, header, false).unwrap();
        writer.record(Section::Cluster, &followed).unwrap();
        writer.finish(Sequence(through), UnixMicros(0), false).unwrap();
        match (through, state()) {
            (1, Ok(state)) => assert_eq!(state.followed, followed),
            (4, Err(refused)) => assert!(refused.to_string().contains("records 2 to 4,"), "{refused}"),
            (through, state) => panic!("through {through}: {:?}", state.err()),
        }
    }
}

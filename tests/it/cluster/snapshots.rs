//! Nodes that start from snapshots, their own or those of others, on a log whose beginning is deleted.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::{eventually_async, seed};
use tidewire::cluster::log_checkpoint::LogCheckpoint;
use tidewire::engine::{Joining, Listed, NodeStorage, SnapshotOptions, StorageConfig};
use tidewire::recovery::node::{NoPeers, NoSnapshot, SnapshotPeers};
use tidewire::recovery::{RecordBatch, RecoveryProgress, RecoveryReport, decode};
use tidewire::runtime::message::SnapshotTaken;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::identity::Identity;
use tidewire::storage::log::{LogRange, ReadLog as _};
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::SnapshotReader;

use super::*;
use testkit::oracle::Expected;
use testkit::world::{patient, whole_feed};

const AUTHORS: u64 = 4;
const READERS: u64 = 6;

/// Other nodes, by their addresses.
#[derive(Default)]
struct Others(BTreeMap<String, Engine>);

impl Others {
    fn of(nodes: &[Node]) -> Self {
        Self(nodes.iter().map(|node| (format!("http://{}", node.state.me()), node.engine.clone())).collect())
    }
}

impl SnapshotPeers for Others {
    fn open(&self, address: &str, from: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot> {
        let refused = |cause: &dyn std::fmt::Display| NoSnapshot::Refused(cause.to_string());
        let engine = self.0.get(address).ok_or_else(|| refused(&"nobody is there"))?;
        let stored = engine.snapshots().into_iter().next().filter(|newest| newest.sequence >= from);
        let newest = stored.map_or_else(|| take(engine), Ok).map_err(|cause| refused(&cause))?;
        let files = engine.data_files().ok_or_else(|| refused(&"no directory"))?;
        files.read(&newest.file).map(|(reader, _)| reader).map_err(|cause| refused(&cause))
    }
}

/// Takes a snapshot on a thread of its own, since that of the test waits.
fn take(engine: &Engine) -> Result<SnapshotTaken, Error> {
    let taking = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(engine.snapshot());
    std::thread::scope(|scope| scope.spawn(taking).join().unwrap())
}

pub(super) fn start(
    log: &MemoryLog,
    name: &str,
    files: Option<&MemoryFiles>,
    peers: &dyn SnapshotPeers,
) -> Result<(Node, RecoveryReport), JoinError> {
    let clock = Arc::new(SystemClock);
    let view = Arc::new(ClusterState::new(name.parse().unwrap(), clock.clone(), SESSION));
    let snapshots = SnapshotOptions::default();
    let storage = files.map(|files| NodeStorage { files: Arc::new(files.clone()), lock: None, snapshots });
    let config = EngineConfig { celebrity: CelebrityPolicy::PushAll, ..patient() };
    let options = NodeOptions { name: name.parse().unwrap(), address: format!("http://{name}"), session: SESSION };
    let (progress, joined) = (&RecoveryProgress::default(), Arc::clone(&view));
    let (engine, report) =
        Joining { config, log, options, view, storage, archive: None, peers, clock, progress }.run()?;
    Ok((Node { engine, state: joined }, report))
}

/// What users see on a node.
#[derive(PartialEq, Debug)]
struct Seen {
    feeds: Vec<Vec<Expected>>,
    following: Vec<Vec<Listed>>,
    followers: Vec<Vec<Listed>>,
}

async fn seen(node: &Node) -> Seen {
    let mut feeds = Vec::new();
    for reader in 0..READERS {
        feeds.push(whole_feed(&node.engine, &format!("reader-{reader}"), 50).await);
    }
    let all = UnixMicros(i64::MAX);
    let following = |reader| node.engine.following(&id(&format!("reader-{reader}")), all, 100);
    let followers = |author| node.engine.followers(&id(&format!("author-{author}")), all, 100);
    Seen { feeds, following: (0..READERS).map(following).collect(), followers: (0..AUTHORS).map(followers).collect() }
}

/// Waits until a node has applied what is in the log now.
pub(super) async fn caught_up(node: &Node, log: &MemoryLog) {
    let last = log.range().unwrap().last;
    eventually_async("a node catches up", async || node.state.applied() >= last && node.state.is_ready()).await;
}

/// Makes random changes on the sequencer. Posts have the numbers from `first` on.
pub(super) async fn write(nodes: &[Node], random: &mut fastrand::Rng, first: u64, count: u64) {
    for number in first..first + count {
        // Another node may have taken over meanwhile.
        loop {
            let node = sequencer(nodes).await;
            let (reader, author) = (random.u64(..READERS), random.u64(..AUTHORS));
            let (reader, author) = (format!("reader-{reader}"), format!("author-{author}"));
            let done = match random.u32(..10) {
                0..6 => node.engine.publish(post(&author, number), false).await.map(drop),
                6..8 => node.engine.follow(vec![edge(&reader, &author)]).await.map(drop),
                8 => node.engine.unfollow(id(&reader), id(&author)).await,
                _ => node.engine.delete(PostId(random.u64(1..=number))).await,
            };
            match done {
                Ok(()) => break,
                Err(Error::NotSequencer | Error::LogUnavailable(_) | Error::OutcomeUnknown) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn a_restarted_node_loads_its_snapshot_and_reads_only_later_records() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let files = MemoryFiles::default();
    let (node, report) = start(&log, "a", Some(&files), &NoPeers).unwrap();
    assert_eq!((report.snapshot, report.events), (None, 0));
    let nodes = [node];
    let mut random = fastrand::Rng::with_seed(1);
    write(&nodes, &mut random, 1, 200).await;
    let taken = nodes[0].engine.snapshot().await.unwrap();
    write(&nodes, &mut random, 201, 20).await;
    let expected = seen(&nodes[0]).await;
    nodes[0].engine.shutdown();
    let (again, report) = start(&log, "a", Some(&files), &NoPeers).unwrap();
    assert_eq!(report.snapshot, Some(taken.sequence));
    assert!((1..=20).contains(&report.events), "{report:?}");
    caught_up(&again, &log).await;
    assert_eq!(seen(&again).await, expected);
    again.engine.shutdown();
    // A damaged snapshot is passed over.
    let newest = tidewire::storage::snapshot::name(taken.sequence);
    files.tamper(&newest, |bytes| bytes[100] ^= 1);
    let (whole, report) = start(&log, "a", Some(&files), &NoPeers).unwrap();
    assert_eq!((report.snapshot, report.skipped.len()), (None, 1));
    assert_eq!(seen(&whole).await, expected);
    whole.engine.shutdown();
}

#[tokio::test]
async fn nodes_started_from_any_snapshot_agree_even_if_the_log_is_truncated() {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(5)).unwrap();
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let names = ["a", "b", "c"];
    let mut files = names.map(|_| MemoryFiles::default());
    let start_all = |(name, files)| start(&log, name, Some(files), &NoPeers).unwrap().0;
    let mut nodes: Vec<Node> = names.into_iter().zip(&files).map(start_all).collect();
    for round in 0..6 {
        eventually_async("all are members", async || {
            nodes.iter().all(|node| node.state.membership().members().count() == 3)
        })
        .await;
        let (taker, victim) = (random.usize(..3), random.usize(..3));
        write(&nodes, &mut random, 1 + round * 100, 50).await;
        // The snapshot is taken while writes go on.
        let engine = nodes[taker].engine.clone();
        let taking = tokio::spawn(async move { engine.snapshot().await });
        write(&nodes, &mut random, 51 + round * 100, 50).await;
        let taken = taking.await.unwrap().unwrap();
        // On a busy machine a node may be behind the snapshot. It would not find what it has not read.
        let have_read = async || nodes.iter().all(|node| node.state.applied() >= taken.sequence);
        eventually_async("all nodes have read what the log loses", have_read).await;
        log.delete_before(Sequence(taken.sequence.0 + random.u64(..=1)));
        let node = nodes.remove(victim);
        node.engine.shutdown();
        if victim != taker && random.bool() {
            files[victim] = MemoryFiles::default();
        }
        let others = Others::of(&nodes);
        let (again, report) = start(&log, names[victim], Some(&files[victim]), &others).unwrap();
        assert!(report.snapshot >= Some(taken.sequence), "seed {seed}, round {round}: {report:?}");
        nodes.insert(victim, again);
        let expected = log.range().unwrap().last;
        eventually_async("all nodes apply the log", async || nodes.iter().all(|node| node.state.applied() >= expected))
            .await;
        let [one, other] = [seen(&nodes[victim]).await, seen(&nodes[(victim + 1) % 3]).await];
        assert_eq!(one, other, "seed {seed}, round {round}");
        assert!(one.feeds.iter().any(|feed| !feed.is_empty()), "an empty world proves nothing");
    }
    nodes.iter().for_each(|node| node.engine.shutdown());
}

pub(super) fn new_log(cluster: u64) -> MemoryLog {
    let log = MemoryLog::default();
    bootstrap_log(&log, 16, ClusterId(cluster)).unwrap();
    log
}

/// A node's log and directory, with a snapshot after some writes.
async fn with_snapshot(cluster: u64) -> (MemoryLog, MemoryFiles, Sequence) {
    let (log, files) = (new_log(cluster), MemoryFiles::default());
    let nodes = [start(&log, "a", Some(&files), &NoPeers).unwrap().0];
    write(&nodes, &mut fastrand::Rng::with_seed(1), 1, 20).await;
    let taken = nodes[0].engine.snapshot().await.unwrap();
    write(&nodes, &mut fastrand::Rng::with_seed(2), 21, 5).await;
    nodes[0].engine.shutdown();
    (log, files, taken.sequence)
}

/// Opens a directory as a server on one machine does.
fn open_alone(files: &MemoryFiles) -> Result<Engine, String> {
    let (storage, progress) = (tidewire::engine::StorageConfig::default(), RecoveryProgress::default());
    let (files, clock) = (Arc::new(files.clone()), Arc::new(SystemClock));
    let opened = Engine::open_on(EngineConfig::default(), files, None, None, &storage, clock, &progress);
    opened.map(|(engine, _)| engine).map_err(|cause| cause.to_string())
}

/// Copies the records of a log up to `last`, each changed by `change`.
fn copied(log: &MemoryLog, last: Sequence, mut change: impl FnMut(&mut Vec<u8>, Sequence)) -> MemoryLog {
    let copy = MemoryLog::default();
    let (mut reader, mut writer) = (log.reader(Sequence(0)).unwrap(), copy.writer().unwrap());
    loop {
        for mut record in reader.read(Duration::ZERO).unwrap() {
            if record.sequence > last {
                return copy;
            }
            change(&mut record.bytes, record.sequence);
            writer.append(record.bytes).unwrap();
        }
        if copy.range().unwrap().last == log.range().unwrap().last {
            return copy;
        }
    }
}

#[tokio::test]
#[ignore = "listens for other nodes for 12 s"]
async fn a_directory_that_does_not_match_the_log_is_refused_with_the_cause() {
    let (log, files, taken) = with_snapshot(5).await;
    let alone = MemoryFiles::default();
    open_alone(&alone).unwrap().shutdown();
    let refusal = |log: &MemoryLog, files: Option<&MemoryFiles>| {
        let refused = start(log, "a", files, &NoPeers).map(drop);
        refused.expect_err("it is refused").to_string()
    };
    let cut = new_log(5);
    let mut writer = cut.writer().unwrap();
    (0..3).for_each(|_| writer.append(b"a record of nobody".to_vec()).unwrap());
    cut.delete_before(Sequence(3));
    let truncated = copied(&log, Sequence(u64::MAX), |_, _| {});
    truncated.delete_before(Sequence(taken.0 + 2));
    let gone = copied(&log, Sequence(u64::MAX), |_, _| {});
    gone.delete_before(Sequence(u64::MAX));
    let shorter = copied(&log, Sequence(taken.0 - 1), |_, _| {});
    let replaced = copied(&log, Sequence(u64::MAX), |bytes, at| {
        if at == taken {
            *bytes = b"another record".to_vec();
        }
    });
    let place = files.place(&tidewire::storage::snapshot::name(taken));
    for (case, refused, parts) in [
        (
            "the log of another cluster",
            refusal(&new_log(6), Some(&files)),
            &["0000000000000005", "0000000000000006"][..],
        ),
        ("a directory of one machine", refusal(&log, Some(&alone)), &["of a server on one machine", "--data-dir"]),
        ("a node's directory alone", open_alone(&files).err().unwrap(), &["of a node of cluster", "--cluster"]),
        ("a shorter log", refusal(&shorter, Some(&files)), &["memory ends at record", &place, &taken.to_string()]),
        ("another log", refusal(&replaced, Some(&files)), &["another log", &taken.to_string()]),
        (
            "a late log",
            refusal(&truncated, Some(&files)),
            &["memory begins at record", "no other node", &taken.to_string()],
        ),
        (
            "a late log without a snapshot",
            refusal(&truncated, Some(&MemoryFiles::default())),
            &["no snapshot", "no other node"],
        ),
        ("a late log in memory", refusal(&truncated, None), &["this node has no snapshot", "--data-dir"]),
        (
            "a late log of nobody",
            refusal(&cut, Some(&MemoryFiles::default())),
            &["memory begins at record 3", "no snapshot", "no other node"],
        ),
        ("a log without a record", refusal(&gone, Some(&MemoryFiles::default())), &["no snapshot", "no other node"]),
        ("an empty log", refusal(&MemoryLog::default(), Some(&files)), &["memory is empty", "tidewire cluster init"]),
    ] {
        parts.iter().for_each(|part| assert!(refused.contains(part), "{case}: {refused:?} lacks {part:?}"));
    }
    let formats = [&files, &alone].map(|files| {
        let names = files.list().unwrap();
        let newest = names.iter().find(|name| name.starts_with("snapshot-"));
        newest.map(|name| files.content(name)[8])
    });
    assert_eq!(formats, [Some(3), None], "servers before clusters had snapshots refuse format 3");
}

#[tokio::test]
async fn a_snapshot_of_another_node_is_used_only_if_it_is_complete_and_undamaged() {
    let (log, files, taken) = with_snapshot(5).await;
    let (node, _) = start(&log, "a", Some(&files), &NoPeers).unwrap();
    caught_up(&node, &log).await;
    log.delete_before(taken);
    let name = tidewire::storage::snapshot::name(taken);
    let whole = files.content(&name);
    let damaged = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cut = |at: usize| whole[..at].to_vec();
    for (given, expected) in [
        (damaged(20), "not a snapshot of a node"),
        (damaged(60), "is damaged at byte"),
        (damaged(whole.len() - 1), "is damaged at byte"),
        (cut(10), "ended after 0 bytes"),
        (cut(whole.len() - 1), "is damaged at byte"),
    ] {
        let empty = MemoryFiles::default();
        empty.put(
            &format!("{}.unfinished", tidewire::storage::snapshot::name(Sequence(7))),
            b"of a process that died".to_vec(),
        );
        let refused = start(&log, "b", Some(&empty), &Given(given)).map(drop).expect_err("it is refused").to_string();
        assert!(refused.contains(expected) && refused.contains("http://a"), "{refused}");
        assert!(is_empty(&empty), "{expected}: {:?} is left", empty.list());
    }
    let empty = MemoryFiles::default();
    let (joined, report) = start(&log, "b", Some(&empty), &Given(whole.clone())).unwrap();
    assert_eq!((report.snapshot, empty.content(&name)), (Some(taken), whole));
    [node, joined].iter().for_each(|node| node.engine.shutdown());
}

fn is_empty(files: &MemoryFiles) -> bool {
    files.list().unwrap().is_empty()
}

/// Another node that gives these bytes.
struct Given(Vec<u8>);

impl SnapshotPeers for Given {
    fn open(&self, _: &str, _: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot> {
        Ok(Box::new(std::io::Cursor::new(self.0.clone())))
    }
}

/// Other nodes that are busy at first, and then give a snapshot that becomes too old meanwhile, since the log deletes its beginning.
struct Slow {
    asked: AtomicU64,
    log: MemoryLog,
    old: Vec<u8>,
    others: Others,
}

impl SnapshotPeers for Slow {
    fn open(&self, address: &str, from: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(NoSnapshot::Later("it sends a snapshot to another node".to_owned())),
            3 => {
                let slow = BeforeEnd { bytes: std::io::Cursor::new(self.old.clone()), log: self.log.clone() };
                Ok(Box::new(slow))
            }
            _ => self.others.open(address, from),
        }
    }
}

/// Deletes half of a log before the end is read.
struct BeforeEnd {
    bytes: std::io::Cursor<Vec<u8>>,
    log: MemoryLog,
}

impl Read for BeforeEnd {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.bytes.read(into)?;
        if read == 0 {
            let LogRange { first, last } = self.log.range().unwrap();
            self.log.delete_before(Sequence(first.0.midpoint(last.0)));
        }
        Ok(read)
    }
}

#[tokio::test]
async fn a_node_waits_for_busy_peers_and_fetches_an_outdated_snapshot_again() {
    let (log, files, taken) = with_snapshot(5).await;
    let (node, _) = start(&log, "a", Some(&files), &NoPeers).unwrap();
    caught_up(&node, &log).await;
    let old = files.content(&tidewire::storage::snapshot::name(taken));
    log.delete_before(taken);
    let others = Others([("http://a".to_owned(), node.engine.clone())].into());
    let slow = Slow { asked: AtomicU64::new(0), log: log.clone(), old, others };
    let empty = MemoryFiles::default();
    let (joined, report) = start(&log, "b", Some(&empty), &slow).unwrap();
    assert!(report.snapshot > Some(taken), "{report:?}");
    assert_eq!(slow.asked.load(Ordering::Relaxed), 5);
    caught_up(&joined, &log).await;
    assert_eq!(seen(&joined).await, seen(&node).await);
    [node, joined].iter().for_each(|node| node.engine.shutdown());
}

#[tokio::test]
async fn records_of_another_cluster_in_the_log_are_ignored() {
    let (log, files, taken) = with_snapshot(5).await;
    let (_, foreign_files, foreign_taken) = with_snapshot(6).await;
    let [own, foreign] = [(&files, taken), (&foreign_files, foreign_taken)]
        .map(|(files, at)| files.content(&tidewire::storage::snapshot::name(at)));
    let mut bytes = Vec::new();
    copied(&new_log(6), Sequence(1), |record, _| bytes.clone_from(record));
    let log = copied(&log, Sequence(u64::MAX), |record, at| {
        if at.next() == taken {
            record.clone_from(&bytes);
        }
    });
    log.delete_before(Sequence(taken.0 - 1));
    let (node, report) = start(&log, "a", Some(&files), &NoPeers).unwrap();
    assert_eq!(report.snapshot, Some(taken), "the directory knows the cluster");
    let empty = MemoryFiles::default();
    start(&log, "b", Some(&empty), &NoPeers).map(drop).expect_err("there is no snapshot");
    assert!(is_empty(&empty), "{:?}", empty.list());
    let refused = start(&log, "b", Some(&empty), &Given(foreign)).map(drop).expect_err("it is refused").to_string();
    assert!(refused.contains("http://a") && is_empty(&empty), "{refused}");
    let (joined, _) = start(&log, "b", Some(&empty), &Given(own)).unwrap();
    caught_up(&joined, &log).await;
    assert_eq!(tidewire::storage::directory_identity::find(&empty).unwrap(), Some(Identity::of_cluster(5)));
    [node, joined].iter().for_each(|node| node.engine.shutdown());
}

#[test]
fn a_single_server_writes_nothing_into_the_directory_of_a_node() {
    let directory = tempfile::tempdir().unwrap();
    let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
    let files = DiskFiles::open(directory.path()).unwrap();
    tidewire::storage::directory_identity::establish_of_cluster(&files, 5).unwrap();
    drop(storage.claim().unwrap());
    let before = files.list().unwrap();
    let opened = Engine::open(EngineConfig::default(), &storage, Arc::new(SystemClock), &RecoveryProgress::default());
    let refused = opened.map(drop).expect_err("it is refused").to_string();
    assert!(refused.contains("of a node of cluster"), "{refused}");
    assert_eq!(files.list().unwrap(), before);
}

/// The files of released formats.
fn released(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v3").join(name)
}

/// The sequence of the snapshot of format 3.
const RELEASED: Sequence = Sequence(21);

#[test]
fn a_snapshot_of_format_3_still_has_its_log_checkpoint() {
    let (files, name) = (MemoryFiles::default(), tidewire::storage::snapshot::name(RELEASED));
    files.put(&name, std::fs::read(released(&name)).unwrap());
    let mut reader = SnapshotReader::open(&files, &name).unwrap();
    assert_eq!((reader.format(), reader.identity()), (3, Some(Identity::of_cluster(5))));
    let (mut followed, mut posts) = (Vec::new(), 0);
    while let Some(block) = reader.next_block().unwrap() {
        match decode(&block).unwrap() {
            RecordBatch::Cluster(records) => followed.extend(records),
            RecordBatch::Posts(records) => posts += records.len(),
            _ => {}
        }
    }
    let [LogCheckpoint { membership, sequence, fingerprint, .. }] = &followed[..] else { panic!("{followed:?}") };
    assert_eq!((*sequence, *fingerprint, posts), (RELEASED, 15_938_055_778_520_662_308, 12));
    assert_eq!((membership.cluster(), membership.partitions(), membership.epoch().0), (ClusterId(5), 16, 1));
    let members: Vec<_> = membership.members().map(|member| (member.run.node.as_str(), &*member.address)).collect();
    assert_eq!(members, [("a", "http://a")]);
    assert_eq!(membership.sequencer().map(|run| run.node.as_str()), Some("a"));
}

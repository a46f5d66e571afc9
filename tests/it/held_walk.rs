//! Writers beside a snapshot whose walk is held in the middle: memory fills up to its budget meanwhile, and is emptied
//! into the archive as ever. Held by the disk, not by time: a gate that the test opens stands before the snapshot's file.

use std::io::{self, Read};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use testkit::eventually_async;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::files::{AppendFile, Files};
use tidewire::storage::journal::Durability;

use testkit::histories::{open_before, storage};
use testkit::world::{above, draft, edge, id, patient, some, whole_feed};

/// Lets through so many writes to snapshots, and holds the next.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Without a number all are let through.
    left: Option<usize>,
    is_held: bool,
}

impl Gate {
    fn hold_after(&self, writes: usize) {
        self.state.lock().left = Some(writes);
    }

    fn open(&self) {
        self.state.lock().left = None;
        self.changed.notify_all();
    }

    fn is_held(&self) -> bool {
        self.state.lock().is_held
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        while state.left == Some(0) {
            state.is_held = true;
            self.changed.wait(&mut state);
        }
        state.is_held = false;
        state.left = state.left.map(|left| left - 1);
    }
}

/// A disk whose snapshots are written through a gate.
#[derive(Clone, Default)]
struct GatedFiles {
    files: MemoryFiles,
    gate: Arc<Gate>,
}

struct GatedFile {
    file: Arc<dyn AppendFile>,
    gate: Arc<Gate>,
}

impl Files for GatedFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.files.create(name)?;
        let is_gated = name.starts_with("snapshot-");
        Ok(if is_gated { Arc::new(GatedFile { file, gate: Arc::clone(&self.gate) }) } else { file })
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        self.files.reopen(name, keep_bytes)
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.files.read(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }

    fn place(&self, name: &str) -> String {
        self.files.place(name)
    }
}

impl AppendFile for GatedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.gate.pass();
        self.file.append(bytes)
    }

    fn cut(&self, keep_bytes: u64) -> io::Result<()> {
        self.file.cut(keep_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Bytes that posts may take: two blocks of a snapshot and a half.
const STORE_BYTES_MAX: usize = 5 << 19;

const BODY_BYTES: usize = 16_000;

/// An engine on such a disk, and the posts that were answered.
struct Full {
    files: GatedFiles,
    archive: Arc<MemoryArchive>,
    engine: Engine,
    posts: Vec<(PostId, bool)>,
}

fn open(files: GatedFiles, archive: &Arc<MemoryArchive>) -> Engine {
    let archive = Arc::clone(archive) as Arc<dyn Archive>;
    let config =
        EngineConfig { store_bytes_max: STORE_BYTES_MAX, outbox_posts: some(45), celebrity: above(100), ..patient() };
    let storage = storage(Durability::Always, 1 << 20);
    open_before(config, files, Some(&archive), &storage, Arc::new(SystemClock)).unwrap().0
}

impl Full {
    /// Ann follows three authors, eve a tag that is known before them: its outbox is walked before theirs.
    async fn new() -> Self {
        let (files, archive) = (GatedFiles::default(), Arc::new(MemoryArchive::default()));
        let engine = open(files.clone(), &archive);
        engine.follow(vec![edge("eve", "tag:tea")]).await.unwrap();
        engine.follow(["bob", "cas", "dan"].map(|author| edge("ann", author)).to_vec()).await.unwrap();
        Self { files, archive, engine, posts: Vec::new() }
    }

    fn bytes(&self) -> usize {
        self.engine.shared().world.posts.bytes()
    }

    /// Publishes `bytes` of posts, of which every twentieth has the tag, and none may be refused.
    async fn publish(&mut self, bytes: usize) {
        let text = "x".repeat(BODY_BYTES);
        for nth in 0..bytes / BODY_BYTES {
            let (author, is_tagged) = (["bob", "cas", "dan"][nth % 3], nth % 20 == 0);
            let tags = is_tagged.then(|| SourceId::tag("tea").unwrap()).into_iter().collect();
            let body = Body::new(&format!("\"{nth} {text}\"")).unwrap();
            let draft = Draft { tags, body, ..draft(author, "0") };
            let published = self.engine.publish(draft, false).await;
            let post = published.unwrap_or_else(|refused| panic!("{refused} at {} bytes", self.bytes())).post;
            self.posts.push((post.id(), is_tagged));
            assert!(self.bytes() <= STORE_BYTES_MAX + 2 * BODY_BYTES);
            // Slower than the archive: what is refused is not for haste.
            eventually_async("old posts leave memory", async || self.bytes() <= STORE_BYTES_MAX / 8 * 7).await;
        }
    }

    async fn until_held(&self) {
        eventually_async("the snapshot is written", async || self.files.gate.is_held()).await;
    }

    /// What a crash would leave now, some of what was not synced gone with the power.
    fn left(&self, seed: u64) -> Left {
        let (files, archive) = (self.files.files.forked(), self.archive.survived());
        files.lose_power(&mut fastrand::Rng::with_seed(seed));
        Left { files, archive, posts: self.posts.clone() }
    }
}

struct Left {
    files: MemoryFiles,
    archive: MemoryArchive,
    posts: Vec<(PostId, bool)>,
}

impl Left {
    /// All that was answered is there, once.
    async fn check(self) {
        let files = GatedFiles { files: self.files, gate: Arc::default() };
        let engine = open(files, &Arc::new(self.archive));
        let newest_first = |tagged_only: bool| -> Vec<u64> {
            let posts = self.posts.iter().rev().filter(|(_, is_tagged)| *is_tagged || !tagged_only);
            posts.map(|(post, _)| post.0).collect()
        };
        for (reader, tagged_only) in [("ann", false), ("eve", true)] {
            let found: Vec<u64> =
                whole_feed(&engine, reader, 100).await.into_iter().map(|entry| entry.post.0).collect();
            assert_eq!(found, newest_first(tagged_only), "{reader}");
        }
        assert_eq!(engine.source(&id("tag:tea")).unwrap().posts, newest_first(true).len());
        assert!(engine.shared().world.posts.bytes() <= STORE_BYTES_MAX);
        engine.shutdown();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_continue_at_the_byte_budget_during_a_snapshot_walk() {
    // At the header, at the sources, and within the posts.
    for held_after in [0, 1, 4] {
        let mut full = Full::new().await;
        full.publish(STORE_BYTES_MAX).await;
        full.files.gate.hold_after(held_after);
        let engine = full.engine.clone();
        let snapshot = tokio::spawn(async move { engine.snapshot().await });
        full.until_held().await;
        // Three times what memory holds.
        full.publish(3 * STORE_BYTES_MAX).await;
        assert!(full.files.gate.is_held());
        let mut left = vec![full.left(1)];
        full.files.gate.open();
        let taken = snapshot.await.unwrap().unwrap();
        left.push(full.left(2));
        full.publish(STORE_BYTES_MAX / 4).await;
        left.push(full.left(3));
        full.engine.shutdown();
        left.push(full.left(4));
        assert!(taken.bytes > 1_000_000, "the walk found {} bytes", taken.bytes);
        for left in left {
            left.check().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hidden_reply_deleted_during_a_snapshot_walk_is_not_counted_after_a_restart() {
    let files = GatedFiles::default();
    let open = |files| {
        let storage = storage(Durability::Always, 1 << 20);
        open_before(EngineConfig::default(), files, None, &storage, Arc::new(SystemClock)).unwrap().0
    };
    let publish = async |engine: &Engine, author: &str, body: Body, reply_to: Option<PostId>| {
        let draft = Draft { body, reply_to, ..draft(author, "0") };
        engine.publish(draft, false).await.unwrap().post.id()
    };
    let engine = open(files.clone());
    let short = || Body::new("1").unwrap();
    let parent = publish(&engine, "ann", short(), None).await;
    // The first block of the snapshot has all sources, and ends within these.
    for _ in 0..2 * STORE_BYTES_MAX / BODY_BYTES {
        publish(&engine, "ann", Body::new(&format!("\"{}\"", "x".repeat(BODY_BYTES))).unwrap(), None).await;
    }
    let reply = publish(&engine, "bob", short(), Some(parent)).await;
    engine.edit(reply, None, Some(true)).await.unwrap();
    files.gate.hold_after(2);
    let snapshot = tokio::spawn({
        let engine = engine.clone();
        async move { engine.snapshot().await }
    });
    eventually_async("the snapshot is written", async || files.gate.is_held()).await;
    engine.delete(reply).await.unwrap();
    files.gate.open();
    snapshot.await.unwrap().unwrap();
    engine.shutdown();
    let engine = open(files);
    publish(&engine, "bob", short(), Some(parent)).await;
    assert_eq!(engine.shared().world.counts(parent).replies, 1);
    engine.shutdown();
}

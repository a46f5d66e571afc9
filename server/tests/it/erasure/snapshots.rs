//! Snapshots beside an erasure: none begins before the erasure is noted as scrubbed and ends after it.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use testkit::{eventually, eventually_async};
use tidewire::clock::SystemClock;
use tidewire::engine::StorageConfig;
use tidewire::state::world::World;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::files::{AppendFile, Files};

use crate::erasure::{Town, run, small};
use testkit::histories::open_before;

/// What was known of erasures when snapshots began and ended.
#[derive(Default)]
struct Observed {
    world: OnceLock<Arc<World>>,
    archive: OnceLock<Arc<FaultyArchive<MemoryArchive>>>,
    /// The next snapshot begins, and waits until an erasure could be scrubbed.
    waits: AtomicBool,
    is_waiting: AtomicBool,
    /// Segments of the journal that were begun.
    segments: AtomicUsize,
    /// Whether any erasure was scrubbed when a snapshot began, and when it ended.
    snapshots: Mutex<Vec<(bool, Option<bool>)>>,
}

impl Observed {
    fn any_scrubbed(&self) -> bool {
        self.world.get().is_some_and(|world| world.sources.erasures().all().iter().any(|one| one.is_scrubbed()))
    }

    fn began(&self) {
        self.snapshots.lock().unwrap().push((self.any_scrubbed(), None));
        if !self.waits.swap(false, Ordering::AcqRel) {
            return;
        }
        let segments = self.segments.load(Ordering::Acquire);
        self.is_waiting.store(true, Ordering::Release);
        let is_rewritten = || self.archive.get().is_some_and(|archive| archive.counts().rewrites > 0);
        eventually("the archive is rewritten while a snapshot is taken", is_rewritten);
        eventually("the erasure begins its segment", || self.segments.load(Ordering::Acquire) > segments);
        // The next that the erasure does is to be noted as scrubbed. One that does not wait for the snapshot comes to it while others have
        // their turns.
        (0..1_000).filter(|_| !self.any_scrubbed()).for_each(|_| std::thread::yield_now());
    }

    fn ended(&self) {
        let is_scrubbed = self.any_scrubbed();
        if let Some(last) = self.snapshots.lock().unwrap().last_mut() {
            last.1 = Some(is_scrubbed);
        }
    }
}

/// Files that say when snapshots begin and end.
struct ObservedFiles(MemoryFiles, Arc<Observed>);

impl Files for ObservedFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        if name.starts_with("snapshot-") {
            self.1.began();
        } else if name.starts_with("journal-") {
            self.1.segments.fetch_add(1, Ordering::Release);
        }
        self.0.create(name)
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        self.0.reopen(name, keep_bytes)
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.0.read(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if to.starts_with("snapshot-") {
            self.1.ended();
        }
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }

    fn place(&self, name: &str) -> String {
        self.0.place(name)
    }
}

#[test]
fn an_erasure_waits_for_a_running_snapshot_before_it_scrubs_files() {
    run(async {
        let (files, observed) = (MemoryFiles::default(), Arc::new(Observed::default()));
        let archive = Arc::new(FaultyArchive::new(MemoryArchive::default(), Plan::default()));
        let shared = Arc::clone(&archive) as Arc<dyn Archive>;
        let open = || {
            let watched = ObservedFiles(files.clone(), Arc::clone(&observed));
            open_before(small(), watched, Some(&shared), &StorageConfig::default(), Arc::new(SystemClock)).unwrap().0
        };
        let mut town = Town::new(open());
        assert!(observed.world.set(Arc::clone(&town.engine.shared().world)).is_ok());
        town.settle(3).await;
        assert!(observed.archive.set(Arc::clone(&archive)).is_ok());
        observed.waits.store(true, Ordering::Release);
        let engine = town.engine.clone();
        let (taken, ()) = tokio::join!(engine.snapshot(), async {
            eventually_async("the snapshot begins", async || observed.is_waiting.load(Ordering::Acquire)).await;
            town.erase().await;
        });
        taken.unwrap();
        town.ended().await;
        let snapshots = observed.snapshots.lock().unwrap().clone();
        assert!(snapshots.iter().all(|(began, ended)| Some(*began) == *ended), "{snapshots:?}");
        assert!(snapshots.contains(&(false, Some(false))) && snapshots.contains(&(true, Some(true))), "{snapshots:?}");
        town.check().await;
        town.engine.shutdown();
        drop(engine);
        town.engine = open();
        assert_eq!(town.engine.erasures().count, 0);
        town.check().await;
        town.engine.shutdown();
    });
}

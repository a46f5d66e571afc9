//! Erasures that are cut short, wherever that is, and go on by themselves.

use std::sync::Arc;
use std::time::Duration;
use testkit::{cases, eventually_async, stride};

use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{ChangesError, Engine};
use tidewire::feed::event::Event;
use tidewire::storage::archive::{Archive, ArchivedRecord, MemoryArchive};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::faulty::{FaultyFiles, Plan};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::log::LogError;
use tidewire::storage::sequence::Sequence;

use crate::erasure::{MARKER, Town, ZOE, run, small};
use testkit::histories::{open_before, storage};

/// Most erasures have no more operations that write.
const OPERATIONS: u64 = 40;

/// A disk with an archive beside it.
#[derive(Clone)]
struct Disk {
    files: MemoryFiles,
    archive: Option<Arc<MemoryArchive>>,
    /// True if old segments are retained for consumers of changes.
    retains: bool,
}

impl Disk {
    fn new(has_archive: bool, retains: bool) -> Self {
        Self { files: MemoryFiles::default(), archive: has_archive.then(Arc::default), retains }
    }

    fn open(&self, files: impl Files) -> Engine {
        self.try_open(files).unwrap()
    }

    fn try_open(&self, files: impl Files) -> Result<Engine, StorageError> {
        let archive = self.archive.clone().map(|archive| archive as Arc<dyn Archive>);
        let config = if archive.is_some() { small() } else { EngineConfig::default() };
        let hour = Duration::from_secs(3_600);
        let config = EngineConfig { changes_retention: if self.retains { hour } else { Duration::ZERO }, ..config };
        let storage = storage(Durability::Always, 4_000);
        Ok(open_before(config, files, archive.as_ref(), &storage, Arc::new(SystemClock))?.0)
    }

    /// What a start finds if the process ends now, and the power goes along if there is a seed.
    fn survived(&self, power: Option<u64>) -> Self {
        // The archive first: it never knows more than the journal.
        let archive = self.archive.as_ref().map(|archive| Arc::new(archive.survived()));
        let files = self.files.forked();
        power.into_iter().for_each(|seed| files.lose_power(&mut fastrand::Rng::with_seed(seed)));
        Self { files, archive, retains: self.retains }
    }

    /// Whatever holds the user's id or a body. Consumers of changes learn the id from retained segments.
    fn holding(&self) -> Vec<String> {
        let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        let holds = |bytes: &[u8]| has(bytes, ZOE) || has(bytes, MARKER);
        // At one moment: files may be removed meanwhile.
        let files = self.files.forked();
        let names = files.list().unwrap().into_iter();
        let may_have = |name: &str| self.retains && name.starts_with("changes-");
        let is_found = |name: &String| {
            let bytes = files.content(name);
            has(&bytes, MARKER) || (has(&bytes, ZOE) && !may_have(name))
        };
        let mut found: Vec<String> = names.filter(is_found).collect();
        for archive in self.archive.iter().map(|archive| archive.survived()) {
            let ids = archive.ids_from(tidewire::id::PostId(0), usize::MAX).unwrap().unwrap().into_iter();
            let has = |kept: ArchivedRecord| matches!(kept, ArchivedRecord::Post(bytes) if holds(&bytes));
            found.extend(
                ids.filter(|id| archive.post(*id).unwrap().is_some_and(has)).map(|id| format!("archived {id}")),
            );
            let archived_counts = archive.archived_counts().unwrap().into_iter();
            found.extend(
                archived_counts
                    .filter(|(source, _)| source.as_str() == ZOE)
                    .map(|(source, _)| format!("shelf {source}")),
            );
        }
        found
    }
}

/// Returns a disk, a settled town on it with data for an erasure to find, and the files that count the operations on this disk.
async fn settled(has_archive: bool, retains: bool) -> (Disk, Town, FaultyFiles) {
    let disk = Disk::new(has_archive, retains);
    let files = FaultyFiles::new(disk.files.clone(), Plan::default());
    let mut town = Town::new(disk.open(files.clone()));
    town.settle(4).await;
    town.engine.snapshot().await.unwrap();
    town.publish(ZOE, |draft| draft).await;
    (disk, town, files)
}

/// Waits until so many operations have written, or no erasure is under way any more.
async fn written(engine: &Engine, files: &FaultyFiles, until: u64) {
    let is_time = async || files.operations() >= until || engine.erasures().count == 0;
    eventually_async("the erasure goes on", is_time).await;
}

/// Reads all changes that are left: none is missing, and only that the erasure began names the user. Unless the journal `may_be_cut`, it begins with the
/// first change.
fn check_changes(engine: &Engine, may_be_cut: bool, what: &str) {
    let (opened, mut next) = match engine.changes(Sequence(0)) {
        Err(ChangesError::Log(LogError::Deleted { first, .. })) if may_be_cut => {
            (engine.changes(Sequence(first.0 - 1)), first)
        }
        opened => (opened, Sequence(1)),
    };
    let mut changes = opened.unwrap();
    while changes.sequence() < changes.end() {
        for (sequence, event) in changes.next(Duration::ZERO).unwrap() {
            assert_eq!(sequence, next, "{what}");
            next = next.next();
            let event = if matches!(event, Event::Erased { .. }) { String::new() } else { format!("{event:?}") };
            assert!(!event.contains(ZOE) && !event.contains(MARKER), "{what}: {event}");
        }
    }
    assert_eq!(engine.last_change().unwrap().next(), next, "{what}");
}

/// Starts on what is left, waits for the erasure to end by itself, and looks at all that there is.
async fn check_goes_on(disk: &Disk, town: &mut Town, may_be_cut: bool, what: &str) {
    town.engine = disk.open(disk.files.clone());
    town.ended().await;
    // What an earlier process has retained may be removed a second after the start only.
    eventually_async(what, async || disk.holding().is_empty()).await;
    if disk.retains {
        check_changes(&town.engine, may_be_cut, what);
    }
    town.check().await;
    town.engine.shutdown();
    let engine = disk.open(disk.files.clone());
    assert_eq!(engine.erasures().count, 0, "{what}");
    town.engine = engine;
    town.check().await;
    town.engine.shutdown();
    assert_eq!(disk.holding(), [""; 0], "{what}");
}

#[test]
fn an_erasure_continues_after_a_crash_at_any_write() {
    run(async {
        for (has_archive, retains) in [(true, true), (true, false), (false, false)] {
            let (disk, mut town, _) = settled(has_archive, retains).await;
            town.engine.shutdown();
            town.oracle.erase(ZOE);
            let total = operations_of_an_erasure(&disk).await;
            assert!(total > 20, "{total}");
            let mut cut_short = 0;
            for at in (1..=total).step_by(stride(7)) {
                for power in [None, Some(at)] {
                    let left = disk.survived(None);
                    let what = format!("{at} of {total}, archive {has_archive}, retains {retains}, power {power:?}");
                    if die_at(&left, at).await {
                        cut_short += 1;
                        check_goes_on(&left.survived(power), &mut town, false, &what).await;
                        // Segments are retained from the restart on: those of before it name a user whom nobody may know any more.
                        let left = Disk { retains: true, ..left.survived(power) };
                        check_goes_on(&left, &mut town, true, &format!("{what}, then retains")).await;
                    }
                }
            }
            assert!(cut_short > 2, "{cut_short}");
        }
    });
}

/// How many operations that write there are from a start to the end of an erasure.
async fn operations_of_an_erasure(disk: &Disk) -> u64 {
    let disk = disk.survived(None);
    let files = FaultyFiles::new(disk.files.clone(), Plan::default());
    let town = Town { engine: disk.open(files.clone()), oracle: testkit::oracle::Oracle::default() };
    town.engine.erase(testkit::world::id(ZOE)).await.unwrap();
    town.ended().await;
    let operations = files.operations();
    town.engine.shutdown();
    operations
}

/// Begins an erasure on a disk that takes no write from the `at`th on. False if it was not begun by then.
async fn die_at(disk: &Disk, at: u64) -> bool {
    let plan = Plan { die_at: Some(at), ..Plan::default() };
    let files = FaultyFiles::new(disk.files.clone(), plan);
    // The start writes as well.
    let Ok(engine) = disk.try_open(files.clone()) else { return false };
    let began = engine.erase(testkit::world::id(ZOE)).await.is_ok();
    let is_over = async || !began || engine.erasures().count == 0 || files.operations() >= at;
    eventually_async("the erasure ends, or the process would", is_over).await;
    engine.shutdown();
    began
}

#[test]
fn an_erasure_continues_after_a_kill_at_any_moment() {
    run(async {
        for seed in 0..cases(6) {
            let (disk, mut town, files) = settled(seed % 4 != 0, seed % 3 != 0).await;
            let (before, mut random) = (files.operations(), fastrand::Rng::with_seed(seed));
            // A snapshot that begins before it and sees some of it.
            let engine = town.engine.clone();
            let (_, ()) = tokio::join!(engine.snapshot(), town.erase());
            written(&town.engine, &files, before + random.u64(0..OPERATIONS)).await;
            let mut left = disk.survived((seed % 2 == 0).then_some(seed));
            town.engine.shutdown();
            for _ in 0..random.u8(0..3) {
                let files = FaultyFiles::new(left.files.clone(), Plan::default());
                let engine = left.open(files.clone());
                written(&engine, &files, random.u64(0..OPERATIONS)).await;
                let next = left.survived((seed % 3 == 0).then_some(seed));
                engine.shutdown();
                left = next;
                // As if each process had other settings.
                left.retains = random.bool();
            }
            check_goes_on(&left, &mut town, true, &format!("seed {seed}, retains {}", left.retains)).await;
        }
    });
}

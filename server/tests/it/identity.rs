//! Files of two data directories in one: refused by name, whichever they are. Directories of earlier versions get an identity.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use testkit::eventually_async;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::archive::{Archive as _, RedbArchive};
use tidewire::storage::directory_identity;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::segment;
use tidewire::storage::sequence::Sequence;

use testkit::fixture_files::folder_of;
use testkit::histories::storage;
use testkit::world::{above, draft, id, patient, some, whole_feed};

fn open(place: &Path, segment_bytes: u64) -> Result<Engine, String> {
    open_or_repair(place, segment_bytes, false)
}

fn open_or_repair(place: &Path, segment_bytes: u64, repair: bool) -> Result<Engine, String> {
    let config = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(100), ..patient() };
    let storage = StorageConfig { directory: place.to_owned(), repair, ..storage(Durability::Never, segment_bytes) };
    let opened = Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default());
    opened.map(|(engine, _)| engine).map_err(|cause| cause.to_string())
}

/// Fifty posts by an author, most of them archived, a snapshot, and some of the journal behind it.
async fn fill(place: &Path, author: &str) {
    let engine = open(place, 1 << 20).unwrap();
    let publish = async || drop(engine.publish(draft(author, "1"), false).await.unwrap());
    for _ in 0..50 {
        publish().await;
    }
    eventually_async("old posts leave memory", async || {
        engine.shared().world.sources.get(&id(author)).unwrap().outbox().in_memory() <= 8
    })
    .await;
    engine.snapshot().await.unwrap();
    publish().await;
    engine.shutdown();
}

/// Copies the files whose names start with any of these.
fn copy(from: &Path, to: &Path, prefixes: &[&str]) {
    for file in fs::read_dir(from).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }
}

#[tokio::test]
async fn mixed_files_of_two_directories_are_refused_and_both_identities_named() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fill(one.path(), "ann").await;
    fill(other.path(), "bob").await;
    for foreign in ["journal-", "snapshot-", "archive."] {
        let mixed = tempfile::tempdir().unwrap();
        copy(one.path(), mixed.path(), &["identity", "journal-", "snapshot-", "archive."]);
        copy(other.path(), mixed.path(), &[foreign]);
        let refused = match open(mixed.path(), 1 << 20) {
            Err(refused) => refused,
            Ok(engine) => {
                let served =
                    engine.own_page(&id("bob"), testkit::world::NEWEST).await.map_or(0, |page| page.page.items.len());
                engine.shutdown();
                panic!("{foreign}: it started, and serves {served} posts of another directory");
            }
        };
        assert!(refused.contains("belongs to another data directory") && refused.contains(foreign), "{refused}");
        assert!(refused.contains(&mixed.path().join("identity").display().to_string()), "{refused}");
    }
    // The tools name it as well.
    let tool = |tool: &str, action: &str, path: &Path| {
        let output = testkit::output(Command::new(env!("CARGO_BIN_EXE_tidewire")).args([tool, action]).arg(path));
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
    };
    let line = fs::read_to_string(one.path().join("identity")).unwrap();
    let identity = line.split(' ').nth(1).unwrap();
    let snapshot = fs::read_dir(one.path()).unwrap().map(|file| file.unwrap().path());
    let snapshot = snapshot.filter(|path| path.extension().is_some_and(|is| is == "tide")).last().unwrap();
    for (name, path) in [("journal", one.path()), ("archive", one.path()), ("snapshot", &snapshot)] {
        let text = tool(name, "inspect", path);
        assert!(text.contains(identity), "{name}: {text}");
    }
    assert!(tool("journal", "verify", one.path()).starts_with("good: "));
    let mixed = tempfile::tempdir().unwrap();
    copy(one.path(), mixed.path(), &["identity", "journal-"]);
    copy(other.path(), mixed.path(), &["snapshot-"]);
    let text = tool("journal", "verify", mixed.path());
    assert!(text.contains("belongs to another data directory"), "{text}");
}

#[tokio::test]
async fn a_missing_identity_file_is_restored_from_the_other_files() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path(), "ann").await;
    let file = place.path().join("identity");
    let line = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let engine = open(place.path(), 1 << 20).unwrap();
    assert_eq!(engine.own_page(&id("ann"), testkit::world::NEWEST).await.unwrap().page.items.len(), 20);
    engine.shutdown();
    assert_eq!(fs::read(&file).unwrap(), line);
}

#[tokio::test]
async fn a_directory_of_format_1_starts_and_new_files_carry_an_identity() {
    let place = tempfile::tempdir().unwrap();
    copy(&folder_of("v1"), place.path(), &["journal-", "snapshot-00000000000000000009"]);
    for round in 0..3 {
        // A new segment with each event.
        let engine = open(place.path(), 1).unwrap();
        assert_eq!(whole_feed(&engine, "ann", 20).await.len(), 2, "the posts of the fixtures");
        engine.publish(draft("eve", "1"), true).await.unwrap();
        if round == 1 {
            engine.snapshot().await.unwrap();
        }
        engine.shutdown();
    }
    let segments = fs::read_dir(place.path()).unwrap().filter_map(|file| {
        let path = file.unwrap().path();
        let first = segment::parse_name(path.file_name().unwrap().to_str().unwrap())?;
        Some((first, segment::parse_identity(&fs::read(path).unwrap())))
    });
    let segments: Vec<_> = segments.collect();
    assert!(segments.len() > 1, "{segments:?}");
    let mut identities =
        segments.iter().filter(|(first, _)| *first > Sequence(1)).map(|(_, identity)| identity.unwrap());
    let identity = identities.next().unwrap();
    assert!(identities.all(|other| other == identity));
    assert!(fs::read_to_string(place.path().join("identity")).unwrap().contains(&identity.to_string()));
}

#[tokio::test]
async fn a_missing_identity_file_of_format_1_is_restored_from_the_archive() {
    let place = tempfile::tempdir().unwrap();
    copy(&folder_of("v1"), place.path(), &["journal-", "snapshot-00000000000000000009"]);
    open(place.path(), 1 << 20).unwrap().shutdown();
    let file = place.path().join("identity");
    let line = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(
        directory_identity::find(&DiskFiles::open(place.path()).unwrap()).unwrap(),
        None,
        "only the archive knows it"
    );
    for repair in [false, true] {
        let engine = open_or_repair(place.path(), 1 << 20, repair).unwrap();
        assert_eq!(whole_feed(&engine, "ann", 20).await.len(), 2, "the posts of the fixtures");
        engine.shutdown();
        assert_eq!(fs::read(&file).unwrap(), line);
        fs::remove_file(&file).unwrap();
    }
}

#[tokio::test]
async fn an_archive_of_another_directory_is_refused_before_any_write() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fill(one.path(), "ann").await;
    fill(other.path(), "bob").await;
    for (left, has_sums) in [("in order", true), ("in order", false), ("killed", true), ("killed", false)] {
        let mixed = tempfile::tempdir().unwrap();
        copy(one.path(), mixed.path(), &["identity", "journal-", "snapshot-"]);
        copy(other.path(), mixed.path(), &["archive."]);
        let archive = mixed.path().join("archive.redb");
        if left == "killed" {
            let killed = RedbArchive::open(&archive, 1 << 20).unwrap();
            copy(mixed.path(), one.path(), &["archive."]);
            killed.close();
            copy(one.path(), mixed.path(), &["archive."]);
        }
        if !has_sums {
            fs::remove_file(mixed.path().join("archive.sums")).unwrap();
        }
        let before = content(mixed.path());
        for repair in [false, true] {
            let refused = open_or_repair(mixed.path(), 1 << 20, repair).map(|_| ()).unwrap_err();
            assert!(refused.contains("belongs to another data directory"), "{left}: {refused}");
            let changed: Vec<_> = content(mixed.path()).into_iter().filter(|file| !before.contains(file)).collect();
            let changed: Vec<_> = changed.into_iter().map(|(name, _)| name).filter(|name| name != "LOCK").collect();
            assert!(changed.is_empty(), "{left}, sums {has_sums}, repair {repair}: {changed:?} were written");
        }
    }
}

fn content(place: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(place).unwrap().map(|file| file.unwrap().path());
    files.map(|file| (file.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(file).unwrap())).collect()
}

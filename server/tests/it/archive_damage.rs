//! Archives with flipped bits: refused by name, or what cannot be read is named. Never a page that is shorter than it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{eventually_async, stride};
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::outbox::{OutboxQuery, Part, Route};
use tidewire::feed::page::Range;
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedCounts, ArchivedRecord, Batch, RedbArchive};
use tidewire::storage::journal::Durability;
use tidewire::storage::sequence::Sequence;

use testkit::histories::storage;
use testkit::world::{above, draft, edge, id, patient, some};

const CACHE_BYTES: usize = 1 << 20;

/// Everything in an archive, or why it cannot be read.
#[derive(PartialEq, Debug)]
struct Content {
    through: Sequence,
    archived_counts: Vec<(SourceId, ArchivedCounts)>,
    outboxes: Vec<Result<Vec<Position>, ()>>,
    posts: Vec<Result<Option<ArchivedRecord>, ()>>,
}

const SOURCES: [&str; 3] = ["ann", "bob", "tag:tea"];
const POSTS: u64 = 240;

fn batch(nth: u64) -> Batch {
    let at = Position { published_at: tidewire::clock::UnixMicros(nth as i64), id: PostId(nth) };
    let kept = if nth.is_multiple_of(9) {
        ArchivedRecord::Deleted
    } else {
        ArchivedRecord::Post(vec![nth as u8; 40 + nth as usize])
    };
    let source = id(SOURCES[nth as usize % SOURCES.len()]);
    let route = if nth.is_multiple_of(5) { Route::Pull } else { Route::Push };
    let (posts, placed) = (vec![(PostId(nth), kept)], vec![(source, at, route)]);
    Batch { posts, placed, ..Batch::default() }
}

fn content(path: &Path) -> Result<Content, ArchiveError> {
    let archive = RedbArchive::open(path, CACHE_BYTES)?;
    let (through, archived_counts) = (archive.through()?, archive.archived_counts()?);
    let named = |cause: ArchiveError| assert!(cause.to_string().contains(&path.display().to_string()), "{cause}");
    let outbox = |name: &&str| {
        let mut into = Vec::new();
        let all =
            OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Newer, max: usize::MAX };
        let read = archive.positions(&id(name), all, &mut into);
        read.map(|()| into).map_err(named)
    };
    let posts = (0..=POSTS).map(|nth| archive.post(PostId(nth)).map_err(named)).collect();
    Ok(Content { through, archived_counts, outboxes: SOURCES.iter().map(outbox).collect(), posts })
}

/// The files of an archive that was closed in order.
fn small_archive(directory: &Path) -> Vec<PathBuf> {
    let path = directory.join("archive.redb");
    let archive = RedbArchive::open(&path, CACHE_BYTES).unwrap();
    for nth in 0..POSTS {
        archive.write(&batch(nth)).unwrap();
        if nth == POSTS / 2 {
            archive.persist(Sequence(nth)).unwrap();
        }
    }
    archive.persist(Sequence(POSTS)).unwrap();
    drop(archive);
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn copy_all(files: &[PathBuf], to: &Path) {
    for file in files {
        fs::copy(file, to.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn every_flipped_byte_of_an_archive_is_refused_or_reported_as_damage() {
    let (whole, flipped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = small_archive(whole.path());
    let (expected, path) = (content(&files[0]).unwrap(), flipped.path().join("archive.redb"));
    let (mut flips, mut refused, mut named, mut silent) = (0, 0, 0, Vec::new());
    for file in &files {
        let bytes = fs::read(file).unwrap();
        let used =
            |at: &usize| bytes[at / 512 * 512..].iter().take(512).any(|byte| *byte != 0) || at.is_multiple_of(4096);
        for at in (0..bytes.len()).step_by(stride(1_997)).filter(used) {
            copy_all(&files, flipped.path());
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(flipped.path().join(file.file_name().unwrap()), &bytes).unwrap();
            flips += 1;
            match content(&path) {
                Err(cause) => {
                    assert!(cause.to_string().contains(&flipped.path().display().to_string()), "byte {at}: {cause}");
                    refused += 1;
                }
                Ok(found) => {
                    let damaged = found.posts.iter().any(Result::is_err) || found.outboxes.iter().any(Result::is_err);
                    named += usize::from(damaged);
                    let same_posts = found.posts.iter().zip(&expected.posts).all(|(a, b)| a.is_err() || a == b);
                    let same_outboxes =
                        found.outboxes.iter().zip(&expected.outboxes).all(|(a, b)| a.is_err() || a == b);
                    let same_rest =
                        (found.through, &found.archived_counts) == (expected.through, &expected.archived_counts);
                    if !(same_posts && same_outboxes && same_rest) {
                        silent.push((file.file_name().unwrap().to_owned(), at));
                    }
                }
            }
        }
    }
    assert!(refused > 0 && named > 0, "{flips} flips: {refused} refused, {named} named");
    assert!(
        silent.is_empty(),
        "{} of {flips} flips went unnoticed: {:?}",
        silent.len(),
        &silent[..silent.len().min(20)]
    );
}

/// A data directory with an archive of some hundred posts, closed in order.
async fn directory(place: &Path) -> usize {
    let engine = open(place, false).unwrap();
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let count = 400;
    for nth in 0..count {
        engine.publish(draft("bob", &format!("\"{}{nth}\"", "x".repeat(120))), false).await.unwrap();
    }
    let outbox = || engine.shared().world.sources.get(&id("bob")).unwrap().outbox().in_memory();
    eventually_async("old posts leave memory", async || outbox() <= 8).await;
    engine.snapshot().await.unwrap();
    engine.snapshot().await.unwrap();
    engine.shutdown();
    // Of the journal only what the snapshot needs: nothing of the archive is written anew.
    count
}

fn open(place: &Path, repair: bool) -> Result<Engine, String> {
    let config = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(100), ..patient() };
    let storage = StorageConfig { directory: place.to_owned(), repair, ..storage(Durability::Never, 1 << 20) };
    let opened = Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default());
    opened.map(|(engine, _)| engine).map_err(|cause| cause.to_string())
}

/// Reads a whole feed, or all that an author published, and returns how many posts it lacks that no page says it lacks.
async fn lacks_silently(engine: &Engine, own: bool, count: usize) -> usize {
    let (mut met, mut named, mut is_partial, mut range) = (0, 0, false, Range::Newest);
    for read in 0.. {
        assert!(read < 200, "reading goes in circles");
        let request = PageRequest { range, limit: 100 };
        let page = match own {
            true => engine.own_page(&id("bob"), request).await.unwrap(),
            false => engine.feed(&id("ann"), request).await.unwrap(),
        };
        met += page.page.items.len();
        named += page.page.unreadable.len();
        is_partial |= !page.partial.is_empty();
        let Some(next) = page.page.next else { break };
        range = Range::Before(next);
    }
    if is_partial { 0 } else { count.saturating_sub(met + named) }
}

#[tokio::test]
async fn pages_report_every_post_missing_because_of_a_damaged_archive() {
    let (whole, flipped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let count = directory(whole.path()).await;
    let files: Vec<_> = fs::read_dir(whole.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let archive = whole.path().join("archive.redb");
    let bytes = fs::read(&archive).unwrap();
    let used: Vec<usize> = (0..bytes.len() / 64)
        .map(|nth| nth * 64)
        .filter(|at| bytes[*at..at + 64].iter().any(|byte| *byte != 0))
        .collect();
    let (mut silent, mut refused, mut counted) = (Vec::new(), 0, 0);
    let step = stride(used.len() / 15);
    for at in used.into_iter().step_by(step) {
        let at = at + at / 64 % 60;
        copy_all(&files, flipped.path());
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(flipped.path().join("archive.redb"), bytes).unwrap();
        match open(flipped.path(), false) {
            Err(cause) => {
                assert!(cause.contains("archive."), "byte {at}: {cause}");
                refused += 1;
            }
            Ok(engine) => {
                let lacking =
                    lacks_silently(&engine, true, count).await.max(lacks_silently(&engine, false, count).await);
                if lacking > 0 {
                    silent.push((at, lacking));
                }
                counted += engine.shared().world.read_failures.count();
                engine.shutdown();
            }
        }
        for file in fs::read_dir(flipped.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    assert!(counted > 0);
    assert!(silent.is_empty(), "{refused} refused, {} with silently shorter pages: {silent:?}", silent.len());
}

/// Runs `tidewire archive` on a data directory.
fn tool(action: &str, place: &Path) -> (Option<i32>, String) {
    let output = testkit::output(Command::new(env!("CARGO_BIN_EXE_tidewire")).args(["archive", action]).arg(place));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code(), text)
}

/// Runs it with `--json`, and returns the last document.
fn tool_json(action: &str, place: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    let output = testkit::output(command.args(["archive", action, "--json"]).arg(place));
    serde_json::from_str(String::from_utf8(output.stdout).unwrap().lines().last().unwrap()).unwrap()
}

/// Flips a bit in every copy of the text of a post. Pages that are free by now may hold old copies behind the present one.
fn damage(archive: &mut [u8], text: &str) {
    let places: Vec<usize> =
        archive.windows(text.len()).enumerate().filter(|(_, at)| *at == text.as_bytes()).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|place| archive[place] ^= 1);
}

#[tokio::test]
async fn the_tool_lists_lost_posts_and_repair_sets_an_unreadable_archive_aside() {
    let place = tempfile::tempdir().unwrap();
    let count = directory(place.path()).await;
    let archive = place.path().join("archive.redb");
    let whole = fs::read(&archive).unwrap();
    let (code, text) = tool("verify", place.path());
    assert!(code == Some(0) && text.starts_with("good: 1 outboxes, ") && text.contains(" posts, event 401"), "{text}");
    let archived: usize = text.split(' ').nth(3).unwrap().parse().unwrap();
    assert!((300..count).contains(&archived), "{text}");
    let (code, text) = tool("inspect", place.path());
    assert!(code == Some(0) && text.contains("entries") && text.contains("archive.sums"), "{text}");
    let (inspected, verified) = (tool_json("inspect", place.path()), tool_json("verify", place.path()));
    assert_eq!((&inspected["entries"], &inspected["checksums"]), (&json!(archived), &json!(true)), "{inspected}");
    assert_eq!((&verified["good"], &verified["through"]), (&json!(true), &json!(401)), "{verified}");
    assert_eq!(fs::read(&archive).unwrap(), whole, "nothing is written");
    let mut damaged = whole.clone();
    damage(&mut damaged, "xxx200\"");
    fs::write(&archive, &damaged).unwrap();
    let (code, text) = tool("verify", place.path());
    assert!(
        code == Some(1)
            && text.contains("bad: bob: ")
            && text.contains(&format!(" of {archived} posts cannot be read")),
        "{text}"
    );
    assert!(text.contains("has a wrong checksum") && text.contains("bad: bob: post "), "{text}");
    assert_eq!(tool_json("verify", place.path())["good"], json!(false));
    // A server starts on it, and its pages name as many.
    let engine = open(place.path(), false).unwrap();
    assert_eq!(lacks_silently(&engine, true, count).await, 0);
    engine.shutdown();
    // Its root is gone.
    fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
    let refused = open(place.path(), false).map(|_| ()).unwrap_err();
    let remedy = "; restore the data directory and its archive from one backup, or start with --repair";
    assert!(refused.contains("archive.redb is damaged: ") && refused.ends_with(remedy), "{refused}");
    let engine = open(place.path(), true).unwrap();
    engine.shutdown();
    assert!(place.path().join("archive.redb.damaged").exists() && place.path().join("archive.sums.damaged").exists());
    open(place.path(), false).unwrap().shutdown();
}

/// Checksums that are not those of the archive beside them: cut off, of nothing, flipped in the header.
#[tokio::test]
async fn damaged_checksums_are_rebuilt_by_a_repair_that_reads_the_whole_archive() {
    let place = tempfile::tempdir().unwrap();
    let count = directory(place.path()).await;
    let path = place.path().join("archive.sums");
    let damages: [fn(&mut Vec<u8>); 4] =
        [|sums| sums.truncate(20), |sums| sums.clear(), |sums| sums[9] ^= 1, |sums| sums[12] ^= 1];
    for damage in damages {
        let mut sums = fs::read(&path).unwrap();
        damage(&mut sums);
        fs::write(&path, &sums).unwrap();
        let refused = open(place.path(), false).map(|_| ()).unwrap_err();
        assert!(refused.contains("archive"), "{refused}");
        let engine = open(place.path(), true).unwrap();
        assert_eq!(lacks_silently(&engine, false, count).await, 0);
        engine.shutdown();
        assert!(!place.path().join("archive.redb.damaged").exists(), "the archive itself is good");
    }
    open(place.path(), false).unwrap().shutdown();
}

#[test]
fn an_archive_of_format_1_is_read_completely_once_and_gets_checksums() {
    let place = tempfile::tempdir().unwrap();
    let files = small_archive(place.path());
    let expected = content(&files[0]).unwrap();
    let sums = place.path().join("archive.sums");
    // As the version before leaves it.
    fs::remove_file(&sums).unwrap();
    let database = redb::Database::create(&files[0]).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&[u8], u64>::new("meta");
    assert_eq!(
        transaction.open_table(meta).unwrap().insert(&b"format"[..], 1).unwrap().map(|old| old.value()),
        Some(2)
    );
    transaction.commit().unwrap();
    drop(database);
    let without = fs::read(&files[0]).unwrap();
    assert_eq!(content(&files[0]).unwrap(), expected);
    assert!(sums.exists());
    for page in (0..without.len() / 4096).skip(1) {
        let mut damaged = without.clone();
        damaged[page * 4096 + 100] ^= 1;
        fs::write(&files[0], &damaged).unwrap();
        fs::remove_file(&sums).unwrap_or_default();
        match content(&files[0]) {
            Err(cause) => assert!(cause.to_string().contains("archive.redb is damaged"), "{cause}"),
            Ok(found) => assert_eq!(found, expected, "page {page}"),
        }
    }
}

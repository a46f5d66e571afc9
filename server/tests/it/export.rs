//! Exports, as people run them, and what an import makes of them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use testkit::eventually_async;
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;

use crate::tools::{PROGRAM, content, fails, run};
use testkit::oracle::Expected;
use testkit::world::{draft, edge, id, patient, some, whole_feed};

pub fn open(directory: &Path) -> Engine {
    open_with(directory, EngineConfig::default())
}

fn open_with(directory: &Path, config: EngineConfig) -> Engine {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

/// An engine that keeps two or three posts of each source in memory.
fn open_small(directory: &Path) -> Engine {
    open_with(directory, EngineConfig { outbox_posts: some(2), ..patient() })
}

/// Waits until the archive has what does not fit into memory.
async fn shelved(engine: &Engine, posts_in_memory: usize) {
    eventually_async("old posts leave memory", async || engine.shared().world.posts.len() <= posts_in_memory).await;
}

/// Posts of every kind of fate, and edges.
pub async fn populate(engine: &Engine) {
    let follows = ["ann bob", "ann cas", "ann tag:tea", "bob ann", "cas topic:42"];
    let pair = |text: &str| text.split_once(' ').map(|(follower, source)| edge(follower, source)).unwrap();
    engine.follow(follows.map(pair).to_vec()).await.unwrap();
    engine.follow(vec![NewEdge { hidden: true, ..edge("bob", "cas") }]).await.unwrap();
    for nth in 1..=60u64 {
        let author = ["bob", "cas", "dan"][nth as usize % 3];
        let mut post = Draft { id: Some(PostId(nth)), ..draft(author, &format!("{{\n \"n\":{nth}}}")) };
        post.tags.extend((nth % 5 == 0).then(|| SourceId::tag("tea").unwrap()));
        post.topic = (nth % 7 == 0).then(|| SourceId::topic("42").unwrap());
        post.reply_to = (nth % 4 == 0).then(|| PostId(nth - 1));
        engine.publish(post, true).await.unwrap();
        match nth % 10 {
            3 => drop(engine.edit(PostId(nth), None, Some(true)).await.unwrap()),
            5 => drop(engine.edit(PostId(nth), Some(Body::new("\"edited\"").unwrap()), None).await.unwrap()),
            8 => engine.delete(PostId(nth)).await.unwrap(),
            _ => {}
        }
    }
}

async fn feeds(engine: &Engine) -> Vec<Vec<Expected>> {
    let mut feeds = Vec::new();
    for reader in ["ann", "bob", "cas", "dan"] {
        let mut feed = whole_feed(engine, reader, 7).await;
        // An export has each post on one line.
        feed.iter_mut().for_each(|entry| entry.body = entry.body.replace('\n', " "));
        feeds.push(feed);
    }
    feeds
}

#[tokio::test]
async fn an_export_imported_into_a_new_directory_has_equal_feeds() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(old.path());
    populate(&engine).await;
    let expected = feeds(&engine).await;
    assert!(expected[0].len() > 30);
    let file = engine.snapshot().await.unwrap().file;
    engine.shutdown();
    let ran = run(old.path(), &format!("snapshot export {file} --posts p --follows f"));
    assert_eq!(ran.code, 0, "{}", ran.err);

    let data = new.path().join("data");
    for (file, created) in
        [("follows f", "6 edges created"), ("posts p", "54 posts created"), ("posts p", "54 existing")]
    {
        let ran = run(old.path(), &format!("import {file} --data-dir {}", data.display()));
        assert!(ran.code == 0 && ran.out.contains(created) && ran.out.contains("snapshot "), "{}{}", ran.out, ran.err);
    }
    assert_eq!(run(&data, "journal verify .").code, 0);
    let engine = open(&data);
    assert_eq!(feeds(&engine).await, expected);
    assert!(engine.post(PostId(3)).await.unwrap().hidden);
    let shown: Vec<SourceId> =
        engine.following(&id("bob"), UnixMicros(i64::MAX), 9).into_iter().map(|l| l.id).collect();
    assert_eq!(shown, [id("ann")], "the hidden edge stays hidden");
    engine.shutdown();
}

#[tokio::test]
async fn an_export_counts_the_readers_whose_preferences_it_omits() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    engine.follow(vec![edge("ann", "bob"), edge("cas", "bob")]).await.unwrap();
    engine.silence(id("ann"), id("dan"), MuteOrBlock::Mute, true).await.unwrap();
    engine.unfollow_but_keep(id("cas"), id("bob")).await.unwrap();
    let file = engine.snapshot().await.unwrap().file;
    engine.shutdown();
    let ran = run(directory.path(), &format!("snapshot export {file} --follows f"));
    assert!(ran.code == 0 && ran.err.contains("readers with preferences: 2 (their mutes"), "{}", ran.err);
}

/// Imports what was exported, and compares every feed with what it was.
async fn imported(exported: &Path, data: &Path, expected: &[Vec<Expected>]) {
    for file in ["follows f", "posts p"] {
        let ran = run(exported, &format!("import {file} --data-dir {}", data.display()));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
    let engine = open(data);
    assert_eq!(feeds(&engine).await, expected);
    engine.shutdown();
}

#[tokio::test]
async fn an_export_includes_posts_that_are_only_in_the_archive() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = old.path();
    let engine = open_small(path);
    populate(&engine).await;
    shelved(&engine, 30).await;
    // Of both levels: a deleted archived post, and an edited and a hidden one, which are in memory until they are shelved again.
    engine.delete(PostId(2)).await.unwrap();
    engine.edit(PostId(4), Some(Body::new("\"anew\"").unwrap()), None).await.unwrap();
    engine.edit(PostId(6), None, Some(true)).await.unwrap();
    let expected = feeds(&engine).await;
    let file = engine.snapshot().await.unwrap().file;
    let refused = ["the archive ./archive.redb is in use", "--without-archive"];
    let export = format!("snapshot export ./{file}");
    fails(path, &export, &refused);
    let without = run(path, &format!("{export} --without-archive"));
    assert!(without.code == 0 && without.err.contains("NOT exported"), "{}", without.err);
    engine.shutdown();

    let before = content(path);
    let whole = run(path, &export);
    assert!(whole.err.contains("posts: 53") && whole.err.contains("archived posts: "), "{}", whole.err);
    assert!(whole.out.lines().count() > without.out.lines().count() + 10);
    let order = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        // Without its end, since trailing zeros are not written, the text orders as the time does.
        let at = line["published_at"].as_str().unwrap().trim_end_matches('Z').to_owned();
        (at, line["id"].as_str().unwrap().parse::<u64>().unwrap())
    };
    assert!(whole.out.lines().map(order).is_sorted(), "oldest first, from whichever file");
    assert!(content(path) == before, "an export wrote to the data directory");

    let out = format!("--posts {0}/p --follows {0}/f", new.path().display());
    assert_eq!(run(path, &format!("{export} {out}")).code, 0);
    imported(new.path(), &new.path().join("data"), &expected).await;
}

#[tokio::test]
async fn an_export_omits_posts_with_archived_tombstones() {
    let old = tempfile::tempdir().unwrap();
    let engine = open_small(old.path());
    populate(&engine).await;
    shelved(&engine, 30).await;
    let file = engine.snapshot().await.unwrap().file;
    // The newest post of all is in the snapshot; its tombstone reaches the archive after that.
    engine.delete(PostId(60)).await.unwrap();
    for _ in 0..200 {
        engine.publish(draft("eve", "1"), true).await.unwrap();
    }
    engine.snapshot().await.unwrap();
    engine.shutdown();
    let archive = fs::canonicalize(old.path().join("archive.redb")).unwrap();
    let export = |more: &str| run(old.path(), &format!("snapshot export {file} {more}")).out;
    assert!(export("--without-archive").contains(r#"{"id":"60","#));
    let whole = export(&format!("--archive {}", archive.display()));
    assert!(whole.contains(r#"{"id":"1","#) && !whole.contains(r#"{"id":"60","#));
    fs::write(old.path().join("letter"), "x").unwrap();
    fails(old.path(), &format!("snapshot export {file} --archive letter"), &["letter is not an archive"]);
}

#[tokio::test]
async fn an_archived_repost_of_a_later_repost_is_exported_with_the_original() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open_small(directory.path());
    let repost = |number: u64, author| Draft {
        id: Some(PostId(number)),
        repost_of: Some(PostId(number - 1)),
        ..draft(author, "1")
    };
    engine.publish(repost(3, "cas"), true).await.unwrap();
    eventually_async("the archive takes what is too old", async || {
        engine.publish(draft("cas", "0"), true).await.unwrap();
        engine.shared().world.posts.get(PostId(3)).is_none()
    })
    .await;
    engine.publish(repost(2, "bob"), true).await.unwrap();
    // Without it, an import could not find out again.
    engine.delete(PostId(2)).await.unwrap();
    let file = engine.snapshot().await.unwrap().file;
    engine.shutdown();
    let exported = run(directory.path(), &format!("snapshot export ./{file}"));
    let lines: Vec<serde_json::Value> = exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exported = lines.iter().find(|line| line["id"] == "3").unwrap();
    assert_eq!(exported["repost_of"], "1");
}

#[tokio::test]
async fn a_full_export_is_imported_into_an_equal_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let engine = open(&path.join("data"));
    populate(&engine).await;
    let expected = feeds(&engine).await;
    fails(path, "export --data-dir data --out in-use", &["the data directory data is in use"]);
    engine.shutdown();
    drop(engine);

    let counts = "21 users, tags, topics and threads";
    let ran = run(path, "export --data-dir data --out all.ndjson");
    assert!(ran.code == 0 && ran.out.is_empty() && ran.err.contains(counts), "{ran:?}");
    fails(path, "export --data-dir data --out all.ndjson", &["all.ndjson", "files are not overwritten"]);
    fails(path, "export --data-dir nowhere", &["nowhere is not a data directory"]);
    let all = fs::read(path.join("all.ndjson")).unwrap();
    assert_eq!(run(path, "export --data-dir data").out.as_bytes(), all, "to the standard output");
    let mut compressed = GzEncoder::new(fs::File::create(path.join("all.gz")).unwrap(), Compression::fast());
    compressed.write_all(&all).unwrap();
    compressed.finish().unwrap();

    for file in ["all.ndjson", "all.gz"] {
        let ran = run(path, &format!("import state {file} --data-dir of-{file}"));
        assert!(ran.code == 0 && ran.out.starts_with(&format!("created of-{file}, verified")), "{ran:?}");
        assert_eq!(run(path, &format!("export --data-dir of-{file}")).out.as_bytes(), all);
        let engine = open(&path.join(format!("of-{file}")));
        assert_eq!(feeds(&engine).await, expected);
        engine.shutdown();
    }
    fails(path, "import state all.ndjson --data-dir data", &["all.ndjson: the directory data is not empty"]);
    fs::write(path.join("cut"), &all[..all.len() / 2]).unwrap();
    fails(path, "import state cut --data-dir new", &["cut: ", "it is incomplete"]);
}

#[tokio::test]
async fn a_failed_or_killed_import_leaves_a_directory_that_servers_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let engine = open(&path.join("data"));
    populate(&engine).await;
    engine.shutdown();
    drop(engine);
    assert_eq!(run(path, "export --data-dir data --out all.ndjson").code, 0);

    // No file may have more than eight blocks of 512 bytes.
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec {PROGRAM} import state all.ndjson --data-dir new");
    let output = testkit::output(Command::new("sh").args(["-c", &limited]).current_dir(path).stdin(Stdio::null()));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && err.contains("all.ndjson: ") && err.contains("File too large"), "{err}");
    let left: Vec<_> = fs::read_dir(path.join("new")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["LOCK"]);

    // As after a kill.
    fs::create_dir(path.join("new/restore.unfinished")).unwrap();
    fs::write(path.join("new/restore.unfinished/archive.redb"), "half").unwrap();
    fails(path, "serve --data-dir new --listen 127.0.0.1:0", &["new/restore.unfinished", "was killed"]);
    assert_eq!(run(path, "import state all.ndjson --data-dir new").code, 0);
    assert!(!path.join("new/restore.unfinished").exists());
    assert_eq!(run(path, "export --data-dir new").out, fs::read_to_string(path.join("all.ndjson")).unwrap());
}

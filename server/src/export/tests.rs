//! Tests of exports and imports: an import restores the same state, its export has the same bytes, and an invalid file changes nothing.
#![cfg(test)]

use std::fs;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::export::directory::{create, load, load_into_memory};
use crate::export::line::Time;
use crate::export::write;
use testkit::fixture_files::folder_of;
use testkit::histories::{self, History, START, Store};
use testkit::world::{draft, edge, id, patient, whole_feed};
use testkit::{cases, eventually_async};
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::cluster::record::ClusterId;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::{Event, MuteOrBlock};
use tidewire::feed::followers::Sharding;
use tidewire::feed::kind::Kind;
use tidewire::feed::outbox::Route;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::record::PostRecord;
use tidewire::id::{ExternalId, PostId, SourceId};
use tidewire::limits::{ARCHIVE_CACHE_BYTES, AWAITED_ANSWERS_MAX};
use tidewire::recovery::RecoveryProgress;
use tidewire::recovery::rebuilt::{InitialState, Rebuilt};
use tidewire::state::tiering::{decode, encode_record};
use tidewire::state::world::World;
use tidewire::storage::archive::{self, Archive as _, ArchivedRecord, Batch, RedbArchive};
use tidewire::storage::directory_identity;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::{Durability, Journal as _};
use tidewire::storage::sequence::Sequence;

/// Creates a data directory with these events, half of them in a snapshot.
fn directory_of(events: &[Event]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let files: Arc<dyn Files> = Arc::new(DiskFiles::open(directory.path()).unwrap());
    directory_identity::establish(&*files, None).unwrap();
    let mut store = Store::open(files, histories::journal(Durability::Always, 1 << 20)).unwrap().0;
    let (first, second) = events.split_at(events.len() / 2);
    store.write(first).unwrap();
    store.snapshot(&[]).unwrap();
    store.write(second).unwrap();
    store.journal.close().unwrap();
    directory
}

fn exported(directory: &Path) -> Result<String, String> {
    let mut out = Vec::new();
    let (state, _lock) = load(directory).map_err(|cause| cause.to_string())?;
    write(&state, &mut out, &mut |_| {}).map_err(|cause| cause.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

fn imported(text: &str) -> Result<TempDir, String> {
    let directory = tempfile::tempdir().unwrap();
    let read = create(directory.path(), text.as_bytes(), &mut |_| {});
    if read.is_err() {
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["LOCK"], "nothing is left but the lock");
    }
    read.map(|_| directory).map_err(|cause| cause.to_string())
}

/// Returns these lines with the matching last line of an export.
fn ended(lines: &[&str]) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let sha256 = Sha256::digest(&text);
    format!("{text}{{\"end\":{{\"lines\":{},\"sha256\":\"{sha256:x}\"}}}}\n", lines.len())
}

/// Returns random events without an erasure, because no server would continue it.
fn events(seed: u64) -> Vec<Event> {
    let events = History::new(seed).events(300);
    events.into_iter().filter(|event| !matches!(event, Event::Erased { .. })).collect()
}

#[test]
fn an_imported_state_equals_the_exported_one_and_exports_to_the_same_bytes() {
    for seed in 0..cases(16) {
        let events = events(seed);
        let text = exported(directory_of(&events).path()).unwrap();
        let directory = imported(&text).unwrap();
        let (loaded, lock) = load(directory.path()).unwrap();
        assert_eq!(histories::state(&loaded.world), histories::model(&events), "seed {seed}");
        assert_eq!(loaded.sequence.0, events.len() as u64);
        // A server also has tombstones in its archive, and evicts the oldest ones from memory.
        let archive = loaded.world.archive().unwrap();
        assert!(loaded.world.posts.deleted().all(|id| archive.post(id).unwrap() == Some(ArchivedRecord::Deleted)));
        archive.close();
        drop((loaded, lock));
        assert_eq!(exported(directory.path()).unwrap(), text, "seed {seed}");
    }
}

#[test]
fn an_export_does_not_create_an_archive() {
    let directory = directory_of(&events(1));
    exported(directory.path()).unwrap();
    assert!(!directory.path().join("archive.redb").exists());
}

#[test]
fn an_export_is_refused_during_an_erasure() {
    let mut events = events(1);
    events.push(Event::Erased { user: id("u1"), at: UnixMicros(2 * START) });
    let refused = exported(directory_of(&events).path()).unwrap_err();
    assert!(refused.starts_with("a user is being erased: use a state from after the erasure"), "{refused}");
}

/// Number of posts of one author, more than stay in memory.
const POSTS: u64 = 1_500;

fn open(directory: &Path) -> Engine {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    Engine::open(patient(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

/// Publishes posts in all states, and sets preferences of readers.
async fn populate(engine: &Engine) {
    let follows = [("ann", "bob"), ("ann", "tag:tea"), ("cas", "bob"), ("cas", "ann"), ("dan", "cas")];
    engine.follow(follows.map(|(follower, source)| edge(follower, source)).to_vec()).await.unwrap();
    for nth in 1..=POSTS {
        let mut post = Draft { id: Some(PostId(nth)), ..draft("bob", &nth.to_string()) };
        // Every seventh post is late. By their ids, the first posts are the newest.
        post.published_at = (nth % 7 == 0).then(|| UnixMicros(START - nth as i64));
        post.tags.extend((nth % 5 == 0).then(|| SourceId::tag("tea").unwrap()));
        // Every second repost is of a later post, which is a repost itself.
        post.repost_of = (nth % 11 == 0).then(|| PostId(if nth % 2 == 0 { nth + 11 } else { nth / 2 }));
        post.reply_to = (nth % 13 == 0).then_some(PostId(nth + 1));
        engine.publish(post, true).await.unwrap();
    }
    let named = ExternalId::new("urn:x:1").unwrap();
    engine
        .publish(Draft { external_id: Some(named), ..draft("cas", "{\"n\": 1.50, \"t\": \"\\u0000\"}") }, true)
        .await
        .unwrap();
    for nth in (1..POSTS).step_by(97) {
        engine.edit(PostId(nth), Some(Body::new("\"edited\"").unwrap()), None).await.unwrap();
        engine.edit(PostId(nth + 1), None, Some(true)).await.unwrap();
        engine.delete(PostId(nth + 2)).await.unwrap();
    }
    engine.silence(id("cas"), id("tag:tea"), MuteOrBlock::Mute, true).await.unwrap();
    engine.silence(id("dan"), id("ann"), MuteOrBlock::Block, true).await.unwrap();
    engine.set_listed(id("ann"), "near".parse().unwrap(), id("cas"), true).await.unwrap();
    engine.mark(id("ann"), Position { published_at: UnixMicros(START), id: PostId(7) }).await.unwrap();
    engine.unfollow_but_keep(id("dan"), id("cas")).await.unwrap();
    engine.publish(Draft { id: Some(PostId(POSTS * 2)), ..draft("gone", "1") }, true).await.unwrap();
    for author in ["cas", "bob"] {
        engine.publish(Draft { reply_to: Some(PostId(POSTS * 2)), ..draft(author, "2") }, true).await.unwrap();
    }
    engine.erase(id("gone")).await.unwrap();
    eventually_async("the erasure ends", async || engine.shared().world.sources.erasures().is_empty()).await;
}

async fn feeds(engine: &Engine) -> Vec<String> {
    let mut feeds = Vec::new();
    for reader in ["ann", "bob", "cas", "dan"] {
        feeds.push(format!("{reader}: {:?}", whole_feed(engine, reader, 100).await));
    }
    feeds
}

#[tokio::test]
async fn archived_posts_are_exported_and_imported_into_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    populate(&engine).await;
    let expected = feeds(&engine).await;
    eventually_async("old posts leave memory", async || engine.shared().world.posts.len() <= 1_300).await;
    engine.shutdown();
    drop(engine);
    let text = exported(directory.path()).unwrap();
    let kinds = ["source", "follows", "preferences", "reposts", "post", "deleted", "end"];
    for kind in kinds {
        assert!(text.lines().any(|line| line.starts_with(&format!("{{\"{kind}\":"))), "a line of {kind}");
    }
    let new = imported(&text).unwrap();
    let engine = open(new.path());
    let in_memory = engine.shared().world.posts.len();
    assert!(in_memory <= 1_300, "{in_memory} posts in memory");
    assert_eq!(feeds(&engine).await, expected);
    // Events after the snapshot are exported as well.
    engine.publish(draft("bob", "\"later\""), true).await.unwrap();
    engine.shutdown();
    drop(engine);
    let later = exported(new.path()).unwrap();
    assert_eq!(later.matches("later").count(), 1);
}

/// The cluster that begins with the state of a server.
const CLUSTER: ClusterId = ClusterId(9);

/// Returns the export of a node of a new cluster that begins with the state of this directory of a server.
fn exported_from_first_node(directory: &Path) -> Result<String, String> {
    exported(first_node(directory)?.path())
}

/// Creates the directory of this node.
fn first_node(directory: &Path) -> Result<TempDir, String> {
    let first = tempfile::tempdir().unwrap();
    let (state, _lock) = load_into_memory(directory, first.path()).map_err(|cause| cause.to_string())?;
    assert!(state.world.archive().is_none() && state.cluster.is_none());
    assert_eq!(fs::read_dir(first.path()).unwrap().count(), 0, "the temporary file has no name");
    let files = Arc::new(DiskFiles::open(first.path()).unwrap());
    state.found(Arc::clone(&files) as Arc<dyn Files>, CLUSTER, 16, false, UnixMicros(1)).unwrap();
    // A node compares its snapshot with the digest in the log.
    let node = Rebuilt::from_snapshot(&*files, &|| World::create(EngineConfig::default().celebrity, Sharding::new(1)));
    assert_eq!(InitialState::from(node.unwrap()).first_state().digest, state.first_state().digest);
    Ok(first)
}

/// Returns an export without the last event in its first line, and without its checksum.
fn content(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut head: Value = serde_json::from_str(&lines[0]).unwrap();
    head["export"]["sequence"].take();
    lines[0] = head.to_string();
    lines.pop();
    lines
}

#[tokio::test]
async fn a_new_cluster_begins_with_all_that_a_server_has_archived_posts_included() {
    for seed in 0..cases(8) {
        let directory = directory_of(&events(seed));
        let expected = exported(directory.path()).unwrap();
        let found = exported_from_first_node(directory.path()).unwrap();
        assert_eq!(content(&found), content(&expected), "seed {seed}");
        assert!(found.starts_with("{\"export\":{\"format\":1,\"sequence\":1,"), "{found}");
    }
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    populate(&engine).await;
    eventually_async("old posts leave memory", async || engine.shared().world.posts.len() <= 1_300).await;
    engine.shutdown();
    drop(engine);
    let expected = exported(directory.path()).unwrap();
    assert_eq!(content(&exported_from_first_node(directory.path()).unwrap()), content(&expected));
}

#[tokio::test]
async fn what_only_the_archive_knows_is_in_the_export_and_in_a_new_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    populate(&engine).await;
    engine.edit(PostId(26), None, Some(true)).await.unwrap();
    engine.snapshot().await.unwrap();
    eventually_async("the hidden reply leaves memory", async || engine.shared().world.posts.get(PostId(26)).is_none())
        .await;
    with_archive(engine, directory.path(), |archive| {
        let record = |number| match archive.post(PostId(number)).unwrap() {
            Some(ArchivedRecord::Post(bytes)) => decode(&bytes).unwrap(),
            other => panic!("post {number}: {other:?}"),
        };
        // The reply is shown again, all reposts of a post are deleted, and another one and its original are new.
        let reply = record(26);
        assert!(reply.hidden && reply.reply_to == Some(PostId(27)));
        let shown = PostRecord { hidden: false, ..reply };
        let (deleted, plain) = ([record(22), record(33)], record(31));
        assert!(deleted.iter().all(|repost| repost.repost_of == Some(PostId(16))));
        let original = PostRecord { at: Position { id: PostId(70_001), ..plain.at }, ..plain };
        let at = Position { id: PostId(70_002), ..original.at };
        let repost = PostRecord { at, repost_of: Some(original.at.id), ..original.clone() };
        let tombstones = deleted.iter().map(|repost| (repost.at.id, ArchivedRecord::Deleted));
        let removed = |post: &PostRecord<SourceId>| (id("bob"), post.at);
        let post = |post: &PostRecord<SourceId>| (post.at.id, ArchivedRecord::Post(encode_record(post)));
        let placed = [original.at, repost.at].map(|at| (id("bob"), at, Route::Pull));
        let batch = Batch {
            as_of: archive.through().unwrap(),
            posts: tombstones.chain([post(&shown), post(&original), post(&repost)]).collect(),
            placed: placed.to_vec(),
            removed: deleted.iter().map(removed).collect(),
        };
        archive.write(&batch).unwrap();
    });
    let text = exported(directory.path()).unwrap();
    assert!(!text.contains(r#""hidden":["26"]"#));
    assert!(text.contains(r#"{"reposts":{"of":"70001""#) && !text.contains(r#"{"reposts":{"of":"16""#));
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
    assert_eq!(content(&exported_from_first_node(directory.path()).unwrap()), content(&text));
}

/// Creates an archive beside the snapshot of a node, with everything up to the record `through`.
fn copy_beside(node: &Path, of: Option<ClusterId>, through: u64, batch: &Batch) {
    let copy = RedbArchive::open(&node.join(archive::FILE), ARCHIVE_CACHE_BYTES).unwrap();
    copy.write(batch).unwrap();
    of.into_iter().for_each(|cluster| copy.set_identity(Identity::of_cluster(cluster.0)).unwrap());
    copy.persist(Sequence(through)).unwrap();
    copy.close();
}

fn remove_copy(node: &Path) {
    for name in ["archive.redb", "archive.sums"] {
        fs::remove_file(node.join(name)).unwrap();
    }
}

#[tokio::test]
async fn a_copied_archive_replaces_what_a_node_had_in_memory_by_what_is_newer() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let at = |number: u64| Position { published_at: UnixMicros(START + number as i64), id: PostId(number) };
    for number in 1..=6 {
        let parent = (number == 3 || number == 4).then_some(PostId(1));
        let (id, published_at) = (Some(PostId(number)), Some(at(number).published_at));
        engine.publish(Draft { id, published_at, reply_to: parent, ..draft("bob", "0") }, true).await.unwrap();
    }
    for hidden in [3, 4] {
        engine.edit(PostId(hidden), None, Some(true)).await.unwrap();
    }
    engine.shutdown();
    drop(engine);
    let node = first_node(directory.path()).unwrap();
    let before = exported(node.path()).unwrap();
    assert!(before.contains(r#""hidden":["3","4"]"#), "{before}");
    let later = UnixMicros(START * 2);
    let record = |number, sources: &[&str]| PostRecord {
        at: at(number),
        accepted_at: None,
        kind: Kind::default(),
        body: Body::new("0").unwrap(),
        sources: sources.iter().map(|source| id(source)).collect(),
        pulled: 0,
        archived: 0,
        hidden: false,
        edited_at: None,
        repost_of: None,
        reply_to: (number == 3).then_some(PostId(1)),
        external_id: None,
        answered: None,
        fingerprint: 0,
    };
    let live = |record: &PostRecord<SourceId>| (record.at.id, ArchivedRecord::Post(encode_record(record)));
    let edited = PostRecord { body: Body::new("1").unwrap(), edited_at: Some(later), ..record(1, &["bob"]) };
    let posts = vec![
        live(&edited),
        (PostId(2), ArchivedRecord::Deleted),
        live(&record(3, &["bob", "replies:1"])),
        (PostId(4), ArchivedRecord::Deleted),
        // A damaged one replaces nothing, and an equal one changes nothing.
        (PostId(5), ArchivedRecord::Post(b"damaged".to_vec())),
        live(&record(6, &["bob"])),
        // Nothing but its post names these sources.
        live(&record(7, &["zoe", "tag:new"])),
    ];
    let batch = Batch { posts, ..Batch::default() };
    for (of, through, cause) in [
        (None, 1, "archive.redb is not a whole copy: repeat `tidewire archive copy`"),
        (Some(ClusterId(8)), 1, "belongs to another data directory"),
        (Some(CLUSTER), 0, "archive.redb ends at record 0, and the snapshot"),
    ] {
        copy_beside(node.path(), of, through, &batch);
        let refused = exported(node.path()).unwrap_err();
        assert!(refused.contains(cause), "{refused}");
        remove_copy(node.path());
    }
    assert_eq!(exported(node.path()).unwrap(), before);
    copy_beside(node.path(), Some(CLUSTER), 1, &batch);
    let text = exported(node.path()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let post = |id: &str| lines.iter().map(|line| &line["post"]).find(|post| post["id"] == id);
    let bodies = ["1", "2", "3", "4", "5", "6", "7"].map(|id| post(id).map(|post| post["body"].as_str().unwrap()));
    assert_eq!(bodies, [Some("1"), None, Some("0"), None, Some("0"), Some("0"), Some("0")]);
    assert_eq!((&post("7").unwrap()["author"], &post("7").unwrap()["sources"]), (&"zoe".into(), &json!(["tag:new"])));
    assert!(text.contains(r#"{"deleted":["2","4"]}"#) && !text.contains("\"hidden\":"), "{text}");
    // The new cluster gives later times to new posts than to all posts in the archive. It rejects each token that a client got before: the
    // token does not say which of the archive's posts the client has received.
    let at_end = serde_json::to_value(Time(later)).unwrap();
    assert_eq!((&lines[0]["export"]["last_instant"], &lines[0]["export"]["tokens_from"]), (&at_end, &at_end));
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
}

#[test]
fn a_cluster_does_not_begin_with_a_server_that_is_erasing_a_user_or_with_another_directory() {
    let mut events = events(1);
    events.push(Event::Erased { user: id("u1"), at: UnixMicros(2 * START) });
    let refused = exported_from_first_node(directory_of(&events).path()).unwrap_err();
    assert!(refused.contains("a user is being erased: use a state from after the erasure"), "{refused}");
    let other = tempfile::tempdir().unwrap();
    let refused = exported_from_first_node(other.path()).unwrap_err();
    assert!(refused.contains("is not a data directory"), "{refused}");
}

/// Closes the engine, and changes the content of the archive in its directory.
fn with_archive(engine: Engine, directory: &Path, change: impl FnOnce(&RedbArchive)) {
    engine.shutdown();
    drop(engine);
    let archive = RedbArchive::open(&directory.join(archive::FILE), ARCHIVE_CACHE_BYTES).unwrap();
    change(&archive);
    archive.persist(archive.through().unwrap()).unwrap();
    archive.close();
}

#[tokio::test]
async fn a_reply_that_an_earlier_version_archived_without_thread_is_exported_with_one() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    populate(&engine).await;
    eventually_async("old posts leave memory", async || engine.shared().world.posts.len() <= 1_300).await;
    with_archive(engine, directory.path(), |archive| {
        let ids = archive.ids_from(PostId(0), 2_000).unwrap().unwrap();
        let post = |id: &PostId| match archive.post(*id).unwrap() {
            Some(ArchivedRecord::Post(bytes)) => Some(decode(&bytes).unwrap()),
            _ => None,
        };
        let reply =
            ids.iter().filter_map(post).find(|post| post.reply_to.is_some() && post.sources.len() == 2).unwrap();
        for (number, hidden) in [(70_001, false), (70_002, true)] {
            let at = Position { id: PostId(number), ..reply.at };
            let (reply_to, sources) = (Some(PostId(80_000)), vec![id("bob")]);
            let old = PostRecord { at, reply_to, hidden, sources, answered: None, ..reply.clone() };
            archive
                .write(&Batch {
                    as_of: archive.through().unwrap(),
                    posts: vec![(at.id, ArchivedRecord::Post(encode_record(&old)))],
                    placed: vec![(id("bob"), at, Route::Push)],
                    removed: Vec::new(),
                })
                .unwrap();
        }
    });
    let text = exported(directory.path()).unwrap();
    assert!(text.contains(r#"{"source":{"id":"replies:80000","hidden":["70002"]}}"#));
    assert_eq!(text.matches(r#""sources":["replies:80000"]"#).count(), 2);
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
}

#[tokio::test]
async fn reposts_of_a_post_that_only_the_archive_knows_to_be_deleted_are_not_exported() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let post = |number, repost_of| Draft { id: Some(PostId(number)), repost_of, ..draft("bob", "1") };
    engine.publish(post(1, None), true).await.unwrap();
    engine.publish(post(2, Some(PostId(1))), true).await.unwrap();
    engine.snapshot().await.unwrap();
    // Make the original and its tombstone leave memory.
    for number in 0..POSTS {
        engine.publish(post(3 + number, None), true).await.unwrap();
    }
    eventually_async("the original leaves memory", async || engine.shared().world.posts.get(PostId(1)).is_none()).await;
    with_archive(engine, directory.path(), |archive| {
        let posts = vec![(PostId(1), ArchivedRecord::Deleted)];
        archive.write(&Batch { as_of: archive.through().unwrap(), posts, ..Batch::default() }).unwrap();
    });
    let text = exported(directory.path()).unwrap();
    assert!(text.contains(r#"{"deleted":["1"]}"#) && !text.contains("{\"reposts\":"));
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
}

#[tokio::test]
async fn each_early_reply_is_exported_with_the_author_of_its_later_parent() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let early = AWAITED_ANSWERS_MAX + 10;
    for _ in 0..early {
        engine.publish(Draft { reply_to: Some(PostId(9)), ..draft("bob", "1") }, true).await.unwrap();
    }
    engine.publish(Draft { id: Some(PostId(9)), ..draft("ann", "1") }, true).await.unwrap();
    engine.shutdown();
    drop(engine);
    let text = exported(directory.path()).unwrap();
    assert_eq!(text.matches(r#""answered":"ann""#).count(), early);
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
}

const SMALL: [&str; 6] = [
    r#"{"export":{"format":1,"sequence":9,"last_instant":"2026-01-01T00:00:00.000000Z"}}"#,
    r#"{"source":{"id":"ann"}}"#,
    r#"{"source":{"id":"bob"}}"#,
    r#"{"follows":{"follower":"ann","follows":[{"source":"bob","since":"2026-01-01T00:00:00.000000Z"}]}}"#,
    r#"{"post":{"id":"7","author":"bob","published_at":"2026-01-01T00:00:00.000000Z","fingerprint":"00000000000000ff","body":"{}"}}"#,
    r#"{"deleted":["8"]}"#,
];

#[test]
fn a_small_export_is_imported() {
    let text = ended(&SMALL);
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
    let empty = ended(&[r#"{"export":{"format":1,"sequence":0,"last_instant":"1970-01-01T00:00:00.000000Z"}}"#]);
    assert!(imported(&empty).is_ok());
}

#[test]
fn an_import_names_an_invalid_line_and_creates_nothing() {
    let [head, ann, bob, follows, post, deleted] = SMALL;
    let replaced = |line: &str, from: &str, to: &str| {
        assert!(line.contains(from), "{from}");
        line.replace(from, to)
    };
    let cases: [(&[&str], &str); 16] = [
        (&[ann], "line 1: it is in the wrong place"),
        (&[head, head], "line 2: it is in the wrong place"),
        (&[&replaced(head, "\"format\":1", "\"format\":2")], "line 1: the format is 2, and this version reads up to 1"),
        (&[head, "{\"source\":{\"id\":\"a b\"}}"], "line 2: "),
        (&[head, ann, ann], "line 3: ann occurs twice"),
        (&[head, ann, follows], "line 3: bob has no line before this one"),
        (&[head, ann, bob, follows, ann], "line 5: it is in the wrong place"),
        (&[head, ann, bob, follows, post, follows], "line 6: it is in the wrong place"),
        (
            &[head, ann, bob, &replaced(follows, "2026-01-01", "2026-13-01")],
            "line 4: \"2026-13-01T00:00:00.000000Z\" is not a time",
        ),
        (&[head, ann, bob, &replaced(follows, "\"source\"", "\"sauce\"")], "line 4: unknown field `sauce`"),
        (&[head, bob, &replaced(post, "\"7\"", "\"x\"")], "line 3: \"x\" is not a post id"),
        (&[head, bob, &replaced(post, "\"{}\"", "\"{\"")], "line 3: the body: "),
        (&[head, bob, &replaced(post, "ff", "zz")], "line 3: the fingerprint is not 16 hexadecimal digits"),
        (&[head, bob, post, post], "line 4: the created state has another line here: {\"end\""),
        (&[head, bob, "[]"], "line 3: "),
        (&[head, "{}"], "line 2: "),
    ];
    for (lines, expected) in cases {
        let refused = imported(&ended(lines)).unwrap_err();
        assert!(refused.contains(expected), "{lines:?}: {refused}");
    }
    let whole = ended(&SMALL);
    let without_end = whole.lines().take(6).map(|line| format!("{line}\n")).collect::<String>();
    let texts = [
        (String::new(), "line 1: it is not the first line of an export"),
        (without_end, "the export ends after 6 lines without its last line: it is incomplete"),
        (whole.trim_end().to_owned(), "the export ends after 6 lines without its last line: it is incomplete"),
        (whole.replace("\"ann\"", "\"zed\""), "line 7: 6 lines with the SHA-256 "),
        (format!("{whole}{deleted}\n"), "line 8: the line before it is the last of an export"),
        ("\u{feff}".to_owned() + &whole, "line 1: it is not the first line of an export"),
        ("{\"export\":".to_owned(), "line 1: it is not the first line of an export"),
    ];
    for (text, expected) in texts {
        let refused = imported(&text).unwrap_err();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_at_its_first_line() {
    let directory = tempfile::tempdir().unwrap();
    let endless = BufReader::new(io::repeat(0));
    let refused = create(directory.path(), endless, &mut |_| {}).unwrap_err().to_string();
    assert_eq!(refused, "line 1: it is not the first line of an export");
}

/// An import of a changed export is refused, or its own export is equal. It never panics.
#[test]
fn a_changed_export_is_refused_or_imported_unchanged_and_never_panics() {
    let mut random = fastrand::Rng::with_seed(testkit::seed());
    let text = exported(directory_of(&events(3)).path()).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let lines = &lines[..lines.len() - 1];
    for _ in 0..cases(60) {
        let mut changed = lines.to_vec();
        let (one, other) = (random.usize(..lines.len()), random.usize(..lines.len()));
        match random.u8(..5) {
            0 => drop(changed.remove(one)),
            1 => changed.insert(one, lines[other].clone()),
            2 => changed.swap(one, other),
            3 => changed[one] = changed[one].replacen(['0', '1', '2'], &random.u8(..10).to_string(), 1),
            _ => {
                let digit = changed[one].char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at);
                let digit = random.choice(digit.collect::<Vec<usize>>());
                digit.into_iter().for_each(|at| changed[one].replace_range(at..=at, &random.u8(..10).to_string()));
            }
        }
        let changed = ended(&changed.iter().map(String::as_str).collect::<Vec<_>>());
        if let Ok(directory) = imported(&changed) {
            assert_eq!(exported(directory.path()).unwrap(), changed);
        }
    }
}

/// The file has all fields. It is never changed, because later versions must read it as well.
#[test]
fn an_export_of_the_first_format_is_imported() {
    let text = fs::read_to_string(folder_of("export-v1").join("state.ndjson")).unwrap();
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
}

#[test]
fn tags_of_earlier_case_sensitive_versions_keep_their_spelling() {
    let old = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder_of("v2")).unwrap().map(|entry| entry.unwrap()) {
        fs::copy(file.path(), old.path().join(file.file_name())).unwrap();
    }
    let text = exported(old.path()).unwrap();
    assert!(text.contains("\"tag:Tea-2_b\""), "{text}");
    assert_eq!(exported(imported(&text).unwrap().path()).unwrap(), text);
}

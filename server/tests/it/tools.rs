//! The tools for data directories, as people run them: the real program, its output and its exit codes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::state::records::{InboxRecord, SourceRecord};
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::journal::Journal as _;
use tidewire::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use tidewire::storage::segment;
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{self, Section, SnapshotHeader, SnapshotWriter};

use crate::export::{open, populate};
use testkit::fixture_files::{events, folder_of};
use testkit::world::id;

const JOURNAL: &str = "journal-00000000000000000001.log";
const SNAPSHOT: &str = "snapshot-00000000000000000009.tide";
const COMPRESSED: &str = "snapshot-00000000000000000008.tide";

/// Path of the program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewire");

#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program in `directory`.
pub fn run(directory: &Path, words: &str) -> Ran {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEWIRE_")) {
        command.env_remove(name);
    }
    command
        .env("TIDEWIRE_SERVER", "http://127.0.0.1:1")
        .env("TIDEWIRE_LOG_LEVEL", "warn")
        .env("HTTP_PROXY", "127.0.0.1:1");
    command.current_dir(directory).args(words.split_whitespace()).stdin(Stdio::null());
    let output = testkit::output(&mut command);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[track_caller]
fn check(directory: &Path, words: &str, code: i32, out: &str) -> String {
    let ran = run(directory, words);
    assert_eq!((ran.code, ran.out.as_str()), (code, out), "{words}: {}", ran.err);
    ran.err
}

/// A command that fails, and what its message must name.
#[track_caller]
pub fn fails(directory: &Path, words: &str, named: &[&str]) {
    let err = check(directory, words, 1, "");
    named.iter().for_each(|part| assert!(err.contains(part), "{words}: {part:?} is not in {err}"));
}

/// A copy of the fixtures.
fn copied() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in [JOURNAL, SNAPSHOT, COMPRESSED] {
        fs::copy(folder_of("v1").join(name), directory.path().join(name)).unwrap();
    }
    directory
}

fn tamper(directory: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = directory.join(name);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

pub fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), fs::read(&path).unwrap_or_default())).collect()
}

const EXPORTED: &str = r#"{"id":"20","author":"bob","published_at":"1969-12-31T23:59:58.000000Z","body":[2]}
{"id":"30","author":"bob","published_at":"1970-01-01T00:00:03.000000Z","kind":"ad","body":{"text": "h\u00e9llo é","n":[1,2.50,null]},"tags":["tea","Tea-2_b"],"topic":"42","repost_of":"7","reply_to":"18446744073709551615","hidden":true}
"#;

#[test]
fn a_snapshot_is_inspected_and_verified() {
    let inspected = "\
snapshot-00000000000000000009.tide: format 1, 768 bytes
taken at 1970-01-01T00:00:09.000000Z, replay continues after event 9

section      blocks      records       bytes raw    bytes stored
sources           1            6              91             113
edges             1            1              66              88
posts             1            2             246             268
deleted           1            1              15              37
under way         1            1              25              47
inboxes           1            1              94             116
total             6           12             537             669

contains events up to 10, last instant 1970-01-01T00:00:10.000500Z
";
    check(&folder_of("v1"), &format!("snapshot inspect {SNAPSHOT}"), 0, inspected);
    let good = "good: snapshot-00000000000000000009.tide: event 9; sources: 6, edges: 2, posts: 2, deleted ids: 1, inboxes: 1\n";
    check(&folder_of("v1"), &format!("snapshot verify {SNAPSHOT}"), 0, good);
    let of_directory = run(&folder_of("v1"), "snapshot verify .");
    assert_eq!((of_directory.code, of_directory.out.as_str()), (0, good.replace(": snap", ": ./snap").as_str()));
    let document = |words: &str| -> Value { serde_json::from_str(&run(&folder_of("v1"), words).out).unwrap() };
    let inspected = document(&format!("snapshot inspect {SNAPSHOT} --json"));
    assert_eq!((&inspected["sequence"], &inspected["sections"][2]["records"]), (&json!(9), &json!(2)), "{inspected}");
    let verified = document(&format!("snapshot verify {SNAPSHOT} --json"));
    assert_eq!((&verified["good"], &verified["posts"]), (&json!(true), &json!(2)), "{verified}");
    let verified = run(&folder_of("v1"), &format!("snapshot verify {COMPRESSED}"));
    assert_eq!((verified.code, verified.out.contains("archive")), (0, true));
}

#[test]
fn a_snapshot_is_exported_without_overwriting_files() {
    let directory = copied();
    let said = check(directory.path(), &format!("snapshot export {SNAPSHOT}"), 0, EXPORTED);
    for part in ["posts: 2", "hidden posts: 1", "edited posts: 1", "deleted ids: 1"] {
        assert!(said.contains(part), "{said}");
    }
    check(directory.path(), &format!("snapshot export {SNAPSHOT} --follows -"), 0, "ann\tbob\nann\ttag:tea\thidden\n");
    check(directory.path(), &format!("snapshot export {SNAPSHOT} --posts p --follows f"), 0, "");
    assert_eq!(fs::read_to_string(directory.path().join("p")).unwrap(), EXPORTED);
    fails(directory.path(), &format!("snapshot export {SNAPSHOT} --posts p"), &["cannot create p", "not overwritten"]);
    fails(directory.path(), &format!("snapshot export {SNAPSHOT} --posts no/p"), &["cannot create no/p"]);
    check(directory.path(), &format!("snapshot export {SNAPSHOT} --posts - --follows -"), 2, "");
    let refused = ["with the older posts does not exist", "archive.redb", "--without-archive"];
    fails(directory.path(), &format!("snapshot export {COMPRESSED}"), &refused);
    fails(
        directory.path(),
        &format!("snapshot export {SNAPSHOT} --archive none"),
        &["the archive none with the older posts does not exist"],
    );
    check(directory.path(), &format!("snapshot export {SNAPSHOT} --archive none --without-archive"), 2, "");
    let without = run(directory.path(), &format!("snapshot export {COMPRESSED} --without-archive"));
    assert!(without.code == 0 && without.err.contains("NOT exported"), "{}", without.err);
    assert_eq!(run(directory.path(), &format!("snapshot export {COMPRESSED} --follows -")).code, 0);
}

#[test]
fn a_damaged_snapshot_is_detected_and_not_exported() {
    let whole = fs::read(folder_of("v1").join(SNAPSHOT)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut damaged = Vec::new();
    for at in (16..whole.len()).step_by(31) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        damaged.extend([flipped, whole[..at].to_vec()]);
    }
    damaged.push([&whole[..], b"x"].concat());
    for bytes in damaged {
        fs::write(directory.path().join("s"), bytes).unwrap();
        for command in ["verify", "export"] {
            fails(directory.path(), &format!("snapshot {command} s"), &["s is damaged at byte "]);
        }
        assert_eq!(run(directory.path(), "snapshot inspect s").code, 1);
    }
    // The third block, of posts, begins behind the header and the first two.
    let posts_at = 32 + 113 + 88;
    let mut flipped = whole;
    flipped[posts_at + 100] ^= 1;
    fs::write(directory.path().join("s"), flipped).unwrap();
    fails(directory.path(), "snapshot verify s", &["at byte 233: the checksum of a block is wrong"]);
    let inspected = run(directory.path(), "snapshot inspect s");
    assert!(inspected.out.contains("edges             1") && inspected.err.contains("byte 233"), "{}", inspected.err);
}

#[test]
fn inconsistent_records_are_named() {
    let (directory, header) =
        (tempfile::tempdir().unwrap(), SnapshotHeader { sequence: Sequence(3), taken_at: UnixMicros(0) });
    let files = DiskFiles::open(directory.path()).unwrap();
    let name = snapshot::name(Sequence(3));
    let source = SourceRecord::new(id("ann"));
    let inbox = InboxRecord {
        reader: 7,
        synced: UnixMicros(0),
        floor: tidewire::feed::position::Position::MIN,
        posts: vec![0; 16].into(),
    };
    for (twice, through, why) in [
        (true, 3, "at byte 32: record 2 of this block of sources: source ann is stored twice"),
        (false, 3, "at byte 62: record 1 of this block of inboxes: its source 7 does not exist"),
        (false, 2, "before its sequence 3"),
    ] {
        let mut writer = SnapshotWriter::begin(&files, header, false).unwrap();
        (0..1 + usize::from(twice)).for_each(|_| writer.record(Section::Sources, &source).unwrap());
        if through == 3 {
            writer.record(Section::Inboxes, &inbox).unwrap();
        }
        writer.finish(Sequence(through), UnixMicros(0), false).unwrap();
        fails(directory.path(), &format!("snapshot verify {name}"), &[&name, why]);
    }
    fs::copy(folder_of("v1").join(SNAPSHOT), directory.path().join(&name)).unwrap();
    fails(
        directory.path(),
        &format!("snapshot verify {name}"),
        &["its header names event 9, and its file name another"],
    );
}

#[test]
fn every_tool_refuses_files_of_another_kind() {
    let directory = copied();
    let path = directory.path();
    fs::write(path.join("foreign"), "x".repeat(100)).unwrap();
    fs::write(path.join("empty"), "").unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    for (name, header_bytes) in [(SNAPSHOT, 32), (JOURNAL, 24)] {
        tamper(path, name, |bytes| {
            bytes[8] = 9;
            let checksum = crc32c::crc32c(&bytes[..header_bytes - 4]).to_le_bytes();
            bytes[header_bytes - 4..header_bytes].copy_from_slice(&checksum);
        });
    }
    for command in ["snapshot inspect", "snapshot verify", "snapshot export"] {
        fails(path, &format!("{command} missing"), &["cannot read missing", "No such file"]);
        fails(path, &format!("{command} folder"), &["folder has no snapshot"]);
        fails(path, &format!("{command} foreign"), &["foreign is not a Tidewire snapshot"]);
        fails(path, &format!("{command} empty"), &["empty is damaged at byte 0: it is shorter than a header"]);
        fails(path, &format!("{command} {SNAPSHOT}"), &[SNAPSHOT, "format 9", "up to 4"]);
        check(path, command, 2, "");
    }
    for command in ["journal inspect", "journal verify"] {
        fails(path, &format!("{command} missing"), &["cannot read missing", "No such file"]);
        fails(path, &format!("{command} folder"), &["folder has no journal segment"]);
        fails(path, &format!("{command} foreign"), &["foreign is not a Tidewire journal segment"]);
        fails(path, &format!("{command} empty"), &["empty is not a Tidewire journal segment"]);
        fails(path, &format!("{command} {SNAPSHOT}"), &["is not a Tidewire journal segment"]);
        fails(path, &format!("{command} {JOURNAL}"), &[JOURNAL, "format 9", "up to 2"]);
        check(path, command, 2, "");
    }
}

#[test]
fn a_journal_is_inspected_and_verified() {
    let inspected = "\
./journal-00000000000000000001.log: events 1 to 10, 1101 bytes, closed in order
segments: 1, bytes: 1101, events: 10
deleted: 1
edited: 2
followed: 2
published: 4
unfollowed: 1
";
    check(&folder_of("v1"), "journal inspect .", 0, inspected);
    check(&folder_of("v1"), "journal verify .", 0, "good: .: events 1 to 10, segments: 1, bytes: 1101\n");
    let document = |words: &str| -> Value {
        serde_json::from_str(run(&folder_of("v1"), words).out.lines().last().unwrap()).unwrap()
    };
    let (inspected, verified) = (document("journal inspect . --json"), document("journal verify . --json"));
    assert_eq!((&inspected["kinds"]["published"], &inspected["good"]), (&json!(4), &json!(true)));
    assert_eq!((&verified["last"], &verified["good"], &verified["torn"]), (&json!(10), &json!(true), &Value::Null));
    let ran = run(&folder_of("v1"), "journal inspect --events .");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len(), ran.err.contains("closed in order")), (0, 10, true), "{}", ran.err);
    for (nth, line) in [
        (
            1,
            r#"{"sequence":1,"event":{"followed":{"edges":[{"follower":"ann","source":"bob"},{"follower":"ann","source":"tag:tea","hidden":true}],"since":"1970-01-01T00:00:01.000000Z"}}}"#,
        ),
        (
            2,
            r#"{"sequence":2,"event":{"published":{"post":{"id":"20","author":"bob","published_at":"1969-12-31T23:59:58.000000Z","body":"before 1970"},"accepted_at":"1969-12-31T23:59:58.000500Z"}}}"#,
        ),
        (5, r#"{"sequence":5,"event":{"edited":{"id":"20","body":[2],"at":"1970-01-01T00:00:05.000000Z"}}}"#),
        (6, r#"{"sequence":6,"event":{"edited":{"id":"30","hidden":true,"at":"1970-01-01T00:00:06.000000Z"}}}"#),
        (7, r#"{"sequence":7,"event":{"deleted":{"id":"40"}}}"#),
        (9, r#"{"sequence":9,"event":{"unfollowed":{"follower":"cas","source":"bob"}}}"#),
    ] {
        assert_eq!(lines[nth - 1], line);
    }
    let directory = copied();
    fs::rename(directory.path().join(JOURNAL), directory.path().join("backup")).unwrap();
    let one = "good: backup: events 1 to 10, segments: 1, bytes: 1101\n";
    check(directory.path(), "journal verify backup", 0, one);
}

/// A directory with the fixture's events in segments of a few events each.
fn in_segments() -> (TempDir, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let files = DiskFiles::open(directory.path()).unwrap();
    let options = JournalOptions { segment_bytes: 400, ..JournalOptions::default() };
    let mut journal =
        SegmentJournal::open(Arc::new(files.clone()), &Tail::default(), options, Arc::new(SystemClock)).unwrap();
    for event in &events() {
        journal.append(event).unwrap();
        journal.commit().unwrap();
    }
    let segments = tidewire::storage::journal::reader::segments(&files).unwrap();
    (directory, segments.into_iter().map(|segment| segment.0).collect())
}

#[test]
fn torn_damaged_and_missing_parts_of_a_journal_are_distinguished() {
    let (directory, segments) = in_segments();
    let path = directory.path();
    assert!(segments.len() >= 3, "{segments:?}");
    let last = segments.last().unwrap();
    let whole = fs::read(path.join(last)).unwrap();
    fs::write(path.join(last), &whole[..whole.len() - 3]).unwrap();
    let torn = run(path, "journal verify .");
    assert_eq!(torn.code, 0, "{}", torn.err);
    assert!(torn.out.contains("events 1 to 9") && torn.out.contains("torn tail of"), "{}", torn.out);
    assert!(run(path, "journal inspect .").out.contains("torn after byte"));
    fs::write(path.join(last), &whole).unwrap();

    tamper(path, &segments[0], |bytes| bytes[40] ^= 1);
    let bad = run(path, "journal verify . --json");
    let verdict: Value = serde_json::from_str(&bad.out).unwrap();
    assert_eq!((bad.code, &verdict["good"]), (1, &json!(false)), "{}", bad.out);
    let place = format!("./{}", segments[0]);
    fails(path, "journal verify .", &[&place, "damaged at byte 24", "event 1 ", "checksum"]);
    let inspected = run(path, "journal inspect .");
    assert_eq!(inspected.code, 1);
    assert!(inspected.out.contains("DAMAGED at byte 24, where event 1"), "{}", inspected.out);
    fails(path, &format!("journal verify {}", segments[0]), &["damaged at byte 24"]);
    tamper(path, &segments[0], |bytes| bytes[40] ^= 1);

    fs::rename(path.join(&segments[1]), path.join("away")).unwrap();
    let missing = segment::parse_name(&segments[1]).unwrap();
    fails(path, "journal verify .", &[&format!("events {missing} to"), "no journal segment before"]);
    let inspected = run(path, "journal inspect .");
    assert_eq!((inspected.code, inspected.out.contains(&format!("events {missing} to"))), (1, true));
    fs::rename(path.join("away"), path.join(&segments[1])).unwrap();
    assert_eq!(run(path, "journal verify .").code, 0);

    // Without its beginning it is whole only beside a snapshot of what is gone.
    fs::remove_file(path.join(&segments[0])).unwrap();
    fails(path, "journal verify .", &["events 1 to", "no journal segment before"]);
    fs::copy(folder_of("v1").join(SNAPSHOT), path.join(SNAPSHOT)).unwrap();
    assert_eq!(run(path, "journal verify .").code, 0);
    fs::rename(path.join(SNAPSHOT), path.join(snapshot::name(Sequence(11)))).unwrap();
    fails(path, "journal verify .", &["the journal ends at event 10", "contains event 11"]);
}

#[tokio::test]
async fn tools_can_read_the_directory_of_a_running_server_and_imports_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let engine = open(path);
    populate(&engine).await;
    let file = engine.snapshot().await.unwrap().file;
    fs::write(path.join("follows"), "x y\n").unwrap();
    let before = content(path);
    for words in [
        format!("snapshot inspect {file}"),
        format!("snapshot verify {file}"),
        format!("snapshot export {file} --without-archive"),
        "journal inspect .".to_owned(),
        "journal inspect --events .".to_owned(),
        "journal verify .".to_owned(),
    ] {
        let ran = run(path, &words);
        assert_eq!(ran.code, 0, "{words}: {}", ran.err);
    }
    fails(
        path,
        "import follows follows --data-dir .",
        &["the data directory . is in use by process", "stop that process"],
    );
    assert!(content(path) == before, "a tool wrote to the data directory");
    engine.shutdown();
    check(path, "import posts missing --data-dir new", 1, "");
    assert!(!path.join("new").exists(), "nothing is made for a file that is not there");
}

#[test]
fn an_import_names_refused_lines_and_respects_the_given_limits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("posts"), "{\"author\":\"ann\",\"body\":1}\n{\"author\":\"\"}\n").unwrap();
    let ran = run(path, "import posts posts --data-dir data");
    assert_eq!(ran.code, 0, "one line was good");
    assert!(ran.err.contains("line 2:") && ran.out.contains("1 post created"), "{}{}", ran.out, ran.err);
    fs::write(path.join("follows"), "ann bob\nann eve\nann cas hidden\nann dan secret\n").unwrap();
    fs::write(path.join("config.toml"), "following-max = 1\n").unwrap();
    let ran = run(path, "import follows follows --data-dir data --config config.toml");
    assert!(ran.err.contains("line 2:") && ran.err.contains("line 4: expected `follower source`"), "{}", ran.err);
    assert!(ran.code == 0 && ran.out.contains("2 edges created"), "{}", ran.out);
    fs::write(path.join("some"), "ann bob\nx y z\n").unwrap();
    let strict = run(path, "import follows some --data-dir data --strict --json");
    let lines: Vec<Value> = strict.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((strict.code, lines.len(), &lines[0]["line"]), (1, 3, &json!(2)), "{}", strict.out);
    assert_eq!((&lines[1]["existing"], &lines[1]["refused"]), (&json!(1), &json!(1)));
    assert!(lines[2]["snapshot"]["file"].as_str().unwrap().starts_with("snapshot-"));
    fs::write(path.join("bad"), "a b c\n").unwrap();
    assert_eq!(run(path, "import follows bad --data-dir data").code, 1, "nothing of it was good");
    fs::write(path.join("none"), "# nothing\n").unwrap();
    assert!(run(path, "import follows none --data-dir data").err.contains("none has no edges"));
    let none = run(path, "import follows none --data-dir data --json");
    let summary: Value = serde_json::from_str(none.out.lines().next().unwrap()).unwrap();
    assert_eq!((none.code, &summary["created"], &summary["refused"]), (1, &json!(0), &json!(0)), "{}", none.out);
    // The end of a file that was cut is an error, and what was read until then is reported as well.
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(b"one-word\nann bob\n").unwrap();
    let packed = packed.finish().unwrap();
    fs::write(path.join("cut"), &packed[..packed.len() - 4]).unwrap();
    let cut = run(path, "import follows cut --data-dir data");
    assert!(
        cut.code == 1 && cut.err.contains("line 1: expected") && cut.err.contains("cannot read cut"),
        "{}",
        cut.err
    );
    assert!(cut.out.starts_with("stopped early: 0 edges created, 1 existing, 1 line refused"), "{}", cut.out);
    check(path, "import follows follows --data-dir data --server http://127.0.0.1:1", 2, "");
    check(path, "import follows follows --config config.toml", 2, "");
    fs::write(path.join("file"), "").unwrap();
    fails(path, "import follows follows --data-dir file", &["cannot use the data directory file"]);
    let alone = run(path, "import follows follows");
    let is_named = alone.err.contains("line 4: expected") && alone.err.contains("no answer from http://127.0.0.1:1");
    assert!(alone.code == 3 && is_named, "{}", alone.err);
}

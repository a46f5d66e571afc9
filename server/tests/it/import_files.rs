//! What files mean to an import, whoever wrote them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tidewire::clock::UnixMicros;
use tidewire::id::PostId;

use crate::export::open;
use crate::tools::{Ran, run};
use testkit::world::id;

/// Imports a file of this text into the directory `data`.
fn import(directory: &Path, what: &str, text: &str) -> Ran {
    fs::write(directory.join("file"), text).unwrap();
    run(directory, &format!("import {what} file --data-dir data"))
}

#[tokio::test]
async fn an_import_publishes_posts_in_the_order_of_its_file() {
    const CASES: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for case in 0..CASES {
        let first = 3 * case + 1;
        let posts = [("ann", None), ("bob", Some(first)), ("cas", Some(first + 1))];
        for (id, (author, original)) in (first..).zip(posts) {
            let mut post = json!({"id": id.to_string(), "author": author, "body": case});
            if let Some(original) = original {
                post["repost_of"] = json!(original.to_string());
            }
            writeln!(lines, "{post}").unwrap();
        }
    }
    // A hidden post is unknown to the author of the next line, so nobody learns what it repeats.
    writeln!(lines, r#"{{"id":"901","author":"bob","body":1,"repost_of":"1","hidden":true}}"#).unwrap();
    writeln!(lines, r#"{{"id":"902","author":"cas","body":2,"repost_of":"901"}}"#).unwrap();
    writeln!(lines, r#"{{"id":"903","author":"dan","body":3}}"#).unwrap();
    writeln!(lines, r#"{{"id":"903","author":"eve","body":3}}"#).unwrap();
    let ran = import(directory.path(), "posts", &lines);
    assert!(ran.code == 0 && ran.out.starts_with("903 posts created, 0 existing, 1 line refused"), "{}", ran.out);
    assert!(ran.err.contains("line 904: post_id_taken"), "the first post with an id has it: {}", ran.err);
    let again = import(directory.path(), "posts", &lines);
    assert!(again.out.starts_with("0 posts created, 903 existing, 1 line refused"), "{}", again.out);

    let engine = open(&directory.path().join("data"));
    for case in 0..CASES {
        let first = PostId(3 * case + 1);
        for repost in [PostId(first.0 + 1), PostId(first.0 + 2)] {
            assert_eq!(engine.post(repost).await.unwrap().repost_of, Some(first), "{repost}");
        }
    }
    assert!(engine.post(PostId(901)).await.unwrap().hidden);
    assert_eq!(engine.post(PostId(902)).await.unwrap().repost_of, Some(PostId(901)));
    engine.shutdown();
}

#[tokio::test]
async fn an_import_creates_edges_in_the_order_of_its_file() {
    /// More than a request may have.
    const EDGES: usize = 11_000;
    let directory = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for ending in [" hidden", ""] {
        (0..EDGES).for_each(|nth| writeln!(lines, "u{nth} ann{ending}").unwrap());
    }
    let ran = import(directory.path(), "follows", &lines);
    assert!(ran.code == 0 && ran.out.starts_with("22000 edges created, 0 existing"), "{}{}", ran.out, ran.err);
    let engine = open(&directory.path().join("data"));
    let hidden = (0..EDGES).map(|nth| engine.hidden_following(&id(&format!("u{nth}")), UnixMicros(i64::MAX), 1).len());
    assert_eq!(hidden.sum::<usize>(), 0, "the last line with an edge decides");
    engine.shutdown();
}

#[tokio::test]
async fn a_foreign_csv_file_is_imported_by_its_header() {
    let directory = tempfile::tempdir().unwrap();
    let file =
        "\u{feff}Followee ID,Follower ID,created_at\r\nbob,ann,2024-01-01 10:00:00\r\ncas,ann,\r\ndan,ann,soon,ish\r\n";
    let ran = import(directory.path(), "follows", file);
    assert!(ran.code == 0 && ran.out.starts_with("2 edges created, 0 existing, 1 line refused"), "{}", ran.out);
    for part in [
        "1 line: column names, skipped",
        "1 line: with the time of the follow, which is not imported",
        "line 4: expected the columns Followee ID,Follower ID,created_at, found 4 fields",
    ] {
        assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
    }
    let engine = open(&directory.path().join("data"));
    let following = engine.following(&id("ann"), UnixMicros(i64::MAX), 9).into_iter().map(|listed| listed.id);
    let mut following: Vec<_> = following.collect();
    following.sort_unstable();
    assert_eq!(following, [id("bob"), id("cas")]);
    engine.shutdown();

    let ran = import(directory.path(), "posts", "\u{feff}{\"author\":\"bob\",\"body\":1}\r\n");
    assert!(ran.out.starts_with("1 post created"), "{}{}", ran.out, ran.err);
    for (what, file, why) in [
        ("follows", "follower,source,weight\na,b,1\n", "cannot read file: line 1: unknown column \"weight\""),
        (
            "posts",
            "\n[{\"author\":\"ann\",\"body\":1}]\n",
            "cannot read file: line 2: expected one post a line (NDJSON)",
        ),
        (
            "posts",
            "author,text\nann,hello\n",
            "cannot read file: line 1: expected one post a line (NDJSON), found something else; docs/tools.md",
        ),
        ("posts", "\0[\0", "cannot read file: the file is UTF-16 or UTF-32: convert it to UTF-8"),
    ] {
        let ran = import(directory.path(), what, file);
        assert!(ran.code == 1 && ran.err.contains(why), "{}{}", ran.out, ran.err);
    }
}

#[test]
fn a_dry_run_reports_the_outcome_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let follows = "follower,source,since\nann,bob,2024-01-01\nann,bob,\nann,ann,\ntag:a,bob,\n";
    fs::write(path.join("follows"), follows).unwrap();
    let posts = [
        r#"{"author":"ann","body":1,"id":"7","hidden":true}"#,
        r#"{"author":"ann","body":2,"id":"7"}"#,
        r#"{"author":"ann","body":2}"#,
        r#"{"author":"ann"}"#,
        r#"{"author":"tag:x","body":1}"#,
        "ann,hello",
    ];
    fs::write(path.join("posts"), posts.join("\n")).unwrap();
    // Neither the server nor the directory is there.
    for target in ["", "--data-dir data"] {
        let ran = run(path, &format!("import follows follows --dry-run {target}"));
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (0, "would send 2 edges, 2 lines refused; nothing was sent\n"),
            "{}",
            ran.err
        );
        for part in [
            "line 4: ann cannot follow itself",
            "line 5: tag:a is not a user, and cannot follow",
            "1 line: column names, skipped",
            "1 line: with the time of the follow",
            "1 line: with the same edge as an earlier line",
        ] {
            assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
        }
        let ran = run(path, &format!("import posts posts --dry-run --strict --json {target}"));
        let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((ran.code, lines.len()), (1, 5), "{}", ran.out);
        for (nth, code) in ["", "not_a_user", "expected a post"].into_iter().enumerate() {
            let why = lines[nth]["refused"].as_str().unwrap();
            assert!(lines[nth]["line"] == nth + 4 && why.starts_with(code), "{}", ran.out);
        }
        assert!(lines[3]["note"].as_str().unwrap().starts_with("with the same id") && lines[3]["lines"] == 1);
        assert_eq!(lines[4], json!({"checked": "posts", "complete": true, "would_send": 3, "refused": 3}));
        assert!(!path.join("data").exists());
    }
    fs::write(path.join("none"), "a b c\n").unwrap();
    assert_eq!(run(path, "import follows none --dry-run").code, 1, "as in an import, nothing of it was good");
}

//! What files mean to an import, whoever wrote them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::json;
use tidewire::clock::UnixMicros;
use tidewire::id::PostId;

use crate::export::open;
use crate::tools::{Ran, run};
use crate::world::id;

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
    // The repost of a post that is hidden by then counts as a repost of an unknown one.
    writeln!(lines, r#"{{"id":"901","author":"ann","body":1,"hidden":true}}"#).unwrap();
    writeln!(lines, r#"{{"id":"902","author":"bob","body":2,"repost_of":"901"}}"#).unwrap();
    writeln!(lines, r#"{{"id":"903","author":"dan","body":3}}"#).unwrap();
    writeln!(lines, r#"{{"id":"903","author":"eve","body":3}}"#).unwrap();
    let ran = import(directory.path(), "posts", &lines);
    assert!(ran.code == 0 && ran.out.starts_with("903 posts created, 0 existing, 1 lines refused"), "{}", ran.out);
    assert!(ran.err.contains("line 904: post_id_taken"), "the first post with an id has it: {}", ran.err);
    let again = import(directory.path(), "posts", &lines);
    assert!(again.out.starts_with("0 posts created, 903 existing, 1 lines refused"), "{}", again.out);

    let engine = open(&directory.path().join("data"));
    for case in 0..CASES {
        let first = PostId(3 * case + 1);
        for repost in [PostId(first.0 + 1), PostId(first.0 + 2)] {
            assert_eq!(engine.post(repost).await.unwrap().repost_of, Some(first), "{repost}");
        }
    }
    assert!(engine.post(PostId(901)).await.unwrap().hidden);
    engine.shutdown();
}

#[tokio::test]
async fn an_import_makes_edges_in_the_order_of_its_file() {
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

//! From the export of a hosted feed service.
//!
//! There is no such service here. [`Service`] is a naive one: it has the activities and follows, and computes each timeline anew.

mod service;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidewire::config::EngineConfig;

use self::service::{Service, Shape};
use super::{Script, count};
use crate::server::Server;
use testkit::PageCount;

/// Each of these readers is compared entry by entry with the naive service.
const READERS_STEP: usize = 210;

/// Files of one migration: the export, what the service answers for a timeline, and the log of writes.
struct Files {
    directory: tempfile::TempDir,
    timelines: String,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("timelines")).unwrap();
        let read = directory.path().join("read.sh");
        std::fs::write(&read, format!("cat \"{}/timelines/$1\"\n", directory.path().display())).unwrap();
        Self { timelines: format!("sh {}", read.display()), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn script(&self, export: &Path, server: &Server) -> Script {
        let export = export.to_str().unwrap();
        Script::new("from_hosted.py", &["--export", export], server)
    }

    /// Returns these records as writes for both.py.
    fn writes(&self, records: &str, server: &Server) -> String {
        let (code, said) = self.script(&self.write("new.jsonl", records), server).run(&["writes"]);
        assert_eq!(code, 0, "{said}");
        said
    }

    /// Compares what the service answers for these readers now with Tidewire.
    fn compare(&self, script: &Script, service: &Service, shape: Shape, readers: &[&str]) -> (i32, String) {
        for reader in readers {
            self.write(&format!("timelines/timeline:{reader}"), &service.answer(reader, shape));
        }
        let readers = readers.iter().flat_map(|reader| ["--reader", reader]);
        let arguments: Vec<&str> =
            ["compare", "--timelines", &self.timelines, "--depth", "5000"].into_iter().chain(readers).collect();
        script.run(&arguments)
    }
}

/// Returns the whole feed of a reader, newest first: times and texts. Those of the same time are ordered by text.
fn shown(server: &Server, reader: &str) -> Vec<(String, String)> {
    let (mut found, mut before) = (Vec::new(), String::new());
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let page = server.get(&format!("/v1/users/{reader}/feed?limit=100{before}")).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let items = page["items"].as_array().unwrap();
        found.extend(
            items.iter().map(|item| (text(&item["post"]["published_at"]), text(&item["post"]["body"]["text"]))),
        );
        match &page["next"] {
            Value::String(next) => before = format!("&before={next}"),
            _ => break,
        }
    }
    assert!(found.is_sorted_by(|above, below| above.0 >= below.0), "{reader}");
    found.sort_unstable_by(|one, other| other.cmp(one));
    found
}

fn check_migration(shape: Shape) {
    let (files, server) = (Files::new(), Server::start(EngineConfig::default()));
    let mut service = Service::filled();
    let export = files.write("export.jsonl", &service.export(shape));
    let expected = service.expected(shape);
    let script = files.script(&export, &server);
    let both = Script::both(&files.path("writes.jsonl"), &server);

    // The application begins to write to both after the export was made: a new activity and a new follow, one that is deleted and one that ends.
    let records =
        service.publish("author-1", "written to both", &[]).line(shape) + &service.follow("reader-7", "stock:pear");
    let deleted = files.writes(&service.delete(11).line(shape), &server);
    let deleted: Value = serde_json::from_str(deleted.trim()).unwrap();
    service.unfollow("reader-0", "user:star");
    let ended = ["star", "tag:user:star"].map(|source| json!({"unfollow": ["reader-0", source]}).to_string());
    let writes =
        [files.writes(&records, &server), json!({"delete": deleted["publish"]["id"]}).to_string(), ended.join("\n")];
    let said = both.write(&writes.join("\n"));
    assert_eq!((count(&said, "written"), said.lines().count()), (5, 1), "{said}");

    // The export is older than that. What was deleted stays deleted, but the follow comes back, which the comparison finds.
    let (code, said) = script.run(&["import"]);
    assert_eq!((code, Service::imported(&said)), (0, expected), "{said}");
    let changed = ["reader-0", "reader-7", "reader-21", "author-0", "author-1"];
    let (code, said) = files.compare(&script, &service, shape, &changed);
    assert!(code == 1 && said.contains("feed of reader-0: "), "{said}");
    assert!(said.lines().all(|line| !line.contains("feed of ") || line.contains("feed of reader-0: ")), "{said}");
    let (code, said) = both.run(&["replay"]);
    assert!(code == 0 && count(&said, "written") == 5, "{said}");
    let (code, said) = files.compare(&script, &service, shape, &changed);
    assert!(code == 0 && count(&said, "readers") == 5, "{said}");

    // All that these readers see is what the naive service shows.
    let readers = (0..service::READERS).step_by(READERS_STEP).map(|number| format!("reader-{number}"));
    for reader in readers.chain((0..20).map(|number| format!("author-{number}"))) {
        assert_eq!(shown(&server, &reader), service.timeline(&reader), "{reader}");
    }
    check_writes_that_are_lost(shape, &files, &server, &mut service, &script);
}

/// While Tidewire cannot be reached, and where the application forgets to write to it, the comparison finds what is missing.
fn check_writes_that_are_lost(shape: Shape, files: &Files, server: &Server, service: &mut Service, script: &Script) {
    let both = Script::both(&files.path("writes.jsonl"), server);
    let lost = files.writes(&service.publish("star", "lost", &["stock:apple"]).line(shape), server);
    let (code, said) = both.run_with(&["write", "--server", "http://127.0.0.1:9"], &lost);
    assert!(code == 0 && count(&said, "not written to Tidewire: replay") == 1, "{said}");
    let forgotten = files.writes(&service.publish("star", "forgotten", &[]).line(shape), server);
    let readers = ["reader-2", "reader-5"];
    let (code, said) = files.compare(script, service, shape, &readers);
    assert!(code == 1 && count(&said, "differences") == 4 && said.contains("of star is missing"), "{said}");

    let (code, said) = both.run(&["replay"]);
    assert!(code == 0 && count(&said, "written") == 6, "{said}");
    let (code, said) = files.compare(script, service, shape, &readers);
    assert!(code == 1 && count(&said, "differences") == 2, "{said}");
    assert_eq!(count(&both.write(&forgotten), "written"), 1);
    let (code, said) = files.compare(script, service, shape, &readers);
    assert!(code == 0 && count(&said, "readers") == 2, "{said}");
}

#[test]
#[ignore = "needs python3"]
fn feeds_of_an_export_are_equal_after_the_import_and_during_dual_writes() {
    check_migration(Shape::Export);
}

#[test]
#[ignore = "needs python3"]
fn feeds_of_the_older_version_are_equal_after_the_import_and_during_dual_writes() {
    check_migration(Shape::Older);
}

#[test]
#[ignore = "needs python3"]
fn an_export_is_compared_offline_and_a_second_import_changes_nothing() {
    let (files, server) = (Files::new(), Server::start(EngineConfig::default()));
    let service = Service::filled();
    let export = files.write("export.jsonl", &service.export(Shape::Export));
    let script = files.script(&export, &server);
    let (code, said) = script.run(&["import"]);
    assert_eq!((code, Service::imported(&said)), (0, service.expected(Shape::Export)), "{said}");
    let (code, said) = script.run(&["compare", "--readers", "1000"]);
    assert!(code == 0 && count(&said, "readers") == 1000, "{said}");
    assert!(count(&said, "entries that are equal") > 50_000, "{said}");

    let (code, said) = script.run(&["import", "--prune"]);
    assert!(code == 0 && count(&said, "posts published") == 0 && count(&said, "follows added") == 0, "{said}");
    assert!(!said.contains("removed") && !said.contains("posts deleted"), "{said}");
    // Comments are replies, which are in no feed.
    let stars = server.get("/v1/users/star/posts?limit=1").json();
    assert_eq!(stars["items"][0]["post"]["body"]["object_type"], "activity", "{stars}");
    let answered = &stars["items"][0]["post"]["reply_to"];
    let replies = server.get(&format!("/v1/posts/{}/replies", answered.as_str().unwrap())).json();
    assert!(replies["items"][0]["post"]["body"]["text"].as_str().unwrap().starts_with("comment "), "{replies}");
}

#[test]
#[ignore = "needs python3"]
fn a_follow_of_an_empty_feed_survives_a_later_pruning_import() {
    let (files, server) = (Files::new(), Server::start(EngineConfig::default()));
    let follow =
        |feed: &str| format!(r#"{{"type":"follow","data":{{"source_fid":"timeline:ann","target_fid":"{feed}"}}}}"#);
    let activity = r#"{"type":"activity","data":{"id":"550e8400-e29b-41d4-a716-446655440000","user_id":"bob","fids":["user:bob"],"created_at":"2024-01-01T00:00:00Z"}}"#;
    let lines = format!("{}\n{}\n{activity}", follow("user:bob"), follow("stock:quiet"));
    let export = files.write("export.jsonl", &lines);
    let followed = || {
        let items = server.get("/v1/users/ann/following").json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let script = files.script(&export, &server);
    assert_eq!(script.run(&["import"]).0, 0);
    assert_eq!(followed(), BTreeSet::from(["bob".to_owned()]));
    let both = Script::both(&files.path("writes.jsonl"), &server);
    both.write(&files.writes(&follow("stock:quiet"), &server));
    let (code, said) = script.run(&["import", "--prune"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(followed(), BTreeSet::from(["bob".to_owned(), "tag:stock:quiet".to_owned()]));
    let post = server.get("/v1/posts/ext:550e8400-e29b-41d4-a716-446655440000").json();
    assert_eq!(post["author"], "bob");
}

/// Lines that cannot be imported, and what is said of each after the name of the file and the number of the line.
const UNUSABLE: &[(&str, &str)] = &[
    ("{", ": not JSON: Expecting property name"),
    ("[1]", ": not an object: [1]"),
    (r#"{"type":"activity","type":"follow","data":{}}"#, ": not JSON: the field 'type' is there twice"),
    (
        r#"{"type":"activity","data":{"id":"1","user_id":"ann","fids":["user:ann"],"n":1e999}}"#,
        ": not JSON: the number 1e999",
    ),
    (r#"{"type":"activity","data":{"id":"\ud800"}}"#, ": not Unicode: half of a surrogate pair"),
    (r#"{"type":"activity","data":7}"#, ": data: 7 is not an object"),
    (r#"{"data":{}}"#, ": type: missing"),
    (r#"{"type":"activity","data":{"id":"1","user_id":"ann"}}"#, ": fids: None is not an array of feeds"),
    (
        r#"{"type":"activity","data":{"id":"1","user_id":"ann","fids":["user:ann","ann"]}}"#,
        ": fids[1]: 'ann' is not a feed, GROUP:NAME",
    ),
    (r#"{"type":"activity","data":{"id":"1","user_id":"ann","fids":["user:ann"]}}"#, ": created_at: missing"),
    (
        r#"{"type":"activity","data":{"id":"1","user_id":"jörg","fids":["user:ann"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        ": user_id: 'jörg': the id of a user has 1 to 128 of",
    ),
    (
        r#"{"type":"activity","data":{"id":"1","user_id":"ann","fids":["user:ann"],"created_at":"yesterday"}}"#,
        ": created_at: 'yesterday' is not a time like",
    ),
    (
        r#"{"type":"activity","data":{"id":7,"user_id":"ann","fids":["user:ann"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        ": id: 7 is not a text",
    ),
    (r#"{"type":"follow","data":{"source_fid":"timeline:ann"}}"#, ": target_fid: missing"),
    (
        r#"{"type":"comment","data":{"id":"1","object_type":"post","object_id":"1","user_id":"ann"}}"#,
        ": object_type: 'post' is not 'activity'",
    ),
    (
        r#"{"instruction":"add_activities","feedId":"user:ann","data":[{"actor":"ann","foreign_id":"p:1","time":"2024-01-01T00:00:00"},{"actor":"ann","time":"2024-01-01T00:00:00"}]}"#,
        ": data[1]: foreign_id: missing",
    ),
    (
        r#"{"instruction":"follow","feedId":"timeline:ann","data":["user:bob","user"]}"#,
        ": data[1]: data: 'user' is not a feed, GROUP:NAME",
    ),
    (
        r#"{"results":[{"actor":{"id":"a b"},"time":"2024-01-01T00:00:00"}]}"#,
        ": results[0]: actor.id: 'a b': the id of a user has 1 to 128 of",
    ),
    (r#"{"results":[{"verb":"post"}]}"#, ": results[0]: neither an activity (actor), nor a follow"),
    (
        r#"{"type":"activity","data":{"id":"1","user_id":"tag:tea","fids":["user:ann"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        ": user_id: 'tag:tea': the id of a user has 1 to 128 of",
    ),
    (
        r#"{"type":"follow","data":{"source_fid":"timeline:ann","target_fid":"user:jörg"}}"#,
        ": target_fid: 'user:jörg': the name of a feed has 1 to 128 of",
    ),
    (
        r#"{"type":"follow","data":{"source_fid":"timeline:ann","target_fid":"stock:a/b"}}"#,
        ": target_fid: 'stock:a/b': the name of a feed has 1 to 128 of",
    ),
    (
        r#"{"type":"activity","data":{"id":"tea-1","user_id":"Ann","fids":["user:Ann","topic:Tea"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        "",
    ),
    (
        r#"{"type":"activity","data":{"id":"tea-2","user_id":"ann","fids":["user:ann","topic:tea"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        ": 'topic:tea' and 'topic:Tea' would be one tag",
    ),
    // These are refused only beside others: the same id with another text, and two ids of which the 64 bits of the posts are the same.
    (
        r#"{"type":"activity","data":{"id":"x-1","user_id":"ann","fids":["user:ann"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        "",
    ),
    (
        r#"{"type":"activity","data":{"id":"x-1","user_id":"ann","fids":["user:ann"],"created_at":"2024-01-01T00:00:01Z"}}"#,
        ": id: FILE:25 has the same id, but another content",
    ),
    (
        r#"{"type":"activity","data":{"id":"2209137153709799009","user_id":"ann","fids":["user:ann"],"created_at":"2024-01-01T00:00:00Z"}}"#,
        ": id: the post would have the id 2209137153709799009, which that of FILE:25 has: give one of them another id",
    ),
];

#[test]
#[ignore = "needs python3"]
fn invalid_export_lines_are_named_with_file_line_and_field() {
    let (files, server) = (Files::new(), Server::start(EngineConfig::default()));
    let lines: Vec<&str> = UNUSABLE.iter().map(|(line, _)| *line).collect();
    let export = files.write("export.jsonl", &lines.join("\n"));
    let file = export.to_str().unwrap();
    let (code, said) = files.script(&export, &server).run(&["import"]);
    let refusals: Vec<&str> = said.lines().filter(|line| line.starts_with("refused: ")).collect();
    let expected: BTreeSet<String> = (1..)
        .zip(UNUSABLE)
        .filter(|(_, (_, why))| !why.is_empty())
        .map(|(number, (_, why))| format!("refused: {file}:{number}{}", why.replace("FILE", file)))
        .collect();
    assert_eq!((code, refusals.len(), count(&said, "refused")), (1, expected.len(), expected.len()), "{said}");
    for expected in expected {
        assert!(refusals.iter().any(|refusal| refusal.starts_with(&expected)), "{expected}\n{said}");
    }
    // The other activity of the line before, and the first of those with the same id.
    assert_eq!(count(&said, "posts published"), 3, "{said}");
    let (code, said) = files.script(&files.path("none"), &server).run(&["import"]);
    assert!(code == 1 && said.contains("none: No such file or directory"), "{said}");
}

//! Old posts in a real Cassandra: the real program, and both of them killed and started again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::program::Program;
use testkit::cassandra::Nodes;
use testkit::{PageCount, eventually};

const AUTHORS: [&str; 3] = ["star", "bob", "cas"];

/// Readers, and whom they follow.
const READERS: [(&str, &[&str]); 3] = [("ann", &["star", "bob", "cas"]), ("eve", &["star"]), ("fay", &["bob", "cas"])];

/// What must be shown: of each author the posts by number, with their ids.
#[derive(Default)]
struct Oracle {
    posts: BTreeMap<u64, (usize, String)>,
    next: u64,
}

impl Oracle {
    fn publish(&mut self, program: &Program, count: u64) {
        for _ in 0..count {
            let (number, author) = (self.next, (self.next % 3) as usize);
            let post = json!({"author": AUTHORS[author], "body": number});
            let sent = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json");
            let mut answer = sent.send(post.to_string()).unwrap();
            let text = answer.body_mut().read_to_string().unwrap();
            assert_eq!(answer.status(), 201, "{text}");
            let answer: Value = serde_json::from_str(&text).unwrap();
            self.posts.insert(number, (author, answer["id"].as_str().unwrap().to_owned()));
            self.next += 1;
        }
    }

    fn delete(&mut self, program: &Program, number: u64) {
        let (_, id) = self.posts.remove(&number).unwrap();
        let answer = program.agent.delete(format!("{}/v1/posts/{id}", program.url)).call().unwrap();
        assert_eq!(answer.status(), 204);
    }

    fn edit(&self, program: &Program, number: u64) {
        let (_, id) = &self.posts[&number];
        let sent = program.agent.patch(format!("{}/v1/posts/{id}", program.url)).content_type("application/json");
        assert_eq!(sent.send(json!({"body": {"edited": number}}).to_string()).unwrap().status(), 200);
    }

    /// The numbers of the posts of some authors, newest first.
    fn of(&self, authors: &[&str]) -> Vec<u64> {
        let shown = self.posts.iter().rev().filter(|(_, (author, _))| authors.contains(&AUTHORS[*author]));
        shown.map(|(number, _)| *number).collect()
    }

    /// Compares everything that every reader can scroll to. Returns what is missing or partial.
    fn difference(&self, program: &Program) -> Option<String> {
        let mut feeds: Vec<(String, Vec<u64>)> =
            READERS.iter().map(|(reader, follows)| (super::feed(reader), self.of(follows))).collect();
        feeds.extend(AUTHORS.iter().map(|author| (format!("/v1/users/{author}/posts"), self.of(&[author]))));
        feeds.into_iter().find_map(|(path, expected)| {
            let found = walked(program, &path).map_err(|page| format!("{path}: {page}"));
            match found {
                Err(why) => Some(why),
                Ok(found) if found != expected => {
                    Some(format!("{path}: {} of {} posts: {found:?}", found.len(), expected.len()))
                }
                Ok(_) => None,
            }
        })
    }

    /// Waits until every reader sees everything.
    fn agrees(&self, program: &Program) {
        eventually("every reader sees everything", || self.difference(program).map_or(Ok(()), Err));
    }
}

/// Scrolls to the end. Returns the numbers of the posts, or the first page that was not whole.
fn walked(program: &Program, path: &str) -> Result<Vec<u64>, Value> {
    let (mut numbers, mut before) = (Vec::new(), String::new());
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let (status, page) = program.get(&format!("{path}?limit=50{before}")).ok_or(Value::Null)?;
        if status != 200 || page["partial"].as_array().is_some_and(|partial| !partial.is_empty()) {
            return Err(page);
        }
        numbers.extend(page["items"].as_array().unwrap().iter().map(|item| number(&item["post"]["body"])));
        let Some(next) = page["next"].as_str() else { return Ok(numbers) };
        before = format!("&before={next}");
    }
}

/// Returns the number of a post, whether it was edited or not.
fn number(body: &Value) -> u64 {
    body["edited"].as_u64().or(body.as_u64()).unwrap()
}

fn tool(arguments: &[&str]) -> Output {
    testkit::output(Command::new(env!("CARGO_BIN_EXE_tidewire")).args(arguments))
}

/// Runs a tool that must succeed, and returns what it printed.
fn done(arguments: &[&str]) -> String {
    let output = tool(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn follow(program: &Program) {
    for (reader, sources) in READERS {
        for source in sources {
            let path = format!("{}/v1/users/{reader}/following/{source}", program.url);
            let answer = program.agent.put(path).content_type("application/json").send("{}").unwrap();
            assert!(answer.status().is_success(), "{answer:?}");
        }
    }
}

fn started(directory: &Path, url: &str) -> Program {
    Program::start(directory, &["--outbox-posts", "10", "--archive", url])
}

/// Stops a program, which must take its last snapshot.
fn stop(program: Program) {
    program.signal("TERM");
    let (status, said) = program.ended();
    let is_taken = said.contains("taking a snapshot") && !said.contains("took no snapshot") && !said.contains("ERROR");
    assert!(status.success() && is_taken, "{said}");
}

fn posts_in_memory(program: &Program) -> u64 {
    program.get("/v1/stats").map_or(u64::MAX, |(_, stats)| stats["posts"].as_u64().unwrap())
}

fn metric(program: &Program, name: &str) -> f64 {
    let mut answer = program.agent.get(format!("{}/metrics", program.url)).call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Few posts are left in memory once three outboxes have no more than their limit and its slack.
const POSTS_LEFT_MAX: u64 = 3 * 20;

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn the_second_level_can_move_to_cassandra_and_back() {
    let nodes = Nodes::shared();
    let (url, directory, copy) =
        (nodes.url(&Nodes::keyspace()), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut oracle = Oracle::default();
    let at = |directory: &tempfile::TempDir| directory.path().to_str().unwrap().to_owned();
    {
        let program = Program::start(directory.path(), &["--outbox-posts", "10"]);
        follow(&program);
        oracle.publish(&program, 300);
        eventually("old posts leave memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
        oracle.delete(&program, 7);
        oracle.agrees(&program);
        stop(program);
    }
    // Without its tables the store is refused, by a message that says what to do.
    let (status, said) = Program::spawn(directory.path(), &["--archive", &url]).ended();
    assert!(!status.success() && said.contains("tidewire archive init"), "{said}");
    let refused = tool(&["archive", "copy", "--from", &at(&directory), "--to", &url]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("tidewire archive init"), "{said}");
    done(&["archive", "init", "--archive", &url, "--replicas", "1"]);
    // Neither is an archive that lacks what the directory has.
    let (status, said) = Program::spawn(directory.path(), &["--archive", &url]).ended();
    assert!(!status.success() && said.contains("archive.redb has posts that cassandra://"), "{said}");
    let said = done(&["archive", "copy", "--from", &at(&directory), "--to", &url]);
    assert!(said.contains("good: both are equal"), "{said}");
    // What is there is not written again.
    let said = done(&["archive", "copy", "--from", &at(&directory), "--to", &url]);
    assert!(said.starts_with("written: 0 posts, 0 entries\n"), "{said}");
    for file in ["archive.redb", "archive.sums"] {
        std::fs::rename(directory.path().join(file), copy.path().join(file)).unwrap();
    }
    {
        let program = started(directory.path(), &url);
        oracle.agrees(&program);
        oracle.publish(&program, 300);
        oracle.delete(&program, 11);
        eventually("old posts leave memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
        oracle.agrees(&program);
        assert!(metric(&program, "tidewire_archive_statements_written_total") > 0.0);
        assert!(metric(&program, "tidewire_archive_cache_bytes") > 0.0);
        stop(program);
    }
    // Without the archive that it relies on, a start is refused.
    let (status, said) = Program::spawn(directory.path(), &[]).ended();
    assert!(!status.success() && said.contains("--archive"), "{said}");
    let _ = std::fs::remove_file(directory.path().join("archive.redb"));
    let _ = std::fs::remove_file(directory.path().join("archive.sums"));
    let said = done(&["archive", "copy", "--from", &url, "--to", &format!("{}/archive.redb", at(&directory))]);
    assert!(said.contains("good: both are equal"), "{said}");
    assert!(done(&["archive", "verify", &at(&directory)]).contains("good: "));
    oracle.agrees(&Program::start(directory.path(), &["--outbox-posts", "10"]));
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_copy_to_cassandra_can_be_repeated_after_the_file_has_changed() {
    let nodes = Nodes::shared();
    let (url, directory) = (nodes.url(&Nodes::keyspace()), tempfile::tempdir().unwrap());
    let at = directory.path().to_str().unwrap();
    let mut oracle = Oracle::default();
    done(&["archive", "init", "--archive", &url, "--replicas", "1"]);
    for round in 0..3 {
        {
            let program = Program::start(directory.path(), &["--outbox-posts", "10"]);
            if round == 0 {
                follow(&program);
            }
            oracle.publish(&program, 150);
            eventually("old posts leave memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
            // Posts that were copied before, and others.
            for number in [3, 40, 150 * round + 5] {
                oracle.edit(&program, number);
            }
            for number in [20 + round, 150 * round + 7] {
                oracle.delete(&program, number);
            }
            oracle.agrees(&program);
            stop(program);
        }
        let said = done(&["archive", "copy", "--from", at, "--to", &url]);
        assert!(said.contains("good: both are equal"), "{said}");
        let said = done(&["archive", "copy", "--from", at, "--to", &url]);
        assert!(said.starts_with("written: 0 posts, 0 entries\n"), "{said}");
    }
    for file in ["archive.redb", "archive.sums"] {
        std::fs::remove_file(directory.path().join(file)).unwrap();
    }
    let program = started(directory.path(), &url);
    oracle.agrees(&program);
    let (_, edited) = program.get(&format!("/v1/posts/{}", oracle.posts[&3].1)).unwrap();
    assert_eq!(edited["body"], json!({"edited": 3}), "{edited}");
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn an_import_into_a_directory_archives_old_posts_in_cassandra() {
    let nodes = Nodes::start(1);
    let (url, directory, files) = (nodes.url("imported"), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    done(&["archive", "init", "--archive", &url, "--replicas", "1"]);
    let named = |name: &str| files.path().join(name).display().to_string();
    std::fs::write(named("config"), format!("outbox-posts = 10\narchive = \"{url}\"\n")).unwrap();
    let follows = READERS.iter().flat_map(|(reader, sources)| sources.iter().map(move |source| (reader, source)));
    let lines: String = follows.map(|(reader, source)| format!("{reader} {source}\n")).collect();
    std::fs::write(named("follows"), lines).unwrap();
    let mut oracle = Oracle::default();
    let line = |number: u64| {
        let (author, id) = ((number % 3) as usize, (number + 1).to_string());
        oracle.posts.insert(number, (author, id.clone()));
        let at = format!("2026-01-01T00:{:02}:{:02}Z", number / 60, number % 60);
        format!("{}\n", json!({"id": id, "author": AUTHORS[author], "published_at": at, "body": number}))
    };
    let lines: String = (0..600).map(line).collect();
    std::fs::write(named("posts"), lines).unwrap();
    let data = directory.path().display().to_string();
    for what in ["follows", "posts"] {
        done(&["import", what, &named(what), "--data-dir", &data, "--config", &named("config")]);
    }
    assert!(!directory.path().join("archive.redb").exists());
    let program = started(directory.path(), &url);
    oracle.agrees(&program);
    eventually("old posts leave memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
    oracle.agrees(&program);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn a_server_that_starts_waits_until_cassandra_answers() {
    let nodes = Nodes::start(1);
    let (url, directory) = (nodes.url("feeds"), tempfile::tempdir().unwrap());
    done(&["archive", "init", "--archive", &url, "--replicas", "1"]);
    nodes.kill(1);
    let program = Program::spawn(directory.path(), &["--archive", &url]);
    eventually("it has tried twice", || program.said("waiting, for at most 300s: the archive") >= 2);
    let (status, progress) = program.get("/readyz").unwrap();
    assert_eq!((status, &progress["recovery"]["phase"]), (503, &json!("connecting to the archive")), "{progress}");
    nodes.restore();
    let mut oracle = Oracle::default();
    let program = program.ready();
    follow(&program);
    oracle.publish(&program, 3);
    oracle.agrees(&program);
}

#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn old_posts_in_cassandra_survive_kills_of_the_server_and_of_the_store() {
    let nodes = Nodes::start(1);
    let (url, directory) = (nodes.url("feeds"), tempfile::tempdir().unwrap());
    done(&["archive", "init", "--archive", &url, "--replicas", "1"]);
    let mut oracle = Oracle::default();
    let program = started(directory.path(), &url);
    follow(&program);
    oracle.publish(&program, 300);
    eventually("old posts leave memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
    oracle.agrees(&program);
    program.kill();
    let program = started(directory.path(), &url);
    oracle.agrees(&program);
    program.kill();

    // Nothing was read yet that would still be in memory, and what was replayed leaves it.
    let program = started(directory.path(), &url);
    eventually("what was replayed leaves memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
    assert!(metric(&program, "tidewire_archive_connections") > 0.0);
    nodes.kill(1);
    eventually("the driver has noticed", || metric(&program, "tidewire_archive_connections") < 1.0);
    // Writes go on, the newest posts are shown, and what cannot be read is named.
    oracle.publish(&program, 300);
    let (status, page) = program.get(&format!("{}?limit=5", super::feed("ann"))).unwrap();
    let newest: Vec<u64> =
        page["items"].as_array().unwrap().iter().map(|i| i["post"]["body"].as_u64().unwrap()).collect();
    assert_eq!((status, newest), (200, oracle.of(&AUTHORS)[..5].to_vec()));
    let partial = walked(&program, "/v1/users/bob/posts").unwrap_err();
    assert_eq!(partial["partial"], json!(["bob"]), "{partial}");
    nodes.restore();
    oracle.agrees(&program);
    eventually("what waited leaves memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
    oracle.agrees(&program);

    // The same when the store hangs, and the server is killed meanwhile.
    nodes.pause(1);
    oracle.publish(&program, 100);
    oracle.delete(&program, 450);
    program.kill();
    nodes.resume();
    let program = started(directory.path(), &url);
    oracle.agrees(&program);
    eventually("what was replayed leaves memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
    oracle.agrees(&program);
    assert!(metric(&program, "tidewire_archive_held_back") < 1.0);
}

#[cfg(feature = "cassandra-tls")]
#[test]
#[ignore = "needs Cassandra: scripts/cassandra.sh install"]
fn cassandra_is_reached_with_a_password_and_tls() {
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name);
    // The driver compares the address of a node with those in its certificate.
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(in_directory("cert.pem"), issued.cert.pem()).unwrap();
    std::fs::write(in_directory("both.pem"), issued.signing_key.serialize_pem() + &issued.cert.pem()).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(in_directory("other.pem"), other.cert.pem()).unwrap();
    let nodes = Nodes::secure(&in_directory("both.pem"));
    let (url, authorities) = (nodes.url("feeds"), in_directory("cert.pem").to_str().unwrap().to_owned());
    let password = directory.path().join("password");
    std::fs::write(&password, "cassandra\n").unwrap();
    let access = [
        "--archive-user",
        "cassandra",
        "--archive-password-file",
        password.to_str().unwrap(),
        "--archive-tls-ca",
        &authorities,
    ];
    let init = ["archive", "init", "--archive", &url, "--replicas", "1"];
    // Without TLS, with another authority, and with a wrong password it is refused.
    assert!(!tool(&init).status.success());
    let other = in_directory("other.pem").to_str().unwrap().to_owned();
    let said = String::from_utf8_lossy(&tool(&[&init[..], &access[..5], &[&other]].concat()).stderr).into_owned();
    assert!(said.contains("certificate verify failed"), "{said}");
    std::fs::write(directory.path().join("wrong"), "wrong").unwrap();
    let wrong = directory.path().join("wrong").to_str().unwrap().to_owned();
    let with_wrong = [&init[..], &access[..3], &[&wrong], &access[4..]].concat();
    let said = String::from_utf8_lossy(&tool(&with_wrong).stderr).into_owned();
    assert!(said.contains("incorrect") || said.contains("Authentication"), "{said}");
    done(&[&init[..], &access].concat());
    let data = tempfile::tempdir().unwrap();
    let flags = [&["--outbox-posts", "10", "--archive", &url], &access[..]].concat();
    let program = Program::start(data.path(), &flags);
    let mut oracle = Oracle::default();
    follow(&program);
    oracle.publish(&program, 120);
    eventually("old posts leave memory", || posts_in_memory(&program) <= POSTS_LEFT_MAX);
    oracle.agrees(&program);
}

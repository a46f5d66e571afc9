//! While an application writes to its old database and to Tidewire: what is written to both is equal, and a comparison finds what is not.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;

use super::redis::{self, FIRST_MS, Redis};
use super::sql::{self, MariaDb};
use super::{Script, count};
use crate::server::Server;

/// An old database of more than ten thousand users, in which ann follows bob and cas, and zoe follows bob.
trait Old {
    fn script(&self, server: &Server) -> Script;
    /// Executes a write of both.py as the application does.
    fn write(&self, write: &Value);
    /// A post of bob that is not there yet, the nth.
    fn post(&self, nth: u64) -> Value;
    /// Ids of two posts of bob that are among the newest.
    fn two_of_bob(&self) -> [u64; 2];
}

impl Old for Redis {
    fn script(&self, server: &Server) -> Script {
        self.script(server)
    }

    fn write(&self, write: &Value) {
        let (name, of) = write.as_object().unwrap().iter().next().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.ask(&match name.as_str() {
            "publish" => {
                let (id, author, words) = (text(&of["id"]), text(&of["author"]), &of["body"]["text"]);
                let at = FIRST_MS + id.parse::<u64>().unwrap() / 3;
                format!(
                    "HSET post:{id} author {author} created_at {at} text {words}\nZADD posts:{author} {at} {id}\nZADD timeline:ann {at} {id}\n"
                )
            }
            "edit" => format!("HSET post:{} text {}\n", text(&of[0]), of[1]["text"]),
            "delete" => format!("HSET post:{} deleted 1\n", text(of)),
            "follow" => format!("ZADD following:{} 7 {}\n", text(&of[0]), text(&of[1])),
            "unfollow" => format!("SREM following:{} {}\n", text(&of[0]), text(&of[1])),
            other => panic!("{other}"),
        });
    }

    fn post(&self, nth: u64) -> Value {
        let id = 900 + 3 * nth;
        // Of the year 2023, as the others are.
        let at = format!("2023-11-14T22:13:20.{:03}Z", id / 3);
        json!({"id": id.to_string(), "author": "bob", "published_at": at, "body": {"text": format!("new {nth}")}})
    }

    fn two_of_bob(&self) -> [u64; 2] {
        [400, 398]
    }
}

impl Old for MariaDb {
    fn script(&self, server: &Server) -> Script {
        self.script(server)
    }

    fn write(&self, write: &Value) {
        let (name, of) = write.as_object().unwrap().iter().next().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.ask(&match name.as_str() {
            "publish" => format!(
                "INSERT INTO posts (id, author, text, created_at) VALUES ({}, '{}', '{}', '{}');",
                text(&of["id"]),
                text(&of["author"]),
                text(&of["body"]["text"]),
                text(&of["published_at"]).replace('T', " ").replace('Z', "")
            ),
            "edit" => format!("UPDATE posts SET text = '{}' WHERE id = {};", text(&of[1]["text"]), text(&of[0])),
            "delete" => format!("UPDATE posts SET deleted_at = NOW() WHERE id = {};", text(of)),
            "follow" => format!("INSERT INTO follows VALUES ('{}', '{}');", text(&of[0]), text(&of[1])),
            "unfollow" => {
                format!("DELETE FROM follows WHERE follower = '{}' AND followee = '{}';", text(&of[0]), text(&of[1]))
            }
            other => panic!("{other}"),
        });
    }

    fn post(&self, nth: u64) -> Value {
        let (id, at) = (sql::BASE + 20_000 + nth, format!("2024-03-01T00:01:00.{nth:06}Z"));
        json!({"id": id.to_string(), "author": "bob", "published_at": at, "body": {"text": format!("new {nth}")}})
    }

    fn two_of_bob(&self) -> [u64; 2] {
        [sql::BASE + 11_996, sql::BASE + 11_992]
    }
}

fn check_writing_to_both(old: &dyn Old) {
    let server = Server::start(EngineConfig::default());
    let directory = tempfile::tempdir().unwrap();
    let (script, both) = (old.script(&server), Script::both(&directory.path().join("writes.jsonl"), &server));
    let line = |write: &Value| write.to_string() + "\n";
    let write_to_old = |writes: &[Value]| writes.iter().for_each(|write| old.write(write));
    let compare = || {
        let (code, said) = script.run(&["compare", "--reader", "ann", "--reader", "zoe", "--reader", "fan-1"]);
        assert_eq!(count(&said, "readers"), 3, "{said}");
        (code, count(&said, "differences"), said)
    };

    // The application writes to both from before the import on.
    let early = [json!({"publish": old.post(1)}), json!({"follow": ["zoe", "star"]})];
    write_to_old(&early);
    let written = both.write(&early.iter().map(line).collect::<String>());
    assert_eq!(count(&written, "written"), 2, "{written}");
    let (code, said) = script.run(&["import"]);
    assert!(code == 0 && count(&said, "follows added") > 10_000, "{said}");
    let (code, said) = script.run(&["compare", "--readers", "500"]);
    assert!(code == 0 && count(&said, "readers") == 500, "{said}");

    let [edited, deleted] = old.two_of_bob().map(|id| id.to_string());
    let mut writes: Vec<Value> = (2..40).map(|nth| json!({"publish": old.post(nth)})).collect();
    writes.extend([
        json!({"edit": [edited, {"text": "edited"}]}),
        json!({"delete": deleted}),
        json!({"unfollow": ["ann", "cas"]}),
    ]);
    write_to_old(&writes);
    let written = both.write(&writes.iter().map(line).collect::<String>());
    assert_eq!(count(&written, "written"), 41, "{written}");
    let (code, _, said) = compare();
    assert_eq!(code, 0, "{said}");

    // Two writes are lost: Tidewire cannot be reached for one, and the application forgets the other. Both ann and zoe follow bob.
    let [lost, forgotten] = [40, 41].map(|nth| json!({"publish": old.post(nth)}));
    write_to_old(&[lost.clone(), forgotten]);
    let (code, said) = both.run_with(&["write", "--server", "http://127.0.0.1:9"], &line(&lost));
    assert!(code == 0 && count(&said, "not written to Tidewire: replay") == 1, "{said}");
    let (code, before, said) = compare();
    assert!(code == 1 && before >= 2 && said.contains("of bob is missing"), "{said}");
    // The log has what could not be sent.
    let (code, said) = both.run(&["replay"]);
    assert!(code == 0 && count(&said, "written") == 44, "{said}");
    let (code, after, said) = compare();
    assert_eq!((code, 2 * after), (1, before), "{said}");
    // The old database has what was never sent.
    let (code, said) = script.run(&["import"]);
    assert!(code == 0 && count(&said, "posts published") == 1, "{said}");
    let (code, _, said) = compare();
    assert_eq!(code, 0, "{said}");
}

#[test]
#[ignore = "needs Redis and python3"]
fn dual_writes_to_redis_and_tidewire_are_equal_and_losses_are_detected() {
    let redis = Redis::start();
    redis::filled(&redis);
    // A hash that is no post.
    redis.ask("DEL post:600\n");
    check_writing_to_both(&redis);
}

#[test]
#[ignore = "needs MariaDB and python3"]
fn dual_writes_to_tables_and_tidewire_are_equal_and_losses_are_detected() {
    let database = MariaDb::start();
    database.ask(sql::TABLES);
    database.ask(sql::ROWS);
    check_writing_to_both(&database);
}

#[test]
#[ignore = "needs python3"]
fn an_invalid_write_is_named_with_its_line() {
    let server = Server::start(EngineConfig::default());
    let directory = tempfile::tempdir().unwrap();
    let both = Script::both(&directory.path().join("writes.jsonl"), &server);
    let cases = [
        (
            "{\"follow\": [\"ann\", \"bob\"]}\n{\"follow\": [\"ann\"]}",
            "standard input:2: not a write: {\"follow\": [\"ann\"]}",
        ),
        ("{\"publish\": {\"author\": \"ann\"}}", "standard input:1: not a write: "),
        ("{\"delete\": \"x\"}", "standard input:1: invalid literal"),
        ("{", "standard input:1: Expecting property name"),
    ];
    for (input, why) in cases {
        let (code, said) = both.run_with(&["write"], input);
        assert!(code == 1 && said.contains(why), "{input}: {said}");
    }
    // What the server refuses is in the log, and named again.
    let said = both.write("{\"follow\": [\"ann\", \"ann\"]}\n");
    assert!(said.contains("standard input:1: 422 ") && said.contains("self_follow"), "{said}");
    let (code, said) = both.run(&["replay"]);
    assert!(code == 1 && count(&said, "refused") == 1 && said.contains("writes.jsonl:2: 422 self_follow"), "{said}");
}

//! From tables of MariaDB.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::eventually;
use tidewire::config::EngineConfig;

use super::{Database, Script, ask, feed};
use crate::server::Server;
use testkit::test_servers::program;

/// The tables for which the queries of the script are written, as the guide has them.
pub const TABLES: &str = "
CREATE TABLE posts (
    id BIGINT UNSIGNED PRIMARY KEY, author VARCHAR(64) NOT NULL, text TEXT NOT NULL, created_at DATETIME(6) NOT NULL,
    reply_to BIGINT UNSIGNED, repost_of BIGINT UNSIGNED, deleted_at DATETIME(6), KEY (author, created_at)
);
CREATE TABLE follows (follower VARCHAR(64), followee VARCHAR(64), PRIMARY KEY (follower, followee));
CREATE TABLE mutes (user VARCHAR(64), muted VARCHAR(64), PRIMARY KEY (user, muted));
";

/// Bee follows so many that a page of the table ends among them. Ann and 10,500 others follow star; ann also follows bob, cas and herself, and
/// has muted eve, whom she follows. Of 12,000 posts, which are more than two pages of the table, four at a time have the same instant; each
/// hundredth is deleted, and some of bob are long.
pub const ROWS: &str = r#"
INSERT INTO follows SELECT CONCAT('fan-', seq), 'star' FROM seq_1_to_10500;
INSERT INTO follows SELECT 'bee', CONCAT('source-', seq) FROM seq_1_to_4998;
INSERT INTO follows VALUES ('ann', 'ann'), ('ann', 'bob'), ('ann', 'cas'), ('ann', 'eve'), ('ann', 'star'), ('zoe', 'bob');
INSERT INTO mutes VALUES ('ann', 'eve');
INSERT INTO posts (id, author, text, created_at, deleted_at)
    SELECT 18446744073709000000 + seq, ELT(1 + seq % 4, 'bob', 'cas', 'eve', 'star'),
        IF(seq % 200 = 4, REPEAT('long ', 1000), 'say "hi"\n	to ä😀 \\ it''s'),
        TIMESTAMPADD(MICROSECOND, seq DIV 4, '2024-02-29 23:59:59.990000'), IF(seq % 100 = 0, NOW(), NULL)
    FROM seq_1_to_12000;
INSERT INTO posts (id, author, text, created_at, reply_to, repost_of) VALUES
    (1, 'ann', 'mine', '2024-03-01 00:00:00.5', NULL, NULL),
    (2, 'cas', 'look', '2024-03-01 00:00:01', NULL, 18446744073709000004),
    (3, 'bob', 'look', '2024-03-01 00:00:02', NULL, 18446744073709000004),
    (4, 'cas', 'answer', '2024-03-01 00:00:02', 1, NULL);
"#;

/// What ann sees of the small ids: both reposts are one entry.
const NEWEST_OF_ANN: [u64; 3] = [4, BASE + 4, 1];

pub const BASE: u64 = 18_446_744_073_709_000_000;

/// A MariaDB server on a socket in a directory of its own.
pub struct MariaDb {
    database: Database,
    client: String,
    directory: PathBuf,
}

impl MariaDb {
    pub fn start() -> Self {
        let [server, install, client] =
            ["mariadbd", "mariadb-install-db", "mariadb"].map(|name| program(name, "mariadb-server"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let data = format!("--datadir={}", path.join("data").display());
        std::fs::create_dir(path.join("temporary")).unwrap();
        let temporary = format!("--tmpdir={}", path.join("temporary").display());
        // Root has to say that it wants to run it.
        let user = ["--user=root".to_owned()].into_iter().filter(|_| is_root());
        let common: Vec<String> =
            ["--no-defaults".to_owned(), data, temporary, "--innodb-log-file-size=16M".to_owned()]
                .into_iter()
                .chain(user)
                .collect();
        let installed = Command::new(install)
            .args(&common)
            .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"])
            .output()
            .unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let socket = path.join("socket");
        let child = Command::new(server)
            .args(&common)
            .args(["--skip-networking", "--innodb-flush-log-at-trx-commit=0"])
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", path.join("pid").display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let client = format!("{} --no-defaults --user=root --socket={}", client.display(), socket.display());
        let mut database = Self { database: Database { child, _directory: directory }, client, directory: path };
        eventually("the server answers", || {
            database.command().arg("--execute=SELECT 1").output().is_ok_and(|said| said.status.success())
        });
        database.ask("CREATE DATABASE shop CHARACTER SET utf8mb4;");
        database.client += " shop";
        database
    }

    fn command(&self) -> Command {
        assert!(self.database.child.id() > 0);
        let mut words = self.client.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("--default-character-set=utf8mb4");
        command
    }

    pub fn ask(&self, sql: &str) {
        ask(&mut self.command(), sql);
    }

    pub fn script(&self, server: &Server) -> Script {
        let place = self.directory.join("place");
        Script::new("from_sql.py", &["--sql", &self.client, "--place", place.to_str().unwrap()], server)
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Returns what ann is to see, newest first: of posts that share a time, the one with the greater id.
fn expected_of_ann() -> Vec<u64> {
    let is_shown = |seq: &u64| !seq.is_multiple_of(100) && seq % 4 != 2 && *seq != 4;
    NEWEST_OF_ANN.into_iter().chain((1..=12_000).rev().filter(is_shown).map(|seq| BASE + seq)).collect()
}

#[test]
#[ignore = "needs MariaDB and python3"]
fn feeds_of_tables_are_equal_after_the_import() {
    let database = MariaDb::start();
    database.ask(TABLES);
    database.ask(ROWS);
    let server = Server::start(EngineConfig::default());
    let script = database.script(&server);
    let imported = ["15,503 follows added", "1 follows of oneself, left out", "1 mutes", "11,884 posts published"];
    script.check(&["import"], 0, &imported);
    assert!(server.get("/v1/users/star").json()["celebrity"].as_bool().unwrap());
    assert_eq!(feed(&server, "ann"), expected_of_ann());
    let again = [
        "15,503 follows that were there already",
        "1 follows of oneself, left out",
        "1 mutes",
        "11,884 posts that were there already",
    ];
    script.check(&["import"], 0, &again);
    assert_eq!(feed(&server, "ann"), expected_of_ann());
    script.check(
        &["compare", "--reader", "ann", "--depth", "20000"],
        0,
        &["1 readers", "8,882 entries that are equal"],
    );
    // Authors, of whom cas has also reposted and answered.
    let (code, said) = script.run(&["compare", "--reader", "bob", "--reader", "cas", "--depth", "20000"]);
    assert!(code == 0 && said.contains("2  readers"), "{said}");
    let (code, said) = script.run(&["compare", "--readers", "20"]);
    assert!(code == 0 && said.contains("20  readers"), "{said}");
}

#[test]
#[ignore = "needs MariaDB and python3"]
fn an_interrupted_import_continues_from_its_position() {
    let database = MariaDb::start();
    database.ask(TABLES);
    database.ask(ROWS);
    let server = Server::start(EngineConfig::default());
    // Five queries for follows, two for mutes, one for posts; the next one fails.
    let (client, asked) = (database.directory.join("client.sh"), database.directory.join("asked"));
    let failing = format!("echo >>{0}; [ $(wc -l <{0}) -le 8 ] && exec {1} \"$@\"", asked.display(), database.client);
    std::fs::write(&client, failing).unwrap();
    let place = database.directory.join("place");
    let script =
        |client: &str| Script::new("from_sql.py", &["--sql", client, "--place", place.to_str().unwrap()], &server);
    let through_client = script(&format!("sh {}", client.display()));
    let copied = [
        ("15,503", "follows added"),
        ("1", "follows of oneself, left out"),
        ("1", "mutes"),
        ("4,951", "posts published"),
    ];
    let (code, said) = through_client.run(&["import"]);
    let failure = said.lines().last().unwrap();
    assert!(code == 1 && copied.iter().all(|(count, what)| said.contains(&format!("{count}  {what}"))), "{said}");
    assert!(failure.starts_with("sh ended with 1, asked for: SELECT JSON_OBJECT('place'"), "{said}");
    assert!(std::fs::read_to_string(&place).unwrap().contains("posts"));
    // The place is of this server and this database.
    let (code, said) = script(&database.client).run(&["import"]);
    assert!(code == 1 && said.contains("is of an interrupted import with --sql 'sh "), "{said}");
    let (code, said) = script(&format!("sh {}", client.display())).run(&["import", "--server", "http://127.0.0.1:9"]);
    assert!(code == 1 && said.contains("is of an interrupted import with --server 'http://"), "{said}");
    // Follows are not copied again, nor the first page of posts.
    std::fs::write(&client, format!("exec {} \"$@\"", database.client)).unwrap();
    through_client.check(&["import"], 0, &["6,933 posts published"]);
    assert!(!place.exists());
    assert_eq!(feed(&server, "ann"), expected_of_ann());
}

#[test]
#[ignore = "needs MariaDB and python3"]
fn differences_from_tables_are_named_and_repaired_by_another_import() {
    let database = MariaDb::start();
    database.ask(TABLES);
    database.ask(
        "INSERT INTO follows VALUES ('ann', 'bob'), ('ann', 'cas');
         INSERT INTO posts (id, author, text, created_at) SELECT 10 * seq, IF(seq < 8, 'bob', 'cas'), 'one',
            TIMESTAMPADD(SECOND, seq, '2024-01-01') FROM seq_1_to_9;",
    );
    let server = Server::start(EngineConfig::default());
    let script = database.script(&server);
    script.check(&["import"], 0, &["2 follows added", "9 posts published"]);
    script.check(&["compare"], 0, &["3 readers", "18 entries that are equal"]);

    server
        .post("/v1/posts", &json!({"author": "bob", "body": 1, "id": "75", "published_at": "2024-01-01T00:00:07.5Z"}));
    database.ask(
        "UPDATE posts SET text = 'two' WHERE id = 60; UPDATE posts SET deleted_at = NOW() WHERE id = 50;
         DELETE FROM posts WHERE id = 40; DELETE FROM follows WHERE followee = 'cas';",
    );
    script.check(
        &["compare"],
        1,
        &[
            "3 readers",
            "10 entries that are equal",
            "10 differences",
            "differences: feed of bob: 75 of bob was not there before",
            "differences: feed of bob: 60: body was {'text': 'two'}, is {'text': 'one'}",
            "differences: feed of bob: 50 of bob was not there before",
            "differences: feed of bob: 40 of bob was not there before",
            "differences: feed of ann: 90 of cas was not there before",
            "differences: feed of ann: 80 of cas was not there before",
            "differences: feed of ann: 75 of bob was not there before",
            "differences: feed of ann: 60: body was {'text': 'two'}, is {'text': 'one'}",
            "differences: feed of ann: 50 of bob was not there before",
            "differences: feed of ann: 40 of bob was not there before",
        ],
    );
    let mended = [
        "1 follows that were there already",
        "6 posts that were there already",
        "1 posts edited",
        "1 follows removed",
        "3 posts deleted",
    ];
    script.check(&["import", "--prune"], 0, &mended);
    script.check(&["compare"], 0, &["3 readers", "12 entries that are equal"]);

    // A table that was emptied is not the wish to remove all.
    database.ask("DELETE FROM follows;");
    let (code, said) = script.run(&["import", "--prune"]);
    assert!(code == 1 && said.contains("nothing was pruned: 1 of 1 follows of Tidewire"), "{said}");
    assert_eq!(feed(&server, "ann").len(), 5);
    let (code, said) = script.run(&["import", "--prune", "--prune-most", "follows"]);
    assert!(code == 0 && said.contains("1  follows removed"), "{said}");
}

#[test]
#[ignore = "needs MariaDB and python3"]
fn posts_published_in_both_during_a_pruning_import_are_kept() {
    let database = MariaDb::start();
    database.ask(TABLES);
    database.ask("INSERT INTO follows VALUES ('ann', 'bob'), ('bob', 'cas');");
    let server = Server::start(EngineConfig::default());
    // With each query, the application publishes a post: first there, then here. Ids fall, so that the pages of a table end.
    let (client, asked) = (database.directory.join("client.sh"), database.directory.join("asked"));
    let publish = r#"import json, sys, urllib.request
post = {"author": "bob", "body": {"text": "x"}, "id": sys.argv[2], "published_at": "2024-01-01T00:00:00Z"}
kind = {"Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(sys.argv[1], json.dumps(post).encode(), kind)).close()"#;
    let (both, posts) = (database.directory.join("publish.py"), server.url("/v1/posts"));
    std::fs::write(&both, publish).unwrap();
    let publishing = format!(
        "echo >>{asked}; id=$((1000 - $(wc -l <{asked})))\n\
         {client} -e \"INSERT INTO posts (id, author, text, created_at) VALUES ($id, 'bob', 'x', '2024-01-01')\" </dev/null || exit\n\
         python3 {both} {posts} $id </dev/null || exit\n\
         exec {client} \"$@\"",
        asked = asked.display(),
        client = database.client,
        both = both.display(),
    );
    std::fs::write(&client, publishing).unwrap();
    let place = database.directory.join("place");
    let command = format!("sh {}", client.display());
    let script = Script::new("from_sql.py", &["--sql", &command, "--place", place.to_str().unwrap()], &server);
    let (code, said) = script.run(&["import", "--prune"]);
    let published = std::fs::read_to_string(&asked).unwrap().lines().count() as u64;
    assert!(code == 0 && published > 8 && !said.contains("deleted"), "{published} {said}");
    assert_eq!(feed(&server, "ann"), (1000 - published..1000).rev().collect::<Vec<_>>());
}

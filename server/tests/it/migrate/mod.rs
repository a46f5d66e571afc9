//! The scripts of `examples/migrate`: real databases are imported, and the feeds before and after are compared.

mod both;
mod hosted;
mod redis;
mod sql;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tidewire::config::EngineConfig;

use crate::access::tokens::access;
use crate::server::Server;
use testkit::PageCount;
use testkit::test_servers::program;

/// A database server that ends with the test.
struct Database {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Drop for Database {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Runs a command line client with this input. Returns what it printed.
fn ask(client: &mut Command, input: &str) -> String {
    let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{client:?}");
    String::from_utf8(output.stdout).unwrap()
}

const LINES_PRINTED_MAX: usize = 20;

/// A script with the old database that it reads.
struct Script {
    command: Vec<String>,
    server: String,
}

impl Script {
    fn new(name: &str, options: &[&str], server: &Server) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/migrate").join(name);
        let path = path.to_str().unwrap().to_owned();
        let command = [path].into_iter().chain(options.iter().map(|&option| option.to_owned())).collect();
        Self { command, server: server.url("") }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("python3", "python3"));
        // Without files of compiled modules in the repository.
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(&self.command)
            .args(["--server", &self.server])
            .args(arguments);
        command
    }

    /// Returns the script by which an application writes to both, with this log.
    fn both(log: &Path, server: &Server) -> Self {
        Self::new("both.py", &["--log", log.to_str().unwrap()], server)
    }

    /// Runs it. Returns its exit code and what it printed, of which the test prints the beginning.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        self.run_with(arguments, "")
    }

    /// Runs it with this input, which has to fit into a pipe.
    #[allow(clippy::print_stdout, reason = "the reports of the scripts are what these tests show")]
    fn run_with(&self, arguments: &[&str], input: &str) -> (i32, String) {
        let mut command = self.command(arguments);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let name = Path::new(&self.command[0]).file_name().unwrap().to_string_lossy();
        let first: Vec<&str> = said.lines().take(LINES_PRINTED_MAX).collect();
        println!("$ {name} {}\n{}\n", arguments.join(" "), first.join("\n"));
        (output.status.code().unwrap(), said)
    }

    /// Runs `both.py write`. Returns what it printed.
    fn write(&self, writes: &str) -> String {
        let (code, said) = self.run_with(&["write"], writes);
        assert_eq!(code, 0, "{said}");
        said
    }

    /// Runs it, and expects exactly these lines, whatever the spaces between words.
    fn check(&self, arguments: &[&str], code: i32, lines: &[&str]) {
        let (ended, said) = self.run(arguments);
        let mut found: Vec<String> =
            said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        found.sort();
        let mut expected = lines.to_vec();
        expected.sort_unstable();
        assert_eq!((ended, found), (code, expected.into_iter().map(str::to_owned).collect()), "{arguments:?}\n{said}");
    }
}

#[test]
#[ignore = "needs python3 and redis-cli"]
fn a_failing_command_reports_its_cause() {
    let server = Server::guarded(EngineConfig::default(), access());
    // A client that finds nothing in the old database.
    let script = Script::new("from_sql.py", &["--sql", "true"], &server);
    let (other, _listener) = another_web_server();
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["compare", "--server", "localhost:8080"],
            2,
            "argument --server: 'localhost:8080' is not a URL like http://",
        ),
        (
            &["compare", "--server", "http://127.0.0.1:80800"],
            2,
            "argument --server: 'http://127.0.0.1:80800' is not a URL",
        ),
        (&["compare", "--depth", "0"], 2, "argument --depth: 0 entries are nothing to compare"),
        (&["compare", "--readers", "-1"], 2, "argument --readers: '-1' is not a whole number"),
        (&["import", "--prune-most", "posts"], 1, "--prune-most does nothing without --prune"),
        (&["import", "--sql", "no-such-client"], 1, "--sql 'no-such-client --batch"),
        (&["import", "--sql", "false"], 1, "false ended with 1, asked for: SELECT JSON_OBJECT('place'"),
        (&["import", "--sql", "echo hello"], 1, "a row is not a JSON document: 'hello --batch"),
        (&["import"], 1, "nothing was found to import: no follow, no mute, no post. Is it the right database"),
        (&["compare"], 1, "no reader was found to compare. Is it the right database"),
        (&["compare", "--reader", "ann"], 1, "refused GET /v1/users/ann/feed?limit=100: 401 "),
        (
            &["compare", "--reader", "ann", "--key", "wrong"],
            1,
            ": TIDEWIRE_KEY has to be a server key with the scope all",
        ),
        (
            &["compare", "--reader", "ann", "--server", &other],
            1,
            " is not a Tidewire server: it answered GET /v1/users/ann/feed",
        ),
    ];
    let redis = Script::new("from_redis.py", &[], &server);
    let client = format!("{} -s /no/such/socket", program("redis-cli", "redis-tools").display());
    let of_redis: &[(&[&str], i32, &str)] = &[
        (&["import", "--redis", "no-such-client"], 1, "--redis 'no-such-client' cannot be run: "),
        (&["import", "--redis", &client], 1, " -s /no/such/socket -2 --json PING ended with 1"),
        (&["import", "--redis", "true"], 1, "true -2 --json ended before it answered \"SCAN\""),
    ];
    let cases = cases.iter().map(|case| (&script, case)).chain(of_redis.iter().map(|case| (&redis, case)));
    for (script, (arguments, code, why)) in cases {
        let (ended, said) = script.run(arguments);
        assert!(ended == *code && said.lines().last().unwrap().contains(why), "{arguments:?}: {ended} {said}");
        assert!(!said.contains("Traceback"), "{arguments:?}: {said}");
    }
}

/// Returns the URL of a server that answers every request with a page for people.
fn another_web_server() -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(socket.read(&mut request).unwrap() > 0);
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n<html>Hi</html").unwrap();
    });
    (url, answering)
}

/// A table of feeds that are wrong in one way each: the comparison itself, without servers.
#[test]
#[ignore = "needs python3"]
fn the_comparison_names_every_difference_of_a_feed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(program("python3", "python3"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", root.join("../examples/migrate"))
        .arg(root.join("tests/it/migrate/comparison.py"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("Ran 3 tests"), "{said}");
}

/// Returns a count of a report, zero without it.
fn count(said: &str, what: &str) -> usize {
    let counts = said.lines().filter_map(|line| line.trim_start().split_once("  "));
    let found = counts.filter(|(_, name)| *name == what).map(|(number, _)| number.replace(',', "").parse::<usize>());
    found.map(Result::unwrap).sum()
}

/// Returns the ids of a whole feed, newest first.
fn feed(server: &Server, reader: &str) -> Vec<u64> {
    let (mut ids, mut before) = (Vec::new(), String::new());
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let page = server.get(&format!("/v1/users/{reader}/feed?limit=100{before}")).json();
        let items = page["items"].as_array().unwrap();
        ids.extend(items.iter().map(|item| item["post"]["id"].as_str().unwrap().parse::<u64>().unwrap()));
        match &page["next"] {
            Value::String(next) => before = format!("&before={next}"),
            _ => return ids,
        }
    }
}

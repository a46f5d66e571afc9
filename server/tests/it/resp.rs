//! The Redis protocol: commands are answered as the requests of HTTP that they stand for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::auth::keys::Keys;
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, METRICS_KEY, READING_KEY, SERVER_KEY};
use crate::server::Server;

/// A client of the Redis protocol.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(server: &Server) -> Self {
        Self(BufReader::new(testkit::connect(server.resp())))
    }

    fn send(&mut self, words: &[&str]) {
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
    }

    /// The next reply, as JSON; errors and statuses with their sign.
    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, text) = line.trim_end().split_at_checked(1).unwrap_or_default();
        let count = || text.parse::<usize>().unwrap();
        match kind {
            "+" | "-" => json!(line.trim_end()),
            ":" => json!(text.parse::<i64>().unwrap()),
            "#" => json!(text == "t"),
            "_" => Value::Null,
            "$" if text == "-1" => Value::Null,
            "$" => {
                let mut bytes = vec![0; count() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                json!(str::from_utf8(&bytes[..count()]).unwrap())
            }
            "*" => (0..count()).map(|_| self.reply()).collect(),
            "%" => (0..count()).map(|_| (self.reply().as_str().unwrap().to_owned(), self.reply())).collect(),
            _ => json!("the connection ended"),
        }
    }

    fn ask(&mut self, words: &[&str]) -> Value {
        self.send(words);
        self.reply()
    }

    /// The JSON in a reply.
    fn json(&mut self, words: &[&str]) -> Value {
        let reply = self.ask(words);
        serde_json::from_str(reply.as_str().unwrap()).unwrap_or_else(|_| panic!("{words:?}: {reply}"))
    }
}

fn server() -> Server {
    Server::start(EngineConfig::default())
}

#[test]
fn a_page_is_the_json_of_http() {
    let server = server();
    let mut client = Client::of(&server);
    assert_eq!(client.ask(&["FEED.FOLLOW", "ann", "bob"]), r#"{"created":true}"#);
    let post = client.json(&["FEED.POST", "bob", r#"{"text":"hi"}"#, "TAGS", "1", "rust", "WAIT"]);
    assert_eq!(
        (&post["author"], &post["body"], &post["tags"]),
        (&json!("bob"), &json!({"text": "hi"}), &json!(["rust"]))
    );
    let id = post["id"].as_str().unwrap();
    for (command, path) in [
        (&["FEED.GET", "ann"][..], "/v1/users/ann/feed"),
        (&["feed.get", "ann", "count", "1", "ids"], "/v1/users/ann/feed?limit=1&fields=ids"),
        (&["FEED.OWN", "tag:rust"], "/v1/users/tag:rust/posts"),
        (&["FEED.POSTS", id, "7"], &format!("/v1/posts?ids={id},7")),
        (&["FEED.UNREAD", "ann"], "/v1/users/ann/marker"),
        (&["FEED.EXPLAIN", "ann", id], &format!("/v1/users/ann/feed/explain/{id}")),
    ] {
        assert_eq!(client.ask(command), server.get(path).text, "{command:?}");
    }
    let page = client.json(&["FEED.GET", "ann"]);
    assert_eq!(page["items"][0]["post"], post);
    let many = client.json(&["FEED.MGET", "2", "ann", "bob", "COUNT", "1"]);
    assert_eq!(many["feeds"][0]["items"][0]["post"], post);
    let array = client.ask(&["FEED.GET", "ann", "AS", "ARRAY"]);
    assert_eq!(
        (&array[0], &array[1][0][2], &array[1][0][3][0]),
        (&json!("items"), &json!("post"), &json!("author")),
        "{array}"
    );
    assert_eq!(client.json(&["FEED.MARK", "ann", page["newest"].as_str().unwrap()])["unread"], 0);
    assert_eq!(client.json(&["FEED.EDIT", id, "BODY", "1"])["body"], 1);
    assert_eq!(client.ask(&["FEED.DEL", id]), "+OK");
    assert_eq!(client.json(&["FEED.GET", "ann"])["items"], json!([]));
    for (command, reply) in [
        ("FEED.MUTE", r#"{"created":true}"#),
        ("FEED.UNMUTE", "+OK"),
        ("FEED.BLOCK", r#"{"created":true}"#),
        ("FEED.UNBLOCK", "+OK"),
        ("FEED.UNFOLLOW", "+OK"),
    ] {
        assert_eq!(client.ask(&[command, "ann", "bob"]), reply, "{command}");
    }
}

#[test]
fn replies_of_a_pipeline_come_in_order() {
    let server = server();
    let mut client = Client::of(&server);
    for nth in 0..200 {
        client.send(&["FEED.POST", "bob", &nth.to_string()]);
        client.send(&["PING", &nth.to_string()]);
    }
    for nth in 0..200 {
        let post: Value = serde_json::from_str(client.reply().as_str().unwrap()).unwrap();
        assert_eq!((&post["body"], client.reply()), (&json!(nth), json!(nth.to_string())));
    }
}

#[test]
fn refusals_have_the_codes_of_http() {
    let server = server();
    let mut client = Client::of(&server);
    for (command, refused) in [
        (&["FEED.GET", "ann", "COUNT", "101"][..], "-INVALID_PARAMETER "),
        (&["FEED.GET", "a b"], "-INVALID_PATH "),
        (&["FEED.GET"], "-ERR user is missing; syntax: FEED.GET user "),
        (&["FEED.DEL", "x"], "-INVALID_PATH "),
        (&["FEED.POST", "tag:a", "1"], "-NOT_A_USER "),
        (&["FEED.POST", "ann", "{"], "-ERR the body is not JSON"),
        (&["FEED.EDIT", "7", "HIDE"], "-UNKNOWN_POST "),
        (&["FEED.POSTS", "1,2"], "-ERR unknown option \"1,2\""),
        (&["GET", "ann"], "-ERR unknown command 'GET': "),
        (&["MULTI"], "-ERR unknown command 'MULTI': transactions"),
        (&["NOTHING"], "-ERR unknown command 'NOTHING'"),
        (&["SELECT", "1"], "-ERR there is only database 0"),
    ] {
        let reply = client.ask(command);
        assert!(reply.as_str().is_some_and(|reply| reply.starts_with(refused)), "{command:?}: {reply}");
    }
    assert_eq!(client.ask(&["PING"]), "+PONG", "the connection goes on");
}

#[test]
fn clients_get_to_know_the_server_in_both_versions() {
    let server = server();
    let mut client = Client::of(&server);
    assert_eq!(client.ask(&["HELLO"])[5], 2);
    let hello = client.ask(&["HELLO", "3", "SETNAME", "app"]);
    assert_eq!((&hello["server"], &hello["proto"], &hello["modules"]), (&json!("tidewire"), &json!(3), &json!([])));
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), "app");
    assert_eq!(client.ask(&["CLIENT", "SETINFO", "LIB-NAME", "x"]), "+OK");
    assert!(client.ask(&["COMMAND", "COUNT"]).as_u64().is_some_and(|count| count > 10));
    assert_eq!(
        client.ask(&["COMMAND", "INFO", "feed.get", "nothing"]),
        json!([["feed.get", -2, ["+readonly"], 0, 0, 0], null])
    );
    assert!(client.ask(&["INFO"]).as_str().unwrap().contains("loading:0"));
    assert_eq!(client.ask(&["HELLO", "4"]), "-NOPROTO unsupported protocol version");
    assert_eq!(client.ask(&["RESET"]), "+RESET");
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), Value::Null);
    assert_eq!((client.ask(&["QUIT"]), client.reply()), (json!("+OK"), json!("the connection ended")));
}

#[test]
fn only_a_server_key_is_accepted() {
    let server = Server::guarded(EngineConfig::default(), tokens::access());
    let mut client = Client::of(&server);
    let starts = |reply: Value, start: &str| assert!(reply.as_str().unwrap().starts_with(start), "{reply}");
    starts(client.ask(&["FEED.GET", "ann"]), "-NOAUTH ");
    for (refused, code) in
        [("wrong", "-WRONGPASS "), (&tokens::token("ann"), "-FORBIDDEN "), (METRICS_KEY, "-FORBIDDEN ")]
    {
        starts(client.ask(&["AUTH", refused]), code);
        starts(client.ask(&["HELLO", "3", "SETNAME", "app", "AUTH", "default", refused]), code);
    }
    assert_eq!(
        (&client.ask(&["HELLO"])[5], client.ask(&["CLIENT", "GETNAME"])),
        (&json!(2), Value::Null),
        "nothing changed"
    );
    starts(client.ask(&["FEED.GET", "ann"]), "-NOAUTH ");
    assert_eq!(client.ask(&["HELLO", "3", "AUTH", "default", SERVER_KEY])["proto"], 3);
    assert_eq!(client.json(&["FEED.GET", "ann"])["items"], json!([]));
    assert_eq!(client.ask(&["RESET"]), "+RESET");
    starts(client.ask(&["FEED.GET", "ann"]), "-NOAUTH ");
    assert_eq!(client.ask(&["AUTH", READING_KEY]), "+OK");
    assert_eq!(client.json(&["FEED.GET", "ann"])["items"], json!([]));
    starts(client.ask(&["FEED.FOLLOW", "ann", "bob"]), "-READ_ONLY ");
    assert_eq!(client.ask(&["AUTH", "any", SERVER_KEY]), "+OK");
    assert_eq!(client.json(&["FEED.FOLLOW", "ann", "bob"]), json!({"created": true}));
}

#[test]
fn a_revoked_key_ends_the_authentication_of_a_connection() {
    let engine = Engine::start(EngineConfig::default());
    let access = Arc::new(tokens::access());
    let state = HttpState { access: Arc::clone(&access), ..HttpState::from(engine.clone()) };
    let server = Server::serving(state, engine);
    let mut client = Client::of(&server);
    assert_eq!(client.ask(&["AUTH", SERVER_KEY]), "+OK");
    access.replace(Keys::default());
    for _ in 0..2 {
        assert_eq!(client.ask(&["FEED.GET", "ann"]), "-NOAUTH send a valid server key by AUTH");
    }
    client.send(&["PING", &"x".repeat(2_000)]);
    let reply = client.reply();
    assert!(
        reply.as_str().unwrap().starts_with("-ERR Protocol error: a command may have at most 1024 bytes"),
        "{reply}"
    );
}

#[test]
fn other_protocols_and_malformed_commands_end_the_connection() {
    let server = server();
    for (sent, expected) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", ""),
        ("POST /v1/posts HTTP/1.1\r\n\r\n", ""),
        ("\u{16}\u{3}\u{1}\u{2}", "-ERR Protocol error: this port speaks the Redis protocol without TLS\r\n"),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        ("*100000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1\r\n$4\r\nPING\r\n*1\r\n$-5\r\n", "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"),
    ] {
        let mut socket = testkit::connect(server.resp());
        socket.write_all(sent.as_bytes()).unwrap();
        let mut received = String::new();
        socket.read_to_string(&mut received).unwrap();
        assert_eq!(received, expected, "{sent:?}");
    }
}

#[test]
fn a_command_may_arrive_byte_by_byte() {
    let server = server();
    let mut client = Client::of(&server);
    for byte in b"*2\r\n$8\r\nFEED.GET\r\n$3\r\nann\r\nPING\r\n" {
        client.0.get_mut().write_all(&[*byte]).unwrap();
    }
    assert!(client.reply().as_str().unwrap().starts_with(r#"{"items":[]"#));
    assert_eq!(client.reply(), "+PONG");
}

#[test]
fn a_client_that_has_closed_its_sending_side_gets_all_replies() {
    let server = server();
    let mut socket = testkit::connect(server.resp());
    let commands = "*3\r\n$9\r\nFEED.POST\r\n$3\r\nbob\r\n$1\r\n1\r\n".repeat(100);
    socket.write_all(commands.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut received = String::new();
    socket.read_to_string(&mut received).unwrap();
    assert_eq!(received.matches(r#""author":"bob""#).count(), 100);
}

#[test]
fn an_echo_has_the_same_bytes() {
    let server = server();
    let mut socket = testkit::connect(server.resp());
    let sent = b"*2\r\n$4\r\nECHO\r\n$3\r\n\xff\x00\n\r\n";
    socket.write_all(sent).unwrap();
    let mut received = [0; 9];
    socket.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"$3\r\n\xff\x00\n\r\n");
}

/// The program of Redis itself, if it is installed.
#[test]
#[ignore = "needs redis-cli"]
fn redis_cli_reads_a_feed() {
    let server = server();
    let port = server.resp().port().to_string();
    let cli = |words: &[&str]| {
        let output = Command::new("redis-cli").args(["-3", "-p", &port]).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    cli(&["FEED.FOLLOW", "ann", "bob"]);
    let post = cli(&["FEED.POST", "bob", "\"hello\"", "WAIT"]);
    assert!(cli(&["FEED.GET", "ann"]).contains(post.trim()), "{post}");
    assert!(cli(&["COMMAND", "DOCS"]).contains("FEED.GET user"));
}

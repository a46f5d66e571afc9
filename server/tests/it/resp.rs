//! The Redis protocol: commands are answered as the requests of HTTP that they stand for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::limits::REQUEST_BYTES_MAX;
use tidewire_server::http::admission::{Admission, AdmissionLimits};
use tidewire_server::http::auth::keys::Keys;
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, METRICS_KEY, READING_KEY, SERVER_KEY};
use crate::server::Server;

/// A client of the Redis protocol.
struct Client {
    socket: BufReader<TcpStream>,
    /// The number of push messages of RESP3.
    pushes: usize,
}

impl Client {
    fn of(server: &Server) -> Self {
        Self { socket: BufReader::new(testkit::connect(server.resp())), pushes: 0 }
    }

    fn send(&mut self, words: &[&str]) {
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.socket.get_mut().write_all(command.as_bytes()).unwrap();
    }

    /// The next reply, as JSON; errors and statuses with their sign.
    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        let (kind, text) = line.trim_end().split_at_checked(1).unwrap_or_default();
        let count = || text.parse::<usize>().unwrap();
        self.pushes += usize::from(kind == ">");
        match kind {
            "+" | "-" => json!(line.trim_end()),
            ":" => json!(text.parse::<i64>().unwrap()),
            "#" => json!(text == "t"),
            "_" => Value::Null,
            "$" if text == "-1" => Value::Null,
            "$" => {
                let mut bytes = vec![0; count() + 2];
                self.socket.read_exact(&mut bytes).unwrap();
                json!(str::from_utf8(&bytes[..count()]).unwrap())
            }
            "*" | ">" => (0..count()).map(|_| self.reply()).collect(),
            "%" => (0..count()).map(|_| (self.reply().as_str().unwrap().to_owned(), self.reply())).collect(),
            _ => json!("the connection ended"),
        }
    }

    fn ask(&mut self, words: &[&str]) -> Value {
        self.send(words);
        self.reply()
    }

    /// The next message of a channel.
    fn message(&mut self, channel: &str) -> Value {
        let message = self.reply();
        assert_eq!((&message[0], &message[1]), (&json!("message"), &json!(channel)), "{message}");
        serde_json::from_str(message[2].as_str().unwrap()).unwrap()
    }

    /// Subscribes to a channel, and returns the first message.
    fn subscribe(&mut self, channel: &str) -> Value {
        assert_eq!(self.ask(&["SUBSCRIBE", channel])[1], channel);
        let hello = self.message(channel);
        assert_eq!(hello["type"], "hello");
        hello
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
fn a_page_is_counted_and_bounded_as_over_http() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { response_bytes: 100_000, ..AdmissionLimits::default() };
    let server =
        Server::serving(HttpState { admission: Admission::new(limits), ..HttpState::from(engine.clone()) }, engine);
    let mut client = Client::of(&server);
    client.ask(&["FEED.FOLLOW", "ann", "bob"]);
    let body = format!("\"{}\"", "x".repeat(1_000));
    for _ in 0..100 {
        client.json(&["FEED.POST", "bob", &body, "WAIT"]);
    }
    // The first page wakes the reader.
    for count in ["1", "20", "70"] {
        let path = format!("/v1/users/ann/feed?limit={count}");
        assert_eq!(client.ask(&["FEED.GET", "ann", "COUNT", count]), server.get(&path).text, "{count}");
    }
    let refused = client.ask(&["FEED.GET", "ann", "COUNT", "100"]);
    assert!(refused.as_str().unwrap().starts_with("-OVERLOADED too many bytes of responses in progress"), "{refused}");
    assert_eq!(client.json(&["FEED.GET", "ann", "COUNT", "70"])["items"].as_array().unwrap().len(), 70);
    let metrics = server.get("/metrics").text;
    for (status, count) in [("2xx", 7), ("5xx", 1)] {
        let line = format!("tidewire_http_requests_total{{operation=\"read_feed\",status=\"{status}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(metrics.contains("tidewire_http_refusals_total{code=\"overloaded\"} 1\n"), "{metrics}");
}

#[test]
fn the_bytes_of_large_commands_are_bounded() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { write_bytes: 3 * REQUEST_BYTES_MAX / 2, ..AdmissionLimits::default() };
    let server =
        Server::serving(HttpState { admission: Admission::new(limits), ..HttpState::from(engine.clone()) }, engine);
    let reserved = || server.get("/v1/stats").json()["admission"]["write_bytes"]["under_way"].clone();
    let body = format!("\"{}\"", "x".repeat(30_000));
    let command = format!("*3\r\n$9\r\nFEED.POST\r\n$3\r\nbob\r\n${}\r\n{body}\r\n", body.len());
    let (begin, rest) = command.split_at(20_000);
    let [mut first, mut second] = [Client::of(&server), Client::of(&server)];
    first.socket.get_mut().write_all(begin.as_bytes()).unwrap();
    eventually("the command is reserved", || (reserved() != 0).then_some(()));
    second.socket.get_mut().write_all(begin.as_bytes()).unwrap();
    let refused = second.reply();
    assert!(refused.as_str().unwrap().starts_with("-OVERLOADED too many bytes of "), "{refused}");
    assert_eq!(second.reply(), "the connection ended");
    // Nothing is reserved twice: neither would the post fit beside its command.
    first.socket.get_mut().write_all(rest.as_bytes()).unwrap();
    let post: Value = serde_json::from_str(first.reply().as_str().unwrap()).unwrap();
    assert_eq!(post["author"], "bob");
    assert_eq!(reserved(), 0);
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
        client.socket.get_mut().write_all(&[*byte]).unwrap();
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

#[test]
fn a_channel_receives_the_live_feed_and_resumes() {
    let server = server();
    let mut publisher = Client::of(&server);
    for user in ["ann", "cid"] {
        assert_eq!(publisher.ask(&["FEED.FOLLOW", user, "bob"]), r#"{"created":true}"#);
    }
    let mut client = Client::of(&server);
    let hello = client.subscribe("feed:ann");
    assert_eq!(hello["recovered"], false);
    let mut post = |body| publisher.json(&["FEED.POST", "bob", body, "WAIT"]);
    let first = post("1");
    let message = client.message("feed:ann");
    assert_eq!((&message["type"], &message["item"]["post"]), (&json!("post"), &first));
    // Two channels of one connection.
    client.subscribe("feed:cid");
    let second = post("2");
    let mut received = [client.reply(), client.reply()].map(|message| {
        let event: Value = serde_json::from_str(message[2].as_str().unwrap()).unwrap();
        assert_eq!(event["item"]["post"], second);
        message[1].clone()
    });
    received.sort_by_key(Value::to_string);
    assert_eq!(received, ["feed:ann", "feed:cid"]);
    assert_eq!(client.ask(&["UNSUBSCRIBE", "feed:cid"]), json!(["unsubscribe", "feed:cid", 1]));
    drop(client);

    let third = post("3");
    let mut client = Client::of(&server);
    let channel = format!("feed:ann {}:{}", hello["epoch"].as_str().unwrap(), message["seq"]);
    assert_eq!(client.subscribe(&channel)["recovered"], true);
    let missed = [client.message(&channel), client.message(&channel)];
    assert_eq!(missed.each_ref().map(|message| &message["item"]["post"]), [&second, &third]);
    assert_eq!(client.ask(&["UNSUBSCRIBE"]), json!(["unsubscribe", channel, 0]));
    assert_eq!(client.ask(&["UNSUBSCRIBE"]), json!(["unsubscribe", null, 0]));
    assert_eq!(client.ask(&["PING"]), "+PONG");
}

#[test]
fn commands_beside_subscriptions_need_resp3() {
    let server = server();
    let mut client = Client::of(&server);
    client.subscribe("feed:ann");
    assert_eq!(client.ask(&["SUBSCRIBE", "feed:ann"]), json!(["subscribe", "feed:ann", 1]), "once more is the same");
    assert_eq!(client.ask(&["PING"]), json!(["pong", ""]));
    assert_eq!(client.ask(&["PING", "x"]), json!(["pong", "x"]));
    for refused in [&["FEED.GET", "ann"][..], &["HELLO", "3"], &["ECHO", "x"]] {
        let reply = client.ask(refused);
        assert!(
            reply
                .as_str()
                .unwrap()
                .ends_with("while subscribed: only SUBSCRIBE, UNSUBSCRIBE, PING, RESET and QUIT, or any after HELLO 3"),
            "{reply}"
        );
    }
    assert_eq!(client.ask(&["RESET"]), "+RESET");
    assert_eq!(client.ask(&["HELLO", "3"])["proto"], 3);
    client.subscribe("feed:ann");
    assert_eq!(client.pushes, 2, "the confirmation and the first message");
    assert_eq!(client.json(&["FEED.GET", "ann"])["items"], json!([]));
    assert_eq!(client.ask(&["PING"]), "+PONG");
    assert_eq!(client.subscribe("feed:bob no-position")["recovered"], false);
}

#[test]
fn a_refused_channel_is_one_error_and_nothing_after_it() {
    let server = server();
    let mut client = Client::of(&server);
    for (channels, refused) in [
        (&["news"][..], r#"-ERR "news" is not a channel: use feed:USER"#),
        (&["feed:ann", "feed:", "feed:bob"], r#"-ERR "feed:" is not a channel: use feed:USER"#),
        (&["feed:tag:rust", "feed:ann"], "-NOT_A_USER "),
        (&[], "-ERR wrong number of arguments for 'subscribe' command"),
    ] {
        let reply = client.ask(&[&["SUBSCRIBE"], channels].concat());
        assert!(reply.as_str().is_some_and(|reply| reply.starts_with(refused)), "{reply}");
        assert_eq!(client.ask(&["PING"]), "+PONG", "{channels:?}");
    }
    client.socket.get_mut().write_all(b"*2\r\n$9\r\nSUBSCRIBE\r\n$10\r\nfeed:ann \xff\r\n").unwrap();
    assert_eq!(client.reply(), "-ERR 'SUBSCRIBE' has a word that is not UTF-8");
}

#[test]
fn the_place_of_a_channel_is_free_for_the_next_command() {
    let server = server();
    let mut client = Client::of(&server);
    // As many connections as a reader may have.
    for nth in 0..32 {
        client.subscribe(&format!("feed:ann {nth}"));
    }
    let reply = client.ask(&["SUBSCRIBE", "feed:ann"]);
    assert!(reply.as_str().is_some_and(|reply| reply.starts_with("-TOO_MANY_CONNECTIONS ")), "{reply}");
    assert_eq!(client.ask(&["UNSUBSCRIBE", "x"]), json!(["unsubscribe", "x", 32]));
    let pipeline = "*2\r\n$11\r\nUNSUBSCRIBE\r\n$10\r\nfeed:ann 0\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$8\r\nfeed:ann\r\n";
    client.socket.get_mut().write_all(pipeline.as_bytes()).unwrap();
    assert_eq!(client.reply(), json!(["unsubscribe", "feed:ann 0", 31]));
    assert_eq!(client.reply(), json!(["subscribe", "feed:ann", 32]));
}

#[test]
fn messages_arrive_while_commands_never_cease() {
    let server = server();
    let mut client = Client::of(&server);
    client.ask(&["FEED.FOLLOW", "ann", "bob"]);
    client.ask(&["HELLO", "3"]);
    client.subscribe("feed:ann");
    let (mut writer, is_over) = (client.socket.get_ref().try_clone().unwrap(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&is_over);
    let writing = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) && writer.write_all("FEED.GET ann\r\n".repeat(1_000).as_bytes()).is_ok()
        {
        }
    });
    Client::of(&server).json(&["FEED.POST", "bob", "1", "WAIT"]);
    let is_received = (0..20_000).any(|_| client.reply().is_array());
    is_over.store(true, Ordering::Relaxed);
    // The writer may wait for a reader.
    client.socket.get_ref().shutdown(Shutdown::Both).unwrap();
    writing.join().unwrap();
    assert!(is_received, "no message among 20,000 replies");
}

#[test]
fn a_subscribed_connection_ends_when_the_server_stops() {
    let server = server();
    let mut client = Client::of(&server);
    client.subscribe("feed:ann");
    drop(server);
    assert_eq!(client.reply(), "the connection ended");
}

#[test]
fn a_connection_ends_when_a_subscription_ends() {
    let engine = Engine::start(EngineConfig { live_heartbeat: Duration::from_millis(50), ..EngineConfig::default() });
    let access = Arc::new(tokens::access());
    let state = HttpState { access: Arc::clone(&access), ..HttpState::from(engine.clone()) };
    let server = Server::serving(state, engine);
    let mut client = Client::of(&server);
    let reply = client.ask(&["SUBSCRIBE", "feed:ann"]);
    assert_eq!(reply, "-NOAUTH send a valid server key by AUTH");
    assert_eq!(client.ask(&["AUTH", READING_KEY]), "+OK");
    client.subscribe("feed:ann");
    access.replace(Keys::default());
    assert_eq!(client.reply(), "the connection ended");
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

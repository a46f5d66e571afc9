//! Server-sent events.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::server::Server;
use testkit::eventually;
use testkit::world::{above, config};

/// An event as a browser takes it in.
#[derive(Debug, Default, PartialEq)]
struct LiveEvent {
    kind: String,
    id: String,
    data: Value,
}

struct Events {
    lines: BufReader<TcpStream>,
    head: String,
}

impl Events {
    fn open(address: SocketAddr, path: &str, last_event_id: Option<&str>) -> Self {
        let mut stream = testkit::connect(address);
        let last = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{last}\r\n").unwrap();
        let (mut lines, mut head) = (BufReader::new(stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        Self { lines, head: head.to_lowercase() }
    }

    /// The next event; what frames the chunks of the answer is passed over.
    fn next(&mut self) -> LiveEvent {
        let (mut event, mut data) = (LiveEvent::default(), String::new());
        eventually("an event comes", || {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the events have ended");
            match line.trim_end().split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("data", line)) => data.push_str(&format!("{line}\n")),
                _ if line == "\n" && !data.is_empty() => {
                    event.data = serde_json::from_str(&data).unwrap();
                    return Some(std::mem::take(&mut event));
                }
                _ => {}
            }
            None
        })
    }
}

fn publish(server: &Server, id: u64) {
    // Line breaks between the tokens of a body are a client's own business.
    let body = format!(r#"{{"author":"bob","id":"{id}","body":{{"a":{id},{}"b":[]}}}}"#, "\n\r\n");
    let answer = server.send("POST", "/v1/posts?wait=delivered", Some("application/json"), body);
    assert_eq!(answer.status, 201, "{}", answer.text);
}

#[test]
fn event_streams_equal_websockets_and_resume_by_event_id() {
    let server = Server::start(config(2, above(5)));
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    let mut events = Events::open(server.address(), "/v1/users/ann/events", None);
    for header in ["200 ok", "content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"] {
        assert!(events.head.contains(header), "{}", events.head);
    }
    let hello = events.next();
    let epoch = hello.data["epoch"].as_str().unwrap().to_owned();
    assert_eq!((hello.kind.as_str(), hello.id), ("hello", format!("{epoch}:0")));
    publish(&server, 1);
    let item = server.get("/v1/users/ann/feed").json()["items"][0].clone();
    let data = json!({"type": "post", "seq": 1, "item": item});
    assert_eq!(events.next(), LiveEvent { kind: "post".to_owned(), id: format!("{epoch}:1"), data });
    drop(events);
    publish(&server, 2);
    let mut back = Events::open(server.address(), "/v1/users/ann/events", Some(&format!("{epoch}:1")));
    assert_eq!(back.next().data["recovered"], true);
    assert_eq!(back.next().data["item"]["post"]["id"], "2");
    // What was no id of this server's is as good as none.
    for strange in ["", "x", "x:y", "0123456789abcdef:1", "0123456789abcdef:99999999999999999999"] {
        let hello = Events::open(server.address(), "/v1/users/ann/events", Some(strange)).next();
        assert_eq!((&hello.data["recovered"], &hello.data["seq"]), (&json!(false), &json!(2)), "{strange}");
    }
}

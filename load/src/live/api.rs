//! A small HTTP client: one connection, one request at a time, on the thread of the others.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Most edges in one request.
const FOLLOWS_MAX: usize = 10_000;

pub struct Http {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Http {
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends a request and reads the answer: its status and body.
    pub async fn send(&mut self, method: &str, path: &str, json: &str) -> io::Result<(u16, Vec<u8>)> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: tidewire\r\n");
        if !json.is_empty() {
            let _ = write!(request, "content-type: application/json\r\ncontent-length: {}\r\n", json.len());
        }
        request.push_str("\r\n");
        request.push_str(json);
        self.stream.write_all(request.as_bytes()).await?;
        timeout(ANSWER_MAX, self.answer()).await?
    }

    async fn answer(&mut self) -> io::Result<(u16, Vec<u8>)> {
        self.buffer.clear();
        loop {
            if let Some((status, head, body)) = lengths(&self.buffer)
                && self.buffer.len() >= head + body
            {
                return Ok((status, self.buffer[head..head + body].to_vec()));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Publishes. Returns whether there was room for the post.
    pub async fn publish(&mut self, author: &str, text: &str) -> bool {
        let post = format!(r#"{{"author":"{author}","body":{{"text":"{text}"}}}}"#);
        let (status, answer) = self.send("POST", "/v1/posts", &post).await.unwrap();
        assert!([201, 503].contains(&status), "POST /v1/posts: {status} {}", String::from_utf8_lossy(&answer));
        status == 201
    }

    /// Lets all readers follow an author.
    pub async fn follow(&mut self, readers: &[String], author: &str) {
        for readers in readers.chunks(FOLLOWS_MAX) {
            let edge = |reader: &String| format!(r#"{{"follower":"{reader}","source":"{author}"}}"#);
            let edges: Vec<String> = readers.iter().map(edge).collect();
            let follows = format!(r#"{{"follows":[{}]}}"#, edges.join(","));
            let (status, answer) = self.send("POST", "/v1/follows", &follows).await.unwrap();
            assert_eq!(status, 200, "POST /v1/follows: {}", String::from_utf8_lossy(&answer));
        }
    }

    pub async fn stats(&mut self) -> Value {
        let (status, stats) = self.send("GET", "/v1/stats", "").await.unwrap();
        assert_eq!(status, 200, "GET /v1/stats");
        serde_json::from_slice(&stats).unwrap()
    }
}

/// The status of an answer, and the lengths of its head and body, once the head is there.
fn lengths(answer: &[u8]) -> Option<(u16, usize, usize)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = head.lines().find_map(|line| line.strip_prefix("content-length:")).map_or("0", str::trim);
    Some((status, end + 4, body.parse().ok()?))
}

/// So many users.
pub fn users(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("{kind}{nth}")).collect()
}

/// A text of so many bytes.
pub fn text(bytes: usize) -> String {
    "Just setting up a feed. ".chars().cycle().take(bytes).collect()
}

/// The length of an ordinary post.
pub const ORDINARY_BYTES: usize = 90;

//! A consumer of the stream as server-sent events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use testkit::{DEADLINE, eventually};

pub struct Consumer {
    lines: BufReader<TcpStream>,
    /// The status line and the headers, in lower case.
    pub head: String,
    /// The `id` of the last event.
    pub last_id: String,
}

impl Consumer {
    pub fn open(address: SocketAddr, path: &str, last_id: Option<&str>) -> Self {
        Self::try_open(address, path, last_id).unwrap()
    }

    /// Fails if the server is not there.
    pub fn try_open(address: SocketAddr, path: &str, last_id: Option<&str>) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let last = last_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{last}\r\n")?;
        let (mut lines, mut head) = (BufReader::new(stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Self { lines, head: head.to_lowercase(), last_id: String::new() })
    }

    /// The body of a refusal, which has a length.
    pub fn body(&mut self) -> String {
        let length = self.head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.lines.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    /// The next message; none once the stream has ended. What frames the chunks of the answer is passed over.
    pub fn try_next(&mut self) -> std::io::Result<Option<Value>> {
        let (mut data, mut id, mut line) = (String::new(), String::new(), String::new());
        loop {
            line.clear();
            if self.lines.read_line(&mut line)? == 0 || !line.ends_with('\n') {
                return Ok(None);
            }
            match line.trim_end().split_once(": ") {
                Some(("id", found)) => found.clone_into(&mut id),
                Some(("data", found)) => found.clone_into(&mut data),
                _ if line == "\n" && !data.is_empty() => {
                    self.last_id = id;
                    return Ok(Some(serde_json::from_str(&data)?));
                }
                // The last chunk.
                None if line == "0\r\n" => return Ok(None),
                _ => {}
            }
        }
    }

    /// Reads to the end of the connection. Returns true if the stream ends by its last chunk, and is not cut off.
    pub fn ends_in_order(&mut self) -> bool {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        rest.ends_with("0\r\n\r\n")
    }

    pub fn next(&mut self) -> Value {
        self.try_next().unwrap().expect("the stream goes on")
    }

    /// The next event that is no sign of life; none once the stream has ended.
    pub fn next_change(&mut self) -> Option<Value> {
        eventually("a change comes, or the end", || match self.try_next().unwrap() {
            Some(message) if message["type"] == "reached" => None,
            other => Some(other),
        })
    }
}

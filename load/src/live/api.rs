//! HTTP requests besides live connections: publishing, and the number of live connections.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::operation::User;
use crate::target::Failure;
use crate::target::tidewire::connection::Connection;
use crate::target::tidewire::{is_refusal, name};

/// Timeout for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Bytes of a body besides its text.
pub(super) const BODY_BYTES_MIN: usize = r#"{"text":""}"#.len();

/// Publishes posts to a design.
pub(super) trait Publish {
    /// Publishes a post without waiting until it is delivered.
    async fn publish(&mut self, author: User, body: &str) -> Result<(), Failure>;
}

/// A connection for one request at a time, on the same thread as the live connections.
pub(super) struct Api {
    connection: Connection,
    request: String,
}

/// The statistics of the server about live connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct LiveFigures {
    /// Number of open connections.
    pub(super) connections: usize,
    /// Number of connections that the server has cut off up to now.
    pub(super) cut_off: usize,
}

#[derive(Deserialize)]
struct Stats {
    live: LiveFigures,
}

impl Api {
    pub(super) async fn open(server: SocketAddr) -> Result<Self, Failure> {
        let opened = timeout(ANSWER_MAX, Connection::open(server)).await;
        let opened = opened.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let connection = opened.map_err(|cause| Failure::Failed(format!("failed to connect to {server}: {cause}")))?;
        Ok(Self { connection, request: String::new() })
    }

    pub(super) async fn live_figures(&mut self) -> Result<LiveFigures, Failure> {
        let stats = self.ask("GET /v1/stats", "").await?;
        let stats: Stats = serde_json::from_slice(stats).map_err(|cause| {
            Failure::Failed(format!("GET /v1/stats has no statistics of live connections: {cause}"))
        })?;
        Ok(stats.live)
    }

    /// Sends a request and returns the body of the response.
    async fn ask(&mut self, what: &str, json: &str) -> Result<&[u8], Failure> {
        self.request.clear();
        // Writing to a `String` cannot fail.
        let _ = write!(self.request, "{what} HTTP/1.1\r\nHost: localhost\r\n");
        if !json.is_empty() {
            let length = json.len();
            let _ = write!(self.request, "Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        let _ = write!(self.request, "\r\n{json}");
        let failed = |cause: &dyn std::fmt::Display| Failure::Failed(format!("{what}: {cause}"));
        match timeout(ANSWER_MAX, self.connection.ask(self.request.as_bytes())).await {
            Err(_) => Err(failed(&format_args!("no answer after {ANSWER_MAX:?}"))),
            Ok(Err(cause)) => Err(failed(&cause)),
            Ok(Ok((200..=299, body))) => Ok(body),
            Ok(Ok((status, body))) => {
                let message = format!("{what}: {status} {}", String::from_utf8_lossy(body));
                Err(if is_refusal(status, body) { Failure::Refused(message) } else { Failure::Failed(message) })
            }
        }
    }
}

impl Publish for Api {
    async fn publish(&mut self, author: User, body: &str) -> Result<(), Failure> {
        let post = format!(r#"{{"author":"{}","body":{body}}}"#, name(author));
        self.ask("POST /v1/posts", &post).await.map(drop)
    }
}

/// Returns a body of this many bytes, or the smallest possible body if that is longer.
pub(super) fn body(bytes: usize) -> String {
    let text = "Just setting up a feed. ".chars().cycle().take(bytes.saturating_sub(BODY_BYTES_MIN));
    format!(r#"{{"text":"{}"}}"#, text.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_requested_number_of_bytes() {
        for bytes in [BODY_BYTES_MIN, 100, 8_192] {
            assert_eq!(body(bytes).len(), bytes);
            assert!(serde_json::from_str::<serde_json::Value>(&body(bytes)).is_ok());
        }
        assert_eq!(body(0), r#"{"text":""}"#);
    }

    #[test]
    fn the_required_metrics_are_found_among_all_others() {
        let stats = r#"{"users":3,"live":{"connections":7,"readers":6,"messages":12,"cut_off":1},"queues":{}}"#;
        let stats: Stats = serde_json::from_str(stats).unwrap();
        assert_eq!(stats.live, LiveFigures { connections: 7, cut_off: 1 });
    }
}

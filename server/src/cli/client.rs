//! An HTTP client of a running server, for imports and for commands that call a server.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde::Deserialize;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{Method, Request};
use ureq::unversioned::transport::{Connector as _, DefaultConnector};

use crate::cli::sent_mark::{self, MarkSent};
use crate::cli::{resolver, tls_connector};

/// Maximum attempts for one request while the server answers that it is overloaded.
pub(super) const ATTEMPTS_MAX: u32 = 60;

/// Maximum wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Maximum time for one request with its answer.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// Maximum silence of a stream of events, which has a heartbeat every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// The codes of refusals due to load, with status 429 or 503. Others with a `Retry-After` have another cause, such as a full disk.
const OVERLOAD_CODES: [&str; 4] = ["overloaded", "rate_limited", "too_many_connections", "too_many_denials"];

/// Default advice for the case that no server answers.
const NOBODY_THERE: &str = "; is `tidewire serve` running there?";

/// The detail for a missing key. It replaces the server's text, which names a header that the command line cannot set.
const KEY_MISSING: &str = "the server requires a key or a token: pass it with --key-file FILE, or set TIDEWIRE_KEY";

/// A client that sends JSON to a server.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    server: String,
    authorization: Option<String>,
    /// True if `--ca-file` names the certificates to trust.
    has_ca_file: bool,
    /// Advice for the case that no server answers, as the end of a sentence.
    advice: &'static str,
    /// Time for a request with all its attempts. If none, only the number of attempts is limited.
    gives_up_after: Option<Duration>,
}

/// The reason why there is no usable answer from a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection to the server, or no answer in time. The request can be sent again: it was not sent, or it is idempotent.
    #[error("no answer from {server}: {cause}{advice}")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// The error of the HTTP client.
        cause: Box<ureq::Error>,
        /// Advice for this case, or an empty text.
        advice: &'static str,
    },
    /// A request that must not be repeated was sent, and there is no answer.
    #[error(
        "no answer from {server}: {cause}; the request may be done or not, so check before you retry; with --id, a retried post is \
         published once"
    )]
    OutcomeUnknown {
        /// The address of the server.
        server: String,
        /// The error of the HTTP client.
        cause: Box<ureq::Error>,
    },
    /// The server has accepted a stream of events, but sends none.
    #[error("no answer from {server}: timeout, no event for {time:?}")]
    Silent {
        /// The address of the server.
        server: String,
        /// The time after which the client gave up waiting for the first event.
        time: Duration,
    },
    /// The server still refuses for a temporary reason after all attempts: overload, or a full disk.
    #[error("{server} {} after {attempts} {}: {refused}, status {}", how(refused), if *attempts == 1 { "attempt" } else { "attempts" }, refused.status)]
    StillRefused {
        /// The address of the server.
        server: String,
        /// Number of requests that were sent.
        attempts: u32,
        /// The last refusal.
        refused: Box<Refused>,
    },
    /// The answer is not from a Tidewire server.
    #[error("{server} answered {status}, which is not an answer of a Tidewire server: {text}")]
    Foreign {
        /// The address of the server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the response body.
        text: String,
    },
}

/// Returns a description of the last refusal, as the beginning of a sentence.
fn how(refused: &Refused) -> &'static str {
    let is_for_load = OVERLOAD_CODES.contains(&refused.code.as_str());
    if is_for_load { "is still overloaded" } else { "still refuses" }
}

/// Returns advice for a certificate that was not accepted, as the end of a sentence. None for other errors.
pub(super) fn advice_of_certificate(cause: &ureq::Error, has_ca_file: bool) -> Option<&'static str> {
    let cause = cause.to_string();
    if !cause.contains("invalid peer certificate") {
        return None;
    }
    Some(match (cause.contains("UnknownIssuer"), has_ca_file) {
        // With `--ca-file`, the error itself is clear.
        _ if cause.contains("CaUsedAsEndEntity") => {
            "; the server has a CA certificate, as `openssl req -x509` makes it: pass it with --ca-file"
        }
        (true, false) => "; --ca-file names the certificates to trust",
        (true, true) => "; its signer is not in the file of --ca-file",
        (false, _) => "",
    })
}

/// Returns advice if the server's protocol differs from the URL: plain HTTP instead of TLS, or TLS instead of plain HTTP.
pub(super) fn advice_of_tls(server: &str, cause: &ureq::Error) -> Option<&'static str> {
    let text = cause.to_string();
    let is_no_http = matches!(cause, ureq::Error::Protocol(_)) && text.contains("http parse fail");
    let is_no_tls = text.contains("InvalidContentType");
    match server.split_once("://") {
        // A TLS server answers with a TLS alert.
        Some(("http", _)) if is_no_http => Some("; does it serve TLS? then use https://"),
        Some(("https", _)) if is_no_tls => Some("; does it serve without TLS? then use http://"),
        _ => None,
    }
}

/// Creates an agent whose connections mark that a request was sent.
fn agent(config: Config) -> Agent {
    resolver::agent(config, DefaultConnector::default().chain(MarkSent))
}

/// A problem document, with the fields that the command line uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{detail} ({code})")]
pub struct Refused {
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// The stable problem code.
    pub code: String,
    /// The description of the problem, for people.
    pub detail: String,
    /// One problem for each refused part of a bulk request.
    #[serde(default)]
    pub errors: Vec<RefusedPart>,
}

/// The problem with one part of a bulk request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RefusedPart {
    /// Index of the part, from 0.
    pub index: usize,
    /// The description of the problem, for people.
    pub detail: String,
}

/// The answer of a server.
#[derive(Debug)]
pub enum ServerResponse {
    /// Success: the HTTP status and the response body.
    Done(u16, String),
    /// Refused, and a retry would not help.
    Refused(Refused),
}

/// A stream of events, or the refusal with the time after which the server accepts another attempt.
pub type EventStream = Result<Box<dyn Read + Send>, (Refused, Option<Duration>)>;

/// The code of a refusal with an unknown outcome: the write may have been done or not.
pub(super) const OUTCOME_UNKNOWN: &str = "outcome_unknown";

impl Client {
    /// Creates a client of the server at this URL. For an `https` URL, `trusted` verifies its certificate. Without `trusted`, a public
    /// authority must have signed it.
    pub fn new(server: &str, trusted: Option<Arc<ClientConfig>>) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).build();
        let has_ca_file = trusted.is_some();
        let agent = match trusted {
            Some(trusted) => tls_connector::agent(config, trusted),
            None => agent(config),
        };
        let server = server.trim_end_matches('/').to_owned();
        Self { agent, server, authorization: None, has_ca_file, advice: NOBODY_THERE, gives_up_after: None }
    }

    /// Returns the same client, which sends this key or token with every request.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { authorization: Some(format!("Bearer {key}")), ..self }
    }

    /// Returns the same client with this advice for the case that no server answers. It is the end of a sentence.
    #[must_use]
    pub fn advising(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }

    /// Returns the same client, which gives up after this time, even while the server is overloaded.
    #[must_use]
    pub fn giving_up_after(self, time: Duration) -> Self {
        Self { gives_up_after: Some(time), ..self }
    }

    /// Creates a client of a server inside this process. It ignores any configured proxy.
    pub fn within(address: SocketAddr) -> Self {
        let agent = agent(Agent::config_builder().http_status_as_error(false).proxy(None).build());
        let server = format!("http://{address}");
        Self { agent, server, authorization: None, has_ca_file: false, advice: NOBODY_THERE, gives_up_after: None }
    }

    /// Creates the error for an answer that is not from a Tidewire server.
    pub fn foreign(&self, status: u16, text: &str) -> ClientError {
        ClientError::Foreign { server: self.server.clone(), status, text: text.chars().take(200).collect() }
    }

    /// Posts `json` to `path`, and repeats the request while the server is overloaded.
    ///
    /// # Errors
    /// If the server is unreachable, refuses for a temporary reason until the end, or is not a Tidewire server.
    pub fn post(&self, path: &str, json: &str) -> Result<ServerResponse, ClientError> {
        self.send(&Method::POST, path, json)
    }

    /// Requests `path` in the same way.
    ///
    /// # Errors
    /// The same as for [`Client::post`].
    pub fn get(&self, path: &str) -> Result<ServerResponse, ClientError> {
        self.send(&Method::GET, path, "")
    }

    /// Sends a PATCH request to `path` in the same way.
    ///
    /// # Errors
    /// The same as for [`Client::post`].
    pub fn patch(&self, path: &str, json: &str) -> Result<ServerResponse, ClientError> {
        self.send(&Method::PATCH, path, json)
    }

    /// Posts `json` to `path`. The client does not send it again if its outcome is unknown.
    ///
    /// # Errors
    /// The same as for [`Client::post`], and [`ClientError::OutcomeUnknown`] if the request was sent and there is no answer.
    pub fn post_once(&self, path: &str, json: &str) -> Result<ServerResponse, ClientError> {
        self.send_if(&Method::POST, path, json, false)
    }

    /// Sends a PUT request to `path` in the same way as [`Client::post`].
    ///
    /// # Errors
    /// The same as for [`Client::post`].
    pub fn put(&self, path: &str, json: &str) -> Result<ServerResponse, ClientError> {
        self.send(&Method::PUT, path, json)
    }

    /// Sends a DELETE request to `path` in the same way as [`Client::post`].
    ///
    /// # Errors
    /// The same as for [`Client::post`].
    pub fn delete(&self, path: &str) -> Result<ServerResponse, ClientError> {
        self.send(&Method::DELETE, path, "")
    }

    /// Opens a stream of server-sent events. Reads fail after a silence that is longer than the interval between two heartbeats.
    ///
    /// # Errors
    /// If the server is unreachable, or the answer is not a stream of events. A refusal is returned with the seconds of its `Retry-After`.
    pub fn events(&self, path: &str) -> Result<EventStream, ClientError> {
        let time = Some(self.patience());
        let request = self.request(&Method::GET, path).header(ACCEPT, "text/event-stream");
        let request = request.body(()).map_err(|cause| self.unreachable(cause.into()))?;
        let limits = self.agent.configure_request(request);
        let request =
            limits.timeout_connect(time).timeout_recv_response(time).timeout_per_read(Some(SILENCE_MAX)).build();
        let mut response = self.agent.run(request).map_err(|cause| self.unreachable(cause))?;
        let status = response.status().as_u16();
        if status == 200 {
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            if !kind.starts_with("text/event-stream") {
                return Err(self.foreign(status, &format!("{kind:?} is not a stream of events")));
            }
            return Ok(Ok(Box::new(response.into_body().into_reader())));
        }
        let wait = retry_after(&response);
        let text = response.body_mut().read_to_string().map_err(|cause| self.unreachable(cause))?;
        Ok(Err((self.refused(status, &text)?, wait)))
    }

    fn send(&self, method: &Method, path: &str, json: &str) -> Result<ServerResponse, ClientError> {
        self.send_if(method, path, json, true)
    }

    /// Sends a request, and retries while the answer has a `Retry-After`. If the outcome is unknown, it retries only requests that are
    /// `is_repeatable`.
    fn send_if(
        &self,
        method: &Method,
        path: &str,
        json: &str,
        is_repeatable: bool,
    ) -> Result<ServerResponse, ClientError> {
        let began = Instant::now();
        let left = || self.gives_up_after.map_or(REQUEST_MAX, |time| time.saturating_sub(began.elapsed()));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let request = self.request(method, path);
            let request = if json.is_empty() { request } else { request.header(CONTENT_TYPE, "application/json") };
            let request = request.body(json).map_err(|cause| self.unreachable(cause.into()))?;
            // Never zero, because zero means no limit.
            let time = left().clamp(Duration::from_millis(1), REQUEST_MAX);
            let request = self.agent.configure_request(request).timeout_global(Some(time)).build();
            sent_mark::clear();
            let mut response = self.agent.run(request).map_err(|cause| self.unanswered(cause, is_repeatable))?;
            let (status, wait) = (response.status().as_u16(), retry_after(&response));
            let text = response.body_mut().read_to_string();
            let text = text.map_err(|cause| self.unanswered(cause, is_repeatable))?;
            if status < 300 {
                return Ok(ServerResponse::Done(status, text));
            }
            let refused = self.refused(status, &text)?;
            let Some(wait) = wait.filter(|_| is_repeatable || refused.code != OUTCOME_UNKNOWN) else {
                return Ok(ServerResponse::Refused(refused));
            };
            if attempts == ATTEMPTS_MAX || (self.gives_up_after.is_some() && wait.min(WAIT_MAX) >= left()) {
                return Err(self.still_refused(attempts, refused));
            }
            pause(wait);
        }
    }

    fn request(&self, method: &Method, path: &str) -> ureq::http::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.server));
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        }
    }

    fn unreachable(&self, cause: ureq::Error) -> ClientError {
        let of_certificate = || advice_of_certificate(&cause, self.has_ca_file);
        let advice = advice_of_tls(&self.server, &cause).or_else(of_certificate).unwrap_or(self.advice);
        ClientError::Unreachable { server: self.server.clone(), cause: Box::new(cause), advice }
    }

    /// Creates the error for a request of this thread without an answer.
    fn unanswered(&self, cause: ureq::Error, is_repeatable: bool) -> ClientError {
        if is_repeatable || !sent_mark::is_set() {
            return self.unreachable(cause);
        }
        ClientError::OutcomeUnknown { server: self.server.clone(), cause: Box::new(cause) }
    }

    /// Creates the error for a stream without events.
    pub(super) fn silent(&self) -> ClientError {
        ClientError::Silent { server: self.server.clone(), time: self.patience() }
    }

    /// Returns the time after which a command gives up.
    pub(super) fn patience(&self) -> Duration {
        self.gives_up_after.unwrap_or(REQUEST_MAX)
    }

    /// Creates the error for a server that has refused all attempts.
    pub(super) fn still_refused(&self, attempts: u32, refused: Refused) -> ClientError {
        ClientError::StillRefused { server: self.server.clone(), attempts, refused: Box::new(refused) }
    }

    /// Parses a problem document.
    fn refused(&self, status: u16, text: &str) -> Result<Refused, ClientError> {
        let mut refused = serde_json::from_str::<Refused>(text).map_err(|_| self.foreign(status, text))?;
        if status == 401 && self.authorization.is_none() {
            KEY_MISSING.clone_into(&mut refused.detail);
        }
        Ok(Refused { status, ..refused })
    }
}

/// Waits for the time that the server requests, at most `WAIT_MAX`.
pub(super) fn pause(wait: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is a thread of a tool, not an actor")]
    std::thread::sleep(wait.min(WAIT_MAX));
}

fn retry_after<T>(response: &ureq::http::Response<T>) -> Option<Duration> {
    let wait = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    wait.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    fn scripted(answers: &'static [&'static str]) -> Client {
        recorded(answers).0
    }

    /// Starts a server with scripted answers, one for each connection, and returns the bodies that it receives. Its listener is closed
    /// before it sends the last answer.
    pub(crate) fn recorded(answers: &'static [&'static str]) -> (Client, Receiver<String>) {
        let (bodies, sent) = channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut listener = Some(listener);
            for (nth, answer) in answers.iter().enumerate() {
                let (mut stream, _) = listener.as_ref().unwrap().accept().unwrap();
                if nth + 1 == answers.len() {
                    listener = None;
                }
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut length = 0;
                for line in reader.by_ref().lines() {
                    let line = line.unwrap().to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length: ") {
                        length = value.parse().unwrap();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                // Sending fails only if the test does not look at the bodies.
                let _ = bodies.send(String::from_utf8(body).unwrap());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (Client::new(&server, None), sent)
    }

    #[test]
    fn the_client_retries_while_the_server_is_overloaded() {
        let client = scripted(&[
            "HTTP/1.1 503 x\r\nRetry-After: 0\r\nConnection: close\r\n\r\n{\"code\":\"overloaded\",\"detail\":\"full\"}",
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
        ]);
        assert!(matches!(client.post("/x", "{}").unwrap(), ServerResponse::Done(200, _)));
    }

    #[test]
    fn a_request_that_must_not_repeat_has_an_unknown_outcome_once_sent() {
        const CUT: &str = "HTTP/1.1 201 x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{";
        for answer in [&[""], &[CUT]] {
            let client = scripted(answer);
            assert!(matches!(client.post_once("/x", "{}"), Err(ClientError::OutcomeUnknown { .. })), "{answer:?}");
            // The listener is closed, so this request was never sent.
            assert!(matches!(client.post_once("/x", "{}"), Err(ClientError::Unreachable { .. })), "{answer:?}");
            assert!(matches!(scripted(answer).post("/x", "{}"), Err(ClientError::Unreachable { .. })), "{answer:?}");
        }
    }

    #[test]
    fn refusals_foreign_servers_and_unreachable_servers_are_distinguished() {
        const REFUSED: &str = "HTTP/1.1 422 x\r\nConnection: close\r\n\r\n\
            {\"code\":\"c\",\"detail\":\"d\",\"errors\":[{\"index\":3,\"code\":\"c\",\"detail\":\"e\"}]}";
        let client = scripted(&[REFUSED, "HTTP/1.1 500 x\r\nConnection: close\r\n\r\n<html>"]);
        let ServerResponse::Refused(refused) = client.post("/x", "{}").unwrap() else {
            panic!("a refusal was expected")
        };
        assert_eq!(refused.errors, [RefusedPart { index: 3, detail: "e".to_owned() }]);
        assert!(matches!(client.post("/x", "{}"), Err(ClientError::Foreign { status: 500, .. })));
        assert!(matches!(client.post("/x", "{}"), Err(ClientError::Unreachable { .. })));
    }
}

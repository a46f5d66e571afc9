//! A client that distinguishes what was done, what was refused, and what may have been done.

use std::time::Duration;

use serde_json::Value;

/// The time after which a client gives up, longer than a loaded machine takes and shorter than a fault lasts.
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub enum Outcome {
    Done(Done),
    /// It has no effect. No node runs at that address.
    Unreached(#[allow(dead_code, reason = "shown when a check fails")] String),
    /// It has no effect: a node has refused it.
    Refused(#[allow(dead_code, reason = "shown when a check fails")] String),
    /// It may have an effect, now or later.
    Open(#[allow(dead_code, reason = "shown when a check fails")] String),
}

#[derive(Clone, Debug)]
pub struct Done {
    pub status: u16,
    /// The sequence up to which the write and all before it are applied; 0 in the answer to a read.
    pub sequence: u64,
    pub node: String,
    pub body: Value,
}

/// What a node answers to a load balancer.
pub enum Readiness {
    Ready,
    Leaving,
    /// It starts, or does not answer.
    Unknown,
}

#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
}

impl Client {
    pub fn new() -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT));
        Self { agent: config.build().new_agent() }
    }

    pub fn send(&self, method: &str, url: &str, body: &Value) -> Outcome {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = ureq::http::Request::builder().method(method).uri(url);
        self.ask(request.header("content-type", "application/json").body(text).unwrap())
    }

    /// Reads what a node has after it has applied a sequence.
    pub fn get_after(&self, sequence: u64, url: &str) -> Outcome {
        let request = ureq::http::Request::builder().uri(url).header("tidewire-after", sequence.to_string());
        self.ask(request.body(String::new()).unwrap())
    }

    pub fn get(&self, url: &str) -> Outcome {
        self.get_after(0, url)
    }

    pub fn readiness(&self, url: &str) -> Readiness {
        match self.get(&format!("{url}/readyz")) {
            Outcome::Done(Done { status: 200, .. }) => Readiness::Ready,
            Outcome::Refused(problem) if problem.contains("\"leaving\"") => Readiness::Leaving,
            _ => Readiness::Unknown,
        }
    }

    fn ask(&self, request: ureq::http::Request<String>) -> Outcome {
        let answer = match self.agent.run(request) {
            Ok(answer) => answer,
            Err(ureq::Error::Io(cause)) if cause.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Outcome::Unreached(cause.to_string());
            }
            Err(cause) => return Outcome::Open(cause.to_string()),
        };
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        let (status, sequence, node) = (answer.status().as_u16(), header("tidewire-sequence"), header("tidewire-node"));
        let text = match answer.into_body().read_to_string() {
            Ok(text) => text,
            Err(cause) => return Outcome::Open(cause.to_string()),
        };
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        match (status, body["code"].as_str()) {
            (503, Some("outcome_unknown")) => Outcome::Open(text),
            // A node that was paused takes the request for one that was not sent in time.
            (503 | 429 | 408, _) => Outcome::Refused(text),
            _ => Outcome::Done(Done { status, sequence: sequence.parse().unwrap_or(0), node, body }),
        }
    }
}

//! A client of a running server, for imports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use serde::Deserialize;
use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{Method, Request};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Times a request is sent before a server that keeps refusing for lack of room is given up.
const ATTEMPTS_MAX: u32 = 60;

/// Longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Sends JSON to a server.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    server: String,
    authorization: Option<String>,
}

/// Why a server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error("no answer from {server}: {cause}; is `tidewire serve` running there?")]
    Unreachable {
        /// Where.
        server: String,
        /// Why.
        cause: Box<ureq::Error>,
    },
    /// It is busy and stays so.
    #[error("{server} is still overloaded after {ATTEMPTS_MAX} attempts: {detail}")]
    Overloaded {
        /// Where.
        server: String,
        /// What it says.
        detail: String,
    },
    /// It answers something else than a server of this kind would.
    #[error("{server} answered {status}, which is no answer of a Tidewire server: {text}")]
    Foreign {
        /// Where.
        server: String,
        /// The status.
        status: u16,
        /// The beginning of the answer.
        text: String,
    },
}

/// A problem document, as far as an import needs it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refused {
    /// A stable name.
    pub code: String,
    /// What is wrong, for people.
    pub detail: String,
    /// What is wrong with each part of a bulk request.
    #[serde(default)]
    pub errors: Vec<RefusedPart>,
}

/// What is wrong with one part of a bulk request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RefusedPart {
    /// Which part, from 0.
    pub index: usize,
    /// What is wrong, for people.
    pub detail: String,
}

/// What a server said.
#[derive(Debug)]
pub enum Said {
    /// Done: the status and the answer.
    Done(u16, String),
    /// Refused, for a reason that will not go away.
    Refused(Refused),
}

/// Why the certificates of those who vouch for a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read, or not as PEM.
    #[error("{}: {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: pem::Error,
    },
    /// There is none in the file.
    #[error("{}: no certificate in it", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// The certificates in a PEM file, as the only ones to trust.
///
/// # Errors
/// Names the file.
pub fn trusted(file: &Path) -> Result<RootCerts, TrustError> {
    let unreadable = |cause| TrustError::Unreadable { file: file.to_owned(), cause };
    let certificates = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unreadable)?;
    if certificates.is_empty() {
        return Err(TrustError::Empty { file: file.to_owned() });
    }
    let certificates = certificates.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    Ok(RootCerts::new_with_certs(&certificates.collect::<Vec<_>>()))
}

impl Client {
    /// A client of the server at this address. If that is of `https`, one of `roots` has to vouch for it.
    pub fn new(server: &str, roots: RootCerts) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .tls_config(TlsConfig::builder().root_certs(roots).build());
        Self { agent: agent.build().new_agent(), server: server.trim_end_matches('/').to_owned(), authorization: None }
    }

    /// The same, by whom the server knows by this key.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { authorization: Some(format!("Bearer {key}")), ..self }
    }

    /// A client of a server inside this process, whatever proxy there is.
    pub fn within(address: SocketAddr) -> Self {
        let agent = Agent::config_builder().http_status_as_error(false).proxy(None);
        Self { agent: agent.build().new_agent(), server: format!("http://{address}"), authorization: None }
    }

    /// For an answer that is none of a server of this kind.
    pub fn foreign(&self, status: u16, text: &str) -> ClientError {
        ClientError::Foreign { server: self.server.clone(), status, text: text.chars().take(200).collect() }
    }

    /// Posts `json` to `path`, again and again while the server has no room.
    ///
    /// # Errors
    /// When there is no server, it stays overloaded, or it is something else.
    pub fn post(&self, path: &str, json: &str) -> Result<Said, ClientError> {
        self.send(&Method::POST, path, json)
    }

    /// Changes what is at `path` likewise.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub fn patch(&self, path: &str, json: &str) -> Result<Said, ClientError> {
        self.send(&Method::PATCH, path, json)
    }

    fn send(&self, method: &Method, path: &str, json: &str) -> Result<Said, ClientError> {
        let uri = format!("{}{path}", self.server);
        let mut detail = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let unreachable = |cause| ClientError::Unreachable { server: self.server.clone(), cause: Box::new(cause) };
            let request = Request::builder().method(method).uri(&uri).header(CONTENT_TYPE, "application/json");
            let request = match &self.authorization {
                Some(authorization) => request.header(AUTHORIZATION, authorization),
                None => request,
            };
            let request = request.body(json).map_err(|cause| unreachable(cause.into()))?;
            let mut response = self.agent.run(request).map_err(unreachable)?;
            let status = response.status().as_u16();
            let wait = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
            let text = response.body_mut().read_to_string().map_err(unreachable)?;
            if status < 300 {
                return Ok(Said::Done(status, text));
            }
            let Ok(refused) = serde_json::from_str::<Refused>(&text) else {
                return Err(self.foreign(status, &text));
            };
            match wait.map(Duration::from_secs) {
                None => return Ok(Said::Refused(refused)),
                Some(wait) => {
                    detail = refused.detail;
                    #[expect(clippy::disallowed_methods, reason = "a thread of the import, no actor's")]
                    std::thread::sleep(wait.min(WAIT_MAX));
                }
            }
        }
        Err(ClientError::Overloaded { server: self.server.clone(), detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    /// A server that gives the answers of a script, one to each connection, and then is gone.
    fn scripted(answers: &'static [&'static str]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
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
                reader.read_exact(&mut vec![0; length]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Client::new(&server, RootCerts::WebPki)
    }

    #[test]
    fn it_waits_while_the_server_has_no_room() {
        let client = scripted(&[
            "HTTP/1.1 503 x\r\nRetry-After: 0\r\nConnection: close\r\n\r\n{\"code\":\"overloaded\",\"detail\":\"full\"}",
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
        ]);
        assert!(matches!(client.post("/x", "{}").unwrap(), Said::Done(200, _)));
    }

    #[test]
    fn refusals_are_told_from_strangers_and_from_nobody() {
        const REFUSED: &str = "HTTP/1.1 422 x\r\nConnection: close\r\n\r\n\
            {\"code\":\"c\",\"detail\":\"d\",\"errors\":[{\"index\":3,\"code\":\"c\",\"detail\":\"e\"}]}";
        let client = scripted(&[REFUSED, "HTTP/1.1 500 x\r\nConnection: close\r\n\r\n<html>"]);
        let Said::Refused(refused) = client.post("/x", "{}").unwrap() else { panic!("a refusal was expected") };
        assert_eq!(refused.errors, [RefusedPart { index: 3, detail: "e".to_owned() }]);
        assert!(matches!(client.post("/x", "{}"), Err(ClientError::Foreign { status: 500, .. })));
        assert!(matches!(client.post("/x", "{}"), Err(ClientError::Unreachable { .. })));
    }
}

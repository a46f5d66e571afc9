//! An HTTP client of a running server, used by imports.

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

/// Maximum attempts for one request while the server answers that it is overloaded.
const ATTEMPTS_MAX: u32 = 60;

/// Longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A client that sends JSON to a server.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    server: String,
    authorization: Option<String>,
}

/// Why there is no usable answer from a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection to the server.
    #[error("no answer from {server}: {cause}; is `tidewire serve` running there?")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// The error of the HTTP client.
        cause: Box<ureq::Error>,
    },
    /// The server is still busy after all attempts.
    #[error("{server} is still overloaded after {ATTEMPTS_MAX} attempts: {detail}")]
    Overloaded {
        /// The address of the server.
        server: String,
        /// The detail of the last answer.
        detail: String,
    },
    /// The answer is not one of a Tidewire server.
    #[error("{server} answered {status}, which is no answer of a Tidewire server: {text}")]
    Foreign {
        /// The address of the server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the response body.
        text: String,
    },
}

/// A problem document, with the fields that an import needs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refused {
    /// The stable problem code.
    pub code: String,
    /// The description of the problem, for people.
    pub detail: String,
    /// One problem for each part of a bulk request that was refused.
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

/// Why the file of trusted certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read, or it is not valid PEM.
    #[error("{}: {cause}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The error of the PEM parser.
        cause: pem::Error,
    },
    /// The file has no certificate.
    #[error("{}: no certificate in it", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
    },
}

/// Reads the certificates of a PEM file, which become the only trusted roots.
///
/// # Errors
/// Every error names the file.
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
    /// Creates a client of the server at this URL. If it is an `https` URL, one of `roots` must have signed its certificate.
    pub fn new(server: &str, roots: RootCerts) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .tls_config(TlsConfig::builder().root_certs(roots).build());
        Self { agent: agent.build().new_agent(), server: server.trim_end_matches('/').to_owned(), authorization: None }
    }

    /// Returns the same client, which sends this key with every request.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { authorization: Some(format!("Bearer {key}")), ..self }
    }

    /// Creates a client of a server inside this process. It ignores any configured proxy.
    pub fn within(address: SocketAddr) -> Self {
        let agent = Agent::config_builder().http_status_as_error(false).proxy(None);
        Self { agent: agent.build().new_agent(), server: format!("http://{address}"), authorization: None }
    }

    /// Creates the error for an answer that is not one of a Tidewire server.
    pub fn foreign(&self, status: u16, text: &str) -> ClientError {
        ClientError::Foreign { server: self.server.clone(), status, text: text.chars().take(200).collect() }
    }

    /// Posts `json` to `path`, and repeats the request while the server is overloaded.
    ///
    /// # Errors
    /// If the server is unreachable, stays overloaded, or is not a Tidewire server.
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

    fn send(&self, method: &Method, path: &str, json: &str) -> Result<ServerResponse, ClientError> {
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
                return Ok(ServerResponse::Done(status, text));
            }
            let Ok(refused) = serde_json::from_str::<Refused>(&text) else {
                return Err(self.foreign(status, &text));
            };
            match wait.map(Duration::from_secs) {
                None => return Ok(ServerResponse::Refused(refused)),
                Some(wait) => {
                    detail = refused.detail;
                    #[expect(clippy::disallowed_methods, reason = "this is an import thread, not an actor")]
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

    /// Starts a server that gives the scripted answers, one for each connection, and then closes its listener.
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
        assert!(matches!(client.post("/x", "{}").unwrap(), ServerResponse::Done(200, _)));
    }

    #[test]
    fn refusals_are_told_from_strangers_and_from_nobody() {
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

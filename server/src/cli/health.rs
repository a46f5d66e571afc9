//! `tidewire health`: asks a server if it is ready, for health checks of containers and scripts.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::TlsConfig;

use crate::cli::client::{advice_of_certificate, advice_of_tls};
use crate::cli::server_access::{CaFile, ServerUrl};
use crate::cli::settings::{Settings, listen_address, reachable};
use crate::cli::{Outcome, terminal, tls_connector};

/// Maximum time for the answer. Docker and others abort a health check that exceeds their own limit.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Arguments of `tidewire health`.
#[derive(Debug, clap::Args)]
pub(crate) struct Health {
    /// URL of the server [default: the address that the settings name, on this machine]
    #[arg(long, value_name = "URL")]
    server: Option<ServerUrl>,

    #[command(flatten)]
    ca_file: CaFile,

    /// Address and port that the server listens on [default: 127.0.0.1:8080]
    #[arg(long, env = "TIDEWIRE_LISTEN", value_parser = listen_address, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// TOML file with the options of the server
    #[arg(long, env = "TIDEWIRE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Certificate of the server, if it serves over TLS
    #[arg(long, env = "TIDEWIRE_TLS_CERT", value_name = "FILE", hide = true)]
    tls_cert: Option<PathBuf>,

    /// Check only that the process answers; it also does during recovery, and with a full or failed disk
    #[arg(long)]
    live: bool,

    /// Print one JSON document, even without an answer
    #[arg(long)]
    json: bool,
}

/// The answer of a server.
struct Answer {
    status: u16,
    text: String,
}

impl Answer {
    fn is_healthy(&self) -> bool {
        self.status == 200
    }

    /// Returns `{"healthy":…,"status":…,"answer":…}`. An answer that is not JSON, such as from a proxy, becomes a string.
    fn document(&self) -> Value {
        let answer = serde_json::from_str(&self.text).unwrap_or_else(|_| Value::from(self.text.as_str()));
        json!({"healthy": self.is_healthy(), "status": self.status, "answer": answer})
    }
}

impl Health {
    pub(crate) fn run(self) -> Outcome {
        if self.server.is_none() && self.ca_file.of_option().is_some() {
            let why = "--ca-file needs --server: on this machine any certificate is accepted";
            return Ok(terminal::refuse(why));
        }
        let json = self.json;
        match self.ask() {
            Ok(answer) => {
                if json {
                    terminal::print_json(&answer.document());
                } else {
                    terminal::print_line(&format!("{} {}", answer.status, answer.text));
                }
                Ok(if answer.is_healthy() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Err(cause) if json => {
                let error = terminal::message_of(&*cause);
                terminal::print_json(&json!({"healthy": false, "status": null, "answer": null, "error": error}));
                Ok(ExitCode::FAILURE)
            }
            Err(cause) => Err(cause),
        }
    }

    fn ask(self) -> Result<Answer, Box<dyn Error>> {
        // Check for writes: a server that refuses all writes is not healthy, even if it is ready for reads.
        let path = if self.live { "/healthz" } else { "/readyz?for=writes" };
        let is_named = self.server.is_some() || self.config.is_some() || self.listen.is_some();
        let (server, tls, trusted) = match self.server {
            Some(ServerUrl(server)) => {
                let trusted = self.ca_file.trusted(&server)?;
                (server.trim_end_matches('/').to_owned(), TlsConfig::builder(), trusted)
            }
            None => {
                let file = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
                let settings = Settings { listen: self.listen, tls_cert: self.tls_cert, ..Settings::default() };
                let settings = settings.or(&file);
                // The certificate is for the public name of the server, not for this address. The request contains no secret.
                let tls = TlsConfig::builder().disable_verification(true);
                (local_url(settings.listen(), settings.tls_cert.is_some()), tls, None)
            }
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .proxy(None)
            .tls_config(tls.build())
            .build();
        let has_ca_file = trusted.is_some();
        let agent = match trusted {
            Some(trusted) => tls_connector::agent(config, trusted),
            None => config.new_agent(),
        };
        let answer = agent.get(format!("{server}{path}")).call();
        let no_answer = |cause: ureq::Error| {
            let elsewhere =
                if is_named { "" } else { "; name its settings with --config, or the server with --server" };
            let of_certificate = || advice_of_certificate(&cause, has_ca_file);
            let advice = advice_of_tls(&server, &cause).or_else(of_certificate).unwrap_or(elsewhere);
            format!("no answer from {server}: {cause}{advice}")
        };
        let mut response = answer.map_err(no_answer)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        Ok(Answer { status, text: text.trim().to_owned() })
    }
}

/// Returns the URL by which this machine reaches a server that listens on `listen`.
fn local_url(listen: SocketAddr, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    format!("{scheme}://{}", reachable(listen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_checked_on_loopback() {
        let cases = [
            ("127.0.0.1:8080", false, "http://127.0.0.1:8080"),
            ("0.0.0.0:8443", true, "https://127.0.0.1:8443"),
            ("[::]:8080", false, "http://[::1]:8080"),
            ("192.0.2.7:80", false, "http://192.0.2.7:80"),
        ];
        for (listen, has_tls, expected) in cases {
            assert_eq!(local_url(listen.parse().unwrap(), has_tls), expected);
        }
    }
}

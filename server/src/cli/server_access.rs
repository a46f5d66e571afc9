//! The connection of commands to a running server: its URL, the key, the certificates to trust.
//!
//! There is no option for the key itself, because every user of the machine can see the arguments of a command.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use ureq::http::Uri;

use crate::cli::client::Client;
use crate::cli::keys;
use crate::cli::settings::DurationArg;
use crate::http::trust;

/// The variable with the file of certificates to trust.
const CA_FILE: &str = "TIDEWIRE_CA_FILE";

/// The variable with a key or a token.
const KEY: &str = "TIDEWIRE_KEY";

/// The server of commands without `--server`.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// The URL of a server. `localhost:8080` means `http`, and `:8080` this machine. URLs of other machines must have a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl(pub(super) String);

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = match text {
            _ if text.contains("://") => text.to_owned(),
            _ if text.starts_with(':') => format!("http://127.0.0.1{text}"),
            _ => format!("http://{text}"),
        };
        // Another machine would receive the key in plain text, so its URL must have a scheme.
        let is_whole_url = text.contains("://");
        if !is_whole_url && url.parse::<Uri>().is_ok_and(|url| !is_of_this_machine(&url)) {
            return Err(format!("{text:?} has no scheme; write it as https://{text}"));
        }
        let names_host =
            url.split_once("://").is_some_and(|(_, rest)| !rest.starts_with(['/', ':']) && !rest.is_empty());
        let is_url = names_host
            && url.parse::<Uri>().is_ok_and(|parsed| {
                let is_whole = parsed.authority().is_some_and(|authority| !authority.as_str().ends_with(':'));
                is_whole && matches!(parsed.scheme_str(), Some("http" | "https"))
            });
        let wrong = || {
            format!("{text:?} is not the address of a server; write it as https://feeds.example.org or localhost:8080")
        };
        if is_url { Ok(Self(url)) } else { Err(wrong()) }
    }
}

fn is_of_this_machine(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The certificates that a client trusts.
#[derive(Debug, Clone, clap::Args)]
pub struct CaFile {
    /// PEM file with the certificates that are trusted for an https server: that of its authority, or its own if it is self-signed [default: those of public authorities]
    #[arg(long, env = CA_FILE, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl CaFile {
    /// Returns the file if the option names it. The variable may be meant for other servers than that of one command.
    pub(super) fn of_option(&self) -> Option<&Path> {
        let of_variable = std::env::var_os(CA_FILE).map(PathBuf::from);
        self.ca_file.as_deref().filter(|file| of_variable.as_deref() != Some(file))
    }

    /// Returns the TLS configuration for a server, or none if public authorities are trusted.
    ///
    /// # Errors
    /// If the file cannot be used, or if the option is used with an `http` URL.
    pub(super) fn trusted(&self, server: &str) -> Result<Option<Arc<ClientConfig>>, Box<dyn Error>> {
        let is_plaintext = server.parse::<Uri>().is_ok_and(|url| url.scheme_str() == Some("http"));
        if is_plaintext && self.of_option().is_some() {
            return Err(format!("--ca-file is for https, and {server} is http").into());
        }
        Ok(self.ca_file.as_deref().map(trust::trusted).transpose()?)
    }
}

/// Credentials and certificates that a client needs besides the URL of a server.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerAccess {
    /// File with a key of that server, or a user's token; TIDEWIRE_KEY may contain the key itself
    #[arg(long, env = "TIDEWIRE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,

    #[command(flatten)]
    ca_file: CaFile,
}

impl ServerAccess {
    /// Creates a client of a running server. Without a URL, it uses `TIDEWIRE_SERVER` or the default.
    ///
    /// # Errors
    /// If a file cannot be used, or if the variable is not a URL.
    pub(crate) fn client(&self, server: Option<ServerUrl>) -> Result<Client, Box<dyn Error>> {
        let ServerUrl(server) = server.map_or_else(default_server, Ok)?;
        let client = Client::new(&server, self.ca_file.trusted(&server)?);
        Ok(match self.key()? {
            Some(key) => client.with_key(&key),
            None => client,
        })
    }

    /// Returns the key in the file, or the variable if no file is named.
    fn key(&self) -> Result<Option<String>, String> {
        let (key, place) = match &self.key_file {
            Some(file) => (keys::secret(file)?, file.display().to_string()),
            None => {
                let set = std::env::var(KEY).unwrap_or_default();
                (set.trim().to_owned(), KEY.to_owned())
            }
        };
        if key.is_empty() {
            return if self.key_file.is_some() { Err(format!("{place} has no key")) } else { Ok(None) };
        }
        // Other characters cannot be sent. The message has only the first of them, because the key is secret.
        match key.chars().enumerate().find(|(_, character)| !character.is_ascii_graphic()) {
            Some((nth, character)) => Err(format!(
                "{place} has neither a key nor a token: each is one word of ASCII characters, and character {} is {character:?}",
                nth + 1
            )),
            None => Ok(Some(key)),
        }
    }
}

/// Returns the default server. This is not a default of clap, because the environment variable must not conflict with `--data-dir`.
fn default_server() -> Result<ServerUrl, String> {
    let set = std::env::var("TIDEWIRE_SERVER").ok().filter(|server| !server.is_empty());
    set.as_deref().unwrap_or(DEFAULT_SERVER).parse().map_err(|cause| format!("TIDEWIRE_SERVER: {cause}"))
}

/// The server of a command that sends a few requests.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Remote {
    /// Server to send the command to [env: TIDEWIRE_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    server: Option<ServerUrl>,

    #[command(flatten)]
    access: ServerAccess,

    /// Time after which the command gives up, even while the server is overloaded; it does not end a connected watch
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: DurationArg,
}

/// Minimum time for a command.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

impl Remote {
    pub(crate) fn client(&self) -> Result<Client, Box<dyn Error>> {
        Ok(self.access.client(self.server.clone())?.giving_up_after(self.timeout.0.max(TIMEOUT_MIN)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_without_exactly_one_key_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let access = ServerAccess { key_file: Some(file.path().to_owned()), ca_file: CaFile { ca_file: None } };
        for (text, expected) in [
            (" tidewire_key\r\n", Ok("tidewire_key")),
            ("", Err("has no key")),
            ("first\nsecond\n", Err("character 6 is '\\n'")),
            ("a key", Err("character 2 is ' '")),
            ("\u{feff}key", Err("character 1 is '\\u{feff}'")),
        ] {
            std::fs::write(file.path(), text).unwrap();
            match (access.key(), expected) {
                (Ok(key), Ok(expected)) => assert_eq!(key.as_deref(), Some(expected)),
                (Err(cause), Err(part)) => {
                    let is_named = cause.starts_with(file.path().to_str().unwrap());
                    assert!(is_named && cause.contains(part) && !cause.contains("second"), "{cause}");
                }
                (key, _) => panic!("{text:?}: {key:?}"),
            }
        }
    }

    #[test]
    fn a_server_url_may_be_abbreviated() {
        for (text, url) in [
            (":8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://localhost:8080"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://feeds.example.org", "http://feeds.example.org"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("https://feeds.example.org/", "https://feeds.example.org/"),
        ] {
            assert_eq!(text.parse(), Ok(ServerUrl(url.to_owned())), "{text}");
        }
        for text in [
            "",
            ":",
            "http://",
            "ftp://a",
            "a b",
            "https://:80",
            "feeds.example.org",
            "192.0.2.1:8080",
            "a@feeds.example.org",
            "localhost@b",
        ] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}

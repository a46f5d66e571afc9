//! `tidewire token` and `tidewire key`: create the credentials of requests.
//!
//! Secrets are read from files, because every user of the machine can see the arguments of a command.

use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal as _, Write as _, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::bounded::read_text;
use crate::cli::settings::DurationArg;
use crate::cli::{Outcome, terminal};
use crate::http::auth::access_file::{self, ACCESS_FILE_BYTES_MAX, check_name};
use crate::http::auth::key::KeyScope;
use crate::http::auth::mint::{self, Scope, Signer, Wanted};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::id::SourceId;

/// Maximum bytes of a file with a secret.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Maximum lifetime of a token.
const EXPIRES_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Arguments of `tidewire token`.
#[derive(Debug, clap::Args)]
pub(crate) struct Token {
    /// User that the token authenticates
    user: SourceId,

    #[command(flatten)]
    signer: SignedBy,

    /// Lifetime of the token
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    expires: DurationArg,

    /// Scope of the token: read only, or read and write [default: write]
    #[arg(long)]
    scope: Option<Scope>,

    /// Audience of the token, if the access file requires one by `audience`
    #[arg(long, value_name = "AUDIENCE")]
    audience: Option<String>,

    /// Id of the signing key, if the access file names one by `kid`
    #[arg(long, value_name = "KID")]
    kid: Option<String>,

    /// Print a JSON document with the token
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct SignedBy {
    /// File with the secret of an HS256 key in base64, as in the access file
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// File with the private key of an EdDSA key, as `openssl genpkey -algorithm ed25519` writes it
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
}

/// Arguments of `tidewire key`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The key goes to the standard output, and its entry into the access file, or to the standard error:\n  (umask 077; tidewire key backend --access access.toml > backend.key)\nNames in an access file must differ, so give a key that replaces another one a new name."
)]
pub(crate) struct Key {
    /// Name of the key in the access file
    name: String,

    /// Scope of the key
    #[arg(long, default_value = "all")]
    scope: KeyScope,

    /// Access file to which the entry of the key is added; created if missing
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,

    /// Print key and entry as one JSON document to the standard output
    #[arg(long)]
    json: bool,
}

impl Token {
    pub(crate) fn run(self) -> Outcome {
        let Self { user, signer, expires: DurationArg(lasts), scope, audience, kid, json } = self;
        if !user.is_user() {
            return Ok(terminal::refuse(&format!("{} is not a user: tokens are for users", user.as_str())));
        }
        if lasts < Duration::from_secs(1) || lasts > EXPIRES_MAX {
            return Ok(terminal::refuse("--expires: from 1s to 10 years"));
        }
        let signer_from = |file: &Path, signer: fn(&str) -> Result<Signer, String>| {
            signer(&secret(file)?).map_err(|cause| format!("{}: {cause}", file.display()))
        };
        let signer = match (&signer.secret_file, &signer.private_key) {
            (Some(file), _) => signer_from(file, Signer::hs256)?,
            (None, Some(file)) => signer_from(file, Signer::ed_dsa)?,
            (None, None) => return Ok(terminal::refuse("name --secret-file or --private-key")),
        };
        let (audience, kid) = (audience.as_deref(), kid.as_deref());
        let wanted = Wanted { user: &user, scope, audience, kid, from: SystemClock.now(), lasts };
        let token = signer.token(wanted)?;
        match json {
            true => terminal::print_json(
                &json!({"user": user.as_str(), "token": token, "expires_in_seconds": lasts.as_secs()}),
            ),
            false => terminal::print_line(&token),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Key {
    pub(crate) fn run(self) -> Outcome {
        if let Err(wrong) = check_name(&self.name) {
            return Ok(terminal::refuse(&wrong));
        }
        let key = mint::server_key()?;
        let entry = mint::server_key_entry(&self.name, &key, self.scope);
        if let Some(file) = &self.access {
            add_entry(file, &entry)?;
        }
        if self.json {
            terminal::print_json(&json!({"name": self.name, "key": key, "entry": entry}));
            return Ok(ExitCode::SUCCESS);
        }
        // The entry goes to the other stream, so that `> backend.key` writes only the key, and `2>> access.toml` never writes it.
        let is_seen = stdout().is_terminal() && stderr().is_terminal();
        if is_seen {
            terminal::warn("The key, which is not stored and not shown again:");
        }
        terminal::print_line(&key);
        if self.access.is_none() {
            if is_seen {
                terminal::warn("\nIts entry for the access file:");
            }
            terminal::warn(&format!("\n{entry}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Adds an entry to an access file, after checking the file together with the entry.
fn add_entry(file: &Path, entry: &str) -> Result<(), String> {
    let failed = |cause: &dyn std::fmt::Display| format!("{}: {cause}", file.display());
    let before = match read_text(file, ACCESS_FILE_BYTES_MAX) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|cause| failed(&cause))?,
    };
    let added = if before.is_empty() { entry.to_owned() } else { format!("\n{entry}") };
    access_file::keys(&format!("{before}{added}")).map_err(|cause| failed(&cause))?;
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written =
        options.open(file).and_then(|mut file| file.write_all(added.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|cause| failed(&cause))
}

/// Reads the secret in a file, without surrounding white space.
///
/// # Errors
/// If the file cannot be read, or is larger than [`SECRET_FILE_BYTES_MAX`]: a truncated secret would be a different one.
pub(crate) fn secret(file: &Path) -> Result<String, String> {
    let text =
        read_text(file, SECRET_FILE_BYTES_MAX).map_err(|cause| format!("cannot read {}: {cause}", file.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_complete_file_or_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, is_read) in [(8, true), (SECRET_FILE_BYTES_MAX, true), (SECRET_FILE_BYTES_MAX + 1, false)] {
            let text = format!("{}\n", "k".repeat(bytes as usize - 1));
            std::fs::write(file.path(), &text).unwrap();
            assert_eq!(secret(file.path()).ok().as_deref(), is_read.then_some(text.trim()), "{bytes} bytes");
        }
    }
}

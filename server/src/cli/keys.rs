//! `tidewire token` and `tidewire key`: create the credentials that requests are sent with.
//!
//! Secrets are read from files, because every user of the machine can see the arguments of a command.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::settings::Span;
use crate::cli::{Outcome, terminal};
use crate::http::auth::access_file::check_name;
use crate::http::auth::keys::KeyScope;
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

    /// How long the token is valid
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    expires: Span,

    /// Scope of the token: read only, or read and write [default: both]
    #[arg(long)]
    scope: Option<Scope>,

    /// Audience of the token, if the access file requires one by `audience`
    #[arg(long, value_name = "AUDIENCE")]
    audience: Option<String>,

    /// Id of the signing key, if the access file names one by `kid`
    #[arg(long, value_name = "KID")]
    kid: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct SignedBy {
    /// File with the secret of an HS256 key in base64, as the access file has it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// File with the private key of an EdDSA key, as `openssl genpkey -algorithm ed25519` writes it
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
}

/// Arguments of `tidewire key`.
#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// Name of the key in the access file
    name: String,

    /// Scope of the key
    #[arg(long, default_value = "all")]
    scope: KeyScope,
}

impl Token {
    pub(crate) fn run(self) -> Outcome {
        let Self { user, signer, expires: Span(lasts), scope, audience, kid } = self;
        if !user.is_user() {
            return Ok(terminal::refuse(&format!("{} is a tag or a topic: tokens are for users", user.as_str())));
        }
        if lasts < Duration::from_secs(1) || lasts > EXPIRES_MAX {
            return Ok(terminal::refuse("--expires: from 1s to 10 years"));
        }
        let signer_from = |file: &Path, signer: fn(&str) -> Result<Signer, String>| {
            let secret = secret(file).map_err(|cause| format!("cannot read {}: {cause}", file.display()))?;
            signer(&secret).map_err(|cause| format!("{}: {cause}", file.display()))
        };
        let signer = match (&signer.secret_file, &signer.private_key) {
            (Some(file), _) => signer_from(file, Signer::hs256)?,
            (None, Some(file)) => signer_from(file, Signer::ed_dsa)?,
            (None, None) => return Ok(terminal::refuse("name --secret-file or --private-key")),
        };
        let (audience, kid) = (audience.as_deref(), kid.as_deref());
        let wanted = Wanted { user: &user, scope, audience, kid, from: SystemClock.now(), lasts };
        terminal::print_line(&signer.token(wanted)?);
        Ok(ExitCode::SUCCESS)
    }
}

impl Key {
    pub(crate) fn run(self) -> Outcome {
        if let Err(wrong) = check_name(&self.name) {
            return Ok(terminal::refuse(&wrong));
        }
        let key = mint::server_key()?;
        // Printed to standard error, because standard output is often redirected to a file.
        terminal::warn("The key, which is kept nowhere and not shown again:");
        terminal::warn(&key);
        terminal::warn("What the access file has of it, on the standard output:");
        terminal::print_line(&format!("\n{}", mint::server_key_entry(&self.name, &key, self.scope)));
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads the secret in a file, without surrounding white space.
pub(crate) fn secret(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

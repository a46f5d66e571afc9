//! Commands that call a running server: `tidewire feed`, `publish`, `follow`, `unfollow`, `explain`, `watch`, `stats`.
//!
//! Responsible for:
//! - their arguments and their output: text for people, or with `--json` one document per line for programs.

#[cfg(feature = "cluster")]
pub(crate) mod cluster_status;
pub(crate) mod entry;
pub(crate) mod explain;
pub(crate) mod feed;
pub(crate) mod follow;
pub(crate) mod publish;
mod screen;
pub(crate) mod stats;
pub(crate) mod watch;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use crate::cli::client::{Client, ClientError, OUTCOME_UNKNOWN, Refused, ServerResponse};
use crate::cli::server_access::Remote;
use crate::cli::{Outcome, exit, terminal};
use tidewire::id::SourceId;

/// The server of a call, and the form of its output.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Call {
    /// Print JSON for programs, one document per line; errors go to standard error as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: Remote,
}

/// Characters of user ids are not encoded, because people read them in errors.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b':').remove(b'@').remove(b'~').remove(b'-');

/// Encodes an id as a part of a path. The names of tags and topics may contain any characters.
fn in_path(id: &SourceId) -> PercentEncode<'_> {
    utf8_percent_encode(id.as_str(), ENCODED)
}

impl Call {
    /// Runs a command with a client of the server, and reports its error in the requested form.
    fn run(&self, command: impl FnOnce(&Client) -> Outcome) -> Outcome {
        let outcome = self.remote.client().and_then(|client| command(&client));
        match outcome {
            Err(cause) if self.json => {
                let refused = cause.downcast_ref::<Refused>();
                let message = refused.map_or_else(|| terminal::message_of(&*cause), |refused| refused.detail.clone());
                let (refused, of_client) = match cause.downcast_ref() {
                    Some(ClientError::OutcomeUnknown { .. }) => (None, Some(OUTCOME_UNKNOWN)),
                    Some(ClientError::StillRefused { refused, .. }) => (Some(&**refused), None),
                    _ => (refused, None),
                };
                let code = refused.map(|refused| refused.code.as_str()).or(of_client);
                let status = refused.map(|refused| refused.status);
                terminal::warn(&json!({"error": message, "code": code, "status": status}).to_string());
                Ok(exit::code_of(&*cause))
            }
            outcome => outcome,
        }
    }
}

/// Returns the status and the body of an answer, or the refusal as an error.
fn done(response: Result<ServerResponse, ClientError>) -> Result<(u16, String), Box<dyn Error>> {
    match response? {
        ServerResponse::Done(status, text) => Ok((status, text)),
        ServerResponse::Refused(refused) => Err(refused.into()),
    }
}

/// Parses an answer.
fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Box<dyn Error>> {
    serde_json::from_str(text)
        .map_err(|cause| format!("the answer is not one of this version of Tidewire: {cause}").into())
}

/// Returns the outcome of printing. A closed pipe is a success, because its reader wants no more.
pub(super) fn printed(outcome: io::Result<()>) -> Outcome {
    if !terminal::is_enough(&outcome) {
        outcome.map_err(|cause| format!("cannot write: {cause}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

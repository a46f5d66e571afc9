//! The exit codes of commands.

use std::error::Error;
use std::process::ExitCode;

use crate::cli::client::{ClientError, OUTCOME_UNKNOWN, Refused};
use crate::cli::in_order::{StopCause, Stopped};

/// The server did not answer in time, or refused all attempts for a temporary reason. A later attempt may succeed.
const NO_ANSWER: u8 = 3;

/// The server does not know this name.
const NOT_FOUND: u8 = 4;

/// The key or token is missing, invalid or not sufficient.
const DENIED: u8 = 5;

/// Returns the exit code for an error.
pub(super) fn code_of(cause: &(dyn Error + 'static)) -> ExitCode {
    let (no_answer, refused) = match cause.downcast_ref::<Stopped>().map(|stopped| &stopped.cause) {
        Some(StopCause::NoAnswer(cause)) => (Some(cause), None),
        Some(StopCause::Refused(refused)) => (None, Some(refused)),
        None => (cause.downcast_ref::<ClientError>(), cause.downcast_ref::<Refused>()),
    };
    match (no_answer, refused) {
        // A `ClientError::OutcomeUnknown` is none of these, because a retry may do it twice.
        (Some(ClientError::Unreachable { .. } | ClientError::StillRefused { .. } | ClientError::Silent { .. }), _) => {
            NO_ANSWER.into()
        }
        // The outcome is unknown, so a retry may do it twice.
        (_, Some(refused)) if refused.code == OUTCOME_UNKNOWN => ExitCode::FAILURE,
        (_, Some(Refused { status: 429 | 503, .. })) => NO_ANSWER.into(),
        (_, Some(Refused { status: 401 | 403, .. })) => DENIED.into(),
        (_, Some(Refused { status: 404, .. })) => NOT_FOUND.into(),
        _ => ExitCode::FAILURE,
    }
}

//! Errors of Cassandra: temporary and permanent ones.

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

use tidewire::storage::archive::ArchiveError;

/// Returns the error for a statement that failed.
pub(super) fn error(action: &'static str, place: &str, cause: &ExecutionError) -> ArchiveError {
    let lasts = match cause {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => lasts(error),
        ExecutionError::LastAttemptError(
            RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_),
        )
        | ExecutionError::BadQuery(_) => true,
        ExecutionError::PrepareError(cause) => return prepare_error(action, place, cause),
        _ => false,
    };
    if lasts {
        return failed(action, place, cause.clone());
    }
    unavailable(action, place, with_causes(cause))
}

/// Returns the error for a statement that could not be prepared.
pub(super) fn prepare_error(action: &'static str, place: &str, cause: &PrepareError) -> ArchiveError {
    match cause {
        PrepareError::AllAttemptsFailed { first_attempt: RequestAttemptError::DbError(error, _) } if lasts(error) => {
            failed(action, place, cause.clone())
        }
        _ => unavailable(action, place, with_causes(cause)),
    }
}

/// Returns the error for an operation that may succeed later. The action is a verb that is followed by "it", the archive.
pub(super) fn unavailable(action: &'static str, place: &str, why: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Unavailable { place: place.to_owned(), why: format!("failed to {action} it: {why}") }
}

pub(super) fn failed(
    action: &'static str,
    place: &str,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> ArchiveError {
    ArchiveError::Failed { action, place: place.to_owned(), source: Box::new(cause) }
}

/// Returns true if the same statement will fail again: the tables have changed, or the user lacks a permission.
fn lasts(error: &DbError) -> bool {
    matches!(
        error,
        DbError::SyntaxError
            | DbError::Invalid
            | DbError::AlreadyExists { .. }
            | DbError::FunctionFailure { .. }
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::ProtocolError
    )
}

/// Returns the text of an error, followed by the causes that it does not contain.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        cause = next.source();
    }
    text
}

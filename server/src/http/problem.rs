//! Problem documents (RFC 9457): the format of every error response.

use std::fmt;
use std::ops::RangeInclusive;

use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
use serde_json::{Map, Value, json};
use tracing::warn;

use tidewire::error::{Error, FollowRefusal};
use tidewire::limits::QUARANTINE;

/// Range of the `Retry-After` seconds for requests that are refused for lack of capacity. Each response has a random value of it.
const RETRY_SECONDS: RangeInclusive<u64> = 1..=3;

/// The detail for users: the cause may contain file names and other internal data.
const FAILED_INSIDE: &str = "internal error; the server's log has the cause";

/// The detail while the archive of old posts is unavailable.
const ARCHIVE_UNAVAILABLE: &str = "the archive of old posts does not answer now; try again";

/// An error response. The fields are boxed to keep the size of `Result` small for successful requests.
#[derive(Debug, Clone)]
pub struct Problem(Box<ProblemFields>);

#[derive(Debug, Clone)]
struct ProblemFields {
    status: StatusCode,
    code: &'static str,
    detail: String,
    /// The cause of an internal failure, which is never shown to users.
    inside: Option<String>,
    /// The JSON field, path part or query parameter that is invalid.
    field: Option<String>,
    /// The errors of the entries of a bulk request.
    errors: Vec<Value>,
    allow: Option<String>,
    upgrade: Option<&'static str>,
    closes: bool,
    authenticate: Option<&'static str>,
    /// The encodings of bodies that the server can read.
    accept_encoding: Option<&'static str>,
    retry_after_seconds: Option<u64>,
    /// Further members of the document.
    members: Vec<(&'static str, Value)>,
}

impl Problem {
    /// Creates a problem with a stable `code` for programs and a `detail` for people.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemFields {
            status,
            code,
            detail: detail.into(),
            inside: None,
            field: None,
            errors: Vec::new(),
            allow: None,
            upgrade: None,
            closes: false,
            authenticate: None,
            accept_encoding: None,
            retry_after_seconds: None,
            members: Vec::new(),
        }))
    }

    /// Creates a problem with status 400 (Bad Request).
    pub fn bad(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Names the field, path part or query parameter that is invalid.
    #[must_use]
    pub fn of_field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// Adds a machine-readable member to the document.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.0.members.push((name, value));
        self
    }

    /// Creates a problem for an unexpected internal failure, with status 500.
    pub fn internal(cause: &dyn fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", FAILED_INSIDE).because(cause.to_string())
    }

    /// Sets the cause, which replaces the detail in the log and for the server's owner.
    #[must_use]
    fn because(mut self, inside: String) -> Self {
        self.0.inside = Some(inside);
        self
    }

    /// Returns the cause of an internal failure, if there is one.
    pub(super) fn inside(&self) -> Option<&str> {
        self.0.inside.as_deref()
    }

    /// Returns the problem of a response if it reports an internal failure.
    pub(super) fn of_failure(answered: &ServiceResponse) -> Option<&Self> {
        let problem = answered.response().error().and_then(|cause| cause.as_error::<Self>());
        problem.filter(|problem| problem.inside().is_some())
    }

    /// Replaces the detail with the internal cause. Only for the server's owner and the log.
    #[must_use]
    pub(super) fn in_full(mut self) -> Self {
        if let Some(inside) = self.0.inside.take() {
            self.0.detail = inside;
        }
        self
    }

    /// Creates a problem for an unknown path, with status 404.
    pub fn not_found(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("nothing is served at {path}"))
    }

    /// Creates a problem for a method that the path does not support; `allow` lists the supported methods.
    pub fn method_not_allowed(method: &str, allow: String) -> Self {
        let detail = format!("{method} is not served here; use {allow}");
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
        problem.0.allow = Some(allow);
        problem
    }

    /// Sets the `Upgrade` header: the protocol that the client must use.
    #[must_use]
    pub fn upgrade(mut self, protocol: &'static str) -> Self {
        self.0.upgrade = Some(protocol);
        self
    }

    /// Sets the `Accept-Encoding` header: the encodings of bodies that the server can read.
    #[must_use]
    pub(super) fn accept_encoding(mut self, encodings: &'static str) -> Self {
        self.0.accept_encoding = Some(encodings);
        self
    }

    /// Sets the `WWW-Authenticate` header: the authentication scheme that the client must use.
    #[must_use]
    pub fn authenticate(mut self, scheme: &'static str) -> Self {
        self.0.authenticate = Some(scheme);
        self
    }

    /// Closes the connection after the response, because the rest of the request cannot be distinguished from the next request.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.0.closes = true;
        self
    }

    /// Sets a `Retry-After` of a few seconds. The value is random, so that not all clients retry in the same second.
    #[must_use]
    pub fn retry_soon(self) -> Self {
        self.retry_after(fastrand::u64(RETRY_SECONDS))
    }

    /// Returns the stable code of the problem.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// Returns the description of the problem, for people.
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Sets the `Retry-After` header, in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    /// Creates a problem with status 503 (Service Unavailable).
    pub(super) fn unavailable(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }

    /// Returns the document for one part of a response. A part has no headers, so the document contains the seconds of `Retry-After`.
    pub(super) fn entry(&self) -> Value {
        let mut document = self.document();
        if let Some(seconds) = self.0.retry_after_seconds {
            document["retry_after"] = json!(seconds);
        }
        document
    }

    fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("type".to_owned(), json!("about:blank"));
        document.insert("title".to_owned(), json!(self.0.status.canonical_reason().unwrap_or("Error")));
        document.insert("status".to_owned(), json!(self.0.status.as_u16()));
        document.insert("code".to_owned(), json!(self.0.code));
        document.insert("detail".to_owned(), json!(self.0.detail));
        if let Some(field) = &self.0.field {
            document.insert("field".to_owned(), json!(field));
        }
        if !self.0.errors.is_empty() {
            document.insert("errors".to_owned(), Value::Array(self.0.errors.clone()));
        }
        document.extend(self.0.members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Value::Object(document)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.status.as_u16(), self.0.code, self.0.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.0.status);
        response.content_type("application/problem+json").insert_header((CACHE_CONTROL, "no-store"));
        if let Some(allow) = &self.0.allow {
            response.insert_header((ALLOW, allow.as_str()));
        }
        if let Some(protocol) = self.0.upgrade {
            response.insert_header((UPGRADE, protocol));
        }
        if let Some(scheme) = self.0.authenticate {
            response.insert_header((WWW_AUTHENTICATE, scheme));
        }
        if let Some(encodings) = self.0.accept_encoding {
            response.insert_header((ACCEPT_ENCODING, encodings));
        }
        if self.0.closes {
            response.force_close();
        }
        if let Some(seconds) = self.0.retry_after_seconds {
            response.insert_header((RETRY_AFTER, seconds));
        }
        response.body(self.document().to_string())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::UnknownPost(_) | Error::UnknownSource(_) | Error::UnknownList { .. } => StatusCode::NOT_FOUND,
            Error::FollowsRefused { refusals, .. } if refusals.iter().all(|(_, refusal)| refusal.is_forbidden()) => {
                StatusCode::FORBIDDEN
            }
            Error::PostIdTaken(_) | Error::PostDeleted(_) | Error::BeingErased { .. } => StatusCode::CONFLICT,
            Error::InvalidDraft { .. }
            | Error::Oneself { .. }
            | Error::TooMany { .. }
            | Error::PublishedInFuture { .. }
            | Error::NotAUser { .. }
            | Error::FollowsRefused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Full { .. } | Error::DiskFull(_) => StatusCode::INSUFFICIENT_STORAGE,
            Error::NoDataDirectory => StatusCode::CONFLICT,
            Error::ReaderCrashed(_) | Error::SnapshotFailed(_) | Error::ArchiveFailed(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Error::Overloaded { .. }
            | Error::NodeBehind
            | Error::ShuttingDown
            | Error::JournalFailed(_)
            | Error::OutOfFiles(_)
            | Error::NotSequencer
            | Error::LogUnavailable(_)
            | Error::OutcomeUnknown
            | Error::ArchiveUnavailable(_)
            | Error::Quarantined { .. } => StatusCode::SERVICE_UNAVAILABLE,
            // The enum is non-exhaustive. Add a line above for every new error kind.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut problem = match &error {
            Error::JournalFailed(_)
            | Error::DiskFull(_)
            | Error::OutOfFiles(_)
            | Error::SnapshotFailed(_)
            | Error::ArchiveFailed(_) => Self::new(status, error.code(), FAILED_INSIDE).because(error.to_string()),
            // The cause contains an address that not all clients may see.
            Error::ArchiveUnavailable(_) => {
                Self::new(status, error.code(), ARCHIVE_UNAVAILABLE).because(error.to_string())
            }
            Error::PublishedInFuture { .. } => {
                Self::new(status, error.code(), error.to_string()).of_field("published_at")
            }
            _ => Self::new(status, error.code(), error.to_string()),
        };
        problem.0.retry_after_seconds = match &error {
            Error::Quarantined { .. } => Some(QUARANTINE.as_secs()),
            temporary if temporary.is_temporary() => Some(fastrand::u64(RETRY_SECONDS)),
            _ => None,
        };
        if let Error::FollowsRefused { requested, refusals } = &error {
            if let ([(_, refusal)], 1) = (refusals.as_slice(), requested) {
                problem.0.detail = refusal.to_string();
            }
            let refused = |(index, refusal): &(usize, FollowRefusal)| {
                let (code, detail) = (refusal.code(), refusal.to_string());
                json!({"index": index, "code": code, "detail": detail})
            };
            problem.0.errors = refusals.iter().map(refused).collect();
        }
        problem
    }
}

/// Counts the parts of one request that failed inside the server. Logs one line for all of them on drop, because a full disk fails every
/// part.
pub(super) struct Failures {
    parts: &'static str,
    count: usize,
    first: Option<String>,
}

impl Failures {
    /// Creates a counter without failures. `parts` is the name of the parts in the log.
    pub(super) fn of(parts: &'static str) -> Self {
        Self { parts, count: 0, first: None }
    }

    /// Notes the problem of one part, and returns it.
    pub(super) fn noted(&mut self, problem: Problem) -> Problem {
        if let Some(cause) = problem.inside() {
            self.count += 1;
            self.first.get_or_insert_with(|| cause.to_owned());
        }
        problem
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        if let Some(cause) = &self.first {
            warn!(cause, failed = self.count, "{} of a request failed", self.parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn retry_times_are_spread_over_several_seconds() {
        let seconds = |problem: &Problem| problem.0.retry_after_seconds;
        let busy = || Error::Overloaded { queue: "commands", limit: 1 };
        let of_engine: BTreeSet<_> = (0..200).map(|_| seconds(&busy().into())).collect();
        let of_http: BTreeSet<_> = (0..200).map(|_| seconds(&Problem::internal(&"").retry_soon())).collect();
        assert_eq!(of_engine, [1, 2, 3].map(Some).into());
        assert_eq!(of_http, of_engine);
    }
}

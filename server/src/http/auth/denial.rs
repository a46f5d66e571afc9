//! Denials: the reasons why credentials are invalid or not sufficient.

use actix_web::http::StatusCode;

use crate::http::problem::Problem;
use tidewire::limits::TOKEN_CLOCK_AHEAD_MAX;

/// The reason a request is denied. It reveals nothing about the requested resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// The request has no credentials.
    Missing,
    /// The credentials are malformed or unknown.
    Unknown(&'static str),
    /// The token has expired.
    Expired,
    /// The token is not valid yet (`nbf`).
    Early,
    /// The token's time of issue is in the future.
    IssuedInFuture,
    /// The token's lifetime is longer than the maximum, given in seconds.
    LastsTooLong(u64),
    /// The token was revoked.
    Revoked,
    /// The credentials are valid, but do not permit this operation.
    Forbidden(&'static str),
    /// The credentials permit reading only.
    ReadOnly,
    /// The `Host` header does not name this server.
    UnknownHost,
    /// The request comes from a page of another origin.
    ForeignPage,
    /// The client exceeds its request rate. The value is the number of seconds after which it may retry.
    TooOften(u64),
    /// Too many requests with unknown credentials come from this address. The value is the number of seconds after which it may retry.
    TooMany(u64),
    /// The request names more new sources than the user may add. The value is the number of seconds after which the user may retry.
    TooManySources(u64),
}

/// The codes of all denials, in the order of the variants.
pub(in crate::http) const CODES: [&str; 14] = [
    "unauthenticated",
    "invalid_token",
    "token_expired",
    "token_not_yet_valid",
    "token_issued_in_future",
    "token_lifetime_too_long",
    "token_revoked",
    "forbidden",
    "read_only",
    "unknown_host",
    "foreign_page",
    "rate_limited",
    "too_many_denials",
    "too_many_sources",
];

impl Denial {
    /// Returns the stable code of the denial.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "unauthenticated",
            Self::Unknown(_) => "invalid_token",
            Self::Expired => "token_expired",
            Self::Early => "token_not_yet_valid",
            Self::IssuedInFuture => "token_issued_in_future",
            Self::LastsTooLong(_) => "token_lifetime_too_long",
            Self::Revoked => "token_revoked",
            Self::Forbidden(_) => "forbidden",
            Self::ReadOnly => "read_only",
            Self::UnknownHost => "unknown_host",
            Self::ForeignPage => "foreign_page",
            Self::TooOften(_) => "rate_limited",
            Self::TooMany(_) => "too_many_denials",
            Self::TooManySources(_) => "too_many_sources",
        }
    }

    /// Returns true if the denial concerns the credentials, so that other credentials could succeed.
    pub(super) fn is_of_credentials(self) -> bool {
        match self {
            Self::Missing | Self::Unknown(_) | Self::Expired | Self::Early | Self::LastsTooLong(_) => true,
            Self::IssuedInFuture | Self::Revoked | Self::Forbidden(_) | Self::ReadOnly => true,
            Self::UnknownHost | Self::ForeignPage | Self::TooOften(_) | Self::TooMany(_) | Self::TooManySources(_) => {
                false
            }
        }
    }
}

impl From<Denial> for Problem {
    fn from(denial: Denial) -> Self {
        let detail = match denial {
            Denial::Missing => "send credentials as Authorization: Bearer followed by a key of the server or a token",
            Denial::Unknown(what) | Denial::Forbidden(what) => what,
            Denial::Expired => "the token has expired",
            Denial::Early => "the token is not valid yet",
            Denial::Revoked => "the user's tokens were revoked, and this one is older than that or lacks \"iat\"",
            Denial::IssuedInFuture => {
                let limit = TOKEN_CLOCK_AHEAD_MAX.as_secs();
                &format!("the token's \"iat\" is more than {limit} s ahead of the server's clock")
            }
            Denial::LastsTooLong(seconds) => {
                &format!("the token is valid for longer than {seconds} s, the maximum here (--token-lifetime-max)")
            }
            Denial::ReadOnly => "the key or token is for reading only",
            Denial::UnknownHost => {
                "the name in Host is not one of this server; without keys, --allowed-hosts must list it"
            }
            Denial::ForeignPage => {
                "pages of other origins may neither write nor watch, unless --cors-origins names them"
            }
            Denial::TooOften(_) => "more requests than one client may send in a second; nothing was done",
            Denial::TooMany(_) => "too many requests with unknown credentials from this address",
            Denial::TooManySources(_) => "the request creates more new sources than one user may within a day",
        };
        let status = match denial {
            Denial::Missing | Denial::Unknown(_) | Denial::Expired | Denial::Early => StatusCode::UNAUTHORIZED,
            Denial::IssuedInFuture | Denial::LastsTooLong(_) | Denial::Revoked => StatusCode::UNAUTHORIZED,
            Denial::TooOften(_) | Denial::TooMany(_) | Denial::TooManySources(_) => StatusCode::TOO_MANY_REQUESTS,
            Denial::Forbidden(_) | Denial::ReadOnly | Denial::UnknownHost | Denial::ForeignPage => {
                StatusCode::FORBIDDEN
            }
        };
        let problem = Self::new(status, denial.code(), detail);
        match denial {
            Denial::TooOften(seconds) | Denial::TooMany(seconds) | Denial::TooManySources(seconds) => {
                problem.retry_after(seconds)
            }
            _ if status == StatusCode::UNAUTHORIZED => problem.authenticate("Bearer"),
            _ => problem,
        }
    }
}

//! Denials: why credentials are not good, or not good enough.

use actix_web::http::StatusCode;

use crate::http::problem::Problem;
use tidewire::limits::TOKEN_CLOCK_AHEAD_MAX;

/// Why a request is not let in. Says nothing of what it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// It has no credentials.
    Missing,
    /// They are nothing that is known here.
    Unknown(&'static str),
    /// The token was good before.
    Expired,
    /// The token will be good later.
    Early,
    /// The token says that it was made later than now.
    IssuedInFuture,
    /// The token is good for longer than so many seconds, which is the most.
    LastsTooLong(u64),
    /// The token was revoked.
    Revoked,
    /// They are good, and not for this.
    Forbidden(&'static str),
    /// They are good for reading only.
    ReadOnly,
    /// It is for a name that is not the server's.
    UnknownHost,
    /// It is a page's of another origin.
    ForeignPage,
    /// Its client asks too often. It may again after so many seconds.
    TooOften(u64),
    /// From its address come too many with credentials that are not known. The next may be answered after so many seconds.
    TooMany(u64),
    /// It names more sources that nobody named before than its user may. It may again after so many seconds.
    TooManySources(u64),
}

/// All codes of denials.
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
    /// Its stable name.
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

    /// Whether other credentials would help, and nothing else.
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
            Denial::Revoked => "the user's tokens were revoked that were made until then, or do not say when",
            Denial::IssuedInFuture => {
                let limit = TOKEN_CLOCK_AHEAD_MAX.as_secs();
                &format!("the token's \"iat\" is more than {limit} s ahead of the server's clock")
            }
            Denial::LastsTooLong(seconds) => {
                &format!("the token is good for longer than {seconds} s, the most allowed here (--token-lifetime-max)")
            }
            Denial::ReadOnly => "the key or token is for reading only",
            Denial::UnknownHost => "the name in Host is not the server's; without keys it needs to be named by --hosts",
            Denial::ForeignPage => {
                "pages of other origins may neither write nor watch, unless --cors-origins names them"
            }
            Denial::TooOften(_) => "more requests than one client may send in a second; nothing was done",
            Denial::TooMany(_) => "too many requests with credentials that are not known come from this address",
            Denial::TooManySources(_) => {
                "it names more sources that nobody named before than one user may within a day"
            }
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

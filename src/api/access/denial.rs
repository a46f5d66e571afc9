//! Denials: why credentials are not good, or not good enough.

use actix_web::http::StatusCode;

use crate::api::problem::Problem;

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
    /// They are good, and not for this.
    Forbidden(&'static str),
    /// They are good for reading only.
    ReadOnly,
}

impl Denial {
    /// Its stable name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "unauthenticated",
            Self::Unknown(_) => "invalid_token",
            Self::Expired => "token_expired",
            Self::Early => "token_not_yet_valid",
            Self::Forbidden(_) => "forbidden",
            Self::ReadOnly => "read_only",
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
            Denial::ReadOnly => "the token is for reading only",
        };
        match denial {
            Denial::Forbidden(_) | Denial::ReadOnly => Self::new(StatusCode::FORBIDDEN, denial.code(), detail),
            _ => Self::new(StatusCode::UNAUTHORIZED, denial.code(), detail).authenticate("Bearer"),
        }
    }
}

//! Callers: who sent a request, and what they may do.

use actix_web::web::Data;
use actix_web::{HttpMessage as _, HttpRequest};

use crate::http::Api;
use crate::http::auth::denial::Denial;
use crate::http::auth::keys::{KeyId, KeyScope};
use crate::http::operation::{Needs, Right};
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;

/// Who sent a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// Anybody, who may do everything: there are no keys.
    Anybody,
    /// Who acts for the server's owner, by a key of the server.
    Server(KeyId, KeyScope),
    /// A user, by a token.
    User(User),
    /// A WebSocket that came without credentials, and has to say by its first message who it is.
    Unauthenticated,
    /// A WebSocket of a page in a browser, with credentials that are not good enough.
    Refused,
}

/// A user that a token stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    /// Who it is.
    pub(crate) id: SourceId,
    /// Whether the token is for more than reading.
    pub(crate) may_write: bool,
    /// When the token was made, if it says so.
    pub(crate) issued_at: Option<UnixMicros>,
    /// When the token ends.
    pub(crate) until: UnixMicros,
    /// The key that vouches for it.
    pub(crate) key: KeyId,
}

impl Caller {
    /// Whoever sent a request that was let in.
    pub(in crate::http) fn of(request: &HttpRequest) -> Result<Self, Denial> {
        match Self::or_stranger(request)? {
            Self::Unauthenticated | Self::Refused => Err(Denial::Missing),
            known => Ok(known),
        }
    }

    /// The same, of one that may have yet to say who it is.
    pub(in crate::http) fn or_stranger(request: &HttpRequest) -> Result<Self, Denial> {
        if let Some(caller) = request.extensions().get::<Self>() {
            return Ok(caller.clone());
        }
        // Nobody is noted where everybody may do everything.
        let is_off = request.app_data::<Data<Api>>().is_some_and(|api| !api.access.is_on());
        if is_off { Ok(Self::Anybody) } else { Err(Denial::Missing) }
    }

    /// Whether this is enough for what an operation needs, with `user` in its path.
    pub(in crate::http) fn may(&self, needs: Needs, user: Option<&str>) -> Result<(), Denial> {
        let caller = match self {
            Self::Anybody => return Ok(()),
            Self::Server(_, scope) => return scope.is_enough(needs),
            Self::User(caller) => caller,
            Self::Unauthenticated | Self::Refused => return Err(Denial::Missing),
        };
        let right = match needs {
            Needs::Nothing => return Ok(()),
            Needs::Server(_) | Needs::Metrics => {
                return Err(Denial::Forbidden("this is for who has a key of the server"));
            }
            Needs::Own(_) if user != Some(caller.id.as_str()) => {
                return Err(Denial::Forbidden("the token is another user's"));
            }
            // Whose post it is, its handler finds out.
            Needs::Own(right) | Needs::Author(right) => right,
        };
        if right == Right::Write && !caller.may_write { Err(Denial::ReadOnly) } else { Ok(()) }
    }

    /// Whether they may do less than everything.
    pub(in crate::http) fn is_user(&self) -> bool {
        !matches!(self, Self::Anybody | Self::Server(..))
    }

    /// Whether a post of this author is theirs.
    pub(in crate::http) fn may_have(&self, author: &SourceId) -> Result<(), Denial> {
        match self {
            Self::Anybody | Self::Server(..) => Ok(()),
            Self::User(caller) if caller.id == *author => Ok(()),
            Self::User(_) => Err(Denial::Forbidden("the post is another author's")),
            Self::Unauthenticated | Self::Refused => Err(Denial::Missing),
        }
    }

    /// Whether they may do what is hidden from users.
    pub(in crate::http) fn may_hide(&self) -> Result<(), Denial> {
        self.may(Needs::Server(Right::Read), None)
    }
}

impl KeyScope {
    fn is_enough(self, needs: Needs) -> Result<(), Denial> {
        match (self, needs) {
            (Self::All, _) | (_, Needs::Nothing | Needs::Metrics) => Ok(()),
            (Self::Metrics, _) => Err(Denial::Forbidden("the key is for metrics alone")),
            (Self::Read, Needs::Server(right) | Needs::Own(right) | Needs::Author(right)) => match right {
                Right::Read => Ok(()),
                Right::Write => Err(Denial::ReadOnly),
            },
        }
    }
}

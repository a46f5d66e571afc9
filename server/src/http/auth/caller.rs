//! The caller of a request and its permissions.

use std::future::{Ready, ready};
use std::net::SocketAddr;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest};
use serde::{Deserialize, Serialize};

use crate::http::auth::denial::Denial;
use crate::http::auth::key::{KeyId, KeyScope};
use crate::http::client::{Client, network};
use crate::http::operation::{Needs, Right};
use crate::http::problem::Problem;
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;

/// The authenticated sender of a request. The pipeline resolves it once and stores it in the request, and handlers get it as an argument.
///
/// The nodes of a cluster send it to each other as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Caller {
    /// An unauthenticated caller with all permissions, because the server has no keys.
    Anybody,
    /// A client that authenticated with a server key.
    Server(KeyId, KeyScope),
    /// A user, authenticated by a token.
    User(User),
    /// A WebSocket without credentials, which must authenticate with its first message.
    Unauthenticated,
    /// A WebSocket of a browser page whose credentials were refused. The refusing node sends the answer itself.
    #[serde(skip)]
    Refused(Denial),
}

/// The user and the permissions of a valid token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct User {
    /// The user's id.
    pub(crate) id: SourceId,
    /// True if the token also permits writing.
    pub(crate) may_write: bool,
    /// The time of issue (`iat`), if the token contains it.
    pub(crate) issued_at: Option<UnixMicros>,
    /// The expiry time of the token (`exp`).
    pub(crate) until: UnixMicros,
    /// The key that verified the token.
    pub(crate) key: KeyId,
}

/// Returns the client whose share the bytes of a request use. `caller` is `None` if the operation needs no credentials.
pub(in crate::http) fn client_of(caller: Option<&Caller>, peer: Option<SocketAddr>) -> Client {
    match caller {
        Some(Caller::Server(..)) => return Client::Trusted,
        Some(Caller::User(user)) => return Client::named(user.id.as_str()),
        Some(Caller::Anybody | Caller::Unauthenticated | Caller::Refused(_)) | None => {}
    }
    let elsewhere = peer.map(network).filter(|address| !address.is_loopback());
    elsewhere.map_or(Client::Trusted, Client::named)
}

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    /// Refuses WebSockets that are not authenticated yet, in contrast to [`Caller::or_unauthenticated`].
    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = Self::or_unauthenticated(request);
        ready(
            caller
                .and_then(|caller| if caller.is_known() { Ok(caller) } else { Err(Denial::Missing) })
                .map_err(Problem::from),
        )
    }
}

impl Caller {
    /// Returns the caller that the pipeline stored in the request, which may be a WebSocket that is not authenticated yet.
    pub(in crate::http) fn or_unauthenticated(request: &HttpRequest) -> Result<Self, Denial> {
        request.extensions().get::<Self>().cloned().ok_or(Denial::Missing)
    }

    /// Returns true if the caller is authenticated, or if the server has no keys.
    pub(in crate::http) fn is_known(&self) -> bool {
        !matches!(self, Self::Unauthenticated | Self::Refused(_))
    }

    /// Checks whether the caller has the permission that an operation needs; `user` is the user in the request path.
    pub(in crate::http) fn may(&self, needs: Needs, user: Option<&str>) -> Result<(), Denial> {
        let caller = match self {
            Self::Anybody => return Ok(()),
            Self::Server(_, scope) => return scope.is_enough(needs),
            Self::User(caller) => caller,
            Self::Unauthenticated | Self::Refused(_) => return Err(Denial::Missing),
        };
        let right = match needs {
            Needs::Nothing => return Ok(()),
            Needs::Server(_) | Needs::Metrics => {
                return Err(Denial::Forbidden("only a server key may do this"));
            }
            Needs::Own(_) if user != Some(caller.id.as_str()) => {
                return Err(Denial::Forbidden("the token is another user's"));
            }
            // The handler checks the author of the post, the users whom the body names, or the visibility for this user.
            Needs::Own(right) | Needs::Author(right) | Needs::Named(right) | Needs::User(right) => right,
        };
        if right == Right::Write && !caller.may_write { Err(Denial::ReadOnly) } else { Ok(()) }
    }

    /// Returns true if the caller is a user, who does not have all permissions.
    pub(in crate::http) fn is_user(&self) -> bool {
        !matches!(self, Self::Anybody | Self::Server(..))
    }

    /// Checks whether the caller may access a post of this author.
    pub(in crate::http) fn may_have(&self, author: &SourceId) -> Result<(), Denial> {
        match self {
            Self::Anybody | Self::Server(..) => Ok(()),
            Self::User(caller) if caller.id == *author => Ok(()),
            Self::User(_) => Err(Denial::Forbidden("the post is another author's")),
            Self::Unauthenticated | Self::Refused(_) => Err(Denial::Missing),
        }
    }

    /// Returns the reader of an operation: the one that the caller names, or else the caller, if that is a user. A user may only name
    /// themselves.
    pub(in crate::http) fn reader(&self, named: Option<SourceId>) -> Result<Option<SourceId>, Denial> {
        match (self, named) {
            (Self::User(caller), Some(named)) if caller.id != named => {
                Err(Denial::Forbidden("the token is another user's"))
            }
            (Self::User(caller), _) => Ok(Some(caller.id.clone())),
            (_, named) => Ok(named),
        }
    }

    /// Checks whether the caller may use features that are hidden from users.
    pub(in crate::http) fn may_hide(&self) -> Result<(), Denial> {
        self.may(Needs::Server(Right::Read), None)
    }
}

impl KeyScope {
    fn is_enough(self, needs: Needs) -> Result<(), Denial> {
        match (self, needs) {
            (Self::All, _) | (_, Needs::Nothing | Needs::Metrics) => Ok(()),
            (Self::Metrics, _) => Err(Denial::Forbidden("the key is for metrics only")),
            (
                Self::Read,
                Needs::Server(right)
                | Needs::Own(right)
                | Needs::Author(right)
                | Needs::Named(right)
                | Needs::User(right),
            ) => match right {
                Right::Read => Ok(()),
                Right::Write => Err(Denial::ReadOnly),
            },
        }
    }
}

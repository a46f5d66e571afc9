//! The description of an operation: its name, path, method, required permission, and kind of work.

use actix_web::Route;
use actix_web::http::Method;

use tidewire::limits::{BULK_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX};

/// One operation of the API.
pub(super) struct Operation {
    /// The unique name of the operation.
    pub(super) name: &'static str,
    pub(super) method: Method,
    /// The path pattern, with named placeholders.
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    pub(super) work: WorkKind,
    /// True if the response may be open for long: it is a stream, or waits for other nodes.
    pub(super) lasts: bool,
    /// The nodes that can handle it, if there is a cluster.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is one node"))]
    pub(super) handled_by: HandledBy,
    /// The handler, as a route without a method guard.
    pub(super) route: fn() -> Route,
}

/// The permission that an operation requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// No credentials are required.
    Nothing,
    /// A server key is required.
    Server(Right),
    /// A server key is required; a key with the metrics scope suffices.
    Metrics,
    /// A server key, or a token of the user in the path.
    Own(Right),
    /// A server key, or a token of the author of the post. The handler checks the author.
    Author(Right),
    /// A server key, or a token of any user. The handler shows what that user may see.
    User(Right),
    /// A server key, or a token of a user whom the body names. The handler checks each of those users.
    Named(Right),
}

/// The kind of access that an operation requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Right {
    /// Reading the data.
    Read,
    /// Changing the data.
    Write,
}

/// The kind of work an operation does. Each kind has its own concurrency limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkKind {
    /// Work without limits, because it costs almost nothing.
    None,
    /// A read that is answered from memory.
    Read,
    /// A request for pages of many readers. Its unit is one page.
    BulkRead,
    /// A read that has to wake its sleeping reader first. No operation has this kind; such a read takes a permit of it in addition.
    WakeUp,
    /// A change that is written to the journal.
    Write,
    /// A request with many changes, which are written to the journal.
    BulkWrite,
    /// A long-lived connection.
    Live,
    /// A WebSocket that is not authenticated yet. No operation has this kind, but such a connection occupies a permit of it.
    Unauthenticated,
    /// An operator request, which may run for long.
    Operation,
    /// The metrics request, with limits of its own so that it works under overload.
    Metrics,
}

/// The nodes of a cluster that can handle an operation. A server that is not part of a cluster handles all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandledBy {
    /// The node that has received the request. The operation is about this node, or about data that all nodes have.
    AnyNode,
    /// The node that the query parameter `node` names; without it, the node that has received the request.
    NamedNode,
    /// The owner of the user in the path; if the path has no user, the owner of the caller. Any node if the caller is not a user.
    Owner,
    /// The owners of the users whom the body names. The handler splits the request.
    Owners,
    /// The sequencer. The request reaches it through the owner of the writing user. The owner answers after it has applied the write
    /// itself, so that this user reads it. A write without a single user goes directly to the sequencer.
    Sequencer,
}

/// The prefix of the paths of operations on a user. The user's id follows it.
const USERS: &str = "/v1/users/";

/// Splits a path after [`USERS`] into the user's id and the rest. Returns `None` if the path contains no user.
pub(super) fn user_in_path(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix(USERS)?;
    let (user, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    (!user.is_empty()).then_some((user, rest))
}

impl Operation {
    /// Returns the maximum bytes of the request body; 0 if the operation has no body.
    pub(super) fn body_bytes_max(&self) -> usize {
        match self.work {
            WorkKind::Write if self.method != Method::DELETE => REQUEST_BYTES_MAX,
            WorkKind::Operation if self.method == Method::PUT => REQUEST_BYTES_MAX,
            WorkKind::BulkRead => REQUEST_BYTES_MAX,
            WorkKind::BulkWrite => BULK_REQUEST_BYTES_MAX,
            _ => 0,
        }
    }
}

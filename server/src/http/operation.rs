//! What is known of an operation: its name, path and method, who may ask for it, and what kind of work it is.
//!
//! Not responsible for:
//! - which operations there are, and who carries them out (`http::routes`).

use actix_web::Route;
use actix_web::http::Method;

use tidewire::limits::{BULK_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX};

/// Something that can be asked for.
pub(super) struct Operation {
    /// Its name, unlike that of any other.
    pub(super) name: &'static str,
    pub(super) method: Method,
    /// Its path, with names for the parts that vary.
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    pub(super) work: Work,
    /// The handler, as a route that takes any method.
    pub(super) route: fn() -> Route,
}

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// Anybody.
    Nothing,
    /// Whoever acts for the server's owner.
    Server(Right),
    /// As well who collects metrics for them.
    Metrics,
    /// As well the user in the path.
    Own(Right),
    /// As well the user whose post it is, which the handler finds out.
    Author(Right),
}

/// What somebody wants with something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Right {
    /// Look at it.
    Read,
    /// Change it.
    Write,
}

/// What kind of work it is: kinds are bounded apart from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Hardly any.
    None,
    /// Answered from memory.
    Read,
    /// A read that has to wake its reader first: no operation's own.
    WakeUp,
    /// Goes through the journal.
    Write,
    /// The same, with many changes at once.
    BulkWrite,
    /// A connection that stays.
    Live,
    /// A connection that has yet to say who it is: no operation's own.
    Handshake,
    /// An operator's, which may take long.
    Operation,
    /// What tells how all others do.
    Metrics,
}

impl Operation {
    /// Bytes that its body may have; none where a body says nothing.
    pub(super) fn body_bytes_max(&self) -> usize {
        match self.work {
            Work::Write if self.method != Method::DELETE => REQUEST_BYTES_MAX,
            Work::BulkWrite => BULK_REQUEST_BYTES_MAX,
            _ => 0,
        }
    }
}

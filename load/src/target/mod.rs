//! The designs that are compared, all behind the same traits.
//!
//! Responsible for:
//! - performing an [`Operation`] on a running server, as a careful client would;
//! - starting the server on a private port and directory, and stopping it.

pub mod kind;
pub mod mariadb;
pub mod mock;
pub mod process;
pub mod redis;
mod resp;
pub mod tidewire;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::operation::{Answer, Item, Operation, User};

/// A boxed future. It stays on the thread that created it.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server is overloaded. Nothing was done, and the operation may be retried.
    #[error("refused: {0}")]
    Refused(String),
    /// The server did not answer within [`ANSWER_MAX`], and the client gave up.
    #[error("{0}: no answer within {ANSWER_MAX:?}")]
    Silent(String),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
}

/// Timeout for an answer. A working server is much faster: this detects one that hangs.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Waits for an answer, for at most [`ANSWER_MAX`].
///
/// # Errors
/// If there is no answer in time.
pub(crate) async fn answered<T>(to: &str, answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(ANSWER_MAX, answer).await.unwrap_or_else(|_| Err(Failure::Silent(to.to_owned())))
}

/// Returns the failure of an operation that a design does not support.
pub(crate) fn unsupported(operation: &Operation) -> Failure {
    Failure::Failed(format!("this design has no way to do this: {}", operation.kind().label()))
}

impl Failure {
    /// Creates a failure from an error and its whole chain of causes.
    pub fn of(cause: &dyn std::error::Error) -> Self {
        let mut text = cause.to_string();
        let mut source = cause.source();
        while let Some(deeper) = source {
            text = format!("{text}: {deeper}");
            source = deeper.source();
        }
        Self::Failed(text)
    }

    /// Returns the same failure with a prefix that names the failed operation.
    #[must_use]
    pub fn of_what(self, what: &str) -> Self {
        match self {
            Self::Refused(text) => Self::Refused(format!("{what}: {text}")),
            Self::Silent(text) => Self::Silent(format!("{what}: {text}")),
            Self::Failed(text) => Self::Failed(format!("{what}: {text}")),
        }
    }
}

/// A running design.
pub trait Target: Send + Sync {
    /// Returns the name in reports, options and ratios, such as `tidewire_http` or `redis_zset`.
    fn name(&self) -> &'static str;

    /// Returns the version of its server and its settings, one per line.
    fn settings(&self) -> Vec<String>;

    /// Opens a client on the runtime of the current thread. Clients may share connections if that is the best way to use the server.
    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>>;

    /// Creates many follow edges before any post exists.
    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>>;

    /// Activates readers: from now on posts are pushed to them.
    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>>;

    /// Returns the number of posts put into inboxes up to now, as counted by the design, or `None` if it has no such count.
    fn delivered(&self) -> Later<'_, Result<Option<u64>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    /// Sets if a publish ends when the post is in all feeds (the default), or when it is durable. Designs whose clients write to the feeds
    /// support only the first.
    fn wait_for_delivery(&self, _waits: bool) {}

    /// Returns the address for live connections, or `None` if the design has none.
    fn live_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns the id of the server process, used to measure its memory and processor time, or `None` if it runs in this process.
    fn process(&self) -> Option<u32>;
}

/// One of the concurrent clients.
pub trait Client {
    /// Performs an operation. Pages are fetched with bodies and counted, but not parsed.
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>>;

    /// Performs an [`Operation::Page`] or [`Operation::OwnPage`] and parses the page, newest post first.
    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>>;
}

//! The designs that are compared, each behind the same few calls.
//!
//! Responsible for:
//! - doing an [`Operation`] on a running server, as a careful engineer's client would;
//! - starting that server on a private port and directory, and ending it.
//!
//! Not responsible for:
//! - which operations, how many at once and when (`drive`), whether answers are right (`check`).

pub mod kind;
pub mod mariadb;
pub mod mock;
pub mod process;
pub mod redis;
pub mod tidewire;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::operation::{Answer, Item, Operation, User};

/// What is answered later. Futures stay on the thread that made them.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server has too much to do. Nothing was done, and it may be asked again.
    #[error("refused: {0}")]
    Refused(String),
    /// The server has not answered for [`ANSWER_MAX`]. Nobody waits for it any longer.
    #[error("{0}: no answer within {ANSWER_MAX:?}")]
    Silent(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// How long a server may take to answer. Far more than any does that works: this is for one that hangs.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Waits for an answer, for as long as a server may take.
///
/// # Errors
/// When it does not come.
pub(crate) async fn answered<T>(to: &str, answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(ANSWER_MAX, answer).await.unwrap_or_else(|_| Err(Failure::Silent(to.to_owned())))
}

impl Failure {
    /// A failure with its whole chain of causes as text.
    pub fn of(cause: &dyn std::error::Error) -> Self {
        let mut text = cause.to_string();
        let mut source = cause.source();
        while let Some(deeper) = source {
            text = format!("{text}: {deeper}");
            source = deeper.source();
        }
        Self::Failed(text)
    }

    /// The same, with who or what it was in front.
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
    /// What it is called in reports, options and ratios: `tidewire_http`, `redis_zset` and so on.
    fn name(&self) -> &'static str;

    /// The version of its server, and how that is set, a setting in each line.
    fn settings(&self) -> Vec<String>;

    /// Opens what one client uses, on the runtime of the current thread. Clients may share connections where that is how
    /// such a server is used best.
    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>>;

    /// Makes many follow edges, before anything was published.
    fn load_follows<'a>(&'a self, edges: &'a [(User, User)]) -> Later<'a, Result<(), Failure>>;

    /// Makes readers active: from now on what is published is pushed to them.
    fn activate<'a>(&'a self, readers: &'a [User]) -> Later<'a, Result<(), Failure>>;

    /// Posts that were put into inboxes so far, by its own count; none of designs that keep none, or pull some.
    fn delivered(&self) -> Later<'_, Result<Option<u64>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether a publish is done once the post is in all feeds, as it is at first, or once it is durable. Designs that write to
    /// feeds themselves know only the first.
    fn wait_for_delivery(&self, _waits: bool) {}

    /// Where readers can listen live; none of designs that push nothing to them.
    fn live_address(&self) -> Option<SocketAddr> {
        None
    }

    /// The process that serves, to tell its memory and processor time; none for what runs in this one.
    fn process(&self) -> Option<u32>;
}

/// One of those who ask at the same time.
pub trait Client {
    /// Does an operation. Pages come with bodies, which are fetched and counted, not looked into.
    fn perform<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Answer, Failure>>;

    /// Does an [`Operation::Page`] or [`Operation::OwnPage`], and looks into the answer; newest first.
    fn read<'a>(&'a mut self, operation: &'a Operation) -> Later<'a, Result<Vec<Item>, Failure>>;
}

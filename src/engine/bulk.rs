//! The engine's interface for many writes in one request.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::error::Error;
use crate::feed::post::Draft;
use crate::runtime::background::resolver::{Resolver, needs};
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::message::{Command, Published};
use crate::runtime::processor::queue::NotTaken;
use crate::state::resolved::Resolved;

impl Engine {
    /// Publishes posts in this order, with one commit to the journal, unless one of them reposts or answers another or
    /// depends on its id. Each post is accepted or refused by itself, with two exceptions: all posts after one that is
    /// refused as `Overloaded` are refused as well, and all posts are refused if records that they need cannot be read
    /// from the archive. With `wait`, answers only after all are in the inboxes of active followers.
    pub async fn publish_many(&self, drafts: Vec<Draft>, wait: bool) -> Vec<Result<Published, Error>> {
        let (shared, began) = (&self.inner.shared, Instant::now());
        // As for a single post, the command processor checks again.
        if let Err(full) = shared.check_fanout_backlog(Backlog::default(), None) {
            return drafts.iter().map(|_| Err(full.clone())).collect();
        }
        let (mut answers, mut commands) = (Vec::with_capacity(drafts.len()), Vec::with_capacity(drafts.len()));
        for draft in drafts {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            commands.push(Command::Publish { draft: Box::new(draft.identified()), wait, reply });
        }
        if let Err(refused) = self.queue(Command::Many(commands)) {
            return answers.iter().map(|_| Err(refused.clone())).collect();
        }
        let mut published = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = answer.await.unwrap_or(Err(Error::ShuttingDown));
            answer.iter().for_each(|_| shared.counters.publish_latency.record(began.elapsed()));
            published.push(answer);
        }
        published
    }

    /// Queues a command after looking up the records that it needs from the archive. No thread waits here.
    ///
    /// # Errors
    /// Fails at once if the queue has no capacity now. If it has none after a lookup, the command's answer reports
    /// that.
    pub(super) fn queue(&self, command: Command) -> Result<(), Error> {
        let (shared, resolved) = (&self.inner.shared, Resolved::default());
        let needs = needs(&command, &shared.world, &resolved);
        if !needs.is_empty() {
            Resolver::new(Arc::clone(shared), self.inner.commands.clone()).resolve(command, resolved, 0, needs);
            return Ok(());
        }
        self.inner.commands.try_send(command).map_err(|cause| match cause {
            NotTaken::Full { queue, limit } => shared.overloaded(queue, limit),
            NotTaken::Closed => Error::ShuttingDown,
        })
    }
}

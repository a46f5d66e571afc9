//! The engine's interface for the reposts of a post, and for its counts of replies and reposts.

use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::error::Error;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::limits::REPOSTS_EXAMINED_MAX;
use crate::state::counts::PostCounts;
use crate::state::feed_filter::Reposted;
use crate::state::viewer::Viewer;

/// Some of the reposts of a post.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepostPage {
    /// The reposts, newest first.
    pub items: Vec<Reposted>,
    /// The position below which the next page begins; None if there are no older reposts.
    pub next: Option<Position>,
}

impl Engine {
    /// Returns at most `limit` reposts of a post, newest first, below `before` if that is given. A user who has
    /// reposted the post twice appears twice. With a reader, the page leaves out reposts by authors whom the reader
    /// mutes or blocks, or who block the reader. Without a reader, it has the reposts that everybody sees.
    ///
    /// # Errors
    /// Fails if there is no such post, if the reader may not see it, or if the page takes long and the queue for such pages is full.
    pub async fn reposts(
        &self,
        post: PostId,
        reader: Option<&SourceId>,
        before: Option<Position>,
        limit: usize,
    ) -> Result<RepostPage, Error> {
        let (parent, world) = (self.post(post).await?, &self.shared().world);
        if reader.is_some_and(|reader| !world.is_shown_to(reader, &parent)) {
            return Err(Error::UnknownPost(post));
        }
        let viewer = match reader.and_then(|reader| world.sources.get(reader)) {
            Some(reader) => Viewer::of_reposts(&reader),
            None => Viewer::nobody(),
        };
        let (before, max) = (before.unwrap_or(Position::MAX), limit.saturating_add(1));
        let is_short = world.reposts.of(post).is_none_or(|reposts| reposts.read().len() <= REPOSTS_EXAMINED_MAX);
        let mut found = if is_short {
            viewer.reposts_below(world, post, before, max)
        } else {
            let (reply, answer) = oneshot::channel();
            self.ask_archive(move |world| drop(reply.send(viewer.reposts_below(world, post, before, max))))?;
            answer.await.map_err(|_| Error::ShuttingDown)?
        };
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|(at, _)| *at);
        let named = |(at, author)| Reposted { user: world.sources.at(author).id.clone(), at };
        Ok(RepostPage { items: found.into_iter().map(named).collect(), next })
    }

    /// Returns the numbers of replies and reposts of a post, as everybody sees them: the totals of all pages of
    /// [`Engine::replies`] and [`Engine::reposts`] without a reader. Zero for a post that does not exist. The replies
    /// and reposts of a user who is being erased count until they are deleted.
    pub fn counts(&self, post: PostId) -> PostCounts {
        self.shared().world.counts(post)
    }
}

//! The engine's interface for posts: publishing, changing and reading them, their replies and reposts, and pages of all posts.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::engine::changes::ChangeLog;
use crate::engine::{Engine, FeedPage};
use crate::error::Error;
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft, Post};
use crate::id::{PostId, SourceId};
use crate::limits::REPOSTS_EXAMINED_MAX;
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::change_readers::ChangeReaders;
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::message::{Command, Published};
use crate::state::all_posts::{PostsBounds, PostsPage};
use crate::state::feed_filter::Reposted;
use crate::state::posts::Stored;
use crate::state::reader::PageRequest;
use crate::state::viewer::Viewer;
use crate::state::world::PostCounts;
use crate::storage::sequence::Sequence;

/// Some of the reposts of a post.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepostPage {
    /// The reposts, newest first.
    pub items: Vec<Reposted>,
    /// The position below which the next page begins; None if there are no older reposts.
    pub next: Option<Position>,
}

/// The ids of the posts that were in memory at one moment, 8 bytes each, from which pages of all posts are read.
#[derive(Clone, Debug)]
pub struct PostIds {
    ids: Box<[PostId]>,
    sequence: Sequence,
    is_complete: bool,
}

impl PostIds {
    /// Returns the event as of which pages are complete: they have all posts that were accepted up to it and are not
    /// deleted when a page is read. [`Engine::changes`] continues after it.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Returns false if some posts are only in a store across a network. Pages lack those posts.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl Engine {
    /// Publishes a post. With `wait`, answers only after it is in the inbox of every active follower.
    ///
    /// # Errors
    /// Fails if the post is refused, or a queue is full. The state is then unchanged.
    pub async fn publish(&self, draft: Draft, wait: bool) -> Result<Published, Error> {
        // This only sheds load: the command processor checks again, since it knows the author and the posts accepted meanwhile.
        self.inner.shared.check_fanout_backlog(Backlog::default(), None)?;
        let (draft, began) = (Box::new(draft.identified()), Instant::now());
        let published = self.command(|reply| Command::Publish { draft, wait, reply }).await?;
        self.inner.shared.counters.publish_latency.record(began.elapsed());
        Ok(published)
    }

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

    /// Changes a post. Its position in feeds is unchanged.
    ///
    /// # Errors
    /// Fails if there is no such post.
    pub async fn edit(&self, id: PostId, body: Option<Body>, hidden: Option<bool>) -> Result<Arc<Post>, Error> {
        self.command(|reply| Command::Edit { id, body, hidden, reply }).await
    }

    /// Deletes a post permanently. Deleting a post that does not exist succeeds.
    ///
    /// # Errors
    /// Fails if a queue is full.
    pub async fn delete(&self, id: PostId) -> Result<(), Error> {
        self.command(|reply| Command::Delete { id, reply }).await
    }

    /// Returns the post with this id.
    ///
    /// # Errors
    /// Fails if there is no such post, or it was deleted.
    pub async fn post(&self, id: PostId) -> Result<Arc<Post>, Error> {
        let shared = &self.inner.shared;
        let stored = match shared.world.posts.stored(id) {
            None if shared.world.has_archived() => {
                let (reply, answer) = oneshot::channel();
                self.ask_archive(move |world| {
                    let _ = reply.send(world.find(id).map_err(|cause| archive_failed(&cause)));
                })?;
                answer.await.unwrap_or(Err(Error::ShuttingDown))?
            }
            stored => stored,
        };
        let is_there = |post: &Arc<Post>| !shared.world.sources.is_erased(post.author().slot);
        stored.and_then(Stored::live).filter(is_there).ok_or(Error::UnknownPost(id))
    }

    /// Returns a page of the replies to a post, newest first. With a reader, the page leaves out replies by authors
    /// whom the reader mutes or blocks, or who block the reader; the rules of the reader's home feed do not apply.
    /// Without a reader, it has the replies that everybody sees.
    ///
    /// # Errors
    /// Fails if there is no such post, if the reader may not see it, or if the page needs the archive and the archive's queue is full.
    pub async fn replies(
        &self,
        post: PostId,
        reader: Option<&SourceId>,
        request: PageRequest,
    ) -> Result<FeedPage, Error> {
        let (parent, world) = (self.post(post).await?, &self.shared().world);
        if reader.is_some_and(|reader| !world.is_shown_to(reader, &parent)) {
            return Err(Error::UnknownPost(post));
        }
        let settled = world.delivery.applied();
        let Some(replies) = world.sources.get(&SourceId::replies_to(post)) else { return Ok(self.empty_page(request)) };
        let viewer = match reader.and_then(|reader| world.sources.get(reader)) {
            Some(reader) => Viewer::page(replies.slot, &reader),
            None => Viewer::everybody(replies.slot),
        };
        self.pulled_page(viewer, settled, request).await
    }

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

    /// Collects the ids of all posts in memory, for [`Engine::posts_after`]. It visits every post, so callers use the
    /// result for many pages.
    ///
    /// # Errors
    /// Fails if a queue is full, or the journal cannot be read.
    pub async fn post_ids(&self) -> Result<PostIds, Error> {
        // A client that reads pages continues with the changes, so erasures keep the journal for it as for other
        // readers.
        let _open = ChangeReaders::begin(&self.inner.shared.change_readers);
        let applied = self.applied().await?;
        let (engine, (reply, answer)) = (self.clone(), oneshot::channel());
        self.ask_archive(move |world| {
            // Unsynced events may not be readable as changes yet. An earlier start repeats events, which does no harm.
            let readable = match &engine.inner.changes {
                Some(ChangeLog::Own(log)) => log.range().map(|range| range.last.min(applied)),
                Some(ChangeLog::Shared(..)) | None => Ok(applied),
            };
            let ids = readable.map(|sequence| PostIds {
                ids: world.sorted_post_ids().into(),
                sequence,
                is_complete: !world.has_unlisted_posts(),
            });
            let _ = reply.send(ids.map_err(|cause| Error::JournalFailed(cause.to_string())));
        })?;
        answer.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Returns the last event whose effect all later reads show.
    ///
    /// # Errors
    /// Fails if a queue is full.
    pub async fn applied(&self) -> Result<Sequence, Error> {
        Ok(self.command(|reply| Command::Mark { sync: false, reply }).await?.last)
    }

    /// Returns a page of all posts, hidden ones included, by ascending id.
    ///
    /// # Errors
    /// Fails if a queue is full, or the archive cannot be read.
    pub async fn posts_after(&self, ids: Arc<PostIds>, bounds: PostsBounds) -> Result<PostsPage, Error> {
        let _open = ChangeReaders::begin(&self.inner.shared.change_readers);
        let (reply, answer) = oneshot::channel();
        self.ask_archive(move |world| {
            let page = world.posts_after(&ids.ids, bounds).map_err(|cause| archive_failed(&cause));
            let _ = reply.send(page);
        })?;
        answer.await.unwrap_or(Err(Error::ShuttingDown))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, ManualClock, UnixMicros};
    use crate::config::EngineConfig;
    use crate::storage::journal::MemoryJournal;

    #[tokio::test]
    async fn a_reader_of_all_posts_counts_as_a_change_reader_with_every_page() {
        let clock = Arc::new(ManualClock::new(UnixMicros(0)));
        let engine =
            Engine::start_with(EngineConfig::default(), MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
        let has_readers = || engine.inner.shared.change_readers.any_within(Duration::from_secs(1));
        assert!(!has_readers());
        let ids = Arc::new(engine.post_ids().await.unwrap());
        assert!(has_readers());
        // A page with ids that were collected long before, for example after a pause between pages.
        clock.advance(Duration::from_secs(2));
        assert!(!has_readers());
        engine.posts_after(ids, PostsBounds { after: None, limit: 1, bytes: 1 }).await.unwrap();
        assert!(has_readers());
    }
}

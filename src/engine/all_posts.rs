//! The engine's interface for reading all posts in pages, for clients that rebuild an index.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::engine::changes::ChangeLog;
use crate::error::Error;
use crate::id::PostId;
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::change_readers::ChangeReaders;
use crate::runtime::message::Command;
use crate::state::all_posts::{PostsBounds, PostsPage};
use crate::storage::sequence::Sequence;

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

//! The engine's interface for the replies to a post.

use crate::engine::{Engine, FeedPage};
use crate::error::Error;
use crate::id::{PostId, SourceId};
use crate::state::reader::PageRequest;
use crate::state::viewer::Viewer;

impl Engine {
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
}

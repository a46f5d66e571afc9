//! Facts about a source: this part of the engine's interface.

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::outbox::Route;
use crate::id::SourceId;

/// The public facts about a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// The id of the source.
    pub id: SourceId,
    /// The number of visible followers.
    pub followers: usize,
    /// The number of visible followed sources.
    pub following: usize,
    /// The number of posts in its outbox.
    pub posts: usize,
    /// True if followers pull its posts on read, instead of fan-out pushing them.
    pub celebrity: bool,
    /// True if the source is awake.
    pub active: bool,
    /// The time at which it last read its feed.
    pub last_seen: Option<UnixMicros>,
}

impl Engine {
    /// Returns the public facts about a source.
    ///
    /// # Errors
    /// Fails if the source is unknown.
    pub fn source(&self, id: &SourceId) -> Result<SourceInfo, Error> {
        let shared = &self.inner.shared;
        let source = shared.world.sources.get(id).ok_or_else(|| Error::UnknownSource(id.clone()))?;
        let (followers, posts) = (source.followers().visible_len(), source.outbox().len());
        Ok(SourceInfo {
            id: source.id.clone(),
            followers,
            following: source.following().visible_len(),
            posts,
            celebrity: shared.world.route(&source) == Route::Pull,
            active: shared.directory.is_active(source.slot),
            last_seen: source.last_seen(),
        })
    }
}

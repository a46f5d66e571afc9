//! The events that a live client receives.

use std::sync::{Arc, OnceLock};

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::stream::StreamPosition;
use crate::id::PostId;
use crate::state::feed_filter::Entry;

/// One event for a live client. Clones share the large parts.
#[derive(Clone, Debug)]
pub struct LiveEvent {
    /// The position in the event stream after this event.
    pub place: StreamPosition,
    /// The content of the event.
    pub kind: EventKind,
}

/// The content of an event.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// The first event of a connection. It reports whether exactly the missed events follow, or the client has to
    /// read the feed again.
    Hello {
        /// True if the missed events follow, so that the client lacks nothing.
        recovered: bool,
        /// The position up to which the reader has read, if the reader ever set it.
        marker: Option<Position>,
    },
    /// A heartbeat without content. The client is up to date if it has received all events before this one.
    Beat,
    /// Adds an entry to the feed. It replaces any other entry of the same post.
    Post(Arc<LiveEntry>),
    /// Replaces the text of the post of an entry.
    Update(Arc<Post>),
    /// Removes the entry of a post.
    Remove(PostId),
    /// All entries below this position may have changed. Without a position, the whole feed may have changed.
    Stale(Option<Position>),
    /// The position up to which the reader has read.
    Marker(Position),
}

impl EventKind {
    /// Returns true if the event has the content of an entry.
    pub fn is_entry(&self) -> bool {
        matches!(self, Self::Post(_) | Self::Update(_))
    }
}

/// An entry with a cache for its serialized text, which is the same for many readers. The first connection that needs
/// the text serializes it.
#[derive(Debug)]
pub struct LiveEntry {
    /// The position of the entry in the feed.
    pub at: Position,
    /// The entry itself.
    pub entry: Entry,
    /// The serialized text, empty until a connection needs it.
    pub text: OnceLock<Box<str>>,
}

/// The estimated bytes of an event, without the text of a post.
const EVENT_BYTES: usize = 192;

impl LiveEvent {
    /// Returns the approximate bytes of the event while it is queued. Shared parts count in full.
    pub fn bytes(&self) -> usize {
        let text = match &self.kind {
            EventKind::Post(item) => item.entry.post.json().len() + item.entry.reposts().len() * EVENT_BYTES,
            EventKind::Update(post) => post.json().len(),
            EventKind::Hello { .. }
            | EventKind::Beat
            | EventKind::Remove(_)
            | EventKind::Stale(_)
            | EventKind::Marker(_) => 0,
        };
        EVENT_BYTES + text
    }
}

/// The most recent items of a shard. Followers of one source receive its post one directly after the other, so they
/// can share an item.
#[derive(Debug, Default)]
pub struct RecentItems {
    items: [Option<Arc<LiveEntry>>; RecentItems::MAX],
    next: usize,
}

impl RecentItems {
    /// The number of cached items: about the number of posts whose deliveries a fan-out interleaves.
    const MAX: usize = 8;

    /// Returns the item of an entry. Reuses a cached item if it has the same content.
    pub fn item(&mut self, at: Position, entry: Entry) -> Arc<LiveEntry> {
        let is_same = |item: &&Arc<LiveEntry>| item.at == at && item.entry.is_like(&entry);
        if let Some(item) = self.items.iter().flatten().find(is_same) {
            return Arc::clone(item);
        }
        let item = Arc::new(LiveEntry { at, entry, text: OnceLock::new() });
        self.items[self.next] = Some(Arc::clone(&item));
        self.next = (self.next + 1) % Self::MAX;
        item
    }
}

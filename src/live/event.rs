//! What a live client is told.

use std::sync::{Arc, OnceLock};

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::stream::Place;
use crate::id::PostId;
use crate::state::view::Entry;

/// One thing told to a live client. Clones share what is large.
#[derive(Clone, Debug)]
pub struct Event {
    /// Where the stream is with it.
    pub place: Place,
    /// What is told.
    pub what: What,
}

/// What is told.
#[derive(Clone, Debug)]
pub enum What {
    /// The first of all: either that exactly what the client misses follows, or that it has to read the feed anew.
    Hello {
        /// Whether nothing is missing.
        recovered: bool,
        /// How far the reader has read, if that was ever said.
        marker: Option<Position>,
    },
    /// Nothing: the connection is alive, and the client has all if it has what came before.
    Beat,
    /// An entry is in the feed, in place of any other of the same post.
    Post(Arc<Item>),
    /// The post of an entry has another text.
    Update(Arc<Post>),
    /// A post has no entry.
    Remove(PostId),
    /// All below here may be different; all there is, without.
    Stale(Option<Position>),
    /// How far the reader has read.
    Marker(Position),
}

/// An entry, with a place for its text: whoever needs it first writes it, and for many readers it is the same.
#[derive(Debug)]
pub struct Item {
    /// Where it stands.
    pub at: Position,
    /// The entry.
    pub entry: Entry,
    /// Its text.
    pub text: OnceLock<Box<str>>,
}

/// What an event takes beside the text of a post.
const EVENT_BYTES: usize = 192;

impl Event {
    /// About how many bytes it takes while it waits, as if they were not shared.
    pub fn bytes(&self) -> usize {
        let text = match &self.what {
            What::Post(item) => item.entry.post.json().len() + item.entry.reposts().len() * EVENT_BYTES,
            What::Update(post) => post.json().len(),
            What::Hello { .. } | What::Beat | What::Remove(_) | What::Stale(_) | What::Marker(_) => 0,
        };
        EVENT_BYTES + text
    }
}

/// The items made last: followers of one source are told of its post right after each other.
#[derive(Debug, Default)]
pub struct RecentItems {
    items: [Option<Arc<Item>>; RecentItems::MAX],
    next: usize,
}

impl RecentItems {
    /// As many as posts take turns in being delivered.
    const MAX: usize = 8;

    /// The item of an entry: one that was made already, if it looks the same.
    pub fn item(&mut self, at: Position, entry: Entry) -> Arc<Item> {
        let is_same = |item: &&Arc<Item>| item.at == at && item.entry.is_like(&entry);
        if let Some(item) = self.items.iter().flatten().find(is_same) {
            return Arc::clone(item);
        }
        let item = Arc::new(Item { at, entry, text: OnceLock::new() });
        self.items[self.next] = Some(Arc::clone(&item));
        self.next = (self.next + 1) % Self::MAX;
        item
    }
}

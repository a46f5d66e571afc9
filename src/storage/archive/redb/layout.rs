//! The encoding of the archive's rows.
//!
//! | table | key | value |
//! |---|---|---|
//! | `posts` | post id | `0` for a tombstone, or `1` and the post's bytes |
//! | `outboxes` | length of the source id in a byte, the id, `0` pushed or `1` pulled, position | nothing |
//! | `shelves` | source id | counts of the pushed and of the pulled posts, each: number of posts in 8 bytes, then `1` and the newest position, or 17 × `0` |
//! | `meta` | `format` | the number of this layout, [`FORMAT`] |
//! | `meta` | `identity-1`, `identity-2` | the first and the last 8 bytes of the data directory's identity; absent until it is known |
//! | `meta` | `through` | the journal event with which the archive was persisted last |
//!
//! A position is encoded as its rank, 16 bytes in big-endian order, so that the bytes sort as positions do. Other numbers are big-endian,
//! too.

use redb::{Error, TableDefinition};

use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::id::SourceId;
use crate::limits::SOURCE_ID_BYTES_MAX;
use crate::storage::archive::{ArchivedCounts, ArchivedRecord, RouteCount};

/// The layout that this version writes. It can also read layout 1, which is the same without page checksums in a separate file.
pub(super) const FORMAT: u64 = 2;

pub(super) const POSTS: TableDefinition<u64, &[u8]> = TableDefinition::new("posts");
pub(super) const OUTBOXES: TableDefinition<&[u8], ()> = TableDefinition::new("outboxes");
/// The keys are bytes and not text, since redb panics on invalid text.
pub(super) const OUTBOX_COUNTS: TableDefinition<&[u8], &[u8; COUNTS_BYTES]> = TableDefinition::new("shelves");
pub(super) const META: TableDefinition<&[u8], u64> = TableDefinition::new("meta");
/// The key of the layout number in `meta`.
pub(super) const META_FORMAT: &[u8] = b"format";
/// The key of the event with which the archive was persisted last, in `meta`.
pub(super) const META_THROUGH: &[u8] = b"through";

/// The keys of both halves of the data directory's identity in `meta`.
pub(super) const META_IDENTITY: [&[u8]; 2] = [b"identity-1", b"identity-2"];

pub(super) const TOMBSTONE: u8 = 0;
pub(super) const POST: u8 = 1;

const POSITION_BYTES: usize = 16;
const ROUTE_COUNT_BYTES: usize = 8 + 1 + POSITION_BYTES;
pub(super) const COUNTS_BYTES: usize = 2 * ROUTE_COUNT_BYTES;

const _: () = assert!(SOURCE_ID_BYTES_MAX <= u8::MAX as usize, "a key has one byte for the length of a source id");

/// Builds the keys of one source's outbox, in one reused buffer.
pub(super) struct OutboxKey {
    bytes: Vec<u8>,
    id_end: usize,
}

impl OutboxKey {
    pub(super) fn of(source: &SourceId) -> Self {
        let id = source.as_str().as_bytes();
        let mut bytes = Vec::with_capacity(1 + id.len() + 1 + POSITION_BYTES);
        bytes.push(id.len() as u8);
        bytes.extend_from_slice(id);
        Self { id_end: bytes.len(), bytes }
    }

    pub(super) fn at(&mut self, route: Route, position: Position) -> &[u8] {
        self.bytes.truncate(self.id_end);
        self.bytes.push(match route {
            Route::Push => 0,
            Route::Pull => 1,
        });
        self.bytes.extend_from_slice(&position.rank().to_be_bytes());
        &self.bytes
    }

    /// Returns the source id in a key, or none if no version writes such a key.
    pub(super) fn source_in(key: &[u8]) -> Option<&[u8]> {
        let (length, rest) = key.split_first()?;
        rest.get(..usize::from(*length))
    }

    /// Returns the position in a key that was found between two keys of this outbox.
    pub(super) fn position_in(&self, found: &[u8]) -> Result<Position, Error> {
        found
            .get(self.id_end + 1..)
            .and_then(|rank| rank.try_into().ok())
            .map(|rank| Position::of_rank(u128::from_be_bytes(rank)))
            .ok_or_else(|| damaged(format!("an outbox has a key of {} bytes", found.len())))
    }
}

pub(super) fn kept(value: &[u8]) -> Result<ArchivedRecord, Error> {
    match value {
        [TOMBSTONE] => Ok(ArchivedRecord::Deleted),
        [POST, post @ ..] => Ok(ArchivedRecord::Post(post.to_vec())),
        _ => Err(damaged(format!("a post of {} bytes is neither post nor tombstone", value.len()))),
    }
}

pub(super) fn source(key: &[u8]) -> Result<SourceId, Error> {
    let text =
        str::from_utf8(key).map_err(|_| damaged("the source id of the counts of an outbox is not text".into()))?;
    SourceId::new(text).map_err(|why| damaged(format!("the counts of an outbox have a bad source id: {why}")))
}

pub(super) fn counts_bytes(archived_counts: &ArchivedCounts) -> [u8; COUNTS_BYTES] {
    let mut bytes = [0; COUNTS_BYTES];
    let (pushed, pulled) = bytes.split_at_mut(ROUTE_COUNT_BYTES);
    put_route_count(&archived_counts.pushed, pushed);
    put_route_count(&archived_counts.pulled, pulled);
    bytes
}

pub(super) fn archived_counts(bytes: &[u8; COUNTS_BYTES]) -> Result<ArchivedCounts, Error> {
    let (pushed, pulled) = bytes.split_at(ROUTE_COUNT_BYTES);
    Ok(ArchivedCounts { pushed: count(pushed)?, pulled: count(pulled)? })
}

fn put_route_count(count: &RouteCount, bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(&count.posts.to_be_bytes());
    if let Some(newest) = count.newest {
        bytes[8] = 1;
        bytes[9..].copy_from_slice(&newest.rank().to_be_bytes());
    }
}

fn count(bytes: &[u8]) -> Result<RouteCount, Error> {
    let bad = || damaged("the counts of an outbox hold an invalid number".into());
    let (posts, newest) = bytes.split_first_chunk().ok_or_else(bad)?;
    let posts = u64::from_be_bytes(*posts);
    let newest = match newest {
        [0, ..] if posts == 0 => None,
        [1, rank @ ..] => Some(Position::of_rank(u128::from_be_bytes(rank.try_into().map_err(|_| bad())?))),
        _ => return Err(bad()),
    };
    Ok(RouteCount { newest, posts })
}

/// Creates the error that redb itself returns for an invalid file.
pub(super) fn damaged(what: String) -> Error {
    Error::Corrupted(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    /// Files with these bytes exist. A change of the layout must increase [`FORMAT`] and describe how the older bytes are read.
    #[test]
    fn rows_have_the_documented_bytes() {
        let mut key = OutboxKey::of(&SourceId::new("ann").unwrap());
        let position = [0x80, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4];
        assert_eq!(key.at(Route::Push, at(0x0102, 0x0304)), [&b"\x03ann\x00"[..], &position].concat());
        assert_eq!(key.at(Route::Pull, at(0x0102, 0x0304)), [&b"\x03ann\x01"[..], &position].concat());
        let before = [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(key.at(Route::Push, at(-1, 9)), [&b"\x03ann\x00"[..], &before].concat());

        let pushed = RouteCount { newest: Some(at(0x0102, 0x0304)), posts: 0x0506 };
        let archived_counts = ArchivedCounts { pushed, pulled: RouteCount::default() };
        let bytes = [&[0, 0, 0, 0, 0, 0, 5, 6, 1][..], &position, &[0; ROUTE_COUNT_BYTES]].concat();
        assert_eq!(counts_bytes(&archived_counts).as_slice(), bytes);
        assert_eq!(super::archived_counts(&counts_bytes(&archived_counts)).unwrap(), archived_counts);
        assert_eq!((FORMAT, TOMBSTONE, POST), (2, 0, 1));
    }
}

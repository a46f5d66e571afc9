//! Batches, and reads of everything, for tests of archives in any crate.
#![cfg(any(test, feature = "testing"))]
#![allow(missing_docs, clippy::missing_panics_doc, reason = "tests")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::feed::outbox::{OutboxQuery, Part, Route};
use crate::feed::position::{Direction, Position, PositionRange, at};
use crate::id::{PostId, SourceId};
use crate::storage::archive::{Archive, ArchivedRecord, Batch};
use crate::storage::sequence::Sequence;

/// Bytes of the cache of an archive under test.
pub const CACHE_BYTES: usize = 1 << 20;

pub fn source(id: &str) -> SourceId {
    SourceId::new(id).expect("tests use good ids")
}

/// Returns an empty batch that is later than all before.
pub fn next_batch() -> Batch {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Batch { as_of: Sequence(LAST.fetch_add(1, Ordering::Relaxed) + 1), ..Batch::default() }
}

pub fn posts<const N: usize>(posts: [(u64, ArchivedRecord); N]) -> Batch {
    Batch { posts: posts.into_iter().map(|(id, kept)| (PostId(id), kept)).collect(), ..next_batch() }
}

pub fn post(text: &str) -> ArchivedRecord {
    ArchivedRecord::Post(text.into())
}

pub fn placed<const N: usize>(entries: [(&str, Position, Route); N]) -> Batch {
    let entries = entries.into_iter().map(|(id, position, route)| (source(id), position, route));
    Batch { placed: entries.collect(), ..next_batch() }
}

pub fn removed<const N: usize>(entries: [(&str, Position); N]) -> Batch {
    Batch { removed: entries.into_iter().map(|(id, at)| (source(id), at)).collect(), ..next_batch() }
}

/// Returns the copied positions. They are appended to a list that has an entry already, which must be unchanged.
pub fn copied(
    archive: &dyn Archive,
    id: &str,
    part: Part,
    span: PositionRange,
    way: Direction,
    max: usize,
) -> Vec<Position> {
    let mut into = vec![at(999, 9)];
    let query = OutboxQuery { part, span, direction: way, max };
    archive.positions(&source(id), query, &mut into).expect("the archive can be read");
    assert_eq!(into.remove(0), at(999, 9));
    into
}

pub fn all(archive: &dyn Archive, id: &str, part: Part) -> Vec<Position> {
    copied(archive, id, part, PositionRange::ALL, Direction::Newer, usize::MAX)
}

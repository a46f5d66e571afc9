//! The layout of a route of an outbox: its buckets, and the lowest position of each.
//!
//! A bucket is a partition of Cassandra. A source with few posts has one bucket. A busy one gets a new bucket after every
//! [`BucketLimits::rows`] entries. So no partition grows without bound, and a page reads no more than it needs. The first bucket begins
//! below all positions. Its id is [`FIRST`] until it is replaced, so a source with few entries needs no stored layout. Ids of other
//! buckets are random and never reused: a replaced bucket is not read again, even if it still has rows.

use tidewire::feed::position::{Direction, Position, PositionRange};

/// Sizes of buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BucketLimits {
    /// Number of entries after which the newest bucket is closed. A bucket with more than twice as many, because of late entries, is
    /// split.
    pub(super) rows: usize,
    /// Number of removed entries after which a bucket is rewritten. Each leaves a tombstone behind, and a read must pass all of them.
    pub(super) removed: u32,
}

impl Default for BucketLimits {
    fn default() -> Self {
        // A read of this many rows or tombstones takes a few milliseconds.
        Self { rows: 4_096, removed: 1_024 }
    }
}

/// Id of a bucket.
pub(super) type BucketId = i64;

/// The id of the first bucket of a layout that was never stored.
pub(super) const FIRST: BucketId = 0;

/// The id of a bucket without a partition: everything in it was removed.
pub(super) const EMPTY: BucketId = -1;

/// The first byte of a stored layout.
const VERSION: u8 = 1;

/// Bytes of a stored bucket: time and id of its lowest position, and its own id.
const BUCKET_BYTES: usize = 24;

/// A part of an outbox that is stored together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket {
    /// The lowest position of the bucket. It extends to the start of the next bucket.
    pub(super) begins: Position,
    pub(super) id: BucketId,
}

/// The buckets of a route of an outbox, oldest first. There is at least one, and the first begins at [`Position::MIN`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout(Vec<Bucket>);

impl Default for Layout {
    fn default() -> Self {
        Self(vec![Bucket { begins: Position::MIN, id: FIRST }])
    }
}

impl Layout {
    /// Returns the bucket with the newest positions.
    pub(super) fn newest(&self) -> Bucket {
        *self.0.last().expect("a layout has at least one bucket")
    }

    /// Returns the bucket of a position.
    pub(super) fn of(&self, position: Position) -> Bucket {
        self.0[self.index_of(position)]
    }

    fn index_of(&self, position: Position) -> usize {
        self.0.partition_point(|bucket| bucket.begins <= position) - 1
    }

    /// Returns the buckets that may have positions of a span, nearest first in `direction`, each with its part of the span.
    pub(super) fn of_span(&self, span: PositionRange, direction: Direction) -> Vec<(Bucket, PositionRange)> {
        if span.is_empty() {
            return Vec::new();
        }
        let (first, last) = (self.index_of(span.above.next_up()), self.index_of(span.below));
        let buckets = (first..=last).filter(|index| self.0[*index].id != EMPTY);
        let parts = buckets.map(|index| (self.0[index], self.part(index, span))).filter(|(_, part)| !part.is_empty());
        let mut parts: Vec<_> = parts.collect();
        if direction == Direction::Older {
            parts.reverse();
        }
        parts
    }

    /// Returns the part of a span that is in a bucket.
    fn part(&self, index: usize, span: PositionRange) -> PositionRange {
        let begins = self.0[index].begins;
        let above = if begins == Position::MIN { Position::MIN } else { previous(begins) };
        let below = self.0.get(index + 1).map_or(Position::MAX, |next| next.begins);
        PositionRange { above: span.above.max(above), below: span.below.min(below) }
    }

    /// Closes the newest bucket: a new one begins at `position`, which must be above everything in it.
    pub(super) fn close_newest(&mut self, position: Position, id: BucketId) {
        debug_assert!(position > self.newest().begins, "a bucket begins above the one before it");
        self.0.push(Bucket { begins: position, id });
    }

    /// Replaces the bucket of a position by others, each with its lowest position. The first of them begins where the replaced bucket
    /// did.
    pub(super) fn replace(&mut self, at: Position, pieces: &[Bucket]) {
        let index = self.index_of(at);
        let begins = self.0[index].begins;
        let first = pieces.first().map_or(EMPTY, |piece| piece.id);
        let pieces = std::iter::once(Bucket { begins, id: first }).chain(pieces.iter().skip(1).copied());
        self.0.splice(index..=index, pieces);
    }

    /// Returns the ids of all buckets that have a partition.
    pub(super) fn ids(&self) -> impl Iterator<Item = BucketId> {
        self.0.iter().map(|bucket| bucket.id).filter(|id| *id != EMPTY)
    }

    /// Returns an estimate of the memory of the layout.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Bucket>()
    }

    /// Returns the bytes to store.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.0.len() * BUCKET_BYTES);
        bytes.push(VERSION);
        for Bucket { begins, id } in &self.0 {
            bytes.extend(begins.rank().to_be_bytes());
            bytes.extend(id.to_be_bytes());
        }
        bytes
    }

    /// Returns the layout with these bytes.
    ///
    /// # Errors
    /// Fails with a description if the bytes are not a layout.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (version, rest) = bytes.split_first().ok_or("a layout has no bytes")?;
        if *version != VERSION {
            return Err(format!("a layout has version {version}"));
        }
        let (buckets, []) = rest.as_chunks::<BUCKET_BYTES>() else {
            return Err(format!("a layout has {} bytes", bytes.len()));
        };
        let buckets: Vec<Bucket> = buckets.iter().map(bucket).collect();
        let is_first = buckets.first().is_some_and(|first| first.begins == Position::MIN);
        if !is_first || !buckets.is_sorted_by(|a, b| a.begins < b.begins) {
            return Err("the buckets of a layout are not in order".to_owned());
        }
        Ok(Self(buckets))
    }
}

fn bucket(bytes: &[u8; BUCKET_BYTES]) -> Bucket {
    let (begins, id) = bytes.split_at(16);
    let begins = begins.try_into().expect("it has 16 of the 24 bytes");
    let id = id.try_into().expect("it has 8 of the 24 bytes");
    Bucket { begins: Position::of_rank(u128::from_be_bytes(begins)), id: i64::from_be_bytes(id) }
}

/// Returns the position directly below another, which is not the lowest.
fn previous(position: Position) -> Position {
    Position::of_rank(position.rank() - 1)
}

/// Returns the bigint that stands for a post id, in the same order.
pub(super) fn id_to_row(id: u64) -> i64 {
    (id ^ (1 << 63)).cast_signed()
}

/// Returns the post id of a bigint.
pub(super) fn id_of_row(id: i64) -> u64 {
    id.cast_unsigned() ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidewire::feed::position::at;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.close_newest(at(10, 0), 1);
        layout.close_newest(at(20, 5), 2);
        layout
    }

    #[test]
    fn a_position_belongs_to_the_last_bucket_that_begins_below_it() {
        for (position, id) in [
            (Position::MIN, FIRST),
            (at(9, u64::MAX), FIRST),
            (at(10, 0), 1),
            (at(20, 4), 1),
            (at(20, 5), 2),
            (Position::MAX, 2),
        ] {
            assert_eq!(layout().of(position).id, id, "{position:?}");
        }
    }

    #[test]
    fn a_range_is_read_bucket_by_bucket_nearest_first() {
        let ids = |above, below, direction| -> Vec<_> {
            layout().of_span(PositionRange { above, below }, direction).iter().map(|(bucket, _)| bucket.id).collect()
        };
        assert_eq!(ids(Position::MIN, Position::MAX, Direction::Older), [2, 1, FIRST]);
        assert_eq!(ids(Position::MIN, Position::MAX, Direction::Newer), [FIRST, 1, 2]);
        assert_eq!(ids(at(9, u64::MAX), at(20, 5), Direction::Newer), [1]);
        assert_eq!(ids(at(9, u64::MAX - 1), at(20, 6), Direction::Newer), [FIRST, 1, 2]);
        assert_eq!(ids(at(12, 0), at(12, 1), Direction::Newer), [0; 0]);
        assert_eq!(ids(at(12, 0), at(11, 0), Direction::Newer), [0; 0]);
    }

    #[test]
    fn the_pieces_of_a_replaced_bucket_take_its_place() {
        let mut layout = layout();
        layout.replace(at(19, 0), &[Bucket { begins: at(11, 0), id: 7 }, Bucket { begins: at(15, 0), id: 8 }]);
        let begins: Vec<_> = layout.0.iter().map(|bucket| (bucket.begins, bucket.id)).collect();
        assert_eq!(begins, [(Position::MIN, FIRST), (at(10, 0), 7), (at(15, 0), 8), (at(20, 5), 2)]);
        // An empty bucket is not read.
        layout.replace(at(10, 0), &[]);
        assert_eq!(layout.ids().collect::<Vec<_>>(), [FIRST, 8, 2]);
        let read = layout.of_span(PositionRange { above: at(9, 0), below: at(15, 1) }, Direction::Newer);
        assert_eq!(read.iter().map(|(bucket, _)| bucket.id).collect::<Vec<_>>(), [FIRST, 8]);
    }

    #[test]
    fn invalid_layout_bytes_are_refused() {
        let good = layout().encode();
        assert_eq!(Layout::decode(&good), Ok(layout()));
        let mut out_of_order = good.clone();
        out_of_order[1 + BUCKET_BYTES..].rotate_left(BUCKET_BYTES);
        for bad in [&[][..], &[9], &[VERSION], &good[..good.len() - 1], &good[BUCKET_BYTES..], &out_of_order] {
            assert!(Layout::decode(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn the_parts_of_a_range_cover_it_exactly_once(
            begins in prop::collection::btree_set((-9..9i64, 0..3u64), 0..6),
            (above, below) in ((-12..12i64, 0..4u64), (-12..12i64, 0..4u64)),
            asked in (-12..12i64, 0..4u64),
        ) {
            let mut layout = Layout::default();
            begins.into_iter().zip(1..).for_each(|((time, id), nth)| layout.close_newest(at(time, id), nth));
            let span = PositionRange { above: at(above.0, above.1), below: at(below.0, below.1) };
            let asked = at(asked.0, asked.1);
            let covers = layout.of_span(span, Direction::Newer).into_iter()
                .filter(|(_, part)| asked > part.above && asked < part.below)
                .map(|(bucket, _)| bucket.id)
                .collect::<Vec<_>>();
            let expected = if asked > span.above && asked < span.below { vec![layout.of(asked).id] } else { vec![] };
            prop_assert_eq!(covers, expected);
        }

        #[test]
        fn ids_are_in_the_order_of_their_rows(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(a.cmp(&b), id_to_row(a).cmp(&id_to_row(b)));
            prop_assert_eq!(id_of_row(id_to_row(a)), a);
        }
    }
}

//! The columns of a reader's edges: the followed sources and the instants at which they were followed, in one allocation.
//!
//! The slots of all sources come first, four bytes each, so that a search reads nothing else. The instants follow as differences from the
//! smallest one. For a reader whose edges span nine years, each takes six bytes.

use crate::clock::UnixMicros;
use crate::feed::heap::allocated;
use crate::id::SourceSlot;

const SLOT_BYTES: usize = size_of::<u32>();

/// Sources with an instant each, sorted by source.
#[derive(Clone, Debug, Default)]
pub(super) struct EdgeColumns {
    /// The width of the instants, the slots, and the instants less `base`, little-endian. It has no spare capacity: allocators round sizes
    /// up, and grow in place. The width is stored in it because a field of its own would cost a reader without edges 16 bytes.
    bytes: Box<[u8]>,
    base: i64,
}

/// The place of the first slot, after the width.
const SLOTS: usize = 1;

impl EdgeColumns {
    /// Stores edges that are sorted by source.
    pub(super) fn of(edges: impl Iterator<Item = (SourceSlot, UnixMicros)> + Clone) -> Self {
        let Some(base) = edges.clone().map(|edge| edge.1.0).min() else { return Self::default() };
        let most = edges.clone().map(|edge| difference(edge.1, base)).max().unwrap_or(0);
        let width = width_of(most);
        let mut bytes = Vec::with_capacity(SLOTS + edges.clone().count() * (SLOT_BYTES + width));
        bytes.push(width as u8);
        edges.clone().for_each(|edge| bytes.extend(edge.0.0.to_le_bytes()));
        edges.for_each(|edge| bytes.extend(&difference(edge.1, base).to_le_bytes()[..width]));
        Self { bytes: bytes.into(), base }
    }

    pub(super) fn len(&self) -> usize {
        // A 32-bit division is faster. A reader has at most some thousands of edges.
        (self.bytes.len() as u32 / (SLOT_BYTES + self.width()) as u32) as usize
    }

    /// Returns the place of a source, or the place at which it would be inserted.
    pub(super) fn find(&self, source: SourceSlot) -> Result<usize, usize> {
        self.slots().binary_search_by_key(&source, from_bytes)
    }

    /// Returns the sources, in ascending order.
    pub(super) fn sources(&self) -> impl ExactSizeIterator<Item = SourceSlot> + DoubleEndedIterator + Clone {
        self.slots().iter().map(from_bytes)
    }

    /// Returns the edge at a place below [`EdgeColumns::len`].
    pub(super) fn get(&self, at: usize) -> (SourceSlot, UnixMicros) {
        (from_bytes(&self.slots()[at]), self.since(self.len(), at))
    }

    /// Returns all edges, sorted by source.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (SourceSlot, UnixMicros)> + DoubleEndedIterator + Clone {
        let count = self.len();
        self.sources().enumerate().map(move |(at, source)| (source, self.since(count, at)))
    }

    /// Adds an edge at the place that [`EdgeColumns::find`] returned as an error.
    pub(super) fn insert(&mut self, at: usize, source: SourceSlot, since: UnixMicros) {
        let count = self.len();
        if !self.has_width_for(since) {
            let edges: Vec<_> = self.iter().take(at).chain([(source, since)]).chain(self.iter().skip(at)).collect();
            *self = Self::of(edges.into_iter());
            return;
        }
        let width = self.width();
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        bytes.reserve_exact(SLOT_BYTES + width);
        bytes.resize(bytes.len() + SLOT_BYTES + width, 0);
        let (slot, slots_end) = (SLOTS + at * SLOT_BYTES, SLOTS + count * SLOT_BYTES);
        let (age, ages_end) = (slots_end + at * width, slots_end + count * width);
        bytes.copy_within(age..ages_end, age + SLOT_BYTES + width);
        bytes.copy_within(slot..age, slot + SLOT_BYTES);
        bytes[slot..][..SLOT_BYTES].copy_from_slice(&source.0.to_le_bytes());
        bytes[age + SLOT_BYTES..][..width].copy_from_slice(&difference(since, self.base).to_le_bytes()[..width]);
        self.bytes = bytes.into_boxed_slice();
    }

    /// Removes the edge at a place below [`EdgeColumns::len`].
    pub(super) fn remove(&mut self, at: usize) {
        let (count, width) = (self.len(), self.width());
        if count == 1 {
            return *self = Self::default();
        }
        let (slot, age) = (SLOTS + at * SLOT_BYTES, SLOTS + count * SLOT_BYTES + at * width);
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        bytes.drain(age..age + width);
        bytes.drain(slot..slot + SLOT_BYTES);
        self.bytes = bytes.into_boxed_slice();
    }

    /// Sets the instant of the edge at a place below [`EdgeColumns::len`].
    pub(super) fn set_since(&mut self, at: usize, since: UnixMicros) {
        let source = self.get(at).0;
        self.remove(at);
        self.insert(at, source, since);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocated(self.bytes.len())
    }

    fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        self.bytes.get(SLOTS..SLOTS + self.len() * SLOT_BYTES).unwrap_or_default().as_chunks().0
    }

    fn since(&self, count: usize, at: usize) -> UnixMicros {
        let width = self.width();
        let start = SLOTS + count * SLOT_BYTES + at * width;
        let mut number = [0; 8];
        number[..width].copy_from_slice(&self.bytes[start..start + width]);
        UnixMicros(self.base.wrapping_add(u64::from_le_bytes(number).cast_signed()))
    }

    fn has_width_for(&self, since: UnixMicros) -> bool {
        !self.bytes.is_empty() && since.0 >= self.base && width_of(difference(since, self.base)) <= self.width()
    }

    /// Returns the bytes of each instant.
    fn width(&self) -> usize {
        self.bytes.first().map_or(0, |width| usize::from(*width))
    }
}

fn from_bytes(slot: &[u8; SLOT_BYTES]) -> SourceSlot {
    SourceSlot(u32::from_le_bytes(*slot))
}

/// Returns the difference of an instant from `base`, exact for any two instants.
fn difference(since: UnixMicros, base: i64) -> u64 {
    since.0.wrapping_sub(base).cast_unsigned()
}

fn width_of(difference: u64) -> usize {
    (u64::BITS - difference.leading_zeros()).div_ceil(8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u32, i64),
        SetSince(u32, i64),
        Remove(u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        let since = || prop_oneof![8 => 0..300i64, 4 => any::<u32>().prop_map(i64::from), 1 => any::<i64>(), 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
        prop_oneof![
            8 => (0..40u32, since()).prop_map(|(source, since)| Op::Insert(source, since)),
            1 => (0..40u32, since()).prop_map(|(source, since)| Op::SetSince(source, since)),
            3 => (0..40u32).prop_map(Op::Remove),
        ]
    }

    proptest! {
        #[test]
        fn edge_columns_agree_with_a_sorted_map(ops in prop::collection::vec(op(), 0..120)) {
            let (mut columns, mut model) = (EdgeColumns::default(), BTreeMap::new());
            for op in ops {
                let (Op::Insert(source, _) | Op::SetSince(source, _) | Op::Remove(source)) = op;
                let found = columns.find(SourceSlot(source));
                prop_assert_eq!(found.is_ok(), model.contains_key(&SourceSlot(source)));
                match (op, found) {
                    (Op::Insert(_, since), Err(at)) => {
                        columns.insert(at, SourceSlot(source), UnixMicros(since));
                        model.insert(SourceSlot(source), UnixMicros(since));
                    }
                    (Op::SetSince(_, since), Ok(at)) => {
                        columns.set_since(at, UnixMicros(since));
                        model.insert(SourceSlot(source), UnixMicros(since));
                    }
                    (Op::Remove(_), Ok(at)) => {
                        columns.remove(at);
                        model.remove(&SourceSlot(source));
                    }
                    _ => {}
                }
                let expected = || model.iter().map(|(source, since)| (*source, *since));
                prop_assert!(columns.iter().eq(expected()));
                prop_assert!(columns.sources().eq(model.keys().copied()));
                prop_assert_eq!(columns.len(), model.len());
                prop_assert!((0..columns.len()).map(|at| columns.get(at)).eq(expected()));
                prop_assert!(EdgeColumns::of(expected()).iter().eq(expected()));
            }
        }
    }

    #[test]
    fn an_edge_uses_four_bytes_and_a_variable_length_age() {
        let mut columns = EdgeColumns::default();
        // The first edge has no age, a day is 5 bytes, and nine years are 6.
        for (nth, (age, bytes)) in [(0, 5), (86_400_000_000, 19), (280_000_000_000_000, 31)].into_iter().enumerate() {
            columns.insert(nth, SourceSlot(nth as u32), UnixMicros(1_763_700_000_000_000 + age));
            assert_eq!(columns.bytes.len(), bytes);
        }
    }
}

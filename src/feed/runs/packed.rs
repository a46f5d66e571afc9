//! A packed run: sorted keys as rows of equal width, which is the smallest that the run needs.
//!
//! All keys of a run are stored as differences from one base, with as many bytes as the largest difference of the run needs. Varying-length
//! deltas would not be denser for the gaps between posts of a feed, since each must encode its own length, and every access would have to
//! read the run from its start.

use std::ops::Range;

/// A key that can be packed: its difference from a smaller key nearby is a few small numbers.
pub trait Key: Copy + Ord {
    /// The numbers of one key, at most `NUMBERS_MAX` of them.
    type Numbers: Copy + Default + AsRef<[u64]> + AsMut<[u64]>;

    /// The number of ways to compute the differences. A run uses the one that makes it smallest.
    const WAYS: u8 = 1;

    /// Returns the difference of this key from `base`, which is not larger. The numbers identify the key exactly.
    fn count_from(self, base: Self, way: u8) -> Self::Numbers;

    /// Returns the key with this difference from `base`.
    fn count_to(base: Self, numbers: Self::Numbers, way: u8) -> Self;
}

/// Maximum number of numbers in one key.
const NUMBERS_MAX: usize = 4;

/// Maps a signed difference to a number that is small if the difference is small (zigzag encoding).
pub fn zigzag(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

/// Decodes a number that [`zigzag`] encoded.
pub fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
thread_local! {
    /// The rows that this thread has written, including those that were only moved.
    pub(in crate::feed) static ROWS_WRITTEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The bytes of each number of a key.
type Widths = [u8; NUMBERS_MAX];

/// A run of packed keys. Its owner stores the base.
#[derive(Clone, Debug)]
pub(in crate::feed) struct Packed {
    /// One row for each key: its numbers in little-endian bytes.
    rows: Box<[u8]>,
    widths: Widths,
    row_bytes: u8,
    way: u8,
    /// The number of rows, removed ones included.
    count: u8,
    /// The number of rows at the start whose keys were removed.
    gone: u8,
}

impl Packed {
    /// Packs sorted keys, none of them below `base`.
    pub(in crate::feed) fn of<K: Key>(base: K, keys: &[K]) -> Self {
        let ways = (0..K::WAYS).map(|way| (way, widths_of(base, keys, way)));
        let (way, widths) = ways.min_by_key(|(_, widths)| row_bytes(*widths)).unwrap_or_default();
        let mut run = Self { rows: Box::default(), widths, row_bytes: row_bytes(widths), way, count: 0, gone: 0 };
        run.append(base, keys);
        run
    }

    pub(in crate::feed) fn len(&self) -> usize {
        usize::from(self.count - self.gone)
    }

    pub(in crate::feed) fn is_empty(&self) -> bool {
        self.count == self.gone
    }

    /// Returns the key at an index below [`Packed::len`].
    pub(super) fn get<K: Key>(&self, base: K, place: usize) -> K {
        let mut numbers = K::Numbers::default();
        let mut at = self.offset(place);
        for (number, width) in numbers.as_mut().iter_mut().zip(self.widths) {
            *number = read_number(&self.rows, at, width);
            at += usize::from(width);
        }
        K::count_to(base, numbers, self.way)
    }

    /// Returns the largest key.
    pub(in crate::feed) fn last<K: Key>(&self, base: K) -> Option<K> {
        self.len().checked_sub(1).map(|last| self.get(base, last))
    }

    /// Returns all keys, in ascending order.
    pub(in crate::feed) fn keys<K: Key>(&self, base: K) -> impl DoubleEndedIterator<Item = K> {
        self.range(base, 0..self.len())
    }

    /// Returns the keys at a range of indexes.
    pub(in crate::feed) fn range<K: Key>(&self, base: K, places: Range<usize>) -> impl DoubleEndedIterator<Item = K> {
        places.map(move |place| self.get(base, place))
    }

    /// Returns the number of keys at the start for which `is_before` is true.
    pub(in crate::feed) fn partition_point<K: Key>(&self, base: K, is_before: impl Fn(K) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.get(base, middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the index of a key, or the index at which it would be inserted.
    pub(in crate::feed) fn search<K: Key>(&self, base: K, key: K) -> Result<usize, usize> {
        let place = self.partition_point(base, |other| other < key);
        if place < self.len() && self.get(base, place) == key { Ok(place) } else { Err(place) }
    }

    /// Appends sorted keys that are above all others.
    pub(in crate::feed) fn extend<K: Key>(&mut self, base: K, keys: &[K]) {
        if self.has_width_for(base, keys) {
            self.append(base, keys);
        } else {
            let all: Vec<K> = self.keys(base).chain(keys.iter().copied()).collect();
            *self = Self::of(base, &all);
        }
    }

    /// Adds a key at the index that [`Packed::search`] returned as an error.
    pub(super) fn insert<K: Key>(&mut self, base: K, place: usize, key: K) {
        if self.has_width_for(base, &[key]) {
            self.append(base, &[key]);
            let start = self.offset(place);
            self.rows[start..].rotate_right(usize::from(self.row_bytes));
        } else {
            let mut keys: Vec<K> = self.keys(base).collect();
            keys.insert(place, key);
            *self = Self::of(base, &keys);
        }
    }

    /// Removes the key at an index.
    pub(in crate::feed) fn remove(&mut self, place: usize) {
        if place == 0 {
            self.gone += 1;
            return;
        }
        let start = self.offset(place);
        let mut rows = std::mem::take(&mut self.rows).into_vec();
        rows.drain(start..start + usize::from(self.row_bytes));
        self.rows = rows.into_boxed_slice();
        self.count -= 1;
    }

    /// Frees the rows of removed keys if they are more than half of all rows.
    pub(in crate::feed) fn shrink(&mut self) {
        if self.gone > self.count / 2 {
            self.rows = self.rows[self.offset(0)..].into();
            (self.count, self.gone) = (self.count - self.gone, 0);
        }
    }

    pub(in crate::feed) fn heap_bytes(&self) -> usize {
        self.rows.len()
    }

    fn offset(&self, place: usize) -> usize {
        (usize::from(self.gone) + place) * usize::from(self.row_bytes)
    }

    fn has_width_for<K: Key>(&self, base: K, keys: &[K]) -> bool {
        let needed = widths_of(base, keys, self.way);
        needed.iter().zip(self.widths).all(|(needed, width)| *needed <= width)
    }

    /// Copies the rows to a new allocation and appends the rows of more keys. Rows of removed keys are dropped.
    fn append<K: Key>(&mut self, base: K, keys: &[K]) {
        let gone_bytes = self.offset(0);
        let mut at = self.rows.len() - gone_bytes;
        let end = at + keys.len() * usize::from(self.row_bytes);
        #[cfg(test)]
        ROWS_WRITTEN.set(ROWS_WRITTEN.get() + self.len() + keys.len());
        let mut rows = Vec::with_capacity(end);
        rows.extend_from_slice(&self.rows[gone_bytes..]);
        rows.resize(end, 0);
        for key in keys {
            let numbers = key.count_from(base, self.way);
            for (number, width) in numbers.as_ref().iter().zip(self.widths) {
                write_number(&mut rows, at, *number);
                at += usize::from(width);
            }
        }
        self.count =
            u8::try_from(self.len() + keys.len()).expect("a run has at most RUN_KEYS_MAX keys, which is below 256");
        self.gone = 0;
        self.rows = rows.into_boxed_slice();
    }
}

fn row_bytes(widths: Widths) -> u8 {
    widths.into_iter().sum()
}

/// Returns the bytes that the largest of each number needs.
fn widths_of<K: Key>(base: K, keys: &[K], way: u8) -> Widths {
    let mut all = K::Numbers::default();
    for key in keys {
        let numbers = key.count_from(base, way);
        // The union of all bits is as long as the longest number.
        all.as_mut().iter_mut().zip(numbers.as_ref()).for_each(|(all, number)| *all |= number);
    }
    let mut widths = Widths::default();
    for (width, all) in widths.iter_mut().zip(all.as_ref()) {
        *width = (u64::BITS - all.leading_zeros()).div_ceil(8) as u8;
    }
    widths
}

/// Writes a number followed by zeros, which the next numbers overwrite: a write of eight bytes is faster than one of any other length.
fn write_number(rows: &mut [u8], at: usize, number: u64) {
    let bytes = number.to_le_bytes();
    let rest = &mut rows[at..];
    match rest.first_chunk_mut() {
        Some(chunk) => *chunk = bytes,
        None => rest.copy_from_slice(&bytes[..rest.len()]),
    }
}

/// Reads eight bytes and masks those beyond the number.
fn read_number(rows: &[u8], at: usize, width: u8) -> u64 {
    let rest = &rows[at..];
    let mut bytes = [0; 8];
    match rest.first_chunk() {
        Some(chunk) => bytes = *chunk,
        None => bytes[..rest.len()].copy_from_slice(rest),
    }
    let mask = u64::MAX.checked_shr(u64::BITS - 8 * u32::from(width)).unwrap_or(0);
    u64::from_le_bytes(bytes) & mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::{Position, at};

    fn row_bytes_of(keys: &[Position]) -> usize {
        let run = Packed::of(keys[0], keys);
        assert!(run.keys(keys[0]).eq(keys.iter().copied()));
        run.heap_bytes() / keys.len()
    }

    const NOVEMBER: i64 = 1_763_700_000_000_000;

    #[test]
    fn id_bits_derived_from_the_time_use_no_bytes() {
        let gaps = |micros: i64| (0..32).map(move |nth| NOVEMBER + nth * micros + nth % 7);
        let minted = |time: i64| at(time, (time as u64) << 12);
        assert_eq!(row_bytes_of(&gaps(1_000).map(minted).collect::<Vec<_>>()), 2);
        assert_eq!(row_bytes_of(&gaps(600_000_000).map(minted).collect::<Vec<_>>()), 5);
        let snowflake = |time: i64| {
            let millis = time as u64 / 1_000 - 1_288_834_974_657;
            at(time, (millis << 22) + time as u64 * 7_919 % 4_000)
        };
        assert_eq!(row_bytes_of(&gaps(600_000_000).map(snowflake).collect::<Vec<_>>()), 7);
        let counted = |time: i64| at(time, (time - NOVEMBER) as u64 / 500_000);
        assert_eq!(row_bytes_of(&gaps(600_000_000).map(counted).collect::<Vec<_>>()), 8);
    }

    #[test]
    fn keys_at_maximum_distance_are_exact() {
        let extremes =
            [Position::MIN, at(i64::MIN, u64::MAX), at(-1, 0), at(0, u64::MAX), at(1, 1 << 63), Position::MAX];
        assert_eq!(row_bytes_of(&extremes), 16);
        let mut run = Packed::of(extremes[0], &extremes[..1]);
        for (place, key) in extremes.iter().enumerate().skip(1) {
            run.insert(extremes[0], place, *key);
        }
        assert!(run.keys(extremes[0]).eq(extremes));
    }

    #[test]
    fn a_key_that_fits_is_inserted_in_place_and_a_wider_one_widens_all_rows() {
        let keys = [10, 20, 30].map(|time| at(time, 5));
        let mut run = Packed::of(keys[0], &keys);
        run.insert(keys[0], 1, at(15, 5));
        assert_eq!(run.heap_bytes(), 4);
        run.remove(0);
        run.remove(1);
        run.insert(keys[0], 2, at(70_000, 6));
        assert!(run.keys(keys[0]).eq([at(15, 5), at(30, 5), at(70_000, 6)]));
        assert_eq!(run.search(keys[0], at(30, 5)), Ok(1));
        assert_eq!(run.search(keys[0], at(30, 6)), Err(2));
    }

    #[test]
    fn removed_keys_free_their_rows() {
        let mut run = Packed::of(at(0, 5), &[at(0, 5)]);
        for time in 1..1_000 {
            run.insert(at(0, 5), 1, at(time, 5));
            run.remove(0);
            assert!(run.keys(at(0, 5)).eq([at(time, 5)]) && run.heap_bytes() <= 4);
        }
    }

    #[test]
    fn zigzag_encodes_small_differences_as_small_numbers() {
        for (difference, number) in [(0, 0), (-1, 1), (1, 2), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)] {
            assert_eq!(zigzag(difference.cast_unsigned()), number);
            assert_eq!(unzigzag(number), difference.cast_unsigned());
        }
    }
}

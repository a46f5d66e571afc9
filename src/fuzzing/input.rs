//! Bytes that a fuzzer made up, taken as numbers, pieces and changes of what was right.

/// Changes of one file. CRC-32C tells any five flipped bits in so short frames and blocks, and runs of bytes but for one in four
/// billion, so damage that nothing notices is a bug and no accident.
pub(super) const CHANGES_MAX: usize = 4;

/// What is left of an input. Behind its end come zeros.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number of two bytes.
    pub(super) fn number(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    /// A number of two bytes, and as many bytes as it says or there are.
    pub(super) fn piece(&mut self) -> &'a [u8] {
        let length = self.number().min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// Flips a bit, cuts off, blanks or takes out a run.
    pub(super) fn damage(&mut self, bytes: &mut Vec<u8>) {
        let (how, run) = (self.byte(), self.run(bytes.len()));
        match how % 4 {
            0 => bytes[run].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (how >> 5)),
            1 => bytes.truncate(run.start),
            2 => bytes[run].fill(0),
            _ => drop(bytes.drain(run)),
        }
    }

    /// Writes a run once more, elsewhere: over what is there, or in front of it.
    pub(super) fn repeat(&mut self, bytes: &mut Vec<u8>) {
        let (how, run, to) = (self.byte(), self.run(bytes.len()), self.number().min(bytes.len()));
        let copy = bytes[run].to_vec();
        let end = if how % 2 == 0 { to } else { (to + copy.len()).min(bytes.len()) };
        bytes.splice(to..end, copy);
    }

    fn run(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.number().min(length);
        start..start.saturating_add(self.number()).min(length)
    }
}

//! The bytes of a fuzzer, read as numbers, byte strings and modifications of valid data.

/// Maximum number of modifications of one file. CRC-32C detects any five flipped bits in frames and blocks this short, and detects damaged
/// runs of bytes except for one in four billion. So damage that is not detected is a bug and not an accident.
pub(super) const CHANGES_MAX: usize = 4;

/// The rest of an input. Reads beyond its end return zeros.
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

    /// Reads a number of two bytes.
    pub(super) fn number(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    /// Reads a length of two bytes, and that many bytes or all that are left.
    pub(super) fn piece(&mut self) -> &'a [u8] {
        let length = self.number().min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// Damages `bytes`: flips a bit, truncates them, overwrites a run with zeros, or removes a run.
    pub(super) fn damage(&mut self, bytes: &mut Vec<u8>) {
        let (how, run) = (self.byte(), self.run(bytes.len()));
        match how % 4 {
            0 => bytes[run].iter_mut().take(1).for_each(|byte| *byte ^= 1 << (how >> 5)),
            1 => bytes.truncate(run.start),
            2 => bytes[run].fill(0),
            _ => drop(bytes.drain(run)),
        }
    }

    /// Copies a run to another place, where it overwrites the bytes or is inserted.
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

//! A limit on the pages that a test reads in a row.

/// More than any test reads.
const PAGES_MAX: usize = 10_000;

/// Counts the pages of one scroll. So a cursor that does not advance fails the test instead of looping forever.
#[derive(Debug, Default)]
pub struct PageCount(usize);

impl PageCount {
    /// Counts one more page.
    #[track_caller]
    pub fn count(&mut self) {
        self.0 += 1;
        assert!(self.0 <= PAGES_MAX, "no end after {PAGES_MAX} pages");
    }
}

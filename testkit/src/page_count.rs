//! A limit on the pages that a test reads in a row.

/// More than any test reads.
const PAGES_MAX: usize = 10_000;

/// Counts the pages of one scroll. A cursor that does not move on then fails the test, where it would read for ever.
#[derive(Debug, Default)]
pub struct PageCount(usize);

impl PageCount {
    /// Counts one page more.
    #[track_caller]
    pub fn count(&mut self) {
        self.0 += 1;
        assert!(self.0 <= PAGES_MAX, "no end after {PAGES_MAX} pages");
    }
}

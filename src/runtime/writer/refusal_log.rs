//! Log lines about writes that the journal refuses for a time, for example while the disk is full.
//!
//! Responsible for:
//! - at most one warning in each period, since every client that writes causes refusals, and one line when writes go on.
//!
//! Not responsible for:
//! - the error that callers get (`runtime::writer`).

use tracing::{info, warn};

use crate::storage::journal::JournalError;
use crate::throttle::Throttle;

/// What was logged about refused writes.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    throttle: Throttle,
    /// What to log when a write is stored again. None if no warning was logged since.
    resumed: Option<&'static str>,
}

impl RefusalLog {
    /// Logs that writes are refused `until` something happens, and keeps what to log when it has happened.
    pub(super) fn refused(&mut self, cause: &JournalError, until: &str, resumed: Option<&'static str>) {
        let Some(left_out) = self.throttle.due() else { return };
        warn!(more_since_last = left_out, "{cause}; writes are refused {until}");
        self.resumed = resumed;
    }

    /// Logs that writes go on, if the last line was a warning.
    pub(super) fn stored(&mut self) {
        if let Some(resumed) = self.resumed.take() {
            info!("{resumed}, writes go on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_refusals_is_logged_once_and_only_after_a_warning() {
        let (mut log, again) = (RefusalLog::default(), Some("there is space again"));
        let cause = JournalError::DiskFull { place: "journal".to_owned() };
        log.stored();
        assert_eq!(log.resumed, None);
        log.refused(&cause, "until there is space", again);
        log.refused(&cause, "until there is space", again);
        assert_eq!(log.resumed, again);
        log.stored();
        assert_eq!(log.resumed, None);
        log.refused(&cause, "until there is space", again);
        assert_eq!(log.resumed, None, "this refusal was not logged, so soon after the last one");
    }
}

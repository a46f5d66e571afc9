//! The log lines about writes that the journal refuses for a time, for example while the disk is full, and the schedule
//! of probes.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::storage::journal::JournalError;
use crate::throttle::Throttle;

/// Interval between two probes.
pub(super) const PROBE_PERIOD: Duration = Duration::from_secs(1);

/// The last log line about refused writes, and the last probe.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    throttle: Throttle,
    logged: Option<Logged>,
    probed_at: Option<Duration>,
}

/// A warning that was logged.
#[derive(Debug)]
struct Logged {
    since: Instant,
    /// The message to log when a write is stored again.
    resumed: &'static str,
}

impl RefusalLog {
    /// Logs that writes are refused `until` something happens, unless that was already logged. Stores the message to
    /// log afterwards.
    pub(super) fn refused(&mut self, cause: &JournalError, until: &str, resumed: &'static str) {
        if self.logged.is_some() {
            return;
        }
        let Some(left_out) = self.throttle.due() else { return };
        warn!(more_since_last = left_out, "{cause}; refusing writes {until}");
        self.logged = Some(Logged { since: Instant::now(), resumed });
    }

    /// Logs that writes are stored again, if the last line was a warning.
    pub(super) fn stored(&mut self) {
        if let Some(Logged { since, resumed }) = self.logged.take() {
            info!("{resumed}; accepting writes after {:.1?} of refusals", since.elapsed());
        }
    }

    /// Returns true if a probe is due, and records a probe at `now`, by the monotonic clock.
    pub(super) fn is_probe_due(&mut self, now: Duration) -> bool {
        let is_due = self.probed_at.is_none_or(|at| now.saturating_sub(at) >= PROBE_PERIOD);
        if is_due {
            self.probed_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::storage::journal::space::WriteRefusal;

    #[test]
    fn the_end_of_refusals_is_logged_once_and_only_after_a_warning() {
        let mut log = RefusalLog::default();
        let cause = JournalError::DiskFull { place: "journal".to_owned() };
        let refuse = |log: &mut RefusalLog| log.refused(&cause, "until there is space", "there is space again");
        let is_logged = |log: &RefusalLog| log.logged.is_some();
        log.stored();
        assert!(!is_logged(&log));
        refuse(&mut log);
        let since = log.logged.as_ref().unwrap().since;
        refuse(&mut log);
        assert_eq!(log.logged.as_ref().unwrap().since, since, "one warning for all refusals until they end");
        log.stored();
        assert!(!is_logged(&log));
        refuse(&mut log);
        assert!(!is_logged(&log), "this refusal was not logged, so soon after the last one");
    }

    #[test]
    fn probes_are_spaced_by_pauses() {
        let mut log = RefusalLog::default();
        let is_due = [7_000, 7_001, 7_999, 8_000, 8_001, 9_000].map(|ms| log.is_probe_due(Duration::from_millis(ms)));
        assert_eq!(is_due, [true, false, false, true, false, true]);
    }

    #[test]
    fn published_refusal_reasons_equal_the_error_codes() {
        let text = String::new;
        let errors = [Error::DiskFull(text()), Error::OutOfFiles(text()), Error::JournalFailed(text())];
        assert_eq!(errors.map(|error| error.code()), WriteRefusal::ALL.map(WriteRefusal::code));
    }
}

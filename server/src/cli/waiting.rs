//! Waits at a start for services that the server needs. After a power failure, all start at the same time.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::service_manager;

/// How long to wait.
pub(super) struct Patience {
    /// Time after which no attempt begins.
    time: Duration,
    /// Pause between two attempts.
    pause: Duration,
}

/// The patience of a server that starts. The systemd unit gives up after three failed starts within ten minutes. Starts that take half of that
/// time are never so many.
pub(super) const AT_START: Patience = Patience { time: Duration::from_secs(5 * 60), pause: Duration::from_secs(5) };

impl Patience {
    /// Repeats an attempt while it fails with an error that may pass.
    ///
    /// # Errors
    /// Returns the last error.
    pub(super) fn until_done<T, E: Display>(
        &self,
        may_pass: impl Fn(&E) -> bool,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let began = Instant::now();
        loop {
            match attempt() {
                Err(cause) if may_pass(&cause) && began.elapsed() < self.time => {
                    warn!("waiting, for at most {:?}: {cause}", self.time);
                    service_manager::status(&format!("waiting: {cause}").replace(['\n', '\r'], " "));
                    thread::park_timeout(self.pause);
                }
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_repeated_until_it_succeeds_or_its_error_is_final_or_the_time_is_over() {
        type Outcome = Result<(), &'static str>;
        let (long, none) = (Duration::MAX, Duration::ZERO);
        let cases: [(Duration, &[Outcome], Outcome, usize); 4] = [
            (long, &[Ok(())], Ok(()), 1),
            (long, &[Err("away"), Err("away"), Ok(())], Ok(()), 3),
            (long, &[Err("away"), Err("damaged"), Ok(())], Err("damaged"), 2),
            (none, &[Err("away"), Ok(())], Err("away"), 1),
        ];
        for (time, outcomes, expected, attempts) in cases {
            let mut left = outcomes.iter();
            let patience = Patience { time, pause: Duration::ZERO };
            let outcome = patience.until_done(|cause| *cause == "away", || *left.next().unwrap());
            assert_eq!((outcome, outcomes.len() - left.len()), (expected, attempts), "{outcomes:?}");
        }
    }
}

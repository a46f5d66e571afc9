//! A log that retries requests while it is unavailable, for the start of a node. Another broker replaces one that hangs after some
//! seconds, and the node has nothing else to do until then.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::storage::log::{LogError, LogRange, LogReader, LogWriter, ReadLog, SharedLog};
use crate::storage::sequence::Sequence;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A log that returns [`LogError::Unavailable`] only if it persists. Errors of its readers and writers are returned at once.
pub struct PatientLog<'a> {
    log: &'a dyn SharedLog,
    patience: Duration,
}

impl<'a> PatientLog<'a> {
    /// Creates a log that retries requests to `log` for up to `patience`.
    pub fn new(log: &'a dyn SharedLog, patience: Duration) -> Self {
        Self { log, patience }
    }

    fn ask<T>(&self, ask: impl Fn() -> Result<T, LogError>) -> Result<T, LogError> {
        let began = Instant::now();
        loop {
            match ask() {
                Err(LogError::Unavailable(_)) if began.elapsed() < self.patience => thread::park_timeout(PAUSE),
                answer => return answer,
            }
        }
    }
}

impl SharedLog for PatientLog<'_> {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        self.ask(|| self.log.writer())
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        self.log.to_read()
    }
}

impl ReadLog for PatientLog<'_> {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.ask(|| self.log.reader(after))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        self.ask(|| self.log.range())
    }

    fn place(&self) -> String {
        self.log.place()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A log that answers each request with an error, and counts the requests.
    struct Failing(LogError, AtomicUsize);

    impl SharedLog for Failing {
        fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
            Err(self.0.clone())
        }

        fn to_read(&self) -> Arc<dyn ReadLog> {
            unreachable!("nobody reads it")
        }
    }

    impl ReadLog for Failing {
        fn reader(&self, _: Sequence) -> Result<Box<dyn LogReader>, LogError> {
            Err(self.0.clone())
        }

        fn range(&self) -> Result<LogRange, LogError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Err(self.0.clone())
        }

        fn place(&self) -> String {
            "failing".to_owned()
        }
    }

    #[test]
    fn only_an_unavailable_log_is_retried_and_for_a_limited_time() {
        let unavailable = LogError::Unavailable("no answer".to_owned());
        let setup = LogError::Setup("another topic".to_owned());
        let (patient, impatient) = (3 * PAUSE, Duration::ZERO);
        for (error, patience, is_asked_again) in
            [(&unavailable, patient, true), (&unavailable, impatient, false), (&setup, patient, false)]
        {
            let log = Failing(error.clone(), AtomicUsize::new(0));
            assert_eq!(PatientLog::new(&log, patience).range().as_ref(), Err(error));
            assert_eq!(log.1.into_inner() > 1, is_asked_again, "{error} {patience:?}");
        }
    }
}

//! The only place where tests wait: for a condition that is true at once on an idle machine, and at most until a deadline.

use std::fmt::{Debug, Display};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum wait of a test for a condition that is true at once on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// Number of polls without a pause, since most conditions become true within microseconds.
const HASTY: u32 = 100;

/// The pause between later polls.
const PERIOD: Duration = Duration::from_millis(2);

/// The result of a poll: true, a value, or the reason why there is no value yet.
pub trait Answer {
    type Value;

    /// Returns the value, or the reason why there is none yet.
    fn value(self) -> Result<Self::Value, String>;
}

impl Answer for bool {
    type Value = ();

    fn value(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Answer for Result<T, E> {
    type Value = T;

    fn value(self) -> Result<T, String> {
        self.map_err(|why| why.to_string())
    }
}

/// Compares a value with the one that a test waits for. The error names both.
pub fn reached<T: Debug + PartialEq>(now: &T, expected: &T) -> Result<(), String> {
    if now == expected { Ok(()) } else { Err(format!("it is {now:?}, not {expected:?}")) }
}

/// Polls until the answer is true or a value, and returns that value.
///
/// # Panics
/// Panics after [`DEADLINE`]. The message contains `what`, and the last reason why there was no value.
pub fn eventually<A: Answer>(what: &str, mut ask: impl FnMut() -> A) -> A::Value {
    let mut wait = Wait::new(what);
    loop {
        match ask().value() {
            Ok(value) => return value,
            Err(why) if wait.is_hasty(&why) => thread::yield_now(),
            Err(_) => thread::park_timeout(PERIOD),
        }
    }
}

/// As [`eventually`], for an asynchronous poll, or if tasks of this thread have to run meanwhile.
///
/// # Panics
/// Panics after [`DEADLINE`]. The message contains `what`, and the last reason why there was no value.
pub async fn eventually_async<A: Answer>(what: &str, mut ask: impl AsyncFnMut() -> A) -> A::Value {
    let mut wait = Wait::new(what);
    loop {
        match in_time(what, ask()).await.value() {
            Ok(value) => return value,
            Err(why) if wait.is_hasty(&why) => tokio::task::yield_now().await,
            Err(_) => tokio::time::sleep(PERIOD).await,
        }
    }
}

/// Waits for a future.
///
/// # Panics
/// Panics after [`DEADLINE`]. The message contains `what`.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(output) = tokio::time::timeout(DEADLINE, future).await else { panic!("not within {DEADLINE:?}: {what}") };
    output
}

/// Waits until a process has ended by itself, and returns its exit status.
///
/// # Panics
/// Panics after [`DEADLINE`].
pub fn ended(process: &mut Child) -> ExitStatus {
    eventually("the process ends", || process.try_wait().unwrap())
}

struct Wait<'a> {
    what: &'a str,
    began: Instant,
    asked: u32,
}

impl<'a> Wait<'a> {
    fn new(what: &'a str) -> Self {
        Self { what, began: Instant::now(), asked: 0 }
    }

    /// Returns true if the next poll comes without a pause. Panics at the deadline.
    fn is_hasty(&mut self, why: &str) -> bool {
        assert!(self.began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {}. {why}", self.what);
        self.asked += 1;
        self.asked <= HASTY
    }
}

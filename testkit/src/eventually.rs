//! The only place where tests wait: for something that comes at once on an idle machine, and at most until a deadline.

use std::fmt::{Debug, Display};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what comes at once on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// Questions that are asked without a pause, since most answers come within microseconds.
const HASTY: u32 = 100;

/// The time between later questions.
const PERIOD: Duration = Duration::from_millis(2);

/// An answer to wait for: true, a value, or a value in place of the reason why there is none yet.
pub trait Answer {
    type Value;

    /// Returns the value, or why it has not come yet.
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

/// Asks until the answer is true or a value, and returns that value.
///
/// # Panics
/// Panics after [`DEADLINE`]. The message has `what` the test waited for, and the last reason why it had not come.
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

/// Same as [`eventually`], for an asynchronous question, or if tasks of this thread have to run meanwhile.
///
/// # Panics
/// Panics after [`DEADLINE`]. The message has `what` the test waited for, and the last reason why it had not come.
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
/// Panics after [`DEADLINE`]. The message has `what` the test waited for.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(output) = tokio::time::timeout(DEADLINE, future).await else { panic!("not within {DEADLINE:?}: {what}") };
    output
}

/// Waits until a process has ended by itself, and returns how.
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

    /// Returns true if the next question comes without a pause. Panics at the deadline.
    fn is_hasty(&mut self, why: &str) -> bool {
        assert!(self.began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {}. {why}", self.what);
        self.asked += 1;
        self.asked <= HASTY
    }
}

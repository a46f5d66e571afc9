//! Aborts the process if an actor that cannot be restarted panics.

use std::process;
use std::thread;

use tracing::error;

/// A guard for an actor whose state cannot be rebuilt while the process runs. If the actor panics, the process
/// aborts, since an engine without it accepts requests and never answers them. A restart recovers the state.
#[derive(Debug)]
pub struct AbortOnExit(pub &'static str);

impl Drop for AbortOnExit {
    fn drop(&mut self) {
        if thread::panicking() {
            error!("the {} crashed and cannot be restarted; aborting the process", self.0);
            process::abort();
        }
    }
}

//! Aborts the process when an actor panics that cannot be restarted.

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
            error!("the {} crashed: ending the process, since nothing can replace it while it runs", self.0);
            process::abort();
        }
    }
}

//! The end of the process when an actor crashes that nothing can replace.

use std::process;
use std::thread;

use tracing::error;

/// Held by an actor whose state cannot be rebuilt while the process runs. A panic in it ends the process, since an engine
/// without it would take requests and never serve them; a restart recovers.
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

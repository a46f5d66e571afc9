//! A flag that is set however a test ends.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. Threads of a scope that run until then end also if the test fails before it sets the flag itself: the scope would
/// wait for them for ever.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

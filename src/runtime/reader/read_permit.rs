//! Read permits, and the count of requests that wait for the activator.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The owner of permits, to which they are released.
pub(crate) trait Permits: Send + Sync {
    /// Releases one permit.
    fn release(&self);
}

/// A read permit. Dropping it releases the permit, however the read ended.
pub struct ReadPermit(Arc<dyn Permits>);

impl ReadPermit {
    pub(super) fn new(of: Arc<dyn Permits>) -> Self {
        Self(of)
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl fmt::Debug for ReadPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReadPermit")
    }
}

/// A request on its way to the activator. It counts as waiting until this is dropped.
#[derive(Debug)]
pub struct Waking(Arc<AtomicUsize>);

impl Waking {
    pub(super) fn begin(waking: &Arc<AtomicUsize>) -> Self {
        waking.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(waking))
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

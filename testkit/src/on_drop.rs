//! Cleanup at the end of a test, even if the test fails.

/// Calls a function when it is dropped. So it can release the threads of a scope if the test fails before its end. Otherwise the scope
/// would wait for them forever.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

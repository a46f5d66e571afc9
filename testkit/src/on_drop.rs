//! What happens however a test ends.

/// Calls a function when it is dropped. It ends what threads of a scope wait for, also if the test fails before its end: the scope would wait for
/// them for ever.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

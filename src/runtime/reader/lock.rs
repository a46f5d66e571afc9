//! The lock of a stripe of inboxes.

use std::hint::spin_loop;

#[cfg(test)]
pub(super) use modelled::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(super) use parking_lot::{Mutex, MutexGuard};

/// Number of attempts of a reading thread to take a lock: about a microsecond. A model checker may let other threads run between any two.
const LOCK_ATTEMPTS_MAX: usize = if cfg!(test) { 2 } else { 32 };

/// Takes a lock that copies hold for less than a microsecond. Gives up if the lock is held for longer, for example
/// while a courier delivers.
pub(super) fn lock_soon<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        if let Some(guard) = lock.try_lock() {
            return Some(guard);
        }
        spin_loop();
    }
    None
}

/// The same lock, which schedules the threads if it was made in a model checker.
#[cfg(test)]
pub(super) mod modelled {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::{PoisonError, TryLockError};

    thread_local! {
        static IS_MODEL: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `work` in a model: the model checker schedules the locks that `work` makes.
    pub(in crate::runtime::reader) fn in_model(work: impl FnOnce()) {
        IS_MODEL.set(true);
        work();
        IS_MODEL.set(false);
    }

    /// A mutex that the model checker schedules, or a plain one.
    #[derive(Debug)]
    pub(in crate::runtime::reader) struct Mutex<T> {
        value: parking_lot::Mutex<T>,
        turn: Option<shuttle::sync::Mutex<()>>,
    }

    /// The value is released before the turn.
    pub(in crate::runtime::reader) struct MutexGuard<'a, T> {
        value: parking_lot::MutexGuard<'a, T>,
        _turn: Option<shuttle::sync::MutexGuard<'a, ()>>,
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self { value: parking_lot::Mutex::default(), turn: IS_MODEL.get().then(shuttle::sync::Mutex::default) }
        }
    }

    impl<T> Mutex<T> {
        pub(in crate::runtime::reader) fn lock(&self) -> MutexGuard<'_, T> {
            // A panic does not poison the lock.
            let turn = self.turn.as_ref().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
            MutexGuard { value: self.value.lock(), _turn: turn }
        }

        pub(in crate::runtime::reader) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let turn = match self.turn.as_ref().map(shuttle::sync::Mutex::try_lock) {
                None => None,
                Some(Ok(turn)) => Some(turn),
                Some(Err(TryLockError::Poisoned(poisoned))) => Some(poisoned.into_inner()),
                Some(Err(TryLockError::WouldBlock)) => return None,
            };
            Some(MutexGuard { value: self.value.try_lock()?, _turn: turn })
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.value
        }
    }
}

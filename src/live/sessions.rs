//! Sessions: the live connections that a user's token authenticated. They are signalled when tokens of that user are
//! revoked.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;

use crate::id::SourceId;

/// All sessions, grouped by user.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<SourceId, Vec<Arc<Signal>>, foldhash::fast::RandomState>>);

/// One session of a user, for one live connection. Dropping it removes the session.
#[derive(Debug)]
pub struct Session {
    sessions: Arc<Sessions>,
    user: SourceId,
    signal: Arc<Signal>,
}

/// The signal state of one session, and the task to wake.
#[derive(Debug, Default)]
struct Signal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_set: bool,
    waker: Option<Waker>,
}

impl Sessions {
    /// Begins a session of a user. The session starts in the signalled state, so that its task also checks
    /// revocations from before the start.
    pub fn begin(self: &Arc<Self>, user: SourceId) -> Session {
        let signal = Arc::new(Signal(Mutex::new(State { is_set: true, waker: None })));
        self.0.lock().entry(user.clone()).or_default().push(Arc::clone(&signal));
        Session { sessions: Arc::clone(self), user, signal }
    }

    /// Signals all sessions of a user. The caller does this after the change that the sessions have to check.
    pub fn signal(&self, user: &SourceId) {
        // The list is copied first, since a woken task may end its session, which needs the lock.
        let signals = self.0.lock().get(user).cloned().unwrap_or_default();
        for signal in signals {
            let waker = {
                let state = &mut *signal.0.lock();
                state.is_set = true;
                state.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns the number of users with at least one session.
    #[cfg(test)]
    fn users(&self) -> usize {
        self.0.lock().len()
    }
}

impl Session {
    /// Returns the user of this session.
    pub fn user(&self) -> &SourceId {
        &self.user
    }

    /// Returns true if the session was signalled since the last call. If not, the task is woken at the next signal.
    pub fn was_signalled(&self, task: &Context<'_>) -> bool {
        let state = &mut *self.signal.0.lock();
        if std::mem::take(&mut state.is_set) {
            return true;
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            state.waker = Some(task.waker().clone());
        }
        false
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut sessions = self.sessions.0.lock();
        let Some(of_user) = sessions.get_mut(&self.user) else { return };
        of_user.retain(|other| !Arc::ptr_eq(other, &self.signal));
        if of_user.is_empty() {
            sessions.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_notification_reaches_all_sessions_of_one_user_and_is_not_lost() {
        let (sessions, woken) = (Arc::new(Sessions::default()), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let task = Context::from_waker(&waker);
        let [ann, bob] = ["ann", "bob"].map(|user| SourceId::new(user).unwrap());
        let (first, second, other) = (sessions.begin(ann.clone()), sessions.begin(ann.clone()), sessions.begin(bob));
        let all = [&first, &second, &other];
        assert_eq!(all.map(|session| session.was_signalled(&task)), [true; 3], "for what came before");
        assert_eq!(all.map(|session| session.was_signalled(&task)), [false; 3]);
        sessions.signal(&ann);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert_eq!(all.map(|session| session.was_signalled(&task)), [true, true, false]);
        // No task waits at this moment.
        sessions.signal(&ann);
        sessions.signal(&ann);
        assert!(first.was_signalled(&task) && !first.was_signalled(&task));
        drop((first, second));
        sessions.signal(&ann);
        assert_eq!(sessions.users(), 1);
        drop(other);
        assert_eq!(sessions.users(), 0);
    }
}

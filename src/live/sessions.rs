//! Sessions: live connections that came by a user's token, to be called when tokens of that user are revoked.
//!
//! Responsible for:
//! - calling all sessions of one user, and no others; a call is not lost, whenever it comes.
//!
//! Not responsible for:
//! - whether a session then ends (`http::auth` of the server), how many there may be: each is a live connection's, and they are bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;

use crate::id::SourceId;

/// All sessions, by user.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<SourceId, Vec<Arc<Called>>, foldhash::fast::RandomState>>);

/// One live connection. It is forgotten when this is dropped.
#[derive(Debug)]
pub struct Session {
    sessions: Arc<Sessions>,
    user: SourceId,
    called: Arc<Called>,
}

/// Whether a session was called.
#[derive(Debug, Default)]
struct Called(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_called: bool,
    waker: Option<Waker>,
}

impl Sessions {
    /// Begins a session of a user. It is called already: what came before it began is for it to look at.
    pub fn begin(self: &Arc<Self>, user: SourceId) -> Session {
        let called = Arc::new(Called(Mutex::new(State { is_called: true, waker: None })));
        self.0.lock().entry(user.clone()).or_default().push(Arc::clone(&called));
        Session { sessions: Arc::clone(self), user, called }
    }

    /// Calls all sessions of a user, after what they are called for was done.
    pub fn call(&self, user: &SourceId) {
        // Copied: tasks that wake may end their sessions.
        let called = self.0.lock().get(user).cloned().unwrap_or_default();
        for session in called {
            let waker = {
                let state = &mut *session.0.lock();
                state.is_called = true;
                state.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// How many users have any.
    #[cfg(test)]
    fn users(&self) -> usize {
        self.0.lock().len()
    }
}

impl Session {
    /// Whose it is.
    pub fn user(&self) -> &SourceId {
        &self.user
    }

    /// Whether it was called since it was last asked. If not, the task is woken once it is.
    pub fn was_called(&self, task: &Context<'_>) -> bool {
        let state = &mut *self.called.0.lock();
        if std::mem::take(&mut state.is_called) {
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
        of_user.retain(|other| !Arc::ptr_eq(other, &self.called));
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
    fn a_call_reaches_all_sessions_of_one_user_and_is_not_lost() {
        let (sessions, woken) = (Arc::new(Sessions::default()), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let task = Context::from_waker(&waker);
        let [ann, bob] = ["ann", "bob"].map(|user| SourceId::new(user).unwrap());
        let (first, second, other) = (sessions.begin(ann.clone()), sessions.begin(ann.clone()), sessions.begin(bob));
        let all = [&first, &second, &other];
        assert_eq!(all.map(|session| session.was_called(&task)), [true; 3], "for what came before");
        assert_eq!(all.map(|session| session.was_called(&task)), [false; 3]);
        sessions.call(&ann);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert_eq!(all.map(|session| session.was_called(&task)), [true, true, false]);
        // Nobody waits at this moment.
        sessions.call(&ann);
        sessions.call(&ann);
        assert!(first.was_called(&task) && !first.was_called(&task));
        drop((first, second));
        sessions.call(&ann);
        assert_eq!(sessions.users(), 1);
        drop(other);
        assert_eq!(sessions.users(), 0);
    }
}

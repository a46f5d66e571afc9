//! The line of one connection: what its socket, its requests and the table of all connections know of each other.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::http::sockets::places::{Connections, Seat};
use tidewire::limits::{PIPELINED_BYTES_IN_ALL_MAX, PIPELINED_BYTES_MAX};

/// One connection. What the table of all connections knows of it changes only under the table's lock.
#[derive(Debug)]
pub(in crate::http) struct Line {
    /// The address that it counts for, if it counts for one.
    pub(super) address: Option<IpAddr>,
    /// Where it stands in the table.
    pub(super) seat: Seat,
    connections: Arc<Connections>,
    opened: Instant,
    /// Requests that are not answered yet, of which a WebSocket or a stream of events is one. The table's.
    under_way: AtomicUsize,
    answered: AtomicUsize,
    /// A request of it was let in that not everybody may send. The table's.
    is_known: AtomicBool,
    /// Milliseconds after it was opened since when nothing is under way. The table's.
    idle_since_ms: AtomicU64,
    /// It was chosen to end, which its socket learns next. The table's.
    is_leaving: AtomicBool,
    is_ended: AtomicBool,
    /// What the client sent or sends next waits until the request before it is answered.
    is_waiting: AtomicBool,
    /// Bytes of it that are here already.
    held_bytes: AtomicUsize,
    wants_body: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Line {
    pub(super) fn new(connections: Arc<Connections>, address: Option<IpAddr>, seat: Seat) -> Arc<Self> {
        Arc::new(Self {
            address,
            seat,
            connections,
            opened: Instant::now(),
            under_way: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            is_known: AtomicBool::new(false),
            idle_since_ms: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            held_bytes: AtomicUsize::new(0),
            wants_body: AtomicBool::new(false),
            reader: Mutex::default(),
        })
    }

    /// A request is under way until what is returned is dropped. None if the connection was chosen to end: nobody would get the answer.
    pub(in crate::http) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        self.connections.begin(self).then(|| UnderWay { line: Arc::clone(self), keeps: true })
    }

    /// Counts one more request under way, and returns whether it is the only one.
    pub(super) fn begins(&self) -> bool {
        self.under_way.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts one request fewer, and returns whether the connection is idle from now on.
    pub(super) fn ends(&self) -> bool {
        let is_idle = self.under_way.fetch_sub(1, Ordering::Relaxed) == 1 && !self.is_leaving();
        if is_idle {
            self.idle_from_now();
        }
        is_idle
    }

    /// Counts its idle time from now.
    pub(super) fn idle_from_now(&self) {
        let since = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.idle_since_ms.store(since, Ordering::Relaxed);
    }

    /// Notes that a request of it was let in that not everybody may send.
    pub(in crate::http) fn know(&self) {
        if !self.is_known() {
            self.connections.know(self);
        }
    }

    /// The same, under the table's lock.
    pub(super) fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether one was.
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// How many requests were answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Since when nothing is under way, if nothing is and the connection stays.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.under_way.load(Ordering::Relaxed) == 0 && !self.is_leaving();
        let since = Duration::from_millis(self.idle_since_ms.load(Ordering::Relaxed));
        is_idle.then(|| self.opened + since)
    }

    /// Chooses it to end. Only who has the table does so.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Whether it was chosen to end.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether it is to end without any more being read or written.
    pub(in crate::http) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Has the task of `waker` woken when the connection ends, or when what is held back may go on.
    pub(in crate::http) fn register(&self, waker: &Waker) {
        let mut reader = self.reader.lock();
        if !reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *reader = Some(waker.clone());
        }
    }

    /// Notes that so many bytes are held back, and whether its socket is to be woken once a request is answered.
    pub(super) fn hold(&self, bytes: usize, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
        let before = self.held_bytes.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            self.connections.change_held(before, bytes);
        }
    }

    /// Whether more may be held back.
    pub(super) fn may_hold(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) < PIPELINED_BYTES_MAX
            && self.connections.held_bytes() < PIPELINED_BYTES_IN_ALL_MAX
    }

    /// Has a client asked for its body that waits for that.
    pub(in crate::http) fn ask_for_body(&self) {
        self.wants_body.store(true, Ordering::Relaxed);
    }

    /// Whether the client is to be asked, once.
    pub(super) fn takes_ask(&self) -> bool {
        self.wants_body.load(Ordering::Relaxed) && self.wants_body.swap(false, Ordering::Relaxed)
    }

    fn wake(&self) {
        let reader = self.reader.lock().clone();
        reader.iter().for_each(Waker::wake_by_ref);
    }
}

/// A request of a connection.
#[derive(Debug)]
pub(in crate::http) struct UnderWay {
    line: Arc<Line>,
    /// Whether the connection does not end for others because of it.
    keeps: bool,
}

impl UnderWay {
    /// From now on the connection may end for another one, though the client has not all of its answer.
    pub(super) fn give_way(&mut self) {
        if std::mem::take(&mut self.keeps) {
            self.line.connections.end(&self.line);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.give_way();
        let line = &*self.line;
        line.wants_body.store(false, Ordering::Relaxed);
        line.answered.fetch_add(1, Ordering::Relaxed);
        if line.is_waiting.load(Ordering::Relaxed) {
            line.wake();
        }
    }
}

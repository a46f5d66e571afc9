//! The shared state of one connection, used by its socket, its requests and the table of all connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use crate::http::sockets::connection_slots::{Connections, Seat};
use tidewire::limits::{PIPELINED_BYTES_IN_ALL_MAX, PIPELINED_BYTES_MAX};

/// The state of one connection. Fields that belong to the table change only under the table's lock.
#[derive(Debug)]
pub(in crate::http) struct ConnectionState {
    /// The address of the client, if it has a limit.
    address: Option<IpAddr>,
    /// True if the connection does not count against that limit, because it belongs to another node of the cluster.
    is_of_node: AtomicBool,
    /// The keys of the connection in the table.
    pub(in crate::http::sockets) seat: Seat,
    connections: Arc<Connections>,
    /// The number of unanswered requests, including WebSockets and event streams. Belongs to the table.
    under_way: AtomicUsize,
    answered: AtomicUsize,
    /// True after an authenticated request was admitted. Belongs to the table.
    is_authenticated: AtomicBool,
    /// Start of the idle time on the monotonic clock, in milliseconds. Belongs to the table.
    idle_since_ms: AtomicU64,
    /// True if the connection was evicted; its socket is notified after that. Belongs to the table.
    is_leaving: AtomicBool,
    is_ended: AtomicBool,
    /// True if the client read too slowly for too long, which ends the connection.
    is_stalled: AtomicBool,
    /// True if the client has closed its sending side. It may still read, or may be gone.
    is_half_closed: AtomicBool,
    /// True if reading is paused until a request is answered.
    is_waiting: AtomicBool,
    /// The buffered bytes of later requests.
    buffered_bytes: AtomicUsize,
    wants_body: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl ConnectionState {
    pub(in crate::http::sockets) fn new(
        connections: Arc<Connections>,
        address: Option<IpAddr>,
        seat: Seat,
    ) -> Arc<Self> {
        let idle_since_ms = AtomicU64::new(millis(connections.now()));
        Arc::new(Self {
            address,
            is_of_node: AtomicBool::new(false),
            seat,
            connections,
            under_way: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            is_authenticated: AtomicBool::new(false),
            idle_since_ms,
            is_leaving: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            is_half_closed: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            buffered_bytes: AtomicUsize::new(0),
            wants_body: AtomicBool::new(false),
            reader: Mutex::default(),
        })
    }

    /// Marks a request as in progress until the returned guard is dropped. Returns `None` if the connection was evicted, because the
    /// client would not receive the response.
    pub(in crate::http) fn begin(self: &Arc<Self>) -> Option<UnderWay> {
        self.connections.begin(self).then(|| UnderWay { connection: Arc::clone(self), keeps: true })
    }

    /// Notes that the connection ends because its client read too slowly for too long.
    pub(in crate::http) fn note_stalled(&self) {
        self.is_stalled.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection ends for that reason.
    pub(in crate::http) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    /// Notes that the client has closed its sending side.
    pub(in crate::http::sockets) fn note_half_closed(&self) {
        self.is_half_closed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the client has closed its sending side.
    pub(in crate::http::sockets) fn is_half_closed(&self) -> bool {
        self.is_half_closed.load(Ordering::Relaxed)
    }

    /// Counts one more request in progress. Returns true if it is the only one.
    pub(in crate::http::sockets) fn begins(&self) -> bool {
        self.under_way.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts one request fewer. Returns true if the connection is idle from now on.
    pub(in crate::http::sockets) fn ends(&self) -> bool {
        let is_idle = self.under_way.fetch_sub(1, Ordering::Relaxed) == 1 && !self.is_leaving();
        if is_idle {
            self.idle_from_now();
        }
        is_idle
    }

    /// Restarts the idle time.
    pub(in crate::http::sockets) fn idle_from_now(&self) {
        self.idle_since_ms.store(millis(self.connections.now()), Ordering::Relaxed);
    }

    /// Marks the connection as authenticated, because a request that needs credentials was admitted.
    pub(in crate::http) fn mark_authenticated(&self) {
        if !self.is_authenticated() {
            self.connections.mark_authenticated(self);
        }
    }

    /// Removes the connection from the limit of its address, because it belongs to another node of the cluster, which serves many
    /// clients.
    #[cfg(feature = "cluster")]
    pub(in crate::http) fn mark_of_node(&self) {
        if self.counted_address().is_some() {
            self.connections.mark_of_node(self);
        }
    }

    /// Returns the address whose limit the connection counts against, if any.
    pub(in crate::http::sockets) fn counted_address(&self) -> Option<IpAddr> {
        self.address.filter(|_| !self.is_of_node.load(Ordering::Relaxed))
    }

    /// Sets the mark of [`Self::mark_of_node`]. Call only under the table's lock.
    #[cfg(feature = "cluster")]
    pub(in crate::http::sockets) fn set_of_node(&self) {
        self.is_of_node.store(true, Ordering::Relaxed);
    }

    /// Sets the mark of [`Self::mark_authenticated`]. Call only under the table's lock.
    pub(in crate::http::sockets) fn set_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection is marked as authenticated.
    pub(in crate::http::sockets) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    /// Returns the number of answered requests.
    pub(in crate::http::sockets) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns the start of the idle time on the monotonic clock, or `None` if the connection is not idle or was evicted.
    pub(in crate::http::sockets) fn idle_since(&self) -> Option<Duration> {
        let is_idle = self.under_way.load(Ordering::Relaxed) == 0 && !self.is_leaving();
        let since = Duration::from_millis(self.idle_since_ms.load(Ordering::Relaxed));
        is_idle.then_some(since)
    }

    /// Marks the connection as evicted. Call only under the table's lock.
    pub(in crate::http::sockets) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection was evicted.
    pub(in crate::http::sockets) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Ends the connection: its socket fails from now on.
    pub(in crate::http::sockets) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true if the socket must fail without reading or writing any more.
    pub(in crate::http) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Registers a task to be woken when the connection ends or reading may continue.
    pub(in crate::http) fn register(&self, waker: &Waker) {
        let mut reader = self.reader.lock();
        if !reader.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *reader = Some(waker.clone());
        }
    }

    /// Sets the number of buffered bytes. `is_waiting` is true if the end of a request must wake the socket.
    pub(in crate::http::sockets) fn set_buffered(&self, bytes: usize, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
        let before = self.buffered_bytes.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            self.connections.change_buffered(before, bytes);
        }
    }

    /// Returns true if more bytes may be buffered, by the limits of this connection and of all connections.
    pub(in crate::http::sockets) fn may_buffer(&self) -> bool {
        self.buffered_bytes.load(Ordering::Relaxed) < PIPELINED_BYTES_MAX
            && self.connections.buffered_bytes() < PIPELINED_BYTES_IN_ALL_MAX
    }

    /// Requests sending `100 Continue` to a client that waits with the body.
    pub(in crate::http) fn ask_for_body(&self) {
        self.wants_body.store(true, Ordering::Relaxed);
    }

    /// Returns true once if `100 Continue` must be sent.
    pub(in crate::http::sockets) fn takes_ask(&self) -> bool {
        self.wants_body.load(Ordering::Relaxed) && self.wants_body.swap(false, Ordering::Relaxed)
    }

    fn wake(&self) {
        let reader = self.reader.lock().clone();
        reader.iter().for_each(Waker::wake_by_ref);
    }
}

/// A request in progress on a connection.
#[derive(Debug)]
pub(in crate::http) struct UnderWay {
    connection: Arc<ConnectionState>,
    /// True while the request protects the connection from being closed as idle.
    keeps: bool,
}

impl UnderWay {
    /// Returns true if the client has closed its sending side.
    pub(in crate::http::sockets) fn is_half_closed(&self) -> bool {
        self.connection.is_half_closed()
    }

    /// Allows the connection to be closed as idle, although the client has not received all of the response.
    pub(in crate::http::sockets) fn give_way(&mut self) {
        if std::mem::take(&mut self.keeps) {
            self.connection.connections.end(&self.connection);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.give_way();
        let connection = &*self.connection;
        connection.wants_body.store(false, Ordering::Relaxed);
        connection.answered.fetch_add(1, Ordering::Relaxed);
        if connection.is_waiting.load(Ordering::Relaxed) {
            connection.wake();
        }
    }
}

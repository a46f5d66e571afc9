//! Connection slots: limits the number of connections, in total and for each address.
//!
//! Responsible for:
//! - giving a new connection the slot of an idle one if all slots are in use, and refusing it if no connection is idle;
//! - closing connections that are idle for too long, even if they slowly send incomplete requests.
//!
//! A connection is idle while it has no request in progress. WebSockets and event streams are requests that remain in progress.

pub mod connection_state;
mod order;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use crate::http::proxies::Proxies;
use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use crate::http::sockets::connection_slots::order::Order;
use crate::http::sockets::open_files;
use tidewire::clock::{Clock, SystemClock};
use tidewire::runtime::counters::{Counter, Gauge};
use tidewire::throttle::Throttle;

/// Maximum number of idle connections that are closed in one pass.
const CONNECTIONS_PER_SWEEP: usize = 4_096;

/// One in this many slots is reserved for connections that are not live: those for operators and for ordinary requests.
const CONNECTIONS_NOT_LIVE_SHARE: usize = 16;

/// One address may have at most one in this many connection slots.
const CONNECTIONS_SHARE: usize = 4;

/// The limits on connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Maximum connections in total. Default: the open files that are left for them.
    pub all: usize,
    /// Maximum connections of one address (one /64 network for IPv6). Default a quarter of `all`.
    pub per_address: usize,
    /// The addresses of proxies. They have no limit per address, because many clients share them. Default loopback addresses.
    pub proxies: Proxies,
}

impl ConnectionLimits {
    /// Returns the limits for this number of open files and threads.
    pub fn within(open_files: u64, threads: usize) -> Self {
        Self::of(open_files::left_to_connections(open_files, threads))
    }

    /// Returns the maximum of live connections. The rest is left for other requests.
    pub fn left_to_live(&self) -> usize {
        (self.all - self.all / CONNECTIONS_NOT_LIVE_SHARE).max(1)
    }

    /// Returns the limits for `all` connections, with the default share for each address.
    pub fn of(all: usize) -> Self {
        Self { all, per_address: (all / CONNECTIONS_SHARE).max(1), proxies: Proxies::default() }
    }
}

/// The reason a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum RefusalReason {
    /// All slots are in use, and no connection is idle.
    All,
    /// All slots of the address are in use, and none of its connections is idle.
    Address,
}

/// All connections of the server.
pub struct Connections {
    limits: ConnectionLimits,
    clock: Arc<dyn Clock>,
    table: Mutex<ConnectionTable>,
    /// The buffered bytes of later requests, of all connections.
    buffered_bytes: Gauge,
    refused: Counter,
    refused_address: Counter,
    ended_for_new: Counter,
    stayed_idle: Counter,
    refusals_logged: Throttle,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    all: Order,
    /// The connections by address. Addresses without connections have no entry.
    by_address: HashMap<IpAddr, Order>,
}

/// The keys of a connection in the table: in the order of all connections, and in the order of those of its address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    of_all: usize,
    of_address: usize,
}

/// The slot of one connection, released on drop.
#[derive(Debug)]
pub(in crate::http) struct ConnectionSlot {
    connections: Arc<Connections>,
    connection: Arc<ConnectionState>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Default for Connections {
    /// Uses the current limit on open files of this process.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(ConnectionLimits::within(open_files::limit(), 2 * threads))
    }
}

impl Connections {
    /// Creates an empty table with these limits.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self::with_clock(limits, Arc::new(SystemClock))
    }

    fn with_clock(limits: ConnectionLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            limits,
            clock,
            table: Mutex::default(),
            buffered_bytes: Gauge::default(),
            refused: Counter::default(),
            refused_address: Counter::default(),
            ended_for_new: Counter::default(),
            stayed_idle: Counter::default(),
            refusals_logged: Throttle::default(),
        }
    }

    /// Returns the limits on connections.
    pub fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    /// Returns the current time on the monotonic clock of idle times.
    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Returns the number of open connections.
    pub(in crate::http) fn count(&self) -> usize {
        self.table.lock().all.len()
    }

    /// Returns the buffered bytes of later requests, of all connections.
    pub(super) fn buffered_bytes(&self) -> usize {
        usize::try_from(self.buffered_bytes.get()).unwrap_or(usize::MAX)
    }

    /// Updates the total when the buffered bytes of one connection change.
    pub(super) fn change_buffered(&self, before: usize, now: usize) {
        self.buffered_bytes.change(before as u64, now as u64);
    }

    /// Returns the number of connections that were refused or closed, by reason.
    pub(in crate::http) fn ended(&self) -> [(&'static str, u64); 4] {
        [
            ("refused", self.refused.get()),
            ("refused_address", self.refused_address.get()),
            ("made_room", self.ended_for_new.get()),
            ("stayed_idle", self.stayed_idle.get()),
        ]
    }

    /// Gives a new connection its slot. Returns `None` if the connection is refused.
    pub(in crate::http) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<ConnectionSlot> {
        let address = self.limits.proxies.counted(peer);
        let entered = {
            let mut table = self.table.lock();
            self.choose_to_end(&mut table, address).map(|ended| (ended, table.add(self, address)))
        };
        match entered {
            Ok((ended, connection)) => {
                // Called after the lock is released, because waking may run the woken task.
                if let Some(ended) = ended {
                    ended.end();
                    self.ended_for_new.add(1);
                }
                Some(ConnectionSlot { connections: Arc::clone(self), connection })
            }
            Err(reason) => {
                self.refuse(reason, peer);
                None
            }
        }
    }

    /// Selects the connection to evict for a new one of `address`, if a limit is reached.
    fn choose_to_end(
        &self,
        table: &mut ConnectionTable,
        address: Option<IpAddr>,
    ) -> Result<Option<Arc<ConnectionState>>, RefusalReason> {
        let of_address = address.and_then(|address| table.by_address.get_mut(&address));
        let idle = match of_address {
            Some(order) if order.staying() >= self.limits.per_address => {
                order.next_to_end().ok_or(RefusalReason::Address)?
            }
            _ if table.all.staying() >= self.limits.all => table.all.next_to_end().ok_or(RefusalReason::All)?,
            _ => return Ok(None),
        };
        table.leave(&idle);
        Ok(Some(idle))
    }

    fn refuse(&self, reason: RefusalReason, peer: Option<SocketAddr>) {
        let (counter, limit) = match reason {
            RefusalReason::All => (&self.refused, self.limits.all),
            RefusalReason::Address => (&self.refused_address, self.limits.per_address),
        };
        counter.add(1);
        let Some(left_out) = self.refusals_logged.due() else { return };
        let peer = peer.map(|peer| peer.ip().to_canonical().to_string());
        let what = if reason == RefusalReason::All { "all" } else { "one address" };
        warn!(
            peer,
            limit,
            of = what,
            more_since_last = left_out,
            "refused a connection: all connection slots are in use and none is idle"
        );
    }

    /// Marks a request of a connection as begun. Returns false if the connection was evicted.
    pub(super) fn begin(&self, connection: &ConnectionState) -> bool {
        let mut table = self.table.lock();
        if connection.is_leaving() {
            return false;
        }
        if connection.begins() {
            table.orders(connection, Order::busy);
        }
        true
    }

    /// Marks a request of a connection as ended.
    pub(super) fn end(&self, connection: &ConnectionState) {
        let mut table = self.table.lock();
        if connection.ends() {
            table.orders(connection, |order, key| order.idle(key, connection.is_authenticated()));
        }
    }

    /// Marks a connection as authenticated. If the connection is idle, its idle time restarts.
    pub(super) fn mark_authenticated(&self, connection: &ConnectionState) {
        let mut table = self.table.lock();
        let is_idle = connection.idle_since().is_some();
        connection.set_authenticated();
        if is_idle {
            connection.idle_from_now();
            table.orders(connection, |order, key| {
                order.busy(key);
                order.idle(key, true);
            });
        }
    }

    /// Removes a connection from the limit of its address.
    #[cfg(feature = "cluster")]
    pub(super) fn mark_of_node(&self, connection: &ConnectionState) {
        let mut table = self.table.lock();
        table.remove_from_address(connection);
        connection.set_of_node();
    }

    /// Closes connections that have been idle for longer than `idle_max`.
    pub(in crate::http) fn sweep(&self, idle_max: Duration) {
        let Some(before) = self.now().checked_sub(idle_max) else { return };
        let is_due = |connection: &Arc<ConnectionState>| connection.idle_since().is_some_and(|since| since < before);
        loop {
            let mut due = Vec::new();
            {
                let mut table = self.table.lock();
                while due.len() < CONNECTIONS_PER_SWEEP {
                    let Some(connection) = table.all.longest_idle().into_iter().flatten().find(is_due) else { break };
                    table.leave(&connection);
                    due.push(connection);
                }
            }
            self.stayed_idle.add(due.len() as u64);
            due.iter().for_each(|connection| connection.end());
            if due.len() < CONNECTIONS_PER_SWEEP {
                return;
            }
        }
    }
}

impl ConnectionTable {
    /// Adds a new connection, which is idle.
    fn add(&mut self, connections: &Arc<Connections>, address: Option<IpAddr>) -> Arc<ConnectionState> {
        let mut of_address = address.map(|address| self.by_address.entry(address).or_default());
        let key_of_address = of_address.as_ref().map_or(0, |order| order.next_key());
        let seat = Seat { of_all: self.all.next_key(), of_address: key_of_address };
        let connection = ConnectionState::new(Arc::clone(connections), address, seat);
        of_address.iter_mut().for_each(|order| order.add(Arc::clone(&connection)));
        self.all.add(Arc::clone(&connection));
        self.orders(&connection, |order, key| order.idle(key, false));
        connection
    }

    /// Applies a change to both orders that contain the connection.
    fn orders(&mut self, connection: &ConnectionState, change: impl Fn(&mut Order, usize)) {
        change(&mut self.all, connection.seat.of_all);
        if let Some(order) = connection.counted_address().and_then(|address| self.by_address.get_mut(&address)) {
            change(order, connection.seat.of_address);
        }
    }

    /// Removes a connection from the order of its address.
    fn remove_from_address(&mut self, connection: &ConnectionState) {
        let Some(address) = connection.counted_address() else { return };
        if let Entry::Occupied(mut order) = self.by_address.entry(address) {
            order.get_mut().remove(connection.seat.of_address);
            if order.get().len() == 0 {
                order.remove();
            }
        }
    }

    /// Marks a connection as evicted. This happens only once, because the connection is not idle any more.
    fn leave(&mut self, connection: &ConnectionState) {
        connection.leave();
        self.orders(connection, Order::leave);
    }
}

impl ConnectionSlot {
    /// Returns the state of the connection.
    pub(in crate::http) fn state(&self) -> &Arc<ConnectionState> {
        &self.connection
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        table.all.remove(self.connection.seat.of_all);
        table.remove_from_address(&self.connection);
        // Requests may end after the connection, when another connection has its keys already.
        self.connection.leave();
    }
}

#[cfg(test)]
mod tests;

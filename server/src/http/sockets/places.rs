//! Places of connections: how many there may be, in all and of one address.
//!
//! Responsible for:
//! - giving a new connection the place of an idle one when there is none left, and refusing it when none is idle;
//! - ending connections that stay idle, however slowly they send something.
//!
//! Not responsible for:
//! - how many files the system allows ([`super::open_files`]), which idle connection ends first ([`order`]).
//!
//! A connection is idle while no request of it is under way. WebSockets and streams of events are requests that stay under way.

mod order;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use crate::http::sockets::line::Line;
use crate::http::sockets::open_files;
use crate::http::sockets::places::order::Order;
use crate::http::sockets::proxies::Proxies;
use tidewire::limits::{CONNECTIONS_NOT_LIVE_SHARE, CONNECTIONS_PER_SWEEP, CONNECTIONS_SHARE};
use tidewire::runtime::counters::{Counter, Gauge};
use tidewire::throttle::Throttle;

/// How many connections there may be.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// In all. Default: what the limit on open files leaves to them.
    pub all: usize,
    /// Of one address, of IPv6 one network of 64 bits. Default a quarter of all.
    pub per_address: usize,
    /// Addresses that come for many, and have all there are. Default those of this machine.
    pub proxies: Proxies,
}

impl ConnectionLimits {
    /// What so many open files leave to connections, beside so many threads.
    pub fn within(open_files: u64, threads: usize) -> Self {
        Self::of(open_files::left_to_connections(open_files, threads))
    }

    /// How many of them may be live, so that whoever asks for something else finds a place.
    pub fn left_to_live(&self) -> usize {
        (self.all - self.all / CONNECTIONS_NOT_LIVE_SHARE).max(1)
    }

    /// So many, and of one address its share of them.
    pub fn of(all: usize) -> Self {
        Self { all, per_address: (all / CONNECTIONS_SHARE).max(1), proxies: Proxies::default() }
    }
}

/// Why a connection was refused or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Reason {
    /// All places are taken, and by requests under way.
    All,
    /// The same of those of its address.
    Address,
}

/// All connections.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
    /// Bytes of later requests that are held back, of all connections.
    held_bytes: Gauge,
    refused: Counter,
    refused_address: Counter,
    made_room: Counter,
    stayed_idle: Counter,
    refusals_logged: Throttle,
}

#[derive(Debug, Default)]
struct Table {
    all: Order,
    /// Those of addresses that have any.
    by_address: HashMap<IpAddr, Order>,
}

/// Where a connection stands in the table: its keys among all, and among those of its address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    of_all: usize,
    of_address: usize,
}

/// The place of one connection, given back when it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Place {
    connections: Arc<Connections>,
    line: Arc<Line>,
}

impl Default for Connections {
    /// As many as this process may have open now.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(ConnectionLimits::within(open_files::limit(), 2 * threads))
    }
}

impl Connections {
    /// None are there yet.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            table: Mutex::default(),
            held_bytes: Gauge::default(),
            refused: Counter::default(),
            refused_address: Counter::default(),
            made_room: Counter::default(),
            stayed_idle: Counter::default(),
            refusals_logged: Throttle::default(),
        }
    }

    /// How many there may be.
    pub fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    /// How many there are.
    pub(in crate::http) fn count(&self) -> usize {
        self.table.lock().all.len()
    }

    /// Bytes of later requests that are held back.
    pub(super) fn held_bytes(&self) -> usize {
        usize::try_from(self.held_bytes.get()).unwrap_or(usize::MAX)
    }

    /// Counts that one connection holds back so many bytes in place of so many.
    pub(super) fn change_held(&self, before: usize, now: usize) {
        self.held_bytes.change(before as u64, now as u64);
    }

    /// How many were refused or ended, by reason.
    pub(in crate::http) fn ended(&self) -> [(&'static str, u64); 4] {
        [
            ("refused", self.refused.get()),
            ("refused_address", self.refused_address.get()),
            ("made_room", self.made_room.get()),
            ("stayed_idle", self.stayed_idle.get()),
        ]
    }

    /// Gives a new connection its place. None if it has to end at once.
    pub(in crate::http) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Place> {
        let address = self.limits.proxies.counted(peer);
        let entered = {
            let mut table = self.table.lock();
            self.make_room(&mut table, address).map(|ended| (ended, table.add(self, address)))
        };
        match entered {
            Ok((ended, line)) => {
                // Only now, since it may run what is woken.
                if let Some(ended) = ended {
                    ended.end();
                    self.made_room.add(1);
                }
                Some(Place { connections: Arc::clone(self), line })
            }
            Err(reason) => {
                self.refuse(reason, peer);
                None
            }
        }
    }

    /// Finds the connection that is to end for one of `address`, if one has to.
    fn make_room(&self, table: &mut Table, address: Option<IpAddr>) -> Result<Option<Arc<Line>>, Reason> {
        let of_address = address.and_then(|address| table.by_address.get_mut(&address));
        let idle = match of_address {
            Some(order) if order.staying() >= self.limits.per_address => order.next_to_end().ok_or(Reason::Address)?,
            _ if table.all.staying() >= self.limits.all => table.all.next_to_end().ok_or(Reason::All)?,
            _ => return Ok(None),
        };
        table.leave(&idle);
        Ok(Some(idle))
    }

    fn refuse(&self, reason: Reason, peer: Option<SocketAddr>) {
        let (counter, limit) = match reason {
            Reason::All => (&self.refused, self.limits.all),
            Reason::Address => (&self.refused_address, self.limits.per_address),
        };
        counter.add(1);
        let Some(left_out) = self.refusals_logged.due() else { return };
        let peer = peer.map(|peer| peer.ip().to_canonical().to_string());
        let what = if reason == Reason::All { "all" } else { "one address" };
        warn!(
            peer,
            limit,
            of = what,
            more_since_last = left_out,
            "a connection was refused: no place, and none is idle"
        );
    }

    /// Begins a request of a connection, unless that was chosen to end.
    pub(super) fn begin(&self, line: &Line) -> bool {
        let mut table = self.table.lock();
        if line.is_leaving() {
            return false;
        }
        if line.begins() {
            table.orders(line, Order::busy);
        }
        true
    }

    /// Ends a request of a connection.
    pub(super) fn end(&self, line: &Line) {
        let mut table = self.table.lock();
        if line.ends() {
            table.orders(line, |order, key| order.idle(key, line.is_known()));
        }
    }

    /// Notes of a connection that a request was let in that not everybody may send. If it is idle, that counts from now.
    pub(super) fn know(&self, line: &Line) {
        let mut table = self.table.lock();
        let is_idle = line.idle_since().is_some();
        line.set_known();
        if is_idle {
            line.idle_from_now();
            table.orders(line, |order, key| {
                order.busy(key);
                order.idle(key, true);
            });
        }
    }

    /// Ends connections that have been idle for so long.
    pub(in crate::http) fn sweep(&self, idle_max: Duration) {
        let Some(before) = Instant::now().checked_sub(idle_max) else { return };
        let is_due = |line: &Arc<Line>| line.idle_since().is_some_and(|since| since < before);
        loop {
            let mut due = Vec::new();
            {
                let mut table = self.table.lock();
                while due.len() < CONNECTIONS_PER_SWEEP {
                    let Some(line) = table.all.longest_idle().into_iter().flatten().find(is_due) else { break };
                    table.leave(&line);
                    due.push(line);
                }
            }
            self.stayed_idle.add(due.len() as u64);
            due.iter().for_each(|line| line.end());
            if due.len() < CONNECTIONS_PER_SWEEP {
                return;
            }
        }
    }
}

impl Table {
    /// Adds a connection, which is idle.
    fn add(&mut self, connections: &Arc<Connections>, address: Option<IpAddr>) -> Arc<Line> {
        let mut of_address = address.map(|address| self.by_address.entry(address).or_default());
        let key_of_address = of_address.as_ref().map_or(0, |order| order.next_key());
        let seat = Seat { of_all: self.all.next_key(), of_address: key_of_address };
        let line = Line::new(Arc::clone(connections), address, seat);
        of_address.iter_mut().for_each(|order| order.add(Arc::clone(&line)));
        self.all.add(Arc::clone(&line));
        self.orders(&line, |order, key| order.idle(key, false));
        line
    }

    /// Changes both orders that a connection is in.
    fn orders(&mut self, line: &Line, change: impl Fn(&mut Order, usize)) {
        change(&mut self.all, line.seat.of_all);
        if let Some(order) = line.address.and_then(|address| self.by_address.get_mut(&address)) {
            change(order, line.seat.of_address);
        }
    }

    /// Counts a connection as one that goes. Not twice: those are not idle any more.
    fn leave(&mut self, line: &Line) {
        line.leave();
        self.orders(line, Order::leave);
    }
}

impl Place {
    /// Its connection.
    pub(in crate::http) fn line(&self) -> &Arc<Line> {
        &self.line
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        table.orders(&self.line, Order::remove);
        // Its requests may end later, when its keys are another's.
        self.line.leave();
        let Some(address) = self.line.address else { return };
        if let Entry::Occupied(order) = table.by_address.entry(address)
            && order.get().len() == 0
        {
            order.remove();
        }
    }
}

#[cfg(test)]
mod tests;

//! Places of connections: how many there may be, in all and of one address.
//!
//! Responsible for:
//! - giving a new connection the place of the longest idle one when there is none left, and refusing it when none is idle.
//!   Those that sent nothing but what everybody may go first;
//! - ending connections that stay idle, however slowly they send something.
//!
//! Not responsible for:
//! - how many files the system allows ([`super::open_files`]), what is idle ([`super::line`]).
//!
//! A connection is idle while no request of it is under way. WebSockets and streams of events are requests that stay under way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;
use tracing::warn;

use crate::actor::counters::Counter;
use crate::api::sockets::line::Line;
use crate::api::sockets::open_files;
use crate::api::sockets::proxies::Proxies;
use crate::limits::{
    CONNECTION_LOOKS_MAX, CONNECTION_LOOKS_MIN, CONNECTIONS_NOT_LIVE_SHARE, CONNECTIONS_PER_SWEEP, CONNECTIONS_SHARE,
};
use crate::throttle::Throttle;

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
pub(in crate::api) enum Reason {
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
    refused: Counter,
    refused_address: Counter,
    made_room: Counter,
    stayed_idle: Counter,
    refusals_logged: Throttle,
}

#[derive(Debug, Default)]
struct Table {
    all: Ring,
    /// Those of addresses that have any.
    by_address: HashMap<IpAddr, Ring>,
}

/// Connections that are looked at one after the other, round and round.
#[derive(Debug, Default)]
struct Ring {
    lines: Slab<Arc<Line>>,
    hand: usize,
    /// Those that are there yet, and were ended for others.
    leaving: usize,
}

/// The place of one connection, given back when it is dropped.
#[derive(Debug)]
pub(in crate::api) struct Place {
    connections: Arc<Connections>,
    line: Arc<Line>,
    key: usize,
    key_of_address: usize,
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
    pub(in crate::api) fn count(&self) -> usize {
        self.table.lock().all.lines.len()
    }

    /// How many were refused or ended, by reason.
    pub(in crate::api) fn ended(&self) -> [(&'static str, u64); 4] {
        [
            ("refused", self.refused.get()),
            ("refused_address", self.refused_address.get()),
            ("made_room", self.made_room.get()),
            ("stayed_idle", self.stayed_idle.get()),
        ]
    }

    /// Gives a new connection its place. None if it has to end at once.
    pub(in crate::api) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Place> {
        let address = self.limits.proxies.counted(peer);
        let entered = {
            let mut table = self.table.lock();
            self.make_room(&mut table, address).map(|ended| {
                let line = Line::new(address);
                let key = table.all.lines.insert(Arc::clone(&line));
                let of_address = address.map(|address| table.by_address.entry(address).or_default());
                let key_of_address = of_address.map_or(0, |ring| ring.lines.insert(Arc::clone(&line)));
                (ended, line, key, key_of_address)
            })
        };
        match entered {
            Ok((ended, line, key, key_of_address)) => {
                // Only now, since it may run what is woken.
                if let Some(ended) = ended {
                    ended.end();
                    self.made_room.add(1);
                }
                Some(Place { connections: Arc::clone(self), line, key, key_of_address })
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
            Some(ring) if ring.staying() >= self.limits.per_address => ring.longest_idle().ok_or(Reason::Address)?,
            _ if table.all.staying() >= self.limits.all => table.all.longest_idle().ok_or(Reason::All)?,
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

    /// Ends connections that have been idle for so long.
    pub(in crate::api) fn sweep(&self, idle_max: Duration) {
        let Some(before) = Instant::now().checked_sub(idle_max) else { return };
        let (mut from, mut end) = (0, 1);
        while from < end {
            let mut idle = Vec::new();
            {
                let mut table = self.table.lock();
                end = table.all.lines.capacity();
                let lines = (from..from + CONNECTIONS_PER_SWEEP).filter_map(|key| table.all.lines.get(key));
                idle.extend(lines.filter(|line| line.idle_since().is_some_and(|since| since < before)).cloned());
                idle.iter().for_each(|line| table.leave(line));
            }
            self.stayed_idle.add(idle.len() as u64);
            idle.iter().for_each(|line| line.end());
            from += CONNECTIONS_PER_SWEEP;
        }
    }
}

impl Table {
    /// Counts a connection as one that goes. Not twice: those are not idle any more.
    fn leave(&mut self, line: &Line) {
        line.leave();
        self.all.leaving += 1;
        if let Some(ring) = line.address.and_then(|address| self.by_address.get_mut(&address)) {
            ring.leaving += 1;
        }
    }
}

impl Ring {
    fn staying(&self) -> usize {
        self.lines.len() - self.leaving
    }

    /// Of the next few that are idle, the one that is so for the longest: of those that sent nothing but what everybody may, if there
    /// is one among them.
    fn longest_idle(&mut self) -> Option<Arc<Line>> {
        let (places, mut longest) = (self.lines.capacity(), None::<((bool, Instant), &Arc<Line>)>);
        let mut idle = 0;
        for _ in 0..places.min(CONNECTION_LOOKS_MAX) {
            // Of few one might be taken that is worth more than most: many places next to each other may be empty or busy.
            if idle >= CONNECTION_LOOKS_MIN {
                break;
            }
            self.hand = (self.hand + 1) % places;
            let Some(line) = self.lines.get(self.hand) else { continue };
            let Some(since) = line.idle_since().map(|since| (line.is_known(), since)) else { continue };
            idle += 1;
            if longest.is_none_or(|(other, _)| since < other) {
                longest = Some((since, line));
            }
        }
        longest.map(|(_, line)| Arc::clone(line))
    }

    fn remove(&mut self, key: usize) {
        let line = self.lines.remove(key);
        self.leaving -= usize::from(line.is_leaving());
    }
}

impl Place {
    /// Its connection.
    pub(in crate::api) fn line(&self) -> &Arc<Line> {
        &self.line
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        table.all.remove(self.key);
        let Some(address) = self.line.address else { return };
        if let Entry::Occupied(mut ring) = table.by_address.entry(address) {
            ring.get_mut().remove(self.key_of_address);
            if ring.get().lines.is_empty() {
                ring.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;

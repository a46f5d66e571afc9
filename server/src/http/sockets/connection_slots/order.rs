//! Idle connections in the order in which they became idle, as linked lists in a slab: every change touches few entries.

use std::sync::Arc;

use slab::Slab;

use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use tidewire::limits::CONNECTIONS_UNKNOWN_SHARE;

/// A set of connections with an order of the idle ones.
#[derive(Debug, Default)]
pub(super) struct Order {
    entries: Slab<Entry>,
    /// The idle connections that are not authenticated.
    unknown: List,
    /// The idle connections that are authenticated.
    known: List,
    /// The number of evicted connections that are not closed yet.
    leaving: usize,
    /// The number of entries read or changed.
    #[cfg(test)]
    pub(super) touched: usize,
}

#[derive(Debug)]
struct Entry {
    connection: Arc<ConnectionState>,
    link: Option<Link>,
}

/// The neighbours of an idle connection in its list.
#[derive(Debug, Clone, Copy)]
struct Link {
    is_authenticated: bool,
    before: Option<usize>,
    after: Option<usize>,
}

/// The keys of the connection that has been idle longest, and of the one that became idle last.
#[derive(Debug, Default)]
struct List {
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
}

impl Order {
    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of connections that were not evicted.
    pub(super) fn staying(&self) -> usize {
        self.entries.len() - self.leaving
    }

    /// Returns the key of the next connection that is added.
    pub(super) fn next_key(&self) -> usize {
        self.entries.vacant_key()
    }

    /// Adds a connection, which does not count as idle yet.
    pub(super) fn add(&mut self, connection: Arc<ConnectionState>) {
        self.entries.insert(Entry { connection, link: None });
    }

    /// Removes a closed connection.
    pub(super) fn remove(&mut self, key: usize) {
        self.busy(key);
        let entry = self.entries.remove(key);
        self.leaving -= usize::from(entry.connection.is_leaving());
    }

    /// Marks a connection as idle from now on.
    pub(super) fn idle(&mut self, key: usize, is_authenticated: bool) {
        let before = self.list(is_authenticated).last;
        self.entry(key).link = Some(Link { is_authenticated, before, after: None });
        self.join(is_authenticated, before, Some(key));
        self.join(is_authenticated, Some(key), None);
        self.list(is_authenticated).len += 1;
    }

    /// Marks a connection as not idle, if it was idle.
    pub(super) fn busy(&mut self, key: usize) {
        let Some(Link { is_authenticated, before, after }) = self.entry(key).link.take() else { return };
        self.join(is_authenticated, before, after);
        self.list(is_authenticated).len -= 1;
    }

    /// Marks a connection as evicted.
    pub(super) fn leave(&mut self, key: usize) {
        self.busy(key);
        self.leaving += 1;
    }

    /// Returns the connection to evict for a new one: the longest idle one that is not authenticated. Returns the longest idle one of all
    /// if there are none, or so few that new connections would be closed before they send data.
    pub(super) fn next_to_end(&mut self) -> Option<Arc<ConnectionState>> {
        let [unknown, known] = self.longest_idle();
        let is_unknown_first = match (&unknown, &known) {
            (Some(unknown), Some(known)) => {
                self.unknown.len > self.staying() / CONNECTIONS_UNKNOWN_SHARE
                    || unknown.idle_since() < known.idle_since()
            }
            (unknown, _) => unknown.is_some(),
        };
        if is_unknown_first { unknown } else { known }
    }

    /// Returns the longest idle connection of each list.
    pub(super) fn longest_idle(&mut self) -> [Option<Arc<ConnectionState>>; 2] {
        [self.unknown.first, self.known.first].map(|key| key.map(|key| self.connection(key)))
    }

    /// Links two neighbours of a list. If one of them is `None`, the other becomes the first or the last.
    fn join(&mut self, is_authenticated: bool, before: Option<usize>, after: Option<usize>) {
        match before.map(|key| self.entry(key)) {
            Some(entry) => entry.link.iter_mut().for_each(|link| link.after = after),
            None => self.list(is_authenticated).first = after,
        }
        match after.map(|key| self.entry(key)) {
            Some(entry) => entry.link.iter_mut().for_each(|link| link.before = before),
            None => self.list(is_authenticated).last = before,
        }
    }

    fn list(&mut self, is_authenticated: bool) -> &mut List {
        if is_authenticated { &mut self.known } else { &mut self.unknown }
    }

    fn connection(&mut self, key: usize) -> Arc<ConnectionState> {
        Arc::clone(&self.entry(key).connection)
    }

    fn entry(&mut self, key: usize) -> &mut Entry {
        #[cfg(test)]
        {
            self.touched += 1;
        }
        &mut self.entries[key]
    }
}

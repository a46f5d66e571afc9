//! Idle connections in the order in which they became idle, as lists through a table: whatever changes, few entries are touched.
//!
//! Responsible for:
//! - which connection ends for a new one;
//! - how many connections there are, and how many of them are ending.
//!
//! Not responsible for:
//! - what is idle, and since when ([`crate::http::sockets::line`]).

use std::sync::Arc;

use slab::Slab;

use crate::http::sockets::line::Line;
use tidewire::limits::CONNECTIONS_UNKNOWN_SHARE;

/// Connections, of which the idle ones have an order.
#[derive(Debug, Default)]
pub(super) struct Order {
    entries: Slab<Entry>,
    /// The idle connections that sent nothing but what everybody may send.
    unknown: List,
    /// The other idle connections.
    known: List,
    /// Connections that were chosen to end and are not closed yet.
    leaving: usize,
    /// Entries that were read or changed.
    #[cfg(test)]
    pub(super) touched: usize,
}

#[derive(Debug)]
struct Entry {
    line: Arc<Line>,
    link: Option<Link>,
}

/// Where an idle connection stands in its list.
#[derive(Debug, Clone, Copy)]
struct Link {
    is_known: bool,
    before: Option<usize>,
    after: Option<usize>,
}

/// Keys of the connection that is idle for the longest, and of the one that became idle last.
#[derive(Debug, Default)]
struct List {
    first: Option<usize>,
    last: Option<usize>,
    len: usize,
}

impl Order {
    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many of them were not chosen to end.
    pub(super) fn staying(&self) -> usize {
        self.entries.len() - self.leaving
    }

    /// The key of the next connection that is added.
    pub(super) fn next_key(&self) -> usize {
        self.entries.vacant_key()
    }

    /// Adds a connection, which is not idle yet.
    pub(super) fn add(&mut self, line: Arc<Line>) {
        self.entries.insert(Entry { line, link: None });
    }

    /// Removes a connection that is closed.
    pub(super) fn remove(&mut self, key: usize) {
        self.busy(key);
        let entry = self.entries.remove(key);
        self.leaving -= usize::from(entry.line.is_leaving());
    }

    /// Notes that a connection becomes idle now.
    pub(super) fn idle(&mut self, key: usize, is_known: bool) {
        let before = self.list(is_known).last;
        self.entry(key).link = Some(Link { is_known, before, after: None });
        self.join(is_known, before, Some(key));
        self.join(is_known, Some(key), None);
        self.list(is_known).len += 1;
    }

    /// Notes that a connection is not idle, if it was.
    pub(super) fn busy(&mut self, key: usize) {
        let Some(Link { is_known, before, after }) = self.entry(key).link.take() else { return };
        self.join(is_known, before, after);
        self.list(is_known).len -= 1;
    }

    /// Notes that a connection was chosen to end.
    pub(super) fn leave(&mut self, key: usize) {
        self.busy(key);
        self.leaving += 1;
    }

    /// The connection that ends for a new one: the longest idle of those that sent nothing but what everybody may, unless these are so
    /// few that new ones would end for each other before they have sent anything. Then, or if there is none, the longest idle of all.
    pub(super) fn next_to_end(&mut self) -> Option<Arc<Line>> {
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

    /// The longest idle connection of each list.
    pub(super) fn longest_idle(&mut self) -> [Option<Arc<Line>>; 2] {
        [self.unknown.first, self.known.first].map(|key| key.map(|key| self.line(key)))
    }

    /// Makes two neighbours of a list; without one, the other is the first or the last.
    fn join(&mut self, is_known: bool, before: Option<usize>, after: Option<usize>) {
        match before.map(|key| self.entry(key)) {
            Some(entry) => entry.link.iter_mut().for_each(|link| link.after = after),
            None => self.list(is_known).first = after,
        }
        match after.map(|key| self.entry(key)) {
            Some(entry) => entry.link.iter_mut().for_each(|link| link.before = before),
            None => self.list(is_known).last = before,
        }
    }

    fn list(&mut self, is_known: bool) -> &mut List {
        if is_known { &mut self.known } else { &mut self.unknown }
    }

    fn line(&mut self, key: usize) -> Arc<Line> {
        Arc::clone(&self.entry(key).line)
    }

    fn entry(&mut self, key: usize) -> &mut Entry {
        #[cfg(test)]
        {
            self.touched += 1;
        }
        &mut self.entries[key]
    }
}

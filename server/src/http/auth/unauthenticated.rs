//! Unauthenticated connections: limits their number, and selects the one to close when a new one arrives at the limit.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::http::admission::Permit;
use crate::http::problem::Problem;

/// All unauthenticated connections, with their limits.
#[derive(Debug)]
pub(in crate::http) struct UnauthenticatedConnections {
    all_max: usize,
    of_address_max: usize,
    table: Mutex<PendingTable>,
}

#[derive(Debug, Default)]
struct PendingTable {
    /// All connections in the order of their arrival.
    all: BTreeMap<u64, Arc<Pending>>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
    next: u64,
}

#[derive(Debug)]
struct Pending {
    /// `None` for the address of a proxy, which has no limit of its own.
    address: Option<IpAddr>,
    permit: Mutex<Option<Permit>>,
    is_evicted: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl UnauthenticatedConnections {
    /// Creates an empty set with a maximum in total and for each address.
    pub(in crate::http) fn new(all_max: usize, of_address_max: usize) -> Arc<Self> {
        Arc::new(Self { all_max, of_address_max, table: Mutex::default() })
    }

    /// Admits a connection until the returned slot is dropped. It gets a new permit, or the permit of the connection that it evicts.
    pub(in crate::http) fn enter(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        permit: impl FnOnce() -> Result<Permit, Problem>,
    ) -> Result<UnauthenticatedSlot, Problem> {
        let table = &mut *self.table.lock();
        let evicted = table.evicted(address, self.all_max, self.of_address_max);
        let permit = match evicted.and_then(|nth| table.remove(nth)) {
            Some(pending) => pending.evict(),
            None => Some(permit()?),
        };
        let pending =
            Pending { address, permit: Mutex::new(permit), is_evicted: AtomicBool::new(false), task: Mutex::default() };
        let (nth, pending) = (table.next, Arc::new(pending));
        table.next += 1;
        table.all.insert(nth, Arc::clone(&pending));
        if let Some(address) = address {
            table.by_address.entry(address).or_default().insert(nth);
        }
        Ok(UnauthenticatedSlot { connections: Arc::clone(self), pending, nth })
    }
}

impl PendingTable {
    /// Selects the connection to evict for a new one of `address`, if a limit is reached.
    fn evicted(&self, address: Option<IpAddr>, all_max: usize, of_address_max: usize) -> Option<u64> {
        let of_address = address.and_then(|address| self.by_address.get(&address));
        match of_address {
            Some(of_address) if of_address.len() >= of_address_max => of_address.first().copied(),
            _ if self.all.len() >= all_max => self.all.first_key_value().map(|(nth, _)| *nth),
            _ => None,
        }
    }

    fn remove(&mut self, nth: u64) -> Option<Arc<Pending>> {
        let pending = self.all.remove(&nth)?;
        if let Some(Entry::Occupied(mut of_address)) = pending.address.map(|address| self.by_address.entry(address)) {
            of_address.get_mut().remove(&nth);
            if of_address.get().is_empty() {
                of_address.remove();
            }
        }
        Some(pending)
    }
}

impl Pending {
    /// Notifies the connection that it must end. Returns its permit.
    fn evict(&self) -> Option<Permit> {
        self.is_evicted.store(true, Ordering::Release);
        self.task.lock().take().iter().for_each(Waker::wake_by_ref);
        self.permit.lock().take()
    }
}

/// The slot of one connection. It is released on drop.
#[derive(Debug)]
pub(in crate::http) struct UnauthenticatedSlot {
    connections: Arc<UnauthenticatedConnections>,
    pending: Arc<Pending>,
    nth: u64,
}

impl UnauthenticatedSlot {
    /// Returns ready once the connection must end.
    pub(in crate::http) fn poll_evicted(&self, task: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.pending.task.lock();
        if self.pending.is_evicted.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !waiting.as_ref().is_some_and(|known| known.will_wake(task.waker())) {
            *waiting = Some(task.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for UnauthenticatedSlot {
    fn drop(&mut self) {
        // If the connection was evicted, it is not in the table any more.
        let _ = self.connections.table.lock().remove(self.nth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::admission::{Admission, AdmissionLimits};
    use crate::http::operation::WorkKind;

    fn is_evicted(slot: &UnauthenticatedSlot) -> bool {
        slot.poll_evicted(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn address(host: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, host]))
    }

    #[test]
    fn the_longest_silent_connection_of_an_address_or_of_all_is_evicted() {
        let admission = Admission::new(AdmissionLimits::default());
        let connections = UnauthenticatedConnections::new(4, 2);
        let enter = |host| connections.enter(address(host), || admission.enter(WorkKind::Unauthenticated)).unwrap();
        let mut slots = vec![enter(1), enter(2), enter(1)];
        slots.push(enter(1));
        let out = |slots: &[UnauthenticatedSlot]| slots.iter().map(is_evicted).collect::<Vec<_>>();
        assert_eq!(out(&slots), [true, false, false, false], "the first of its own address");
        slots.extend([enter(3), enter(4)]);
        assert_eq!(out(&slots), [true, true, false, false, false, false], "and then the first of all");
        assert_eq!(connections.table.lock().all.len(), 4);
        let of_proxy: Vec<_> =
            (0..4).map(|_| connections.enter(None, || admission.enter(WorkKind::Unauthenticated)).unwrap()).collect();
        assert_eq!(out(&slots), [true; 6]);
        assert_eq!(out(&of_proxy), [false; 4], "who comes for many has all slots");
        drop((slots, of_proxy));
        let table = connections.table.lock();
        assert!(table.all.is_empty() && table.by_address.is_empty());
    }

    #[test]
    fn there_are_never_more_permits_than_places() {
        let admission = Admission::new(AdmissionLimits::default());
        let connections = UnauthenticatedConnections::new(3, 2);
        let mut permits = 0;
        let slots: Vec<_> = (0..50)
            .map(|nth| {
                let permit = || {
                    permits += 1;
                    admission.enter(WorkKind::Unauthenticated)
                };
                connections.enter(address(nth % 7), permit).unwrap()
            })
            .collect();
        assert_eq!((permits, slots.iter().filter(|slot| !is_evicted(slot)).count()), (3, 3));
    }
}

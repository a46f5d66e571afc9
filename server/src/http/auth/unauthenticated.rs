//! Connections that have yet to say who they are: whose turn it is to go when there is no place for one more.
//!
//! Responsible for:
//! - a place for each that comes: when its address has as many as its share, or there are as many as there may be, the one that
//!   has been silent for the longest goes, of that address or of all. An honest client is silent for a moment only.
//!
//! Not responsible for:
//! - ending them (`http::live`), which learn from their places that they have to go.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::http::middleware::admission::Permit;
use crate::http::problem::Problem;

/// All of them.
#[derive(Debug)]
pub(in crate::http) struct Crowd {
    all_max: usize,
    of_address_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order in which they came.
    all: BTreeMap<u64, Arc<Silent>>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
    next: u64,
}

#[derive(Debug)]
struct Silent {
    /// None for who comes for many.
    address: Option<IpAddr>,
    permit: Mutex<Option<Permit>>,
    is_out: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Crowd {
    /// Nobody, at most so many, and so many of each address.
    pub(in crate::http) fn new(all_max: usize, of_address_max: usize) -> Arc<Self> {
        Arc::new(Self { all_max, of_address_max, table: Mutex::default() })
    }

    /// Lets one in, until what is returned is dropped, by a permit of its own or that of one who goes.
    pub(in crate::http) fn enter(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        permit: impl FnOnce() -> Result<Permit, Problem>,
    ) -> Result<Place, Problem> {
        let table = &mut *self.table.lock();
        let goes = table.goes(address, self.all_max, self.of_address_max);
        let permit = match goes.and_then(|nth| table.remove(nth)) {
            Some(silent) => silent.leave(),
            None => Some(permit()?),
        };
        let silent =
            Silent { address, permit: Mutex::new(permit), is_out: AtomicBool::new(false), task: Mutex::default() };
        let (nth, silent) = (table.next, Arc::new(silent));
        table.next += 1;
        table.all.insert(nth, Arc::clone(&silent));
        if let Some(address) = address {
            table.by_address.entry(address).or_default().insert(nth);
        }
        Ok(Place { crowd: Arc::clone(self), silent, nth })
    }
}

impl Table {
    /// Who has to go for one of `address`, if somebody has to.
    fn goes(&self, address: Option<IpAddr>, all_max: usize, of_address_max: usize) -> Option<u64> {
        let of_address = address.and_then(|address| self.by_address.get(&address));
        match of_address {
            Some(of_address) if of_address.len() >= of_address_max => of_address.first().copied(),
            _ if self.all.len() >= all_max => self.all.first_key_value().map(|(nth, _)| *nth),
            _ => None,
        }
    }

    fn remove(&mut self, nth: u64) -> Option<Arc<Silent>> {
        let silent = self.all.remove(&nth)?;
        if let Some(Entry::Occupied(mut of_address)) = silent.address.map(|address| self.by_address.entry(address)) {
            of_address.get_mut().remove(&nth);
            if of_address.get().is_empty() {
                of_address.remove();
            }
        }
        Some(silent)
    }
}

impl Silent {
    /// Tells it to go. Returns the permit that it leaves.
    fn leave(&self) -> Option<Permit> {
        self.is_out.store(true, Ordering::Release);
        self.task.lock().take().iter().for_each(Waker::wake_by_ref);
        self.permit.lock().take()
    }
}

/// The place of one of them.
#[derive(Debug)]
pub(in crate::http) struct Place {
    crowd: Arc<Crowd>,
    silent: Arc<Silent>,
    nth: u64,
}

impl Place {
    /// Ready once it has to go.
    pub(in crate::http) fn poll_out(&self, task: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.silent.task.lock();
        if self.silent.is_out.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !waiting.as_ref().is_some_and(|known| known.will_wake(task.waker())) {
            *waiting = Some(task.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that had to go is not there any more.
        let _ = self.crowd.table.lock().remove(self.nth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::middleware::admission::{Admission, AdmissionLimits};
    use crate::http::operation::Work;

    fn is_out(place: &Place) -> bool {
        place.poll_out(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn address(host: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, host]))
    }

    #[test]
    fn the_longest_silent_one_goes_of_an_address_or_of_all_and_nothing_is_kept_of_who_has_gone() {
        let admission = Admission::new(AdmissionLimits::default());
        let crowd = Crowd::new(4, 2);
        let enter = |host| crowd.enter(address(host), || admission.enter(Work::Handshake)).unwrap();
        let mut places = vec![enter(1), enter(2), enter(1)];
        places.push(enter(1));
        let out = |places: &[Place]| places.iter().map(is_out).collect::<Vec<_>>();
        assert_eq!(out(&places), [true, false, false, false], "the first of its own address");
        places.extend([enter(3), enter(4)]);
        assert_eq!(out(&places), [true, true, false, false, false, false], "and then the first of all");
        assert_eq!(crowd.table.lock().all.len(), 4);
        let of_proxy: Vec<_> =
            (0..4).map(|_| crowd.enter(None, || admission.enter(Work::Handshake)).unwrap()).collect();
        assert_eq!(out(&places), [true; 6]);
        assert_eq!(out(&of_proxy), [false; 4], "who comes for many has all places");
        drop((places, of_proxy));
        let table = crowd.table.lock();
        assert!(table.all.is_empty() && table.by_address.is_empty());
    }

    #[test]
    fn there_are_never_more_permits_than_places() {
        let admission = Admission::new(AdmissionLimits::default());
        let crowd = Crowd::new(3, 2);
        let mut asked = 0;
        let places: Vec<_> = (0..50)
            .map(|nth| {
                let permit = || {
                    asked += 1;
                    admission.enter(Work::Handshake)
                };
                crowd.enter(address(nth % 7), permit).unwrap()
            })
            .collect();
        assert_eq!((asked, places.iter().filter(|place| !is_out(place)).count()), (3, 3));
    }
}
